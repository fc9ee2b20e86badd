// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// ask gives all pods the decided requests, with what their kubelets say about that. What they
// report as applied stays.
func (p *plant) ask(decided *v1beta1.Decision, says corev1.PodCondition) {
	p.t.Helper()
	var pods corev1.PodList
	if err := p.server.List(p.t.Context(), &pods, client.InNamespace("shop")); err != nil {
		p.t.Fatal(err)
	}
	for _, pod := range pods.Items {
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			for _, d := range decided.Containers {
				if d.ContainerName == c.Name {
					resize(c, corev1.ResourceCPU, d.Requests.CPU)
					resize(c, corev1.ResourceMemory, d.Requests.Memory)
				}
			}
		}
		if err := p.server.Update(p.t.Context(), &pod); err != nil {
			p.t.Fatal(err)
		}
		says.ObservedGeneration = pod.Generation
		pod.Status.Conditions = append(pod.Status.Conditions, says)
		if err := p.server.Status().Update(p.t.Context(), &pod); err != nil {
			p.t.Fatal(err)
		}
	}
}

// resize sets a request, and a limit of twice as much. nil sets nothing.
func resize(c *corev1.Container, name corev1.ResourceName, request *resource.Quantity) {
	if request == nil {
		return
	}
	limit := request.DeepCopy()
	limit.Add(*request)
	c.Resources.Requests[name], c.Resources.Limits[name] = *request, limit
}

// loseDecision is what a crash between a resize and the status does, and a user who wipes the
// status.
func (p *plant) loseDecision(vs *v1beta1.VerticalScaler) {
	p.t.Helper()
	vs.Status.Decision, vs.Status.Conditions = nil, nil
	if err := p.server.Status().Update(p.t.Context(), vs); err != nil {
		p.t.Fatal(err)
	}
}

// What pods were asked for counts as decided, and as applied only once their kubelets say so.
func TestALostDecisionDoesNotMakeAResizeLookApplied(t *testing.T) {
	for name, tc := range map[string]struct {
		condition corev1.PodCondition
		reason    string
		stalls    bool
	}{
		"infeasible":  {corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}, v1beta1.ReasonInfeasible, true},
		"deferred":    {corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred}, v1beta1.ReasonDeferred, false},
		"in progress": {corev1.PodCondition{Type: corev1.PodResizeInProgress, Status: corev1.ConditionTrue}, v1beta1.ReasonResizing, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, 400) // of 100m
			vs, _, err := p.reconcile()
			if err != nil || vs.Status.Decision == nil || len(p.resized) != 1 {
				t.Fatalf("Reconcile() = %v, decided %v, resized %v", err, vs.Status.Decision, p.resized)
			}
			decided := vs.Status.Decision
			p.ask(decided, tc.condition)
			p.loseDecision(vs)
			p.restart()
			vs, _, err = p.reconcile()
			if err != nil || len(p.resized) != 1 {
				t.Fatalf("Reconcile() = %v, resized %v, want nothing more", err, p.resized)
			}
			if c := condition(vs, v1beta1.ConditionReady); tc.stalls == (c.Status == metav1.ConditionTrue) {
				t.Errorf("Ready is %s (%s: %s)", c.Status, c.Reason, c.Message)
			}
			if c := condition(vs, v1beta1.ConditionApplied); c.Status == metav1.ConditionTrue || c.Reason != tc.reason {
				t.Errorf("Applied is %s (%s: %s), want False: %s", c.Status, c.Reason, c.Message, tc.reason)
			}
			if vs.Status.Decision == nil || vs.Status.Decision.Reason != "Adopted" {
				t.Fatalf("decided %+v, want what the pods were asked for", vs.Status.Decision)
			}
			if diff := cmp.Diff(decided.Containers, vs.Status.Decision.Containers); diff != "" {
				t.Errorf("adopted (-want +got):\n%s", diff)
			}
		})
	}
}
