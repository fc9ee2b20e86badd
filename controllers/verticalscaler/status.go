// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// maxHistory is the number of changes that the status remembers.
const maxHistory = 10

// completeStatus turns what a pass found, decided and did into the status. It is
// the only place that does.
func completeStatus(vs *v1beta1.VerticalScaler, p *scope) {
	if isConflict(p.err) {
		p.status = *vs.Status.DeepCopy() // it rests on an old cache, and is made again at once
		return
	}
	s := &p.status
	s.ObservedGeneration = vs.Generation
	o := p.observation
	switch {
	case p.err != nil && o.deployment == nil:
		// The pass ended before it saw the Deployment: what was known stands.
	case o.deployment == nil:
		s.Target, s.Summary, s.Decision, s.RevertedChanges = nil, nil, nil, nil
	default:
		d := workload.ReadDeployment(o.deployment)
		s.Target = &v1beta1.Target{UID: d.UID, Generation: d.Generation, Replicas: d.Replicas, UpdatedReplicas: d.UpdatedReplicas}
		if o.winner != "" {
			s.Summary, s.Recommendation, s.Decision, s.RevertedChanges = nil, nil, nil, nil
		}
		if isPlanned(p) { // else the decision stands
			s.Decision = scaler.APIDecision(p.plan.Decision)
			s.RevertedChanges = scaler.APIRevertedChanges(p.plan.RevertedChanges)
			s.Summary = summaryOf(p)
		}
	}
	if s.NewPods != nil { // none while there is nothing to size, and none of another Deployment
		s.NewPods = scaler.APINewPods(p.plan.NewPods)
		if p.keepsNewPods && vs.Status.NewPods != nil || p.err != nil && !isPlanned(p) {
			s.NewPods = vs.Status.NewPods
		}
	}
	if p.plan.Decided && p.plan.Decision != nil {
		s.History = append([]v1beta1.HistoryEntry{{
			Time:    metav1.NewTime(p.plan.Decision.Time.Truncate(time.Second)),
			Message: formatDecided(p),
		}}, s.History...)
		s.History = s.History[:min(len(s.History), maxHistory)]
	}
	s.Conditions = conditionsOf(vs, p)
}

// isPlanned says that the pass got as far as a plan.
func isPlanned(p *scope) bool { return p.plan.Verdict.Reason != "" }

// conditionsOf makes all conditions, keeping the transition times of those that
// stay.
func conditionsOf(vs *v1beta1.VerticalScaler, p *scope) []metav1.Condition {
	target, provided, applied := targetFound(vs, p), recommendationProvided(p), applied(p)
	stalled := stalled(p, target, provided)
	all := []metav1.Condition{
		ready(vs, p, target, provided, applied, stalled), target, provided, applied, reconciling(p, stalled), stalled,
	}
	if c, ok := p.access.Condition(); ok {
		all = append(all, c)
	}
	return conditions.Merge(vs.Status.Conditions, all, vs.Generation, p.now)
}

func targetFound(vs *v1beta1.VerticalScaler, p *scope) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionTargetFound, Status: metav1.ConditionFalse}
	switch o := p.observation; {
	case o.winner != "":
		c.Reason = v1beta1.ReasonConflict
		c.Message = fmt.Sprintf("VerticalScaler %s, which is older, sizes Deployment %s: delete one of the two", o.winner, scaler.Target(vs))
	case o.deployment == nil && p.err != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1beta1.ReasonUnknown, "The Deployment could not be read yet"
	case o.deployment == nil:
		c.Reason = v1beta1.ReasonDeploymentNotFound
		c.Message = fmt.Sprintf("Waiting for Deployment %s to be created", scaler.Target(vs))
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1beta1.ReasonDeploymentFound
		c.Message = fmt.Sprintf("Deployment %s is found", scaler.Target(vs))
	}
	return c
}

func recommendationProvided(p *scope) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionRecommendationProvided, Status: metav1.ConditionFalse}
	provided := p.status.Recommendation != nil
	switch problems := p.observation.problems; {
	case p.observation.deployment == nil || p.observation.winner != "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1beta1.ReasonWaitingForDeployment, "Usage is observed once there is a Deployment to size"
	case problems.Outage != "":
		c.Reason = v1beta1.ReasonMetricsUnavailable
		c.Message = "Usage cannot be read, so nothing is lowered: " + problems.Outage
	case problems.Incomplete != "" && provided:
		c.Status, c.Reason = metav1.ConditionTrue, v1beta1.ReasonMetricsIncomplete
		c.Message = "Some usage is missing and counts for nothing: " + problems.Incomplete
	case problems.Incomplete != "":
		c.Reason = v1beta1.ReasonMetricsIncomplete
		c.Message = "Usage is missing: " + problems.Incomplete
	case provided:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonEnoughHistory, "There is enough usage to recommend from"
	default:
		c.Reason, c.Message = v1beta1.ReasonCollectingHistory, "Usage is being observed; a few minutes are needed"
	}
	if past := p.observation.problems.Past; past != "" && p.observation.deployment != nil && p.observation.winner == "" {
		c.Message += "; usage of the past is not known yet: " + past
	}
	return c
}

func applied(p *scope) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionApplied, Status: metav1.ConditionUnknown, Reason: v1beta1.ReasonUnknown}
	switch {
	case p.observation.deployment == nil && p.err == nil:
		c.Reason, c.Message = v1beta1.ReasonWaitingForDeployment, "There is no Deployment to size"
	case p.observation.winner != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1beta1.ReasonConflict, "Another scaler sizes the Deployment"
	case !isPlanned(p):
		c.Message = unfinished
	default:
		c.Status = metav1.ConditionFalse
		if p.plan.Verdict.State.IsApplied() {
			c.Status = metav1.ConditionTrue
		}
		c.Reason, c.Message = p.plan.Verdict.Reason, p.plan.Verdict.Message
	}
	return c
}

// unfinished is the message of a pass that failed before it had a plan. The error
// itself may read differently each time; the log has it.
const unfinished = "The pass could not be finished; it is tried again"

// reconciling is True while pods are being changed, but not beside Stalled: one of
// the two answers whether to wait or to act.
func reconciling(p *scope, stalled metav1.Condition) metav1.Condition {
	if p.plan.Verdict.State == plan.Changing && stalled.Status != metav1.ConditionTrue {
		return metav1.Condition{Type: v1beta1.ConditionReconciling, Status: metav1.ConditionTrue, Reason: p.plan.Verdict.Reason, Message: p.plan.Verdict.Message}
	}
	return metav1.Condition{Type: v1beta1.ConditionReconciling, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonOperatingNormally, Message: "No change is under way"}
}

// stalled is True when a person must act.
func stalled(p *scope, target, provided metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionStalled, Status: metav1.ConditionTrue}
	switch {
	case target.Reason == v1beta1.ReasonConflict:
		c.Reason, c.Message = target.Reason, target.Message
	case p.plan.Verdict.State.IsStalled():
		c.Reason, c.Message = p.plan.Verdict.Reason, p.plan.Verdict.Message
	case provided.Reason == v1beta1.ReasonMetricsUnavailable:
		c.Reason, c.Message = provided.Reason, provided.Message
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, v1beta1.ReasonOperatingNormally, "Nothing waits for a person"
	}
	return c
}

// ready sums the others up. Learning, waiting and suspended are Ready.
func ready(vs *v1beta1.VerticalScaler, p *scope, target, provided, applied, stalled metav1.Condition) metav1.Condition {
	c := metav1.Condition{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonOperatingNormally}
	switch {
	case stalled.Status == metav1.ConditionTrue:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, stalled.Reason, stalled.Message
	case p.err != nil && !isPlanned(p):
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, v1beta1.ReasonUnknown, unfinished
	case target.Status != metav1.ConditionTrue:
		c.Reason, c.Message = v1beta1.ReasonWaitingForDeployment, target.Message
	case scaler.IsPaused(vs):
		c.Reason, c.Message = v1beta1.ReasonPaused, applied.Message
	case vs.Spec.Suspend:
		c.Reason, c.Message = v1beta1.ReasonSuspended, "Nothing is changed while the scaler is suspended"
	case scaler.Mode(&vs.Spec) == v1beta1.UpdateModeRecommend:
		c.Reason, c.Message = v1beta1.ReasonRecommendOnly, "Recommendations are made, not applied"
	case provided.Status != metav1.ConditionTrue:
		c.Reason, c.Message = v1beta1.ReasonLearning, provided.Message
	default:
		c.Message = "The scaler works"
	}
	return c
}

// summaryOf makes what kubectl get shows: a pod's requests, now and as they shall
// be.
func summaryOf(p *scope) *v1beta1.Summary {
	s := p.observation.situation
	var now, wanted quantity.Amounts
	for _, c := range s.Deployment.Containers {
		least := leastRequests(s, c.Name)
		now = sum(now, least)
		wanted = sum(wanted, cover(least, wantedRequests(p, c.Name)))
	}
	return &v1beta1.Summary{
		CPU:    arrow(quantity.FormatCPU, now.CPUMillis, wanted.CPUMillis),
		Memory: arrow(quantity.FormatMemory, now.MemoryBytes, wanted.MemoryBytes),
		Pods:   fmt.Sprintf("%d/%d", p.plan.Progress.PodsAtSize, p.plan.Progress.Pods),
	}
}

func arrow(format func(int64) string, now, wanted int64) string {
	switch {
	case wanted == 0 && now == 0:
		return ""
	case wanted == 0 || wanted == now:
		return format(now)
	}
	return format(now) + "->" + format(wanted)
}

// leastRequests are those of the running pods that have the least, so that the arrow
// stays until the last pod has followed; those of the template without pods.
func leastRequests(s plan.Situation, container string) quantity.Amounts {
	c, _ := s.Deployment.Container(container)
	least, first := c.Requests, true
	for _, pod := range s.Pods {
		in, ok := pod.Container(container)
		if !ok || !pod.Running || !pod.Current || pod.Terminating {
			continue
		}
		if first {
			least, first = in.Requests, false
		}
		least.CPUMillis = min(least.CPUMillis, in.Requests.CPUMillis)
		least.MemoryBytes = min(least.MemoryBytes, in.Requests.MemoryBytes)
	}
	return least
}

// wantedRequests are the decision's where there is one, else the recommendation's
// while nothing may be changed. What is applied is as wanted, even where a limit or a
// LimitRange made it a little different.
func wantedRequests(p *scope, container string) quantity.Amounts {
	switch {
	case p.plan.Verdict.State.IsApplied():
		return quantity.Amounts{}
	case p.plan.Decision != nil:
		return p.plan.Decision.Requests[container]
	case isDeferred(p.plan.Verdict.Reason):
		for _, rec := range p.observation.situation.Recommendations {
			if rec.Name == container {
				return rec.Target
			}
		}
	}
	return quantity.Amounts{}
}

// isPutOff tells the reasons for which nothing has been decided, only recommended.
func isDeferred(reason string) bool {
	switch reason {
	case v1beta1.ReasonRecommendOnly, v1beta1.ReasonSuspended, v1beta1.ReasonWaitingForBudget, v1beta1.ReasonFrozen:
		return true
	}
	return false
}

func sum(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: a.CPUMillis + b.CPUMillis, MemoryBytes: a.MemoryBytes + b.MemoryBytes}
}

// cover puts the amounts that are set over those of a.
func cover(a, over quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{
		CPUMillis:   cmp.Or(over.CPUMillis, a.CPUMillis),
		MemoryBytes: cmp.Or(over.MemoryBytes, a.MemoryBytes),
	}
}

// sayDecision tells a decision in one line, from what to what.
func formatDecision(s plan.Situation, d *plan.Decision) string {
	parts := formatRequests(s, d, false)
	if len(parts) == 0 { // the pods that have the least have it already
		parts = formatRequests(s, d, true)
	}
	return conditions.Truncated(fmt.Sprintf("%s: %s", d.Reason, strings.Join(parts, "; ")))
}

// sayDecided tells the plan's decision, and what has been seen where it puts something back.
func formatDecided(p *scope) string {
	said := formatDecision(p.observation.situation, p.plan.Decision)
	if p.plan.Reverted != "" {
		said = conditions.Truncated(said + " (" + p.plan.Reverted + ")")
	}
	return said
}

func formatRequests(s plan.Situation, d *plan.Decision, all bool) (parts []string) {
	for _, name := range slices.Sorted(maps.Keys(d.Requests)) {
		before, after := leastRequests(s, name), d.Requests[name]
		if s.Decision != nil {
			before = cover(before, s.Decision.Requests[name])
		}
		var words []string
		if after.CPUMillis > 0 && (all || after.CPUMillis != before.CPUMillis) {
			words = append(words, "cpu "+arrow(quantity.FormatCPU, before.CPUMillis, after.CPUMillis))
		}
		if after.MemoryBytes > 0 && (all || after.MemoryBytes != before.MemoryBytes) {
			words = append(words, "memory "+arrow(quantity.FormatMemory, before.MemoryBytes, after.MemoryBytes))
		}
		if len(words) > 0 {
			parts = append(parts, name+" "+strings.Join(words, ", "))
		}
	}
	return parts
}
