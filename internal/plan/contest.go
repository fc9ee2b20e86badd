// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Two writers that undo each other never end, and each round may roll the Deployment
// out. So we put back what another writer has undone once. The second time it is
// contested: nothing is written, whatever is recommended, until the scaler is edited
// or nobody else has the values any more.

const (
	// maxReverts is how often another writer may undo what we have written before we
	// stop writing it.
	maxReverts = 2
	// revertCounts is how long a revert counts. It is longer than the longest usual
	// period of what syncs a cluster with a repository, and short enough that two
	// releases of a chart, weeks apart, are no contest.
	revertCounts = 24 * time.Hour
)

// Contest is what another writer has undone too often. Whose it is now is known to the
// API server alone.
type Contest struct {
	// Template is what the pod template's containers should have.
	Template []Size
	// Pods is what the pods' containers should have, by the pods' names.
	Pods map[string][]Size
}

// Writers are those, by name, who have what is contested.
type Writers struct {
	Names []string
	// Ours says that it is still ours, all of it: nobody has undone anything, but what
	// we want is another, by a LimitRange that has changed.
	Ours bool
	// Partly says that not all has been looked at.
	Partly bool
}

// undone is the decision with one more revert, if somebody else has undone it since the
// last pass.
func (d *Decision) undone(s Situation, policy Policy, now time.Time) *Decision {
	if d == nil || d.Reverts >= maxReverts {
		return d
	}
	onTemplate := policy.mayRollOut() && d.Written && isTakenOver(rewritingOf(s, policy, *d))
	onPods := policy.Mode == v1beta1.UpdateModeInPlace && len(undonePods(s, policy, *d, now)) > 0
	if !onTemplate && !onPods {
		return d
	}
	left := *d
	if now.Sub(d.LastRevert) > revertCounts {
		left.Reverts = 0
	}
	left.Reverts++
	left.LastRevert = now
	left.Written = false // or the same revert would count again
	return &left
}

// wasWritten says that a template has carried the decision, even if somebody has undone it
// since then.
func (d *Decision) wasWritten() bool { return d.Written || d.LastRevert.After(d.Time) }

// unwritten is the decision before any template has carried it.
func (d *Decision) unwritten() *Decision {
	if d == nil || !d.Written {
		return d
	}
	left := *d
	left.Written = false
	return &left
}

// uncontested is the decision as if nobody had ever undone it.
func (d *Decision) uncontested() *Decision {
	if d == nil || !d.Written && d.Reverts == 0 && d.LastRevert.IsZero() && len(d.ContestedBy) == 0 {
		return d
	}
	left := *d
	left.Written, left.Reverts, left.LastRevert, left.ContestedBy = false, 0, time.Time{}, nil
	return &left
}

// released says that those who had what is contested have let it go, or never had it, or
// that there is nothing of the kind any more.
func (d *Decision) released(w *Writers, c Contest) bool {
	if len(c.Template) == 0 && len(c.Pods) == 0 {
		return true
	}
	return w != nil && len(w.Names) == 0 && !w.Partly && (w.Ours || len(d.ContestedBy) > 0)
}

// isTakenOver says that the template is not as it should be although all that it takes has
// been taken over before: a change of what is ours.
func isTakenOver(t rewriting) bool { return t.changes && len(t.hold) == 0 }

// contested is what somebody else may have undone: the template where it is ours, and
// pods where they are resized in place.
func contested(s Situation, policy Policy, d Decision, now time.Time) (c Contest) {
	t := rewritingOf(s, policy, d)
	if policy.Mode == v1beta1.UpdateModeRollout || policy.mayRollOut() && isTakenOver(t) {
		c.Template = t.wanted
	}
	if policy.Mode == v1beta1.UpdateModeInPlace {
		c.Pods = contestedPods(s, policy, d, now)
	}
	return c
}

// contest is the plan once the decision is contested: to write nothing.
func (p Plan) contest(s Situation, c Contest) Plan {
	p.Resize, p.Rewrite, p.Evict, p.Changing = nil, nil, nil, false
	p.Contest = &c
	p.Stalled = true
	if s.Writers != nil && len(s.Writers.Names) > 0 && !slices.Equal(s.Writers.Names, p.Decision.ContestedBy) {
		next := *p.Decision
		next.ContestedBy = s.Writers.Names
		p.Decision = &next
	}
	who, do := "Another writer", "keeps"
	if by := p.Decision.ContestedBy; len(by) > 0 {
		who = strings.Join(by, " and ")
		if len(by) > 1 {
			do = "keep"
		}
	}
	if len(c.Pods) > 0 && len(c.Template) > 0 {
		return p.because(v1beta1.ReasonContested, fmt.Sprintf(
			"%s %s undoing the sizes in the Deployment's pod template, or of its pods: stop it, then edit the scaler to try again", who, do))
	}
	if len(c.Pods) > 0 {
		return p.because(v1beta1.ReasonContested, fmt.Sprintf(
			"%s %s changing the resources of the pods: stop it, then edit the scaler to try again", who, do))
	}
	return p.because(v1beta1.ReasonContested, fmt.Sprintf(
		"%s %s undoing the sizes in the Deployment's pod template: take the resources out of what is applied there, or edit the scaler to try again", who, do))
}

// contestedPods is what the pods should have that have something else.
func contestedPods(s Situation, policy Policy, d Decision, now time.Time) map[string][]Size {
	pods := map[string][]Size{}
	s.Decision = &d
	for _, pod := range s.Pods {
		if !counts(pod) {
			continue
		}
		if sizes := targetOf(pod, s, policy, now).sizes; differsFrom(pod, sizes) {
			pods[pod.Name] = sizes
		}
	}
	return pods
}

// undonePods are those of them that somebody else has changed.
func undonePods(s Situation, policy Policy, d Decision, now time.Time) map[string][]Size {
	s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), func(pod workload.Pod) bool { return !s.Undone[pod.UID] })
	managed := map[string]quantity.Amounts{}
	for name := range d.Requests {
		for _, r := range resources {
			if policy.controls(name, r) && takenBy(s, name, r).reason == "" {
				set(managed, name, r, d.request(name, r))
			}
		}
	}
	d.Requests = managed
	return contestedPods(s, policy, d, now)
}
