// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// part is one value of what a situation consists of.
type part struct {
	name string
	set  func(*world)
}

func keep(*world) {}

// A status can be edited, restored from a backup or lost in parts, and each object changes by
// itself. So every value of each list meets every value of all others, also those that no run of
// the operator leads to.
var combined = []struct {
	name  string
	parts []part
}{
	{"mode", []part{
		{"Recommend", func(w *world) { w.policy.Mode = "Recommend" }},
		{"Initial", initial},
		{"InPlace", keep},
		{"InPlace or Recreate", orRecreate},
		{"InPlace or Rollout", orRollout},
		{"InPlace or Rollout, suspended", func(w *world) { orRollout(w); w.policy.Suspended = true }},
		{"Rollout", rollout},
		{"Rollout, suspended", func(w *world) { rollout(w); w.policy.Suspended = true }},
	}},
	{"managed", []part{
		{"both", keep},
		{"memory", policyOfApp(func(p *plan.ContainerPolicy) { p.CPU = false })},
		{"none", policyOfApp(func(p *plan.ContainerPolicy) { p.CPU, p.Memory = false, false })},
	}},
	{"boost", []part{{"no", keep}, {"yes", boosts()}}},
	{"decision", []part{
		{"none", keep},
		{"made", decidedBefore()},
		{"of nothing", decidedBefore(func(d *plan.Decision) { d.Requests = nil })},
		{"of a container that is gone", decidedBefore(func(d *plan.Decision) {
			d.Requests = map[string]quantity.Amounts{"gone": amounts(200, 256)}
		})},
		{"being verified", decidedBefore(verifying)},
		{"for an OOM kill, applied", decidedBefore(func(d *plan.Decision) { d.Reason, d.AppliedToTemplate = plan.DecidedOOMKill, true })},
		{"reverted", decidedBefore(func(d *plan.Decision) { d.Reason = plan.DecidedReverted })},
		{"contested", decidedBefore(func(d *plan.Decision) { d.AppliedToTemplate, d.Reverts, d.LastRevert = true, 2, noon.Add(-time.Minute) })},
	}},
	{"taken over", []part{
		{"nothing", keep},
		{"both", appTakenOver()},
		{"cpu", takenOver(plan.Original{Container: "app", CPU: true, Resources: small().Resources})},
		{"nothing of app", takenOver(plan.Original{Container: "app"})},
		{"of a container that is gone", takenOver(plan.Original{Container: "gone", CPU: true, Memory: true, Resources: small().Resources})},
	}},
	{"pods", []part{
		{"none", pods()},
		{"small", keep},
		{"at size", atSize()},
		{"starting", pods(starting(time.Minute, pod("web-1", double())), starting(time.Minute, pod("web-2", small())))},
		{"infeasible", toEvict},
		{"pending", pods(with(pod("web-1", small()), func(p *workload.Pod) { p.Running, p.Ready, p.Started, p.Actual = false, false, time.Time{}, nil }))},
		{"unschedulable", unschedulable},
		{"of an older template", pods(with(pod("web-1", small()), func(p *workload.Pod) { p.Current = false }))},
		{"terminating", pods(with(pod("web-1", small()), func(p *workload.Pod) { p.Terminating = true }))},
		{"ended", pods(with(pod("web-1", small()), func(p *workload.Pod) { p.Running, p.Ready, p.Ended = false, false, true }))},
		{"without their containers", pods(pod("web-1"))},
	}},
	{"rollout", []part{
		{"none", keep},
		{"in progress", rollingOut},
		{"paused", func(w *world) { rollingOut(w); pausedToo(w) }},
	}},
	{"recommends", []part{{"more", keep}, {"less", recommends(rec(amounts(40, 60), amounts(20, 30), amounts(60, 80)))}, {"nothing", recommends()}}},
}

// TestEveryCombinationHasAReason plans each combination of the parts above. None panics, and each
// has a reason that is explained to users and does not speak of a decision that there is not.
func TestEveryCombinationHasAReason(t *testing.T) {
	n, failures := 0, 0
	var visit func(names []string, changes []func(*world))
	visit = func(names []string, changes []func(*world)) {
		if len(names) < len(combined) {
			list := combined[len(names)]
			for _, each := range list.parts {
				visit(append(names, list.name+" "+each.name), append(changes, each.set))
			}
			return
		}
		n++
		if n%stride() != 0 {
			return
		}
		if problem := problemOf(given(changes...)); problem != "" && failures < 20 {
			failures++
			t.Errorf("%s: %s", strings.Join(names, "; "), problem)
		}
	}
	visit(nil, nil)
	if want := 8 * 3 * 2 * 8 * 5 * 11 * 3 * 3; n != want {
		t.Errorf("%d combinations, want %d", n, want)
	}
}

// problemOf says what is wrong with the plan for a situation; empty for nothing.
func problemOf(w world) (problem string) {
	defer func() {
		if r := recover(); r != nil {
			problem = fmt.Sprint("panic: ", r)
		}
	}()
	p := w.next(noon)
	if p.Decision == nil && strings.Contains(p.Verdict.Message, "decided size") {
		return "nothing is decided, but the message is: " + p.Verdict.Message
	}
	return unexplained(p)
}
