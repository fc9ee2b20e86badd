#!/usr/bin/env bash
# usage: hack/node/install.sh [-n] [-programs] [-olm]
#
# Installs the packages that check.sh finds missing, with apt (Debian, Ubuntu). It replaces no installed program and starts no
# daemon: the node tier starts a containerd of its own. With -n it only prints the packages. With -programs it also installs
# the packages for programs.sh, and with -olm those for hack/olm-node.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi

list=
wanted=(missing_packages)
for argument in "$@"; do
	case $argument in
	-n) list=1 ;;
	-programs) wanted+=(missing_program_packages) ;;
	-olm) wanted+=(missing_olm_packages) ;;
	*) fail "unexpected argument $argument; -h tells more" ;;
	esac
done

mapfile -t packages < <(for kind in "${wanted[@]}"; do "$kind"; done)
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
