// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// The condition types of a VerticalScaler. All except ClusterAccess and ContainersFound are in
// the first status that the operator writes.
const (
	// ConditionReady sums up the other conditions. It is True while the operator learns or
	// waits, or is suspended, and False if something is broken, or usage of running pods is
	// missing. Reasons: OperatingNormally, Learning, DeploymentNotFound, Suspended, Paused,
	// Frozen, RecommendOnly, MetricsIncomplete, or the reason of a failure.
	ConditionReady = "Ready"
	// ConditionTargetFound is True if the Deployment exists and no other scaler sizes it.
	// Reasons: DeploymentFound, DeploymentNotFound, TooLarge, Conflict.
	ConditionTargetFound = "TargetFound"
	// ConditionRecommendationProvided is True if status.recommendation is reliable. Reasons:
	// EnoughHistory, Learning, NoPods, MetricsUnavailable, MetricsIncomplete, MetricsRecovering, or the reason of
	// TargetFound while that is not True.
	ConditionRecommendationProvided = "RecommendationProvided"
	// ConditionApplied is True if the pods have the requests and limits of status.decision.
	// Otherwise its reason says why they do not.
	ConditionApplied = "Applied"
	// ConditionChanging is True while the operator changes pods, and while it verifies a change.
	ConditionChanging = "Changing"
	// ConditionReconciling is True while a change is in progress that an edit of the spec
	// started (kstatus). Changes that follow usage show in ConditionChanging only.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True while the scaler needs action by a user (kstatus).
	ConditionStalled = "Stalled"
	// ConditionClusterAccess is False if the operator can read only a part of the cluster.
	// Its message names the missing functions. Otherwise the condition is absent. Ready does not
	// depend on it. Reasons: NamespacedInstall, NodesForbidden.
	ConditionClusterAccess = "ClusterAccess"
	// ConditionContainersFound is False if spec.resourcePolicy names a container that neither
	// the Deployment nor its pods have: such a policy has no effect. Otherwise the condition
	// is absent. Reason: ContainerNotFound.
	ConditionContainersFound = "ContainersFound"
	// ConditionReadyForPromotion is True if usage shows that the recommendations would have been
	// enough, for the time that the scaler's policy requires. It is absent unless the scaler
	// waits to be promoted. Reasons: EnoughEvidence, CollectingEvidence.
	ConditionReadyForPromotion = "ReadyForPromotion"
	// ConditionNewPodsSized is True if the API server gives new pods the decided size, and False
	// if they start as in the pod template. It is absent if the scaler does not size new pods, and
	// while nothing is decided. Ready does not depend on it. Reasons: Applied,
	// AdmissionUnavailable, or the reason of a rejected size.
	ConditionNewPodsSized = "NewPodsSized"
)

// The reasons of ReadyForPromotion.
const (
	// ReasonEnoughEvidence means that the recommendations would have been enough.
	ReasonEnoughEvidence = "EnoughEvidence"
	// ReasonCollectingEvidence means that there is too little usage to tell, or that usage
	// exceeded the recommendations.
	ReasonCollectingEvidence = "CollectingEvidence"
)

// The reasons of Ready, TargetFound and RecommendationProvided, and of Applied if they prevent it.
const (
	// ReasonOperatingNormally means that the scaler works and nothing blocks it.
	ReasonOperatingNormally = "OperatingNormally"
	// ReasonLearning means that there is too little usage for a recommendation.
	ReasonLearning = "Learning"
	// ReasonSuspended means that spec.suspend is true.
	ReasonSuspended = "Suspended"
	// ReasonPaused means that the scaler has the annotation PausedAnnotation.
	ReasonPaused = "Paused"
	// ReasonRecommendOnly means that updateMode is Recommend.
	ReasonRecommendOnly = "RecommendOnly"
	// ReasonDeploymentFound means that the Deployment exists.
	ReasonDeploymentFound = "DeploymentFound"
	// ReasonDeploymentNotFound means that the Deployment does not exist. A scaler waits for it, and
	// is Stalled after 10 minutes.
	ReasonDeploymentNotFound = "DeploymentNotFound"
	// ReasonContainerNotFound means that a container policy names a container that does not
	// exist.
	ReasonContainerNotFound = "ContainerNotFound"
	// ReasonConflict means that an older scaler sizes the same Deployment.
	ReasonConflict = "Conflict"
	// ReasonEnoughHistory means that there is enough usage for a recommendation.
	ReasonEnoughHistory = "EnoughHistory"
	// ReasonMetricsUnavailable means that the operator cannot read usage.
	ReasonMetricsUnavailable = "MetricsUnavailable"
	// ReasonMetricsIncomplete means that running pods or containers have no usage, so nothing is
	// lowered.
	ReasonMetricsIncomplete = "MetricsIncomplete"
	// ReasonMetricsRecovering means that usage of running pods is back after a gap. Nothing is lowered yet.
	ReasonMetricsRecovering = "MetricsRecovering"
	// ReasonUnknown means that the operator could not find out and retries.
	ReasonUnknown = "Unknown"
)

// The reasons of ClusterAccess.
const (
	// ReasonNamespacedInstall means that the operator watches some namespaces only and has
	// no rights outside of them.
	ReasonNamespacedInstall = "NamespacedInstall"
	// ReasonNodesForbidden means that the operator watches all namespaces but must not read
	// nodes.
	ReasonNodesForbidden = "NodesForbidden"
)

// The reasons of Applied.
const (
	// ReasonApplied means that every pod has the decided requests and limits, and the
	// kubelet confirms it.
	ReasonApplied = "Applied"
	// ReasonBoosted means that every pod has the decided requests, and starting pods also
	// have their startup boost.
	ReasonBoosted = "Boosted"
	// ReasonResizing means that a pod is being resized in place.
	ReasonResizing = "Resizing"
	// ReasonRollingOut means that the Deployment is rolling out a pod template with the
	// decided requests, or the newest one of a ScaledDeployment.
	ReasonRollingOut = "RollingOut"
	// ReasonRecreating means that the operator evicts pods one by one, and their
	// replacements get the decided requests.
	ReasonRecreating = "Recreating"
	// ReasonVerifying means that the operator verifies the first changed pods before it
	// lowers the rest.
	ReasonVerifying = "Verifying"
	// ReasonChangeReverted means that a change was reverted because pods did worse with it.
	// It is not tried again without new evidence.
	ReasonChangeReverted = "ChangeReverted"
	// ReasonNewPodsOnly means that updateMode is Initial, and running pods are older than
	// the decision. They are left alone.
	ReasonNewPodsOnly = "NewPodsOnly"
	// ReasonAdmissionUnavailable means that the API server cannot size new pods. It has no
	// MutatingAdmissionPolicy (Kubernetes 1.36 or newer), or ours is not installed.
	ReasonAdmissionUnavailable = "AdmissionUnavailable"
	// ReasonAdmissionIneffective means that a new pod was created without the decided
	// requests, although the API server should have set them. The operator evicts no more
	// pods.
	ReasonAdmissionIneffective = "AdmissionIneffective"
	// ReasonWithinTolerance means that the current requests are close enough to the target.
	ReasonWithinTolerance = "WithinTolerance"
	// ReasonWithinBounds means that the request is above the target but not above the upper
	// bound. It is lowered when there is more evidence.
	ReasonWithinBounds = "WithinBounds"
	// ReasonInCooldown means that the last decision is too recent.
	ReasonInCooldown = "InCooldown"
	// ReasonOutsideWindow means that the change waits for a window in updatePolicy.windows
	// to open.
	ReasonOutsideWindow = "OutsideWindow"
	// ReasonInvalidWindow means that a window in updatePolicy.windows cannot be parsed and
	// never opens.
	ReasonInvalidWindow = "InvalidWindow"
	// ReasonNoPods means that the Deployment has no pods that can be sized.
	ReasonNoPods = "NoPods"
	// ReasonNothingControlled means that the container policies leave no resource to manage.
	ReasonNothingControlled = "NothingControlled"
	// ReasonHPAConflict means that a HorizontalPodAutoscaler scales on the utilization of
	// the same resource. The operator leaves that resource alone.
	ReasonHPAConflict = "HPAConflict"
	// ReasonVPAConflict means that a VerticalPodAutoscaler sizes the same resource of the
	// same container. The operator leaves that resource alone.
	ReasonVPAConflict = "VPAConflict"
	// ReasonQoSChange means that the resize would change the pod's QoS class, which is not
	// possible in place.
	ReasonQoSChange = "QoSChange"
	// ReasonRestartRequired means that the container's resizePolicy asks for a restart.
	ReasonRestartRequired = "RestartRequired"
	// ReasonLimitRange means that a LimitRange does not allow the requests or limits.
	ReasonLimitRange = "LimitRange"
	// ReasonRolloutInProgress means that another rollout of the Deployment is in progress: a change
	// waits for it, or pods keep their size until it replaces them.
	ReasonRolloutInProgress = "RolloutInProgress"
	// ReasonRolloutPaused means that the Deployment is paused.
	ReasonRolloutPaused = "RolloutPaused"
	// ReasonTooFewReplicas means that the Deployment has fewer replicas than
	// updatePolicy.minReplicas. The operator evicts none of its pods.
	ReasonTooFewReplicas = "TooFewReplicas"
	// ReasonPodsUnavailable means that not all replicas of the Deployment are available. The
	// operator evicts no pod until they are.
	ReasonPodsUnavailable = "PodsUnavailable"
	// ReasonDisruptionBudget means that a PodDisruptionBudget does not allow the eviction
	// now.
	ReasonDisruptionBudget = "DisruptionBudget"
	// ReasonManyDisruptionBudgets means that several PodDisruptionBudgets select the pod.
	// The API server then refuses every eviction.
	ReasonManyDisruptionBudgets = "ManyDisruptionBudgets"
	// ReasonDeferred means that the kubelet deferred the resize until the node has room.
	ReasonDeferred = "Deferred"
	// ReasonInfeasible means that the kubelet or the API server reports that the node can
	// never fit the size.
	ReasonInfeasible = "Infeasible"
	// ReasonResizeError means that the kubelet failed to apply the resize. The kubelet
	// retries.
	ReasonResizeError = "ResizeError"
	// ReasonNodeCapacity means that the API server refused a size above the node's
	// allocatable capacity, or that the largest node limits the request.
	ReasonNodeCapacity = "NodeCapacity"
	// ReasonBoundTooLow means that a container was OOM-killed with the most memory that a bound allows.
	ReasonBoundTooLow = "BoundTooLow"
	// ReasonRaiseLimit means that usage needs more than requests are raised to without maxAllowed.
	ReasonRaiseLimit = "RaiseLimit"
	// ReasonRaiseDidNotHelp means that a container was OOM-killed at all sizes, and ReasonUsageFollowsLimit that its
	// usage grows with its memory limit. It is not raised further for a time.
	ReasonRaiseDidNotHelp   = "RaiseDidNotHelp"
	ReasonUsageFollowsLimit = "UsageFollowsLimit"
	// ReasonOutlierPod means that one of many pods has more memory than is enough for the others.
	ReasonOutlierPod = "OutlierPod"
	// ReasonOperatorCeiling means that the operator's configuration allows no more.
	ReasonOperatorCeiling = "OperatorCeiling"
	// ReasonUnsupported means that the node cannot resize pods in place, or that pod-level resources
	// cannot follow.
	ReasonUnsupported = "Unsupported"
	// ReasonQuotaExceeded means that a ResourceQuota has no room for the size, or for the
	// first new pod of a rollout.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonReplicaFailure means that the API server refused to create pods with the size. New pods
	// start as in the pod template.
	ReasonReplicaFailure = "ReplicaFailure"
	// ReasonForbidden means that the operator lacks a permission.
	ReasonForbidden = "Forbidden"
	// ReasonNamespaceTerminating means that the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonRejected means that the API server refused the change for another reason. The
	// message quotes it.
	ReasonRejected = "Rejected"
	// ReasonContested means that another writer undid our changes of the pod template or of
	// pods twice. The message names its field manager.
	ReasonContested = "Contested"
	// ReasonWaitingForBudget means that the operator has used its change budget
	// (changesPerMinute), in total or in the namespace. The change follows without action.
	ReasonWaitingForBudget = "WaitingForBudget"
	// ReasonFrozen means that an administrator stopped all changes, in all namespaces or in
	// this one.
	ReasonFrozen = "Frozen"
	// ReasonTerminating means that the Deployment is being deleted.
	ReasonTerminating = "Terminating"
)

// The condition types of a ScaledDeployment are Ready, Reconciling and Stalled, like
// those of a VerticalScaler, and these.
const (
	// ConditionAvailable and ConditionProgressing repeat the conditions of the Deployment with
	// their reasons and messages. They are absent while there is no Deployment, and while it
	// is replaced.
	ConditionAvailable   = "Available"
	ConditionProgressing = "Progressing"
	// ConditionSized repeats the condition Ready of the VerticalScaler if spec.scaling is
	// set. Otherwise it is absent. Ready does not depend on it.
	ConditionSized = "Sized"
)

// The reasons of a ScaledDeployment's conditions Ready, Reconciling and Stalled, besides
// RollingOut, Forbidden, QuotaExceeded, NamespaceTerminating, Rejected and Unknown.
const (
	// ReasonAvailable means that all pods have the newest pod template and are available.
	ReasonAvailable = "Available"
	// ReasonReplacing means that the old Deployment must be deleted before the new one is
	// created.
	ReasonReplacing = "Replacing"
	// ReasonNotControlled means that a Deployment or VerticalScaler of that name exists and
	// is not owned by this object. The operator leaves it alone.
	ReasonNotControlled = "NotControlled"
	// ReasonProgressDeadlineExceeded means that the rollout of the Deployment exceeded its
	// progress deadline.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
)

// The condition types of a ScalingPolicy and a ClusterScalingPolicy are Ready, Reconciling and
// Stalled, like those of a VerticalScaler, and this one.
const (
	// ConditionPromoting is True while scalers are promoted, or may be. Its reason says why none
	// is. Reasons: PromotionInProgress, CollectingEvidence, AllPromoted, PromotionHalted, Frozen,
	// Paused, NoDeployments.
	ConditionPromoting = "Promoting"
)

// The reasons of a policy's conditions, besides OperatingNormally, Paused, Frozen, Forbidden and Unknown.
const (
	// ReasonNoDeployments means that the policy selects no Deployment.
	ReasonNoDeployments = "NoDeployments"
	// ReasonInvalidSelector means that a selector cannot be parsed. The policy selects nothing.
	ReasonInvalidSelector = "InvalidSelector"
	// ReasonTooManyPolicies means that the namespace has too many older policies. The policy selects nothing.
	ReasonTooManyPolicies = "TooManyPolicies"
	// ReasonCreatingScalers means that scalers of selected Deployments are being created,
	// changed or deleted.
	ReasonCreatingScalers = "CreatingScalers"
	// ReasonScalersRejected means that the API server refuses scalers of the policy.
	ReasonScalersRejected = "ScalersRejected"
	// ReasonPromotionInProgress means that scalers are promoted, a few at a time.
	ReasonPromotionInProgress = "PromotionInProgress"
	// ReasonAllPromoted means that all scalers have the update mode of the template.
	ReasonAllPromoted = "AllPromoted"
	// ReasonPromotionHalted means that too many promoted scalers did harm. None is promoted
	// until a user sets spec.rollout.resumeTime.
	ReasonPromotionHalted = "PromotionHalted"
)

// The reasons for which a policy skips a Deployment that its selectors match.
const (
	// ReasonOtherScaler means that a VerticalScaler that no policy has created names the
	// Deployment.
	ReasonOtherScaler = "OtherScaler"
	// ReasonOtherPolicy means that another policy sizes the Deployment.
	ReasonOtherPolicy = "OtherPolicy"
	// ReasonExcluded means that the policy or an annotation excludes the Deployment or its
	// namespace.
	ReasonExcluded = "Excluded"
	// ReasonSystemNamespace means that the namespace belongs to the cluster itself.
	ReasonSystemNamespace = "SystemNamespace"
	// ReasonScaledDeployment means that a ScaledDeployment owns the Deployment and sizes it.
	ReasonScaledDeployment = "ScaledDeployment"
	// ReasonNameTaken means that a VerticalScaler with the name of the Deployment exists, and
	// names another Deployment.
	ReasonNameTaken = "NameTaken"
	// ReasonNameTooLong means that the name of the Deployment has more than 63 characters, the
	// most for a VerticalScaler.
	ReasonNameTooLong = "NameTooLong"
	// ReasonTooLarge means that the Deployment has more than 64 containers, or that its labels or
	// the fields of its template that are read have too many bytes.
	ReasonTooLarge = "TooLarge"
)
