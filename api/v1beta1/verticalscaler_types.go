// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// ClaimAnnotation is a key in status.annotations. Its value, "<namespace>/<deploymentName>",
	// tells the operator which scaler to reconcile when that Deployment changes. It grants
	// no rights.
	ClaimAnnotation = "autoscaling.verticalscaler.io/deployment"

	// PausedAnnotation stops the operator from changing the Deployment or its pods, whatever
	// its value is, except "false". The value is shown as the reason. It is the emergency stop
	// beside spec.suspend.
	PausedAnnotation = "autoscaling.verticalscaler.io/paused"

	// LeaseName is the name of the Lease that the operator's leader renews every 5 seconds, in
	// the operator's namespace. It shows whether an operator runs.
	LeaseName = "verticalscaler.autoscaling.verticalscaler.io"

	// FreezeName is the name of the ConfigMap in the operator's namespace that stops all changes.
	FreezeName = "verticalscaler-freeze"

	// VersionLabel is the label of the Lease with the version of the leader, such as "v0.1.0".
	VersionLabel = "app.kubernetes.io/version"

	// UsageLabel is the label of the Lease with UsageMissing or UsageReported.
	UsageLabel = "autoscaling.verticalscaler.io/usage"

	// UsageMissing is its value while usage of nearly all pods is missing.
	UsageMissing = "Missing"

	// UsageReported is its value otherwise.
	UsageReported = "Reported"

	// FallbackLabel is the label of the Lease with the fallback of scalers that name none.
	FallbackLabel = "autoscaling.verticalscaler.io/fallback"

	// RestoreFinalizer is on a scaler only while the operator owns fields of the Deployment's
	// pod template whose original values it has to restore.
	RestoreFinalizer = "autoscaling.verticalscaler.io/restore-original-resources"

	// AnyContainer is the containerName of the policy for all containers that have no
	// policy of their own.
	AnyContainer = "*"
)

// UpdateMode is the way in which the operator applies recommendations.
// +kubebuilder:validation:Enum=Recommend;Initial;InPlace;Rollout
type UpdateMode string

const (
	// UpdateModeRecommend recommends and changes nothing.
	UpdateModeRecommend UpdateMode = "Recommend"
	// UpdateModeInitial sizes new pods when they are created and leaves running pods alone.
	UpdateModeInitial UpdateMode = "Initial"
	// UpdateModeInPlace resizes running pods without restarting them.
	UpdateModeInPlace UpdateMode = "InPlace"
	// UpdateModeRollout writes the requests into the Deployment's pod template. The
	// Deployment replaces its pods by its own strategy.
	UpdateModeRollout UpdateMode = "Rollout"
)

// Fallback is the action of InPlace for a pod that cannot be resized in place.
// +kubebuilder:validation:Enum=Wait;RecreateUnderPressure;Recreate;Rollout
type Fallback string

const (
	// FallbackWait leaves the pod as it is and reports why.
	FallbackWait Fallback = "Wait"
	// FallbackRecreateUnderPressure is deprecated and means Recreate.
	FallbackRecreateUnderPressure Fallback = "RecreateUnderPressure"
	// FallbackRecreate evicts a pod that its size hurts. The API server sizes its replacement.
	FallbackRecreate Fallback = "Recreate"
	// FallbackRollout writes the requests into the Deployment's pod template, as the update
	// mode Rollout does.
	FallbackRollout Fallback = "Rollout"
)

// NewPodPolicy selects the initial size of new pods in the mode InPlace.
// +kubebuilder:validation:Enum=Sized;AsTemplate
type NewPodPolicy string

const (
	// NewPodsSized gives new pods the decided size when they are created.
	NewPodsSized NewPodPolicy = "Sized"
	// NewPodsAsTemplate leaves new pods as in the pod template until they run.
	NewPodsAsTemplate NewPodPolicy = "AsTemplate"
)

// ContainerMode decides whether the operator manages a container's resources.
// +kubebuilder:validation:Enum=Auto;Off
type ContainerMode string

const (
	// ContainerModeAuto manages the container's resources.
	ContainerModeAuto ContainerMode = "Auto"
	// ContainerModeOff leaves the container's resources alone.
	ContainerModeOff ContainerMode = "Off"
)

// ControlledResource is a resource that the operator can manage.
// +kubebuilder:validation:Enum=cpu;memory
type ControlledResource string

const (
	// ControlledCPU is CPU.
	ControlledCPU ControlledResource = "cpu"
	// ControlledMemory is memory.
	ControlledMemory ControlledResource = "memory"
)

// ControlledValues says which of a container's values the operator manages.
// +kubebuilder:validation:Enum=RequestsAndLimitRaises;RequestsAndLimits;RequestsOnly
type ControlledValues string

const (
	// RequestsAndLimitRaises changes requests, and raises a limit that its request needs higher. It
	// lowers no limit of a running container.
	RequestsAndLimitRaises ControlledValues = "RequestsAndLimitRaises"
	// RequestsAndLimits changes limits together with requests, up and down.
	RequestsAndLimits ControlledValues = "RequestsAndLimits"
	// RequestsOnly leaves limits as they are. A request is never raised above its limit.
	RequestsOnly ControlledValues = "RequestsOnly"
)

// VerticalScaler keeps the CPU and memory of one Deployment's pods at what they need.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vscaler,categories=autoscaling
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.deploymentName`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.updatePolicy.updateMode`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.summary.cpu`,description="CPU request of a pod: current->target"
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.summary.memory`,description="Memory request of a pod: current->target"
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.summary.pods`,description="Pods at the target / all pods"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.summary.reason`,description="Reason of Ready, or of Applied while the scaler operates normally"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Fallback",type=string,JSONPath=`.spec.updatePolicy.fallback`,priority=1
// +kubebuilder:printcolumn:name="Profile",type=string,JSONPath=`.spec.recommendationPolicy.profile`,priority=1
// +kubebuilder:printcolumn:name="Changed",type=date,JSONPath=`.status.decision.time`,priority=1,description="Time since the last decision"
// +kubebuilder:selectablefield:JSONPath=`.spec.deploymentName`
// +kubebuilder:selectablefield:JSONPath=`.spec.updatePolicy.updateMode`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters: it is used as a label value",reason=FieldValueInvalid
// +operator-sdk:csv:customresourcedefinitions:displayName="Vertical Scaler",resources={{Deployment,v1},{ReplicaSet,v1},{Pod,v1},{Node,v1},{LimitRange,v1},{ResourceQuota,v1},{HorizontalPodAutoscaler,v2},{Event,v1},{VerticalScalerCheckpoint,v1beta1}}
type VerticalScaler struct {
	metav1.TypeMeta `json:",inline"`

	// metadata is the standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired sizing of the Deployment.
	// +required
	Spec VerticalScalerSpec `json:"spec,omitzero"`

	// status has the observations, decisions and changes of the operator.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status VerticalScalerStatus `json:"status,omitzero"`
}

// VerticalScalerList is a list of VerticalScalers.
// +kubebuilder:object:root=true
type VerticalScalerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VerticalScaler `json:"items"`
}

// VerticalScalerSpec names the Deployment to size and sets the rules for it.
type VerticalScalerSpec struct {
	// deploymentName is the name of the Deployment to size, in the scaler's namespace. It need not
	// exist yet. When the name changes, the operator first restores the old Deployment.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Deployment in this namespace: use lowercase letters, digits, '-' and '.', and start and end with a letter or digit"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Deployment name",xDescriptors="urn:alm:descriptor:io.kubernetes:Deployment"
	DeploymentName string `json:"deploymentName,omitempty"`

	Scaling `json:",inline"`
}

// Scaling configures the sizing of a Deployment.
type Scaling struct {
	// suspend stops the operator from changing anything. It still observes and recommends. Values
	// in a pod template stay; updateMode Recommend restores them. Defaults to false.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Suspend",xDescriptors="urn:alm:descriptor:com.tectonic.ui:booleanSwitch"
	Suspend bool `json:"suspend,omitempty"`

	// updatePolicy configures how and when recommendations are applied.
	// +optional
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Update policy"
	UpdatePolicy UpdatePolicy `json:"updatePolicy,omitzero"`

	// resourcePolicy limits the recommendations for each container. Unset means no limits.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resource policy"
	ResourcePolicy *ResourcePolicy `json:"resourcePolicy,omitempty"`

	// recommendationPolicy configures the reserve in recommendations. Unset means the profile
	// Balanced.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Recommendation policy"
	RecommendationPolicy *RecommendationPolicy `json:"recommendationPolicy,omitempty"`
}

// UpdatePolicy configures how and when recommendations are applied.
type UpdatePolicy struct {
	// updateMode is the way in which recommendations are applied. Recommend changes nothing.
	// Initial sizes new pods only. InPlace resizes running pods without restarting them. Rollout
	// writes the requests into the Deployment's pod template, and the Deployment replaces its
	// pods. Defaults to InPlace.
	// +optional
	// +kubebuilder:default=InPlace
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Update mode",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Recommend","urn:alm:descriptor:com.tectonic.ui:select:Initial","urn:alm:descriptor:com.tectonic.ui:select:InPlace","urn:alm:descriptor:com.tectonic.ui:select:Rollout"}
	UpdateMode UpdateMode `json:"updateMode,omitempty"`

	// fallback is the action of InPlace for a pod that cannot be resized in place. The node
	// may be too small, have had no room for ten minutes, or not support resizing. A resize may
	// also change the QoS class or restart a container. Wait leaves the pod as it is and reports
	// why. Recreate evicts a pod that its size hurts, one at a time, if the PodDisruptionBudget
	// allows it, and the API server sizes its replacement. A pod is hurt if it lacks memory, or CPU
	// on a node whose CPU is in use to 90 %. It is also hurt if its CPU limit is below the decided
	// request, or if it can never be resized in place. RecreateUnderPressure is
	// deprecated and means Recreate. Rollout writes the requests into the Deployment's pod template,
	// which replaces all pods. Other update modes ignore fallback. Without fallback, it is Recreate
	// if the operator may evict pods (recreate.yaml) and new pods get their size, and Wait otherwise.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Fallback",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Wait","urn:alm:descriptor:com.tectonic.ui:select:Recreate","urn:alm:descriptor:com.tectonic.ui:select:Rollout"}
	Fallback Fallback `json:"fallback,omitempty"`

	// newPods selects the initial size of new pods in InPlace. Sized gives them the decided size,
	// or the one before while a lower size is being verified, if the policy for that is installed
	// (new-pods.yaml, Kubernetes 1.36). AsTemplate leaves them as in the pod template until they
	// run. updateMode Initial and the fallbacks that evict pods always size new pods. Other update
	// modes ignore newPods. Defaults to Sized.
	// +optional
	// +kubebuilder:default=Sized
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="New pods",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Sized","urn:alm:descriptor:com.tectonic.ui:select:AsTemplate"}
	NewPods NewPodPolicy `json:"newPods,omitempty"`

	// minReplicas is the number of replicas that a fallback needs to evict pods. With 1, a
	// Deployment of one pod is unavailable until the replacement is ready. Defaults to 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Minimum replicas for evictions",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// cooldownSeconds is the minimum time between two decisions, in seconds. Urgent changes do not
	// wait: after an OOM kill, or below the lower bound. 0 means no cooldown. Defaults to 300.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Cooldown in seconds",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	CooldownSeconds *int32 `json:"cooldownSeconds,omitempty"`

	// tolerancePercent is the smallest change that is applied, in percent of the request. Urgent
	// changes ignore it: after an OOM kill, below the lower bound, and outside minAllowed and
	// maxAllowed. 0 applies every change. Defaults to 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Tolerance in percent",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	TolerancePercent *int32 `json:"tolerancePercent,omitempty"`

	// verificationSeconds is the time in which changed pods must stay healthy before a change is
	// final, in seconds. A request is lowered in place in a quarter of the pods first, and in the others
	// after this time. If changed pods do clearly worse than unchanged ones, the change is
	// reverted. 0 turns verification off. Defaults to 120.
	// +optional
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Verification in seconds",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	VerificationSeconds *int32 `json:"verificationSeconds,omitempty"`

	// scaleUp limits changes that raise a request. Its controlledResources must be unset. Unset
	// means no extra limits.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.controlledResources)",message="must be unset in scaleUp: a request that stays too small ends in OOM kills or throttling",fieldPath=".controlledResources"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Scale up",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	ScaleUp *DirectionPolicy `json:"scaleUp,omitempty"`

	// scaleDown limits changes that lower a request. Its maxStepPercent must be below 100.
	// Unset means no extra limits.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.maxStepPercent) || self.maxStepPercent < 100",message="must be below 100 in scaleDown: a request cannot be lowered by 100 percent",fieldPath=".maxStepPercent"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Scale down",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	ScaleDown *DirectionPolicy `json:"scaleDown,omitempty"`

	// windows are the times when requests may be changed. A direction that is in no window never
	// waits, nor do urgent changes: after an OOM kill, below the lower bound, and outside
	// minAllowed and maxAllowed. Unset means always.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Windows",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Windows []UpdateWindow `json:"windows,omitempty"`
}

// DirectionPolicy limits the changes of one direction.
type DirectionPolicy struct {
	// cooldownSeconds is the minimum time between the last decision, in either direction,
	// and one in this direction, in seconds. 0 means no cooldown. Defaults to
	// updatePolicy.cooldownSeconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	CooldownSeconds *int32 `json:"cooldownSeconds,omitempty"`

	// maxStepPercent is the most that one decision changes a request, in percent of the request. An
	// urgent change ignores it as far as needed: to the lower bound, minAllowed or maxAllowed, and
	// entirely after an OOM kill. Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxStepPercent *int32 `json:"maxStepPercent,omitempty"`

	// controlledResources are the resources that are lowered for less usage. Any other is
	// raise-only: its request falls neither below its current value nor below the template's. It
	// still falls to maxAllowed, to a LimitRange, or if a raise is reverted. Only for scaleDown.
	// Defaults to cpu and memory.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	ControlledResources []ControlledResource `json:"controlledResources,omitempty"`
}

// ChangeDirection is the direction in which a request changes.
// +kubebuilder:validation:Enum=ScaleUp;ScaleDown
type ChangeDirection string

// The directions.
const (
	DirectionScaleUp   ChangeDirection = "ScaleUp"
	DirectionScaleDown ChangeDirection = "ScaleDown"
)

// UpdateWindow is a recurring time when requests may be changed.
type UpdateWindow struct {
	// schedule has the opening times: a cron expression of five fields, such as "0 2 * * SAT".
	// The fields are minute, hour, day of month, month (1-12 or JAN-DEC) and day of week (0-6 or
	// SUN-SAT). Each is a number, a range 1-5, a list 1,3 or *, optionally with a step /2. If both
	// days are restricted, either one is enough. With an invalid schedule, the window never opens
	// and the scaler is Stalled (InvalidWindow).
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9A-Za-z*?,/-]+( +[0-9A-Za-z*?,/-]+){4}$')",message="must be a cron expression of five fields, such as '0 2 * * SAT': minute, hour, day of month, month, day of week"
	Schedule string `json:"schedule,omitempty"`

	// timeZone is the IANA name of the schedule's time zone, such as Europe/Berlin. A time that
	// clocks skip is the end of the gap; of one that occurs twice, the first counts. Defaults to
	// UTC.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local' && self.matches('^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$') && timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",message="must be the IANA name of a time zone, such as Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`

	// durationMinutes is the duration of the window, in minutes of elapsed time, from 1 to
	// 10080 (a week). A decision made in it is completed later; a rollout must start in it.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10080
	DurationMinutes int32 `json:"durationMinutes,omitempty"`

	// directions are the changes that the window applies to. Defaults to both.
	// +optional
	// +listType=set
	// +kubebuilder:default={ScaleUp,ScaleDown}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Directions []ChangeDirection `json:"directions,omitempty"`
}

// ResourcePolicy limits recommendations.
type ResourcePolicy struct {
	// containerPolicies has at most one policy for each container; "*" applies to all others. A
	// container without any policy gets the defaults.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=32
	ContainerPolicies []ContainerPolicy `json:"containerPolicies,omitempty"`
}

// For returns the policy that names the container, or else the policy "*", or else the
// zero value, which means the defaults.
func (p *ResourcePolicy) For(container string) (policy ContainerPolicy) {
	if p == nil {
		return policy
	}
	for _, one := range p.ContainerPolicies {
		switch one.ContainerName {
		case container:
			return one
		case AnyContainer:
			policy = one
		}
	}
	return policy
}

// The rules that compare quantities are long on purpose. The API server estimates the
// cost of a rule from the lengths in the schema, and it loses them behind optional
// fields (self.?minAllowed.?cpu).

// ContainerPolicy limits the recommendations for one container.
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.maxAllowed) || !has(self.minAllowed.cpu) || !has(self.maxAllowed.cpu) || [self.minAllowed.cpu, self.maxAllowed.cpu].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.cpu)).compareTo(quantity(string(self.maxAllowed.cpu))) <= 0",message="minAllowed.cpu must be at most maxAllowed.cpu",fieldPath=".minAllowed"
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.maxAllowed) || !has(self.minAllowed.memory) || !has(self.maxAllowed.memory) || [self.minAllowed.memory, self.maxAllowed.memory].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.memory)).compareTo(quantity(string(self.maxAllowed.memory))) <= 0",message="minAllowed.memory must be at most maxAllowed.memory",fieldPath=".minAllowed"
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.limits) || !has(self.limits.maxAllowed) || !has(self.minAllowed.cpu) || !has(self.limits.maxAllowed.cpu) || [self.minAllowed.cpu, self.limits.maxAllowed.cpu].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.cpu)).compareTo(quantity(string(self.limits.maxAllowed.cpu))) <= 0",message="minAllowed.cpu must be at most limits.maxAllowed.cpu",fieldPath=".minAllowed"
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.limits) || !has(self.limits.maxAllowed) || !has(self.minAllowed.memory) || !has(self.limits.maxAllowed.memory) || [self.minAllowed.memory, self.limits.maxAllowed.memory].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.memory)).compareTo(quantity(string(self.limits.maxAllowed.memory))) <= 0",message="minAllowed.memory must be at most limits.maxAllowed.memory",fieldPath=".minAllowed"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.controlledValues) || self.controlledValues != 'RequestsOnly'",message="must be unset with controlledValues RequestsOnly, which leaves limits as they are",fieldPath=".limits"
// +kubebuilder:validation:XValidation:rule="!has(self.startupBoost) || ((!has(self.mode) || self.mode != 'Off') && (!has(self.controlledResources) || 'cpu' in self.controlledResources))",message="must be unset unless cpu is managed: set mode to Auto and add cpu to controlledResources",fieldPath=".startupBoost"
type ContainerPolicy struct {
	// containerName is the name of a container in the pod template, or "*" for all others.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '*' || !format.dns1123Label().validate(self).hasValue()",message="must be '*' or the name of a container: use lowercase letters, digits and '-', and start and end with a letter or digit"
	ContainerName string `json:"containerName,omitempty"`

	// mode decides whether the container is managed: Auto, or "Off" in quotes. Defaults to Auto.
	// +optional
	// +kubebuilder:default=Auto
	Mode ContainerMode `json:"mode,omitempty"`

	// controlledResources are the resources that are managed. Defaults to cpu and memory.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	ControlledResources []ControlledResource `json:"controlledResources,omitempty"`

	// controlledValues decides whether limits change with requests. RequestsAndLimitRaises raises a
	// limit to the template's ratio of limit to request, or as the limits policy says, and lowers no
	// limit of a running container. Guaranteed pods keep their QoS class, so their memory is only raised.
	// RequestsAndLimits also lowers limits. A process that has sized its heap or its workers from the
	// limit can then be OOM-killed, and a start can be throttled. Use it where a quota counts limits.
	// RequestsOnly leaves limits as they are. Defaults to RequestsAndLimitRaises.
	// +optional
	// +kubebuilder:default=RequestsAndLimitRaises
	ControlledValues ControlledValues `json:"controlledValues,omitempty"`

	// minAllowed is the minimum request. Unset means no minimum.
	// +optional
	MinAllowed *ResourceBounds `json:"minAllowed,omitempty"`

	// maxAllowed is the maximum request. Unset means no maximum.
	// +optional
	MaxAllowed *ResourceBounds `json:"maxAllowed,omitempty"`

	// limits configures limits, which follow their requests. The operator never adds or removes a
	// limit, sets one below its request, or raises one above the maximum of a LimitRange. Unset
	// keeps the template's ratio.
	// +optional
	Limits *LimitPolicy `json:"limits,omitempty"`

	// startupBoost gives the container more CPU at startup. Only updateMode InPlace applies it.
	// If unset, starts get the CPU that the operator has seen them need when the limit throttled them.
	// +optional
	StartupBoost *StartupBoost `json:"startupBoost,omitempty"`
}

// StartupBoost gives a container more of a resource at startup.
type StartupBoost struct {
	// cpu is the CPU boost. New pods are created with it if updatePolicy.newPods is Sized, and
	// updatePolicy.fallback is Wait or Recreate. Otherwise, and for a restarted container,
	// it starts when the operator sees the pod. It ends durationSeconds after the pod is Ready, or after
	// 10 minutes plus durationSeconds. The CPU request is then lowered in place to the decided one.
	// +required
	CPU *CPUStartupBoost `json:"cpu,omitempty"`
}

// StartupBoostType says how the boost is computed.
// +kubebuilder:validation:Enum=Factor;Quantity
type StartupBoostType string

const (
	// BoostFactor multiplies the request.
	BoostFactor StartupBoostType = "Factor"
	// BoostQuantity adds to the request.
	BoostQuantity StartupBoostType = "Quantity"
)

// CPUStartupBoost is additional CPU for a starting container. Limits follow controlledValues and
// limits. The boosted request respects the same bounds as any request; if the boost is not
// possible, the decided request applies. A boost waits for no cooldown and no window.
// +kubebuilder:validation:XValidation:rule="has(self.factor) == (self.type == 'Factor')",message="must be set if type is Factor, and unset otherwise",fieldPath=".factor"
// +kubebuilder:validation:XValidation:rule="has(self.quantity) == (self.type == 'Quantity')",message="must be set if type is Quantity, and unset otherwise",fieldPath=".quantity"
type CPUStartupBoost struct {
	// type is the calculation of the boost: Factor multiplies the request, Quantity adds to it.
	// +required
	Type StartupBoostType `json:"type,omitempty"`

	// factor is the number that the request is multiplied by, from 1 to 100. With 1, the
	// request is only not lowered during startup.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Factor *int32 `json:"factor,omitempty"`

	// quantity is the CPU to add to the request, in cores: "500m" or 2. It must be from 1m
	// to 10k, in whole millicores.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}') && isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1m')) >= 0 && quantity(string(self)).compareTo(quantity('10k')) <= 0",message="must be a quantity of CPU from 1m to 10k, such as 250m or 2"
	// +kubebuilder:validation:XValidation:rule="type(self) == int || !string(self).matches('[nu]$|[.][0-9]*m$|[.][0-9]{4,}|[.].*[eE]-|[eE]-([^3]|3.)')",message="must be in whole millicores, such as 250m or 0.25"
	Quantity *resource.Quantity `json:"quantity,omitempty"`

	// durationSeconds is the duration of the boost after the pod is Ready, in seconds. 0 ends it as
	// soon as the pod is Ready. Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	DurationSeconds *int32 `json:"durationSeconds,omitempty"`
}

// LimitPolicy configures limits, which follow their requests.
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.maxAllowed) || !has(self.minAllowed.cpu) || !has(self.maxAllowed.cpu) || [self.minAllowed.cpu, self.maxAllowed.cpu].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.cpu)).compareTo(quantity(string(self.maxAllowed.cpu))) <= 0",message="minAllowed.cpu must be at most maxAllowed.cpu",fieldPath=".minAllowed"
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.maxAllowed) || !has(self.minAllowed.memory) || !has(self.maxAllowed.memory) || [self.minAllowed.memory, self.maxAllowed.memory].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.memory)).compareTo(quantity(string(self.maxAllowed.memory))) <= 0",message="minAllowed.memory must be at most maxAllowed.memory",fieldPath=".minAllowed"
type LimitPolicy struct {
	// headroomPercent is the headroom of a limit above its request, in percent of the request.
	// It replaces the template's ratio. Unset keeps the ratio.
	// +optional
	HeadroomPercent *ResourcePercents `json:"headroomPercent,omitempty"`

	// minAllowed is the minimum limit. Unset means no minimum.
	// +optional
	MinAllowed *ResourceBounds `json:"minAllowed,omitempty"`

	// maxAllowed is the maximum limit. It also bounds the request of a container that has a limit.
	// A memory limit is not lowered below known usage. Unset means no maximum.
	// +optional
	MaxAllowed *ResourceBounds `json:"maxAllowed,omitempty"`
}

// ResourcePercents is a percentage for each resource.
type ResourcePercents struct {
	// cpu is the percentage for CPU, from 0 to 1000. 0 sets the limit to the request. Unset
	// keeps the template's ratio.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	CPU *int32 `json:"cpu,omitempty"`
	// memory is the percentage for memory, from 0 to 1000. 0 sets the limit to the request.
	// Unset keeps the template's ratio.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Memory *int32 `json:"memory,omitempty"`
}

// Each rule for a quantity checks the exponent first: the API server needs more than half
// a minute to compare 1e99999999 with another quantity.

// ResourceBounds is a minimum or maximum for each resource.
type ResourceBounds struct {
	// cpu is the bound for CPU, in cores: "250m" or 2. It must be from 1m to 10k, in whole
	// millicores. Unset means no bound.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}') && isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1m')) >= 0 && quantity(string(self)).compareTo(quantity('10k')) <= 0",message="must be a quantity of CPU from 1m to 10k, such as 250m or 2"
	// +kubebuilder:validation:XValidation:rule="type(self) == int || !string(self).matches('[nu]$|[.][0-9]*m$|[.][0-9]{4,}|[.].*[eE]-|[eE]-([^3]|3.)')",message="must be in whole millicores, such as 250m or 0.25"
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// memory is the bound for memory, in bytes: "512Mi". It must be from 1Ki to 1Pi.
	// Fractions of a byte are rounded up. Unset means no bound.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}') && isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Ki')) >= 0 && quantity(string(self)).compareTo(quantity('1Pi')) <= 0",message="must be a quantity of memory from 1Ki to 1Pi, such as 512Mi; the suffix m means thousandths, not mega"
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// RecommendationProfile weighs the cost of reserved capacity against the risk of too little.
// +kubebuilder:validation:Enum=Balanced;Frugal;Safe;Calm
type RecommendationProfile string

// The profiles.
const (
	// ProfileBalanced reserves the least capacity that rarely leaves a container short.
	ProfileBalanced RecommendationProfile = "Balanced"
	// ProfileFrugal reserves less capacity, and containers run short more often.
	ProfileFrugal RecommendationProfile = "Frugal"
	// ProfileSafe reserves more capacity, and containers run short less often.
	ProfileSafe RecommendationProfile = "Safe"
	// ProfileCalm means Balanced.
	//
	// Deprecated: it reserved more than Balanced for fewer changes.
	ProfileCalm RecommendationProfile = "Calm"
)

// RecommendationPolicy configures the reserve in recommendations.
type RecommendationPolicy struct {
	// profile weighs the cost of reserved capacity against the risk of too little. Balanced suits
	// most workloads. Frugal reserves less, and Safe reserves more. Calm is deprecated and means
	// Balanced. Defaults to Balanced.
	// +optional
	// +kubebuilder:default=Balanced
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Profile",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Balanced","urn:alm:descriptor:com.tectonic.ui:select:Frugal","urn:alm:descriptor:com.tectonic.ui:select:Safe"}
	Profile RecommendationProfile `json:"profile,omitempty"`

	// safetyMarginPercent is an extra reserve, in percent: added to the CPU level that the profile
	// chooses, and the minimum above the memory peak. The profile alone reserves 8 to 23 percent
	// for memory. In the first hours of usage, CPU gets at least 15 percent, less in the first days,
	// and memory twice the profile's reserve for a day. 0 leaves the reserve to the profile.
	// Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=500
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Safety margin in percent",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	SafetyMarginPercent *int32 `json:"safetyMarginPercent,omitempty"`
}

// VerticalScalerStatus has the observations, decisions and changes of the operator.
type VerticalScalerStatus struct {
	// observedGeneration is the metadata.generation that this status describes, or -1 before the
	// first reconcile.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// annotations has one key, autoscaling.verticalscaler.io/deployment: the Deployment whose
	// changes trigger a reconcile of this scaler, as <namespace>/<name>. Unset while another scaler
	// sizes it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Annotations"
	Annotations map[string]string `json:"annotations,omitempty"`

	// target is the Deployment as last observed. Unset while it does not exist, or while another
	// scaler sizes it.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Target"
	Target *Target `json:"target,omitempty"`

	// summary has the values that kubectl get shows.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Summary"
	Summary *Summary `json:"summary,omitempty"`

	// recommendation has the recommended requests of the containers.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Recommendation"
	Recommendation *Recommendation `json:"recommendation,omitempty"`

	// decision has the requests that the operator decided to apply.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Decision"
	Decision *Decision `json:"decision,omitempty"`

	// revertedChanges are changes that were reverted, newest first. A value that was too low is not
	// tried again, nor are lower ones; of one that was too high, nor are higher ones. This ends
	// when twice as much usage has been observed, after a week, or when the spec is edited.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Reverted changes"
	RevertedChanges []RevertedChange `json:"revertedChanges,omitempty"`

	// originalResources are the values of the pod template before the operator took them over. It
	// restores them when the scaler is deleted or retargeted, or when neither its mode nor its
	// fallback is Rollout.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Original resources"
	OriginalResources *OriginalResources `json:"originalResources,omitempty"`

	// newPods has the values that the API server sets on new pods of the Deployment, in updateMode
	// Initial, and in InPlace with newPods Sized. Unset if it sets nothing.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="New pods"
	NewPods *NewPods `json:"newPods,omitempty"`

	// conditions are Ready, TargetFound, RecommendationProvided, NewPodsSized, Applied, Changing,
	// Reconciling and Stalled. There is also ClusterAccess if the operator can read only a part of
	// the cluster, and ContainersFound if resourcePolicy names a container that the Deployment does
	// not have.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// history has the most recent changes, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="History"
	History []HistoryEntry `json:"history,omitempty"`
}

// Target is the Deployment as last observed.
type Target struct {
	// uid is the Deployment's UID.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`
	// generation is the Deployment's metadata.generation.
	// +required
	Generation int64 `json:"generation"`
	// replicas is the number of pods that the Deployment should have.
	// +required
	Replicas int32 `json:"replicas"`
	// updatedReplicas is the number of its pods that have the newest pod template.
	// +required
	UpdatedReplicas int32 `json:"updatedReplicas"`
}

// Summary has the values that kubectl get shows.
type Summary struct {
	// cpu is the CPU request of one pod: "500m->310m" while 310m is decided, "310m" if no change is
	// needed, and "500m (310m)" while 310m is only recommended. The first amount is the one of the pod
	// furthest from the second.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="CPU",xDescriptors="urn:alm:descriptor:text"
	CPU string `json:"cpu,omitempty"`
	// memory is the memory request of one pod: "512Mi->640Mi", "640Mi" or "512Mi (640Mi)",
	// as for cpu.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Memory",xDescriptors="urn:alm:descriptor:text"
	Memory string `json:"memory,omitempty"`
	// pods is the number of pods that have the decided requests, of all running pods: "6/6".
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Pods",xDescriptors="urn:alm:descriptor:text"
	Pods string `json:"pods,omitempty"`
	// reason is the reason of the condition Ready, or of Applied while the scaler operates normally.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Reason",xDescriptors="urn:alm:descriptor:text"
	Reason string `json:"reason,omitempty"`
	// reasonTime is the time at which reason was set. Unset if the reason is older than this field.
	// +optional
	ReasonTime *metav1.Time `json:"reasonTime,omitempty"`
}

// Recommendation has the recommended requests of the Deployment's containers.
type Recommendation struct {
	// containerRecommendations has one entry for each container with enough history.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	ContainerRecommendations []ContainerRecommendation `json:"containerRecommendations,omitempty"`
}

// Amounts is an amount of each resource.
type Amounts struct {
	// cpu is the amount of CPU, in cores. Unset means none recorded.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// memory is the amount of memory, in bytes. Unset means none recorded.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// ContainerRecommendation has the recommended requests of one container.
type ContainerRecommendation struct {
	// containerName is the container's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName,omitempty"`
	// target is the recommended request.
	// +optional
	Target Amounts `json:"target,omitzero"`
	// lowerBound is the lowest request with which the container is likely to run well.
	// +optional
	LowerBound Amounts `json:"lowerBound,omitzero"`
	// upperBound is the most that the container is likely to need.
	// +optional
	UpperBound Amounts `json:"upperBound,omitzero"`
	// uncappedTarget is the target before minAllowed and maxAllowed apply.
	// +optional
	UncappedTarget Amounts `json:"uncappedTarget,omitzero"`
	// observedSeconds is the observed time behind the target, in seconds. A target is never
	// lowered with less. 0 means none.
	// +optional
	ObservedSeconds int64 `json:"observedSeconds,omitempty"`
	// reasons are the steps from usage to target, in order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Reasons []RecommendationReason `json:"reasons,omitempty"`
}

// RecommendationReason is one step from usage to a target.
type RecommendationReason struct {
	// resource is cpu or memory.
	// +required
	Resource ControlledResource `json:"resource,omitempty"`
	// code is the name of the step: RecentPeak, RecentUsage, DayPeak, WeekPeak, SameTime, Peak,
	// Volatility, LimitedHistory, SafetyMargin, OOMFloor, TemplateRaised, RaiseDidNotHelp, UsageFollowsLimit,
	// Minimum, MinAllowed, MaxAllowed or NotLowered.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Code string `json:"code,omitempty"`
	// margin is the addition of the step to the previous value, as a percentage: "15%" or "12.5%".
	// The sum is rounded up: CPU to millicores, memory to MiB, or to 64 KiB below 64 MiB.
	// Unset means that the step replaces the previous value.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=6
	// +kubebuilder:validation:Pattern=`^[0-9]{1,3}(\.[0-9])?%$`
	Margin string `json:"margin,omitempty"`
	// value is the amount after the step: CPU in cores, memory in bytes.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	Value resource.Quantity `json:"value"`
}

// Decision has the requests that the operator decided to apply.
type Decision struct {
	// time is the time of the decision.
	// +required
	Time metav1.Time `json:"time"`
	// reason is the cause of the decision: OOMKill, Bounds, LowerBound, ScaleUp, ScaleDown,
	// Adopted or Reverted.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// containers are the decided requests of each container.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	Containers []ContainerDecision `json:"containers,omitempty"`
	// appliedToTemplate is true if the Deployment's pod template has had these requests.
	// Defaults to false.
	// +optional
	AppliedToTemplate bool `json:"appliedToTemplate,omitempty"`
	// reverts counts the times at which another writer undid this or an earlier decision, each
	// within a day of the previous one. At 2, the operator stops (Contested). 0 means never.
	// +optional
	Reverts int32 `json:"reverts,omitempty"`
	// lastRevertTime is the time of the last observed revert. Unset means never.
	// +optional
	LastRevertTime *metav1.Time `json:"lastRevertTime,omitempty"`
	// contestedBy lists the field managers that own the contested values, and how they
	// write: "helm (Update)".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=256
	ContestedBy []string `json:"contestedBy,omitempty"`
	// verification is the state of the verification. Unset while none is running.
	// +optional
	Verification *Verification `json:"verification,omitempty"`
}

// Verification is the state of a decision while its changed pods are verified.
type Verification struct {
	// startTime is the time at which the requests in lastGood were first changed.
	// +required
	StartTime metav1.Time `json:"startTime"`
	// lastGood are the requests before the change that is being verified.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	LastGood []ContainerDecision `json:"lastGood,omitempty"`
	// unhealthyPods are the UIDs of pods that were unhealthy before the change, and do not count.
	// +optional
	// +kubebuilder:validation:items:Type=string
	// +kubebuilder:validation:items:MaxLength=128
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	UnhealthyPods []types.UID `json:"unhealthyPods,omitempty"`
	// observedSince is the time at which all pods to verify had been changed. Unset before that.
	// +optional
	ObservedSince *metav1.Time `json:"observedSince,omitempty"`
	// firstPodsVerifiedTime is the time at which the first changed pods had been healthy long
	// enough for the others to follow. Unset before that.
	// +optional
	FirstPodsVerifiedTime *metav1.Time `json:"firstPodsVerifiedTime,omitempty"`
}

// RevertedChange is a request that was reverted because pods did clearly worse with it.
type RevertedChange struct {
	// containerName is the container's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName,omitempty"`
	// resource is cpu or memory.
	// +required
	Resource ControlledResource `json:"resource,omitempty"`
	// value is the reverted request: CPU in cores, memory in bytes.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	Value resource.Quantity `json:"value"`
	// lastGood is the request that was restored: CPU in cores, memory in bytes.
	// +required
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	LastGood resource.Quantity `json:"lastGood"`
	// time is the time at which the request was reverted.
	// +required
	Time metav1.Time `json:"time"`
	// observedSeconds is the observed time behind the reverted request, in seconds. 0 means none.
	// +optional
	ObservedSeconds int64 `json:"observedSeconds,omitempty"`
	// message describes the observation and names the pods.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ContainerDecision is the decided requests of one container.
type ContainerDecision struct {
	// containerName is the container's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName,omitempty"`
	// requests are the requests that the container should have in each pod.
	// +required
	Requests Amounts `json:"requests"`
	// memoryRaiseTime is the time of the last decision that raised the container's memory limit. A
	// process that started before keeps a heap that it has sized from its limit. Unset means never.
	// +optional
	MemoryRaiseTime *metav1.Time `json:"memoryRaiseTime,omitempty"`
}

// OriginalResources are values of a pod template before the operator took them over.
type OriginalResources struct {
	// deploymentName is the name of the Deployment that had these values.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	DeploymentName string `json:"deploymentName,omitempty"`
	// uid is that Deployment's UID.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	UID types.UID `json:"uid,omitempty"`
	// containers are the original values of each container.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	Containers []OriginalContainerResources `json:"containers,omitempty"`
}

// OriginalContainerResources are the original values of one container.
type OriginalContainerResources struct {
	// containerName is the container's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName,omitempty"`
	// requests are the original requests of the resources that the operator took over. 0 means
	// unset.
	// +optional
	Requests Amounts `json:"requests,omitzero"`
	// limits are the original limits of the resources that the operator took over. 0 means unset.
	// +optional
	Limits Amounts `json:"limits,omitzero"`
}

// NewPods has the values that the API server sets on new pods.
type NewPods struct {
	// containers are the requests and limits of containers of new pods, by name. A container gets
	// them only if it has limits for the same resources. Except in updateMode Initial, pods of
	// other ReplicaSets than that in replicaSetUID get the larger of these and their own.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	Containers []NewPodContainer `json:"containers,omitempty"`

	// effectiveSince is the creation time of the newest pod when the API server had learned the
	// values. Later pods should have them. Unset before that, and if the operator never evicts
	// pods.
	// +optional
	EffectiveSince *metav1.Time `json:"effectiveSince,omitempty"`

	// ineffectiveOnPod is the name of a later pod that did not get these values. The operator
	// evicts no pod until a newer pod gets them, or the spec is edited.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	IneffectiveOnPod string `json:"ineffectiveOnPod,omitempty"`

	// replicaSetUID is the UID of the ReplicaSet whose pods have been healthy with these
	// values. Unset before that, and in updateMode Initial.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	ReplicaSetUID types.UID `json:"replicaSetUID,omitempty"`

	// failureTime is the time at which the API server refused to create pods with these values. For
	// a day after that, and until the spec is edited, new pods start as in the pod template.
	// +optional
	FailureTime *metav1.Time `json:"failureTime,omitempty"`

	// failureMessage is the message of the API server about that.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	FailureMessage string `json:"failureMessage,omitempty"`
}

// NewPodContainer has the requests and limits of one container of a new pod.
type NewPodContainer struct {
	// containerName is the container's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ContainerName string `json:"containerName,omitempty"`
	// requests are the container's requests.
	// +required
	Requests Amounts `json:"requests"`
	// limits are the container's limits. Unset means none.
	// +optional
	Limits Amounts `json:"limits,omitzero"`
	// startupRequests are the requests that a startupBoost sets instead at the pod's creation: only
	// cpu. Unset means no boost.
	// +optional
	StartupRequests Amounts `json:"startupRequests,omitzero"`
	// startupLimits are the limits beside startupRequests.
	// +optional
	StartupLimits Amounts `json:"startupLimits,omitzero"`
}

// HistoryEntry is one change in one line.
type HistoryEntry struct {
	// time is the time of the decision.
	// +required
	Time metav1.Time `json:"time"`
	// message describes the change, with the values before and after it, and its cause.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
