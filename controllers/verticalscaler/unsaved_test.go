// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

var checkpoints = schema.GroupResource{Group: "autoscaling.verticalscaler.io", Resource: "verticalscalercheckpoints"}

// refusals are the ways to refuse a checkpoint.
var refusals = map[string]struct {
	err     error
	reason  string
	message string
}{
	"a missing role": {
		apierrors.NewForbidden(checkpoints, "checkout", errors.New(`user "operator" cannot create resource "verticalscalercheckpoints" in API group`)),
		"Forbidden", "Give the operator the role",
	},
	"a quota": {apierrors.NewForbidden(checkpoints, "checkout", errors.New("exceeded quota: few, requested: count/verticalscalercheckpoints=1")), "QuotaExceeded", "Raise the ResourceQuota"},
	"a webhook that is down": {
		apierrors.NewInternalError(errors.New(`failed calling webhook "w.example.com": connection refused`)), "Rejected", `webhook "w.example.com"`,
	},
	"a policy": {apierrors.NewInvalid(schema.GroupKind{Group: checkpoints.Group, Kind: "VerticalScalerCheckpoint"}, "checkout", nil), "Rejected", "Make the policy"},
}

// While a checkpoint is rejected, changes that are not urgent wait, and the status reports what to
// do. Once it is accepted, the change follows soon.
func TestARefusedCheckpointIsReportedAndDefersWhatIsNotUrgent(t *testing.T) {
	for name, tc := range refusals {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, 5) // of 100m
			p.refused = tc.err
			vs, result, err := p.reconcile()
			if err != nil || len(p.resized) > 0 {
				t.Errorf("Reconcile() = %v, resized %v, want no error and no resize", err, p.resized)
			}
			for _, kind := range []string{v1beta1.ConditionApplied, v1beta1.ConditionStalled, v1beta1.ConditionReady} {
				if c := condition(vs, kind); c.Reason != tc.reason || !strings.Contains(c.Message, tc.message) || !strings.Contains(c.Message, "only urgent changes") {
					t.Errorf("condition %s: %s: %s, want %s with %q", kind, c.Reason, c.Message, tc.reason, tc.message)
				}
			}
			if vs.Status.Decision != nil {
				t.Errorf("decided %v, want nothing", vs.Status.Decision)
			}
			if result.RequeueAfter > 30*time.Second {
				t.Errorf("tried again after %s, want within 30s", result.RequeueAfter)
			}
			p.refused = nil
			for range 2 { // a decision to verify is recorded first
				vs, _, err = p.reconcile()
			}
			if err != nil || len(p.resized) == 0 || condition(vs, v1beta1.ConditionStalled).Status != metav1.ConditionFalse {
				t.Errorf("accepted again: %v, resized %v, %v", err, p.resized, condition(vs, v1beta1.ConditionStalled))
			}
		})
	}
}

// A container that needs more than it requests does not wait for a record. The status still reports
// the missing record.
func TestUrgentRaisesDoNotWaitForACheckpoint(t *testing.T) {
	p := newPlant(t, 400) // of 100m
	p.refused = refusals["a missing role"].err
	vs := p.mustReconcile()
	if got := condition(vs, v1beta1.ConditionStalled); len(p.resized) != 1 || got.Reason != "Forbidden" || meta.IsStatusConditionTrue(vs.Status.Conditions, v1beta1.ConditionReady) {
		t.Errorf("resized %v, want one resize; Stalled is %s: %s, want True: Forbidden", p.resized, got.Status, got.Reason)
	}
}

// A process that may not read the checkpoint does not start from nothing.
func TestACheckpointThatMayNotBeReadIsReported(t *testing.T) {
	p := newPlant(t, 400)
	p.Histories = &checkpoint.Store{Client: p.server, Params: p.Params.History}
	p.unreadable = refusals["a missing role"].err
	vs, result, err := p.reconcile()
	if err != nil || len(p.resized) > 0 || result.RequeueAfter > 30*time.Second {
		t.Errorf("Reconcile() = %+v, %v, resized %v", result, err, p.resized)
	}
	if got := condition(vs, v1beta1.ConditionStalled); got.Status != metav1.ConditionTrue || got.Reason != "Forbidden" || !strings.Contains(got.Message, "cannot be read") {
		t.Errorf("Stalled is %s: %s: %s", got.Status, got.Reason, got.Message)
	}
}

// An outage rejects nothing: the request is retried, and no action is required.
func TestAFailedCheckpointIsRetried(t *testing.T) {
	p := newPlant(t, 400)
	p.refused = apierrors.NewInternalError(errors.New("etcd"))
	vs, _, err := p.reconcile()
	if err == nil || len(p.resized) > 0 || condition(vs, v1beta1.ConditionStalled).Status != metav1.ConditionFalse {
		t.Errorf("Reconcile() = %v, resized %v, %v", err, p.resized, condition(vs, v1beta1.ConditionStalled))
	}
}

// While a change waits for the budget, the history is not saved. It is before the change is made.
func TestWhatWaitsForTheBudgetIsSavedBeforeItIsChanged(t *testing.T) {
	p := newPlant(t, 400) // of 100m
	p.Budget = budget.New(budget.Limits{Changes: 1, PerNamespace: 1, Window: time.Minute})
	other := types.NamespacedName{Namespace: p.key.Namespace, Name: "other"}
	p.Budget.Ask(noon, other, budget.Want{})
	p.Budget.Done(noon, other)
	if vs := p.mustReconcile(); condition(vs, v1beta1.ConditionApplied).Reason != "WaitingForBudget" {
		t.Fatalf("Applied is %v", condition(vs, v1beta1.ConditionApplied))
	}
	p.refused = apierrors.NewInternalError(errors.New("etcd"))
	vs := p.mustReconcile()
	p.learn(vs, 800)
	p.mustReconcile()

	p.clock.SetTime(noon.Add(time.Minute))
	if _, result, err := p.reconcile(); err != nil || len(p.resized) > 0 || result.RequeueAfter > time.Second {
		t.Errorf("it is its turn: %v, resized %v, again in %s", err, p.resized, result.RequeueAfter)
	}
	if _, _, err := p.reconcile(); err == nil {
		t.Error("no error reports that the history cannot be saved")
	}
	p.refused = nil
	if p.mustReconcile(); len(p.resized) != 1 {
		t.Errorf("resized %v once the history can be saved", p.resized)
	}
}

// Evidence since a decision is saved within minutes, and before the next resize only if that is based on it.
func TestOneMoreResizeForADecisionIsNotSavedFirst(t *testing.T) {
	for _, isKilled := range []bool{false, true} {
		p := newPlant(t, 400) // of 100m
		p.actuates = true
		p.Budget = budget.New(budget.Limits{Changes: 2, PerNamespace: 2, Window: time.Minute})
		p.mustReconcile()
		for _, name := range []string{"other", "waits"} {
			p.Budget.Ask(noon, types.NamespacedName{Namespace: p.key.Namespace, Name: name}, budget.Want{})
		}
		p.Histories.With(p.key, func(histories history.Histories) { // another target, but the same decision
			histories.Add(usage.Sample{Container: "app", Pod: "checkout-1-a", Time: noon.Add(time.Minute), CPUMillis: 400, MemoryBytes: 107 * mebi}, p.Params.History)
		})
		p.refused = apierrors.NewInternalError(errors.New("etcd"))
		if isKilled {
			var pod corev1.Pod
			must.Succeed(t, p.server.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "checkout-1-b"}, &pod))
			pod.Status.ContainerStatuses[0].RestartCount = 1
			pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.NewTime(noon)}
			must.Succeed(t, p.server.Status().Update(t.Context(), &pod))
		}
		p.clock.SetTime(noon.Add(time.Minute))
		if _, _, err := p.reconcile(); err != nil || (len(p.resized) == 2) == isKilled {
			t.Errorf("a pod is killed: %t; resized %v, %v", isKilled, p.resized, err)
		}
	}
}

// A restart loses a history that is not saved. The save waits for ten minutes at most, even if scalers wait longer for
// the budget.
func TestAHistoryWaitsTenMinutesToBeSaved(t *testing.T) {
	r := &Reconciler{Budget: budget.New(budget.Limits{Changes: 1, PerNamespace: 1, Window: time.Hour})}
	for _, name := range []string{"changes", "waits"} {
		r.Budget.Ask(noon, types.NamespacedName{Namespace: "shop", Name: name}, budget.Want{})
	}
	for _, step := range []struct {
		minute time.Duration
		want   bool
	}{{0, true}, {9, true}, {10, false}, {11, true}, {20, true}, {21, false}} {
		s := &scope{scaler: checkout(), now: noon.Add(step.minute * time.Minute)}
		if got := r.mayWaitToSave(s); got != step.want {
			t.Errorf("after %d minutes: may wait is %t, want %t", step.minute, got, step.want)
		}
	}
}
