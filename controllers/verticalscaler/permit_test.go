// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

var permitTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestAChangeNeedsASlot(t *testing.T) {
	vs := func(name string) *v1beta1.VerticalScaler {
		return &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name}}
	}
	clock := clocktesting.NewFakeClock(permitTime)
	r := &Reconciler{
		Clock:  clock,
		Budget: budget.New(budget.Limits{Changes: 1, PerNamespace: 1, Window: time.Minute}),
	}
	step := func() *scope { return &scope{plan: plan.Plan{Step: plan.Resize{}}} }
	refused := func(name string, p *scope, reason string, waiting int) {
		t.Helper()
		p.scaler = vs(name)
		_, err := r.permit(p)
		if why := obstacleTo(fmt.Errorf("wrapped: %w", err)); why.Reason != reason || why.Stalled {
			t.Errorf("%s: %v, not %s", name, err, reason)
		}
		if got := r.Budget.Waiting(); got != waiting {
			t.Errorf("%d wait, not %d", got, waiting)
		}
	}
	granted := func(name string, p *scope, waiting int) {
		t.Helper()
		p.scaler = vs(name)
		done, err := r.permit(p)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		done(nil)
		if got := r.Budget.Waiting(); got != waiting {
			t.Errorf("%d wait, not %d", got, waiting)
		}
	}

	granted("a", step(), 0)
	refused("a", step(), v1beta1.ReasonWaitingForBudget, 1)
	refused("a", &scope{plan: plan.Plan{Step: plan.Evict{Pods: []plan.EvictedPod{{}}}}}, v1beta1.ReasonWaitingForBudget, 1)
	refused("b", step(), v1beta1.ReasonWaitingForBudget, 2)
	granted("a", &scope{}, 1) // without a step
	granted("c", &scope{plan: plan.Plan{Step: plan.TakeOver{Originals: []plan.Original{{}}}}}, 1)
	granted("c", &scope{plan: plan.Plan{Step: plan.Restore{}}}, 1) // asks by itself
	clock.Step(time.Minute)
	granted("b", step(), 0)
	if obstacleTo(errStaleCache).Exists() || obstacleTo(nil).Exists() {
		t.Error("another error puts changes off")
	}
}

// The budget grows with the pods that scalers may change.
func TestTheBudgetCountsPods(t *testing.T) {
	in := func(mode v1beta1.UpdateMode, fallback v1beta1.Fallback) *scope {
		s := &scope{scaler: &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "web"}}, outcome: settled}
		s.scaler.Spec.UpdatePolicy.UpdateMode, s.scaler.Spec.UpdatePolicy.Fallback = mode, fallback
		s.plan = plan.Plan{Progress: plan.Progress{Pods: 40}, Verdict: plan.Applied.Because(v1beta1.ReasonApplied, "")}
		return s
	}
	behind := in(v1beta1.UpdateModeInPlace, "")
	behind.standing.Winner = "a"
	missing := in(v1beta1.UpdateModeInPlace, "")
	missing.plan = plan.Plan{}
	unknown := in(v1beta1.UpdateModeInPlace, "")
	unknown.plan, unknown.outcome = plan.Plan{}, failed
	r := &Reconciler{Budget: budget.New(budget.Limits{Changes: 1, PerNamespace: 1, PodPercent: 100, Window: time.Minute})}
	for _, c := range []struct {
		what string
		s    *scope
		want int
	}{
		{"in place", in(v1beta1.UpdateModeInPlace, v1beta1.FallbackRollout), 40},
		{"an error", unknown, 40},
		{"a scaler behind another one", behind, 1},
		{"in place", in(v1beta1.UpdateModeInPlace, v1beta1.FallbackWait), 40},
		{"a rollout", in(v1beta1.UpdateModeRollout, ""), 1},
		{"in place", in(v1beta1.UpdateModeInPlace, ""), 40},
		{"no Deployment", missing, 1},
		{"in place", in(v1beta1.UpdateModeInPlace, ""), 40},
		{"recommendations only", in(v1beta1.UpdateModeRecommend, ""), 1},
	} {
		if r.countPods(c.s); r.Budget.Limit() != c.want {
			t.Errorf("%s: the budget allows %d changes, want %d", c.what, r.Budget.Limit(), c.want)
		}
	}
	r.countPods(in(v1beta1.UpdateModeInPlace, ""))
	r.forgetBudget(types.NamespacedName{Namespace: "n", Name: "web"})
	if got := r.Budget.Limit(); got != 1 {
		t.Errorf("deleted: the budget allows %d changes, want 1", got)
	}
}

// A change that failed may have been made, so it takes its slot. Only a conflict shows that nothing has changed.
func TestAFailedChangeTakesItsSlot(t *testing.T) {
	for name, tc := range map[string]struct {
		err       error
		isGranted bool // the next change
	}{
		"a timeout":  {context.DeadlineExceeded, false},
		"a conflict": {apierrors.NewConflict(corev1.Resource("pods"), "web-1", errors.New("the object has been modified")), true},
	} {
		r := &Reconciler{
			Clock:  clocktesting.NewFakeClock(permitTime),
			Budget: budget.New(budget.Limits{Changes: 1, PerNamespace: 1, Window: time.Minute}),
		}
		done, err := r.slot(checkout(), budget.Want{})
		must.Succeed(t, err)
		done(tc.err)
		if _, err := r.slot(checkout(), budget.Want{}); (err == nil) != tc.isGranted {
			t.Errorf("after %s, the answer to the next change is %v, want it granted: %t", name, err, tc.isGranted)
		}
	}
}
