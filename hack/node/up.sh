#!/usr/bin/env bash
# usage: hack/node/up.sh -dir DIR [-image ARCHIVE]... [-registry HOST]...
#
# Runs a Kubernetes with one real node, in namespaces of its own, until it is interrupted or the process that started it ends.
# Needs root. Everything belongs to DIR, so several can run side by side. The node is Ready, and pods can be created, when
# DIR/kubeconfig appears.
#
#   -dir DIR         where it lives; created if it does not exist
#   -image ARCHIVE   image archive (OCI) to import; may be repeated
#   -registry HOST   name of a registry, such as ghcr.io, that runs inside; may be repeated. It leads to what listens on
#                    127.0.0.1:5000 inside: start a registry there with exec.sh. It is HTTPS, and containerd and what
#                    exec.sh runs trust it (SSL_CERT_FILE)
#
#   DIR/kubeconfig   for programs on the host, cluster administrator
#   DIR/logs         logs: of the node's programs, of the control plane in DIR/logs/control-plane, and of pods in
#                    DIR/logs/pods. Only they stay
#   DIR/state/shared files to pass in and out: exec.sh sees the folder as /run/node/shared, and it can be written there
#
# The node has the images verticalscaler.local/stress:dev and verticalscaler.local/pause:dev (use imagePullPolicy Never
# or IfNotPresent), a metrics-server, and the Service "kubernetes", so clients in pods work. There is no DNS, no other
# Service address, and no way to the outside.
#
# If this process is killed with SIGKILL, empty cgroups remain until the next call with the same DIR.
#
# LOCALCLUSTER, if set, is a localcluster binary with a kubelet to use instead of building one with hack/cluster/build.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi
# Asked before anything is built, which may take minutes.
[[ " $* " == *" -dir"[=\ ]* || " $* " == *" --dir"[=\ ]* ]] || fail "-dir is missing; -h tells more"
[ "$(id -u)" = 0 ] || fail "a real node needs root; hack/node/check.sh tells more"
packages=$(missing_packages | tr '\n' ' ')
[ -z "$packages" ] || fail "programs are missing (packages: ${packages% }); hack/node/install.sh installs them"

tools=$("$here/build.sh")
if [ -z "${LOCALCLUSTER:-}" ]; then
	cluster=$(LOCALCLUSTER_TAGS=kubelet "$repo/hack/cluster/build.sh")
	LOCALCLUSTER=$cluster/localcluster
fi
# exec, so that signals for this script reach the program that cleans up.
exec "$tools/nodebox" up -localcluster "$LOCALCLUSTER" -cni "$(cni_folder)" \
	-image "$tools/stress.tar" -image "$tools/pause.tar" "$@"
