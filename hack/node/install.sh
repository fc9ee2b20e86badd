#!/usr/bin/env bash
# usage: hack/node/install.sh [-n] [-olm]
#
# Installs the packages that check.sh finds missing, with apt (Debian, Ubuntu). It replaces no installed program and starts no
# daemon: the node tier starts a containerd of its own. With -n it only prints the packages. With -olm it also installs
# the packages for hack/olm-node.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi

list=
olm=
for argument in "$@"; do
	case $argument in
	-n) list=1 ;;
	-olm) olm=1 ;;
	*) fail "unexpected argument $argument; -h tells more" ;;
	esac
done

mapfile -t packages < <(
	missing_packages
	[ -z "$olm" ] || missing_olm_packages
)
if [ -n "$list" ]; then
	[ ${#packages[@]} = 0 ] || printf '%s\n' "${packages[@]}"
	exit 0
fi
if [ ${#packages[@]} = 0 ]; then
	echo "nothing to install"
	exit 0
fi
command -v apt-get >/dev/null || fail "there is no apt-get here; install these by other means: ${packages[*]}"
[ "$(id -u)" = 0 ] || fail "installing needs root"

# Debian asks this program whether a daemon may be started. 101 means no.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
	trap 'rm -f "$policy"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$policy"
	chmod 755 "$policy"
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}"
# It must not be started at the next boot either.
if [[ " ${packages[*]} " == *" containerd "* ]] && command -v systemctl >/dev/null; then
	systemctl disable containerd.service >/dev/null 2>&1 || true
fi
echo "installed: ${packages[*]}"
