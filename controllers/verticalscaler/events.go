// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// The events that are recorded, by reason. Each tells of something that has
// happened, on the scaler and on its Deployment.
const (
	eventDecided  = "Decided"  // new sizes have been decided
	eventReverted  = "Reverted" // a change was to blame, and what was before is put back
	eventEvicted  = "Evicted"  // a pod was evicted, so that another one comes with the sizes
	eventApplied  = "Applied"  // all pods have the decided sizes
	eventBlocked     = "Blocked"  // the sizes cannot be put in force, and a person must act
	eventConflict = "Conflict" // another scaler names the same Deployment
)

// actionSize is what all these events are about.
const actionSize = "Size"

// tell records what this pass has changed. It is called once the status that says
// the same is written, also where the step itself failed: what was decided stands.
func (r *Reconciler) recordEvents(vs *v1beta1.VerticalScaler, p scope) {
	if r.Recorder == nil || isConflict(p.err) {
		return // after a conflict nothing was decided: the next pass does
	}
	before, after := vs.Status.Conditions, p.status.Conditions
	if p.plan.Decided && p.plan.Decision != nil {
		kind, what := corev1.EventTypeNormal, eventDecided
		if p.plan.Reverted != "" {
			kind, what = corev1.EventTypeWarning, eventReverted
		}
		r.recordEvent(vs, p, kind, what, formatDecided(&p))
	}
	if p.evicted != "" {
		r.recordEvent(vs, p, corev1.EventTypeNormal, eventEvicted, fmt.Sprintf("Pod %s, so that another one comes with the decided size", p.evicted))
	}
	if p.plan.Verdict.State.IsApplied() && p.status.Decision != nil && !meta.IsStatusConditionTrue(before, v1beta1.ConditionApplied) {
		r.recordEvent(vs, p, corev1.EventTypeNormal, eventApplied, formatApplied(vs, p.status.Summary))
	}
	if s := meta.FindStatusCondition(after, v1beta1.ConditionStalled); s != nil && s.Status == metav1.ConditionTrue && reasonOf(before, v1beta1.ConditionStalled) != s.Reason {
		kind := eventBlocked
		if s.Reason == v1beta1.ReasonConflict {
			kind = eventConflict
		}
		r.recordEvent(vs, p, corev1.EventTypeWarning, kind, s.Reason+": "+s.Message)
	}
}

func formatApplied(vs *v1beta1.VerticalScaler, summary *v1beta1.Summary) string {
	said := fmt.Sprintf("%s on %s pods", strings.Join(nonEmpty("cpu "+summary.CPU, "memory "+summary.Memory), ", "), summary.Pods)
	if scaler.Mode(&vs.Spec) == v1beta1.UpdateModeInPlace && vs.Status.OriginalResources == nil && !scaler.EvictsPods(&vs.Spec) {
		said += ", without our restarting any"
	}
	return said
}

func (r *Reconciler) recordEvent(vs *v1beta1.VerticalScaler, p scope, kind, reason, note string) {
	note = conditions.Truncated(note)
	if p.observation.deployment == nil {
		r.Recorder.Eventf(vs, nil, kind, reason, actionSize, "%s", note)
		return
	}
	r.Recorder.Eventf(vs, p.observation.deployment, kind, reason, actionSize, "%s", note)
	r.Recorder.Eventf(p.observation.deployment, vs, kind, reason, actionSize, "%s", note)
}

func reasonOf(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Reason
	}
	return ""
}

func nonEmpty(words ...string) (out []string) {
	for _, w := range words {
		if !strings.HasSuffix(w, " ") {
			out = append(out, w)
		}
	}
	return out
}

// sayChanges tells changes for the log: "app cpu 100m->200m limit 200m->400m".
func formatChanges(changes []change) string {
	var parts []string
	for _, c := range changes {
		words := []string{c.container}
		for _, v := range []struct {
			name          string
			format        func(int64) string
			before, after int64
		}{
			{"cpu", quantity.FormatCPU, c.before.Requests.CPUMillis, c.after.Requests.CPUMillis},
			{"cpu limit", quantity.FormatCPU, c.before.Limits.CPUMillis, c.after.Limits.CPUMillis},
			{"memory", quantity.FormatMemory, c.before.Requests.MemoryBytes, c.after.Requests.MemoryBytes},
			{"memory limit", quantity.FormatMemory, c.before.Limits.MemoryBytes, c.after.Limits.MemoryBytes},
		} {
			if v.before != v.after {
				words = append(words, v.name+" "+arrow(v.format, v.before, v.after))
			}
		}
		parts = append(parts, strings.Join(words, " "))
	}
	return strings.Join(parts, "; ")
}
