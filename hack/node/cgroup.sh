#!/usr/bin/env bash
# usage: hack/node/cgroup.sh -dir DIR POD_UID CONTAINER_ID
#
# Prints, as one line of JSON, what the kernel enforces on a container at this moment. CONTAINER_ID may be as in the pod's
# status, with containerd:// in front.
#
#   {"cgroupVersion":1,"cpuShares":153,"cpuQuotaMicros":30000,"cpuPeriodMicros":100000,"memoryLimitBytes":201326592}
#
# With cgroup version 2 there are no shares. -1 means no limit.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi
box=$(nodebox)
exec "$box" cgroup "$@"
