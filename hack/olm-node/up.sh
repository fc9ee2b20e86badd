#!/usr/bin/env bash
# usage: hack/olm-node/up.sh -dir DIR [flags of hack/node/up.sh]
#
# Runs a node with hack/node/up.sh, on which ghcr.io, quay.io and the other registries of bin/olm-node/images lead to the registry
# that hack/olm-node/install.sh starts.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../node/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi
names=$repo/bin/olm-node/images/names
[ -e "$names" ] || fail "$names is not there: call \"make test-node-olm\""
while read -r host; do
	set -- "$@" -registry "$host"
done < <(cut -d' ' -f2 "$names" | cut -d/ -f1 | sort -u)
exec "$repo/hack/node/up.sh" "$@"
