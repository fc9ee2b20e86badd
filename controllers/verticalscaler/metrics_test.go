// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The pods are uneven, one of them ends, another controller has injected a container, and a
// container has a limit and no request.
func TestMeasuredSizesAreThoseOfAllPods(t *testing.T) {
	log := workload.Container{Name: "log", Resources: workload.Resources{Limits: amounts(50, 64)}}
	logInPod := workload.Container{Name: "log", Resources: workload.Resources{Requests: amounts(50, 64)}}
	proxy := workload.Container{Name: "proxy", Resources: workload.Resources{Requests: amounts(1000, 1024)}}
	ends := runningPod("ends", appContainer(amounts(9000, 9000)))
	ends.Terminating = true
	s := aScope(planned("Verifying", "…"), func(p *scope) {
		situation := &p.observation.situation
		situation.Deployment.Containers = []workload.Container{appContainer(amounts(500, 512)), log}
		situation.Pods = []workload.Pod{
			runningPod("a", appContainer(amounts(200, 512)), logInPod, proxy), runningPod("b", appContainer(amounts(500, 512)), logInPod), ends,
		}
		situation.Recommendations = []recommend.Container{
			{Name: "app", Target: amounts(200, 300), LowerBound: amounts(150, 250), UpperBound: amounts(300, 600)},
		}
		p.plan.Progress = plan.Progress{PodsAtSize: 1, Pods: 2}
	})
	completeFor(checkout(), s)
	want := &metrics.Sizes{
		PodsAtSize: 1, Pods: 2,
		Requested: amounts(800, 1152), Recommended: amounts(500, 728), Original: amounts(1100, 1152),
		Containers: []metrics.Container{
			{Name: "app", Request: amounts(500, 512), Target: amounts(200, 300), LowerBound: amounts(150, 250), UpperBound: amounts(300, 600)},
			{Name: "log", Request: amounts(50, 64)},
		},
	}
	assert.Equal(t, "measuredSizes()", want, measuredSizes(s))
	assert.Equal(t, "measuredState()", metrics.State{Reason: "Verifying", Ready: true, Waiting: true}, measuredState(s))

	s.observation.situation.Originals = []plan.Original{{Container: "app", CPU: true, Resources: workload.Resources{Requests: amounts(1000, 0)}}}
	if got := measuredSizes(s).Original; got != amounts(2100, 1152) {
		t.Errorf("with recorded values of the template, the original requests are %v", got)
	}
}

func TestWaitingIsForSomethingElseThanConsent(t *testing.T) {
	for reason, want := range map[string]bool{
		v1beta1.ReasonWaitingForBudget: true, v1beta1.ReasonDeferred: true, v1beta1.ReasonFrozen: true,
		v1beta1.ReasonSuspended: false, v1beta1.ReasonPaused: false, v1beta1.ReasonRecommendOnly: false,
	} {
		if got := aScope(planned(reason, "…")).isWaiting(); got != want {
			t.Errorf("%s waits: %t", reason, got)
		}
	}
	undecided := aScope(planned(v1beta1.ReasonLearning, "…"), func(p *scope) { p.plan.Decision = nil })
	if undecided.isWaiting() {
		t.Error("a scaler without a recommendation waits")
	}
	first := aScope(func(p *scope) { _ = p.answer(budgetDeferral) })
	if !first.isWaiting() {
		t.Error("a first decision that waits for the budget does not wait")
	}
}

// A kill counts against the operator only if the user's own template would have given more.
func TestKillsAreAttributed(t *testing.T) {
	limited := plan.Situation{Deployment: workload.Deployment{Containers: []workload.Container{
		{Name: "app", Resources: workload.Resources{Requests: amounts(100, 256), Limits: amounts(0, 512)}},
		{Name: "bare", Resources: workload.Resources{Requests: amounts(100, 256)}},
		{Name: "none"},
	}}}
	taken := limited
	taken.Originals = []plan.Original{{Container: "app", Memory: true, Resources: workload.Resources{Limits: amounts(0, 1024)}}}
	for name, c := range map[string]struct {
		situation plan.Situation
		container string
		hit       int64
		want      metrics.Event
	}{
		"lowered below the limit of the template": {limited, "app", 400, metrics.KilledLowered},
		"at the limit of the template":            {limited, "app", 512, metrics.KilledOriginal},
		"raised before":                           {limited, "app", 600, metrics.KilledOriginal},
		"unknown, as after another resize":        {limited, "app", 0, metrics.KilledOriginal},
		"the request lowered, without a limit":    {limited, "bare", 128, metrics.KilledLowered},
		"nothing set":                             {limited, "none", 128, metrics.KilledOriginal},
		"the template is the operator's":          {taken, "app", 600, metrics.KilledLowered},
	} {
		if got := killEvent(c.situation, workload.OOMKill{Container: c.container, HitBytes: c.hit * mebi}); got != c.want {
			t.Errorf("%s: event %v instead of %v", name, got, c.want)
		}
	}
}

func TestRevertsAreCounted(t *testing.T) {
	r := &Reconciler{Metrics: &metrics.Scalers{Detail: metrics.Full}}
	vs := checkout()
	for range 2 { // The second time, the status has the revert already.
		s := aScope(func(p *scope) { p.scaler, p.status.Decision = vs, &v1beta1.Decision{Reverts: 1} })
		r.countReverts(client.ObjectKeyFromObject(vs), s)
		vs = checkout(func(vs *v1beta1.VerticalScaler) { vs.Status.Decision = &v1beta1.Decision{Reverts: 1} })
	}
	r.countReverts(client.ObjectKeyFromObject(vs), aScope(func(p *scope) { p.scaler, p.plan.Reverted = vs, "2 of 3 changed pods restart" }))
	want := `
# HELP verticalscaler_reverts_total [BETA] Changes that were undone, by cause: Regression if the operator reverted its own change because pods did worse with it, OtherWriter if another writer undid it.
# TYPE verticalscaler_reverts_total counter
verticalscaler_reverts_total{cause="OtherWriter",scaler="checkout",target_namespace="shop"} 1
verticalscaler_reverts_total{cause="Regression",scaler="checkout",target_namespace="shop"} 1
`
	must.Succeed(t, testutil.CollectAndCompare(r.Metrics, strings.NewReader(want), "verticalscaler_reverts_total"))
}

// A reconcile records its results, and the series of a deleted scaler end.
func TestAReconcileIsMeasured(t *testing.T) {
	p := newPlant(t, 500) // of 100m
	p.Metrics = &metrics.Scalers{Detail: metrics.Full}
	vs := p.mustReconcile()
	want := fmt.Sprintf(`
# HELP verticalscaler_changes_total [BETA] Changes of pods and pod templates, by action: resize, rollout, evict, restore.
# TYPE verticalscaler_changes_total counter
verticalscaler_changes_total{action="evict",scaler="checkout",target_namespace="shop"} 0
verticalscaler_changes_total{action="resize",scaler="checkout",target_namespace="shop"} 1
verticalscaler_changes_total{action="restore",scaler="checkout",target_namespace="shop"} 0
verticalscaler_changes_total{action="rollout",scaler="checkout",target_namespace="shop"} 0
# HELP verticalscaler_pods [BETA] Running pods of the target Deployments.
# TYPE verticalscaler_pods gauge
verticalscaler_pods{scaler="checkout",target_namespace="shop"} 3
# HELP verticalscaler_status [BETA] Scalers by their state: the reason that kubectl get shows. 1 for each scaler.
# TYPE verticalscaler_status gauge
verticalscaler_status{reason=%q,scaler="checkout",target_namespace="shop"} 1
`, condition(vs, v1beta1.ConditionApplied).Reason)
	must.Succeed(t, testutil.CollectAndCompare(p.Metrics, strings.NewReader(want), "verticalscaler_changes_total", "verticalscaler_pods", "verticalscaler_status"))
	must.Succeed(t, p.server.Delete(t.Context(), vs))
	if _, err := p.Reconcile(t.Context(), reconcile.Request{NamespacedName: p.key}); err != nil {
		t.Fatal(err)
	}
	if got := testutil.CollectAndCount(p.Metrics); got != 0 {
		t.Errorf("%d series of a deleted scaler", got)
	}
}
