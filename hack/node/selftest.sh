#!/usr/bin/env bash
# usage: hack/node/selftest.sh [-keep-logs DIR]
#
# Tries everything that the node tier promises, on this machine: start, pods, in-place resize seen in the container's
# cgroup, a real OOM kill, metrics, a starter that is killed, and an end that leaves nothing behind. Needs root and
# about a minute. Prints a PASS line for each promise, and ends with status 1 at the first that is broken; then the
# logs are kept and their place is printed. With -keep-logs they are copied to DIR in any case.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
if asks_for_help "$@"; then
	usage
	exit 0
fi
logs=
[ "${1:-}" = -keep-logs ] && logs=${2:?-keep-logs needs a folder}

"$here/check.sh" -q || fail "this machine cannot run the node tier"

work=$(mktemp -d "${TMPDIR:-/tmp}/verticalscaler-node-XXXXXX")
dir=$work/node
other=$work/other
log=$work/selftest.log

cleanup() {
	local status=$?
	trap - EXIT
	"$here/down.sh" -dir "$other" >>"$log" 2>&1 || status=1
	"$here/down.sh" -dir "$dir" >>"$log" 2>&1 || status=1
	if [ -n "$logs" ]; then
		mkdir -p "$logs" && cp -a "$work/." "$logs/"
	fi
	if [ $status = 0 ] || [ -n "$logs" ]; then
		rm -rf "$work"
	else
		echo "logs are in $work"
	fi
	exit $status
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

now() { date +%s%3N; }
began=$(now)
seconds_since() { awk -v from="$1" -v to="$(now)" 'BEGIN { printf "%.1fs", (to - from) / 1000 }'; }
pass() { printf 'PASS [%6s] %s\n' "$(seconds_since "$began")" "$*"; }
broken() {
	echo "FAIL [$(seconds_since "$began")] $*"
	[ ! -e "$dir/kubeconfig" ] || kubectl get pods,events -A >>"$log" 2>&1 || true
	exit 1
}

# within SECONDS WHAT COMMAND... asks until the command succeeds. Its last output is shown if it never does.
within() {
	local deadline=$(($(now) + $1 * 1000)) what=$2 last
	shift 2
	until last=$("$@" 2>&1); do
		[ "$(now)" -lt "$deadline" ] || broken "$what: $last"
		sleep 0.1
	done
}

# equal WANT COMMAND... succeeds if the command prints WANT.
equal() {
	local want=$1 got
	shift
	got=$("$@") || return 1
	[ "$got" = "$want" ] || {
		echo "got '$got', want '$want'"
		return 1
	}
}

# --- what a host shows of a node, to be the same before and after

cgroup_roots() { awk '{ for (i = 7; $i != "-"; i++); if ($(i + 1) ~ /^cgroup2?$/) print $5 }' /proc/self/mountinfo; }

host_state() {
	local root
	echo "mounts:"
	cut -d' ' -f4- /proc/self/mountinfo | sort
	echo "interfaces:"
	ip -o link | awk '{ print $2 }' | sort
	echo "addresses:"
	ip -o addr | awk '{ print $2, $4 }' | sort
	echo "cgroups:"
	for root in $(cgroup_roots); do
		find "$root" -mindepth 1 -maxdepth 1 -type d
		[ ! -e "$root/cgroup.subtree_control" ] || tr ' ' '\n' <"$root/cgroup.subtree_control" | sort
	done
	echo "sysctls:"
	(cd /proc/sys && grep -s . vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
		kernel/keys/root_maxkeys kernel/keys/root_maxbytes net/ipv4/ip_forward) || true
	echo "folders:"
	ls -d /var/lib/kubelet /var/lib/containerd /var/lib/cni /var/log/pods /run/containerd /run/netns /opt/* /opt/cni \
		/etc/cni /usr/libexec/kubernetes 2>/dev/null || true
}

# node_processes prints those of our two nodes: what is in their cgroups, and the keepers, which are not.
node_processes() {
	local proc
	for proc in /proc/[0-9]*; do
		if grep -qsE "verticalscaler-($id|$other_id)(/|$)" "$proc/cgroup" ||
			{ grep -qsx nodebox "$proc/comm" && grep -qsaF -e "$dir" -e "$other" "$proc/cmdline"; }; then
			echo "$(basename "$proc") $(cat "$proc/comm" 2>/dev/null)"
		fi
	done
}
id_of() { printf %s "$(realpath -m "$1")" | sha256sum | cut -c1-10; }
id=$(id_of "$dir")
other_id=$(id_of "$other")

host_state >"$work/before"

# --- start

start=$(now)
"$here/up.sh" -dir "$dir" -registry images.example </dev/null | sed 's/^/     /'
[ -s "$dir/kubeconfig" ] || broken "up.sh left no kubeconfig"
pass "the node is Ready ($(seconds_since "$start"))"

# Built by up.sh if need be. One binary is all programs, so a link makes it kubectl.
ln -s "${LOCALCLUSTER:-$("$repo/hack/cluster/build.sh")/localcluster}" "$work/kubectl"
kubectl() { "$work/kubectl" --kubeconfig "$dir/kubeconfig" --cache-dir "$work/cache" "$@"; }

if "$here/up.sh" -dir "$dir" </dev/null >>"$log" 2>&1; then
	broken "a second node started in the same folder"
fi
pass "a second node in the same folder is refused"

# --- pods

start=$(now)
kubectl apply -f - >>"$log" <<'END'
apiVersion: apps/v1
kind: Deployment
metadata: {name: load}
spec:
  replicas: 2
  selector: {matchLabels: {app: load}}
  template:
    metadata: {labels: {app: load}}
    spec:
      containers:
        - name: stress
          image: verticalscaler.local/stress:dev
          imagePullPolicy: Never
          args: [-cpu=100, -memory=20]
          readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
          resources:
            requests: {cpu: 100m, memory: 64Mi}
            limits: {cpu: 200m, memory: 128Mi}
          securityContext:
            runAsNonRoot: true
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
            seccompProfile: {type: RuntimeDefault}
END
kubectl rollout status deployment/load --timeout=60s >>"$log" 2>&1 || broken "the pods are not available after 60s"
pass "a Deployment of 2 pods runs ($(seconds_since "$start"))"

mapfile -t pods < <(kubectl get pods -l app=load -o jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}')
pod=${pods[0]}
victim=${pods[1]}
of_pod() { kubectl get pod "$1" -o jsonpath="$2"; }
status() { of_pod "$1" "{.status.containerStatuses[0].$2}"; }
ask() { kubectl get --raw "/api/v1/namespaces/default/pods/$1:8080/proxy$2"; }

uid=$(of_pod "$pod" '{.metadata.uid}')
container=$(status "$pod" containerID)
# cgroup FIELD [CONTAINER] prints one number of the pod's limits.
cgroup() { "$here/cgroup.sh" -dir "$dir" "$uid" ${2:+"$2"} | grep -o "\"$1\":-\?[0-9]*" | cut -d: -f2; }
limits() { echo "$(cgroup cpuQuotaMicros "$1") $(cgroup cpuPeriodMicros "$1") $(cgroup memoryLimitBytes "$1")"; }
weight() { cgroup cpuShares "$1" || cgroup cpuWeight "$1"; }

got=$(limits "$container")
[ "$got" = "20000 100000 $((128 << 20))" ] || broken "the cgroup has limits $got"
pass "the container's cgroup has the limits of the pod: $("$here/cgroup.sh" -dir "$dir" "$uid" "$container")"

# --- in-place resize

weight_before=$(weight "$container")
start=$(now)
kubectl patch pod "$pod" --subresource resize -p '{"spec": {"containers": [{"name": "stress", "resources": {
	"requests": {"cpu": "150m", "memory": "96Mi"}, "limits": {"cpu": "300m", "memory": "192Mi"}}}]}}' >>"$log"
within 30 "the container's cgroup after a resize" equal "30000 100000 $((192 << 20))" limits "$container"
pass "a resize reaches the container's cgroup ($(seconds_since "$start")): $("$here/cgroup.sh" -dir "$dir" "$uid" "$container")"
within 30 "the pod's cgroup after a resize" equal "30000 100000 $((192 << 20))" limits ""
[ "$(weight "$container")" -gt "$weight_before" ] || broken "the CPU weight is still $weight_before"
within 30 "the status after a resize" equal 192Mi status "$pod" resources.limits.memory
[ "$(status "$pod" restartCount)" = 0 ] || broken "the resize restarted the container"
[ "$(status "$pod" containerID)" = "$container" ] || broken "the resize replaced the container"
pass "pod cgroup, CPU weight and status follow, nothing restarted ($(seconds_since "$start"))"

# --- load and metrics

ask "$pod" '/set?cpu=250&memory=64' >>"$log" || broken "the load does not answer"
usage_bytes=$(cgroup memoryUsageBytes "$container")
[ "$usage_bytes" -ge $((64 << 20)) ] || broken "64 MiB were asked for, and the cgroup counts $usage_bytes bytes"
pass "held memory is resident: $((usage_bytes >> 20)) MiB in the cgroup"

# --- OOM

start=$(now)
# The connection breaks when the process is killed, so there is no answer to wait for.
ask "$victim" '/set?memory=200' >>"$log" 2>&1 && broken "a container with a limit of 128 MiB holds 200 MiB"
within 30 "the OOM kill" equal OOMKilled status "$victim" lastState.terminated.reason
within 30 "the restart" equal 1 status "$victim" restartCount
pass "too much memory is a real OOM kill: OOMKilled, restartCount 1 ($(seconds_since "$start"))"
within 60 "the pod after its restart" equal true status "$victim" ready
pass "and the container runs again ($(seconds_since "$start"))"

# --- network

if command -v curl >/dev/null; then
	address=$(of_pod "$pod" '{.status.podIP}')
	"$here/exec.sh" -dir "$dir" curl -sf --max-time 5 "http://$address:8080/stat" >>"$log" || broken "no way from the node to pod $address"
	"$here/exec.sh" -dir "$dir" sh -c '
		for netns in /run/netns/*; do
			nsenter --net="$netns" curl -skf --max-time 5 "https://10.96.0.1/readyz" || exit 1
		done' >>"$log" || broken "no way from pods to the API server's Service"
	pass "exec.sh reaches pods, and pods reach the API server"

	# Anything that listens there is taken for the registry.
	cp "$("$here/build.sh")/stress" "$dir/state/shared/"
	"$here/exec.sh" -dir "$dir" /run/node/shared/stress serve -addr 127.0.0.1:5000 >>"$log" 2>&1 &
	disown $!
	within 10 "the registry's name" "$here/exec.sh" -dir "$dir" curl -sf --max-time 5 -o /run/node/shared/answer https://images.example/healthz
	[ -e "$dir/state/shared/answer" ] || broken "what was written inside is not seen outside"
	pass "a registry's name leads inside and is trusted, and files are shared"
fi

# --- metrics again: samples take two scrapes

# usage_of POD prints what the metrics API says: "250m 70Mi".
usage_of() { kubectl top pod "$1" --no-headers | awk '{ print $2, $3 }'; }
plausible() {
	local cpu memory
	read -r cpu memory < <(usage_of "$pod")
	echo "usage is $cpu $memory"
	[[ $cpu == *m && ${cpu%m} -ge 200 && ${cpu%m} -le 330 && $memory == *Mi && ${memory%Mi} -ge 64 && ${memory%Mi} -le 110 ]]
}
within 120 "the metrics of pod $pod" plausible
within 60 "the metrics of the restarted pod $victim" \
	kubectl get --raw "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/$victim"
pass "metrics-server has the usage of 250m and 64Mi as $(usage_of "$pod")"

# --- a starter that is killed, while the other node runs

"$here/up.sh" -dir "$other" </dev/null >>"$log" 2>&1 &
starter=$!
disown $starter # the shell would report the kill below as if it were a fault
# A real sandbox is there once the first log is.
within 60 "a second node" test -s "$other/logs/containerd.log"
kill -9 $starter
gone() { [ ! -e "$other/state" ] && [ ! -e "$other/lock" ] && ! grep -qs "verticalscaler-$other_id" /proc/[0-9]*/cgroup; }
within 30 "the end of a node whose starter was killed" gone
for root in $(cgroup_roots); do
	[ ! -e "$root/verticalscaler-$other_id" ] || broken "cgroup $root/verticalscaler-$other_id is left"
done
kubectl get --raw /readyz >>"$log" || broken "the first node suffered"
pass "a node whose starter is killed ends by itself, and its neighbour runs on"

# --- a keeper that is killed

kill -9 "$(cat "$dir/lock")"
within 20 "the processes of a killed keeper" equal "" node_processes
"$here/down.sh" -dir "$dir" || broken "down.sh after a killed keeper"
pass "after a killed keeper no process is left, and down.sh removes the rest"

# --- the usual way

start=$(now)
"$here/up.sh" -dir "$dir" </dev/null >>"$log" 2>&1 || broken "the folder cannot be used again"
pass "the folder can be used again ($(seconds_since "$start"))"
start=$(now)
"$here/down.sh" -dir "$dir" || broken "down.sh"
pass "down.sh ends the node ($(seconds_since "$start"))"
for file in kubelet.log control-plane/kube-apiserver.log; do
	[ -s "$dir/logs/$file" ] || broken "log $file is gone"
done
[ ! -e "$dir/kubeconfig" ] && [ ! -e "$dir/state" ] || broken "down.sh left files in $dir"
[ -z "$(node_processes)" ] || broken "processes are left: $(node_processes)"
host_state >"$work/after"
diff -u "$work/before" "$work/after" || broken "the host is not as it was"
pass "nothing is left: mounts, interfaces, cgroups, sysctls, folders and processes are as before"
