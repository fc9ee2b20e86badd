// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ScaledDeploymentKind is the kind in owner references.
	ScaledDeploymentKind = "ScaledDeployment"

	// ScaledDeploymentLabel is on every object that a ScaledDeployment creates. Its value is
	// the name of the ScaledDeployment. It is the selector if spec.selector is unset.
	ScaledDeploymentLabel = "autoscaling.verticalscaler.io/scaled-deployment"

	// AppliedAnnotation is on every object that a ScaledDeployment creates. Its value is a
	// hash of the last applied manifest. The operator applies an object again only if it changed.
	AppliedAnnotation = "autoscaling.verticalscaler.io/applied"

	// ApplyingLabel is on a Deployment while the operator applies it. Admission policies select the
	// operator's writes by it.
	ApplyingLabel = "autoscaling.verticalscaler.io/applying"
)

// IsScaledDeployment reports whether the owner is a ScaledDeployment of the version that is served.
// Another version names no object.
func IsScaledDeployment(owner *metav1.OwnerReference) bool {
	return owner.APIVersion == GroupVersion.String() && owner.Kind == ScaledDeploymentKind
}

// ScaledDeployment is a workload and its sizing in one object. The operator creates a Deployment
// and, if scaling is set, the VerticalScaler that sizes it. Both are deleted with the
// ScaledDeployment.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:shortName=sdeploy,categories=autoscaling
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.updatedReplicas`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.scaling.updatePolicy.updateMode`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.deploymentName`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters: it is used as a label value",reason=FieldValueInvalid
// +operator-sdk:csv:customresourcedefinitions:displayName="Scaled Deployment",resources={{Deployment,v1},{VerticalScaler,v1beta1},{Event,v1}}
type ScaledDeployment struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired workload and its sizing.
	// +required
	Spec ScaledDeploymentSpec `json:"spec,omitzero"`

	// status has the observations of the operator.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ScaledDeploymentStatus `json:"status,omitzero"`
}

// ScaledDeploymentList is a list of ScaledDeployments.
// +kubebuilder:object:root=true
type ScaledDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ScaledDeployment `json:"items"`
}

// ScaledDeploymentSpec is a workload and its sizing.
// +kubebuilder:validation:XValidation:rule="has(self.selector) == has(oldSelf.selector)",message="must not be added or removed: the selector of a Deployment is immutable",fieldPath=".selector",reason=FieldValueForbidden
type ScaledDeploymentSpec struct {
	// replicas is the number of pods. A HorizontalPodAutoscaler can set it through the scale
	// subresource of this object. 0 means no pods. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Replicas",xDescriptors="urn:alm:descriptor:com.tectonic.ui:podCount"
	Replicas *int32 `json:"replicas,omitempty"`

	// selector is the label selector of the Deployment. It must match the template, and is
	// immutable. Defaults to the label autoscaling.verticalscaler.io/scaled-deployment with the
	// object's name, which the operator adds to the template.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="must not be changed: the selector of a Deployment is immutable",reason=FieldValueForbidden
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Selector",xDescriptors="urn:alm:descriptor:com.tectonic.ui:selector:core:v1:Pod"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`

	// template is the pod template, as in a Deployment (kubectl explain deployment.spec.template).
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.spec) && self.spec.containers.size() > 0",message="must have at least one container",fieldPath=".spec",reason=FieldValueRequired
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Pod template"
	Template corev1.PodTemplateSpec `json:"template"`

	// deploymentName is the name of the Deployment. If it changes, the operator deletes the old
	// Deployment and its pods, and then creates the new one. Defaults to the object's name.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be a valid name of a Deployment: use lowercase letters, digits, '-' and '.', and start and end with a letter or digit"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Deployment name",xDescriptors="urn:alm:descriptor:io.kubernetes:Deployment"
	DeploymentName string `json:"deploymentName,omitempty"`

	// scaling is the spec of a VerticalScaler without the name of the Deployment. The
	// VerticalScaler has this object's name. Unset means that the template's resources are used as
	// they are.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Scaling"
	Scaling *Scaling `json:"scaling,omitempty"`
}

// ScaledDeploymentStatus has the observations of the operator.
type ScaledDeploymentStatus struct {
	// observedGeneration is the metadata.generation that this status describes, or -1 before the
	// first reconcile.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of pods of the Deployment.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Replicas",xDescriptors="urn:alm:descriptor:com.tectonic.ui:podCount"
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of pods that are ready. 0 or unset means none.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Ready replicas"
	ReadyReplicas int32 `json:"readyReplicas,omitempty"`

	// availableReplicas is the number of pods that are available. 0 or unset means none.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Available replicas"
	AvailableReplicas int32 `json:"availableReplicas,omitempty"`

	// updatedReplicas is the number of pods that have the newest pod template. 0 or unset
	// means none.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Updated replicas"
	UpdatedReplicas int32 `json:"updatedReplicas,omitempty"`

	// selector is the label selector of the pods, as the scale subresource needs it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=16384
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Selector"
	Selector string `json:"selector,omitempty"`

	// conditions are Ready, Reconciling and Stalled, Sized if scaling is set, and Available
	// and Progressing of the Deployment.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
