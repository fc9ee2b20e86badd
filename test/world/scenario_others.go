// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// sibling writes the template of a Deployment that another tool applies on the server, again and again. The first write is
// without a change, then it has a new image and another order of containers. The tool leaves resources to the operator.
func sibling() Scenario {
	return Scenario{
		Name: "sibling",
		Setup: func(w *World) {
			w.deployAll(small)
			w.apply(w.manifest(web, 1))
			w.Await("the Deployment to run", func() string { return w.IsRunning(web) })
		},
		Act: func(w *World) {
			w.Create(w.scaler(web, web, v1beta1.UpdateModeRollout, large))
			w.Await("a first rollout", func() string {
				return w.reports(web, v1beta1.ConditionApplied, "True", v1beta1.ReasonApplied)
			})
			w.apply(w.manifest(web, 1))
			w.apply(w.manifest(web, 2))
		},
		Done: func(w *World) string {
			return firstOf(
				w.hasSeen(web, web), // Applied may still be about the rollout before.
				w.reports(web, v1beta1.ConditionApplied, "True", v1beta1.ReasonApplied),
				w.knowsUsage(web),
				w.IsRunning(web),
				w.podsAre(web, func(pod *corev1.Pod) string { // The template has no limits.
					pod = pod.DeepCopy()
					want := template(nil, large).Spec.Containers
					for i := range want {
						want[i].Resources.Limits, pod.Spec.Containers[i].Resources.Limits = nil, nil
					}
					if image := pod.Spec.Containers[0].Image; image != "example.com/zeta:2" || !slices.Equal(sizesOf(pod.Spec.Containers), sizesOf(want)) {
						return fmt.Sprintf("has %s and %q", image, sizesOf(pod.Spec.Containers))
					}
					return ""
				}),
			)
		},
	}
}

// manifest is a Deployment as a repository has it, without resources. The order of the containers stays against the alphabet.
func (w *World) manifest(name string, version int) *appsv1.Deployment {
	d := w.deployment(name, small)
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		c.Resources = corev1.ResourceRequirements{}
		c.Image = fmt.Sprintf("example.com/%s:%d", c.Name, version)
	}
	return d
}

// apply applies a manifest on the server, as Flux does.
func (w *World) apply(d *appsv1.Deployment) {
	w.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		w.Fatalf("converting the manifest of %s: %v", d.Name, err)
	}
	delete(content, "status")
	config := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
	if err := w.Client.Apply(w.ctx, config, client.FieldOwner("kustomize-controller"), client.ForceOwnership); err != nil {
		w.Fatalf("applying the manifest of %s: %v", d.Name, err)
	}
}

// retarget moves a scaler to another Deployment. The first one gets its original values.
func retarget() Scenario {
	return Scenario{
		Name:  "retarget",
		Setup: func(w *World) { w.deployAll(small, web, "api") },
		Act: func(w *World) {
			w.Create(w.scaler("mover", web, v1beta1.UpdateModeRollout, large))
			w.Await("a first rollout", func() string { return w.isApplied("mover", web, large) })
			w.Patch(w.scaler("mover", "", "", small), `{"spec":{"deploymentName":"api"}}`)
		},
		Done: func(w *World) string {
			return firstOf(w.isApplied("mover", "api", large), w.templateIs("api", large), w.podsHave(web, small), w.templateIs(web, small))
		},
	}
}

// conflict has two scalers of one Deployment. The older one sizes it.
func conflict() Scenario {
	return Scenario{
		Name:  "conflict",
		Setup: func(w *World) { w.deployAll(small, web) },
		Act: func(w *World) {
			elder := w.scaler("z-elder", web, v1beta1.UpdateModeInPlace, large)
			w.Create(elder)
			// Creation times are in whole seconds, and names decide within a second. The other scaler is created in the next
			// second of the API server's clock.
			w.Await("the next second", func() string {
				younger := w.scaler("a-younger", web, v1beta1.UpdateModeInPlace, size{"700m", "700Mi", "700m", "700Mi", nil})
				dry := younger.DeepCopy()
				if err := w.Client.Create(w.ctx, dry, client.DryRunAll); err != nil {
					return err.Error()
				}
				if !dry.CreationTimestamp.After(elder.CreationTimestamp.Time) {
					return "still the same second"
				}
				w.Create(younger)
				return ""
			})
		},
		Done: func(w *World) string {
			return firstOf(
				w.isApplied("z-elder", web, large),
				w.reports("a-younger", v1beta1.ConditionStalled, "True", v1beta1.ReasonConflict),
			)
		},
	}
}

// owned has a ScaledDeployment, whose Deployment and scaler are the operator's.
func owned() Scenario {
	owner := func(w *World) *v1beta1.ScaledDeployment {
		return w.NewOwner(web, func(o *v1beta1.ScaledDeployment) {
			o.Spec.Template, o.Spec.Scaling = w.deployment(web, small).Spec.Template, scaling(v1beta1.UpdateModeRollout, large)
		})
	}
	return Scenario{
		Name:  "owned",
		Setup: func(w *World) { w.deployAll(small) },
		Act: func(w *World) {
			w.Create(owner(w))
			w.Await("a first rollout", func() string { return w.isApplied(web, web, large) })
			w.Patch(owner(w), `{"spec":{"replicas":%d}}`, replicas-1)
		},
		Done: func(w *World) string {
			o, fewer := w.Owner(web), ""
			if n := len(w.podsInOrder(web)); n != replicas-1 {
				fewer = fmt.Sprintf("there are %d pods", n)
			}
			return firstOf(
				lacks(o, o.Status.Conditions, v1beta1.ConditionReady, "True", v1beta1.ReasonAvailable),
				w.isApplied(web, web, large),
				fewer,
			)
		},
	}
}
