// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package verification compares pods that a decision has changed with those that it has not.
//
// A decision that takes something from pods, or replaces them, is verified: over the same time, changed pods are compared with
// unchanged ones. If they are clearly worse, the last good values are restored, and the change is not tried again until there is
// new evidence. If all pods are unhealthy, the change is not the cause. In place, pods are compared only with pods of their own
// template, or of an older one as they are.
//
// In place, the first pods that are lowered are verified for the others. Raising a request in place takes
// nothing from a pod and is not verified. Past events of pods are read from their status, and the rest is
// recorded with the decision. So a repeated reconcile, by a new process or not, reaches the same verdict.
package verification

import (
	"maps"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

const (
	// revertedFor is the time before a reverted value is tried again.
	revertedFor = 7 * 24 * time.Hour
	// maxReverted limits the reverted values that are recorded.
	maxReverted = 8
)

// Change is a request that a new decision changes.
type Change struct {
	Container string
	Resource  model.Resource
	From      int64
}

// Begin is the verification of a new decision; nil if there is nothing to verify. A
// verification in progress continues, with what is left to verify.
func Begin(s model.Situation, policy model.Policy, d *model.Decision, changes []Change, now time.Time) *model.Verification {
	if !policy.Verifies() {
		return nil
	}
	v := model.Verification{Began: now, Good: model.Requests{}}
	if last := s.Decision.Verifying(); last != nil {
		v = *last
		v.Good, v.ObservedSince = maps.Clone(last.Good), time.Time{}
	} else {
		v.UnhealthyPods = unhealthyPods(s.Pods, policy.VerificationPeriod, now)
	}
	for _, c := range changes {
		if c.Resource.Of(v.Good[c.Container]) == 0 {
			model.SetRequest(v.Good, c.Container, c.Resource, c.From)
		}
	}
	v.Good = unverified(v.Good, d, policy)
	if len(v.Good) == 0 {
		return nil
	}
	return &v
}

// unverified are the good values of the requests that are still to be verified. In place, only lowered requests are.
func unverified(good model.Requests, d *model.Decision, policy model.Policy) model.Requests {
	left := model.Requests{}
	for name, amounts := range good {
		for _, r := range model.Resources {
			switch now, before := d.Request(name, r), r.Of(amounts); {
			case now < before, now > before && policy.RollsOut():
			default:
				r.Set(&amounts, 0)
			}
		}
		if (amounts != quantity.Amounts{}) {
			left[name] = amounts
		}
	}
	return left
}

// Finding is the result of a check.
type Finding struct {
	// Decision and RevertedChanges are unchanged, or those after the revert.
	Decision        *model.Decision
	RevertedChanges []model.RevertedChange
	// Evidence describes the failures of changed pods if the change is reverted; else empty.
	Evidence string
	// Starting describes a container that has not started yet with less than its template has; else empty.
	Starting string
	// RequeueAfter is the time until a finding is possible; 0 for never.
	RequeueAfter time.Duration
}

// Check reverts the change of the situation's decision if it is the cause of failures, or requests with which pods do not start.
func Check(s model.Situation, policy model.Policy, now time.Time) Finding {
	f := checkChange(s, policy, now)
	if f.Evidence == "" {
		s.Decision = f.Decision
		return checkStarts(f, s, now)
	}
	return f
}

func checkChange(s model.Situation, policy model.Policy, now time.Time) Finding {
	same := Finding{Decision: s.Decision, RevertedChanges: s.RevertedChanges}
	if s.Decision.Verifying() == nil {
		return same
	}
	if !policy.Verifies() {
		same.Decision = s.Decision.WithVerification(nil)
		return same
	}
	health := compare(s, policy, s.Decision, now)
	isStuck := policy.RollsOut() && s.Decision.AppliedToTemplate && s.Deployment.Stuck
	switch {
	case health.isRegression():
		same.Evidence = model.Listed(health.failures, "; ")
	case isStuck:
		same.Evidence = "the rollout of the new size exceeded the Deployment's progress deadline (ProgressDeadlineExceeded)"
	default:
		same.RequeueAfter = health.wait
		return same
	}
	d, reverted := revert(s, isStuck, same.Evidence, now)
	if len(reverted) == 0 {
		same.Evidence, same.RequeueAfter = "", health.wait
		return same
	}
	return Finding{Decision: d, RevertedChanges: remember(s.RevertedChanges, reverted), Evidence: same.Evidence}
}

// revert returns a decision for the last good values, and the changes that it reverts: those that lowered a request, or all.
func revert(s model.Situation, all bool, evidence string, now time.Time) (*model.Decision, []model.RevertedChange) {
	d := s.Decision
	next := *d.WithVerification(nil)
	next.Time, next.Reason, next.AppliedToTemplate = now, model.DecidedReverted, false
	next.Requests = maps.Clone(d.Requests)
	var reverted []model.RevertedChange
	for _, name := range slices.Sorted(maps.Keys(d.Verification.Good)) {
		rec, _ := s.Recommendation(name)
		for _, r := range model.Resources {
			change := model.RevertedChange{
				Container: name, Resource: r.String(), Value: d.Request(name, r), Good: r.Of(d.Verification.Good[name]),
				At: now, Observed: rec.Observed, Evidence: evidence,
			}
			switch {
			case change.Value == 0, change.Good == 0, change.Value == change.Good:
			case all || change.IsReduction():
				model.SetRequest(next.Requests, name, r, change.Good)
				reverted = append(reverted, change)
			}
		}
	}
	return &next, reverted
}

// remember adds the reverted changes to the known ones, the newest first.
func remember(known, reverted []model.RevertedChange) []model.RevertedChange {
	out := slices.Clone(reverted)
	for _, old := range known {
		if !slices.ContainsFunc(reverted, old.IsLike) {
			out = append(out, old)
		}
	}
	return out[:min(len(out), maxReverted)]
}

// StillReverted are the reverted changes that are not tried again, until twice as much usage has been observed, or for a week.
func StillReverted(s model.Situation, now time.Time) (out []model.RevertedChange) {
	for _, c := range s.RevertedChanges {
		rec, _ := s.Recommendation(c.Container)
		switch {
		case now.Sub(c.At) >= revertedFor:
		case c.Observed > 0 && rec.Observed >= 2*c.Observed:
		default:
			out = append(out, c)
		}
	}
	return out
}

// Observe continues the verification once all pods that were to be changed are. It ends after VerificationPeriod without
// failures. left is the rest of that time; not positive at the end.
func Observe(s model.Situation, policy model.Policy, d *model.Decision, now time.Time) (next *model.Decision, left time.Duration) {
	v := *d.Verification
	if v.ObservedSince.IsZero() || v.ObservedSince.After(now) {
		v.ObservedSince = now
		d = d.WithVerification(&v)
	}
	// If all pods fail, the change is not the cause, but the time starts again.
	since := model.Latest(v.ObservedSince, compare(s, policy, d, now).lastFailure)
	return d, min(since.Add(policy.VerificationPeriod).Sub(now), policy.VerificationPeriod)
}

// PassFirst is the decision once the first pods are verified: the others may follow.
func PassFirst(d *model.Decision, now time.Time) *model.Decision {
	v := *d.Verification
	v.ObservedSince, v.FirstPodsVerified = time.Time{}, now
	return d.WithVerification(&v)
}
