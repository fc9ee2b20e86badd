// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
)

// maxHistory is the number of entries in the status history.
const maxHistory = 10

const (
	// progressDelay is the time before progress is reported: mostly, the final status follows sooner.
	progressDelay = 5 * time.Second
	// waitingDelay is the same for a scaler that waits for the budget, or has waited since: mostly, its turn comes sooner. It
	// plans with the newest recommendation then.
	waitingDelay = 10 * time.Minute
)

// writeStatus writes the status unless it is unchanged. Progress alone may wait.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	completeStatus(s)
	key, delay := client.ObjectKeyFromObject(s.scaler), progressDelay
	if s.plan.Verdict.Reason == v1beta1.ReasonWaitingForBudget {
		delay = waitingDelay
	}
	before, isEqual := r.memory.of(key), scaler.EqualStatus(s.scaler.Status, s.status)
	since, delay := cmp.Or(before.progressSince, s.now), max(before.progressWait, delay)
	if left := delay - s.now.Sub(since); !isEqual && left > 0 && isProgress(s) {
		r.memory.change(key, func(m *memory) { m.progressSince, m.progressWait = since, delay })
		s.again(left)
		return nil
	}
	if !before.progressSince.IsZero() {
		r.memory.change(key, func(m *memory) { m.progressSince, m.progressWait = time.Time{}, 0 })
	}
	if isEqual {
		return nil
	}
	updated := s.scaler.DeepCopy()
	updated.Status = *s.status.DeepCopy() // The answer is decoded into it.
	if err := r.Client.Status().Update(ctx, updated); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.written.Remember(updated, s.now)
	return nil
}

// isProgress reports whether the status has changed only in the progress of the pods, or in the recommendation of a scaler
// that waits for the budget, and more changes follow.
func isProgress(s *scope) bool {
	before, after := s.scaler.Status, s.status
	switch {
	case s.plan.Verdict.Reason == v1beta1.ReasonWaitingForBudget:
		after.Recommendation = before.Recommendation
	case s.plan.Verdict.State != plan.Changing:
		return false
	}
	after.Summary, after.Conditions = before.Summary, slices.Clone(after.Conditions)
	for i, c := range after.Conditions {
		if was := meta.FindStatusCondition(before.Conditions, c.Type); was != nil && (c.Type == v1beta1.ConditionApplied || c.Type == v1beta1.ConditionChanging) {
			after.Conditions[i] = *was
		}
	}
	return scaler.EqualStatus(before, after)
}

// completeStatus turns the values of a reconcile into the status.
func completeStatus(s *scope) {
	status := &s.status
	status.ObservedGeneration = s.scaler.Generation
	o := s.observation
	switch {
	case !s.standing.IsFirst():
		status.Target, status.Summary, status.Recommendation = nil, nil, nil
		status.Decision, status.RevertedChanges = nil, nil
	case s.err != nil && o.deployment == nil:
		// The reconcile failed before it read the Deployment: the last known status stands.
	case o.deployment == nil:
		status.Target, status.Summary, status.Decision, status.RevertedChanges = nil, nil, nil, nil
	default:
		d := o.situation.Deployment
		status.Target = &v1beta1.Target{UID: d.UID, Generation: d.Generation, Replicas: d.Replicas, UpdatedReplicas: d.UpdatedReplicas}
		if s.isPlanned() { // else the decision stands
			status.Decision = scaler.APIDecision(s.plan.Decision)
			status.RevertedChanges = scaler.APIRevertedChanges(s.plan.RevertedChanges)
			status.Summary = summaryOf(s)
		}
	}
	status.NewPods = recordedNewPods(s)
	if s.plan.Decided && s.plan.Decision != nil {
		status.History = append([]v1beta1.HistoryEntry{{
			Time:    metav1.NewTime(s.plan.Decision.Time.Truncate(time.Second)),
			Message: formatDecided(s),
		}}, status.History...)
		status.History = status.History[:min(len(status.History), maxHistory)]
	}
	status.Conditions = conditionsOf(s)
	summary, before := ptr.Deref(status.Summary, v1beta1.Summary{}), ptr.Deref(s.scaler.Status.Summary, v1beta1.Summary{})
	summary.Reason, summary.ReasonTime = scaler.ReasonInShort(status.Conditions), before.ReasonTime
	if summary.Reason != before.Reason {
		summary.ReasonTime = ptr.To(metav1.NewTime(s.now.Truncate(time.Second)))
	}
	status.Summary = &summary
}

// conditionsOf returns all conditions. A condition whose status is unchanged keeps its
// transition time.
func conditionsOf(s *scope) []metav1.Condition {
	target, applied := targetFound(s), applied(s)
	provided := recommendationProvided(s, target)
	containers, isUnmatched := containersFound(s)
	stalled := stalled(s, target, provided, containers)
	changing := changing(s, stalled)
	all := make([]metav1.Condition, 0, 11)
	all = append(all, ready(s, target, provided, applied, stalled), target, provided, applied, changing, reconciling(s, changing, stalled), stalled)
	if isUnmatched {
		all = append(all, containers)
	}
	if c, ok := s.access.Condition(); ok {
		all = append(all, c)
	}
	if c, ok := newPodsSized(s); ok {
		all = append(all, c)
	}
	if c, ok := readyForPromotion(s, provided); ok {
		all = append(all, c)
	}
	return conditions.Merge(s.scaler.Status.Conditions, all, s.scaler.Generation, s.now)
}

func targetFound(s *scope) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionTargetFound, Status: metav1.ConditionFalse}
	switch o := s.observation; {
	case s.standing.Refused:
		c.Reason = v1beta1.ReasonConflict
		c.Message = fmt.Sprintf("More than %d VerticalScalers name Deployment %s, and the oldest one sizes it: delete the others", precedence.MaxReported, scaler.Target(s.scaler))
	case !s.standing.IsFirst():
		c.Reason = v1beta1.ReasonConflict
		c.Message = fmt.Sprintf("VerticalScaler %s, which is older, sizes Deployment %s: delete one of the two", s.standing.Winner, scaler.Target(s.scaler))
	case o.deployment == nil && s.err != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1beta1.ReasonUnknown, "The Deployment has not been read yet"
	case o.tooLarge:
		c.Reason = v1beta1.ReasonTooLarge
		c.Message = fmt.Sprintf("Deployment %s is too large to be sized: remove containers or heap flags, or delete unused large Deployments of the namespace", scaler.Target(s.scaler))
	case o.deployment == nil:
		c.Reason = v1beta1.ReasonDeploymentNotFound
		c.Message = fmt.Sprintf("Waiting for Deployment %s to be created", scaler.Target(s.scaler))
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1beta1.ReasonDeploymentFound
		c.Message = fmt.Sprintf("Deployment %s is found", scaler.Target(s.scaler))
		if names := o.situation.Injected(); len(names) > 0 {
			c.Message += ". Not sized, because they are in the pods and not in the pod template: " + strings.Join(firstOf(names), ", ")
		}
	}
	return c
}

func recommendationProvided(s *scope, target metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionRecommendationProvided, Status: metav1.ConditionFalse}
	provided := s.status.Recommendation != nil
	switch problems := s.observation.problems; {
	case s.observation.deployment == nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, target.Reason, "Usage is collected once this scaler sizes the Deployment"
	case problems.Outage != "":
		c.Reason = v1beta1.ReasonMetricsUnavailable
		c.Message = "Usage cannot be read, so nothing is lowered: " + problems.Outage
	case problems.Recovering != "":
		c.Reason, c.Message = v1beta1.ReasonMetricsRecovering, "Nothing is lowered: "+problems.Recovering
		if provided {
			c.Status = metav1.ConditionTrue
		}
	case problems.Incomplete != "" && provided:
		c.Status, c.Reason = metav1.ConditionTrue, v1beta1.ReasonMetricsIncomplete
		c.Message = "Usage of running pods is missing, so nothing is lowered: " + problems.Incomplete + remedyOf(s)
	case problems.Incomplete != "":
		c.Reason = v1beta1.ReasonMetricsIncomplete
		c.Message = "Usage of running pods is missing: " + problems.Incomplete + remedyOf(s)
	case provided:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonEnoughHistory, "There is enough usage for a recommendation"
	case s.isPlanned() && s.observation.situation.AlivePods() == 0:
		c.Reason, c.Message = v1beta1.ReasonNoPods, "No usage is collected while the Deployment has no running pods"
	default:
		c.Reason, c.Message = v1beta1.ReasonLearning, "Collecting usage; the first recommendation takes a few minutes"
	}
	if past := s.observation.problems.Past; past != "" && s.observation.deployment != nil {
		c.Message += "; past usage is not loaded yet: " + past
	}
	return c
}

// exitedLately is the time after an exit in which a container without usage counts as crashing. It exceeds the kubelet's
// restart delay.
const exitedLately = 10 * time.Minute

// remedyOf is the advice for pods without usage. Crashing containers have none between starts.
func remedyOf(s *scope) string {
	for _, pod := range s.observation.situation.Pods {
		crashing := pod.BackingOff
		for _, exit := range pod.Exits {
			if s.now.Sub(exit.At) < exitedLately {
				crashing = append(slices.Clone(crashing), exit.Container)
			}
		}
		if len(crashing) > 0 && !pod.Terminating && !pod.Ended {
			return fmt.Sprintf(". Container %s of pod %s crashes: see kubectl logs --previous", slices.Min(crashing), pod.Name)
		}
	}
	return ". Check metrics-server and the kubelets of their nodes"
}

func applied(s *scope) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionApplied, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonUnknown}
	switch {
	case !s.standing.IsFirst():
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1beta1.ReasonConflict, "Another scaler sizes the Deployment"
	case s.observation.deployment == nil && s.err == nil:
		c.Reason, c.Message = v1beta1.ReasonDeploymentNotFound, "There is no Deployment to size"
	case !s.isPlanned():
		c.Message = unfinished
	default:
		c.Status = metav1.ConditionFalse
		if s.plan.Verdict.State.IsApplied() {
			c.Status = metav1.ConditionTrue
		}
		c.Reason, c.Message = s.plan.Verdict.Reason, s.plan.Verdict.Message
		if c.Reason == v1beta1.ReasonNoPods {
			c.Message = noteForeign(c.Message, s.observation.foreign)
		}
	}
	return c
}

// unfinished is the message of a reconcile that failed before it had a plan. The error itself
// is in the log, because its text may change with each retry.
const unfinished = "The last reconcile failed and is retried; see the operator's log"

// changing is True while pods are changed, but never together with Stalled: a user either waits or
// acts.
func changing(s *scope, stalled metav1.Condition) metav1.Condition {
	if s.plan.Verdict.State == plan.Changing && stalled.Status != metav1.ConditionTrue {
		return metav1.Condition{Type: v1beta1.ConditionChanging, Status: metav1.ConditionTrue, Reason: s.plan.Verdict.Reason, Message: s.plan.Verdict.Message}
	}
	return metav1.Condition{Type: v1beta1.ConditionChanging, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonOperatingNormally, Message: "No change in progress"}
}

// reconciling is True while pods are changed because the spec was edited, and until the reconcile of
// an edit succeeds. Changes that follow usage do not count, as an HPA that scales is not in progress
// either: GitOps tools would wait for them.
func reconciling(s *scope, changing, stalled metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionReconciling, Status: metav1.ConditionTrue}
	switch {
	case stalled.Status == metav1.ConditionTrue || !isForNewSpec(s.scaler):
	case changing.Status == metav1.ConditionTrue:
		c.Reason, c.Message = changing.Reason, changing.Message
		return c
	case s.err != nil && !s.isPlanned():
		c.Reason, c.Message = v1beta1.ReasonUnknown, unfinished
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1beta1.ReasonOperatingNormally, "No change of the spec is being applied"
	return c
}

// isForNewSpec reports whether a change in progress follows from an edit of the spec. That is so
// in the first reconcile after the edit, and until a reconcile finds it applied or waiting.
func isForNewSpec(vs *v1beta1.VerticalScaler) bool {
	return vs.Status.ObservedGeneration != vs.Generation || meta.IsStatusConditionTrue(vs.Status.Conditions, v1beta1.ConditionReconciling)
}

// stalled is True if a user must act.
func stalled(s *scope, target, provided, containers metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionStalled, Status: metav1.ConditionTrue}
	isOverdue := func(c metav1.Condition) bool {
		return unmatchedFor(s.scaler.Status.Conditions, c, s.now) >= unmatchedLimit
	}
	switch {
	case target.Reason == v1beta1.ReasonConflict || target.Reason == v1beta1.ReasonTooLarge:
		c.Reason, c.Message = target.Reason, target.Message
	case isOverdue(target):
		c.Reason = v1beta1.ReasonDeploymentNotFound
		c.Message = fmt.Sprintf("There is no Deployment %s: create it, or correct spec.deploymentName", scaler.Target(s.scaler))
	case s.plan.Verdict.State.IsStalled():
		c.Reason, c.Message = s.plan.Verdict.Reason, s.plan.Verdict.Message
	case s.observation.situation.Unsaved.Exists():
		c.Reason, c.Message = s.observation.situation.Unsaved.Reason, s.observation.situation.Unsaved.Message
	case provided.Reason == v1beta1.ReasonMetricsUnavailable:
		c.Reason, c.Message = provided.Reason, provided.Message
	case isOverdue(containers):
		c.Reason, c.Message = containers.Reason, containers.Message
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1beta1.ReasonOperatingNormally, "No action required"
	}
	return c
}

// ready sums up the other conditions. Learning, waiting and suspended scalers are Ready, but none without usage of its pods.
func ready(s *scope, target, provided, applied, stalled metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonOperatingNormally}
	switch {
	case stalled.Status == metav1.ConditionTrue:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, stalled.Reason, stalled.Message
	case s.err != nil && !s.isPlanned():
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1beta1.ReasonUnknown, unfinished
	case target.Status != metav1.ConditionTrue:
		c.Reason, c.Message = target.Reason, target.Message
	case scaler.LacksUsage(provided.Reason):
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, provided.Reason, provided.Message
	case scaler.IsPaused(s.scaler):
		c.Reason, c.Message = v1beta1.ReasonPaused, applied.Message
	case s.scaler.Spec.Suspend:
		c.Reason, c.Message = v1beta1.ReasonSuspended, "Nothing is changed while the scaler is suspended"
	case scaler.Mode(&s.scaler.Spec) == v1beta1.UpdateModeRecommend:
		c.Reason, c.Message = v1beta1.ReasonRecommendOnly, "Recommendations are not applied"
	case provided.Reason == v1beta1.ReasonNoPods:
		c.Reason, c.Message = provided.Reason, provided.Message
		if applied.Reason == c.Reason {
			c.Message = applied.Message // It names pods of another owner.
		}
	case provided.Status != metav1.ConditionTrue && applied.Reason != v1beta1.ReasonHPAConflict && applied.Reason != v1beta1.ReasonVPAConflict:
		c.Reason, c.Message = v1beta1.ReasonLearning, provided.Message
	case s.frozen != "":
		c.Reason, c.Message = v1beta1.ReasonFrozen, s.frozen
	default:
		c.Message = "Operating normally"
	}
	return c
}

// formatDecision is a decision in one line, with the old and new sizes.
func formatDecision(s plan.Situation, d *plan.Decision) string {
	parts := formatRequests(s, d, false)
	if len(parts) == 0 { // all pods have it already
		parts = formatRequests(s, d, true)
	}
	return conditions.Truncated(fmt.Sprintf("%s: %s", d.Reason, strings.Join(parts, "; ")))
}

// formatDecided is the plan's decision, and the evidence if it reverts a change.
func formatDecided(s *scope) string {
	text := formatDecision(s.observation.situation, s.plan.Decision)
	if s.plan.Reverted != "" {
		text = conditions.Truncated(text + " (" + s.plan.Reverted + ")")
	}
	return text
}

func formatRequests(s plan.Situation, d *plan.Decision, all bool) (parts []string) {
	for _, name := range slices.Sorted(maps.Keys(d.Requests)) {
		after := d.Requests[name]
		before := furthestRequests(s, name, after, nil)
		if s.Decision != nil {
			before = s.Decision.Requests[name].Or(before)
		}
		var lastGood quantity.Amounts // of a change that another decision interrupts
		if s.Decision != nil && s.Decision.Verification != nil && d.Reason != plan.DecidedReverted {
			lastGood = s.Decision.Verification.Good[name]
		}
		var words []string
		for _, r := range []plan.Resource{plan.CPU, plan.Memory} {
			if from, to := r.Of(before), r.Of(after); to > 0 && (all || to != from) {
				words = append(words, r.String()+" "+arrow(r.Format, from, to)+restored(r.Of(lastGood), from, to))
			}
		}
		if len(words) > 0 {
			parts = append(parts, name+" "+strings.Join(words, ", "))
		}
	}
	return parts
}

// restored reports whether a request was lowered, and is raised to its last good value because another
// decision interrupts the verification.
func restored(lastGood, before, after int64) string {
	if lastGood == 0 || after != lastGood || after <= before {
		return ""
	}
	return " (restored: not verified yet)"
}
