// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain turns the codes in the status of a scaler into words: how a target came about,
// why it is not applied, and how to unblock it.
//
// It is pure. Its input are the objects that the user may read. It lists missing objects, and does
// not guess.
package explain

import (
	"cmp"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// End is the way in which the state of a reason is resolved.
type End string

const (
	// Fine is a state that needs no action, such as one that a user has chosen.
	Fine End = "Fine"
	// ByItself is a state that resolves itself.
	ByItself End = "ByItself"
	// ByUser is a state in which a user must act.
	ByUser End = "ByUser"
)

// Reason is a reason of a condition, in words.
type Reason struct {
	// Reason is the code, one of the constants in api/v1beta1.
	Reason string `json:"reason"`
	// Means is its meaning, in a sentence or two.
	Means string `json:"means"`
	// Ends is the way in which it is resolved.
	Ends End `json:"ends"`
	// Advice tells the user what to do, in a sentence or two.
	Advice string `json:"advice"`
}

// former are the reasons that earlier versions reported, and the status may still have, by the present ones.
var former = map[string]string{
	"CollectingHistory":    v1beta1.ReasonLearning,
	"NoRecommendation":     v1beta1.ReasonLearning,
	"WaitingForDeployment": v1beta1.ReasonDeploymentNotFound,
	"Progressing":          v1beta1.ReasonRollingOut,
}

// ReasonFor is a reason in words. It is false for an unknown one, such as a newer operator's.
func ReasonFor(reason string) (Reason, bool) {
	reason = cmp.Or(former[reason], reason)
	all := slices.Concat(Reasons, []Reason{notObserved, operatorSilent, outdated, profileRemoved, deleting})
	i := slices.IndexFunc(all, func(r Reason) bool { return r.Reason == reason })
	if i < 0 {
		return Reason{reason, "This version of the plugin does not know the reason.", ByUser, "See the message, or use the plugin of the operator's version."}, false
	}
	return all[i], true
}

// reasonFor is ReasonFor, with words for an unknown one.
func reasonFor(reason string) Reason {
	known, _ := ReasonFor(reason)
	return known
}

// Reasons are all reasons: first those of scalers, then those that only ScaledDeployments and policies have. The table in
// docs/reasons.md is generated from them. Each reason in api/v1beta1 needs a line here; a test checks it. A user who knows
// kubectl, but not the operator, must be able to follow the advice.
var Reasons = []Reason{
	// Operating normally, or progressing.
	{v1beta1.ReasonOperatingNormally, "The scaler operates normally.", Fine, "No action needed."},
	{v1beta1.ReasonApplied, "Every pod has the decided sizes.", Fine, "No action needed."},
	{v1beta1.ReasonBoosted, "Every pod has the decided sizes, except that starting pods have more CPU (startupBoost, or because earlier starts were throttled).", ByItself, "Wait: a pod's CPU is lowered once it is Ready and durationSeconds have passed, at the latest 10 minutes and durationSeconds after its start."},
	{v1beta1.ReasonDeploymentFound, "The Deployment exists, and this scaler sizes it.", Fine, "No action needed."},
	{v1beta1.ReasonEnoughHistory, "There is enough usage for a recommendation.", Fine, "No action needed."},
	{v1beta1.ReasonWithinTolerance, "The requests are so close to the recommendation that no change is made.", Fine, "No action needed; a request changes if it differs by more than tolerancePercent (10 % by default)."},
	{v1beta1.ReasonWithinBounds, "A request is above its target, but not above the upper bound, which is wide while history is limited. Or whole CPUs of a Guaranteed pod stay whole in new pods, or the resource is raise-only (scaleDown) or as large as a heap that is set by hand.", ByItself, "Wait: the bound narrows as more usage is observed, and the request is then lowered. To lower it now, set maxAllowed. Whole CPUs become fractions once the pod template requests a fraction. A raise-only request stays, and so does one that a heap needs."},
	{v1beta1.ReasonResizing, "Pods are being resized in place, one at a time, or up to a quarter of them at once.", ByItself, "Wait: a resize takes seconds. After 10 minutes it no longer blocks other pods."},
	{v1beta1.ReasonRollingOut, "The Deployment rolls out a pod template with the decided sizes, with its original ones, or of a ScaledDeployment.", ByItself, "Wait for the rollout (kubectl rollout status). If it does not end, check the newest pods."},
	{v1beta1.ReasonRecreating, "Pods that cannot be resized in place are evicted, one at a time. Their replacements have the decided sizes.", ByItself, "Wait: the next eviction follows when the replacement is ready. If that takes long, check the newest pod and the PodDisruptionBudget."},
	{v1beta1.ReasonVerifying, "The first changed pods are compared with unchanged ones before more pods are lowered: whether they terminate or become unready more often. Or a pod is started with less than its template has for the first time, and is not Ready yet.", ByItself, "Wait: verification takes spec.updatePolicy.verificationSeconds (2 minutes by default), a start at most 10 minutes, and longer while pods are unhealthy for other reasons."},
	{v1beta1.ReasonChangeReverted, "A change was reverted, because pods were clearly less healthy with it. It is not tried again without new evidence.", ByItself, "See status.revertedChanges for what happened on which pods. Set minAllowed if the workload needs more than its usage shows, or edit the scaler's spec to try again."},
	{v1beta1.ReasonInCooldown, "The last change is too recent for another one.", ByItself, "Wait, or lower spec.updatePolicy.cooldownSeconds. OOM kills and usage above the request do not wait for it."},
	{v1beta1.ReasonOutsideWindow, "The change waits for a window of updatePolicy.windows to open.", ByItself, "Wait for the next window, or change spec.updatePolicy.windows. OOM kills and usage above the request do not wait for it."},
	{v1beta1.ReasonInvalidWindow, "A window of updatePolicy.windows is invalid, and never opens.", ByUser, "Correct the schedule or the time zone that the message names in spec.updatePolicy.windows."},
	{v1beta1.ReasonWaitingForBudget, "The change waits for the operator's change budget (changesPerMinute).", ByItself, "Wait for its turn; an administrator can raise budget in the operator's configuration."},
	{v1beta1.ReasonFrozen, "The ConfigMap verticalscaler-freeze in the operator's namespace stops all changes.", ByUser, "Run kubectl vscaler unfreeze to end the freeze, or remove this namespace from the ConfigMap. Waiting changes then continue."},
	{v1beta1.ReasonVPAConflict, "A VerticalPodAutoscaler sizes the same resource of the same container, so the scaler leaves it alone.", ByUser, "Delete the VerticalPodAutoscaler or set its updateMode to Off. If both are intended, remove the resource from controlledResources."},

	// There is no target yet.
	{v1beta1.ReasonLearning, "There is not enough usage for a recommendation yet, so nothing is applied.", ByItself, "Wait a few minutes while the pods run. If it stays, check that kubectl top pods shows their usage."},
	{v1beta1.ReasonMetricsUnavailable, "The operator cannot read usage. It lowers nothing.", ByUser, "Make kubectl top pods work: install or repair metrics-server, and check that the operator may list pods of metrics.k8s.io. If the message says that clocks differ, synchronize those of the nodes."},
	{v1beta1.ReasonMetricsIncomplete, "Running pods or containers have no usage. Nothing is lowered until they have; requests are still raised.", ByUser, "Check why the pod crashes, or else metrics-server and the kubelet of its node, or delete the pod. To lower a request all the same, set maxAllowed."},
	{v1beta1.ReasonMetricsRecovering, "Usage of running pods is back after a gap. Nothing is lowered yet; requests are still raised.", ByItself, "Wait: lowering continues once there was usage in ten collection rounds in a row, five minutes by default."},

	// There is no pod to size.
	{v1beta1.ReasonDeploymentNotFound, "There is no Deployment with that name in the scaler's namespace. After 10 minutes the scaler is Stalled.", ByUser, "Create the Deployment, or correct spec.deploymentName. The scaler then continues at once."},
	{v1beta1.ReasonContainerNotFound, "A policy in spec.resourcePolicy names a container that neither the Deployment nor its pods have, so it has no effect. After 10 minutes the scaler is Stalled.", ByUser, "Correct containerName in spec.resourcePolicy.containerPolicies, or remove the policy."},
	{v1beta1.ReasonConflict, "Another, older scaler sizes the Deployment, or has not restored its pod template yet. If more than 8 scalers name the Deployment, not all of them say which one is the oldest.", ByUser, "Delete all but one of the scalers, or set another spec.deploymentName."},
	{v1beta1.ReasonTerminating, "The Deployment is being deleted.", ByItself, "Wait until it is deleted; a new Deployment with that name is sized again."},
	{v1beta1.ReasonNoPods, "The Deployment has no running pods to resize.", Fine, "No action needed while the Deployment is scaled to 0. Otherwise check why its pods do not run. A pod is resized as soon as it runs. Pods that the message names belong to another owner, such as a Rollout of Argo, and are not sized."},
	{v1beta1.ReasonNothingControlled, "The scaler's resource policy excludes all resources.", ByUser, "Set mode Auto and the controlledResources of a container in spec.resourcePolicy, or delete the scaler."},

	// A user or another controller prevents it.
	{v1beta1.ReasonRecommendOnly, "The scaler shows what it recommends, and changes no pod.", Fine, "No action needed if that is intended. To apply them, set spec.updatePolicy.updateMode to InPlace, Initial or Rollout."},
	{v1beta1.ReasonNewPodsOnly, "The mode is Initial: new pods get the decided sizes, and running pods keep theirs.", Fine, "No action needed. To size running pods, use kubectl rollout restart or updateMode InPlace."},
	{v1beta1.ReasonSuspended, "Only changes are stopped, by spec.suspend: the scaler still learns and recommends.", Fine, "No action needed if that is intended. To continue, set spec.suspend to false."},
	{v1beta1.ReasonPaused, "An annotation with any value but false stops the operator from changing the Deployment. The message quotes the value.", Fine, "No action needed if that is intended. To continue, remove the annotation " + v1beta1.PausedAnnotation + " from the scaler."},
	{v1beta1.ReasonHPAConflict, "A HorizontalPodAutoscaler scales on the utilization of the same resource. Utilization depends on the request, so the scaler leaves the resource alone. Pods that were sized before keep their requests.", ByUser, "Let the HorizontalPodAutoscaler scale on an AverageValue, which explain prints, or on another metric. If both are intended, remove the resource from controlledResources."},
	{v1beta1.ReasonContested, "Another writer has undone the sizes twice within a day, so the operator no longer writes them.", ByUser, "Remove these containers' resources from the manifest of the writer that the message names. The scaler continues when no other writer owns them, or when its spec is edited."},

	// The Deployment is not ready for it.
	{v1beta1.ReasonRolloutInProgress, "Another rollout of the Deployment is in progress: the change waits for it, or pods keep their size until it replaces them.", ByItself, "Wait for the rollout (kubectl rollout status). If it does not end, check the newest pods, or undo it."},
	{v1beta1.ReasonRolloutPaused, "The Deployment is paused, so its pod template is not changed or not rolled out.", ByUser, "Resume the Deployment (kubectl rollout resume)."},

	{v1beta1.ReasonPodsUnavailable, "Not all replicas of the Deployment are available, and no pod is evicted while one is missing. A new pod is not lowered before it is Ready.", ByItself, "Wait until they are available. If they stay unavailable, use kubectl describe on the pods that are not ready."},
	{v1beta1.ReasonTooFewReplicas, "The Deployment has fewer replicas than updatePolicy.minReplicas, so none of its pods is evicted.", ByUser, "Scale the Deployment up, or set spec.updatePolicy.minReplicas to 1 if it may be down while a pod is replaced."},
	{v1beta1.ReasonDisruptionBudget, "A PodDisruptionBudget does not allow another eviction now.", ByItself, "Wait: the operator asks again every 30 seconds. A budget that never allows one (maxUnavailable 0, or minAvailable of all replicas) must be changed."},
	{v1beta1.ReasonManyDisruptionBudgets, "Several PodDisruptionBudgets select the pod. Kubernetes does not evict such a pod.", ByUser, "Keep only one PodDisruptionBudget for the pods, or use another fallback. The operator tries again within 10 minutes."},

	// The pod cannot be resized.
	{v1beta1.ReasonQoSChange, "The sizes would change the pod's QoS class, which is not possible for a running pod.", ByUser, "Set all requests in the Deployment, use controlledValues RequestsAndLimits, or raise maxAllowed if the message says so. Or replace pods: fallback Recreate or Rollout, or updateMode Rollout."},
	{v1beta1.ReasonRestartRequired, "The container's resizePolicy requires a restart for the resource, and the operator restarts nothing.", ByUser, "Set the resizePolicy of the resource to NotRequired in the Deployment, use Rollout as fallback or updateMode, or remove the resource from controlledResources."},
	{v1beta1.ReasonBoundTooLow, "The container was OOM-killed with the most memory that maxAllowed, a LimitRange or a limit allows.", ByUser, "Raise the bound that the message names. If the container should not need that much, look for a leak."},
	{v1beta1.ReasonRaiseLimit, "Usage needs more than a multiple of what the Deployment's template has (ceilings.raiseFactor). Without maxAllowed, no request is raised above that.", ByUser, "If the container needs that much, set maxAllowed, or set the request in the Deployment. If it does not, look for a leak, or for a cache or heap that is sized from the limit."},
	{v1beta1.ReasonRaiseDidNotHelp, "The container was OOM-killed at its size, at two larger sizes, and at the most that is allowed. It has the request from before, or the template's if that is more, until 8 days have been observed or the scaler is edited.", ByUser, "Look for a leak, or for input that no size is enough for. If the container needs still more, raise maxAllowed."},
	{v1beta1.ReasonUsageFollowsLimit, "Usage grew in proportion when the memory limit was raised, twice: a heap, a cache or a pool is sized from the limit. The request stays until 8 days have been observed, the container is OOM-killed, or the scaler is edited.", ByUser, "Nothing, if the size is right. To give it less, set maxAllowed; to give it more, set minAllowed or the request in the Deployment."},
	{v1beta1.ReasonOutlierPod, "One of many pods has more memory than the others: it was OOM-killed again at a size that is enough for them, or had more when the decision was lost.", ByUser, "Look at that pod: a leak, an input that it cannot handle, or more load than the others have. Deleting it may be enough."},
	{v1beta1.ReasonOperatorCeiling, "The request that is recommended, or that minAllowed demands, is above a ceiling in the operator's configuration. The request is raised to the ceiling.", ByUser, "Lower minAllowed if it is a mistake. Else set the request in the Deployment, which no ceiling lowers, or ask an administrator for a higher ceiling."},
	{v1beta1.ReasonUnsupported, "The pod or its node does not support in-place resizes, or the pod declares pod-level resources that cannot follow.", ByUser, "Use Rollout as fallback or updateMode. Or check that the node's kubelet has Kubernetes 1.33 or newer. Pods with pod-level resources need InPlace, and a node whose status.declaredFeatures has InPlacePodLevelResourcesVerticalScaling."},
	{v1beta1.ReasonDeferred, "The node has no room for the new size now. The pod asks for the part that fits, or the kubelet has deferred the resize.", ByItself, "Wait until other pods leave the node. A Deferred resize is withdrawn after 10 minutes at the latest, and repeated after half an hour. Or free resources on the node, lower maxAllowed, or use a fallback that replaces pods then."},
	{v1beta1.ReasonInfeasible, "The node can never hold the new size. After 10 minutes the resize is withdrawn.", ByUser, "Use the fallback Recreate or Rollout, or updateMode Rollout: new pods may run on a larger node. Or lower maxAllowed."},
	{v1beta1.ReasonNodeCapacity, "No node, or not the pod's node, has that much room beside the pod's other containers.", ByUser, "Add a larger node, lower maxAllowed, or use Rollout as fallback or updateMode if new pods may bring a new node."},
	{v1beta1.ReasonResizeError, "The kubelet could not apply the resize, or has not reported it for 10 minutes. It tries again.", ByItself, "Wait. If it stays, see the pod's condition PodResizeInProgress and the kubelet's log. A memory limit that is lowered must stay above usage, with page cache, which kubectl top does not count."},

	// A rule forbids it.
	{v1beta1.ReasonLimitRange, "A LimitRange of the namespace does not allow the sizes, or would add its default limits to a pod that is resized.", ByUser, "Set what the message names in the Deployment. Or change the LimitRange that the message names, or set minAllowed and maxAllowed within its limits."},
	{v1beta1.ReasonQuotaExceeded, "A ResourceQuota of the namespace does not allow the sizes.", ByUser, "Raise the ResourceQuota that the message names, free some of it, or lower maxAllowed. The operator tries again within a minute."},
	{v1beta1.ReasonReplicaFailure, "The API server refused to create pods. New pods start as in the pod template for a day.", ByUser, "Change the quota, LimitRange, policy or webhook that the message names, or set minAllowed and maxAllowed to what it allows. An edit of the scaler's spec ends the wait."},
	{v1beta1.ReasonAdmissionUnavailable, "The API server cannot size new pods: it has no MutatingAdmissionPolicy, or the operator's policy is not installed.", ByUser, "On Kubernetes 1.36 or newer, run the command in the message. Otherwise use another updateMode or fallback."},
	{v1beta1.ReasonAdmissionIneffective, "The API server created a new pod without the decided sizes, so no more pods are evicted.", ByUser, "Check for webhooks that change new pods. Then delete the pod that the message names, or edit the scaler's spec."},
	{v1beta1.ReasonForbidden, "The operator lacks a right.", ByUser, "Grant the right that the message names: run the command in it, or apply the installation again with the roles for the update mode."},
	{v1beta1.ReasonNamespaceTerminating, "The namespace is being deleted.", ByItself, "Wait: the scaler is deleted with its namespace."},
	{v1beta1.ReasonRejected, "The API server refused the change, often because of a webhook or policy, or a size in the Deployment is out of range.", ByUser, "Change the rule or the value that the message names. The operator tries again within a minute."},
	{v1beta1.ReasonUnknown, "The operator could not find out, and tries again.", ByItself, "Wait. If it stays, see the operator's log for the error."},

	// Objects that the operator cannot see.
	{v1beta1.ReasonNamespacedInstall, "The operator watches only some namespaces, and reads no nodes.", Fine, "No action needed. To know in advance which sizes no node can hold, install it for all namespaces."},
	{v1beta1.ReasonNodesForbidden, "The operator watches all namespaces, but may not read nodes.", ByUser, "Grant it to list and watch nodes, so that it knows in advance which sizes no node can hold."},

	// ScaledDeployments.
	{v1beta1.ReasonAvailable, "All pods of the ScaledDeployment have the newest template and are available.", Fine, "No action needed."},
	{v1beta1.ReasonReplacing, "A Deployment must be deleted before the next one is created.", ByItself, "Wait until its pods are deleted. If they are not, check their finalizers and nodes."},
	{v1beta1.ReasonNotControlled, "A Deployment or VerticalScaler with that name belongs to another owner, so it is left alone.", ByUser, "Delete or rename the object that the message names, or set another deploymentName."},
	{v1beta1.ReasonProgressDeadlineExceeded, "The Deployment has given up on its rollout.", ByUser, "Check why its newest pods do not become available, and correct the template."},

	// Policies, and the scalers that they have created.
	{v1beta1.ReasonNoDeployments, "The policy selects no Deployment.", Fine, "No action needed if that is intended. Otherwise correct the selectors, or the labels of Deployments and namespaces."},
	{v1beta1.ReasonInvalidSelector, "A selector of the policy cannot be parsed. It selects nothing, and its scalers stay as they are.", ByUser, "Correct the selector that the message names."},
	{v1beta1.ReasonTooManyPolicies, "The namespace has more than 64 ScalingPolicies, and this one is not among the oldest. It selects nothing, and its scalers stay as they are.", ByUser, "Delete policies of the namespace. One policy can select many Deployments."},
	{v1beta1.ReasonCreatingScalers, "Scalers of selected Deployments are being created, changed or deleted.", ByItself, "Wait: the operator is busy with them. If it stays, see its log."},
	{v1beta1.ReasonScalersRejected, "The API server refuses scalers of the policy, often because of a quota, webhook or admission policy.", ByUser, "Change the rule that the message names, or the template of the policy, or exclude the Deployments."},
	{v1beta1.ReasonEnoughEvidence, "Usage shows that the recommendations would have been enough. The scaler can be promoted.", ByItself, "Wait for its turn: a few scalers of the policy are verified at the same time (rollout.maxConcurrentPercent)."},
	{v1beta1.ReasonCollectingEvidence, "There is too little usage to promote, or usage exceeded the recommendations, and the time began again.", ByItself, "Wait. To promote with less evidence, change spec.rollout of the policy."},
	{v1beta1.ReasonPromotionInProgress, "Scalers of the policy are promoted to the update mode of its template, a few at a time.", ByItself, "Wait: each promoted scaler is verified for rollout.verificationSeconds, a day by default."},
	{v1beta1.ReasonAllPromoted, "All scalers of the policy have the update mode of its template.", Fine, "No action needed."},
	{v1beta1.ReasonPromotionHalted, "Too many promoted scalers reverted a change, or lowered memory before an OOM kill, so no more scalers are promoted. Promoted ones keep their update mode.", ByUser, "Explain the scalers in status.rollout.harmedExamples. Change the template or exclude their Deployments, and set spec.rollout.resumeTime of the policy to the present time."},
	{v1beta1.ReasonOtherScaler, "A VerticalScaler that no policy has created names the Deployment, and comes first.", Fine, "No action needed if that is intended. Otherwise delete that scaler, and the policy creates one."},
	{v1beta1.ReasonOtherPolicy, "Another policy sizes the Deployment. A ScalingPolicy comes before a ClusterScalingPolicy, then the higher priority, then the older one.", Fine, "No action needed if that is intended. Otherwise change a selector or spec.priority of the policies."},
	{v1beta1.ReasonExcluded, "The policy excludes the Deployment or its namespace, or the annotation " + v1beta1.ExcludeAnnotation + " does.", Fine, "No action needed if that is intended. Otherwise remove it from spec.exclude, or remove the annotation."},
	{v1beta1.ReasonSystemNamespace, "The namespace belongs to the cluster itself: kube-*, openshift-*, openshift, or that of the operator.", Fine, "No action needed. To size its Deployments, set spec.systemNamespaces of the policy to Include."},
	{v1beta1.ReasonScaledDeployment, "A ScaledDeployment owns the Deployment, and sizes it.", Fine, "No action needed. To size it, set spec.scaling of the ScaledDeployment."},
	{v1beta1.ReasonNameTaken, "A VerticalScaler with the name of the Deployment exists, and sizes another Deployment.", ByUser, "Give that scaler another name: delete it, and create it with a new name."},
	{v1beta1.ReasonNameTooLong, "The name of the Deployment has more than 63 characters, the most for a VerticalScaler.", ByUser, "Create a scaler with a shorter name for the Deployment, or shorten the name of the Deployment."},
	{v1beta1.ReasonTooLarge, "The Deployment is too large to be stored. It has more than 64 containers, 4 KiB of labels, or 8 KiB of names and flags of containers. Or the large Deployments of its namespace have more than 8 MiB together.", ByUser, "Remove containers, labels or heap flags, or delete unused Deployments of the namespace."},
}

// Cause is the reason for decided sizes, in words.
type Cause struct {
	// Cause is the code: status.decision.reason, and the first word of the history.
	Cause string `json:"cause"`
	// Means is its meaning, after "because".
	Means string `json:"means"`
}

// CauseOf is a cause in words, also an unknown one.
func CauseOf(cause string) Cause {
	if i := slices.IndexFunc(Causes, func(c Cause) bool { return c.Cause == cause }); i >= 0 {
		return Causes[i]
	}
	return Cause{cause, "of a cause that this version does not know"}
}

// Causes are all causes, the most urgent first.
var Causes = []Cause{
	{model.DecidedOOMKill, "a container was OOM-killed"},
	{model.DecidedReverted, "pods were less healthy with the last decision, so it was reverted"},
	{model.DecidedBounds, "a request violated minAllowed, maxAllowed, a LimitRange or a limit"},
	{model.DecidedLowerBound, "a request was below the lower bound: usage asks for more now"},
	{model.DecidedScaleUp, "a request was below its target"},
	{model.DecidedScaleDown, "a request was above its upper bound"},
	{model.DecidedAdopted, "no decision was recorded, and pods, or new ones, did not have what others were resized to, so what the pods had was kept"},
}
