// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

var (
	actions = metrics.NewCounter(metrics.Metric{
		Name:      "verticalscaler_actions_total",
		Help:      "Changes asked of the API server, by kind (resize, rollout, evict, restore) and outcome (done, conflict, failed, Frozen, or the reason of the rejection).",
		Labels:    []string{"action", "outcome"},
		Stability: metrics.Beta,
	}, []string{"resize", "done"}, []string{"rollout", "done"}, []string{"evict", "done"}, []string{"restore", "done"})

	asks = metrics.NewCounter(metrics.Metric{
		Name:      "verticalscaler_budget_asks_total",
		Help:      "Changes asked of the budget, by outcome: granted, queued (counted once for each wait; granted later).",
		Labels:    []string{"outcome"},
		Stability: metrics.Beta,
	}, []string{"granted"}, []string{"queued"})

	waiting = metrics.NewGauge(metrics.Metric{
		Name:      "verticalscaler_budget_waiting",
		Help:      "Scalers whose next change waits for the budget.",
		Stability: metrics.Beta,
	}).WithLabelValues()

	allowed = metrics.NewGauge(metrics.Metric{
		Name:      "verticalscaler_budget_changes_per_minute",
		Help:      "Changes that the budget allows in any minute. It grows with the pods that scalers may change.",
		Stability: metrics.Beta,
	}).WithLabelValues()
)

// countAsk counts a change asked of the budget, and sets the number of scalers in line.
func countAsk(granted, isNew bool, inLine int) {
	switch {
	case granted:
		asks.WithLabelValues("granted").Inc()
	case isNew:
		asks.WithLabelValues("queued").Inc()
	}
	waiting.Set(float64(inLine))
}

func countAction(action, outcome string) { actions.WithLabelValues(action, outcome).Inc() }

// countDone counts a change that the API server has accepted.
func (r *Reconciler) countDone(key types.NamespacedName, action string, event metrics.Event) {
	countAction(action, "done")
	r.Metrics.Count(key, event)
}

// countReverts counts the changes that this reconcile has reverted, or found undone.
func (r *Reconciler) countReverts(key types.NamespacedName, s *scope) {
	if s.plan.Reverted != "" {
		r.Metrics.Count(key, metrics.Regressed)
	}
	var before int32
	if d := s.scaler.Status.Decision; d != nil {
		before = d.Reverts
	}
	if d := s.status.Decision; d != nil && d.Reverts > before {
		r.Metrics.Count(key, metrics.Undone)
	}
}

// killEvent classifies an OOM kill: KilledLowered if the container had less memory than in the
// original pod template.
func killEvent(s plan.Situation, kill workload.OOMKill) metrics.Event {
	c, _ := s.Deployment.Container(kill.Container)
	original := scaler.Original(c, s.Originals)
	if template := cmp.Or(original.Limits.MemoryBytes, original.Requests.MemoryBytes); kill.HitBytes > 0 && kill.HitBytes < template {
		return metrics.KilledLowered
	}
	return metrics.KilledOriginal
}

// measuredState is the state of the scaler, by the conditions that were just written.
func measuredState(s *scope) metrics.State {
	return metrics.State{
		Reason:  scaler.ReasonInShort(s.status.Conditions),
		Ready:   meta.IsStatusConditionTrue(s.status.Conditions, v1beta1.ConditionReady),
		Stalled: meta.IsStatusConditionTrue(s.status.Conditions, v1beta1.ConditionStalled),
		Waiting: s.isWaiting(),
	}
}

// measuredSizes are the sizes of the pods; nil if the reconcile failed before it had a plan.
func measuredSizes(s *scope) *metrics.Sizes {
	if s.observation.deployment == nil && s.err == nil || !s.standing.IsFirst() {
		return &metrics.Sizes{}
	}
	if !s.isPlanned() {
		return nil
	}
	situation := s.observation.situation
	out := &metrics.Sizes{Pods: s.plan.Progress.Pods, PodsAtSize: s.plan.Progress.PodsAtSize}
	for _, c := range situation.Deployment.Containers {
		measured := metrics.Container{Name: c.Name}
		for _, r := range situation.Recommendations {
			if r.Name == c.Name {
				measured.Target, measured.LowerBound, measured.UpperBound = r.Target, r.LowerBound, r.UpperBound
			}
		}
		measured.Request = furthestRequests(situation, c.Name, measured.Target, nil)
		out.Containers = append(out.Containers, measured)
		original := scaler.Original(c, situation.Originals)
		for _, pod := range situation.Pods {
			in, ok := pod.Container(c.Name)
			if !ok || !pod.Running || pod.Terminating {
				continue
			}
			out.Requested = out.Requested.Plus(in.Requests)
			out.Recommended = out.Recommended.Plus(measured.Target.Or(in.Requests))
			out.Original = out.Original.Plus(original.Requests.Or(original.Limits))
		}
	}
	return out
}

// isWaiting reports whether a due change waits, except for a user's consent.
func (s *scope) isWaiting() bool {
	switch s.plan.Verdict.Reason {
	case v1beta1.ReasonRecommendOnly, v1beta1.ReasonSuspended, v1beta1.ReasonPaused:
		return false
	}
	return s.plan.Verdict.State == plan.Waiting && (s.plan.Decision != nil || s.plan.Postponed != nil)
}
