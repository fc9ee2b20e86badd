#!/usr/bin/env bash
# usage: hack/olm-node/up.sh -dir DIR [-bundle TAG=FOLDER]... [flags of hack/node/up.sh]
#
# Starts a node with hack/node/up.sh, and on it a registry and the Operator Lifecycle Manager. Returns when OLM's
# operators are available. Needs root, and bin/olm-node from "make olm-node".
#
#   -bundle TAG=FOLDER   another version of the bundle to serve; may be repeated
#
# Images are pulled by the names that they are published with: ghcr.io and quay.io lead to the registry inside. So this
# installs the operator as on any cluster, in the namespace that is made for it:
#
#   hack/node/exec.sh -dir DIR sh -c 'cd /run/node/shared && ./operator-sdk run bundle ...'
#
# hack/node/down.sh ends all of it.
set -euo pipefail
export LC_ALL=C
. "$(dirname "${BASH_SOURCE[0]}")/../node/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi
node=$repo/hack/node
kit=$repo/bin/olm-node
[ -e "$kit/olm.yaml" ] || fail "$kit is not there: call \"make olm-node\""

dir=
bundles=()
arguments=()
while [ $# -gt 0 ]; do
	case $1 in
	-bundle)
		bundles+=("${2:?-bundle needs TAG=FOLDER}")
		shift 2
		;;
	-dir)
		dir=${2:?-dir needs a folder}
		arguments+=("$1" "$2")
		shift 2
		;;
	*)
		arguments+=("$1")
		shift
		;;
	esac
done
[ -n "$dir" ] || fail "-dir is missing; -h tells more"

began=$SECONDS
say() { printf '[%5ds] %s\n' $((SECONDS - began)) "$*"; }

# Every registry that an image's name begins with leads to the one inside.
while read -r host; do
	arguments+=(-registry "$host")
done < <(cut -d/ -f1 "$kit"/images/*.names | sort -u)
"$node/up.sh" "${arguments[@]}"
ready=
trap '[ -n "$ready" ] || "$node/down.sh" -dir "$dir"' EXIT

# The registry runs inside, and dies with the node. It sees what is in this folder.
shared=$dir/state/shared
inside=/run/node/shared
cp -rT "$kit" "$shared"
mkdir "$shared/bundles"
address=127.0.0.1:5000
serve=(-listen $address -verbose)
images=0
for names in "$kit"/images/*.names; do
	while read -r name; do
		serve+=(-archive "$name=$inside/images/$(basename "$names" .names).tar")
		images=$((images + 1))
	done <"$names"
done
for tagged in ${bundles[@]+"${bundles[@]}"}; do
	tag=${tagged%%=*}
	cp -rT "${tagged#*=}" "$shared/bundles/$tag"
	serve+=(-bundle "$(sed 's/:[^:]*$//' "$kit/images/bundle.names"):$tag=$inside/bundles/$tag")
	images=$((images + 1))
done
"$node/exec.sh" -dir "$dir" "$inside/registry" serve "${serve[@]}" </dev/null >"$dir/logs/registry.log" 2>&1 &
registry=$!
deadline=$((SECONDS + 60))
until grep -qsx $address "$dir/logs/registry.log"; do
	kill -0 $registry 2>/dev/null || fail "the registry has ended: $(tail -n 5 "$dir/logs/registry.log")"
	((SECONDS < deadline)) || fail "the registry does not answer; see $dir/logs/registry.log"
	sleep 0.1
done
say "a registry serves $images images"

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
ready=yes
