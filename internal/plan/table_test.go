// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// axis is one thing that a plan may depend on, and what it may be. To add a value is to add it
// here, and to make it so in world; to add an axis likewise. Another table, in guards_test.go, has
// the axes that limit a change: all of them at once would be too many to review.
type axis struct {
	name   string
	values []string
}

// axes are in the order in which the table tells them: what matters most comes first.
var axes = []axis{
	{"mode", []string{"Recommend", "Initial", "InPlace", "Rollout"}},
	{"fallback", []string{"Wait", "Recreate", "Rollout"}},
	{"replicas", []string{"0", "1", "4"}},
	{"QoS", []string{"Guaranteed", "Burstable", "BestEffort"}},
	{"limits", []string{"in proportion", "RequestsOnly", "with headroom", "none"}},
	{"restarts for", []string{"nothing", "cpu", "memory", "cpu and memory"}},
	{"the kubelet says", []string{"nothing yet", "Deferred", "Deferred for long", "Infeasible", "InProgress", "Error", "nothing for long"}},
	{"the rollout", []string{"has ended", "is in progress", "is paused", "is stuck"}},
	{"the API server says", []string{"yes", "NodeCapacity", "Unsupported", "QuotaExceeded", "Forbidden", "Rejected"}},
}

// cell is one value of each axis, by its name.
type cell map[string]string

// world is a Deployment for which 200m and 256Mi have been decided, and whose pods have half of it. But
// where the kubelet answers, the first pod has been asked for it all. ok is false for pods that cannot be.
func (c cell) world() (w world, ok bool) {
	app := container("app")
	switch c["QoS"] {
	case "Guaranteed":
		app.Limits = app.Requests
	case "BestEffort":
		app.Resources = workload.Resources{}
	}
	policy := plan.ContainerPolicy{CPU: true, Memory: true, Limits: plan.LimitsRise}
	switch c["limits"] {
	case "none":
		app.Limits = quantity.Amounts{}
	case "RequestsOnly":
		policy.Limits = plan.LimitsStay
	case "with headroom":
		policy.LimitPolicy = plan.LimitPolicy{HeadroomCPU: ptr.To[int64](50), HeadroomMemory: ptr.To[int64](50)}
	}
	if c["QoS"] == "Guaranteed" && c["limits"] == "none" || c["QoS"] == "BestEffort" && c["limits"] != "none" {
		return w, false
	}
	app.RestartOnCPU = strings.Contains(c["restarts for"], "cpu")
	app.RestartOnMemory = strings.Contains(c["restarts for"], "memory")

	w = given(template(app), pods(), decidedBefore(func(d *plan.Decision) { d.Time = noon.Add(-time.Minute) }))
	w.policy.Mode, w.policy.Fallback, w.policy.MinReplicas = v1beta1.UpdateMode(c["mode"]), v1beta1.Fallback(c["fallback"]), 2
	w.policy.Containers = map[string]plan.ContainerPolicy{"app": policy}
	if c["mode"] == "Rollout" || c["mode"] == "InPlace" && c["fallback"] == "Rollout" {
		w.situation.Originals = []plan.Original{{Container: "app", CPU: true, Memory: true, Resources: app.Resources}}
	}
	var replicas int32
	if _, err := fmt.Sscan(c["replicas"], &replicas); err != nil {
		panic(err)
	}
	w.situation.Deployment.Replicas = replicas
	d := &w.situation.Deployment
	d.RollingOut, d.Paused, d.Stuck = c["the rollout"] != "has ended", c["the rollout"] == "is paused", c["the rollout"] == "is stuck"
	for i := range replicas {
		p := pod(fmt.Sprintf("web-%d", i+1), app)
		p.Current = !d.RollingOut || i < replicas/2
		w.situation.Pods = append(w.situation.Pods, p)
	}
	if c["the kubelet says"] != "nothing yet" {
		return w, w.ask(c["the kubelet says"])
	}
	return w, true
}

// ask gives the first pod what has been decided for it, so that its kubelet can speak.
// There is no such pod where nothing can be asked for.
func (w *world) ask(verdict string) (ok bool) {
	inPlace := *w
	inPlace.policy.Mode = "InPlace"
	p := inPlace.next(noon)
	if !is[plan.Resize](p) || as[plan.Resize](p).Pod != "web-1" {
		return false
	}
	first := &w.situation.Pods[0]
	first.Containers, first.Resized = withSizes(first.Containers, as[plan.Resize](p).Sizes), w.situation.Decision.Time
	switch verdict {
	case "Deferred":
		first.Resize.Deferred = true
	case "Deferred for long":
		first.Resize.Deferred, first.Resize.Since = true, noon.Add(-time.Hour)
	case "Infeasible":
		first.Resize.Infeasible = true
	case "InProgress":
		first.Resize.InProgress = true
	case "Error":
		first.Resize.InProgress, first.Resize.Failed = true, true
	case "nothing for long":
		w.situation.Decision.Time = noon.Add(-time.Hour)
		first.Resized = w.situation.Decision.Time
	}
	return true
}

// impossible is told of cells that cannot be.
const impossible = "cannot be"

// outcome is the step and the reason.
func (c cell) outcome() string {
	w, ok := c.world()
	if !ok {
		return impossible
	}
	w.effective()
	p := w.next(noon)
	if answer, step := c["the API server says"], as[plan.Resize](p); answer != "yes" && step != nil {
		w.reject(step.UID, plan.RejectedResize{Sizes: step.Sizes, Reason: answer, Message: "no"})
		p = w.next(noon)
	}
	return stepOf(w, p) + " · " + verdictOf(p)
}

// verdictOf is the reason, and what it means for the scaler.
func verdictOf(p plan.Plan) string {
	out := p.Verdict.Reason
	if p.Verdict.State.IsStalled() {
		out += " · stalled"
	}
	if p.Verdict.State.IsApplied() {
		out += " · applied"
	}
	return out
}

func stepOf(w world, p plan.Plan) string {
	switch {
	case is[plan.Resize](p) && as[plan.Resize](p).Withdraws != nil:
		return "withdraw the resize of " + as[plan.Resize](p).Pod
	case is[plan.Resize](p):
		before := w.situation.Pods[slices.IndexFunc(w.situation.Pods, func(q workload.Pod) bool { return q.UID == as[plan.Resize](p).UID })].Containers[0]
		after := as[plan.Resize](p).Sizes[0]
		var what []string
		if before.Requests.CPUMillis != after.Requests.CPUMillis || before.Limits.CPUMillis != after.Limits.CPUMillis {
			what = append(what, "cpu")
		}
		if before.Requests.MemoryBytes != after.Requests.MemoryBytes || before.Limits.MemoryBytes != after.Limits.MemoryBytes {
			what = append(what, "memory")
		}
		return fmt.Sprintf("resize %s of %s to %s", strings.Join(what, " and "), as[plan.Resize](p).Pod, sayResources(after.Resources))
	case is[plan.TakeOver](p):
		return "hold"
	case is[plan.Rewrite](p):
		return "rewrite the template to " + saySizes(as[plan.Rewrite](p).Sizes)
	case is[plan.Restore](p):
		return "give back"
	case is[plan.Evict](p):
		return "evict " + toBeEvicted(as[plan.Evict](p)) + " for " + saySizes(p.NewPods.Sizes)
	case len(p.NewPods.Sizes) > 0 && w.policy.Mode == "Initial":
		return "put into new pods " + saySizes(p.NewPods.Sizes)
	}
	return "no step"
}

// tell lists the outcomes of all cells that agree with c, as a tree. It leaves out axes without an
// effect and impossible cells, and values with the same outcome share a branch.
func tell(axes []axis, c cell, outcome func(cell) string, n *int) []string {
	if len(axes) == 0 {
		*n++
		return []string{outcome(c)}
	}
	var branches [][]string
	var names [][]string
	for _, value := range axes[0].values {
		c[axes[0].name] = value
		lines := tell(axes[1:], c, outcome, n)
		if slices.Equal(lines, []string{impossible}) {
			continue
		}
		i := slices.IndexFunc(branches, func(other []string) bool { return slices.Equal(lines, other) })
		if i < 0 {
			branches, names = append(branches, lines), append(names, nil)
			i = len(branches) - 1
		}
		names[i] = append(names[i], value)
	}
	switch len(branches) {
	case 0:
		return []string{impossible}
	case 1:
		return branches[0]
	}
	var out []string
	for i, lines := range branches {
		head := axes[0].name + " " + strings.Join(names[i], " | ")
		if len(lines) == 1 {
			out = append(out, head+" → "+lines[0])
			continue
		}
		out = append(out, head)
		for _, line := range lines {
			out = append(out, "  "+line)
		}
	}
	return out
}

// TestDecisionTable walks through every combination of the axes. A cell that
// changes shows as a changed line in testdata/decisions.txt, which is written by
//
//	go test ./internal/plan -run DecisionTable -update
//
// With -short, the cells with four Burstable pods and fallback Recreate are compared.
func TestDecisionTable(t *testing.T) {
	if testing.Short() {
		golden, err := os.ReadFile(filepath.Join("testdata", "decisions.txt"))
		must.Succeed(t, err)
		indent := regexp.MustCompile(`(?m)^ +`)
		for _, mode := range axes[0].values {
			lines := tell(axes[4:], cell{"mode": mode, "fallback": "Recreate", "replicas": "4", "QoS": "Burstable"}, cell.outcome, new(int))
			if got := strings.Join(lines, "\n"); !strings.Contains(indent.ReplaceAllString(string(golden), ""), indent.ReplaceAllString(got, "")) {
				t.Errorf("testdata/decisions.txt does not have, in mode %s:\n%s", mode, got)
			}
		}
		return
	}
	compareTable(t, "decisions.txt", axes, cell.outcome, `# What is done next, and the reason that is given, for each of %d situations.
#
# 200m and 256Mi have been decided for pods of one container, which has half of that, or nothing where it is BestEffort,
# and twice its requests as limits where it is Burstable. What the kubelet says is about the resize of the first pod.
# What the API server says is the answer to the next resize; the step is the one after it. A branch names the values
# that come to the same; what is not named does not matter, or cannot be: a BestEffort pod with limits, the word of a
# kubelet that cannot be asked. Sizes are requests of limits. A pod is evicted for one that the API server gives the sizes
# named; it has been known for long to do so. While a rollout has not ended, half of the pods have an older template, or the
# only one.

%s
`)
}

// compareTable compares the outcomes of all cells with a golden file. The text has the number of cells
// and the lines.
func compareTable(t *testing.T, name string, axes []axis, outcome func(cell) string, text string) {
	t.Helper()
	n := 0
	lines := tell(axes, cell{}, outcome, &n)
	want := 1
	for _, a := range axes {
		want *= len(a.values)
	}
	if n != want {
		t.Errorf("%d cells, want %d", n, want)
	}
	got := fmt.Sprintf(text, n, strings.Join(lines, "\n"))
	golden.Compare(t, name, got)
}
