// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
)

// Whatever a reconcile has found, each condition that it writes has a reason that is explained
// to users, and a message.
func TestEveryReconcileGivesAReason(t *testing.T) {
	type step func(*v1beta1.VerticalScaler, *scope)
	none := func(*v1beta1.VerticalScaler, *scope) {}
	found := func(f func(*scope)) step { return func(_ *v1beta1.VerticalScaler, p *scope) { f(p) } }
	// One of each row happens, in all combinations.
	rows := [][]step{
		{
			none,
			func(s *v1beta1.VerticalScaler, _ *scope) { s.Spec.Suspend = true },
			func(s *v1beta1.VerticalScaler, _ *scope) {
				s.Annotations = map[string]string{v1beta1.PausedAnnotation: "true"}
			},
			func(s *v1beta1.VerticalScaler, _ *scope) {
				s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend
			},
		},
		{
			none,
			found(func(p *scope) { p.observation.problems = collect.Problems{Outage: "metrics.k8s.io is not served"} }),
			found(func(p *scope) {
				p.observation.problems = collect.Problems{Incomplete: "pod a", Past: "Prometheus is down"}
			}),
		},
		{none, found(func(p *scope) { p.status.Recommendation = nil })},
		{none, found(func(p *scope) { p.observation.situation.Pods = nil })},
		{
			none,
			found(planned(v1beta1.ReasonNoRecommendation, "There is no recommendation yet")),
			found(func(p *scope) {
				planned(v1beta1.ReasonResizing, "Pods are being resized")(p)
				p.plan.Verdict.State = plan.Changing
			}),
			found(func(p *scope) { planned(v1beta1.ReasonQoSChange, "pod a: no")(p); p.plan.Verdict.State = plan.Stalled }),
			found(func(p *scope) { p.plan = plan.Plan{} }),
		},
		{
			none,
			found(func(p *scope) {
				p.standing, p.observation, p.plan = precedence.Standing{Winner: "elder"}, observation{}, plan.Plan{}
			}),
			found(func(p *scope) { p.observation, p.plan = observation{}, plan.Plan{} }),
			found(func(p *scope) {
				p.standing, p.observation, p.plan = precedence.Standing{Refused: true}, observation{}, plan.Plan{}
			}),
			found(func(p *scope) { p.observation = observation{deployment: &appsv1.Deployment{}} }),
		},
		{none, found(func(p *scope) { p.err = apierrors.NewInternalError(errors.New("etcd")) })},
		{
			none,
			found(func(p *scope) { p.access = scaler.ClusterAccess{Namespaces: []string{"shop"}} }),
			found(func(p *scope) { p.access = scaler.ClusterAccess{NodesForbidden: true} }),
			found(func(p *scope) { p.promotion.waits = true }),
			found(func(p *scope) {
				p.promotion = promotion{waits: true, isLearned: true, goal: history.Goal{Time: time.Hour}, covered: []coveredContainer{{"app", history.Coverage{Time: time.Hour}}}}
			}),
			found(func(p *scope) { p.promotion = promotion{waits: true, goal: history.Goal{Time: time.Hour}} }),
		},
		{
			none,
			found(func(p *scope) { p.frozen = "ConfigMap a/b freezes changes" }),
			func(s *v1beta1.VerticalScaler, _ *scope) {
				s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{ContainerName: "aap"}}}
			},
			func(s *v1beta1.VerticalScaler, _ *scope) {
				s.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionTargetFound, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonDeploymentNotFound}}
			},
		},
	}
	for chosen := range combinations(rows) {
		vs, p := checkout(), aScope()
		for _, step := range chosen {
			step(vs, p)
		}
		completeFor(vs, p)
		if n := len(p.status.Conditions); n < 7 {
			t.Fatalf("there are %d conditions", n)
		}
		for _, c := range p.status.Conditions {
			if _, ok := explain.ReasonFor(c.Reason); !ok || strings.TrimSpace(c.Message) == "" {
				t.Fatalf("%s=%s has the reason %q, and says %q", c.Type, c.Status, c.Reason, c.Message)
			}
		}
	}
}

// combinations are all ways to take one of each row.
func combinations[T any](rows [][]T) func(yield func([]T) bool) {
	return func(yield func([]T) bool) {
		chosen := make([]T, len(rows))
		var choose func(row int) bool
		choose = func(row int) bool {
			if row == len(rows) {
				return yield(chosen)
			}
			for _, one := range rows[row] {
				chosen[row] = one
				if !choose(row + 1) {
					return false
				}
			}
			return true
		}
		choose(0)
	}
}
