// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"maps"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// guards are the axes of what limits a change. Usage comes first, because a guard concerns a
// direction.
var guards = []axis{
	{"usage recommends", []string{"more", "much more", "more after an OOM kill", "a little less", "less"}},
	{"mode", []string{"Initial", "InPlace or Wait", "InPlace or Recreate", "InPlace or Rollout", "Rollout"}},
	{"the Deployment", []string{"is at rest", "rolls out", "is paused"}},
	{"a window is", []string{"open", "to come"}},
	{"a quota has", []string{"room", "no room"}},
	{"a LimitRange allows", []string{"all", "containers of 250m 320Mi", "pods of 550m 700Mi"}},
	{"a sidecar requests", []string{"nothing", "100m 128Mi"}},
	{"the API server says", []string{"yes", "NodeCapacity", "QuotaExceeded"}},
}

// recommendation is the recommendation for pods that request 100m and 128Mi, with a reason of each urgency.
func (c cell) recommendation() recommend.Container {
	switch c["usage recommends"] {
	case "more":
		return rec(amounts(200, 256), amounts(100, 128), amounts(300, 384))
	case "much more":
		return recommended("app")
	case "more after an OOM kill":
		return withOOMFloor(256, rec(amounts(100, 256), amounts(50, 192), amounts(200, 384)))
	case "a little less":
		return rec(amounts(60, 80), amounts(40, 60), amounts(120, 160))
	}
	return rec(amounts(60, 80), amounts(40, 60), amounts(80, 100))
}

// guarded is a Deployment whose pods request 100m and 128Mi, with twice that as limits, and whatever
// may limit the next change.
func (c cell) guarded() world {
	w := given(recommends(c.recommendation()), decidedBefore(func(d *plan.Decision) {
		d.Requests["app"], d.AppliedToTemplate = small().Requests, true
	}))
	s := &w.situation
	switch c["mode"] {
	case "Initial":
		initial(&w)
	case "InPlace or Recreate":
		w.policy.Fallback, w.policy.MinReplicas = v1beta1.FallbackRecreate, 2
	case "InPlace or Rollout":
		orRollout(&w)
		appTakenOver()(&w)
	case "Rollout":
		rollout(&w)
		appTakenOver()(&w)
	}
	s.Deployment.RollingOut = c["the Deployment"] == "rolls out"
	s.Deployment.Paused = c["the Deployment"] == "is paused"
	if c["a window is"] == "to come" {
		windows(nightly(window.ScaleUp, window.ScaleDown))(&w)
	}
	if c["a quota has"] == "no room" {
		quotas(quota("requests.memory", 1, 1))(&w)
	}
	switch c["a LimitRange allows"] {
	case "containers of 250m 320Mi":
		bounds(workload.Bounds{ContainerMax: amounts(250, 320)})(&w)
	case "pods of 550m 700Mi":
		bounds(workload.Bounds{PodMax: amounts(550, 700)})(&w)
	}
	if c["a sidecar requests"] != "nothing" {
		for i, p := range s.Pods {
			s.Pods[i] = withSidecar(p, container("mesh"))
		}
	}
	return w
}

// guardedOutcome describes the decision, the step and the reason.
func (c cell) guardedOutcome() string {
	w := c.guarded()
	w.effective()
	decided := ""
	if p := w.next(noon); p.Decided {
		decided = "decide " + sayAmounts(p.Decision.Requests["app"]) + " (" + p.Decision.Reason + "), "
	}
	for {
		p := w.next(noon)
		switch step := p.Step.(type) {
		case plan.Record:
			w.situation.Decision, w.situation.NewPods = p.Decision, p.NewPods
			continue
		case plan.Resize:
			if answer := c["the API server says"]; answer != "yes" {
				w.reject(step.UID, plan.RejectedResize{Sizes: step.Sizes, Reason: answer, Message: "no"})
				continue
			}
		}
		return decided + stepOf(w, p) + " · " + verdictOf(p)
	}
}

// reject notes a resize of a pod that is not to be repeated.
func (w *world) reject(uid types.UID, resize plan.RejectedResize) {
	before := w.situation.RejectedResizes
	w.situation.RejectedResizes = map[types.UID][]plan.RejectedResize{}
	maps.Copy(w.situation.RejectedResizes, before)
	w.situation.RejectedResizes[uid] = append(slices.Clone(before[uid]), resize)
}

// rejected is a resize of app in web-1 that is not to be repeated.
func rejected(to workload.Resources, reason, message string) func(*world) {
	return func(w *world) {
		w.reject("uid-web-1", plan.RejectedResize{Sizes: []plan.Size{{Container: "app", Resources: to}}, Reason: reason, Message: message})
	}
}

// TestDecisionTableOfGuards walks through every combination of what limits a change, from the
// recommendation to the step. It is written as the other table is.
func TestDecisionTableOfGuards(t *testing.T) {
	compareTable(t, "guards.txt", guards, cell.guardedOutcome, `# What is decided and done next, and the reason that is given, for each of %d situations.
#
# Two pods of one container request 100m and 128Mi, and have twice that as limits; that was decided ten minutes ago. More
# is 200m and 256Mi, and less 60m and 80Mi; a little less is within the bounds of the recommendation. A LimitRange for pods bounds
# the sum of their limits. What the API server says is the answer to all resizes; the step is the one after them. A
# branch names the values that come to the same; what is not named does not matter. Sizes are requests of limits.

%s
`)
}
