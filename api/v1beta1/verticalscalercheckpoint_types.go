// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RestoredAnnotation is on a VerticalScaler whose checkpoint was restored from a copy. A new value makes
// the operator load the checkpoint again. "kubectl vscaler restore" sets it to a digest of the checkpoint.
const RestoredAnnotation = "autoscaling.verticalscaler.io/restored"

// VerticalScalerCheckpoint stores the usage history of a scaler's containers. It has the name of
// the scaler and is deleted with it. The operator creates it; users should not edit it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:shortName=vscalercp,categories=autoscaling
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.deploymentName`
// +kubebuilder:printcolumn:name="Saved",type=date,JSONPath=`.spec.saveTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +operator-sdk:csv:customresourcedefinitions:displayName="Vertical Scaler Checkpoint",resources={{VerticalScaler,v1beta1}}
type VerticalScalerCheckpoint struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the learned history.
	// +required
	Spec VerticalScalerCheckpointSpec `json:"spec,omitzero"`
}

// VerticalScalerCheckpointList is a list of checkpoints.
// +kubebuilder:object:root=true
type VerticalScalerCheckpointList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VerticalScalerCheckpoint `json:"items"`
}

// VerticalScalerCheckpointSpec has the usage history of a Deployment's containers.
type VerticalScalerCheckpointSpec struct {
	// deploymentName is the name of the Deployment whose usage was observed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Deployment name"
	DeploymentName string `json:"deploymentName,omitempty"`

	// saveTime is the time at which the operator saved the history.
	// +required
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Save time"
	SaveTime metav1.Time `json:"saveTime,omitempty"`

	// containers has one entry for each container.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Containers"
	Containers []ContainerCheckpoint `json:"containers,omitempty"`
}

// ContainerCheckpoint has the usage history of one container.
type ContainerCheckpoint struct {
	// containerName is the container's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName,omitempty"`

	// version is the version of the encoding of data.
	// +required
	// +kubebuilder:validation:Minimum=1
	Version int32 `json:"version,omitempty"`

	// data is the history of the container in the operator's own encoding, at most 8 KiB, which is
	// 10,924 characters in base64.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10924
	Data []byte `json:"data,omitempty"`

	// coverage has the times for which the recommendations would have been enough for the container,
	// in the operator's own encoding. It is set while the scaler waits to be promoted by its policy.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Coverage []byte `json:"coverage,omitempty"`

	// unreadable is a history of the container that the operator could not read: it is damaged, or a newer version has
	// saved it. A version that can read it goes on from it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=10924
	Unreadable []byte `json:"unreadable,omitempty"`
}
