// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NewPodSizesName is the name of the NewPodSizes of a namespace. Where its text would be too long,
// there are further ones, with "-2" and so on after the name.
const NewPodSizesName = "verticalscaler"

// NewPodSizes tells the API server the sizes of new pods in its namespace, as the parameter of a
// MutatingAdmissionPolicy. The operator derives it from status.newPods of the scalers; users should
// not edit it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=newpodsizes,categories=autoscaling
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +operator-sdk:csv:customresourcedefinitions:displayName="New Pod Sizes",resources={{VerticalScaler,v1beta1}}
type NewPodSizes struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec has the sizes for the API server.
	// +required
	Spec NewPodSizesSpec `json:"spec,omitzero"`
}

// NewPodSizesList is a list of sizes of new pods.
// +kubebuilder:object:root=true
type NewPodSizesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NewPodSizes `json:"items"`
}

// NewPodSizesSpec holds the sizes.
type NewPodSizesSpec struct {
	// deployments is one text, because the API server converts the object for each new pod. It
	// begins with a newline and has a line for each Deployment: its name, a slash, the number of the
	// policy, a space, and its containers, separated by semicolons. The policy that reads the line
	// has this number in its name. A container is its name, CPU request, memory request, CPU limit
	// and memory limit, separated by commas. An empty amount means that the pod keeps its own.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Deployments"
	Deployments string `json:"deployments,omitempty"`
}
