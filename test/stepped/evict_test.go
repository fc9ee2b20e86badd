// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// An eviction that fails its preconditions has spent the disruption budget for two minutes, and a drain waits as long. So none
// fails, although the status of each pod changes before each request.
func TestADrainIsNotHeldUpByFailedEvictions(t *testing.T) {
	t.Parallel()
	w := newFixtureOn(t, world.NewAPI(admission.Policy(), admission.Binding()), "shop", nil)
	const replicas = 4
	w.deploy("web", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](replicas) })
	for i := range 2 * replicas {
		w.Kubelet.Script("web", i, world.Infeasible)
	}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{world.AppLabel: "web"}},
	}}
	w.Add(budget)
	changes := 0
	w.Fault = func(write world.Write, _ int, send func() error) error {
		if write.Kind() != "create pods/eviction" {
			return send()
		}
		for _, pod := range w.Pods("web") {
			changes++
			pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "example.com/Noise", Status: "True", Message: fmt.Sprint(changes)})
			must.Succeed(t, w.Client.Status().Update(t.Context(), &pod))
		}
		return send()
	}
	w.Uses("web", "app", 300, 240)
	w.Scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = v1beta1.FallbackRecreate })

	held := 0 // minutes in which a drain would wait, though all pods are available
	for range 40 {
		w.Minutes(1)
		must.Succeed(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(budget), budget))
		if w.Deployment("web").Status.AvailableReplicas == replicas && budget.Status.DisruptionsAllowed == 0 {
			held++
		}
	}
	evicted := 0
	for _, write := range w.Writes() {
		if write.Kind() == "create pods/eviction" && write.IsAccepted() {
			evicted++
		}
	}
	if held > 0 || evicted != replicas || changes == 0 {
		t.Errorf("%d of %d pods were evicted, while their status changed %d times; the budget was spent in %d minutes", evicted, replicas, changes, held)
	}
	w.Reports("web", "Applied", "True", "Applied")
}
