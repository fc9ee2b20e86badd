// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The events that are recorded on the scaler and on its Deployment, by reason. Each pod that is resized has the decision, too.
const (
	eventDecided  = "Decided"  // new sizes are decided
	eventReverted = "Reverted" // a change made pods worse, and is reverted
	eventEvicted  = "Evicted"  // a pod was evicted; its replacement starts with the decided sizes; only on the Deployment
	eventSetBack  = "SetBack"  // no node was found for a new pod; it starts with requests of the template; only on the Deployment
	eventBlocked  = "Blocked"  // the sizes cannot be applied, and a user must act
	eventConflict = "Conflict" // another scaler names the same Deployment
	eventNotFound = "NotFound" // a name in the spec matches nothing
	eventReady    = "Ready"    // the scaler becomes Ready again; only on the scaler
)

// actionSize is the action of all these events.
const actionSize = "Size"

// recordEvents records the changes of this reconcile. It is called after the status with the same
// content is written, even if the step failed: the decision stands.
func (r *Reconciler) recordEvents(s *scope) {
	before, after := s.scaler.Status.Conditions, s.status.Conditions
	r.recordUnmatched(s)
	if s.plan.Decided && s.plan.Decision != nil {
		kind, what := corev1.EventTypeNormal, eventDecided
		if s.plan.Reverted != "" {
			kind, what = corev1.EventTypeWarning, eventReverted
		}
		r.recordEvent(s, kind, what, formatDecided(s))
	}
	if s.taken != "" {
		r.recordEvent(s, corev1.EventTypeNormal, s.taken, s.takenNote)
	}
	stalled, was := meta.FindStatusCondition(after, v1beta1.ConditionStalled), meta.FindStatusCondition(before, v1beta1.ConditionStalled)
	if stalled != nil && stalled.Status == metav1.ConditionTrue && (was == nil || was.Reason != stalled.Reason) {
		kind := eventBlocked
		if stalled.Reason == v1beta1.ReasonConflict {
			kind = eventConflict
		}
		r.recordEvent(s, corev1.EventTypeWarning, kind, stalled.Reason+": "+stalled.Message)
	}
	if ready, ok := conditions.Became(before, after, v1beta1.ConditionReady); ok && len(before) > 0 {
		r.Recorder.Eventf(s.scaler, nil, corev1.EventTypeNormal, eventReady, actionSize, "%s", conditions.Truncated(ready.Reason+": "+ready.Message))
	}
}

// recordUnmatched records a name in the spec that matches nothing, once.
func (r *Reconciler) recordUnmatched(s *scope) {
	for _, kind := range []string{v1beta1.ConditionTargetFound, v1beta1.ConditionContainersFound} {
		c := meta.FindStatusCondition(s.status.Conditions, kind)
		if c == nil || c.Reason != namesWithoutMatch[kind] {
			continue
		}
		if was := meta.FindStatusCondition(s.scaler.Status.Conditions, kind); was == nil || was.Reason != c.Reason || was.Message != c.Message {
			r.recordEvent(s, corev1.EventTypeWarning, eventNotFound, c.Reason+": "+c.Message)
		}
	}
}

func (r *Reconciler) recordEvent(s *scope, kind, reason, note string) {
	note = conditions.Truncated(note)
	if s.observation.deployment == nil {
		r.Recorder.Eventf(s.scaler, nil, kind, reason, actionSize, "%s", note)
		return
	}
	if reason != eventEvicted && reason != eventSetBack {
		r.Recorder.Eventf(s.scaler, s.observation.deployment, kind, reason, actionSize, "%s", note)
	}
	r.Recorder.Eventf(s.observation.deployment, s.scaler, kind, reason, actionSize, "%s", note)
}

// formatChanges formats the changes of containers for the log: "app cpu 100m->200m cpu limit 200m->400m". Amounts of 0 stay
// as they are.
func formatChanges(containers []workload.Container, sizes []plan.Size) string {
	var parts []string
	for _, size := range sizes {
		i := slices.IndexFunc(containers, func(c workload.Container) bool { return c.Name == size.Container })
		if i < 0 {
			continue
		}
		before, words := containers[i].Resources, []string{size.Container}
		for _, r := range []plan.Resource{plan.CPU, plan.Memory} {
			if from, to := r.Request(before), r.Request(size.Resources); to > 0 && from != to {
				words = append(words, r.String()+" "+arrow(r.Format, from, to))
			}
			if from, to := r.Limit(before), r.Limit(size.Resources); to > 0 && from != to {
				words = append(words, r.String()+" limit "+arrow(r.Format, from, to))
			}
		}
		if len(words) > 1 {
			parts = append(parts, strings.Join(words, " "))
		}
	}
	return strings.Join(parts, "; ")
}
