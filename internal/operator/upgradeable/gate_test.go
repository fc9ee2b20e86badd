// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package upgradeable

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-logr/logr"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func TestStepsBlockUpgradesForALimitedTime(t *testing.T) {
	type look struct {
		after time.Duration // since noon
		step  bool
		want  string
	}
	for name, looks := range map[string][]look{
		"nothing is written before the first step": {{0, false, ""}, {time.Hour, false, ""}},
		"a step blocks upgrades until it ends": {
			{0, true, ReasonStepInProgress},
			{time.Minute, false, ReasonNoStepInProgress},
			{time.Hour, true, ReasonStepInProgress},
		},
		"steps block upgrades for 30 minutes, and then not for 10 minutes": {
			{0, true, ReasonStepInProgress},
			{29 * time.Minute, true, ReasonStepInProgress},
			{30 * time.Minute, true, ReasonTimeLimitReached},
			{39 * time.Minute, true, ReasonTimeLimitReached},
			{40 * time.Minute, true, ReasonStepInProgress},
		},
		"a short opening does not restart the 30 minutes": {
			{0, true, ReasonStepInProgress},
			{20 * time.Minute, false, ReasonNoStepInProgress},
			{20*time.Minute + 5*time.Second, true, ReasonStepInProgress},
			{30 * time.Minute, true, ReasonTimeLimitReached},
		},
		"an opening of a minute does": {
			{0, true, ReasonStepInProgress},
			{20 * time.Minute, false, ReasonNoStepInProgress},
			{21 * time.Minute, true, ReasonStepInProgress},
			{30 * time.Minute, true, ReasonStepInProgress},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var s state
			for _, l := range looks {
				if s = s.next(l.step, noon.Add(l.after)); s.reason != l.want {
					t.Errorf("after %s the reason is %q, want %q", l.after, s.reason, l.want)
				}
			}
		})
	}
}

// With any steps and any restarts of the operator, no block is longer than 30 minutes and a look,
// and a step blocks upgrades unless the limit was reached.
func TestNoBlockIsLong(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var s state
	var blockedSince, limit time.Time
	for now := noon; now.Before(noon.Add(100 * time.Hour)); now = now.Add(interval) {
		step := random.IntN(1000) > 2
		s = s.next(step, now)
		if s.reason == ReasonTimeLimitReached && limit.IsZero() {
			limit = now
		}
		if s.reason != ReasonTimeLimitReached {
			limit = time.Time{}
		}
		switch {
		case !s.blocked():
			blockedSince = time.Time{}
		case blockedSince.IsZero():
			blockedSince = now
		}
		if !blockedSince.IsZero() && now.Sub(blockedSince) > blockLimit {
			t.Fatalf("%s: upgrades have been blocked since %s", now, blockedSince)
		}
		if step && !s.blocked() && (limit.IsZero() || now.Sub(limit) >= openTime) {
			t.Fatalf("%s: a step does not block upgrades", now)
		}
		if random.IntN(100) == 0 && s.blocked() { // a restart
			s = restore(&metav1.Condition{Status: metav1.ConditionFalse, Reason: s.reason, LastTransitionTime: metav1.NewTime(blockedSince)}, now)
		}
	}
}

func TestALongStepStopsBlocking(t *testing.T) {
	for name, tc := range map[string]struct {
		status metav1.ConditionStatus
		age    time.Duration
		want   bool
	}{
		"a new step":                          {metav1.ConditionTrue, 0, true},
		"a step from a clock that runs ahead": {metav1.ConditionTrue, -time.Minute, true},
		"a step of almost 10 minutes":         {metav1.ConditionTrue, 10*time.Minute - time.Second, true},
		"a step of 10 minutes":                {metav1.ConditionTrue, 10 * time.Minute, false},
		"no step":                             {metav1.ConditionFalse, 0, false},
	} {
		if got := blocks(*changing(tc.status, noon.Add(-tc.age)), noon); got != tc.want {
			t.Errorf("%s blocks upgrades: %t, want %t", name, got, tc.want)
		}
	}
	if blocks(v1beta1.VerticalScaler{}, noon) {
		t.Error("a scaler without a status blocks upgrades")
	}
}

func TestTheGateWritesChangesOnly(t *testing.T) {
	scheme := runtime.NewScheme()
	must.Succeed(t, errors.Join(operatorsv2.AddToScheme(scheme), v1beta1.AddToScheme(scheme)))
	scaler := changing(metav1.ConditionTrue, noon)
	condition := &operatorsv2.OperatorCondition{ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "operator.v1"}}
	var writes int
	var fails error
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(scaler, condition).WithInterceptorFuncs(interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if _, ok := obj.(*operatorsv2.OperatorCondition); ok {
				writes++
				return errors.Join(c.Update(ctx, obj, opts...), fails) // the write still arrives
			}
			return c.Update(ctx, obj, opts...)
		},
	}).Build()
	clock := testclock.NewFakeClock(noon)
	g := &Gate{Scalers: c, Condition: &OperatorCondition{c, client.ObjectKeyFromObject(condition)}, Clock: clock}
	update := func(wantReason string, wantWrites int) {
		t.Helper()
		clock.Step(interval)
		if err := g.update(t.Context(), logr.Discard()); !errors.Is(err, fails) {
			t.Fatal(err)
		}
		must.Succeed(t, c.Get(t.Context(), g.Condition.Key, condition))
		got := meta.FindStatusCondition(condition.Spec.Conditions, operatorsv2.Upgradeable)
		if got == nil || got.Reason != wantReason || (got.Status == metav1.ConditionFalse) != (wantReason == ReasonStepInProgress) || got.Message == "" {
			t.Errorf("the condition is %v, want the reason %s", got, wantReason)
		}
		if writes != wantWrites {
			t.Errorf("%d writes, want %d", writes, wantWrites)
		}
	}
	end := func(status metav1.ConditionStatus) {
		t.Helper()
		scaler.Status.Conditions[0].Status = status
		must.Succeed(t, c.Update(t.Context(), scaler))
	}
	update(ReasonStepInProgress, 1)
	update(ReasonStepInProgress, 1)
	end(metav1.ConditionFalse)
	update(ReasonNoStepInProgress, 2)
	g.release(t.Context(), logr.Discard())
	update(ReasonNoStepInProgress, 2)

	// A failed write may have arrived, so the condition is read again.
	end(metav1.ConditionTrue)
	fails = errors.New("timed out")
	update(ReasonStepInProgress, 3)
	fails = nil
	update(ReasonStepInProgress, 3)

	// An operator that stops allows upgrades, and the next one continues.
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	g.release(stopped, logr.Discard())
	g.known = false
	update(ReasonStepInProgress, 5)
	end(metav1.ConditionFalse)
	g.release(t.Context(), logr.Discard())
	g.known = false
	update(ReasonNoStepInProgress, 7)
}

func changing(status metav1.ConditionStatus, since time.Time) *v1beta1.VerticalScaler {
	return &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Status: v1beta1.VerticalScalerStatus{Conditions: []metav1.Condition{
			{Type: v1beta1.ConditionChanging, Status: status, LastTransitionTime: metav1.NewTime(since)},
		}},
	}
}
