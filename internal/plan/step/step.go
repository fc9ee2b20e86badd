// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package step finds the one next step that brings the pods, or the pod template, closer to
// a decision, and says why there is none.
package step

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// planner plans with the situation's decision, which is never nil here. Its methods change nothing but their own copy.
type planner struct {
	goal.Goals

	// The parts of the plan that are known so far.
	newPods      model.NewPods
	progress     model.Progress
	requeueAfter time.Duration
}

func plannerFor(g goal.Goals) planner {
	return planner{Goals: g, progress: model.Progress{Pods: g.AlivePods()}}
}

// Next plans the next step towards the situation's decision.
func Next(g goal.Goals) model.Plan {
	p := plannerFor(g)
	p.newPods.IneffectiveOnPod = g.NewPods.IneffectiveOnPod
	switch g.Policy.Mode {
	case v1beta1.UpdateModeRollout:
		return p.rollOut()
	case v1beta1.UpdateModeInitial:
		return p.sizeNewPodsOnly()
	}
	if p.IsTemplateAsDecided() {
		p = p.with(p.Decision.Applied()) // by a rewrite whose status may have been lost
	}
	p.newPods = model.NewPods{}
	if p.Policy.MayEvict() {
		p.newPods = p.learnNewPods()
	}
	next := p.resize()
	if p.Policy.SizesNewPods && !p.Policy.MayEvict() {
		next.NewPods = p.with(next.Decision).Goals.Next() // A verification may just have ended.
	}
	switch next.Step.(type) {
	case model.Resize, model.Evict: // a step that changes the template checks for a contest by itself
	default:
		return next
	}
	if !next.Decision.IsContested() {
		return next
	}
	p = p.with(next.Decision)
	if c := p.contested(); !p.isReleased(c) {
		return p.contest(c, next)
	}
	next.Decision = next.Decision.Uncontested()
	return next
}

// plan is the plan with what is known so far.
func (p planner) plan(step model.Step, v model.Verdict) model.Plan {
	return model.Plan{Decision: p.Decision, NewPods: p.newPods, Step: step, Verdict: v.Within(p.requeueAfter), Progress: p.progress}
}

func (p planner) without(v model.Verdict) model.Plan { return p.plan(nil, v) }

func (p planner) with(d *model.Decision) planner {
	p.Goals = p.With(d)
	return p
}

// within is the planner that requeues after d at the latest.
func (p planner) within(d time.Duration) planner {
	p.requeueAfter = model.Sooner(p.requeueAfter, d)
	return p
}

// withinQuota is the planner that requeues if a quota is the obstacle.
func (p planner) withinQuota(o model.Obstacle) planner {
	if o.Reason == v1beta1.ReasonQuotaExceeded {
		return p.within(goal.QuotaRetry)
	}
	return p
}
