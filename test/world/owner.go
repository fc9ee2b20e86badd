// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
)

// Add creates an object as the user. A scaler without a policy gets a margin of 15 %, so that constant usage leads to a
// distinctive number, and a scaler without verificationSeconds gets 0. New pods start as in the template unless the scaler
// says otherwise, because the policy for new pods is for all tests of the API server.
func (w *World) Add(o client.Object) {
	w.Helper()
	if s, ok := o.(*v1beta1.VerticalScaler); ok {
		update := &s.Spec.UpdatePolicy
		if update.NewPods == "" && update.UpdateMode != v1beta1.UpdateModeInitial && update.Fallback != v1beta1.FallbackRecreate {
			update.NewPods = v1beta1.NewPodsAsTemplate
		}
		if s.Spec.RecommendationPolicy == nil {
			s.Spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{SafetyMarginPercent: ptr.To[int32](15)}
		}
		if update.VerificationSeconds == nil {
			update.VerificationSeconds = ptr.To[int32](0)
		}
	}
	w.Create(o)
}

// Scale creates a scaler of the Deployment with that name, without a cooldown.
func (w *World) Scale(name string, changes ...func(*v1beta1.VerticalScaler)) {
	w.Helper()
	s := objects.Scaler(w.Namespace, name, name)
	s.Spec.UpdatePolicy.CooldownSeconds = ptr.To[int32](0)
	for _, change := range changes {
		change(s)
	}
	w.Add(s)
}

// InMode gives a scaler an update mode.
func InMode(mode v1beta1.UpdateMode) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = mode }
}

// NewOwner returns a ScaledDeployment with three replicas, without creating it.
func (w *World) NewOwner(name string, changes ...func(*v1beta1.ScaledDeployment)) *v1beta1.ScaledDeployment {
	owner := &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name},
		Spec:       v1beta1.ScaledDeploymentSpec{Replicas: ptr.To[int32](3), Template: objects.Deployment(w.Namespace, name).Spec.Template},
	}
	for _, change := range changes {
		change(owner)
	}
	return owner
}

// Own creates a ScaledDeployment and lets its Deployment run.
func (w *World) Own(name string, changes ...func(*v1beta1.ScaledDeployment)) *v1beta1.ScaledDeployment {
	w.Helper()
	w.Create(w.NewOwner(name, changes...))
	w.Settled(name)
	return w.Owner(name)
}

// Scaled enables scaling of the pods of a ScaledDeployment in a mode, without a cooldown. New pods are as in the template.
func Scaled(mode v1beta1.UpdateMode) func(*v1beta1.ScaledDeployment) {
	update := v1beta1.UpdatePolicy{UpdateMode: mode, CooldownSeconds: ptr.To[int32](0)}
	if mode == v1beta1.UpdateModeInPlace {
		update.NewPods = v1beta1.NewPodsAsTemplate
	}
	return func(o *v1beta1.ScaledDeployment) { o.Spec.Scaling = &v1beta1.Scaling{UpdatePolicy: update} }
}

// Settled lets time pass until a ScaledDeployment is Ready at its latest generation, and its status matches that of its
// Deployment, which it returns.
func (w *World) Settled(name string) *appsv1.Deployment {
	w.Helper()
	var d appsv1.Deployment
	w.Until(func() string {
		o := w.Owner(name)
		if wrong := lacks(o, o.Status.Conditions, v1beta1.ConditionReady, "True", v1beta1.ReasonAvailable); wrong != "" {
			return wrong
		}
		if err := w.Client.Get(w.ctx, w.Key(cmp.Or(o.Spec.DeploymentName, o.Name)), &d); err != nil {
			return err.Error()
		}
		if !metav1.IsControlledBy(&d, o) || *d.Spec.Replicas != *o.Spec.Replicas {
			return fmt.Sprintf("the Deployment has %d replicas and owners %v, its owner says %d", *d.Spec.Replicas, d.OwnerReferences, *o.Spec.Replicas)
		}
		has := []int32{d.Status.Replicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas, d.Status.UpdatedReplicas}
		if reported := []int32{o.Status.Replicas, o.Status.ReadyReplicas, o.Status.AvailableReplicas, o.Status.UpdatedReplicas}; !slices.Equal(reported, has) || has[3] != *d.Spec.Replicas {
			return fmt.Sprintf("the owner counts %d, the Deployment %d, want %d", reported, has, *d.Spec.Replicas)
		}
		return ""
	})
	return &d
}
