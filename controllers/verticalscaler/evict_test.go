// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func recreates(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = "Recreate" }

// evictingScaler is the scaler of toEvict.
func evictingScaler() *v1beta1.VerticalScaler {
	return checkout(recreates, func(s *v1beta1.VerticalScaler) {
		s.Status.ObservedGeneration, s.Status.NewPods = s.Generation, scaler.APINewPods(toEvict().NewPods)
	})
}

// evictingServer is a reconciler whose API server sizes new pods, and answers evictions.
func evictingServer(t *testing.T, answer func(subresource string, body client.Object) error) *Reconciler {
	t.Helper()
	line := admission.LineOf(evictingScaler(), *scaler.APINewPods(toEvict().NewPods))
	r := apiServer(t, interceptor.Funcs{
		SubResourceCreate: func(_ context.Context, _ client.Client, subresource string, _ client.Object, body client.Object, _ ...client.SubResourceCreateOption) error {
			return answer(subresource, body)
		},
	}, admission.Policy(), admission.Binding(), sizes("\n"+line+"\n"))
	r.Clock = clocktesting.NewFakePassiveClock(noon)
	return r
}

// toEvict is a situation in which a pod is to be evicted: its node can never hold what was
// decided.
func toEvict() plan.Situation {
	app := workload.Container{Name: "app", Resources: workload.Resources{Requests: amounts(100, 128)}}
	large := workload.Container{Name: "app", Resources: workload.Resources{Requests: amounts(200, 256)}}
	s := plan.Situation{
		Deployment: workload.Deployment{UID: "web", Replicas: 2, Containers: []workload.Container{app}},
		Decision:   &plan.Decision{Time: noon.Add(-time.Hour), Reason: "ScaleUp", Requests: map[string]quantity.Amounts{"app": amounts(200, 256)}},
		NewPods: plan.NewPods{
			Sizes: []plan.Size{{Container: "app", Resources: large.Resources}}, AskedSince: noon.Add(-time.Hour), EffectiveSince: noon.Add(-time.Hour),
		},
	}
	for _, name := range []string{"web-1", "web-2"} {
		s.Pods = append(s.Pods, workload.Pod{
			Name: name, UID: types.UID(name), ResourceVersion: "7", Current: true, Running: true, Ready: true, QoS: "Burstable",
			Created: noon.Add(-2 * time.Hour), Started: noon.Add(-2 * time.Hour), Resized: noon.Add(-time.Hour),
			Containers: []workload.Container{large}, Actual: map[string]workload.Resources{"app": app.Resources},
			Resize: workload.Resize{Infeasible: true, Message: "no room", Since: noon.Add(-time.Minute)},
		})
	}
	return s
}

func TestAnEvictionIsAskedForOnceAndOfThatVeryPod(t *testing.T) {
	vs := evictingScaler()
	budget := apierrors.NewTooManyRequests("Cannot evict pod", 0)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}
	slow := &apierrors.StatusError{ErrStatus: *budget.ErrStatus.DeepCopy()}
	slow.ErrStatus.Details.RetryAfterSeconds = 3600
	pods := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		answer  error
		reason  string
		stalled bool
		again   time.Duration
		fails   bool
	}{
		"it is granted":                      {nil, "Recreating", false, 0, false},
		"a budget is asked later":            {budget, "DisruptionBudget", false, 30 * time.Second, false},
		"but not as late as it may say":      {slow, "DisruptionBudget", false, 5 * time.Minute, false},
		"several budgets need a user":        {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "This pod has more than one PodDisruptionBudget, which"}}, "ManyDisruptionBudgets", true, 10 * time.Minute, false},
		"so does a right that is missing":    {apierrors.NewForbidden(pods, "web-1", errors.New(`User "x" cannot create resource "pods/eviction"`)), "Forbidden", true, 10 * time.Minute, false},
		"another pod by that name is spared": {apierrors.NewConflict(pods, "web-1", errors.New("the UID in the precondition")), "Recreating", false, 0, true},
		"a pod that has gone is no matter":   {apierrors.NewNotFound(pods, "web-1"), "Recreating", false, 0, true},
		"an outage is tried again":           {errors.New("connection refused"), "Recreating", false, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []*policyv1.Eviction
			r := evictingServer(t, func(subresource string, body client.Object) error {
				if eviction, ok := body.(*policyv1.Eviction); ok && subresource == "eviction" {
					asked = append(asked, eviction)
				}
				return tc.answer
			})
			plans := func() *scope {
				p := &scope{scaler: vs, now: noon}
				p.observation.situation = toEvict()
				if _, _, err := r.recallPods(vs, &p.observation.situation); err != nil {
					p.err = err
					return p
				}
				p.policy = scaler.PlanPolicy(vs, p.observation.situation.Deployment)
				p.plan = plan.Next(p.observation.situation, p.policy, p.now)
				return p
			}
			p := plans()
			step, evicts := p.plan.Step.(plan.Evict)
			if !evicts {
				t.Fatalf("%s: %s", p.plan.Verdict.Reason, p.plan.Verdict.Message)
			}
			err := r.evict(t.Context(), p, step)
			isRefused := tc.answer != nil && !tc.fails
			if (err != nil) != (tc.answer != nil) || errors.Is(err, errRefused) != isRefused {
				t.Errorf("failed: %v", err)
			}
			if len(asked) != 1 || asked[0].Name != "web-1" || *asked[0].DeleteOptions.Preconditions.UID != "web-1" || *asked[0].DeleteOptions.Preconditions.ResourceVersion != "7" {
				t.Fatalf("asked for %+v", asked)
			}
			if (p.evicted != "") != (tc.answer == nil) {
				t.Errorf("evicted %q", p.evicted)
			}
			next := plans() // Another reconcile follows at once on the same cache.
			if tc.answer == nil {
				if !errors.Is(next.err, errStaleCache) {
					t.Errorf("the pod is still in the cache, and the reconcile goes on: %v, %+v", next.err, next.plan.Step)
				}
				return
			}
			if tc.fails {
				// The reply may be lost: the same pod is asked for, which the API server refuses.
				if again, ok := next.plan.Step.(plan.Evict); ok && again.UID != step.UID {
					t.Errorf("pod %s is evicted, too", again.Pod)
				}
				return
			}
			v := next.plan.Verdict
			if next.plan.Step != nil || v.Reason != tc.reason || v.State.IsStalled() != tc.stalled {
				t.Errorf("%s: %s, stalled %t, %+v", v.Reason, v.Message, v.State.IsStalled(), next.plan.Step)
			}
			if a, b := v.RequeueAfter, tc.again; a < b*8/10 || a > b {
				t.Errorf("again in %s, want %s", a, b)
			}
		})
	}
}
