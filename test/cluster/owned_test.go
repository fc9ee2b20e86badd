// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

const ownerLabel = "autoscaling.verticalscaler.io/scaled-deployment"

// in returns the same fixture for a subtest.
func (w *fixture) in(t *testing.T) *fixture {
	t.Helper()
	sub := *w
	sub.t = t
	sub.World = world.New(t, env.Client, w.Namespace, world.Options{RealTime: sub.eventually})
	return &sub
}

func podUIDs(pods []corev1.Pod) (uids []types.UID) {
	for _, pod := range pods {
		uids = append(uids, pod.UID)
	}
	slices.Sort(uids)
	return uids
}

// The new Deployment adopts the pods, because it has the same selector and template.
func TestARecreatedDeploymentAdoptsOrphanedPods(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.Own("web")
	before, pods := w.Deployment("web"), podUIDs(w.Pods("web"))
	must.Succeed(t, env.Client.Delete(t.Context(), before.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	w.eventually(func() string {
		var now appsv1.Deployment
		if err := env.Client.Get(t.Context(), w.Key("web"), &now); err != nil || now.UID == before.UID {
			return fmt.Sprintf("the Deployment is not recreated: %v", err)
		}
		return ""
	})
	w.Settled("web")
	w.runs("web")
	if now := podUIDs(w.Pods("web")); !slices.Equal(now, pods) {
		t.Errorf("the pods were %v and are %v", pods, now)
	}
}

// hpaOn scales a ScaledDeployment by the utilization of cpu.
func hpaOn(w *fixture, name string, least, most int32) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: name},
			MinReplicas:    &least, MaxReplicas: most,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(int32(80))},
			}}},
		},
	}
}

// There are no metrics here, so the real HPA controller can only enforce its minimum and
// maximum.
func TestAnHPAScalesTheOwner(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.Own("web")
	w.Own("api")
	w.Add(hpaOn(w, "web", 5, 8))
	w.Add(hpaOn(w, "api", 1, 2))
	for name, want := range map[string]int32{"web": 5, "api": 2} {
		w.eventually(func() string {
			if n := *w.Owner(name).Spec.Replicas; n != want {
				return fmt.Sprintf("%s has %d replicas, not %d", name, n, want)
			}
			return ""
		})
		if d := w.Settled(name); *d.Spec.Replicas != want {
			t.Errorf("Deployment %s has %d replicas", name, *d.Spec.Replicas)
		}
		w.eventually(func() string {
			var hpa autoscalingv2.HorizontalPodAutoscaler
			if err := env.Client.Get(t.Context(), w.Key(name), &hpa); err != nil || hpa.Status.CurrentReplicas != want {
				return fmt.Sprintf("the HPA sees %d replicas: %v", hpa.Status.CurrentReplicas, err)
			}
			return ""
		})
	}
}
