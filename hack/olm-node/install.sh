#!/usr/bin/env bash
# usage: hack/olm-node/install.sh -dir DIR
#
# Starts a registry and the Operator Lifecycle Manager on the node that hack/olm-node/up.sh runs. Returns when OLM's operators are
# available. Images are pulled by the names that they are published with. So this installs the operator as on any cluster, in a
# namespace of its own:
#
#   hack/node/exec.sh -dir DIR sh -c 'cd /run/node/shared && ./operator-sdk run bundle ...'
set -euo pipefail
export LC_ALL=C
. "$(dirname "${BASH_SOURCE[0]}")/../node/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi
node=$repo/hack/node
kit=$repo/bin/olm-node

[ $# = 2 ] && [ "$1" = -dir ] || fail "want -dir DIR; -h tells more"
dir=$2
[ -e "$dir/kubeconfig" ] || fail "no node is ready in $dir"

began=$SECONDS
say() { printf '[%5ds] %s\n' $((SECONDS - began)) "$*"; }

# The registry runs inside, and dies with the node. It sees what is in this folder.
shared=$dir/state/shared
inside=/run/node/shared
cp -rT "$kit" "$shared"
address=127.0.0.1:5000
"$node/exec.sh" -dir "$dir" "$inside/crane" registry serve --address $address </dev/null >"$dir/logs/registry.log" 2>&1 &
registry=$!
deadline=$((SECONDS + 60))
until grep -qs "serving on port" "$dir/logs/registry.log"; do
	kill -0 $registry 2>/dev/null || fail "the registry has ended: $(tail -n 5 "$dir/logs/registry.log")"
	((SECONDS < deadline)) || fail "the registry does not answer; see $dir/logs/registry.log"
	sleep 0.1
done
# The registry has the images without the host in their names, because every host leads to it.
"$node/exec.sh" -dir "$dir" sh -ec "
	cd $inside/images
	while read -r folder name; do ../crane push \$folder $address/\${name#*/}; done <names" >"$dir/logs/registry-push.log" 2>&1 ||
	fail "cannot push the images; see $dir/logs/registry-push.log"
say "a registry serves $(wc -l <"$shared/images/names") images"

kubectl() { "$node/exec.sh" -dir "$dir" kubectl "$@"; }

# Server-side: one of the CRDs is too long for kubectl's own record. The CRDs come first and must be served.
kubectl apply --server-side -f "$inside/crds.yaml" >"$dir/logs/olm-install.log"
kubectl wait --for=condition=Established --timeout=60s -f "$inside/crds.yaml" >>"$dir/logs/olm-install.log"
kubectl apply --server-side -f "$inside/olm.yaml" >>"$dir/logs/olm-install.log"
for operator in olm-operator catalog-operator; do
	kubectl -n olm rollout status "deployment/$operator" --timeout=300s >>"$dir/logs/olm-install.log" || {
		kubectl -n olm get pods,events
		fail "OLM's $operator is not available"
	}
	say "OLM's $operator is available"
done
