// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// rollout writes the template.
func rollout() Scenario {
	return Scenario{
		Name:  "rollout",
		Setup: func(w *World) error { return w.deploy(small, web) },
		Act:   func(w *World) error { return w.create(w.scaler(web, web, v1beta1.UpdateModeRollout, large)) },
		Done: func(w *World) string {
			return firstOf(w.isApplied(web, web, large), w.templateIs(web, large))
		},
	}
}

// sibling writes the template of a Deployment that another tool applies on the server,
// again and again: first without a change, then with a new image and another order of
// containers. The tool leaves resources to the operator.
func sibling() Scenario {
	return Scenario{
		Name: "sibling",
		Setup: func(w *World) error {
			if err := w.deploy(small); err != nil {
				return err
			}
			if err := w.apply(w.manifest(web, 1)); err != nil {
				return err
			}
			return w.Wait(w.ctx, "the Deployment to run", func(w *World) string { return w.isRunning(web) })
		},
		Act: func(w *World) error {
			if err := w.create(w.scaler(web, web, v1beta1.UpdateModeRollout, large)); err != nil {
				return err
			}
			if err := w.Wait(w.ctx, "a first rollout", func(w *World) string {
				return w.says(web, v1beta1.ConditionApplied, metav1.ConditionTrue, v1beta1.ReasonApplied)
			}); err != nil {
				return err
			}
			if err := w.apply(w.manifest(web, 1)); err != nil {
				return err
			}
			return w.apply(w.manifest(web, 2))
		},
		Done: func(w *World) string {
			return firstOf(
				w.hasSeen(web, web), // Applied may still be about the rollout before.
				w.says(web, v1beta1.ConditionApplied, metav1.ConditionTrue, v1beta1.ReasonApplied),
				w.says(web, v1beta1.ConditionRecommendationProvided, metav1.ConditionTrue, v1beta1.ReasonEnoughHistory),
				w.isRunning(web),
				w.podsAre(web, func(pod podSizes) string {
					if image := pod.pod.Spec.Containers[0].Image; image != "example.com/zeta:2" {
						return "still has image " + image
					}
					return pod.requests(large)
				}),
			)
		},
	}
}

// manifest is a Deployment as a repository has it, without resources. The order of the
// containers stays against the alphabet.
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
func (w *World) apply(d *appsv1.Deployment) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		return fmt.Errorf("converting the manifest of %s: %w", d.Name, err)
	}
	delete(content, "status")
	config := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
	if err := w.client.Apply(w.ctx, config, client.FieldOwner("kustomize-controller"), client.ForceOwnership); err != nil {
		return fmt.Errorf("applying the manifest of %s: %w", d.Name, err)
	}
	return nil
}

// recreate evicts pods one by one under a budget, since no node will ever have room.
func recreate() Scenario {
	return Scenario{
		Name: "recreate",
		Setup: func(w *World) error {
			for ordinal := range replicas {
				w.Script(web, ordinal, Infeasible)
			}
			if err := w.create(w.disruptionBudget(web)); err != nil {
				return err
			}
			return w.deploy(small, web)
		},
		Act: func(w *World) error {
			s := w.scaler(web, web, v1beta1.UpdateModeInPlace, large)
			s.Spec.UpdatePolicy.Fallback = v1beta1.FallbackRecreate
			return w.create(s)
		},
		Done: func(w *World) string { return firstOf(w.isApplied(web, web, large), w.templateIs(web, small)) },
	}
}

// initial sizes new pods only: those of the user's own rollout.
func initial() Scenario {
	return Scenario{
		Name:  "initial",
		Setup: func(w *World) error { return w.deploy(small, web) },
		Act: func(w *World) error {
			if err := w.create(w.scaler(web, web, v1beta1.UpdateModeInitial, large)); err != nil {
				return err
			}
			// The sizes are written down, and the API server learns of them, with a delay.
			pods, err := w.podsOf(web)
			if err != nil {
				return err
			}
			if err := w.Wait(w.ctx, "new pods to be sized", func(w *World) string {
				pod := &corev1.Pod{Spec: template(nil, small).Spec}
				pod.Namespace, pod.Name = w.namespace, pods[0].Name+"-dry-run"
				pod.Labels, pod.OwnerReferences = pods[0].Labels, pods[0].OwnerReferences
				if err := w.client.Create(w.ctx, pod, client.DryRunAll); err != nil {
					return err.Error()
				}
				return podSizes{pod}.asks(large)
			}); err != nil {
				return err
			}
			return w.patch(w.deployment(web, small), `{"spec":{"template":{"metadata":{"annotations":{"restarted":"true"}}}}}`)
		},
		Done: func(w *World) string { return firstOf(w.isApplied(web, web, large), w.templateIs(web, small)) },
	}
}

// retarget moves a scaler to another Deployment. The first one gets its original values.
func retarget() Scenario {
	return Scenario{
		Name:  "retarget",
		Setup: func(w *World) error { return w.deploy(small, web, "api") },
		Act: func(w *World) error {
			if err := w.create(w.scaler("mover", web, v1beta1.UpdateModeRollout, large)); err != nil {
				return err
			}
			if err := w.Wait(w.ctx, "a first rollout", func(w *World) string { return w.isApplied("mover", web, large) }); err != nil {
				return err
			}
			return w.patch(w.scaler("mover", "", "", small), `{"spec":{"deploymentName":"api"}}`)
		},
		Done: func(w *World) string {
			return firstOf(w.isApplied("mover", "api", large), w.templateIs("api", large), w.podsHave(web, small), w.templateIs(web, small))
		},
	}
}

// restore deletes a scaler that has written the template.
func restore() Scenario {
	return Scenario{
		Name:  "restore",
		Setup: func(w *World) error { return w.deploy(small, web) },
		Act: func(w *World) error {
			s := w.scaler(web, web, v1beta1.UpdateModeRollout, large)
			if err := w.create(s); err != nil {
				return err
			}
			if err := w.Wait(w.ctx, "a first rollout", func(w *World) string { return w.isApplied(web, web, large) }); err != nil {
				return err
			}
			return w.remove(s)
		},
		Done: func(w *World) string {
			return firstOf(w.isGone(w.scaler(web, "", "", small)), w.podsHave(web, small), w.templateIs(web, small))
		},
	}
}

// conflict has two scalers of one Deployment. The older one sizes it.
func conflict() Scenario {
	return Scenario{
		Name:  "conflict",
		Setup: func(w *World) error { return w.deploy(small, web) },
		Act: func(w *World) error {
			elder := w.scaler("z-elder", web, v1beta1.UpdateModeInPlace, large)
			if err := w.create(elder); err != nil {
				return err
			}
			// Creation times are in whole seconds, and names decide within a second. The other
			// scaler is created in the next second of the API server's clock.
			return w.Wait(w.ctx, "the next second", func(w *World) string {
				younger := w.scaler("a-younger", web, v1beta1.UpdateModeInPlace, size{"700m", "700Mi", "700m", "700Mi"})
				dry := younger.DeepCopy()
				if err := w.client.Create(w.ctx, dry, client.DryRunAll); err != nil {
					return err.Error()
				}
				if !dry.CreationTimestamp.After(elder.CreationTimestamp.Time) {
					return "still the same second"
				}
				return textOf(w.create(younger))
			})
		},
		Done: func(w *World) string {
			return firstOf(
				w.isApplied("z-elder", web, large),
				w.says("a-younger", v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonConflict),
			)
		},
	}
}

// owned has a ScaledDeployment, whose Deployment and scaler are the operator's.
func owned() Scenario {
	owner := func(w *World) *v1beta1.ScaledDeployment {
		d := w.deployment(web, small)
		return &v1beta1.ScaledDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: web},
			Spec: v1beta1.ScaledDeploymentSpec{
				Replicas: d.Spec.Replicas, Template: d.Spec.Template, Scaling: scaling(v1beta1.UpdateModeRollout, large),
			},
		}
	}
	return Scenario{
		Name:  "owned",
		Setup: func(w *World) error { return w.deploy(small) },
		Act: func(w *World) error {
			if err := w.create(owner(w)); err != nil {
				return err
			}
			if err := w.Wait(w.ctx, "a first rollout", func(w *World) string { return w.isApplied(web, web, large) }); err != nil {
				return err
			}
			return w.patch(owner(w), `{"spec":{"replicas":%d}}`, replicas-1)
		},
		Done: func(w *World) string {
			return firstOf(
				w.ownerSays(web, v1beta1.ConditionReady, metav1.ConditionTrue),
				w.isApplied(web, web, large),
				w.podsAre(web, func(podSizes) string { return "" }, replicas-1),
			)
		},
	}
}
