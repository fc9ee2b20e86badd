#!/usr/bin/env bash
# usage: hack/node/check.sh [-q] [-olm]
#
# Checks whether this machine can run the node tier. If it can, the exit status is 0. If not, it is 1, and the script prints
# every reason and what to do about it. With -q only reasons are printed. With -olm it is about hack/olm-node, which needs
# more.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi
quiet=
olm=
for argument in "$@"; do
	case $argument in
	-q) quiet=1 ;;
	-olm) olm=1 ;;
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

packages=$(missing_packages | tr '\n' ' ')
if [ -z "$packages" ]; then
	yes "$(containerd --version | awk '{ print "containerd", $3 }'), $(runc --version | head -1), CNI plugins in $(cni_folder)"
else
	no "programs are missing: hack/node/install.sh, or apt-get install --no-install-recommends ${packages% }"
fi

if [ -n "$olm" ]; then
	packages=$(missing_olm_packages | tr '\n' ' ')
	if [ -z "$packages" ]; then
		yes "$(command -v busybox) is statically linked"
	else
		no "programs are missing: hack/node/install.sh -olm, or apt-get install --no-install-recommends ${packages% }"
	fi
fi

if [ "$reasons" != 0 ]; then
	exit 1
fi
yes "this machine can run the node tier"
