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

// sibling writes the template of a Deployment that another tool applies on the server, again and again: first without a
// change, then with a new image and another order of containers. The tool leaves resources to the operator.
func sibling() Scenario {
	return Scenario{
		Name: "sibling",
		Setup: func(u *User) {
			u.deployAll(small)
			u.apply(u.manifest(web, 1))
			u.Await("the Deployment to run", func() string { return u.isRunning(web) })
		},
		Act: func(u *User) {
			u.Create(u.scaler(web, web, v1beta1.UpdateModeRollout, large))
			u.Await("a first rollout", func() string {
				return u.says(web, v1beta1.ConditionApplied, metav1.ConditionTrue, v1beta1.ReasonApplied)
			})
			u.apply(u.manifest(web, 1))
			u.apply(u.manifest(web, 2))
		},
		Done: func(u *User) string {
			return firstOf(
				u.hasSeen(web, web), // Applied may still be about the rollout before.
				u.says(web, v1beta1.ConditionApplied, metav1.ConditionTrue, v1beta1.ReasonApplied),
				u.says(web, v1beta1.ConditionRecommendationProvided, metav1.ConditionTrue, v1beta1.ReasonEnoughHistory),
				u.isRunning(web),
				u.podsAre(web, func(pod podSizes) string {
					if image := pod.pod.Spec.Containers[0].Image; image != "example.com/zeta:2" {
						return "still has image " + image
					}
					return pod.requests(large)
				}),
			)
		},
	}
}

// manifest is a Deployment as a repository has it, without resources. The order of the containers stays against the alphabet.
func (u *User) manifest(name string, version int) *appsv1.Deployment {
	d := u.deployment(name, small)
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		c.Resources = corev1.ResourceRequirements{}
		c.Image = fmt.Sprintf("example.com/%s:%d", c.Name, version)
	}
	return d
}

// apply applies a manifest on the server, as Flux does.
func (u *User) apply(d *appsv1.Deployment) {
	u.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(d)
	if err != nil {
		u.Fatalf("converting the manifest of %s: %v", d.Name, err)
	}
	delete(content, "status")
	config := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: content})
	if err := u.Client.Apply(u.ctx, config, client.FieldOwner("kustomize-controller"), client.ForceOwnership); err != nil {
		u.Fatalf("applying the manifest of %s: %v", d.Name, err)
	}
}

// retarget moves a scaler to another Deployment. The first one gets its original values.
func retarget() Scenario {
	return Scenario{
		Name:  "retarget",
		Setup: func(u *User) { u.deployAll(small, web, "api") },
		Act: func(u *User) {
			u.Create(u.scaler("mover", web, v1beta1.UpdateModeRollout, large))
			u.Await("a first rollout", func() string { return u.isApplied("mover", web, large) })
			u.Patch(u.scaler("mover", "", "", small), `{"spec":{"deploymentName":"api"}}`)
		},
		Done: func(u *User) string {
			return firstOf(u.isApplied("mover", "api", large), u.templateIs("api", large), u.podsHave(web, small), u.templateIs(web, small))
		},
	}
}

// conflict has two scalers of one Deployment. The older one sizes it.
func conflict() Scenario {
	return Scenario{
		Name:  "conflict",
		Setup: func(u *User) { u.deployAll(small, web) },
		Act: func(u *User) {
			elder := u.scaler("z-elder", web, v1beta1.UpdateModeInPlace, large)
			u.Create(elder)
			// Creation times are in whole seconds, and names decide within a second. The other scaler is created in the next
			// second of the API server's clock.
			u.Await("the next second", func() string {
				younger := u.scaler("a-younger", web, v1beta1.UpdateModeInPlace, size{"700m", "700Mi", "700m", "700Mi"})
				dry := younger.DeepCopy()
				if err := u.Client.Create(u.ctx, dry, client.DryRunAll); err != nil {
					return err.Error()
				}
				if !dry.CreationTimestamp.After(elder.CreationTimestamp.Time) {
					return "still the same second"
				}
				u.Create(younger)
				return ""
			})
		},
		Done: func(u *User) string {
			return firstOf(
				u.isApplied("z-elder", web, large),
				u.says("a-younger", v1beta1.ConditionStalled, metav1.ConditionTrue, v1beta1.ReasonConflict),
			)
		},
	}
}

// owned has a ScaledDeployment, whose Deployment and scaler are the operator's.
func owned() Scenario {
	owner := func(u *User) *v1beta1.ScaledDeployment {
		d := u.deployment(web, small)
		return &v1beta1.ScaledDeployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: u.Namespace, Name: web},
			Spec: v1beta1.ScaledDeploymentSpec{
				Replicas: d.Spec.Replicas, Template: d.Spec.Template, Scaling: scaling(v1beta1.UpdateModeRollout, large),
			},
		}
	}
	return Scenario{
		Name:  "owned",
		Setup: func(u *User) { u.deployAll(small) },
		Act: func(u *User) {
			u.Create(owner(u))
			u.Await("a first rollout", func() string { return u.isApplied(web, web, large) })
			u.Patch(owner(u), `{"spec":{"replicas":%d}}`, replicas-1)
		},
		Done: func(u *User) string {
			return firstOf(
				u.ownerSays(web, v1beta1.ConditionReady, metav1.ConditionTrue),
				u.isApplied(web, web, large),
				u.podsAre(web, func(podSizes) string { return "" }, replicas-1),
			)
		},
	}
}
