// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// ClaimAnnotation is the key, in status.annotations, of the reverse lookup: its
	// value "<namespace>/<deploymentName>" wakes the scaler when that Deployment
	// changes. It is authority for nothing.
	ClaimAnnotation = "autoscaling.verticalscaler.io/deployment"

	// PausedAnnotation stops the operator, where it is "true" on a scaler, from touching
	// the scaler's Deployment: the break-glass beside spec.suspend.
	PausedAnnotation = "autoscaling.verticalscaler.io/paused"

	// GiveBackFinalizer is on a scaler only while the operator holds fields of the
	// Deployment's pod template that are to be given back.
	RestoreFinalizer = "autoscaling.verticalscaler.io/restore-original-resources"

	// AnyContainer is the containerName of the policy for all containers that no
	// other policy names.
	AnyContainer = "*"
)

// UpdateMode says how far the operator may go to put a recommendation in force.
// +kubebuilder:validation:Enum=Recommend;Initial;InPlace;Rollout
type UpdateMode string

const (
	// UpdateModeRecommend only recommends.
	UpdateModeRecommend UpdateMode = "Recommend"
	// UpdateModeInitial sizes pods when they are made, and only then.
	UpdateModeInitial UpdateMode = "Initial"
	// UpdateModeInPlace resizes running pods without restarting them.
	UpdateModeInPlace UpdateMode = "InPlace"
	// UpdateModeRollout writes the sizes into the Deployment's pod template and lets
	// the Deployment's own strategy roll them out.
	UpdateModeRollout UpdateMode = "Rollout"
)

// Fallback says what InPlace does where a pod cannot be resized in place.
// +kubebuilder:validation:Enum=Wait;Recreate;Rollout
type Fallback string

const (
	// FallbackWait leaves the pod as it is and says why.
	FallbackWait Fallback = "Wait"
	// FallbackRecreate evicts the pod, so that a new one comes in its place, into which the
	// API server puts the sizes.
	FallbackRecreate Fallback = "Recreate"
	// FallbackRollout writes the sizes into the Deployment's pod template, as the update
	// mode Rollout does.
	FallbackRollout Fallback = "Rollout"
)

// ContainerMode says whether a container's resources are managed.
// +kubebuilder:validation:Enum=Auto;Off
type ContainerMode string

const (
	// ContainerModeAuto manages the container's resources.
	ContainerModeAuto ContainerMode = "Auto"
	// ContainerModeOff leaves the container alone.
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

// ControlledValues says which of a container's values are managed.
// +kubebuilder:validation:Enum=RequestsAndLimits;RequestsOnly
type ControlledValues string

const (
	// RequestsAndLimits keeps each limit in the proportion to its request that the
	// pod template has, or as the container's policy for limits says. Limits are never
	// added or removed.
	RequestsAndLimits ControlledValues = "RequestsAndLimits"
	// RequestsOnly leaves limits as they are; a request is never raised above its limit.
	RequestsOnly ControlledValues = "RequestsOnly"
)

// VerticalScaler keeps the CPU and memory of one Deployment's pods at what they need.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vscaler,categories=autoscaling
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.deploymentName`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.updatePolicy.updateMode`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.summary.cpu`,description="CPU requested by a pod, now -> wanted"
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.status.summary.memory`,description="Memory requested by a pod, now -> wanted"
// +kubebuilder:printcolumn:name="Pods",type=string,JSONPath=`.status.summary.pods`,description="Pods that have the wanted size / pods"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.conditions[?(@.type=="Applied")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.deploymentName`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name must have at most 63 characters, so that it can be a label value",reason=FieldValueInvalid
// +operator-sdk:csv:customresourcedefinitions:displayName="Vertical Scaler",resources={{Deployment,v1},{ReplicaSet,v1},{Pod,v1},{Node,v1},{LimitRange,v1},{ResourceQuota,v1},{HorizontalPodAutoscaler,v2},{Event,v1},{VerticalScalerCheckpoint,v1beta1}}
type VerticalScaler struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user wants.
	// +required
	Spec VerticalScalerSpec `json:"spec"`

	// status is what the operator found, decided and did.
	// +optional
	// +kubebuilder:default={"observedGeneration":-1}
	Status VerticalScalerStatus `json:"status,omitempty"`
}

// VerticalScalerList is a list of scalers.
// +kubebuilder:object:root=true
type VerticalScalerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VerticalScaler `json:"items"`
}

// VerticalScalerSpec says which Deployment is sized, and within which bounds.
type VerticalScalerSpec struct {
	// deploymentName is the name of the Deployment, in the scaler's own namespace,
	// whose pods are sized. It need not exist yet. Changing it retargets the scaler:
	// the old Deployment is given back first.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be the name of a Deployment in this namespace: lower case letters, digits, '-' and '.', beginning and ending with a letter or digit"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Deployment name",xDescriptors="urn:alm:descriptor:io.kubernetes:Deployment"
	DeploymentName string `json:"deploymentName,omitempty"`

	Scaling `json:",inline"`
}

// Scaling says how a Deployment is sized.
type Scaling struct {
	// suspend stops the operator from changing anything; it goes on observing and
	// recommending. What it has written into a pod template stays: updateMode Recommend gives
	// that back. Defaults to false.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Suspend",xDescriptors="urn:alm:descriptor:com.tectonic.ui:booleanSwitch"
	Suspend bool `json:"suspend,omitempty"`

	// updatePolicy says how recommendations are put in force.
	// +optional
	// +kubebuilder:default={}
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Update policy"
	UpdatePolicy UpdatePolicy `json:"updatePolicy,omitempty"`

	// resourcePolicy bounds what is recommended, container by container.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Resource policy"
	ResourcePolicy *ResourcePolicy `json:"resourcePolicy,omitempty"`

	// recommendationPolicy says how much risk recommendations may take.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Recommendation policy"
	RecommendationPolicy *RecommendationPolicy `json:"recommendationPolicy,omitempty"`
}

// UpdatePolicy says how recommendations are put in force.
type UpdatePolicy struct {
	// updateMode is how far the operator may go. Recommend: recommend
	// only. Initial: let the API server give new pods the
	// sizes, and leave those that run alone. InPlace: resize
	// running pods without restarting them. Rollout: write the sizes into the
	// Deployment's pod template, which restarts its pods by its own strategy.
	// Defaults to InPlace.
	// +optional
	// +kubebuilder:default=InPlace
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Update mode",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Recommend","urn:alm:descriptor:com.tectonic.ui:select:Initial","urn:alm:descriptor:com.tectonic.ui:select:InPlace","urn:alm:descriptor:com.tectonic.ui:select:Rollout"}
	UpdateMode UpdateMode `json:"updateMode,omitempty"`

	// fallback is what InPlace does where a pod cannot be resized in place: its node can
	// never hold the size, has had no room for it for ten minutes, or cannot resize at all;
	// or the resize would change the pod's QoS class, or restart a container. Wait: leave
	// the pod as it is and say why. Recreate: evict the pod, one at a time and within its
	// PodDisruptionBudget, and let the API server give the sizes to the new one; the pod
	// template is left alone. Rollout: write the sizes into the Deployment's pod
	// template, which restarts all its pods by its own strategy. Other modes make no use of
	// it. Defaults to Wait.
	// +optional
	// +kubebuilder:default=Wait
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Fallback",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Wait","urn:alm:descriptor:com.tectonic.ui:select:Recreate","urn:alm:descriptor:com.tectonic.ui:select:Rollout"}
	Fallback Fallback `json:"fallback,omitempty"`

	// minReplicas is how many replicas a Deployment must have for its pods to be evicted, with
	// the fallback Recreate. 1 accepts that a workload of a single pod is down until the new
	// one is ready: no strategy of the Deployment makes that one first. Defaults to 2.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Least replicas for evictions",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	MinReplicas *int32 `json:"minReplicas,omitempty"`

	// cooldownSeconds is the least time between two decisions to change the sizes.
	// An OOM kill, or a request below the lower bound, does not wait for it. 0 means no
	// pause. Defaults to 300.
	// +optional
	// +kubebuilder:default=300
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Cooldown in seconds",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	CooldownSeconds *int32 `json:"cooldownSeconds,omitempty"`

	// tolerancePercent is the least change of a request, in percent of it, that is worth
	// making. What is urgent is made whatever it changes: after an OOM kill, below the
	// lower bound, outside of what is allowed. Defaults to 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Tolerance in percent",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	TolerancePercent *int32 `json:"tolerancePercent,omitempty"`

	// verificationSeconds is how long pods are watched after a change before it counts as
	// good. What is lowered in place is lowered on a quarter of the pods at first, and on
	// the others after that time. Where the changed pods fare clearly worse than the
	// unchanged, what was before is put back. 0 watches nothing. Defaults to 120.
	// +optional
	// +kubebuilder:default=120
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Observation in seconds",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:number","urn:alm:descriptor:com.tectonic.ui:advanced"}
	VerificationSeconds *int32 `json:"verificationSeconds,omitempty"`

	// scaleUp bounds the changes that raise a request.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Scale up",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	ScaleUp *DirectionPolicy `json:"scaleUp,omitempty"`

	// scaleDown bounds the changes that lower a request. Its maxStepPercent is below 100.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.maxStepPercent) || self.maxStepPercent < 100",message="must be below 100 for scaleDown: a request cannot be lowered by 100 percent",fieldPath=".maxStepPercent"
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Scale down",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	ScaleDown *DirectionPolicy `json:"scaleDown,omitempty"`

	// windows are when requests may be changed. Outside of all windows for a direction,
	// changes of that direction wait; a direction that no window names never waits. What
	// is urgent does not wait: after an OOM kill, below the lower bound, outside of what
	// is allowed. Unset means always.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Windows",xDescriptors="urn:alm:descriptor:com.tectonic.ui:advanced"
	Windows []UpdateWindow `json:"windows,omitempty"`
}

// DirectionPolicy bounds the changes of one direction.
type DirectionPolicy struct {
	// cooldownSeconds is the least time between the last decision, of whichever direction,
	// and one of this direction. Defaults to updatePolicy.cooldownSeconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	CooldownSeconds *int32 `json:"cooldownSeconds,omitempty"`

	// maxStepPercent is the most that one decision changes a request, in percent of it.
	// The next step waits for the cooldown. What is urgent goes at once as far as it is
	// urgent: to the lower bound, to what is allowed, and after an OOM kill all the way.
	// Unset means no limit.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	MaxStepPercent *int32 `json:"maxStepPercent,omitempty"`
}

// ChangeDirection is which way a request is changed.
// +kubebuilder:validation:Enum=ScaleUp;ScaleDown
type ChangeDirection string

// The directions.
const (
	DirectionScaleUp   ChangeDirection = "ScaleUp"
	DirectionScaleDown ChangeDirection = "ScaleDown"
)

// UpdateWindow is when requests may be changed.
type UpdateWindow struct {
	// schedule says when the window opens: a cron expression of five fields, such as
	// "0 2 * * SAT". Minute, hour, day of month, month (1-12 or JAN-DEC), day of week (0-6
	// or SUN-SAT), each a number, a range 1-5, a list 1,3 or *, and any of these with a
	// step /2. Where both days are restricted, either is enough. What cannot be understood
	// never opens, and the scaler is Stalled with the reason InvalidWindow.
	// +required
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="self.matches('(?i)^([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]?)?(,([*?]|[0-5]?[0-9](-[0-5]?[0-9])?)(/[1-9][0-9]?)?)* +([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?(,([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]?)?)* +([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?(,([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]?)?)* +([*?]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?(,([*?]|(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)(-(0?[1-9]|1[0-2]|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC))?)(/[1-9][0-9]?)?)* +([*?]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?(,([*?]|([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT)(-([0-6]|SUN|MON|TUE|WED|THU|FRI|SAT))?)(/[1-9][0-9]?)?)*$')",message="must be a cron expression of five fields, such as '0 2 * * SAT': minute, hour, day of month, month, day of week"
	Schedule string `json:"schedule,omitempty"`

	// timeZone is the zone that the schedule is in, by its IANA name: Europe/Berlin. A
	// time that its clocks skip opens nothing, one that comes twice opens twice. Defaults
	// to UTC.
	// +optional
	// +kubebuilder:default=UTC
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local' && self.matches('^[A-Z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+){0,2}$') && timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",message="must be the IANA name of a time zone, such as Europe/Berlin or UTC"
	TimeZone string `json:"timeZone,omitempty"`

	// durationMinutes is how long the window stays open, by the clock that knows no
	// summer time. A decision made in it is carried out to its end; a rollout begins in
	// it. From 1 to 10080, which is a week.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10080
	DurationMinutes int32 `json:"durationMinutes,omitempty"`

	// directions are the changes that the window is for. Defaults to both.
	// +optional
	// +listType=set
	// +kubebuilder:default={ScaleUp,ScaleDown}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	Directions []ChangeDirection `json:"directions,omitempty"`
}

// ResourcePolicy bounds what is recommended.
type ResourcePolicy struct {
	// containerPolicies holds at most one policy for each container, and one named
	// "*" for all containers that no other policy names. A container without a
	// policy is managed with the defaults.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=32
	ContainerPolicies []ContainerPolicy `json:"containerPolicies,omitempty"`
}

// For is the policy that names the container, else the one for any, else the zero value,
// which is the defaults.
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

// ContainerPolicy bounds what is recommended for one container.
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.maxAllowed) || !has(self.minAllowed.cpu) || !has(self.maxAllowed.cpu) || [self.minAllowed.cpu, self.maxAllowed.cpu].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.cpu)).compareTo(quantity(string(self.maxAllowed.cpu))) <= 0",message="minAllowed.cpu must be at most maxAllowed.cpu",fieldPath=".minAllowed"
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.maxAllowed) || !has(self.minAllowed.memory) || !has(self.maxAllowed.memory) || [self.minAllowed.memory, self.maxAllowed.memory].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.memory)).compareTo(quantity(string(self.maxAllowed.memory))) <= 0",message="minAllowed.memory must be at most maxAllowed.memory",fieldPath=".minAllowed"
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.limits) || !has(self.limits.maxAllowed) || !has(self.minAllowed.cpu) || !has(self.limits.maxAllowed.cpu) || [self.minAllowed.cpu, self.limits.maxAllowed.cpu].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.cpu)).compareTo(quantity(string(self.limits.maxAllowed.cpu))) <= 0",message="minAllowed.cpu must be at most limits.maxAllowed.cpu",fieldPath=".minAllowed"
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.limits) || !has(self.limits.maxAllowed) || !has(self.minAllowed.memory) || !has(self.limits.maxAllowed.memory) || [self.minAllowed.memory, self.limits.maxAllowed.memory].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.memory)).compareTo(quantity(string(self.limits.maxAllowed.memory))) <= 0",message="minAllowed.memory must be at most limits.maxAllowed.memory",fieldPath=".minAllowed"
// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.controlledValues) || self.controlledValues != 'RequestsOnly'",message="cannot be set with controlledValues RequestsOnly, which leaves limits as they are",fieldPath=".limits"
// +kubebuilder:validation:XValidation:rule="!has(self.startupBoost) || ((!has(self.mode) || self.mode != 'Off') && (!has(self.controlledResources) || 'cpu' in self.controlledResources))",message="cannot be set for a container whose cpu is not managed: mode must be Auto, and controlledResources have cpu",fieldPath=".startupBoost"
type ContainerPolicy struct {
	// containerName is the container's name in the pod template, or "*" for all
	// containers that no other policy names.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '*' || !format.dns1123Label().validate(self).hasValue()",message="must be a container's name (lower case letters, digits and '-', beginning and ending with a letter or digit) or '*'"
	ContainerName string `json:"containerName,omitempty"`

	// mode says whether the container is managed: Auto or "Off" (in quotes). Defaults
	// to Auto.
	// +optional
	// +kubebuilder:default=Auto
	Mode ContainerMode `json:"mode,omitempty"`

	// controlledResources are the resources that are managed. Defaults to both.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	ControlledResources []ControlledResource `json:"controlledResources,omitempty"`

	// controlledValues says what becomes of limits. RequestsAndLimits: each limit
	// keeps the proportion to its request that the pod template has, or follows as limits
	// says. RequestsOnly:
	// limits stay as they are. Defaults to RequestsAndLimits.
	// +optional
	// +kubebuilder:default=RequestsAndLimits
	ControlledValues ControlledValues `json:"controlledValues,omitempty"`

	// minAllowed is the least that is requested, whatever is recommended.
	// +optional
	MinAllowed *ResourceBounds `json:"minAllowed,omitempty"`

	// maxAllowed is the most that is requested, whatever is recommended.
	// +optional
	MaxAllowed *ResourceBounds `json:"maxAllowed,omitempty"`

	// limits shapes the limits that follow their requests. Limits are never added or
	// removed, never below their request, and never beyond what a LimitRange allows.
	// Unset means that each keeps the proportion to its request that the template has.
	// +optional
	Limits *LimitPolicy `json:"limits,omitempty"`

	// startupBoost is more CPU while the container starts. Only updateMode InPlace gives
	// it; the others leave it out.
	// +optional
	StartupBoost *StartupBoost `json:"startupBoost,omitempty"`
}

// StartupBoost is more of a resource while a container starts.
type StartupBoost struct {
	// cpu is how much more CPU: from when a new pod, or one whose container has been
	// restarted, is seen, until it is Ready, and durationSeconds longer. Then the pod is
	// put down in place to the decided size, or to that of the template while nothing is
	// decided. A container that is not Ready 10 minutes and durationSeconds after it has
	// started is put down all the same.
	// +required
	CPU *CPUStartupBoost `json:"cpu,omitempty"`
}

// StartupBoostType says how a boost is given.
// +kubebuilder:validation:Enum=Factor;Quantity
type StartupBoostType string

const (
	// BoostFactor multiplies the request.
	BoostFactor StartupBoostType = "Factor"
	// BoostQuantity adds to the request.
	BoostQuantity StartupBoostType = "Quantity"
)

// CPUStartupBoost is how much more CPU a container gets while it starts, and for how long.
// Limits follow as controlledValues and limits say. Whatever bounds a request bounds
// the boosted one: maxAllowed, the LimitRange, a limit that stays, the quota, and the
// largest node. A boost that cannot be had is left out, and the decided size is put in
// force. It waits for no cooldown and no window.
// +kubebuilder:validation:XValidation:rule="has(self.factor) == (self.type == 'Factor')",message="must be set if type is Factor, and only then",fieldPath=".factor"
// +kubebuilder:validation:XValidation:rule="has(self.quantity) == (self.type == 'Quantity')",message="must be set if type is Quantity, and only then",fieldPath=".quantity"
type CPUStartupBoost struct {
	// type is Factor, which multiplies the request, or Quantity, which adds to it.
	// +required
	Type StartupBoostType `json:"type,omitempty"`

	// factor is what the request is multiplied by. From 1 to 100. With 1, a pod that
	// starts is only not lowered.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Factor *int32 `json:"factor,omitempty"`

	// quantity is what is added to the request, in cores: "500m" or 2. From 1m to 10k,
	// no finer than 1m.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}') && isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1m')) >= 0 && quantity(string(self)).compareTo(quantity('10k')) <= 0",message="must be a quantity of CPU from 1m to 10k, such as 250m or 2"
	// +kubebuilder:validation:XValidation:rule="type(self) == int || !string(self).matches('[nu]$|[.][0-9]*m$|[.][0-9]{4,}|[.].*[eE]-|[eE]-([^3]|3.)')",message="must be in whole millicores, such as 250m or 0.25"
	Quantity *resource.Quantity `json:"quantity,omitempty"`

	// durationSeconds is how long the boost goes on once the pod is Ready. Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	DurationSeconds *int32 `json:"durationSeconds,omitempty"`
}

// LimitPolicy shapes limits.
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.maxAllowed) || !has(self.minAllowed.cpu) || !has(self.maxAllowed.cpu) || [self.minAllowed.cpu, self.maxAllowed.cpu].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.cpu)).compareTo(quantity(string(self.maxAllowed.cpu))) <= 0",message="minAllowed.cpu must be at most maxAllowed.cpu",fieldPath=".minAllowed"
// +kubebuilder:validation:XValidation:rule="!has(self.minAllowed) || !has(self.maxAllowed) || !has(self.minAllowed.memory) || !has(self.maxAllowed.memory) || [self.minAllowed.memory, self.maxAllowed.memory].exists(q, string(q).matches('[eE].*[0-9]{3}') || !isQuantity(string(q))) || quantity(string(self.minAllowed.memory)).compareTo(quantity(string(self.maxAllowed.memory))) <= 0",message="minAllowed.memory must be at most maxAllowed.memory",fieldPath=".minAllowed"
type LimitPolicy struct {
	// headroomPercent is what a limit has above its request, instead of the template's
	// proportion.
	// +optional
	HeadroomPercent *ResourcePercents `json:"headroomPercent,omitempty"`

	// minAllowed is the least that a limit is set to.
	// +optional
	MinAllowed *ResourceBounds `json:"minAllowed,omitempty"`

	// maxAllowed is the most that a limit is set to, and so also the most that is
	// requested where there is a limit. A memory limit is not lowered below what the
	// container is known to use.
	// +optional
	MaxAllowed *ResourceBounds `json:"maxAllowed,omitempty"`
}

// ResourcePercents is a percentage for each resource.
type ResourcePercents struct {
	// cpu is from 0 to 1000. Unset keeps the template's proportion.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	CPU *int32 `json:"cpu,omitempty"`
	// memory is from 0 to 1000. Unset keeps the template's proportion.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Memory *int32 `json:"memory,omitempty"`
}

// ResourceBounds is one end of what is allowed, for each resource.
//
// The rules look at the exponent first: to compare 1e99999999 with anything takes
// the API server more than half a minute.
type ResourceBounds struct {
	// cpu is in cores: "250m" or 2. From 1m to 10k, no finer than 1m. Unset means no bound.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}') && isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1m')) >= 0 && quantity(string(self)).compareTo(quantity('10k')) <= 0",message="must be a quantity of CPU from 1m to 10k, such as 250m or 2"
	// +kubebuilder:validation:XValidation:rule="type(self) == int || !string(self).matches('[nu]$|[.][0-9]*m$|[.][0-9]{4,}|[.].*[eE]-|[eE]-([^3]|3.)')",message="must be in whole millicores, such as 250m or 0.25"
	CPU *resource.Quantity `json:"cpu,omitempty"`

	// memory is in bytes: "512Mi". From 1Ki to 1Pi; parts of a byte are rounded up.
	// Unset means no bound.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}') && isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('1Ki')) >= 0 && quantity(string(self)).compareTo(quantity('1Pi')) <= 0",message="must be a quantity of memory from 1Ki to 1Pi, such as 512Mi; the suffix m means thousandths, not mega"
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// RecommendationProfile weighs what is reserved against what may be lacking.
// +kubebuilder:validation:Enum=Balanced;Frugal;Safe;Calm
type RecommendationProfile string

// The profiles.
const (
	ProfileBalanced RecommendationProfile = "Balanced"
	ProfileFrugal   RecommendationProfile = "Frugal"
	ProfileSafe     RecommendationProfile = "Safe"
	ProfileCalm     RecommendationProfile = "Calm"
)

// RecommendationPolicy says how much risk recommendations may take.
type RecommendationPolicy struct {
	// profile says how to weigh what is reserved against what may be lacking. Balanced
	// reserves least for few starved minutes, and needs no tuning. Frugal reserves less
	// and starves more, Safe the other way round. Calm resizes about twice a day at
	// most. Defaults to Balanced.
	// +optional
	// +kubebuilder:default=Balanced
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Profile",xDescriptors={"urn:alm:descriptor:com.tectonic.ui:select:Balanced","urn:alm:descriptor:com.tectonic.ui:select:Frugal","urn:alm:descriptor:com.tectonic.ui:select:Safe","urn:alm:descriptor:com.tectonic.ui:select:Calm"}
	Profile RecommendationProfile `json:"profile,omitempty"`

	// safetyMarginPercent is added to the level at which the profile holds CPU, and is
	// the least that memory gets on top of its peak; the profile alone gives memory 10
	// to 25 %, by how much the workload's own peaks change. 0 leaves it to the profile.
	// Until a day is known, CPU gets 15 % at least, and memory twice the profile's.
	// Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=500
	// +operator-sdk:csv:customresourcedefinitions:type=spec,displayName="Safety margin in percent",xDescriptors="urn:alm:descriptor:com.tectonic.ui:number"
	SafetyMarginPercent *int32 `json:"safetyMarginPercent,omitempty"`
}

// VerticalScalerStatus is what the operator found, decided and did.
type VerticalScalerStatus struct {
	// observedGeneration is the generation of the spec that this status is about; -1
	// before the operator has seen the object.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Observed generation"
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// annotations holds the reverse lookup: under the key
	// autoscaling.verticalscaler.io/deployment the Deployment that wakes this
	// scaler, as <namespace>/<name>.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Annotations"
	Annotations map[string]string `json:"annotations,omitempty"`

	// target is the Deployment as last seen; unset while it does not exist.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Target"
	Target *Target `json:"target,omitempty"`

	// summary holds what kubectl get shows.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Summary"
	Summary *Summary `json:"summary,omitempty"`

	// recommendation is what the containers need.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Recommendation"
	Recommendation *Recommendation `json:"recommendation,omitempty"`

	// decision is what the operator has decided to put in force, and when.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Decision"
	Decision *Decision `json:"decision,omitempty"`

	// failed holds changes that were put back, newest first. Nothing at or below a value
	// that was too low, or at or above one that was too high, is tried again until twice as
	// much usage has been observed, a week has gone by, or the spec is edited.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Reverted changes"
	RevertedChanges []RevertedChange `json:"revertedChanges,omitempty"`

	// held records the values found in the Deployment's pod template before the
	// operator took them over. They are put back when the scaler goes, is
	// retargeted, or leaves Rollout as its mode or fallback.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Original resources"
	OriginalResources *OriginalResources `json:"originalResources,omitempty"`

	// admission is what the API server puts into new pods of the Deployment, in the mode
	// Initial.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="New pods"
	NewPods *NewPods `json:"newPods,omitempty"`

	// conditions are Ready, TargetFound, RecommendationProvided, Applied,
	// Reconciling and Stalled; and ClusterAccess, where the operator sees only a part
	// of the cluster.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Conditions",xDescriptors="urn:alm:descriptor:io.kubernetes.conditions"
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// history holds the last changes, newest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="History"
	History []HistoryEntry `json:"history,omitempty"`
}

// Target is the Deployment as last seen.
type Target struct {
	// uid is the Deployment's UID.
	UID types.UID `json:"uid"`
	// generation is the Deployment's metadata.generation.
	Generation int64 `json:"generation"`
	// replicas is the number of pods that the Deployment wants.
	Replicas int32 `json:"replicas"`
	// updatedReplicas is the number of its pods that have the newest template.
	UpdatedReplicas int32 `json:"updatedReplicas"`
}

// Summary holds strings made for printer columns.
type Summary struct {
	// cpu is the CPU requested by one pod: "500m->310m", or "310m" when nothing is to change.
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="CPU",xDescriptors="urn:alm:descriptor:text"
	CPU string `json:"cpu,omitempty"`
	// memory is the memory requested by one pod: "512Mi->640Mi", or "640Mi".
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Memory",xDescriptors="urn:alm:descriptor:text"
	Memory string `json:"memory,omitempty"`
	// pods is the number of pods that have the decided size, of all pods: "6/6".
	// +optional
	// +operator-sdk:csv:customresourcedefinitions:type=status,displayName="Pods",xDescriptors="urn:alm:descriptor:text"
	Pods string `json:"pods,omitempty"`
}

// Recommendation is what the containers of the Deployment need.
type Recommendation struct {
	// containerRecommendations holds one entry for each container with enough history.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	ContainerRecommendations []ContainerRecommendation `json:"containerRecommendations,omitempty"`
}

// Amounts is an amount of each resource.
type Amounts struct {
	// cpu is in cores.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// memory is in bytes.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// ContainerRecommendation is what one container needs.
type ContainerRecommendation struct {
	// containerName is the container's name.
	ContainerName string `json:"containerName"`
	// target is what should be requested.
	// +optional
	Target Amounts `json:"target,omitempty"`
	// lowerBound is the least with which the container is likely to be well off.
	// +optional
	LowerBound Amounts `json:"lowerBound,omitempty"`
	// upperBound is the most that the container is likely to need.
	// +optional
	UpperBound Amounts `json:"upperBound,omitempty"`
	// uncappedTarget is the target before minAllowed and maxAllowed.
	// +optional
	UncappedTarget Amounts `json:"uncappedTarget,omitempty"`
	// observedSeconds is the length of the observed usage that the target rests on.
	// A target is never lowered with less.
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
	Resource ControlledResource `json:"resource"`
	// code names the step: RecentPeak, RecentUsage, DayPeak, WeekPeak, SameTime, Peak,
	// Volatility, LimitedHistory, SafetyMargin, OOMFloor, Minimum, MinAllowed, MaxAllowed,
	// Kept.
	Code string `json:"code"`
	// margin is what the step adds to the amount before it, as a percentage: "15%" or "12.5%".
	// The sum is rounded up: CPU to millicores, memory to MiB, or to 64 KiB below 64 MiB.
	// Unset means that the step sets the amount to value.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=6
	// +kubebuilder:validation:Pattern=`^[0-9]{1,3}(\.[0-9])?%$`
	Margin string `json:"margin,omitempty"`
	// value is the amount after the step.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	Value resource.Quantity `json:"value"`
}

// Decision is what the operator has decided to put in force.
type Decision struct {
	// time is when it was decided.
	Time metav1.Time `json:"time"`
	// reason names what led to it: OOMKill, Bounds,
	// LowerBound, Raise, Lower, Adopted or PutBack.
	Reason string `json:"reason"`
	// containers holds the requests decided for each container.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	Containers []ContainerDecision `json:"containers,omitempty"`
	// written says that the Deployment's pod template has carried the decision.
	// +optional
	AppliedToTemplate bool `json:"appliedToTemplate,omitempty"`
	// reverts counts how often another writer has undone this decision, or one before
	// it, on the pod template or on pods, within a day of each other. At 2 the operator
	// stops and says Contested.
	// +optional
	Reverts int32 `json:"reverts,omitempty"`
	// lastRevertTime is when that was seen last.
	// +optional
	LastRevertTime *metav1.Time `json:"lastRevertTime,omitempty"`
	// contestedBy names the field managers that have the contested values, and how they
	// write: "helm (Update)".
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=256
	ContestedBy []string `json:"contestedBy,omitempty"`
	// trial is how it goes with the decision while the changed pods are watched; unset
	// where nothing is.
	// +optional
	Verification *Verification `json:"verification,omitempty"`
}

// Trial is what is known of a decision while the changed pods are watched.
type Verification struct {
	// startTime is when lastGood was left.
	StartTime metav1.Time `json:"startTime"`
	// lastGood holds the requests before the decision, of what is tried. They are put back
	// where the pods fare clearly worse without them.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	LastGood []ContainerDecision `json:"lastGood,omitempty"`
	// unwell holds the UIDs of pods that were not well before the decision, and so tell
	// nothing of it.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	UnhealthyPods []types.UID `json:"unhealthyPods,omitempty"`
	// observedSince is when all that is to be watched had been changed; unset before.
	// +optional
	ObservedSince *metav1.Time `json:"observedSince,omitempty"`
	// firstPodsVerifiedTime is when the pods that were changed first had been well for long enough for
	// the others to follow; unset before.
	// +optional
	FirstPodsVerifiedTime *metav1.Time `json:"firstPodsVerifiedTime,omitempty"`
}

// FailedChange is a request that was put back, since the pods fared clearly worse with it.
type RevertedChange struct {
	// containerName is the container's name.
	ContainerName string `json:"containerName"`
	// resource is cpu or memory.
	Resource ControlledResource `json:"resource"`
	// value is the request that failed.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	Value resource.Quantity `json:"value"`
	// lastGood is the request that was put back.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	LastGood resource.Quantity `json:"lastGood"`
	// time is when it was put back.
	Time metav1.Time `json:"time"`
	// observedSeconds is the length of the observed usage that value rested on.
	// +optional
	ObservedSeconds int64 `json:"observedSeconds,omitempty"`
	// message says what was seen, and on which pods.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// ContainerDecision is the request decided for one container.
type ContainerDecision struct {
	// containerName is the container's name.
	ContainerName string `json:"containerName"`
	// requests are what each pod's container shall request.
	Requests Amounts `json:"requests"`
	// retainedMemoryLimit is a memory limit that was to be lowered and could not be: the
	// kubelet found more memory in use. No limit up to it is lowered until the memory of
	// this container is decided anew.
	// +optional
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="!string(self).matches('[eE].*[0-9]{3}')",message="must have an exponent of at most two digits"
	RetainedMemoryLimit *resource.Quantity `json:"retainedMemoryLimit,omitempty"`
}

// Held records values of a pod template before the operator took them over.
type OriginalResources struct {
	// deploymentName is the Deployment that they were found on.
	DeploymentName string `json:"deploymentName"`
	// uid is that Deployment's UID.
	UID types.UID `json:"uid"`
	// containers holds the values found.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	Containers []OriginalContainerResources `json:"containers,omitempty"`
}

// HeldContainer holds the values found on one container of a pod template.
type OriginalContainerResources struct {
	// containerName is the container's name.
	ContainerName string `json:"containerName"`
	// requests are the requests found, of the resources that were taken over. 0
	// means that none was set.
	// +optional
	Requests Amounts `json:"requests,omitempty"`
	// limits are the limits found, of the resources that were taken over. 0 means
	// that none was set.
	// +optional
	Limits Amounts `json:"limits,omitempty"`
}

// Admission is what the API server puts into new pods.
type NewPods struct {
	// containers holds the sizes that containers get when a pod is made, by name. A container
	// gets its size only where it has limits exactly where the size has some.
	// +optional
	// +listType=map
	// +listMapKey=containerName
	// +kubebuilder:validation:MaxItems=64
	Containers []NewPodContainer `json:"containers,omitempty"`

	// effectiveSince is when the newest pod was made that there was once the API server had had
	// time to learn of containers. Pods that are made later are expected to get these sizes.
	// Unset until then, and where no pod is ever evicted.
	// +optional
	EffectiveSince *metav1.Time `json:"effectiveSince,omitempty"`

	// ineffectiveOnPod names a pod that was made later and has not got its sizes. No pod is evicted
	// until a newer one has got them, or the scaler's spec is edited.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	IneffectiveOnPod string `json:"ineffectiveOnPod,omitempty"`
}

// AdmittedContainer is the size that a container of a new pod gets.
type NewPodContainer struct {
	// containerName is the container's name.
	ContainerName string `json:"containerName"`
	// requests are the container's requests.
	Requests Amounts `json:"requests"`
	// limits are the container's limits.
	// +optional
	Limits Amounts `json:"limits,omitzero"`
}

// HistoryEntry is one change, in a line.
type HistoryEntry struct {
	// time is when the change was decided.
	Time metav1.Time `json:"time"`
	// message says what was changed, from what to what, and why.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}
