// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

const ownerLabel = "autoscaling.verticalscaler.io/scaled-deployment"

// in returns the same fixture for a subtest.
func (w *fixture) in(t *testing.T) *fixture {
	t.Helper()
	sub := *w
	sub.T = t
	return &sub
}

// newOwner returns a ScaledDeployment with three replicas, without creating it.
func (w *fixture) newOwner(name string, changes ...func(*v1beta1.ScaledDeployment)) *v1beta1.ScaledDeployment {
	owner := &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec:       v1beta1.ScaledDeploymentSpec{Replicas: ptr.To(int32(3)), Template: testkit.Deployment(w.namespace, name).Spec.Template},
	}
	for _, change := range changes {
		change(owner)
	}
	return owner
}

// own creates a ScaledDeployment and waits until its Deployment runs.
func (w *fixture) own(name string, changes ...func(*v1beta1.ScaledDeployment)) *v1beta1.ScaledDeployment {
	w.Helper()
	w.create(w.newOwner(name, changes...))
	w.settled(name)
	return w.owner(name)
}

// scaled enables scaling of the pods in a mode, without a cooldown. New pods are as in the template, whichever tests have
// installed the policy for them.
func scaled(mode v1beta1.UpdateMode) func(*v1beta1.ScaledDeployment) {
	update := v1beta1.UpdatePolicy{UpdateMode: mode, CooldownSeconds: ptr.To(int32(0))}
	if mode == v1beta1.UpdateModeInPlace {
		update.NewPods = v1beta1.NewPodsAsTemplate
	}
	return func(o *v1beta1.ScaledDeployment) { o.Spec.Scaling = &v1beta1.Scaling{UpdatePolicy: update} }
}

func (w *fixture) owner(name string) *v1beta1.ScaledDeployment {
	w.Helper()
	var o v1beta1.ScaledDeployment
	if err := env.Client.Get(w.Context(), w.key(name), &o); err != nil {
		w.Fatal(err)
	}
	return &o
}

// settled waits until the owner is Ready at its latest generation, and its status matches
// that of the Deployment.
func (w *fixture) settled(name string) *appsv1.Deployment {
	w.Helper()
	var d appsv1.Deployment
	w.eventually(func() string {
		o := w.owner(name)
		if wrong := unlike(o, "Ready", "True", "Available"); wrong != "" {
			return wrong
		}
		if err := env.Client.Get(w.Context(), w.key(deploymentOf(o)), &d); err != nil {
			return err.Error()
		}
		if !metav1.IsControlledBy(&d, o) {
			return "the Deployment is not the owner's"
		}
		if *d.Spec.Replicas != *o.Spec.Replicas {
			return fmt.Sprintf("the Deployment has %d replicas, its owner says %d", *d.Spec.Replicas, *o.Spec.Replicas)
		}
		has := []int32{d.Status.Replicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas, d.Status.UpdatedReplicas}
		if told := []int32{o.Status.Replicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas, o.Status.UpdatedReplicas}; !slices.Equal(told, has) || has[3] != *d.Spec.Replicas {
			return fmt.Sprintf("the owner counts %d, the Deployment %d, want %d", told, has, *d.Spec.Replicas)
		}
		return ""
	})
	return &d
}

func deploymentOf(o *v1beta1.ScaledDeployment) string {
	if o.Spec.DeploymentName != "" {
		return o.Spec.DeploymentName
	}
	return o.Name
}

// unlike describes how a condition of the owner differs from what is wanted; "" if it has
// this status and reason, is about the latest generation, and its message contains all the
// words.
func unlike(o *v1beta1.ScaledDeployment, kind, status, reason string, words ...string) string {
	var c metav1.Condition
	if found := meta.FindStatusCondition(o.Status.Conditions, kind); found != nil {
		c = *found
	}
	wrong := string(c.Status) != status || c.Reason != reason || c.ObservedGeneration != o.Generation || o.Status.ObservedGeneration != o.Generation
	for _, word := range words {
		wrong = wrong || !strings.Contains(c.Message, word)
	}
	if wrong {
		return fmt.Sprintf("%s of generation %d is %s, %s: %q; want generation %d, %s, %s, with %q", kind, c.ObservedGeneration, c.Status, c.Reason, c.Message, o.Generation, status, reason, words)
	}
	return ""
}

// ownerSays waits for a condition of the owner.
func (w *fixture) ownerSays(name, kind, status, reason string, words ...string) {
	w.Helper()
	w.eventually(func() string { return unlike(w.owner(name), kind, status, reason, words...) })
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
	w.own("web")
	before, pods := w.deployment("web"), podUIDs(w.pods("web"))
	if err := env.Client.Delete(t.Context(), before.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationOrphan)); err != nil {
		t.Fatal(err)
	}
	w.eventually(func() string {
		var now appsv1.Deployment
		if err := env.Client.Get(t.Context(), w.key("web"), &now); err != nil || now.UID == before.UID {
			return fmt.Sprintf("the Deployment is not recreated: %v", err)
		}
		return ""
	})
	w.settled("web")
	w.runs("web")
	if now := podUIDs(w.pods("web")); !slices.Equal(now, pods) {
		t.Errorf("the pods were %v and are %v", pods, now)
	}
}

// hpaOn scales a ScaledDeployment by the utilization of cpu.
func hpaOn(w *fixture, name string, least, most int32) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
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
	w.own("web")
	w.own("api")
	w.create(hpaOn(w, "web", 5, 8))
	w.create(hpaOn(w, "api", 1, 2))
	for name, want := range map[string]int32{"web": 5, "api": 2} {
		w.eventually(func() string {
			if n := *w.owner(name).Spec.Replicas; n != want {
				return fmt.Sprintf("%s has %d replicas, not %d", name, n, want)
			}
			return ""
		})
		if d := w.settled(name); *d.Spec.Replicas != want {
			t.Errorf("Deployment %s has %d replicas", name, *d.Spec.Replicas)
		}
		w.eventually(func() string {
			var hpa autoscalingv2.HorizontalPodAutoscaler
			if err := env.Client.Get(t.Context(), w.key(name), &hpa); err != nil || hpa.Status.CurrentReplicas != want {
				return fmt.Sprintf("the HPA sees %d replicas: %v", hpa.Status.CurrentReplicas, err)
			}
			return ""
		})
	}
}
