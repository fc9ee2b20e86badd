// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/pods"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Two controllers that undo each other's changes never stop, and each change may roll out the Deployment. So we apply again what
// another controller has undone once. The second time it is contested: nothing is written, whatever is recommended, until the
// scaler is edited or no other field manager owns the values any longer.

// revertCounts is the time for which a revert counts. It is longer than the longest usual period of tools that sync a cluster
// with a repository. It is short enough that two releases of a chart, weeks apart, are not a contest.
const revertCounts = 24 * time.Hour

// NoteReverts is the decision with one more revert, if another controller has undone it
// since the last reconcile, unless the scaler was edited.
func NoteReverts(g goal.Goals) *model.Decision {
	d := g.Decision
	if !g.Policy.MayRollOut() {
		d = d.NotApplied()
	}
	p := plannerFor(g)
	switch {
	case g.Policy.Edited, d == nil, d.IsContested():
	case d.AppliedToTemplate && p.ownValuesDiffer(p.Template()), p.arePodsUndone():
		return d.UndoneAt(g.Now, revertCounts)
	}
	return d
}

// ownValuesDiffer reports whether the template differs from the decision only in values that we have taken over before.
func (p planner) ownValuesDiffer(t goal.Template) bool {
	return p.Policy.MayRollOut() && t.IsChanged && len(t.Originals) == 0
}

// arePodsUndone reports whether another controller has changed pods from what is still managed.
func (p planner) arePodsUndone() bool {
	if !p.Policy.InPlace() || len(p.Undone) == 0 {
		return false
	}
	p.Pods = slices.DeleteFunc(slices.Clone(p.Pods), func(pod workload.Pod) bool { return !p.Undone[pod.UID] })
	managed := model.Requests{}
	for _, c := range p.Rows.Containers {
		for _, q := range c.Rows {
			if q.IsOurs {
				model.SetRequest(managed, c.Name, q.Resource, p.Decision.Request(c.Name, q.Resource))
			}
		}
	}
	return len(p.with(p.Decision.With(func(d *model.Decision) { d.Requests = managed })).contestedPods()) > 0
}

// isReleased reports whether the field managers of what is contested no longer own it, or never
// did, or that nothing is contested any longer.
func (p planner) isReleased(c model.Contest) bool {
	w := p.Writers
	switch {
	case c.IsEmpty():
		return true
	case w == nil, len(w.Names) > 0, w.Partly:
		return false
	}
	return w.Ours || len(p.Decision.ContestedBy) > 0
}

// contested has the sizes that another controller may have undone: the template if it is ours, and
// pods if they are resized in place.
func (p planner) contested() (c model.Contest) {
	t := p.Template()
	if p.Policy.RollsOut() || p.ownValuesDiffer(t) {
		c.Template = t.Wanted.Sizes()
	}
	if p.Policy.InPlace() {
		c.Pods = p.contestedPods()
	}
	return c
}

func (p planner) contestedPods() map[string][]model.Size {
	contested := map[string][]model.Size{}
	for _, pod := range p.Pods {
		if !model.IsAlive(pod) {
			continue
		}
		if sizes := pods.SizesOf(p.In(pod)); sizes.Differ() {
			contested[pod.Name] = sizes.Sizes()
		}
	}
	return contested
}

// contest is the plan once the decision is contested: to write nothing.
func (p planner) contest(c model.Contest, instead model.Plan) model.Plan {
	if w := p.Writers; w != nil && len(w.Names) > 0 {
		p = p.with(p.Decision.With(func(d *model.Decision) { d.ContestedBy = w.Names }))
	}
	message := "%s undoing the sizes in the Deployment's pod template: remove the resources from the applied manifest, or edit the scaler to try again"
	if len(c.Template) == 0 {
		message = "%s changing the resources of the pods: stop it, then edit the scaler to try again"
	}
	who := "Another controller keeps"
	if by := p.Decision.ContestedBy; len(by) == 1 {
		who = by[0] + " keeps"
	} else if len(by) > 1 {
		who = strings.Join(by, " and ") + " keep"
	}
	next := instead
	next.Decision, next.Step, next.Contest = p.Decision, nil, &c
	next.Verdict = model.Stalled.Because(v1beta1.ReasonContested, fmt.Sprintf(message, who)).Within(instead.Verdict.RequeueAfter)
	return next
}
