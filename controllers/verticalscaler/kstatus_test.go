// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// reconciled is the scaler after a reconcile that finds p.
func reconciled(vs *v1beta1.VerticalScaler, p *scope) *v1beta1.VerticalScaler {
	p.status = *vs.Status.DeepCopy()
	if p.status.Recommendation == nil {
		p.status.Recommendation = &v1beta1.Recommendation{}
	}
	completeFor(vs, p)
	out := vs.DeepCopy()
	out.Status = p.status
	return out
}

// kstatusFile has the conditions of this test, and what they must mean to Flux. The module test/libraries asks Flux's library.
const kstatusFile = "kstatus.txt"

// The meanings of conditions for kstatus, which Flux uses.
const (
	isCurrent    = "Current"
	isInProgress = "InProgress"
	isFailed     = "Failed"
)

// statuses are lines about scalers: the case, its meaning, both generations, and the conditions.
type statuses []string

func (s *statuses) add(name string, vs *v1beta1.VerticalScaler, meaning string) {
	line := fmt.Sprintf("%s | %s | %d %d |", name, meaning, vs.Generation, vs.Status.ObservedGeneration)
	for _, c := range vs.Status.Conditions {
		line += fmt.Sprintf(" %s=%s=%s", c.Type, c.Status, c.Reason)
	}
	*s = append(*s, line)
}

func is(state plan.State, reason string) func(*scope) {
	return func(p *scope) { p.plan.Verdict = state.Because(reason, "…") }
}

// Every state of a scaler, right after an edit of its spec and in the days after that.
func TestKStatus(t *testing.T) {
	noDeployment := func(p *scope) { p.observation, p.plan = observation{}, plan.Plan{} }
	misspelt := func(p *scope) { // the scaler names app
		p.observation.situation.Pods = []workload.Pod{runningPod("a", workload.Container{Name: "web"})}
	}
	cases := map[string]struct {
		scope           func(*scope)
		edited, settled string
	}{
		"learning":           {is(plan.Waiting, "Learning"), isCurrent, isCurrent},
		"applied":            {is(plan.Applied, "Applied"), isCurrent, isCurrent},
		"boosted":            {is(plan.Applied, "Boosted"), isCurrent, isCurrent},
		"within bounds":      {is(plan.Applied, "WithinBounds"), isCurrent, isCurrent},
		"waiting":            {is(plan.Waiting, "InCooldown"), isCurrent, isCurrent},
		"deferred by a node": {is(plan.Waiting, "Deferred"), isCurrent, isCurrent},
		"suspended":          {is(plan.Waiting, "Suspended"), isCurrent, isCurrent},
		"recommending":       {is(plan.Waiting, "RecommendOnly"), isCurrent, isCurrent},
		"frozen":             {func(p *scope) { is(plan.Waiting, "Frozen")(p); p.frozen = "incident" }, isCurrent, isCurrent},
		"frozen and applied": {func(p *scope) { p.frozen = "incident" }, isCurrent, isCurrent},
		"resizing":           {is(plan.Changing, "Resizing"), isInProgress, isCurrent},
		"verifying":          {is(plan.Changing, "Verifying"), isInProgress, isCurrent},
		"rolling out":        {is(plan.Changing, "RollingOut"), isInProgress, isCurrent},
		"recreating":         {is(plan.Changing, "Recreating"), isInProgress, isCurrent},
		"stalled":            {is(plan.Stalled, "QoSChange"), isFailed, isFailed},
		"partly applied":     {is(plan.PartlyApplied, "HPAConflict"), isFailed, isFailed},
		"conflict":           {func(p *scope) { noDeployment(p); p.standing = precedence.Standing{Winner: "elder"} }, isFailed, isFailed},
		"without metrics": {
			func(p *scope) { p.observation.problems = collect.Problems{Outage: "metrics.k8s.io is not served"} }, isFailed, isFailed,
		},
		"without metrics while resizing": {func(p *scope) {
			is(plan.Changing, "Resizing")(p)
			p.observation.problems = collect.Problems{Outage: "metrics.k8s.io is not served"}
		}, isFailed, isFailed},
		"with a part of the metrics":     {func(p *scope) { p.observation.problems = collect.Problems{Incomplete: "pod a"} }, isInProgress, isInProgress},
		"no Deployment":                  {noDeployment, isCurrent, isFailed},
		"a policy for another container": {misspelt, isCurrent, isFailed},
		"a failed reconcile": {
			func(p *scope) { p.plan, p.err = plan.Plan{}, apierrors.NewInternalError(errors.New("etcd")) }, isInProgress, isInProgress,
		},
		"a failed step": {func(p *scope) {
			is(plan.Changing, "Resizing")(p)
			p.err = apierrors.NewInternalError(errors.New("etcd"))
		}, isInProgress, isCurrent},
	}
	of := func(change func(*scope), at time.Duration) *scope {
		return aScope(func(p *scope) {
			p.now = noon.Add(at)
			change(p)
		})
	}
	var all statuses
	created := namingContainer("app")
	all.add("before the first reconcile", created, isInProgress)
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		tc := cases[name]
		edited := reconciled(created, of(tc.scope, 0))
		all.add(name+", edited", edited, tc.edited)
		// The spec is applied. Hours later, usage leads to the same state, and it lasts.
		at := reconciled(edited, of(is(plan.Applied, "Applied"), time.Minute))
		for _, later := range []time.Duration{time.Hour, time.Hour + unmatchedLimit} {
			at = reconciled(at, of(tc.scope, later))
		}
		all.add(name+", settled", at, tc.settled)
	}
	all.addEdits()
	golden.Compare(t, kstatusFile, strings.Join(all, "\n")+"\n")
}

// namingContainer is a new scaler with a policy for a container.
func namingContainer(name string) *v1beta1.VerticalScaler {
	return checkout(func(s *v1beta1.VerticalScaler) {
		s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{ContainerName: name}}}
	})
}

// addEdits adds the time in which the edit of a spec is applied, or waits.
func (s *statuses) addEdits() {
	for _, end := range []plan.Verdict{plan.Applied.Because("Applied", "…"), plan.Waiting.Because("OutsideWindow", "…")} {
		at := checkout()
		for i, step := range []struct {
			scope   func(*scope)
			meaning string
		}{
			{is(plan.Changing, "Resizing"), isInProgress},
			{is(plan.Changing, "Verifying"), isInProgress},
			{func(p *scope) { p.plan, p.err = plan.Plan{}, errors.New("etcd") }, isInProgress},
			{is(plan.Changing, "Resizing"), isInProgress},
			{func(p *scope) { p.plan.Verdict = end }, isCurrent},
			{is(plan.Changing, "Resizing"), isCurrent},
		} {
			at = reconciled(at, aScope(step.scope))
			s.add(fmt.Sprintf("%s, reconcile %d", end.Reason, i), at, step.meaning)
		}
	}
}
