// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func team(hard, used string) *corev1.ResourceQuota {
	list := func(v string) corev1.ResourceList { return corev1.ResourceList{"requests.cpu": resource.MustParse(v)} }
	return &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "team"},
		Spec:       corev1.ResourceQuotaSpec{Hard: list(hard)},
		Status:     corev1.ResourceQuotaStatus{Hard: list(hard), Used: list(used)},
	}
}

// Every created or deleted pod changes the status of a quota, so most changes must not trigger a reconcile.
func TestWhichQuotaChangesTriggerAReconcile(t *testing.T) {
	p := quotaPredicate()
	for name, tc := range map[string]struct {
		before, after *corev1.ResourceQuota
		want          bool
	}{
		"a pod comes":     {team("2", "1"), team("2", "1.1"), false},
		"a pod goes":      {team("2", "1"), team("2", "0.9"), true},
		"it is raised":    {team("2", "1"), team("3", "1"), true},
		"nothing changes": {team("2", "1"), team("2", "1"), false},
	} {
		if got := p.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s: triggers a reconcile: %t", name, got)
		}
	}
	if p.Create(event.CreateEvent{Object: team("2", "1")}) {
		t.Error("a new quota lets no scaler continue")
	}
	if !p.Delete(event.DeleteEvent{Object: team("2", "1")}) {
		t.Error("a deleted quota lets scalers continue")
	}
}

// A scaler waits for a quota if its running pods or its new ones do, and maybe while that is unknown.
func TestWhichScalersMayWaitForAQuota(t *testing.T) {
	p := newPlant(t, 400) // of 100m
	check := func(when string, want bool) {
		t.Helper()
		if got := p.memory.mayWaitForQuota(p.key); got != want {
			t.Errorf("%s: %t", when, got)
		}
	}
	check("before the first reconcile", true)
	p.create(team("0.3", "0.3"))
	p.mustReconcile()
	check("while the quota is used up", true)
	must.Succeed(t, p.server.Delete(t.Context(), team("0.3", "0.3")))
	p.mustReconcile()
	check("without a quota", false)
	p.conflict = errors.New("no connection")
	if _, _, err := p.reconcile(); err == nil {
		t.Fatal("the reconcile has not failed")
	}
	check("after a failure", true)
}
