// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// Events of pods are delayed: each resize meets a conflict until they arrive. The reconciles
// become rarer, and the budget of the namespace stays for others.
func TestConflictsBackOffAndUseNoBudget(t *testing.T) {
	p := newPlant(t, 400) // of 100m
	p.Budget = budget.New(budget.Limits{Changes: 3, PerNamespace: 2, Window: time.Minute})
	p.conflict = apierrors.NewConflict(corev1.Resource("pods"), "checkout-1-a", errors.New("the object has been modified"))
	var delays []time.Duration
	for range 12 {
		_, result, err := p.reconcile()
		must.Succeed(t, err)
		delays = append(delays, result.RequeueAfter)
		p.clock.SetTime(p.clock.Now().Add(result.RequeueAfter))
	}
	ms := time.Millisecond
	want := []time.Duration{50 * ms, 100 * ms, 200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms, 25600 * ms, 51200 * ms, 102400 * ms}
	assert.Equal(t, "delays", want, delays)
	neighbour := types.NamespacedName{Namespace: "shop", Name: "neighbour"}
	for range 2 {
		if granted, _ := p.Budget.Ask(p.clock.Now(), neighbour, budget.Want{Class: budget.ScaleUp}); !granted {
			t.Error("a neighbour waits for the budget, although nothing has changed")
		}
		p.Budget.Done(p.clock.Now(), neighbour)
	}
	p.conflict = nil
	p.clock.SetTime(p.clock.Now().Add(2 * time.Minute))
	if _, result, err := p.reconcile(); err != nil || len(p.resized) != 13 || result.RequeueAfter < time.Second {
		t.Errorf("once the events have arrived: %+v, %v, %d resizes", result, err, len(p.resized))
	}
	p.conflict = apierrors.NewConflict(corev1.Resource("pods"), "checkout-1-b", errors.New("the object has been modified"))
	if _, result, err := p.reconcile(); err != nil || result.RequeueAfter != 50*ms {
		t.Errorf("the first conflict after a success: %+v, %v, want 50ms", result, err)
	}
}
