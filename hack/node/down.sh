#!/usr/bin/env bash
# usage: hack/node/down.sh -dir DIR
#
# Ends the node of DIR and returns when its processes, mounts, cgroups and interfaces no longer exist. DIR/logs stays. Without
# a node it removes what a killed one may have left, and succeeds.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi
box=$(nodebox)
exec "$box" down "$@"
