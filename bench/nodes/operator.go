// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// sizer sizes the pods of a Deployment.
type sizer interface {
	// act learns from an interval, and resizes or evicts pods.
	act(c *cluster, d *deployment)
	// decided is the decided size of a pod.
	decided(p *pod) quantity.Amounts
	// newPod is the size of the next pod at its start.
	newPod(d *deployment) quantity.Amounts
}

// operator sizes a Deployment with the operator's own history, recommendation and plan: the functions that a reconcile
// calls. It reconciles at the end of each interval, and within it whenever a plan asks for that.
type operator struct {
	params    recommend.Params
	recommend recommend.Policy
	policy    plan.Policy
	// keepsClaims keeps a Deferred resize for as long as it waits.
	keepsClaims bool

	history     history.Container
	recommended *recommend.Container
	situation   plan.Situation // what the next plan depends on, without pods
	// The time of the next plan, if nothing changes; zero for never.
	wake time.Time
}

func newOperator(p policy, d *deployment, w environment) *operator {
	spec := v1beta1.VerticalScalerSpec{}
	spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{Profile: v1beta1.RecommendationProfile(p.profile)}
	spec.UpdatePolicy.Fallback = p.fallback
	if p.lowersLimits {
		spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{
			{ContainerName: v1beta1.AnyContainer, ControlledValues: v1beta1.RequestsAndLimits},
		}}
	}
	if w.plainPods {
		spec.UpdatePolicy.NewPods = v1beta1.NewPodsAsTemplate
	}
	of := workload.Deployment{
		Name: container, Replicas: replicas, UpdatedReplicas: replicas, ProgressDeadline: 10 * time.Minute,
		Containers: []workload.Container{{Name: container, Resources: resourcesOf(d.template, d.template.MemoryBytes)}},
	}
	o := &operator{
		params: recommend.DefaultParams(), recommend: scaler.RecommendPolicy(&spec, container),
		policy: scaler.PlanPolicy(&v1beta1.VerticalScaler{Spec: spec}, of), keepsClaims: p.keepsClaims,
		situation: plan.Situation{
			Deployment: of, LargestNode: w.allocatable(), Ceilings: plan.Ceilings{NodePercent: 75, RaiseFactor: 8},
		},
	}
	o.params.History.Prices = profile.Of(p.profile).Prices
	o.params.History.MaxGap = max(o.params.History.MaxGap, 3*interval)
	return o
}

func (d *deployment) replicaSet() types.UID { return types.UID(fmt.Sprint("revision-", d.revision)) }

func (o *operator) act(c *cluster, d *deployment) {
	o.learn(c, d)
	next, ok := recommend.For(container, &o.history, o.recommend, o.recommended, o.params)
	if !ok {
		return
	}
	if o.isQuiet(d, next, c.now) {
		return
	}
	o.recommended, o.situation.Recommendations = &next, []recommend.Container{next}
	d.isChanged, o.wake = false, time.Time{}
	now, end := c.now, c.now.Add(interval)
	for now.Before(end) {
		p := onBusyNode(d, plan.Next(o.observe(d, now), o.policy, now))
		o.record(p, now)
		switch {
		case p.Step != nil:
			o.apply(c, d, p.Step, now)
			now = now.Add(time.Second)
		case p.Verdict.RequeueAfter > 0:
			now = now.Add(max(time.Second, p.Verdict.RequeueAfter))
		default:
			return
		}
	}
	o.wake = now
}

// isQuiet reports whether a reconcile would do nothing again. A plan depends on time alone only after its RequeueAfter.
func (o *operator) isQuiet(d *deployment, next recommend.Container, now time.Time) bool {
	before := o.recommended
	return before != nil && !d.isChanged && (o.wake.IsZero() || now.Before(o.wake)) &&
		next.Target == before.Target && next.LowerBound == before.LowerBound && next.UpperBound == before.UpperBound &&
		next.Uncapped == before.Uncapped && next.Observed == before.Observed && next.OOMFloor == before.OOMFloor &&
		slices.Equal(next.Reasons, before.Reasons) && !slices.ContainsFunc(d.pods, func(p *pod) bool { return p.isDeferred() || len(p.rejected) > 0 })
}

// learn tells the history what the pods used: what they got, and not what they wanted.
func (o *operator) learn(c *cluster, d *deployment) {
	o.situation.Pods = nil
	for _, p := range d.pods {
		o.situation.Pods = append(o.situation.Pods, p.Pod)
	}
	for _, p := range d.pods {
		o.history.Add(usage.Sample{
			Pod: p.Name, Container: container, Time: c.now, Window: interval,
			CPUMillis: int64(math.Round(p.used)), MemoryBytes: min(p.needs, p.limit),
			MemoryRequest: p.has.MemoryBytes, MemoryLimit: p.limit,
		}, o.params.History)
		if p.isKilled {
			p.kills++
			d.isChanged = true
			kill := workload.OOMKill{Container: container, At: c.now, Termination: p.kills, HitBytes: p.limit}
			p.Kills, p.Exits = []workload.OOMKill{kill}, []workload.Exit{{Container: container, At: c.now, OOMKilled: true}}
			o.history.RecordKill(plan.KillOf(o.situation, o.policy, p.Pod, kill), c.now, o.params.History)
		}
	}
}

// observe returns the input of a plan.
func (o *operator) observe(d *deployment, now time.Time) plan.Situation {
	s := o.situation
	s.Pods, s.RejectedResizes = make([]workload.Pod, 0, len(d.pods)), map[types.UID][]plan.RejectedResize{}
	for _, p := range d.pods {
		seen := p.Pod
		if o.keepsClaims && p.isDeferred() {
			seen.Resize.Since = now // so that it is never withdrawn
		}
		s.Pods = append(s.Pods, seen)
		for _, r := range p.rejected {
			if now.Before(r.until) {
				s.RejectedResizes[p.UID] = append(s.RejectedResizes[p.UID], r.RejectedResize)
			}
		}
	}
	return s
}

// record keeps what the scaler's status has after a plan.
func (o *operator) record(p plan.Plan, now time.Time) {
	o.situation.Decision, o.situation.RevertedChanges, o.situation.NewPods = p.Decision, p.RevertedChanges, p.NewPods
	if n := &o.situation.NewPods; len(n.Sizes) > 0 && n.AskedSince.IsZero() {
		n.AskedSince = now
	}
}

// onBusyNode is the plan with the one pod that is evicted: for CPU, the first one on a busy node.
func onBusyNode(d *deployment, p plan.Plan) plan.Plan {
	step, isEviction := p.Step.(plan.Evict)
	if !isEviction || !step.IfBusy {
		return p
	}
	step.Pods = slices.DeleteFunc(step.Pods, func(e plan.EvictedPod) bool { return d.find(e.UID).node.busy < busyFrom })
	if len(step.Pods) == 0 {
		return plan.WithoutEviction(p, "")
	}
	p.Step = step
	return p
}

func (d *deployment) find(uid types.UID) *pod {
	return d.pods[slices.IndexFunc(d.pods, func(p *pod) bool { return p.UID == uid })]
}

func (o *operator) apply(c *cluster, d *deployment, step plan.Step, now time.Time) {
	switch step := step.(type) {
	case plan.Resize:
		p := d.find(step.UID)
		if step.Withdraws != nil {
			p.withdraw(*step.Withdraws, now)
		}
		c.ask(p, step.Sizes[0].Requests, now)
	case plan.Evict:
		c.evict(d.find(step.Pods[0].UID), o.newPod(d))
	}
}

const leastWithdrawal, mostWithdrawal = 30 * time.Minute, 2 * time.Hour

// rejectedUntil is a withdrawn resize, which is not repeated until then.
type rejectedUntil struct {
	plan.RejectedResize

	until time.Time
}

// withdraw notes that a resize is not repeated for a while, as the operator's memory does. Each withdrawal in a row doubles the time.
func (p *pod) withdraw(r plan.RejectedResize, now time.Time) {
	p.rejected = slices.DeleteFunc(p.rejected, func(old rejectedUntil) bool { return !now.Before(old.until) })
	p.rejected = append(p.rejected, rejectedUntil{r, now.Add(min(leastWithdrawal<<min(p.withdrawals, 8), mostWithdrawal))})
	p.withdrawals++
}

func (o *operator) decided(p *pod) quantity.Amounts {
	if d := o.situation.Decision; d != nil {
		return d.Requests[container]
	}
	return p.asked
}

// newPod is the size that the API server gives the next pod: the decided size if its ReplicaSet has proved it, and
// otherwise at least the template's. Without a decision for a resource, the template's amount applies.
func (o *operator) newPod(d *deployment) quantity.Amounts {
	n := o.situation.NewPods
	if len(n.Sizes) == 0 {
		return d.template
	}
	size := n.Sizes[0].Requests
	size.CPUMillis, size.MemoryBytes = cmp.Or(size.CPUMillis, d.template.CPUMillis), cmp.Or(size.MemoryBytes, d.template.MemoryBytes)
	if n.ReplicaSet == d.replicaSet() {
		return size
	}
	return quantity.Amounts{CPUMillis: max(size.CPUMillis, d.template.CPUMillis), MemoryBytes: max(size.MemoryBytes, d.template.MemoryBytes)}
}
