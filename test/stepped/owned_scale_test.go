// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// These tests change a ScaledDeployment or its pods by other means: kubectl, a HorizontalPodAutoscaler, a scaler, and a user with
// many edits.

// hpaOnCPU scales an object by the utilization of cpu.
func hpaOnCPU(w *fixture, name string, target autoscalingv2.CrossVersionObjectReference) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: target, MinReplicas: ptr.To(int32(3)), MaxReplicas: 8,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: "cpu", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(int32(80))},
			}}},
		},
	}
}

// If the operator reverted the HPA's changes, pods would be killed and started at every check of the HPA.
func TestAnHPAOnTheDeploymentItselfWins(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.Own("web")
	hpa := hpaOnCPU(w, "web", autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"})
	w.Add(hpa)
	w.Patch(testkit.Deployment(w.Namespace, "web"), `{"spec":{"replicas":5}}`) // by the HPA
	w.OwnerReports("web", "Ready", "True", "Available", "HorizontalPodAutoscaler web")
	if n := w.Owner("web").Status.AvailableReplicas; n != 5 {
		t.Errorf("there are %d pods", n)
	}
	mark := w.mark()
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.Containers[0].Image = "registry.example/app:2" })
	if d := w.runs("web"); d.Spec.Template.Spec.Containers[0].Image != "registry.example/app:2" || d.Status.UpdatedReplicas != 5 {
		t.Errorf("the new image is on %d pods", d.Status.UpdatedReplicas)
	}
	if n := count(accepted(w.writes(mark)), "deployments"); total(n) != 2 { // with and without the label of the write
		t.Errorf("writes of the Deployment for one new image: %v", n)
	}
	// Only the owner scales to zero and back: an HPA does neither.
	for _, n := range []int32{0, 3} {
		w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = &n })
		if got := *w.Settled("web").Spec.Replicas; got != n {
			t.Errorf("there are %d replicas, and the owner says %d", got, n)
		}
	}
	// The HPA now targets another object.
	w.Patch(testkit.Deployment(w.Namespace, "web"), `{"spec":{"replicas":5}}`)
	if d := w.runs("web"); *d.Spec.Replicas != 5 {
		t.Errorf("there are %d replicas, and the HPA says 5", *d.Spec.Replicas)
	}
	w.Patch(hpa, `{"spec":{"scaleTargetRef":{"name":"other"}}}`)
	if got := *w.Settled("web").Spec.Replicas; got != 3 {
		t.Errorf("there are %d replicas, and no HPA", got)
	}
}

func TestTheResourcesOfARunningScalerSurviveManyEdits(t *testing.T) {
	t.Parallel()
	const edits = 20
	inBothModes(t, func(t *testing.T, w *fixture, mode v1beta1.UpdateMode) {
		t.Helper()
		w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = ptr.To(int32(1)) })
		want := w.Settled("web").Spec.Template.Spec.Containers[0].Resources
		if taken := want.Requests.Cpu().Cmp(resource.MustParse("330m")) >= 0; taken != (mode == "Rollout") {
			t.Fatalf("the template asks for %v", want.Requests)
		}
		decision, mark := w.Scaler("web").Status.Decision, w.mark()
		for i := range edits {
			w.edit("web", func(o *v1beta1.ScaledDeployment) {
				template := &o.Spec.Template
				template.Annotations = map[string]string{"edit": fmt.Sprint(i)}
				app := &template.Spec.Containers[0]
				switch i % 5 {
				case 0:
					app.Image = fmt.Sprintf("example.com/app:%d", i)
				case 1:
					app.Env = append(app.Env, corev1.EnvVar{Name: fmt.Sprintf("E%d", i), Value: "x"})
				case 2:
					app.Args = []string{fmt.Sprint(i)}
				case 3:
					app.Env = nil
				case 4:
					template.Labels["edit"] = fmt.Sprint(i)
				}
			})
			w.Settle()
			d := w.Deployment("web")
			if got := d.Spec.Template.Spec.Containers[0].Resources; d.Spec.Template.Annotations["edit"] != fmt.Sprint(i) || !apiequality.Semantic.DeepEqual(got, want) {
				t.Errorf("edit %d: the template has edit %s and %+v, not %+v", i, d.Spec.Template.Annotations["edit"], got, want)
			}
		}
		w.Settled("web")
		w.Sized("web")
		w.OwnerReports("web", "Sized", "True", "OperatingNormally")

		s := w.Scaler("web")
		if got := s.Status.Decision; got.Reverts != 0 || !got.Time.Equal(&decision.Time) {
			t.Errorf("the decision was %+v and is %+v", decision, got)
		}
		for _, c := range s.Status.Conditions {
			if c.Reason == "Contested" || c.Reason == "Conflict" {
				t.Errorf("%s is %s: %s", c.Type, c.Reason, c.Message)
			}
		}
		// Two writes for each edit, with and without their label: neither controller has reverted the other's writes.
		if n := count(w.writes(mark), "deployments")["web"]; n != 2*edits {
			t.Errorf("%d writes of the Deployment for %d edits", n, edits)
		}
		for _, entry := range w.Deployment("web").ManagedFields {
			if fields := string(entry.FieldsV1.GetRawBytes()); entry.Manager == "scaleddeployment" && strings.Contains(fields, "f:requests") == (mode == "Rollout") {
				t.Errorf("scaleddeployment manages %s", fields)
			}
		}
	})
}
