// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package v1beta1

// The condition types of a VerticalScaler. All but ClusterAccess are present from the
// first status that the operator writes.
const (
	// ConditionReady sums up the others. Learning, waiting and suspended are
	// Ready=True; False means that something is broken. Reasons: OperatingNormally, Learning,
	// WaitingForDeployment, Suspended, Paused, RecommendOnly, or the reason of
	// whatever is broken.
	ConditionReady = "Ready"
	// ConditionTargetFound says whether the Deployment exists and is ours to size.
	// Reasons: DeploymentFound, DeploymentNotFound, Conflict.
	ConditionTargetFound = "TargetFound"
	// ConditionRecommendationProvided says whether status.recommendation can be
	// relied on. Reasons: EnoughHistory, CollectingHistory, MetricsUnavailable,
	// MetricsIncomplete, WaitingForDeployment.
	ConditionRecommendationProvided = "RecommendationProvided"
	// ConditionApplied says whether the pods have the sizes of status.decision, and
	// if not, why. Its reasons are the plan's.
	ConditionApplied = "Applied"
	// ConditionReconciling is True while pods are being changed (kstatus).
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when a person must act (kstatus).
	ConditionStalled = "Stalled"
	// ConditionClusterAccess is False where the operator sees only a part of the cluster,
	// and its message says what is lost. Otherwise there is none. Ready does not depend
	// on it. Reasons: NamespacedInstall, NodesForbidden.
	ConditionClusterAccess = "ClusterAccess"
)

// The reasons of Ready, TargetFound and RecommendationProvided.
const (
	ReasonOperatingNormally    = "OperatingNormally"
	ReasonLearning             = "Learning"
	ReasonSuspended            = "Suspended"
	ReasonPaused               = "Paused"
	ReasonRecommendOnly        = "RecommendOnly"
	ReasonWaitingForDeployment = "WaitingForDeployment"
	ReasonDeploymentFound      = "DeploymentFound"
	ReasonDeploymentNotFound   = "DeploymentNotFound"
	ReasonConflict             = "Conflict"
	ReasonEnoughHistory        = "EnoughHistory"
	ReasonCollectingHistory    = "CollectingHistory"
	ReasonMetricsUnavailable   = "MetricsUnavailable"
	ReasonMetricsIncomplete    = "MetricsIncomplete"
	ReasonUnknown              = "Unknown"
)

// The reasons of ClusterAccess.
const (
	// ReasonNamespacedInstall: the operator watches some namespaces only, and has no
	// right outside of them.
	ReasonNamespacedInstall = "NamespacedInstall"
	// ReasonNodesForbidden: the operator watches all namespaces, and may not read nodes.
	ReasonNodesForbidden = "NodesForbidden"
)

// The reasons of Applied, which are the plan's.
const (
	// ReasonApplied: every pod has the decided sizes, and the kubelet says so.
	ReasonApplied = "Applied"
	// ReasonBoosted: every pod has the decided sizes, but those that start have more CPU
	// until they are Ready, as startupBoost says.
	ReasonBoosted = "Boosted"
	// ReasonResizing: a pod's resize has been asked for or is under way.
	ReasonResizing = "Resizing"
	// ReasonRollingOut: the Deployment rolls out a template that carries the decided sizes.
	ReasonRollingOut = "RollingOut"
	// ReasonRecreating: pods are evicted, one after the other, so that new ones come with the
	// decided sizes.
	ReasonRecreating = "Recreating"
	// ReasonVerifying: the pods that were changed first are watched before the others are
	// lowered, too.
	ReasonVerifying = "Verifying"
	// ReasonChangeFailed: a change was put back, since the pods fared worse with it, and is
	// not tried again before the evidence is new.
	ReasonChangeReverted = "ChangeReverted"
	// ReasonNoRecommendation: there is no recommendation to act on yet.
	ReasonNoRecommendation = "NoRecommendation"
	// ReasonNewPodsOnly: the mode is Initial, and pods run that were made before the decided
	// sizes were. They are left alone.
	ReasonNewPodsOnly = "NewPodsOnly"
	// ReasonAdmissionUnavailable: the API server cannot size new pods. It has no
	// MutatingAdmissionPolicy, which came with Kubernetes 1.36, or ours is not installed.
	ReasonAdmissionUnavailable = "AdmissionUnavailable"
	// ReasonAdmissionIneffective: a new pod was made without the decided sizes, although the
	// API server was asked to put them in. No more pods are evicted.
	ReasonAdmissionIneffective = "AdmissionIneffective"
	// ReasonWithinTolerance: the sizes in force are close enough.
	ReasonWithinTolerance = "WithinTolerance"
	// ReasonWithinBounds: the request is above the target but not above the upper
	// bound: lowering waits for more evidence.
	ReasonWithinBounds = "WithinBounds"
	// ReasonInCooldown: the last decision is too recent.
	ReasonInCooldown = "InCooldown"
	// ReasonOutsideWindow: the change waits for a window of updatePolicy.windows to open.
	ReasonOutsideWindow = "OutsideWindow"
	// ReasonInvalidWindow: a window of updatePolicy.windows cannot be understood, and
	// never opens.
	ReasonInvalidWindow = "InvalidWindow"
	// ReasonNoPods: the Deployment has no pods that could be sized.
	ReasonNoPods = "NoPods"
	// ReasonNothingControlled: the policies leave no resource to manage.
	ReasonNothingControlled = "NothingControlled"
	// ReasonHPAConflict: a HorizontalPodAutoscaler scales on the utilization of the
	// same resource, which is therefore left alone.
	ReasonHPAConflict = "HPAConflict"
	// ReasonVPAConflict: a VerticalPodAutoscaler sizes the same resource of the same
	// container, which is therefore left alone.
	ReasonVPAConflict = "VPAConflict"
	// ReasonQoSChange: the resize would change the pod's QoS class, which cannot be
	// done in place.
	ReasonQoSChange = "QoSChange"
	// ReasonRestartRequired: the container's resizePolicy asks for a restart.
	ReasonRestartRequired = "RestartRequired"
	// ReasonLimitRange: a LimitRange does not allow the sizes.
	ReasonLimitRange = "LimitRange"
	// ReasonRolloutInProgress: another rollout of the Deployment is under way.
	ReasonRolloutInProgress = "RolloutInProgress"
	// ReasonRolloutPaused: the Deployment is paused.
	ReasonRolloutPaused = "RolloutPaused"
	// ReasonTooFewReplicas: the Deployment has fewer replicas than updatePolicy.minReplicas, so
	// none of its pods is evicted.
	ReasonTooFewReplicas = "TooFewReplicas"
	// ReasonPodsUnavailable: not all replicas of the Deployment are available, and none is
	// evicted meanwhile.
	ReasonPodsUnavailable = "PodsUnavailable"
	// ReasonDisruptionBudget: a PodDisruptionBudget does not allow the eviction now.
	ReasonDisruptionBudget = "DisruptionBudget"
	// ReasonManyDisruptionBudgets: several PodDisruptionBudgets select the pod, which the API
	// server then does not let anybody evict.
	ReasonManyDisruptionBudgets = "ManyDisruptionBudgets"
	// ReasonDeferred: the kubelet has put the resize off until the node has room.
	ReasonDeferred = "Deferred"
	// ReasonInfeasible: the kubelet or the API server says that the node can never
	// hold the size.
	ReasonInfeasible = "Infeasible"
	// ReasonUsageAboveLimit: the kubelet found more memory in use than a lower limit
	// allows. The limit was put back, and stays until new usage decides anew.
	ReasonUsageAboveLimit = "UsageAboveLimit"
	// ReasonResizeError: the kubelet failed to actuate the resize; it retries.
	ReasonResizeError = "ResizeError"
	// ReasonNodeCapacity: the API server refused a size above the node's allocatable, or
	// the request is held at what the largest node of the cluster can give.
	ReasonNodeCapacity = "NodeCapacity"
	// ReasonUnsupported: the node cannot resize pods in place.
	ReasonUnsupported = "Unsupported"
	// ReasonQuotaExceeded: a ResourceQuota has no room for the size, or for the first new
	// pod of a rollout.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonForbidden: the operator lacks a right.
	ReasonForbidden = "Forbidden"
	// ReasonNamespaceTerminating: the namespace is being deleted.
	ReasonNamespaceTerminating = "NamespaceTerminating"
	// ReasonRejected: the API server refused the change for another reason, which
	// the message quotes.
	ReasonRejected = "Rejected"
	// ReasonContested: another writer has undone our changes of the template, or of pods,
	// twice. The message names its field manager.
	ReasonContested = "Contested"
	// ReasonWaitingForBudget: the operator has made as many changes as it may make in a
	// minute, in all or in the namespace. The change's turn comes by itself.
	ReasonWaitingForBudget = "WaitingForBudget"
	// ReasonFrozen: a person has stopped all changes, in all namespaces or in this one.
	ReasonFrozen = "Frozen"
	// ReasonTerminating: the Deployment is being deleted.
	ReasonTerminating = "Terminating"
)

// The condition types of a ScaledDeployment are Ready, Reconciling and Stalled, as those
// of a VerticalScaler, and this one.
const (
	// ConditionSized repeats Ready of the VerticalScaler, where spec.scaling is set.
	// Otherwise there is none. Ready does not depend on it.
	ConditionSized = "Sized"
)

// The reasons of a ScaledDeployment's Ready, Reconciling and Stalled, besides
// Forbidden, QuotaExceeded, NamespaceTerminating, Rejected and Unknown.
const (
	// ReasonAvailable: all pods have the newest template and are available.
	ReasonAvailable = "Available"
	// ReasonProgressing: the Deployment is on its way there.
	ReasonProgressing = "Progressing"
	// ReasonReplacing: a Deployment must go before the next one is made.
	ReasonReplacing = "Replacing"
	// ReasonNotControlled: the Deployment, or the VerticalScaler, by that name exists and
	// is not this object's. It is left alone.
	ReasonNotControlled = "NotControlled"
	// ReasonProgressDeadlineExceeded: the Deployment has given up on its rollout.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"
)
