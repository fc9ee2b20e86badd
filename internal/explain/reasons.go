// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package explain says in words what the status of a scaler says in codes: how a number
// came about, why it is not in force, and what would change that.
//
// It is pure. What it has to go by is what the API server has, as far as whoever asks may
// read it; what may not be read is said to be missing, and not guessed.
package explain

import (
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
)

// End says what ends the state that a reason tells of.
type End string

const (
	// Fine is a state that needs no end.
	Fine End = "Fine"
	// ByItself is one that passes without anybody doing anything.
	ByItself End = "ByItself"
	// ByAPerson is one that lasts until a person does something.
	ByAPerson End = "ByAPerson"
)

// Reason is a reason of a condition, in words.
type Reason struct {
	// Reason is the code, one of the constants in api/v1beta1.
	Reason string `json:"reason"`
	// Means is what it says, in a sentence.
	Means string `json:"means"`
	// Ends says what ends it.
	Ends End `json:"ends"`
	// Advice is what to do about it, in a sentence.
	Advice string `json:"advice"`
}

// ReasonFor is a reason in words. It is false for one that a newer operator, or somebody
// else, has made up.
func ReasonFor(reason string) (Reason, bool) {
	i := slices.IndexFunc(reasons, func(r Reason) bool { return r.Reason == reason })
	if i < 0 {
		return Reason{reason, "This version does not know the reason.", ByAPerson, "Read the message, or use the plugin of the operator's version."}, false
	}
	return reasons[i], true
}

// Reasons are all that there are: first those of scalers, then those that only
// ScaledDeployments have. The table in docs/reasons.md is made of them.
func Reasons() []Reason { return slices.Clone(reasons) }

// Whoever adds a reason to api/v1beta1 adds a line here; a test asks for it. The advice is
// a sentence that somebody can follow who knows kubectl and not the operator.
var reasons = []Reason{
	// All is well, or on its way.
	{v1beta1.ReasonOperatingNormally, "The scaler works, and nothing is in its way.", Fine, "Nothing has to be done."},
	{v1beta1.ReasonApplied, "Every pod has the sizes that were decided.", Fine, "Nothing has to be done."},
	{v1beta1.ReasonBoosted, "Every pod has the sizes that were decided, but those that start have more CPU for it, as startupBoost says.", ByItself, "Wait: a pod is put down once it is Ready and durationSeconds have passed, and at the latest 10 minutes and durationSeconds after its start."},
	{v1beta1.ReasonDeploymentFound, "The Deployment exists, and is this scaler's to size.", Fine, "Nothing has to be done."},
	{v1beta1.ReasonEnoughHistory, "There is enough usage to recommend from.", Fine, "Nothing has to be done."},
	{v1beta1.ReasonWithinTolerance, "The requests in force are so close to the recommendation that a change is not worth making.", Fine, "Nothing has to be done; a request moves when it is more than 10 % off."},
	{v1beta1.ReasonWithinBounds, "A request is above its target, but not above the upper bound, which is wide while evidence is thin.", ByItself, "Wait: the bound closes in as more usage is observed, and the request is then lowered; to lower it now, set maxAllowed."},
	{v1beta1.ReasonResizing, "Pods are being resized in place, one after the other.", ByItself, "Wait: a resize takes seconds, and one that takes longer than 10 minutes holds up no other pod."},
	{v1beta1.ReasonRollingOut, "The Deployment rolls out a pod template with the sizes, or gets its own sizes back.", ByItself, "Wait for the rollout (kubectl rollout status); if it does not end, look at the newest pods."},
	{v1beta1.ReasonRecreating, "Pods that cannot be resized in place are evicted, one after the other, and the new ones come with the sizes.", ByItself, "Wait: the next one is evicted once the new one is ready; if that takes long, look at the newest pod, and at the PodDisruptionBudget."},
	{v1beta1.ReasonVerifying, "The pods that were changed first are watched before more is lowered: whether they end, or are no longer ready, more often than those that were not changed.", ByItself, "Wait; it takes spec.updatePolicy.verificationSeconds, which is two minutes unless set, and longer while pods fare badly for other reasons."},
	{v1beta1.ReasonChangeReverted, "A change was put back, since the pods fared clearly worse with it than without. It is not tried again before there is new evidence.", ByItself, "Read in status.revertedChanges what was seen on which pods; set minAllowed if the workload needs more than its usage shows, or edit the scaler's spec to have the change tried again."},
	{v1beta1.ReasonInCooldown, "The last change is too recent for another one.", ByItself, "Wait, or lower spec.updatePolicy.cooldownSeconds; OOM kills and too little CPU do not wait for it."},
	{v1beta1.ReasonOutsideWindow, "The change waits for a maintenance window of updatePolicy.windows to open.", ByItself, "Wait for the next window, or change spec.updatePolicy.windows; OOM kills and too little CPU do not wait for it."},
	{v1beta1.ReasonInvalidWindow, "A window of updatePolicy.windows cannot be understood, and never opens.", ByAPerson, "Correct the schedule or the time zone that the message names in spec.updatePolicy.windows."},
	{v1beta1.ReasonWaitingForBudget, "As much is being changed in this minute as the operator's budget allows, and others come first.", ByItself, "Wait for its turn; an administrator can raise budget in the operator's configuration."},
	{v1beta1.ReasonFrozen, "The ConfigMap verticalscaler-freeze in the operator's namespace stops all changes.", ByAPerson, "Delete that ConfigMap, or take this namespace out of it, once the reason for the freeze is over; what waits is changed then."},
	{v1beta1.ReasonVPAConflict, "A VerticalPodAutoscaler sizes the same resource of the same container, which is left alone.", ByAPerson, "Delete the VerticalPodAutoscaler, set its updateMode to Off, or take the resource out of controlledResources to say that this is meant."},

	// There is no number yet.
	{v1beta1.ReasonLearning, "There is not enough usage to recommend from yet.", ByItself, "Wait a few minutes while the pods run; if it stays, kubectl top pods must show their usage."},
	{v1beta1.ReasonCollectingHistory, "Usage is being observed, and a few minutes of it are needed.", ByItself, "Wait a few minutes while the pods run; if it stays, kubectl top pods must show their usage."},
	{v1beta1.ReasonNoRecommendation, "There is no recommendation to act on yet.", ByItself, "Wait a few minutes while the pods run; if it stays, kubectl top pods must show their usage."},
	{v1beta1.ReasonMetricsUnavailable, "Usage cannot be read. Nothing is lowered meanwhile.", ByAPerson, "Make kubectl top pods work: install or repair metrics-server, and see that the operator may list pods of metrics.k8s.io."},
	{v1beta1.ReasonMetricsIncomplete, "The usage of some pods or containers is missing, and counts for nothing.", ByItself, "Wait for pods that have just started; for one that stays, look at its node's kubelet and at metrics-server."},

	// There is nothing to size.
	{v1beta1.ReasonWaitingForDeployment, "There is no Deployment to size.", ByAPerson, "Create the Deployment, or correct spec.deploymentName; its creation wakes the scaler at once."},
	{v1beta1.ReasonDeploymentNotFound, "There is no Deployment by that name in the scaler's namespace.", ByAPerson, "Create the Deployment, or correct spec.deploymentName; its creation wakes the scaler at once."},
	{v1beta1.ReasonConflict, "Another scaler, which is older, sizes the Deployment, or has not given its pod template back yet.", ByAPerson, "Delete one of the two scalers, or name another Deployment in spec.deploymentName."},
	{v1beta1.ReasonTerminating, "The Deployment is being deleted.", ByItself, "Wait until it has gone; a Deployment that is made anew under the name is sized again."},
	{v1beta1.ReasonNoPods, "The Deployment has no running pods that could be resized.", ByAPerson, "Scale the Deployment up, or see why its pods do not run; a pod is resized as soon as it does."},
	{v1beta1.ReasonNothingControlled, "The scaler's resource policy leaves nothing to manage.", ByAPerson, "Set mode Auto and the controlledResources of a container in spec.resourcePolicy, or delete the scaler."},

	// Somebody does not want it.
	{v1beta1.ReasonRecommendOnly, "The update mode is Recommend: recommendations are made, and not applied.", ByAPerson, "Set spec.updatePolicy.updateMode to InPlace, Initial or Rollout to apply them."},
	{v1beta1.ReasonNewPodsOnly, "The mode is Initial: new pods get the sizes, and those that run stay as they are.", ByAPerson, "Nothing has to be done; kubectl rollout restart makes new pods of all, and updateMode InPlace resizes those that run."},
	{v1beta1.ReasonSuspended, "The scaler is suspended: it goes on recommending, and changes nothing.", ByAPerson, "Set spec.suspend to false."},
	{v1beta1.ReasonPaused, "The annotation that stops the operator from touching the Deployment is set.", ByAPerson, "Remove the annotation " + v1beta1.PausedAnnotation + " from the scaler."},
	{v1beta1.ReasonHPAConflict, "A HorizontalPodAutoscaler scales on the utilization of the same resource. Utilization is a share of the request, so the two would fight; the resource is left alone.", ByAPerson, "Let the HorizontalPodAutoscaler scale on another metric, or on an AverageValue; or take the resource out of controlledResources to say that this is meant."},
	{v1beta1.ReasonContested, "Another writer has undone the sizes twice within a day, so that they are no longer written.", ByAPerson, "Take the resources of these containers out of what the writer that the message names applies; it begins again once nobody else owns them, or when the scaler's spec is edited."},

	// The Deployment is not ready for it.
	{v1beta1.ReasonRolloutInProgress, "Another rollout of the Deployment is under way, and the sizes wait for its end.", ByItself, "Wait for the rollout (kubectl rollout status); if it does not end, look at the newest pods, or undo it."},
	{v1beta1.ReasonRolloutPaused, "The Deployment is paused, so its pod template is left alone, or not rolled out.", ByAPerson, "Resume the Deployment (kubectl rollout resume)."},

	{v1beta1.ReasonPodsUnavailable, "Not all replicas of the Deployment are available, and no pod is evicted while one is missing.", ByItself, "Wait until they are; if they do not become available, see why (kubectl describe the pods that are not ready)."},
	{v1beta1.ReasonTooFewReplicas, "The Deployment has fewer replicas than updatePolicy.minReplicas, so none of its pods is evicted.", ByAPerson, "Scale the Deployment up, or set spec.updatePolicy.minReplicas to 1 if it may be down while a pod is replaced."},
	{v1beta1.ReasonDisruptionBudget, "A PodDisruptionBudget does not allow another eviction now.", ByItself, "Wait: it is asked again every half a minute; one that never allows any (maxUnavailable 0, or minAvailable of all replicas) has to be changed by whoever owns it."},
	{v1beta1.ReasonManyDisruptionBudgets, "Several PodDisruptionBudgets select the pod, which Kubernetes then lets nobody evict.", ByAPerson, "Leave one PodDisruptionBudget for the pods, or use another fallback; it is tried again within 10 minutes."},

	// The pod cannot take it.
	{v1beta1.ReasonQoSChange, "The sizes would change the pod's QoS class, which cannot be done to a running pod.", ByAPerson, "Set requests in the Deployment where it has none, use controlledValues RequestsAndLimits, raise maxAllowed if the message says so, or use Recreate as the fallback, or Rollout as the fallback or updateMode, which make new pods."},
	{v1beta1.ReasonRestartRequired, "The container's resizePolicy asks for a restart when the resource changes, and nothing is restarted.", ByAPerson, "Set the resizePolicy of the resource to NotRequired in the Deployment, or use Rollout as the fallback or updateMode, or take the resource out of controlledResources."},
	{v1beta1.ReasonUnsupported, "The pod or its node cannot be resized in place, or declares resources for the pod as a whole.", ByAPerson, "Use Rollout as the fallback or updateMode; or see that the node's kubelet is of Kubernetes 1.33 or newer, and that the pod declares no resources for itself as a whole."},
	{v1beta1.ReasonDeferred, "The node has no room for the new size now. The kubelet has put the resize off, and tries again.", ByItself, "Wait until other pods of the node have gone; or make room on it, lower maxAllowed, or use the fallback Recreate or Rollout, which make new pods after 10 minutes."},
	{v1beta1.ReasonInfeasible, "The node can never hold the new size.", ByAPerson, "Use Recreate as the fallback, or Rollout as the fallback or updateMode, whose new pods may go to a larger node, or lower maxAllowed."},
	{v1beta1.ReasonNodeCapacity, "No node, or not the pod's node, can give so much, beside the pod's other containers.", ByAPerson, "Add a larger node, lower maxAllowed, or use Rollout as the fallback or updateMode where new pods may bring a new node."},
	{v1beta1.ReasonUsageAboveLimit, "More memory is in use than a lower limit allows, so the limit was put back.", ByItself, "Wait: it stays until usage decides anew; to lower it now, the container has to use less memory."},
	{v1beta1.ReasonResizeError, "The kubelet could not put the resize in force, or has not said so for 10 minutes. It tries again.", ByItself, "Wait; if it stays, see the pod's condition PodResizeInProgress and the kubelet's log. Memory in use cannot be taken away: the container's usage must fall first."},

	// A rule forbids it.
	{v1beta1.ReasonLimitRange, "A LimitRange of the namespace does not allow the sizes.", ByAPerson, "Change the LimitRange that the message names, or set minAllowed and maxAllowed within what it allows."},
	{v1beta1.ReasonQuotaExceeded, "A ResourceQuota of the namespace does not allow the sizes.", ByAPerson, "Raise the ResourceQuota that the message names, remove what else uses it up, or lower maxAllowed; it is tried again within a minute."},
	{v1beta1.ReasonAdmissionUnavailable, "The API server cannot size new pods: it has no MutatingAdmissionPolicy, or ours is not installed.", ByAPerson, "Install config/components/new-pods on Kubernetes 1.36 or newer, or use another updateMode or fallback."},
	{v1beta1.ReasonAdmissionIneffective, "A new pod was made without the sizes that the API server was to put into it, so that no more pods are evicted.", ByAPerson, "See what else changes new pods, such as a webhook, and that config/components/new-pods is installed as this version has it; then delete the pod that the message names, and the next one tells, or edit the scaler's spec."},
	{v1beta1.ReasonForbidden, "The operator lacks a right.", ByAPerson, "Grant the operator what the message says, by applying its installation again with the roles of the update mode."},
	{v1beta1.ReasonNamespaceTerminating, "The namespace is being deleted.", ByItself, "Nothing has to be done: the scaler goes with its namespace."},
	{v1beta1.ReasonRejected, "The API server refused the change, often for an admission webhook or policy, or a size in the Deployment cannot be believed.", ByAPerson, "Do what the message says: change the rule that refuses it, or the value that is out of range; it is tried again within a minute."},
	{v1beta1.ReasonUnknown, "The operator could not find out, and tries again.", ByItself, "Wait; if it stays, the operator's log says what fails."},

	// What the operator cannot see.
	{v1beta1.ReasonNamespacedInstall, "The operator watches some namespaces only, and reads no nodes.", Fine, "Nothing has to be done; install it for all namespaces if sizes that no node can hold shall be known beforehand."},
	{v1beta1.ReasonNodesForbidden, "The operator watches all namespaces, and may not read nodes.", ByAPerson, "Grant it to list and watch nodes if sizes that no node can hold shall be known beforehand."},

	// ScaledDeployments.
	{v1beta1.ReasonAvailable, "All pods of the ScaledDeployment have the newest template and are available.", Fine, "Nothing has to be done."},
	{v1beta1.ReasonProgressing, "The Deployment is on its way to its newest template.", ByItself, "Wait for the rollout (kubectl rollout status); if it does not end, look at the newest pods."},
	{v1beta1.ReasonReplacing, "A Deployment must go before the next one is made.", ByItself, "Wait until its pods have gone; if they do not, look at their finalizers and nodes."},
	{v1beta1.ReasonNotControlled, "A Deployment or VerticalScaler by that name exists and is somebody else's, so it is left alone.", ByAPerson, "Delete or rename what the message names, or choose another deploymentName."},
	{v1beta1.ReasonProgressDeadlineExceeded, "The Deployment has given up on its rollout.", ByAPerson, "See why its newest pods do not become available, and correct the template."},
}

// Cause is why sizes were decided anew, in words.
type Cause struct {
	// Cause is the code: status.decision.reason, and the first word of the history.
	Cause string `json:"cause"`
	// Means is what it says, after "because".
	Means string `json:"means"`
}

// CauseOf is a cause in words, and false for one that is not known here.
func CauseOf(cause string) (Cause, bool) {
	i := slices.IndexFunc(causes, func(c Cause) bool { return c.Cause == cause })
	if i < 0 {
		return Cause{cause, "of something that this version does not know"}, false
	}
	return causes[i], true
}

// Causes are all that there are, the most urgent first.
func Causes() []Cause { return slices.Clone(causes) }

var causes = []Cause{
	{plan.DecidedOOMKill, "a container was killed for want of memory"},
	{plan.DecidedPutBack, "pods fared worse with the last decision, so that what was before is put back"},
	{plan.DecidedBounds, "a request was outside of what minAllowed, maxAllowed, a LimitRange or a limit allows"},
	{plan.DecidedLowerBound, "a request was below the lower bound: usage asks for more now"},
	{plan.DecidedRaise, "a request was below its target"},
	{plan.DecidedLower, "a request was above its upper bound"},
	{plan.DecidedAdopted, "the pods had different sizes and nothing said which was meant, so the largest was kept"},
}
