// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

func orRollout(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = "Rollout" }

// The template is written once, and restored when the scaler is deleted.
func TestTheFallbackRollsTheDeploymentOut(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.deploy("web")
	w.Kubelet.Script("web", 0, world.Infeasible)
	w.Uses("web", "app", 300, 240)
	w.scale("web", orRollout)
	w.eventually(func() string {
		if d := w.Deployment("web"); d.Generation == before.Generation {
			return "the template is as it was"
		}
		return ""
	})
	requests := w.Sized("web")
	w.Between("cpu", *requests.Cpu(), "330m", "380m")
	w.Between("memory", *requests.Memory(), "307Mi", "309Mi")
	ownsOnlyResources(w.t, w.runs("web"))
	if sets := w.sets("web"); len(sets) != 2 {
		w.Errorf("%d ReplicaSets: one rollout should leave two", len(sets))
	}
	w.Says("web", "Ready", "True", "OperatingNormally")
	w.Minutes(20)
	writes := w.Writes()
	if n := count(accepted(writes), "deployments"); total(n) != 1 {
		w.Errorf("writes of Deployments: %v", n)
	}

	w.Remove(testkit.Scaler(w.Namespace, "web", "web"))
	w.Gone(testkit.Scaler(w.Namespace, "web", "web"))
	w.restored(before)
	w.runs("web")
}

// Where the API server refuses the resize, the fallback follows at once: no event tells that.
func TestTheFallbackFollowsARefusedResize(t *testing.T) {
	t.Parallel()
	const onSmallNode = "example.com/small-node"
	for reason, change := range map[string]func(*corev1.PodTemplateSpec){
		"Unsupported":  func(pod *corev1.PodTemplateSpec) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} },
		"NodeCapacity": func(pod *corev1.PodTemplateSpec) { pod.Annotations = map[string]string{onSmallNode: "yes"} },
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w := newServed(t)
			small, large := w.node("small", "250m"), w.node("large", "8")
			w.Kubelet.Place = func(pod *corev1.Pod) string {
				if pod.Annotations[onSmallNode] != "" && world.Asked(pod, "app").Requests.Cpu().MilliValue() <= 250 {
					return small
				}
				return large
			}
			waiting := w.deploy("waiting", func(d *appsv1.Deployment) { change(&d.Spec.Template) })
			w.Uses("waiting", "app", 300, 240)
			w.scale("waiting")
			w.Says("waiting", "Applied", "False", reason)
			if d := w.Deployment("waiting"); d.Generation != waiting.Generation {
				t.Errorf("with the fallback Wait, the template has %+v", d.Spec.Template.Spec.Containers)
			}

			before := w.deploy("web", func(d *appsv1.Deployment) { change(&d.Spec.Template) })
			w.Uses("web", "app", 300, 240)
			w.scale("web", orRollout)
			w.Says("web", "RecommendationProvided", "True", "EnoughHistory")
			w.Minutes(2) // less than the resync period
			if w.Deployment("web").Generation == before.Generation {
				t.Errorf("the template is as it was: %+v", w.Condition("web", "Applied"))
			}
			w.Sized("web")
		})
	}
}
