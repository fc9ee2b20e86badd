#!/usr/bin/env bash
# usage: hack/node/exec.sh -dir DIR [--] COMMAND [ARGUMENT]...
#
# Runs a command inside the sandbox of the node, where pods' addresses can be reached:
#
#   hack/node/exec.sh -dir DIR curl -s http://10.244.0.5:8080/healthz
#   hack/node/exec.sh -dir DIR kubectl get pods
#   hack/node/exec.sh -dir DIR ctr containers ls
#
# It gets a small environment of its own (PATH, KUBECONFIG, CONTAINERD_ADDRESS) and sees the host's files read-only.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# Only the arguments before the command are ours: -h may well be for the command.
case ${1:-} in
-h | --help | -help)
	usage
	exit 0
	;;
esac
case ${1:-} in
-dir | --dir)
	dir=${2:?-dir needs a folder}
	shift 2
	;;
-dir=* | --dir=*)
	dir=${1#*=}
	shift
	;;
*) fail "-dir is missing; -h tells more" ;;
esac
[ "${1:-}" != -- ] || shift
[ $# -gt 0 ] || fail "no command given"
[ -e "$dir/state/init.pid" ] || fail "no node runs in $dir"
mapfile -t environment <"$dir/state/environment"
exec nsenter --target "$(cat "$dir/state/init.pid")" --mount --net --pid --uts --ipc --cgroup --wd=/ -- \
	/usr/bin/env -i "${environment[@]}" "$@"
