// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
)

// A freeze that comes after a step was planned stops the write.
func TestAFreezeIsSeenRightBeforeEachWrite(t *testing.T) {
	write := errors.New("written")
	owned := templateOf("500m", "1")
	owned.ManagedFields = []metav1.ManagedFieldsEntry{managed(Name, "", allOfApp)}
	r := apiServer(t, interceptor.Funcs{
		SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
			return write
		},
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return write
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return write
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if d, ok := o.(*appsv1.Deployment); ok && key.Name == "owned" {
				owned.DeepCopyInto(d)
				return nil
			}
			return c.Get(ctx, key, o, options...)
		},
	}, admission.Policy(), admission.Binding(), sizes("\ncheckout @;app,100m,,,\n"), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", UID: "web", ResourceVersion: "7"}})
	r.Clock = clocktesting.NewFakePassiveClock(noon)
	restore := func(s *scope, uid types.UID, containers ...v1beta1.OriginalContainerResources) error {
		return r.restore(t.Context(), s.scaler, &v1beta1.OriginalResources{DeploymentName: "owned", UID: uid, Containers: containers})
	}
	hundred := v1beta1.OriginalContainerResources{ContainerName: "app", Requests: v1beta1.Amounts{CPU: ptr.To(resource.MustParse("100m"))}}
	for name, do := range map[string]func(s *scope) error{
		"an eviction": func(s *scope) error {
			return r.evict(t.Context(), s, plan.Evict{Pod: "web-1", UID: "web-1", ResourceVersion: "7"})
		},
		"a resize": func(s *scope) error {
			return r.resize(t.Context(), s, plan.Resize{Pod: "web-1", UID: "web-1", ResourceVersion: "7"})
		},
		"a restore":            func(s *scope) error { return restore(s, "uid", hundred) },
		"the end of a restore": func(s *scope) error { return restore(s, "uid") },
		"a rewrite":            func(s *scope) error { return r.rewrite(t.Context(), s, plan.Rewrite{UID: "web", ResourceVersion: "7"}) },
	} {
		var frozen *freeze.Error
		r.Freeze = freeze.New(client.ObjectKey{}) // frozen until it is read
		if err := do(sizing(withUpdate(evicting))); !errors.As(err, &frozen) {
			t.Errorf("%s is not stopped: %v", name, err)
		}
		r.Freeze = nil
		if err := do(sizing(withUpdate(evicting))); !errors.Is(err, write) {
			t.Errorf("%s is not made without a freeze: %v", name, err)
		}
	}
	if err := r.rewrite(t.Context(), sizing(withUpdate(evicting)), plan.Rewrite{UID: "web", ResourceVersion: "6"}); !errors.Is(err, errStaleCache) {
		t.Errorf("a template that was changed since it was planned: %v", err)
	}
	if err := restore(sizing(withUpdate(evicting)), "another", hundred); err != nil {
		t.Errorf("the original values of another Deployment with that name: %v", err)
	}
}

func TestAnEvictionIsAskedForOnceAndOfThatVeryPod(t *testing.T) {
	budget := apierrors.NewTooManyRequests("Cannot evict pod", 0)
	budget.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget web needs 2 healthy pods and has 2 currently"}}
	slow := &apierrors.StatusError{ErrStatus: *budget.ErrStatus.DeepCopy()}
	slow.ErrStatus.Details.RetryAfterSeconds = 3600
	pods := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		answer  error
		reason  string // why the next one is refused; empty if it is not
		stalled bool
		again   time.Duration
	}{
		"it is granted":                      {},
		"a budget is asked later":            {budget, "DisruptionBudget", false, 30 * time.Second},
		"but not as late as it may say":      {slow, "DisruptionBudget", false, 5 * time.Minute},
		"several budgets need a user":        {&apierrors.StatusError{ErrStatus: metav1.Status{Code: 500, Message: "This pod has more than one PodDisruptionBudget, which"}}, "ManyDisruptionBudgets", true, 10 * time.Minute},
		"so does a right that is missing":    {apierrors.NewForbidden(pods, "web-1", errors.New(`User "x" cannot create resource "pods/eviction"`)), "Forbidden", true, 10 * time.Minute},
		"another pod by that name is spared": {answer: apierrors.NewConflict(pods, "web-1", errors.New("the UID in the precondition"))},
		"a pod that has gone is no matter":   {answer: apierrors.NewNotFound(pods, "web-1")},
		"an outage is tried again":           {answer: errors.New("connection refused")},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []*policyv1.Eviction
			r := apiServer(t, interceptor.Funcs{
				SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _ client.Object, body client.Object, _ ...client.SubResourceCreateOption) error {
					asked = append(asked, body.(*policyv1.Eviction))
					return tc.answer
				},
			}, admission.Policy(), admission.Binding(), sizes("\ncheckout @;app,100m,,,\n"))
			r.Clock = clocktesting.NewFakePassiveClock(noon)
			s := sizing(withUpdate(evicting))
			s.observation.situation.Deployment.UID = "web"
			err := r.evict(t.Context(), s, plan.Evict{Pod: "web-1", UID: "web-1", ResourceVersion: "7"})
			if (err != nil) != (tc.answer != nil) || errors.Is(err, errRefused) != (tc.reason != "") || (s.taken != "") != (err == nil) {
				t.Errorf("evicted %q: %v", s.taken, err)
			}
			if len(asked) != 1 || asked[0].Name != "web-1" || *asked[0].DeleteOptions.Preconditions.UID != "web-1" || *asked[0].DeleteOptions.Preconditions.ResourceVersion != "7" {
				t.Fatalf("asked for %+v", asked)
			}
			// Another reconcile follows at once on the same cache.
			next := plan.Situation{Deployment: s.observation.situation.Deployment}
			next.Pods = append(next.Pods, runningPod("web-1"))
			next.Pods[0].UID = types.UID("web-1")
			if _, _, err := r.recallPods(s.scaler, &next); errors.Is(err, errStaleCache) != (tc.answer == nil) {
				t.Errorf("the pod is in the cache, and the next reconcile: %v", err)
			}
			rejected := next.RejectedEviction
			if tc.reason == "" {
				if rejected != nil {
					t.Errorf("rejected: %+v", rejected)
				}
				return
			}
			if rejected == nil || rejected.Reason != tc.reason || rejected.Stalled != tc.stalled {
				t.Fatalf("rejected: %+v", rejected)
			}
			if again := rejected.Until.Sub(noon); again < tc.again*8/10 || again > tc.again {
				t.Errorf("again in %s, want %s", again, tc.again)
			}
		})
	}
}
