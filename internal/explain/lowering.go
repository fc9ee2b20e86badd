// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// waitsForEvidence reports whether the operator keeps a request above its target until more usage has been
// observed, and that it runs, as far as that is known.
func waitsForEvidence(e Evidence) bool {
	s := e.Scaler
	applied := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionApplied)
	if e.Now.IsZero() || applied == nil || s.Status.ObservedGeneration < s.Generation ||
		applied.Reason != v1beta1.ReasonWithinBounds && applied.Reason != v1beta1.ReasonInCooldown {
		return false
	}
	operator, ok := e.Operators.For(s.Namespace)
	return !ok || !operator.IsSilent(e.Now)
}

// observedNow estimates the usage observed until now. The status has the usage when the recommendation last
// changed.
func observedNow(e Evidence, published time.Duration) time.Duration {
	written := statusWritten(e.Scaler)
	if written.IsZero() {
		return published
	}
	return min(published+max(0, e.Now.Sub(written)), recommend.NextNote(published, scaler.Share(e.Scaler.UID)))
}

// statusWritten is the time of the last status write, by its times and the managed fields.
func statusWritten(s *v1beta1.VerticalScaler) (latest time.Time) {
	note := func(t time.Time) {
		if t.After(latest) {
			latest = t
		}
	}
	for _, c := range s.Status.Conditions {
		note(c.LastTransitionTime.Time)
	}
	for _, f := range s.ManagedFields {
		if f.Subresource == "status" && f.Time != nil {
			note(f.Time.Time)
		}
	}
	return latest
}

// estimateLowering adds the time at which the request of a resource is lowered if usage stays the same: after enough usage and
// the cooldown. It adds nothing if the request does not wait for that, or may stay for another reason.
func (r *Resource) estimateLowering(e Evidence, rec recommend.Container) {
	request := r.request()
	least, _ := r.bounds()
	isClose := (request-r.Target.Value())*100 <= request*int64(r.TolerancePercent)
	if !r.Moves || isClose || len(r.Reverted) > 0 || request <= max(r.floor, least.amount) || r.hasWholeCores(e) {
		return
	}
	enough := rec.EvidenceToLower(r.Resource, request, r.MaxAllowed.Value())
	if enough == 0 {
		return
	}
	left := enough - observedNow(e, rec.Observed)
	if d := e.Scaler.Status.Decision; d != nil {
		left = max(left, d.Time.Add(scaler.Cooldown(&e.Scaler.Spec)).Sub(e.Now))
	}
	r.LoweredInSeconds, r.LoweredAfterSeconds = int64(max(left, time.Minute)/time.Second), int64(enough/time.Second)
}

// request is the request that the operator compares with the target: the decided one, or else the
// largest of the pods, or else the template's.
func (r Resource) request() int64 {
	if r.Decided != nil {
		return r.Decided.Value()
	}
	most := int64(0)
	for _, s := range r.Pods {
		most = max(most, s.Request.Value())
	}
	if most == 0 && r.Template != nil {
		most = r.Template.Request.Value()
	}
	return most
}

// hasWholeCores reports whether the request may stay because it is one of whole CPUs, and new pods may get it.
func (r Resource) hasWholeCores(e Evidence) bool {
	const core = 1000
	if scaler.Mode(&e.Scaler.Spec) == v1beta1.UpdateModeInPlace && e.Operators.FallbackOf(e.Scaler) == v1beta1.FallbackWait {
		return false
	}
	return r.Resource == recommend.CPU && r.Template != nil && r.Template.Limit.Value() > 0 && r.Template.Limit.Value()%core == 0 &&
		r.Template.Limit.Value() == r.Template.Request.Value()
}

// Lowering is a sentence about when the request is lowered; empty if it does not wait for more usage,
// or if the time is unknown.
func (r Resource) Lowering() string {
	if r.LoweredInSeconds == 0 {
		return ""
	}
	return fmt.Sprintf("%s is lowered %s.", amountOf(r.Resource, r.request()), r.whenLowered())
}

// whenLowered has the time of the condition Applied, which does not change with each minute, too.
func (r Resource) whenLowered() string {
	return fmt.Sprintf("in about %s, %s", about(r.LoweredInSeconds), model.AfterObserving(time.Duration(r.LoweredAfterSeconds)*time.Second))
}

// adviceFor is the advice for a reason. For requests that wait for more usage, it has the time until the first one is
// lowered, if known.
func adviceFor(reason Reason, s *v1beta1.VerticalScaler, containers []Container) string {
	var first Resource
	what := ""
	for _, c := range containers {
		for _, r := range c.Resources {
			if r.LoweredInSeconds > 0 && (what == "" || r.LoweredInSeconds < first.LoweredInSeconds) {
				first, what = r, c.Name+" "+r.Resource
			}
		}
	}
	if reason.Reason != v1beta1.ReasonWithinBounds || what == "" {
		return reason.Advice
	}
	earliest := ""
	if len(s.Spec.UpdatePolicy.Windows) > 0 {
		earliest = ", when a window is open"
	}
	return fmt.Sprintf("Wait: %s is lowered %s%s. To lower it now, set maxAllowed.", what, first.whenLowered(), earliest)
}

// about is a time that is only estimated: 7m, 2h20m, 18h, 3d.
func about(seconds int64) string {
	d := max(time.Minute, (time.Duration(seconds) * time.Second).Round(time.Minute))
	if d < 6*time.Hour {
		return strings.TrimSuffix(d.String(), "0s")
	}
	return duration.HumanDuration(d)
}
