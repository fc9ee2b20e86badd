// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const mebi = 1 << 20

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// amounts is so many millicores and MiB.
func amounts(cpu, memory int64) quantity.Amounts {
	return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory * mebi}
}

func resources(requests, limits quantity.Amounts) workload.Resources {
	return workload.Resources{Requests: requests, Limits: limits}
}

// container requests 100m and 128Mi and may use twice that.
func container(name string) workload.Container {
	return workload.Container{Name: name, Resources: resources(amounts(100, 128), amounts(200, 256))}
}

// pod runs with what its containers declare.
func pod(name string, containers ...workload.Container) workload.Pod {
	p := workload.Pod{
		Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Current: true, Running: true,
		Ready: true, Created: noon.Add(-24 * time.Hour), Started: noon.Add(-24 * time.Hour), Containers: containers, QoS: workload.QoSOf(containers),
	}
	for _, c := range containers {
		p.Actual = p.Actual.With(c.Name, c.Resources)
	}
	return p
}

// small is a container at its template's size; large one that was resized to 200m and
// 256Mi.
func small() workload.Container { return container("app") }

func large() workload.Container {
	return workload.Container{Name: "app", Resources: resources(amounts(200, 256), amounts(400, 512))}
}

// recommended needs twice of what container has; the bounds are a third around it.
func recommended(name string) recommend.Container {
	return recommend.Container{
		Name: name, Target: amounts(200, 256), LowerBound: amounts(150, 192), UpperBound: amounts(300, 384),
		Uncapped: amounts(200, 256), Observed: time.Hour,
	}
}

// decision is for 200m and 256Mi, made ten minutes ago.
func decision() *plan.Decision {
	return &plan.Decision{
		Time: noon.Add(-10 * time.Minute), Reason: "ScaleUp",
		Requests: map[string]quantity.Amounts{"app": amounts(200, 256)},
	}
}

// given is a Deployment of two small pods, and a recommendation of twice their size.
func given(changes ...func(*world)) world {
	w := world{
		situation: plan.Situation{
			Deployment: workload.Deployment{
				Namespace: "shop", Name: "web", UID: "uid-web", ResourceVersion: "3",
				Replicas: 2, UpdatedReplicas: 2, Containers: []workload.Container{small()}, ProgressDeadline: 10 * time.Minute,
			},
			Pods:            []workload.Pod{pod("web-1", small()), pod("web-2", small())},
			Recommendations: []recommend.Container{recommended("app")},
		},
		policy: plan.Policy{
			Mode: "InPlace", Cooldown: 5 * time.Minute, Tolerance: 0.1,
			Containers: map[string]plan.ContainerPolicy{"app": {CPU: true, Memory: true, Limits: plan.LimitsFollow}},
		},
	}
	for _, change := range changes {
		change(&w)
	}
	return w
}

type world struct {
	situation plan.Situation
	policy    plan.Policy
	surroundings
}

// surroundings are the parts of a world beside the input of the planner.
type surroundings struct {
	Windows  []window.Spec    // of the policy, which has them parsed
	Applied  []plan.Size      // what we own of the template
	Others   []int64          // what others use of each quota
	Overhead quantity.Amounts // of new pods
	Now      time.Time
	Set      types.UID // the ReplicaSet of new pods
	// Ineffective is true if the API server does not size new pods, and Vain how many were
	// evicted since it last did.
	Ineffective bool
	Vain        int
	// Crowded is true if the nodes of some pods have no room for more.
	Crowded bool
	// Node is the allocatable amount on the node of all pods; zero if that is not known.
	Node   quantity.Amounts
	Chance uint64 // the seed of what kubelets do
}

func (w world) next(now time.Time) plan.Plan { return plan.Next(w.situation, w.policy, now) }

// The changes that cases are made of.

func pods(pods ...workload.Pod) func(*world) {
	return func(w *world) { w.situation.Pods = pods }
}

func template(containers ...workload.Container) func(*world) {
	return func(w *world) { w.situation.Deployment.Containers = containers }
}

func recommends(recs ...recommend.Container) func(*world) {
	return func(w *world) { w.situation.Recommendations = recs }
}

func decidedBefore(changes ...func(*plan.Decision)) func(*world) {
	return func(w *world) {
		w.situation.Decision = decision()
		for _, change := range changes {
			change(w.situation.Decision)
		}
	}
}

func policyOfApp(change func(*plan.ContainerPolicy)) func(*world) {
	return func(w *world) {
		p := w.policy.Containers["app"]
		change(&p)
		w.policy.Containers["app"] = p
	}
}

func rollout(w *world) { w.policy.Mode = "Rollout" }

func deployment(change func(*workload.Deployment)) func(*world) {
	return func(w *world) { change(&w.situation.Deployment) }
}

func takenOver(h ...plan.Original) func(*world) { return func(w *world) { w.situation.Originals = h } }

func appTakenOver() func(*world) {
	return takenOver(plan.Original{Container: "app", CPU: true, Memory: true, Resources: small().Resources})
}

func bounds(b workload.Bounds) func(*world) {
	b.Name, b.DefaultName = "limits", "limits"
	return func(w *world) { w.situation.Bounds = b }
}

// with changes a copy of a pod.
func with(p workload.Pod, changes ...func(*workload.Pod)) workload.Pod {
	p.Containers = slices.Clone(p.Containers)
	for _, change := range changes {
		change(&p)
	}
	return p
}

func sized(name string, requests, limits quantity.Amounts) workload.Container {
	return workload.Container{Name: name, Resources: resources(requests, limits)}
}

// say tells a plan in lines that people can review.
func say(p plan.Plan) string {
	var lines []string
	switch {
	case p.Decision == nil:
		lines = append(lines, "no decision")
	case p.Decided:
		lines = append(lines, fmt.Sprintf("decides %s (%s)%s", sayRequests(p.Decision.Requests), p.Decision.Reason, sayWritten(*p.Decision)))
	default:
		lines = append(lines, "keeps "+sayRequests(p.Decision.Requests)+sayWritten(*p.Decision))
	}
	if is[plan.Resize](p) {
		lines = append(lines, "resizes "+as[plan.Resize](p).Pod+" to "+saySizes(as[plan.Resize](p).Sizes))
	}
	if is[plan.TakeOver](p) {
		var parts []string
		for _, h := range as[plan.TakeOver](p).Originals {
			parts = append(parts, fmt.Sprintf("%s %s cpu=%t memory=%t", h.Container, sayResources(h.Resources), h.CPU, h.Memory))
		}
		slices.Sort(parts)
		lines = append(lines, "holds "+strings.Join(parts, "; "))
	} else if is[plan.Rewrite](p) {
		lines = append(lines, "rewrites "+saySizes(as[plan.Rewrite](p).Sizes))
	}
	if is[plan.Evict](p) {
		lines = append(lines, "evicts "+toBeEvicted(as[plan.Evict](p)))
	}
	if len(p.NewPods.Sizes) > 0 {
		line := "puts into new pods " + saySizes(p.NewPods.Sizes)
		if set := p.NewPods.ReplicaSet; set != "" {
			line += ", exactly in " + string(set)
		}
		if starts := p.NewPods.Starts; len(starts) > 0 {
			line += ", which start with " + saySizes(starts)
		}
		lines = append(lines, line)
	}
	if o := p.NewPods.Obstacle; o.Exists() && o.Reason != p.Verdict.Reason {
		lines = append(lines, "leaves new pods as in the template: "+o.Reason+": "+o.Message)
	}
	if p.NewPods.IneffectiveOnPod != "" {
		lines = append(lines, "new pod "+p.NewPods.IneffectiveOnPod+" has not got its sizes")
	}
	if is[plan.Restore](p) {
		lines = append(lines, "gives back")
	}
	lines = append(lines, p.Verdict.Reason+": "+p.Verdict.Message)
	last := fmt.Sprintf("%d/%d", p.Progress.PodsAtSize, p.Progress.Pods)
	for _, flag := range []struct {
		name string
		set  bool
	}{{"applied", p.Verdict.State.IsApplied()}, {"changing", (p.Verdict.State == plan.Changing)}, {"stalled", p.Verdict.State.IsStalled()}} {
		if flag.set {
			last += " " + flag.name
		}
	}
	if p.Verdict.RequeueAfter > 0 {
		last += fmt.Sprintf(", again in %s", p.Verdict.RequeueAfter)
	}
	return strings.Join(append(lines, last), "\n")
}

func sayRequests(requests map[string]quantity.Amounts) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		parts = append(parts, name+" "+sayAmounts(requests[name]))
	}
	return strings.Join(parts, "; ")
}

func sayWritten(d plan.Decision) (out string) {
	if d.AppliedToTemplate {
		out += ", written"
	}
	if d.Reverts > 0 {
		out += fmt.Sprintf(", reverted %d times", d.Reverts)
	}
	if len(d.ContestedBy) > 0 {
		out += " by " + strings.Join(d.ContestedBy, ", ")
	}
	return out
}

func saySizes(sizes []plan.Size) string {
	var parts []string
	for _, s := range sizes {
		parts = append(parts, s.Container+" "+sayResources(s.Resources))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func sayResources(r workload.Resources) string {
	return sayAmounts(r.Requests) + " of " + sayAmounts(r.Limits)
}

func sayAmounts(a quantity.Amounts) string {
	cpu, memory := "-", "-"
	if a.CPUMillis > 0 {
		cpu = fmt.Sprintf("%dm", a.CPUMillis)
	}
	switch {
	case a.MemoryBytes%mebi != 0:
		memory = fmt.Sprint(a.MemoryBytes)
	case a.MemoryBytes > 0:
		memory = fmt.Sprintf("%dMi", a.MemoryBytes/mebi)
	}
	return cpu + " " + memory
}

// sayNext is the plan, with the rewrite that follows it if it is recorded first.
func sayNext(w world) string {
	p := w.next(noon)
	said := say(p)
	if !is[plan.Record](p) {
		return said
	}
	w.situation.Decision = p.Decision
	rewrite := as[plan.Rewrite](w.next(noon))
	if rewrite == nil {
		return said
	}
	first, rest, _ := strings.Cut(said, "\n")
	return first + "\nthen rewrites " + saySizes(rewrite.Sizes) + "\n" + rest
}

// rulesOf is for tables with one row a rule: its name, the situation, and what the plan says then, in one line.
func rulesOf(t *testing.T) func(name string, given world, then string) {
	t.Helper()
	return func(name string, given world, then string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			if got := brief(sayNext(given)); got != brief(then) {
				t.Errorf("the plan\n got: %s\nwant: %s", got, brief(then))
			}
			if problem := unexplained(given.next(noon)); problem != "" {
				t.Error(problem)
			}
		})
	}
}

// usual are the messages that go without saying.
var usual = strings.NewReplacer(
	"Resizing: Pods are being resized in place", "Resizing",
	"Applied: All pods have the decided size", "Applied",
	"RollingOut: The Deployment is rolling out the decided size", "RollingOut",
	"NoPods: The Deployment has no running pods", "NoPods",
	"WithinTolerance: The current requests are within the tolerance of the recommendation", "WithinTolerance",
	": NodeCapacity: the scheduler finds no node for a new pod that has it", "",
	"Resizing: An unschedulable new pod gets the requests of the template", "Resizing an unschedulable pod",
	"NewPodsOnly: New pods get the decided size, and running pods stay unchanged", "NewPodsOnly",
)

// brief is a plan in one line, without the usual messages.
func brief(said string) string {
	return strings.ReplaceAll(usual.Replace(strings.ReplaceAll(said, "\t", "")), "\n", " · ")
}
