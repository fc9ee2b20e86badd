// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The usage of the pods. It stays below the limits, as in a real container.
var (
	high = quantity.Amounts{CPUMillis: 180, MemoryBytes: 200 << 20}
	low  = quantity.Amounts{CPUMillis: 40, MemoryBytes: 60 << 20}
)

// step changes something and waits for the effect.
type step struct {
	name, story string
	// do are a user's commands. $POD is the last pod.
	do []string
	// usage is what each pod uses from now on, except the last, which uses a fifth less; zero for no change.
	usage quantity.Amounts
	// missing names what has not happened yet. The step ends when it returns "", or, without it, after the commands.
	missing func(before, now state) string
}

var steps = []step{
	{
		name: "wait", do: []string{"kubectl apply -f hack/demo/scaler.yaml", waitFor(v1beta1.ConditionTargetFound, v1beta1.ReasonDeploymentNotFound)},
		story: "A VerticalScaler is created before its Deployment. It waits for the Deployment.",
	},
	{
		name: "find", do: []string{"kubectl apply -f hack/demo/workload.yaml", waitFor(v1beta1.ConditionTargetFound, v1beta1.ReasonDeploymentFound)},
		story: "The Deployment is created, and a policy injects a sidecar into its pods. The VerticalScaler finds it.",
	},
	{
		name: "steady", missing: resized("any", func(_, _ workload.Resources) bool { return true }),
		story: "Three pods use nearly what they request. No change is needed.",
	},
	{
		name: "up", usage: high, missing: resized("that cover the usage", func(_, now workload.Resources) bool { return covers(now, high) }),
		story: "All pods use more than they request, one less than the others. The operator scales them up without delay.",
	},
	{
		name: "down", usage: low, missing: resized("that cover the usage and are a third lower", func(before, now workload.Resources) bool {
			return covers(now, low) && now.Requests.CPUMillis*3 <= before.Requests.CPUMillis*2 && now.Requests.MemoryBytes*3 <= before.Requests.MemoryBytes*2
		}),
		story: "All pods use much less. The operator scales them down when the memory peaks are older than the history.",
	},
	{
		name: "oom", do: []string{"kubectl annotate pod $POD kwok.verticalscaler.io/oom=demo"},
		missing: resized("above the memory limit of the OOM-killed pod", func(before, now workload.Resources) bool {
			return now.Requests.MemoryBytes > before.Limits.MemoryBytes
		}),
		story: "One pod is OOM-killed. The operator raises the memory of all pods above the limit of that pod.",
	},
	{
		name: "freeze",
		do: []string{
			"kubectl create configmap verticalscaler-freeze -n verticalscaler-system --from-literal=reason='incident 42'",
			waitFor(v1beta1.ConditionReady, v1beta1.ReasonFrozen), "kubectl vscaler status web",
			`kubectl get vscaler web -o jsonpath='{.status.conditions[?(@.type=="Ready")].message}{"\n"}'`,
			"kubectl delete configmap verticalscaler-freeze -n verticalscaler-system",
			waitFor(v1beta1.ConditionReady, v1beta1.ReasonOperatingNormally),
		},
		story: "An administrator freezes all changes, and ends the freeze. The VerticalScaler shows it, although it is idle.",
	},
	{
		name: "quiet", do: []string{"kubectl vscaler explain web"}, missing: quiet,
		story: fmt.Sprintf("Nothing changes for %s. The operator writes nothing but its lease.", quietTime),
	},
}

// waitFor is the command that waits for the VerticalScaler to report a reason.
func waitFor(condition, reason string) string {
	return fmt.Sprintf(`kubectl wait vscaler web --timeout=2m --for=jsonpath='{.status.conditions[?(@.type=="%s")].reason}'=%s`, condition, reason)
}

// commands are those of the step and those that change the usage.
func (s step) commands() []string {
	if s.usage == (quantity.Amounts{}) {
		return s.do
	}
	less := quantity.Amounts{CPUMillis: s.usage.CPUMillis * 4 / 5, MemoryBytes: s.usage.MemoryBytes * 4 / 5}
	return append(slices.Clip(s.do), annotate("-l app=web", s.usage), annotate("$POD", less))
}

// annotate is the command that sets the simulated usage of pods.
func annotate(pods string, usage quantity.Amounts) string {
	return fmt.Sprintf("kubectl annotate pod %s --overwrite usage.verticalscaler.io/cpu=%s usage.verticalscaler.io/memory=%s",
		pods, quantity.FormatCPU(usage.CPUMillis), quantity.FormatMemory(usage.MemoryBytes))
}

// state is what was read from the namespace at one moment.
type state struct {
	at        time.Time
	isApplied bool           // the scaler reports Applied
	pods      []workload.Pod // with the label app=web, by name
	restarts  int32
	target    appsv1.Deployment // zero if there is none
	lastWrite time.Time         // of the operator in this step; zero if there is none
}

// podName is the value of $POD.
func (s state) podName() (name string) {
	for _, pod := range s.pods {
		name = pod.Name
	}
	return name
}

// resized waits for all pods to have resources that fulfil a condition, and for the operator to report that all is applied.
func resized(what string, fulfils func(before, now workload.Resources) bool) func(before, now state) string {
	return func(before, now state) string {
		sizes, n := map[string]workload.Resources{}, 0
		for _, pod := range before.pods {
			sizes[pod.Name] = pod.Actual["app"]
		}
		for _, pod := range now.pods {
			if pod.Ready && fulfils(sizes[pod.Name], pod.Actual["app"]) {
				n++
			}
		}
		switch {
		case n < len(now.pods) || n == 0:
			return fmt.Sprintf("requests %s on all pods: %d of %d", what, n, len(now.pods))
		case !now.isApplied:
			return "the operator to report Applied"
		}
		return ""
	}
}

// covers reports whether the requests cover the mean CPU usage of the three pods, one of which uses a fifth less, and
// the memory usage of each. The operator recommends no more CPU than the mean, raised for how uneven the pods are.
func covers(now workload.Resources, usage quantity.Amounts) bool {
	return now.Requests.CPUMillis*15 >= usage.CPUMillis*14 && now.Requests.MemoryBytes > usage.MemoryBytes
}

// quietTime is how long the operator must write nothing while nothing changes.
const quietTime = 30 * time.Second

// quiet waits for a stretch of time without a write of the operator.
func quiet(before, now state) string {
	if left := quietTime - min(now.at.Sub(before.at), now.at.Sub(now.lastWrite)); left > 0 {
		return fmt.Sprintf("%s more without a write", left.Round(time.Second))
	}
	return ""
}

// allowed are the kinds of writes that the operator needs here.
var allowed = []string{
	"patch pods/resize", "update verticalscalers/status", "create verticalscalercheckpoints", "update verticalscalercheckpoints",
	"create events", "patch events",
}

// check compares the workload before the first resize with that of the end, and looks at all requests of the operator.
func check(steady, end state, requests []testkit.Write) error {
	if !slices.EqualFunc(steady.pods, end.pods, func(a, b workload.Pod) bool { return a.UID == b.UID }) ||
		end.target.UID != steady.target.UID || end.target.Generation != steady.target.Generation {
		return errors.New("the Deployment has changed, or a pod was replaced")
	}
	if end.restarts != steady.restarts+1 {
		return fmt.Errorf("containers have restarted %d times, and not once, after the OOM kill", end.restarts-steady.restarts)
	}
	for _, r := range requests {
		if r.Code == 401 || r.Code == 403 || isWrite(r) && !slices.Contains(allowed, r.Verb+" "+r.Resource) {
			return fmt.Errorf("unexpected request of the operator: %s", r)
		}
	}
	return nil
}

// isWrite reports whether a request changes something other than the operator's lease.
func isWrite(w testkit.Write) bool {
	return !slices.Contains([]string{"get", "list", "watch"}, w.Verb) && w.Resource != "leases" && w.Resource != "selfsubjectaccessreviews"
}

// isApplied reports whether all that the operator has decided is applied.
func isApplied(s *v1beta1.VerticalScaler) bool {
	return s.Status.Recommendation != nil && meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionApplied)
}
