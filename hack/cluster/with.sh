#!/usr/bin/env bash
# usage: hack/cluster/with.sh COMMAND [ARGUMENT...]
#
# Starts a test cluster, runs the command, and stops the cluster. VERTICALSCALER_TEST_CLUSTER names the cluster's folder, so
# that the tests of several packages share it (internal/testkit). If the tests have a cluster already, only the command runs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

if [[ -n ${VERTICALSCALER_TEST_CLUSTER:-}${VERTICALSCALER_TEST_KUBECONFIG:-} ]]; then
	exec "$@"
fi

programs=$(hack/cluster/build.sh)
work=$(mktemp -d)
# The cluster ends with this process, however that ends.
"$programs/localcluster" up -dir "$work/cluster" -parent-pid $$ -kwok-nodes 10 \
	-audit-policy internal/testkit/testdata/audit-policy.yaml >"$work/log" 2>&1 &
cluster=$!
finish() {
	kill "$cluster" 2>/dev/null || true
	wait "$cluster" || true
	rm -rf "$work"
}
trap finish EXIT
until [[ -e $work/cluster/ready ]]; do
	kill -0 "$cluster" 2>/dev/null || {
		cat "$work/log" >&2
		exit 1
	}
	sleep 0.1
done

export KUBEBUILDER_ASSETS=$programs/assets VERTICALSCALER_TEST_CLUSTER=$work/cluster
"$@"
