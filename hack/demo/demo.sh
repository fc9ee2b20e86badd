#!/usr/bin/env bash
# usage: hack/demo/demo.sh [-once]
#
# Shows the operator at work in a local cluster, and checks what it did. The operator runs as a process with the rights of its
# ServiceAccount and no others. Time is compressed: see operator.yaml. "make demo" keeps running until Ctrl-C, and "make demo
# DEMO=once" exits after the checks.
#
# RELEASE names a folder that "make release" has written, to show what is in it: install.yaml, the program in operator.tar, and the
# plugin in its archive. Otherwise, this tree is shown: dist/install.yaml, and the programs in bin/demo.
set -euo pipefail
export LC_ALL=C
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

account=system:serviceaccount:verticalscaler-system:verticalscaler-operator
patience=180 # how many seconds a step may take

fail() {
	echo "demo: $*" >&2
	exit 1
}
say() { printf '\n[%4ds] %s\n' "$SECONDS" "$*"; }
# show runs a user's command, and prints it with its output.
show() {
	printf '$ %s\n' "$*"
	"$@"
}
# await <what> <command>...: waits until the command succeeds, and says for what.
await() {
	local what=$1 end=$((SECONDS + patience)) reported=$((SECONDS - 10))
	shift
	until "$@"; do
		[[ -z $operator ]] || kill -0 "$operator" || fail "the operator has ended: $(tail -n 5 "$work/operator.log")"
		((SECONDS < end)) || fail "waited $patience s for $what"
		if ((SECONDS >= reported + 10)); then
			echo "Waiting for $what"
			reported=$SECONDS
		fi
		sleep 0.5
	done
}

programs=$(hack/cluster/build.sh)
work=$(mktemp -d)
cluster='' operator=''
finish() {
	local status=$?
	for process in $operator $cluster; do
		kill "$process" 2>/dev/null || true
		wait "$process" || true
	done
	if ((status == 0 || status == 130)); then rm -rf "$work"; else echo "The logs are in $work" >&2; fi
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

release=${RELEASE:-dist}
bin=$PWD/bin/demo
if [[ -n ${RELEASE:-} ]]; then
	bin=$work/bin
	mkdir "$bin"
	archive=kubectl-vscaler_$(go env GOHOSTOS)_$(go env GOHOSTARCH).tar.gz
	(cd "$release" && sha256sum --check --ignore-missing SHA256SUMS | grep -x "$archive: OK") || fail "the checksum of $archive is wrong"
	tar -xzf "$release/$archive" -C "$bin"
	"$(hack/images/build.sh)/crane" export - - <"$release/operator.tar" | tar -x -C "$bin" manager
else
	GOFLAGS=$(hack/goflags.sh)
	export GOFLAGS CGO_ENABLED=0 GOWORK=off
	go build -o "$bin/manager" ./cmd/operator
	go build -o "$bin/kubectl-vscaler" ./cmd/kubectl-vscaler
fi

say "Starting a cluster with simulated nodes, metrics-server and the operator of $release/install.yaml"
"$programs/localcluster" up -dir "$work/cluster" -parent-pid $$ -kwok-nodes 10 -metrics-server -apiserver-arg audit-log-maxsize=0 \
	-audit-policy internal/testkit/testdata/audit-policy-reads.yaml >"$work/cluster.log" 2>&1 &
cluster=$!
until [[ -e $work/cluster/ready ]]; do
	kill -0 $cluster 2>/dev/null || fail "the cluster has ended: $(cat "$work/cluster.log")"
	sleep 0.1
done
export KUBECONFIG=$work/cluster/admin.kubeconfig KUBECACHEDIR=$work/kubectl PATH=$programs:$bin:$PATH
kubectl apply --server-side -f "$release/install.yaml" >/dev/null
# The operator has no right to change Deployments.
kubectl delete clusterrole verticalscaler-manager-rollout verticalscaler-manager-scaled-deployment
# A policy injects a native sidecar into pods of this namespace, as a service mesh does.
kubectl apply -f internal/testkit/testdata/sidecar.yaml >/dev/null
kubectl create namespace demo
kubectl label namespace demo testkit.verticalscaler.io/sidecar=true
kubectl config set-context --current --namespace=demo >/dev/null
isInjecting() { [[ -n $(kubectl run probe --image=none --dry-run=server -o 'jsonpath={.spec.initContainers}' 2>/dev/null) ]]; }
await "new pods to get a sidecar" isInjecting

export OPERATOR_KUBECONFIG=$work/operator.kubeconfig
cp "$KUBECONFIG" "$OPERATOR_KUBECONFIG"
kubectl config --kubeconfig="$OPERATOR_KUBECONFIG" set-credentials operator >/dev/null \
	--token="$(kubectl create token verticalscaler-operator -n verticalscaler-system --duration=24h)"
kubectl config --kubeconfig="$OPERATOR_KUBECONFIG" set-context --current --user=operator >/dev/null
# Nothing else of the environment, which could name another cluster or a proxy.
env -i KUBECONFIG="$OPERATOR_KUBECONFIG" "$bin/manager" -config=hack/demo/operator.yaml -zap-encoder=console -zap-log-level=debug \
	>"$work/operator.log" 2>&1 &
operator=$!

# requests lists the operator's requests, oldest first: code, verb, resource/subresource.
requests() {
	sed -nE 's/.*"verb":"([a-z]+)","user":\{"username":"'$account'".*"objectRef":\{"resource":"([a-z]+)"([^}]*"subresource":"([a-z]+)")?.*"code":([0-9]+).*/\5 \1 \2\/\4/p' \
		"$work/cluster/audit.log" | sed 's|/$||'
}
# writes lists its writes, and its questions about rights, but not the writes of its lease.
writes() { requests | grep -vE '^[0-9]+ (get|list|watch) | leases$' || true; }
# condition <type>: its reason.
condition() { kubectl get vscaler web -o "jsonpath={.status.conditions[?(@.type=='$1')].reason}"; }
# reports <type> <reason>: waits until the VerticalScaler reports a reason.
reports() { show kubectl wait vscaler web --timeout=${patience}s "--for=jsonpath={.status.conditions[?(@.type==\"$1\")].reason}=$2"; }
# pods <path below the status of the container app>...: a line for each pod, by name.
pods() {
	local path fields=
	for path; do fields+=" {.status.containerStatuses[?(@.name=='app')].$path}"; done
	kubectl get pods -l app=web --sort-by=.metadata.name -o "jsonpath={range .items[*]}${fields# }{'\n'}{end}"
}
# sizes prints for each pod its CPU request in millicores, and its memory request and limit in MiB.
sizes() {
	pods resources.requests.cpu resources.requests.memory resources.limits.memory | awk '
		function mib(q) { return q ~ /Gi$/ ? q * 1024 : q ~ /Mi$/ ? q + 0 : q ~ /Ki$/ ? q / 1024 : q / 1048576 }
		{ print $1 ~ /m$/ ? $1 + 0 : $1 * 1000, mib($2), mib($3) }'
}
# areSized <condition of awk on cpu, memory>: whether all three pods have such requests, and Applied is True, for any reason: on a
# busy machine, the pod is killed before its lower CPU is verified, and that is reverted, too.
areSized() {
	sizes | awk "{ cpu = \$1; memory = \$2 } $1 { n++ } END { exit n != 3 }" && kubectl wait vscaler web --for=condition=Applied --timeout=0 >/dev/null 2>&1
}
# use <cpu> <memory>: sets the simulated usage of all pods, in millicores and MiB. The last pod uses a fifth less.
use() {
	show kubectl annotate pod -l app=web --overwrite "usage.verticalscaler.io/cpu=$1m" "usage.verticalscaler.io/memory=$2Mi"
	show kubectl annotate pod "$last" --overwrite "usage.verticalscaler.io/cpu=$(($1 * 4 / 5))m" "usage.verticalscaler.io/memory=$(($2 * 4 / 5))Mi"
}
# identity is what must stay: the pods, and the Deployment's spec.
identity() {
	kubectl get pods -l app=web --sort-by=.metadata.name -o 'jsonpath={.items[*].metadata.uid}'
	kubectl get deployment web -o 'jsonpath={.metadata.uid} {.metadata.generation}'
}

say "1. A VerticalScaler is created before its Deployment. It waits for the Deployment."
show kubectl apply -f hack/demo/scaler.yaml
reports TargetFound DeploymentNotFound

say "2. The Deployment is created, and a policy injects a sidecar into its pods. The VerticalScaler finds it."
show kubectl apply -f hack/demo/workload.yaml
reports TargetFound DeploymentFound

say "3. Three pods use nearly what they request. No change is needed."
await "the operator to report Applied" areSized 1
show kubectl vscaler status
before=$(identity)
last=$(kubectl get pods -l app=web --sort-by=.metadata.name -o 'jsonpath={.items[2].metadata.name}')

say "4. All pods use more than they request, one less than the others. The operator scales them up without delay."
use 180 200
await "requests that cover the usage" areSized 'cpu >= 168 && memory > 200' # the mean CPU usage, and all of the memory
echo "Look at REQUEST, which has followed USAGE up, and at USED."
show kubectl vscaler top web --once

say "5. All pods use much less. The operator scales them down when the memory peaks are older than the history."
read -r cpu memory _ < <(sizes)
use 40 60
await "requests that cover the usage and are a third lower" areSized "cpu >= 38 && memory > 60 && cpu * 3 <= $cpu * 2 && memory * 3 <= $memory * 2"
echo "Look at REQUEST, which has followed USAGE down, and at LIMIT, which stays."
show kubectl vscaler top web --once

say "6. One pod is OOM-killed. The operator raises the memory of all pods above the limit of that pod."
read -r _ _ limit < <(sizes | tail -n 1)
show kubectl annotate pod "$last" kwok.verticalscaler.io/oom=demo
await "requests above the memory limit of the OOM-killed pod" areSized "memory > $limit"
echo "Look at the memory's REQUEST in all pods, and at OOM-KILLS."
show kubectl vscaler top web --once

say "7. An administrator freezes all changes, and ends the freeze. The VerticalScaler shows it, although it is idle."
show kubectl create configmap verticalscaler-freeze -n verticalscaler-system --from-literal=reason='incident 42'
reports Ready Frozen
show kubectl vscaler status web
show kubectl delete configmap verticalscaler-freeze -n verticalscaler-system
reports Ready OperatingNormally

say "8. Nothing changes for 30 seconds. The operator writes nothing but its lease, and reads nothing but usage."
show kubectl vscaler explain web
sent='' since=$SECONDS
isQuiet() {
	local now
	sleep 2
	now=$(requests | grep -vcE ' (watch [a-z/]+|[a-z]+ leases|list pods)$')
	[[ $now == "$sent" ]] || sent=$now since=$SECONDS
	((SECONDS - since > 30))
}
await "30 s without another request" isQuiet
show kubectl events --for=verticalscaler/web

kubectl apply -f hack/demo/hpa.yaml >/dev/null # for step 10: its HPA waits for metrics
say "9. Two pods need more CPU than their nodes can promise. With Recreate, only the one whose node is busy is moved."
show kubectl apply --server-side -f "$release/new-pods.yaml" -f "$release/recreate.yaml"
show kubectl apply -f hack/demo/pressure.yaml
await "both pods to run" kubectl wait pod -l group=packed --for=condition=Ready --timeout=1s
# packed <name> <path>: a field of the pod of a Deployment.
packed() { kubectl get pods -l "app=$1" -o "jsonpath={.items[0]$2}"; }
node=$(packed busy .spec.nodeName)
# Another pod uses the rest of that node's CPU, which it has not requested.
show kubectl run greedy --image=registry.example/greedy:1 --annotations="usage.verticalscaler.io/cpu=$(kubectl get node "$node" -o 'jsonpath={.status.allocatable.cpu}')" \
	--overrides="{\"spec\":{\"nodeName\":\"$node\"}}"
show kubectl cordon "$node"
busy=$(packed busy .metadata.uid) idle=$(packed idle .metadata.uid)
isMoved() { [[ $(packed busy .metadata.uid) != "$busy" && $(packed busy .spec.nodeName) != "$node" && -n $(packed busy .spec.nodeName) ]]; }
await "the pod of the busy node to be moved" isMoved
[[ $(packed idle .metadata.uid) == "$idle" ]] || fail "the pod whose node has CPU to spare was evicted"
show kubectl get vscaler busy idle -o 'custom-columns=NAME:.metadata.name,APPLIED:.status.conditions[?(@.type=="Applied")].message'
show kubectl delete -f hack/demo/pressure.yaml

say "10. An HPA scales on the utilization of CPU, so that is not sized. With the target that explain prints, both work side by side."
show kubectl get hpa cart -n shop
# cart <kind> <path>: a field of the HPA, the Deployment or the scaler.
cart() { kubectl get "$1" cart -n shop -o "jsonpath={$2}"; }
prints() { kubectl vscaler explain cart -n shop | grep -o 'kubectl patch hpa .*'; }
await "explain to print the patch of the HPA" prints >"$work/patch"
isScaling() { [[ $(cart hpa '.status.conditions[?(@.type=="ScalingActive")].status') == True ]]; }
await "the HPA to have metrics" isScaling
echo "\$ $(tail -n 1 "$work/patch")"
bash -c "$(tail -n 1 "$work/patch")"
isSized() { kubectl get pods -n shop -l app=cart -o 'jsonpath={.items[*].spec.containers[0].resources.requests.cpu}' | awk '{ exit !($1 + 0 > 60 && $1 + 0 < 100 && $1 == $2) }'; }
await "smaller requests of CPU for both pods" isSized
show kubectl get hpa cart -n shop
[[ $(cart deployment .spec.replicas) == 2 ]] || fail "the HPA has scaled because of smaller requests"
show kubectl annotate pod -n shop -l app=cart --overwrite usage.verticalscaler.io/cpu=120m
isScaled() { (($(cart deployment .spec.replicas) > 2)); }
await "more replicas, because more is used" isScaled
show kubectl get hpa cart -n shop
show kubectl vscaler status -n shop

[[ $(identity) == "$before" ]] || fail "the Deployment has changed, or a pod was replaced"
restarts=$(pods restartCount | awk '{ n += $1 } END { print n }')
((restarts == 1)) || fail "containers have restarted $restarts times, and not once, after the OOM kill"
expected='^[0-9]+ (patch pods/resize|create pods/eviction|(create|update|delete) newpodsizes|update verticalscalers/status|(create|update) verticalscalercheckpoints|(create|patch) events|create selfsubjectaccessreviews)$'
unexpected=$({ requests | grep -E '^40[13] '; writes | grep -vE "$expected"; } | sort | uniq -c || true)
[[ -z $unexpected ]] || fail "unexpected requests of the operator:"$'\n'"$unexpected"
say "All checks passed: pods are resized in place, or moved if that hurts less, and the operator sends only the requests that it needs."
[[ ${1:-} != -once ]] || exit 0
cat <<END

The cluster keeps running until Ctrl-C. To go on in another terminal:

  export KUBECONFIG=$KUBECONFIG PATH=$programs:$bin:\$PATH
  kubectl vscaler top web                     # live
  kubectl annotate pod -l app=web --overwrite usage.verticalscaler.io/cpu=400m usage.verticalscaler.io/memory=500Mi
  kubectl vscaler explain web

What to read next: docs/modes.md, and the quick start in README.md for a cluster of your own.
END
wait
