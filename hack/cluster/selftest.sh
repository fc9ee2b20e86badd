#!/usr/bin/env bash
# Tries out everything localcluster promises, on clusters of its own, in about a minute and a half. Prints PASS lines
# and stops at the first FAIL. Run as root it starts the clusters as nobody. Needs Linux, bash, coreutils and go.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
bin=$("$here/build.sh")
work=$(mktemp -d)
export HOME=$work/user
unset KUBECONFIG
mkdir "$HOME"

# The launcher gets an empty environment, and an unprivileged user if we are not one.
launch=(env -i)
if ((EUID == 0)); then
	chown nobody "$work"
	if command -v setpriv >/dev/null; then
		launch=(setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups env -i)
	else
		launch=(chroot --userspec="nobody:$(id -g nobody)" --groups= / env -i)
	fi
	if ! "${launch[@]}" test -x "$bin/localcluster"; then
		# The repository may be in a folder that nobody else can see.
		mkdir "$work/bin"
		cp "$bin/localcluster" "$work/bin/"
		ln -s localcluster "$work/bin/kubectl"
		chmod -R a+rX "$work/bin"
		bin=$work/bin
	fi
fi

started=()
cleanup() {
	for pid in "${started[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
	if [[ -n ${failed-} ]]; then echo "kept: $work" >&2; else rm -rf "$work"; fi
}
trap cleanup EXIT

pass() { printf 'PASS %s\n' "$*"; }
fail() {
	failed=yes
	printf 'FAIL %s\n' "$*" >&2
	exit 1
}

# eventually DESCRIPTION SECONDS COMMAND...: the command succeeds before the time is over.
eventually() {
	local what=$1 limit=$2 begin=$EPOCHREALTIME now output=
	shift 2
	while ! output=$("$@" 2>&1); do
		if ((${EPOCHREALTIME/./} - ${begin/./} > limit * 1000000)); then
			printf '%s\n' "$output" >&2
			fail "$what (not within $limit s)"
		fi
		sleep 0.1
	done
	now=$((${EPOCHREALTIME/./} - ${begin/./}))
	pass "$what ($((now / 1000000)).$(printf %01d $((now % 1000000 / 100000))) s)"
}

# same DESCRIPTION WANT GOT: the two are equal.
same() {
	if [[ $2 != "$3" ]]; then fail "$1: want '$2', got '$3'"; fi
	pass "$1"
}

# start NAME FLAG...: starts the cluster NAME and does not wait. Its process is then $pid.
start() {
	local name=$1
	shift
	"${launch[@]}" "$bin/localcluster" up -dir "$work/$name" "$@" >"$work/$name.out" 2>&1 &
	pid=$!
	started+=("$pid")
}

is_up() { kill -0 "$2" && [[ $(cat "$work/$1/ready") == "$2" ]] || { cat "$work/$1.out"; return 1; }; }
is_gone() { ! kill -0 "$1" 2>/dev/null; }

# none_left NAME: no process has the cluster's folder in its command line.
none_left() {
	local file
	for file in /proc/[0-9]*/cmdline; do
		if tr '\0' ' ' <"$file" 2>/dev/null | grep -q -e "$work/$1[/ ]"; then
			tr '\0' ' ' <"$file" | cut -c1-200
			return 1
		fi
	done
}

k() { "$bin/kubectl" --kubeconfig "$work/a/admin.kubeconfig" "$@"; }

# shows WANT KIND NAME JSONPATH: the object's field has this value.
shows() {
	local got
	got=$(k get "$2" "$3" -o jsonpath="$4") || return 1
	[[ $got == "$1" ]] || { printf "want '%s', got '%s'\n" "$1" "$got"; return 1; }
}
pod_shows() { shows "$1" pod "$pod" "$2"; }

# uses POD CONTAINER CPU MEMORY: kubectl top says so, a CPU off by 2% counting as equal.
uses() {
	local line
	line=$(k top pod "$1" --containers --no-headers) || { printf '%s\n' "$line"; return 1; }
	awk -v name="$2" -v cpu="$3" -v memory="$4" '
		{ print }
		$2 == name { got = $3 + 0; ok = (got >= cpu * 0.98 - 1 && got <= cpu * 1.02 + 1 && $4 == memory) }
		END { exit !ok }' <<<"$line"
}

resize() { k patch pod "$pod" --subresource resize --type strategic -p "$1" >/dev/null; }
annotate() { k annotate --overwrite pod "$pod" "$@" >/dev/null; }

# Arguments.

"$bin/localcluster" help >/dev/null && "$bin/localcluster" up -h >/dev/null && pass "help"
for arguments in "" "nonsense" "up" "up -dir x -kwok-nodes -1" "up -dir x -nonsense" "up -dir x y"; do
	status=0
	# shellcheck disable=SC2086 # several arguments
	"$bin/localcluster" $arguments >/dev/null 2>"$work/message" || status=$?
	[[ -s $work/message ]] || fail "no message for arguments '$arguments'"
	same "exit code for arguments '$arguments'" 2 "$status"
done

# Two clusters at once.

start a -kwok-nodes 2 -metrics-server -audit
a=$pid
start b -controllers=false -scheduler=false -node real-1
b=$pid
eventually "cluster with kwok and metrics-server is up, beside another one" 60 is_up a "$a"
cat "$work/a.out"
eventually "the other cluster is up" 60 is_up b "$b"
same "two nodes" "fake-1 fake-2" "$(k get nodes -o jsonpath='{.items[*].metadata.name}')"
same "no nodes in the other cluster" "" \
	"$("$bin/kubectl" --kubeconfig "$work/b/admin.kubeconfig" get nodes -o jsonpath='{.items[*].metadata.name}')"
same "a real node knows who it is" "system:node:real-1" \
	"$("$bin/kubectl" --kubeconfig "$work/b/kubelet.kubeconfig" auth whoami -o jsonpath='{.status.userInfo.username}')"
same "kubeconfig is private" 600 "$(stat -c %a "$work/a/admin.kubeconfig")"
status=0
"${launch[@]}" "$bin/localcluster" up -dir "$work/a" >/dev/null 2>"$work/message" || status=$?
same "a folder in use is refused" 1 "$status"
grep -q "in use" "$work/message" || fail "no message about the folder in use"

# Pods and their usage.

k apply -f - >/dev/null <<'YAML'
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata:
      labels: {app: web}
      annotations: {usage.verticalscaler.io/cpu: 100m, usage.verticalscaler.io/memory: 50Mi}
    spec:
      containers:
      - name: main
        image: web:1
        resources: {requests: {cpu: 200m, memory: 64Mi}, limits: {cpu: 400m, memory: 128Mi}}
        resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]
      - name: helper
        image: helper:1
        resources: {requests: {cpu: 50m, memory: 32Mi}, limits: {memory: 64Mi}}
YAML
eventually "deployment runs" 15 shows 2 deployment web '{.status.readyReplicas}'
pod=$(k get pods -l app=web -o jsonpath='{.items[0].metadata.name}')
pod_shows "200m/64Mi 50m/32Mi " '{range .status.containerStatuses[*]}{.resources.requests.cpu}/{.allocatedResources.memory} {end}' ||
	fail "status has no resources"
pass "status has the resources"
eventually "kubectl top works" 60 uses "$pod" main 100 50Mi
annotate usage.verticalscaler.io/cpu=450m usage.verticalscaler.io/memory=90Mi \
	usage.verticalscaler.io/cpu.helper=20m usage.verticalscaler.io/memory.helper=10Mi
eventually "kubectl top follows the annotation" 25 uses "$pod" main 450 90Mi
uses "$pod" helper 20 10Mi >/dev/null || fail "kubectl top for one container"
pass "kubectl top follows the annotation for one container"

# Resizes.

restarts='{.status.containerStatuses[*].restartCount}'
pending='{.status.conditions[?(@.type=="PodResizePending")].reason}'
running='{.status.containerStatuses[0].resources.requests.cpu} {.status.containerStatuses[0].allocatedResources.cpu} {.status.containerStatuses[1].resources.requests.cpu}'
same "order of containers" "main helper" "$(k get pod "$pod" -o jsonpath='{.status.containerStatuses[*].name}')"

resize '{"spec":{"containers":[{"name":"main","resources":{"requests":{"cpu":"300m"},"limits":{"cpu":"600m"}}}]}}'
eventually "resize in place" 10 pod_shows "300m 300m 50m" "$running"
same "nothing restarted" "0 0" "$(k get pod "$pod" -o jsonpath="$restarts")"
same "generation observed" "$(k get pod "$pod" -o jsonpath='{.metadata.generation}')" \
	"$(k get pod "$pod" -o jsonpath='{.status.observedGeneration}')"

resize '{"spec":{"containers":[{"name":"main","resources":{"requests":{"memory":"96Mi"},"limits":{"memory":"160Mi"}}}]}}'
eventually "resize that restarts its container" 10 pod_shows "1 0" "$restarts"
same "memory after the restart" "160Mi" "$(k get pod "$pod" -o jsonpath='{.status.containerStatuses[0].resources.limits.memory}')"

annotate kwok.verticalscaler.io/resize=deferred
resize '{"spec":{"containers":[{"name":"helper","resources":{"requests":{"cpu":"70m"}}}]}}'
eventually "resize deferred" 10 pod_shows Deferred "$pending"
same "old resources kept" "300m 300m 50m" "$(k get pod "$pod" -o jsonpath="$running")"
same "condition's generation" "$(k get pod "$pod" -o jsonpath='{.metadata.generation}')" \
	"$(k get pod "$pod" -o jsonpath='{.status.conditions[?(@.type=="PodResizePending")].observedGeneration}')"
annotate kwok.verticalscaler.io/resize=infeasible
eventually "resize infeasible" 10 pod_shows Infeasible "$pending"
annotate kwok.verticalscaler.io/resize-
eventually "resize goes on" 10 pod_shows "300m 300m 70m" "$running"
same "condition is gone" "" "$(k get pod "$pod" -o jsonpath="$pending")"

annotate kwok.verticalscaler.io/resize=deferred
resize '{"spec":{"containers":[{"name":"helper","resources":{"requests":{"cpu":"90m"}}}]}}'
eventually "resize deferred again" 10 pod_shows Deferred "$pending"
resize '{"spec":{"containers":[{"name":"helper","resources":{"requests":{"cpu":"70m"}}}]}}'
eventually "resize taken back" 10 pod_shows "" "$pending"
annotate kwok.verticalscaler.io/resize-

if resize '{"spec":{"containers":[{"name":"helper","resources":{"requests":{"cpu":"9"}}}]}}' 2>"$work/message"; then
	fail "a resize beyond the node was accepted"
fi
grep -q "enough allocatable" "$work/message" || fail "unexpected refusal: $(cat "$work/message")"
pass "resize beyond the node is refused"

# Out of memory.

last='{.status.containerStatuses[0].lastState.terminated.reason} {.status.containerStatuses[0].lastState.terminated.exitCode}'
ready='{.status.conditions[?(@.type=="Ready")].status}'
pod=$(k get pods -l app=web -o jsonpath='{.items[1].metadata.name}')
annotate kwok.verticalscaler.io/oom=one
eventually "container is killed" 10 pod_shows OOMKilled '{.status.containerStatuses[0].state.terminated.reason}'
same "pod is not ready" False "$(k get pod "$pod" -o jsonpath="$ready")"
eventually "container is restarted" 10 pod_shows "1 0" "$restarts"
same "reason and exit code" "OOMKilled 137" "$(k get pod "$pod" -o jsonpath="$last")"
[[ -n $(k get pod "$pod" -o jsonpath='{.status.containerStatuses[0].lastState.terminated.finishedAt}') ]] || fail "no time"
same "pod is ready" True "$(k get pod "$pod" -o jsonpath="$ready")"
annotate kwok.verticalscaler.io/oom=two kwok.verticalscaler.io/oom-container=helper
eventually "another container, and each token once" 10 pod_shows "1 1" "$restarts"

# The audit log.

grep -q '"verb":"patch".*"subresource":"resize"' "$work/a/audit.log" || fail "no resize in the audit log"
[[ ! -e $work/b/audit.log ]] || fail "audit log without -audit"
pass "audit log has $(wc -l <"$work/a/audit.log") lines"

# The end.

kill -TERM "$a"
eventually "stops when asked" 20 is_gone "$a"
status=0
wait "$a" || status=$?
same "exit code" 0 "$status"
eventually "no process is left" 1 none_left a
[[ ! -e $work/a/ready ]] || fail "ready is still there"
kill -KILL "$b"
wait "$b" 2>/dev/null || true
eventually "no process survives the launcher's death" 2 none_left b

# The shell is the parent, and prints the id of the launcher. It ends when it is killed, and the launcher follows.
"${launch[@]}" bash -c '"$0" up -dir "$1" -controllers=false -scheduler=false -parent-pid $$ & echo $!; wait' \
	"$bin/localcluster" "$work/b" >"$work/b.out" 2>&1 &
parent=$!
started+=("$parent")
eventually "a launcher with a parent starts" 10 test -s "$work/b.out"
b=$(head -n 1 "$work/b.out")
started+=("$b")
eventually "a folder can be used again" 60 is_up b "$b"
kill "$parent"
wait "$parent" 2>/dev/null || true
eventually "ends with its parent" 20 is_gone "$b"
eventually "and leaves no process" 1 none_left b

start b -controllers=false -scheduler=false
b=$pid
eventually "up once more" 60 is_up b "$b"
for file in /proc/[0-9]*/cmdline; do
	if tr '\0' ' ' <"$file" 2>/dev/null | grep -q "^etcd.*$work/b/"; then kill -KILL "$(basename "$(dirname "$file")")"; fi
done
eventually "ends when a component dies" 20 is_gone "$b"
status=0
wait "$b" || status=$?
same "exit code" 1 "$status"
grep -q "etcd ended" "$work/b.out" || fail "does not name the component: $(cat "$work/b.out")"
eventually "no process is left" 1 none_left b
