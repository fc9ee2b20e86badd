// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package v1beta1 holds the API of VerticalScaler, group autoscaling.verticalscaler.io.
//
// A VerticalScaler names one Deployment in its namespace. The operator keeps the CPU
// and memory of that Deployment's pods at what they need. Names are the same as
// in the VerticalPodAutoscaler where the concept is the same.
//
// +kubebuilder:object:generate=true
// +groupName=autoscaling.verticalscaler.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion identifies the API in manifests: autoscaling.verticalscaler.io/v1beta1.
var GroupVersion = schema.GroupVersion{Group: "autoscaling.verticalscaler.io", Version: "v1beta1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&VerticalScaler{}, &VerticalScalerList{},
		&ScaledDeployment{}, &ScaledDeploymentList{},
		&VerticalScalerCheckpoint{}, &VerticalScalerCheckpointList{},
		&NewPodSizes{}, &NewPodSizesList{},
		&ScalingPolicy{}, &ScalingPolicyList{},
		&ClusterScalingPolicy{}, &ClusterScalingPolicyList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
})

// AddToScheme registers the kinds of this package.
var AddToScheme = schemeBuilder.AddToScheme
