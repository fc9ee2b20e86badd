#!/usr/bin/env bash
# usage: hack/node/check.sh [-q] [-programs] [-olm]
#
# Checks whether this machine can run the node tier. If it can, the exit status is 0. If not, it is 1, and the script prints
# every reason and what to do about it. With -q only reasons are printed. With -programs it is also about programs.sh, and with
# -olm about hack/olm-node.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi
quiet=
flags=
for argument in "$@"; do
	case $argument in
	-q) quiet=1 ;;
	-programs | -olm) flags+=" $argument" ;;
	*) fail "unexpected argument $argument; -h tells more" ;;
	esac
done

reasons=0
no() {
	echo "no: $*"
	reasons=$((reasons + 1))
}
yes() { [ -n "$quiet" ] || echo "ok: $*"; }

if [ "$(uname -s)" != Linux ]; then
	no "a real node needs Linux, and this is $(uname -s)"
	exit 1
fi
yes "Linux $(uname -r)"

if [ "$(id -u)" = 0 ]; then
	yes "root"
else
	no "cgroups and namespaces need root: run it with sudo"
fi

if command -v go >/dev/null; then
	yes "$(go env GOVERSION)"
else
	no "the go command is missing (with sudo, keep PATH: sudo env \"PATH=\$PATH\" ...)"
fi

packages=$("$here/install.sh" -n $flags | tr '\n' ' ')
if [ -z "$packages" ]; then
	yes "$(containerd --version | awk '{ print "containerd", $3 }'), $(runc --version | head -1), CNI plugins in $(cni_folder)"
else
	no "programs are missing: hack/node/install.sh$flags, or apt-get install --no-install-recommends ${packages% }"
fi

if [ "$reasons" != 0 ]; then
	exit 1
fi
yes "this machine can run the node tier"
