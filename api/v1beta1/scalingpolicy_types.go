// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// ScalingPolicyKind is the kind of a ScalingPolicy in owner references.
	ScalingPolicyKind = "ScalingPolicy"
	// ClusterScalingPolicyKind is the kind of a ClusterScalingPolicy in owner references.
	ClusterScalingPolicyKind = "ClusterScalingPolicy"

	// PolicyLabel is on every VerticalScaler that a policy has created. Its value is the name of
	// the policy.
	PolicyLabel = "autoscaling.verticalscaler.io/policy"

	// ExcludeAnnotation on a Deployment or a namespace excludes it from all policies, whatever
	// its value is, except "false".
	ExcludeAnnotation = "autoscaling.verticalscaler.io/exclude"

	// DetachedAnnotation on a VerticalScaler that a policy has created makes it one of its
	// users: the policy gives up ownership and does not change or delete it anymore. It works
	// whatever its value is, except "false".
	DetachedAnnotation = "autoscaling.verticalscaler.io/detached"

	// PromotedAnnotation is on a VerticalScaler that its policy has promoted from rollout.start
	// to the update mode of the template. Its value is the time, in RFC 3339.
	PromotedAnnotation = "autoscaling.verticalscaler.io/promoted"

	// HarmedAnnotation is on a promoted VerticalScaler that has reverted a change or answered an
	// OOM kill within rollout.verificationSeconds. Its value is the time, in RFC 3339.
	HarmedAnnotation = "autoscaling.verticalscaler.io/harmed"
)

// IsPolicy reports whether the owner is a ScalingPolicy or a ClusterScalingPolicy of this API version, as the admission
// policies do. The garbage collector knows no other.
func IsPolicy(owner *metav1.OwnerReference) bool {
	return owner != nil && owner.APIVersion == GroupVersion.String() && (owner.Kind == ScalingPolicyKind || owner.Kind == ClusterScalingPolicyKind)
}

// SystemNamespaces decides whether a policy selects Deployments of system namespaces.
// +kubebuilder:validation:Enum=Exclude;Include
type SystemNamespaces string

const (
	// SystemNamespacesExclude leaves system namespaces alone.
	SystemNamespacesExclude SystemNamespaces = "Exclude"
	// SystemNamespacesInclude treats system namespaces like any other.
	SystemNamespacesInclude SystemNamespaces = "Include"
)

// ScalingPolicy creates a VerticalScaler for each selected Deployment of its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=spolicy,categories=autoscaling
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.template.updatePolicy.updateMode`
// +kubebuilder:printcolumn:name="Deployments",type=string,JSONPath=`.status.summary.deployments`,description="Deployments with a scaler of this policy / selected Deployments"
// +kubebuilder:printcolumn:name="Promoted",type=string,JSONPath=`.status.summary.promoted`,description="Promoted scalers / scalers of this policy"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters: it is used as a label value",reason=FieldValueInvalid
// +operator-sdk:csv:customresourcedefinitions:displayName="Scaling Policy",resources={{VerticalScaler,v1beta1},{Deployment,v1},{Event,v1}}
type ScalingPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects Deployments of this namespace and says how they are sized.
	// +required
	Spec ScalingPolicySpec `json:"spec"`

	// status has the observations of the operator.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ScalingPolicyStatus `json:"status,omitzero"`
}

// ScalingPolicyList is a list of ScalingPolicies.
// +kubebuilder:object:root=true
type ScalingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ScalingPolicy `json:"items"`
}

// ScalingPolicySpec selects Deployments of the policy's namespace and says how they are sized.
type ScalingPolicySpec struct {
	// exclude lists Deployments that the policy leaves alone. Unset means none.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Exclude"
	Exclude *DeploymentExclusions `json:"exclude,omitempty"`

	PolicyRules `json:",inline"`
}

// ClusterScalingPolicy creates a VerticalScaler for each selected Deployment of the selected
// namespaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=cspolicy,categories=autoscaling
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.template.updatePolicy.updateMode`
// +kubebuilder:printcolumn:name="Deployments",type=string,JSONPath=`.status.summary.deployments`,description="Deployments with a scaler of this policy / selected Deployments"
// +kubebuilder:printcolumn:name="Promoted",type=string,JSONPath=`.status.summary.promoted`,description="Promoted scalers / scalers of this policy"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters: it is used as a label value",reason=FieldValueInvalid
// +operator-sdk:csv:customresourcedefinitions:displayName="Cluster Scaling Policy",resources={{VerticalScaler,v1beta1},{Deployment,v1},{Event,v1}}
type ClusterScalingPolicy struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec selects Deployments of all namespaces and says how they are sized.
	// +required
	Spec ClusterScalingPolicySpec `json:"spec"`

	// status has the observations of the operator.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status ScalingPolicyStatus `json:"status,omitzero"`
}

// ClusterScalingPolicyList is a list of ClusterScalingPolicies.
// +kubebuilder:object:root=true
type ClusterScalingPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ClusterScalingPolicy `json:"items"`
}

// ClusterScalingPolicySpec selects Deployments of all namespaces and says how they are sized.
type ClusterScalingPolicySpec struct {
	// namespaceSelector selects namespaces by their labels. It must not be empty. To select all
	// namespaces, use the label that each has: {key: kubernetes.io/metadata.name, operator: Exists}.
	// +required
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="must not be empty: select namespaces by their labels, or all of them with {matchExpressions: [{key: kubernetes.io/metadata.name, operator: Exists}]}"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Namespace selector",xDescriptors="urn:alm:descriptor:com.tectonic.ui:selector:core:v1:Namespace"
	NamespaceSelector metav1.LabelSelector `json:"namespaceSelector"`

	// systemNamespaces decides whether system namespaces are selected like others: those whose
	// names begin with kube- or openshift-, openshift, and the operator's own. Exclude leaves them
	// alone. Defaults to Exclude.
	// +optional
	// +kubebuilder:default=Exclude
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="System namespaces",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Exclude","urn:alm:descriptor:com.tectonic.ui:select:Include"}
	SystemNamespaces SystemNamespaces `json:"systemNamespaces,omitempty"`

	// exclude lists namespaces and Deployments that the policy leaves alone. Unset means none.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Exclude"
	Exclude *ClusterExclusions `json:"exclude,omitempty"`

	PolicyRules `json:",inline"`
}

// PolicyRules are the fields that both kinds of policies have.
type PolicyRules struct {
	// deploymentSelector selects Deployments by their labels. It must not be empty. Unset means
	// all Deployments.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="must not be empty: select Deployments by their labels, or leave deploymentSelector out to select all"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Deployment selector",xDescriptors="urn:alm:descriptor:com.tectonic.ui:selector:apps:v1:Deployment"
	DeploymentSelector *metav1.LabelSelector `json:"deploymentSelector,omitempty"`

	// priority decides between policies of the same kind for a Deployment: the highest applies, and
	// of equal ones the oldest. A ScalingPolicy comes before a ClusterScalingPolicy, and a
	// VerticalScaler of a user before both. Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Priority",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	Priority int32 `json:"priority,omitempty"`

	// rollout configures the promotion of scalers to the update mode of the template.
	// +optional
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Rollout"
	Rollout PolicyRollout `json:"rollout,omitzero"`

	// template is the spec of each scaler, without the name of the Deployment. Its
	// updatePolicy.updateMode is the mode of promoted scalers.
	// +optional
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Template"
	Template Scaling `json:"template,omitzero"`
}

// DeploymentExclusions are Deployments that a policy leaves alone.
type DeploymentExclusions struct {
	// deployments are names of Deployments.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Deployments []string `json:"deployments,omitempty"`

	// deploymentSelector excludes Deployments by their labels. It must not be empty.
	// +optional
	// +kubebuilder:validation:XValidation:rule="(has(self.matchLabels) && self.matchLabels.size() > 0) || (has(self.matchExpressions) && self.matchExpressions.size() > 0)",message="must not be empty: an empty selector would exclude all Deployments"
	DeploymentSelector *metav1.LabelSelector `json:"deploymentSelector,omitempty"`
}

// ClusterExclusions are namespaces and Deployments that a policy leaves alone.
type ClusterExclusions struct {
	// namespaces are names of namespaces.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Namespaces []string `json:"namespaces,omitempty"`

	DeploymentExclusions `json:",inline"`
}

// PolicyRollout configures the promotion of scalers from start to the update mode of the template.
type PolicyRollout struct {
	// start is the update mode of new scalers until they are promoted. With that of the template,
	// none is promoted. Defaults to Recommend.
	// +optional
	// +kubebuilder:default=Recommend
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Start",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Recommend","urn:alm:descriptor:com.tectonic.ui:select:Initial","urn:alm:descriptor:com.tectonic.ui:select:InPlace","urn:alm:descriptor:com.tectonic.ui:select:Rollout"}
	Start UpdateMode `json:"start,omitempty"`

	// afterSeconds is the time in which a scaler's recommendations must have been enough to promote
	// it, in seconds. A container that uses more memory than was recommended begins again. 0 means
	// any recommendation is enough. Defaults to 604800, 7 days.
	// +optional
	// +kubebuilder:default=604800
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2592000
	AfterSeconds *int32 `json:"afterSeconds,omitempty"`

	// maxStarvedPercent is the largest share of that time in which a pod may have used more CPU
	// than was recommended, as the mean of the pods, in percent. With more, the container begins
	// again. Defaults to 3.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxStarvedPercent *int32 `json:"maxStarvedPercent,omitempty"`

	// maxConcurrentPercent is the percentage of the policy's scalers that may be verified at the
	// same time, at least one scaler. Defaults to 5.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxConcurrentPercent *int32 `json:"maxConcurrentPercent,omitempty"`

	// verificationSeconds is the duration of the verification of a promoted scaler, in seconds. A
	// reverted change and an OOM kill in this time count as harm. Defaults to 86400, a day.
	// +optional
	// +kubebuilder:default=86400
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=604800
	VerificationSeconds *int32 `json:"verificationSeconds,omitempty"`

	// maxHarmedPercent is the largest share of promoted scalers that may do harm, in percent.
	// Promotion halts if there were more within a week, and at least three. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	MaxHarmedPercent *int32 `json:"maxHarmedPercent,omitempty"`

	// resumeTime continues a halted promotion: harm until this time does not count. Unset means
	// that all harm counts.
	// +optional
	ResumeTime *metav1.Time `json:"resumeTime,omitempty"`
}

// ScalingPolicyStatus has the observations of the operator. Its size does not depend on the number of
// Deployments.
type ScalingPolicyStatus struct {
	// observedGeneration is the metadata.generation that this status describes, or -1 before the
	// first reconcile.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// summary has the values that kubectl get shows.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Summary"
	Summary *PolicySummary `json:"summary,omitempty"`

	// selected is the number of Deployments that the selectors match, without excluded ones.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Selected Deployments"
	Selected int32 `json:"selected"`

	// scaled is the number of selected Deployments with a scaler of this policy.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Scaled Deployments"
	Scaled int32 `json:"scaled"`

	// skipped are the matching Deployments that the policy does not size, by reason, the most
	// frequent first.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Skipped Deployments"
	Skipped []PolicyCount `json:"skipped,omitempty"`

	// states are the scalers of this policy by the reason in their summary, the eight most
	// frequent.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=8
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="States"
	States []PolicyCount `json:"states,omitempty"`

	// unsizedNewPods are the scalers whose new pods start as in the pod template, not at the decided
	// size: by the reason in their condition NewPodsSized, the eight most frequent. Nodes then need
	// room for the template's requests whenever pods are created or moved.
	// +optional
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=8
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Unsized new pods"
	UnsizedNewPods []PolicyCount `json:"unsizedNewPods,omitempty"`

	// rollout is the progress of the promotion.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Rollout"
	Rollout *PolicyRolloutStatus `json:"rollout,omitempty"`

	// savings are the reductions of the Deployments' requests, decided and recommended. Unset before
	// the first recommendation.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Savings"
	Savings *PolicySavings `json:"savings,omitempty"`

	// conditions are Ready, Promoting, Reconciling and Stalled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PolicySummary has the values that kubectl get shows.
type PolicySummary struct {
	// deployments is the number of Deployments with a scaler of this policy, of all that are
	// selected: "480/500".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Deployments",xDescriptors="urn:alm:descriptor:text"
	Deployments string `json:"deployments,omitempty"`
	// promoted is the number of promoted scalers, of all scalers of this policy: "24/480".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Promoted",xDescriptors="urn:alm:descriptor:text"
	Promoted string `json:"promoted,omitempty"`
}

// PolicyCount is the number of Deployments with one reason.
type PolicyCount struct {
	// reason is the reason in one word.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason,omitempty"`
	// count is the number of Deployments with that reason.
	// +required
	Count int32 `json:"count"`
	// examples are some of them, as "<namespace>/<name>".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=320
	Examples []string `json:"examples,omitempty"`
	// message explains the reason and the action to take. Unset if the reason needs no explanation.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// PolicyRolloutStatus is the progress of the promotion of a policy's scalers.
type PolicyRolloutStatus struct {
	// collecting is the number of scalers that have too little evidence to be promoted.
	// +optional
	Collecting int32 `json:"collecting"`
	// waiting is the number of scalers that can be promoted and wait for their turn.
	// +optional
	Waiting int32 `json:"waiting"`
	// verifying is the number of promoted scalers that are being verified.
	// +optional
	Verifying int32 `json:"verifying"`
	// promoted is the number of all promoted scalers, with those that are being verified.
	// +optional
	Promoted int32 `json:"promoted"`
	// harmed is the number of promoted scalers that did harm while they were verified.
	// +optional
	Harmed int32 `json:"harmed"`
	// harmedExamples are the last three of them, as "<namespace>/<name>".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=320
	HarmedExamples []string `json:"harmedExamples,omitempty"`
	// halts are where promotion has halted, since when and why; the newest ones of more than 16. A halt
	// stays until spec.rollout.resumeTime is its time or later, or the policy has no scaler there.
	// +optional
	// +listType=map
	// +listMapKey=namespace
	// +kubebuilder:validation:MaxItems=16
	Halts []PolicyHalt `json:"halts,omitempty"`
}

// PolicyHalt is a halt of the promotion of a policy.
type PolicyHalt struct {
	// namespace is the namespace in which promotion has halted. "*" stands for all namespaces.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// time is the time of the last harm.
	// +required
	Time metav1.Time `json:"time,omitzero"`
	// message is the cause.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// PolicySavings are the savings of a policy for all pods, compared with their pod templates,
// rounded to two digits. Negative means more.
type PolicySavings struct {
	// applied is the reduction that promoted scalers have decided.
	// +optional
	Applied Savings `json:"applied,omitzero"`
	// recommended is the reduction that the other scalers recommend.
	// +optional
	Recommended Savings `json:"recommended,omitzero"`
}

// Savings is an amount of each resource, which may be negative.
type Savings struct {
	// cpu is the amount of CPU, in cores. Unset means unknown.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// memory is the amount of memory, in bytes. Unset means unknown.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	Memory *resource.Quantity `json:"memory,omitempty"`
}
