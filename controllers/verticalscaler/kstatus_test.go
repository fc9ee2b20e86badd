// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"testing"
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
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

// kstatusOf is the scaler's status by kstatus, which Flux uses.
func kstatusOf(t *testing.T, vs *v1beta1.VerticalScaler) kstatus.Status {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(vs)
	must.Succeed(t, err)
	object := &unstructured.Unstructured{Object: fields}
	object.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("VerticalScaler"))
	result, err := kstatus.Compute(object)
	must.Succeed(t, err)
	return result.Status
}

func is(state plan.State, reason string) func(*scope) {
	return func(p *scope) { p.plan.Verdict = state.Because(reason, "…") }
}

// Every state of a scaler, right after an edit of its spec and in the days after that.
func TestKStatus(t *testing.T) {
	const current, inProgress, failed = kstatus.CurrentStatus, kstatus.InProgressStatus, kstatus.FailedStatus
	noDeployment := func(p *scope) { p.observation, p.plan = observation{}, plan.Plan{} }
	misspelt := func(p *scope) { // the scaler names app
		p.observation.situation.Pods = []workload.Pod{runningPod("a", workload.Container{Name: "web"})}
	}
	cases := map[string]struct {
		scope           func(*scope)
		edited, settled kstatus.Status
	}{
		"learning":           {is(plan.Waiting, "Learning"), current, current},
		"applied":            {is(plan.Applied, "Applied"), current, current},
		"boosted":            {is(plan.Applied, "Boosted"), current, current},
		"within bounds":      {is(plan.Applied, "WithinBounds"), current, current},
		"waiting":            {is(plan.Waiting, "InCooldown"), current, current},
		"deferred by a node": {is(plan.Waiting, "Deferred"), current, current},
		"suspended":          {is(plan.Waiting, "Suspended"), current, current},
		"recommending":       {is(plan.Waiting, "RecommendOnly"), current, current},
		"frozen":             {func(p *scope) { is(plan.Waiting, "Frozen")(p); p.frozen = "incident" }, current, current},
		"frozen and applied": {func(p *scope) { p.frozen = "incident" }, current, current},
		"resizing":           {is(plan.Changing, "Resizing"), inProgress, current},
		"verifying":          {is(plan.Changing, "Verifying"), inProgress, current},
		"rolling out":        {is(plan.Changing, "RollingOut"), inProgress, current},
		"recreating":         {is(plan.Changing, "Recreating"), inProgress, current},
		"stalled":            {is(plan.Stalled, "QoSChange"), failed, failed},
		"partly applied":     {is(plan.PartlyApplied, "HPAConflict"), failed, failed},
		"conflict":           {func(p *scope) { noDeployment(p); p.standing = precedence.Standing{Winner: "elder"} }, failed, failed},
		"without metrics": {
			func(p *scope) { p.observation.problems = collect.Problems{Outage: "metrics.k8s.io is not served"} }, failed, failed,
		},
		"without metrics while resizing": {func(p *scope) {
			is(plan.Changing, "Resizing")(p)
			p.observation.problems = collect.Problems{Outage: "metrics.k8s.io is not served"}
		}, failed, failed},
		"with a part of the metrics":     {func(p *scope) { p.observation.problems = collect.Problems{Incomplete: "pod a"} }, inProgress, inProgress},
		"no Deployment":                  {noDeployment, current, failed},
		"a policy for another container": {misspelt, current, failed},
		"a failed reconcile": {
			func(p *scope) { p.plan, p.err = plan.Plan{}, apierrors.NewInternalError(errors.New("etcd")) }, inProgress, inProgress,
		},
		"a failed step": {func(p *scope) {
			is(plan.Changing, "Resizing")(p)
			p.err = apierrors.NewInternalError(errors.New("etcd"))
		}, inProgress, current},
	}
	of := func(change func(*scope), at time.Duration) *scope {
		return aScope(func(p *scope) {
			p.now = noon.Add(at)
			change(p)
		})
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			created := namingContainer("app")
			if got := kstatusOf(t, created); got != inProgress {
				t.Errorf("before the first reconcile it is %s", got)
			}
			edited := reconciled(created, of(tc.scope, 0))
			if got := kstatusOf(t, edited); got != tc.edited {
				t.Errorf("after the first reconcile it is %s, want %s:\n%s", got, tc.edited, formatConditions(edited.Status.Conditions))
			}
			// The spec is applied. Hours later, usage leads to the same state, and it lasts.
			at := reconciled(edited, of(is(plan.Applied, "Applied"), time.Minute))
			for _, later := range []time.Duration{time.Hour, time.Hour + unmatchedLimit} {
				at = reconciled(at, of(tc.scope, later))
			}
			if got := kstatusOf(t, at); got != tc.settled {
				t.Errorf("hours later it is %s, want %s:\n%s", got, tc.settled, formatConditions(at.Status.Conditions))
			}
		})
	}
}

// namingContainer is a new scaler with a policy for a container.
func namingContainer(name string) *v1beta1.VerticalScaler {
	return checkout(func(s *v1beta1.VerticalScaler) {
		s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{ContainerName: name}}}
	})
}

// The edit of a spec is in progress until it is applied or waits.
func TestAnEditIsInProgressUntilItIsApplied(t *testing.T) {
	for end, state := range map[string]plan.State{"Applied": plan.Applied, "OutsideWindow": plan.Waiting} {
		at := checkout()
		for i, step := range []struct {
			scope func(*scope)
			want  kstatus.Status
		}{
			{is(plan.Changing, "Resizing"), kstatus.InProgressStatus},
			{is(plan.Changing, "Verifying"), kstatus.InProgressStatus},
			{func(p *scope) { p.plan, p.err = plan.Plan{}, errors.New("etcd") }, kstatus.InProgressStatus},
			{is(plan.Changing, "Resizing"), kstatus.InProgressStatus},
			{is(state, end), kstatus.CurrentStatus},
			{is(plan.Changing, "Resizing"), kstatus.CurrentStatus},
		} {
			at = reconciled(at, aScope(step.scope))
			if got := kstatusOf(t, at); got != step.want {
				t.Errorf("%s: after reconcile %d it is %s, want %s", end, i, got, step.want)
			}
		}
	}
}
