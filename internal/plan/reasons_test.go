// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// endedClimb is a recommendation after raises that did not help.
func endedClimb(code string, memory int64) recommend.Container {
	out := rec(amounts(100, memory), amounts(100, memory), amounts(100, memory))
	out.Reasons = append(out.Reasons, recommend.Reason{Resource: "memory", Code: code, Value: memory * mebi})
	return out
}

func toEvict(w *world) { w.situation.Pods = []workload.Pod{infeasible("web-1"), infeasible("web-2")} }

func rollingOut(w *world) { w.situation.Deployment.RollingOut = true }

// FuzzEverySilenceHasAReason: whatever the situation, a plan without a step says why, with
// a reason that is explained to people. The seed makes the situation.
func FuzzEverySilenceHasAReason(f *testing.F) {
	for seed := range uint64(1000) {
		f.Add(seed)
	}
	refusals := []string{"NodeCapacity", "QuotaExceeded", "LimitRange", "Forbidden", "Rejected", "NamespaceTerminating", "QoSChange", "Unsupported"}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		some := func(p float64) bool { return r.Float64() < p }
		w := randomWorld(r)
		s := &w.situation
		s.Deployment.Terminating, s.Deployment.RollingOut, s.Deployment.Paused = some(0.05), some(0.3), some(0.2)
		if some(0.1) {
			w.policy.Mode = "Recommend"
		}
		w.policy.Suspended = some(0.1)
		if s.Decision != nil { // a status can be edited, or restored from a backup
			s.Decision.AppliedToTemplate, s.Decision.Reverts = some(0.5), r.IntN(3)
			s.Decision.Reason = []string{plan.DecidedScaleUp, plan.DecidedOOMKill, plan.DecidedReverted, "unknown"}[r.IntN(4)]
			switch r.IntN(6) {
			case 0:
				s.Decision.Requests = nil
			case 1:
				s.Decision.Requests = map[string]quantity.Amounts{"gone": amounts(200, 256)}
			case 2:
				w.policy.VerificationPeriod = time.Minute
				s.Decision.Verification = &plan.Verification{Began: noon.Add(-time.Hour), Good: map[string]quantity.Amounts{"app": amounts(100, 128)}}
			}
		}
		if some(0.1) {
			s.Originals = append(s.Originals, plan.Original{Container: []string{"app", "gone"}[r.IntN(2)], CPU: some(0.5), Memory: some(0.5), Resources: small().Resources})
		}
		for _, c := range s.Deployment.Containers {
			if some(0.3) {
				s.Originals = append(s.Originals, plan.Original{Container: c.Name, CPU: some(0.5), Memory: some(0.5), Resources: c.Resources})
			}
		}
		for i := range s.Pods {
			pod := &s.Pods[i]
			pod.PodLevelResources = some(0.05)
			if some(0.1) {
				pod.Actual = nil
			}
			pod.Resize.Failed, pod.Resize.InProgress = some(0.1), some(0.2)
		}
		if p := w.next(noon); is[plan.Resize](p) && some(0.5) { // and all that may come of it is refused
			for range 3 * len(s.Pods) {
				if step := as[plan.Resize](w.next(noon)); step != nil {
					w.reject(step.UID, plan.RejectedResize{Sizes: step.Sizes, Reason: refusals[r.IntN(len(refusals))], Message: "The API server said no"})
				}
			}
		}
		for _, at := range []time.Time{noon, noon.Add(time.Hour)} {
			if problem := unexplained(w.next(at)); problem != "" {
				t.Errorf("seed %d: %s", seed, problem)
			}
		}
	})
}

// unexplained says what is wrong with a plan's reason; empty for nothing.
func unexplained(p plan.Plan) string {
	_, known := explain.ReasonFor(p.Verdict.Reason)
	switch {
	case p.Verdict.Reason == "":
		return "there is no reason"
	case !known:
		return "the reason " + p.Verdict.Reason + " is not explained in internal/explain"
	case p.Decision == nil && strings.Contains(p.Verdict.Message, "decided size"):
		return "nothing is decided, but the message is: " + p.Verdict.Message
	case strings.TrimSpace(p.Verdict.Message) == "":
		return "the reason " + p.Verdict.Reason + " has no message"
	}
	return ""
}
