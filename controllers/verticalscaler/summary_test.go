// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// pods are running pods with these requests.
func pods(requests ...quantity.Amounts) (all []workload.Pod) {
	for i, r := range requests {
		all = append(all, runningPod(fmt.Sprintf("pod-%d", i), appContainer(r)))
	}
	return all
}

func TestSummary(t *testing.T) {
	cases := map[string]struct {
		scope *scope
		want  v1beta1.Summary
	}{
		"what is applied shows no arrow": {aScope(), v1beta1.Summary{CPU: "200m", Memory: "256Mi", Pods: "2/2"}},
		"the arrow stays until the last pod has followed": {
			aScope(planned("Resizing", "…"), func(p *scope) {
				p.plan.Progress.PodsAtSize = 1
				p.observation.situation.Pods[1] = runningPod("b", appContainer(amounts(100, 128)))
			}),
			v1beta1.Summary{CPU: "100m->200m", Memory: "128Mi->256Mi", Pods: "1/2"},
		},

		"of pods above and below, the one that is furthest counts": {
			aScope(planned("Resizing", "…"), func(p *scope) {
				p.plan.Decision.Requests["app"] = amounts(300, 300)
				p.observation.situation.Pods = pods(amounts(250, 200), amounts(900, 310), amounts(300, 300))
			}),
			v1beta1.Summary{CPU: "900m->300m", Memory: "200Mi->300Mi", Pods: "2/2"},
		},
		"each container has a direction of its own": {
			aScope(planned("Resizing", "…"), func(p *scope) {
				p.plan.Decision.Requests = map[string]quantity.Amounts{"app": amounts(100, 256), "log": amounts(80, 64)}
				log := workload.Container{Name: "log", Resources: workload.Resources{Requests: amounts(20, 64)}}
				p.observation.situation.Deployment.Containers = append(p.observation.situation.Deployment.Containers, log)
				raised := log
				raised.Requests = amounts(80, 64)
				p.observation.situation.Pods = []workload.Pod{runningPod("a", appContainer(amounts(100, 256)), log), runningPod("b", appContainer(amounts(500, 256)), raised)}
			}),
			v1beta1.Summary{CPU: "520m->180m", Memory: "320Mi", Pods: "2/2"},
		},
		"more CPU at the start is not about to be lowered": {
			aScope(planned("Resizing", "…"), func(p *scope) {
				p.policy.Containers = map[string]plan.ContainerPolicy{"app": {Boost: &plan.Boost{Percent: 300}}}
				starting := runningPod("b", appContainer(amounts(600, 128)))
				starting.ReadyChanged = noon.Add(-time.Second)
				starting.Runs = []workload.Run{{Container: "app", Since: noon.Add(-time.Second)}}
				p.observation.situation.Pods = []workload.Pod{runningPod("a", appContainer(amounts(200, 256))), starting}
			}),
			v1beta1.Summary{CPU: "200m", Memory: "128Mi->256Mi", Pods: "2/2"},
		},

		"a suspended scaler points to what it would decide": {
			aScope(func(p *scope) {
				p.policy = scaler.PlanPolicy(checkout(func(s *v1beta1.VerticalScaler) { s.Spec.Suspend = true }), p.observation.situation.Deployment)
				p.observation.situation.Recommendations = []recommend.Container{{Name: "app", Target: amounts(300, 300), LowerBound: amounts(290, 100), UpperBound: amounts(310, 310)}}
				p.plan = plan.Next(p.observation.situation, p.policy, p.now)
			}),
			v1beta1.Summary{CPU: "200m->300m", Memory: "256Mi->300Mi", Pods: "0/2"},
		},
		"a request that is not set is none": {
			aScope(planned("Resizing", "…"), func(p *scope) {
				p.plan.Decision.Requests["app"] = amounts(30, 0)
				p.observation.situation.Pods = pods(amounts(0, 256))
			}),
			v1beta1.Summary{CPU: "none->30m", Memory: "256Mi", Pods: "2/2"},
		},

		"pods that end do not keep the arrow": {
			aScope(planned("Resizing", "…"), func(p *scope) {
				old := runningPod("old", appContainer(amounts(1, 1)))
				old.Terminating = true
				p.observation.situation.Pods = append(p.observation.situation.Pods, old)
			}),
			v1beta1.Summary{CPU: "200m", Memory: "256Mi", Pods: "2/2"},
		},
		"without pods the template counts": {
			aScope(planned("NoPods", "…"), func(p *scope) {
				p.observation.situation.Pods = nil
				p.plan.Progress.Pods, p.plan.Progress.PodsAtSize = 0, 0
			}),
			v1beta1.Summary{CPU: "100m->200m", Memory: "128Mi->256Mi", Pods: "0/0"},
		},

		"Recommend shows what is recommended": {
			aScope(planned("RecommendOnly", "…"), func(p *scope) {
				p.plan.Decision = nil
				p.observation.situation.Recommendations = []recommend.Container{{Name: "app", Target: amounts(300, 0)}}
			}),
			v1beta1.Summary{CPU: "200m (300m)", Memory: "256Mi", Pods: "2/2"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			assert.Equal(t, "summaryOf()", tc.want, *summaryOf(tc.scope))
		})
	}
}

// "for 2m" in the views is the age of the reason, and not of the condition's status.
func TestTheTimeOfAReason(t *testing.T) {
	vs := checkout()
	at := func(now time.Time, change func(*scope)) *v1beta1.Summary {
		s := &scope{scaler: vs, status: vs.Status, now: now}
		change(s)
		completeStatus(s)
		vs.Status = s.status
		return vs.Status.Summary
	}
	gone := func(*scope) {}
	down := func(s *scope) { s.err = errors.New("no connection") }
	first := at(noon, gone)
	if first.Reason != v1beta1.ReasonDeploymentNotFound || !first.ReasonTime.Time.Equal(noon) {
		t.Fatalf("at first: %+v", first)
	}
	if later := at(noon.Add(time.Second), gone); !later.ReasonTime.Time.Equal(noon) {
		t.Errorf("the same reason: %+v", later)
	}
	if other := at(noon.Add(2*time.Hour), down); other.Reason == first.Reason || !other.ReasonTime.Time.Equal(noon.Add(2*time.Hour)) {
		t.Errorf("another reason: %+v", other)
	}
}
