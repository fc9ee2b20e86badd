// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// running creates a Deployment with one running pod.
func running(ctx context.Context, namespace, name string) error {
	d := testkit.Deployment(namespace, name)
	d.Spec.Replicas = ptr.To(int32(1))
	if err := env.Client.Create(ctx, d); err != nil {
		return err
	}
	if _, err := env.Run(ctx, d); err != nil {
		return err
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1, ReadyReplicas: 1}
	return env.Client.Status().Update(ctx, d)
}

// number says what is missing until the namespace has exactly that many scalers that are right.
func number(t *testing.T, namespace string, want int, isRight func(*v1beta1.VerticalScaler) bool) string {
	t.Helper()
	var list v1beta1.VerticalScalerList
	if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range list.Items {
		if isRight(&list.Items[i]) {
			n++
		}
	}
	if n != want {
		return fmt.Sprintf("%d of %d scalers, want %d", n, len(list.Items), want)
	}
	return ""
}

// An edit of a policy makes all its scalers change pods. The changes stay within the budget, and a freeze stops the rest.
func TestFleetEditStaysWithinTheBudgetAndStopsWithTheFreeze(t *testing.T) {
	const (
		many   = 60
		most   = 10
		window = 500 * time.Millisecond
	)
	own, namespace := env.Namespace(t), env.Namespace(t)
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 200 * time.Millisecond
	c.Freeze.Namespace = own
	c.Budget = operatorconfig.Budget{ChangesPerMinute: most, ChangesPerMinutePerNamespace: most, Window: window}
	use := testkit.NewUsage()
	testkit.InParallel(t, many, func(i int) error { return running(t.Context(), namespace, nameOf(i)) })
	for i := range many {
		use.Set(namespace, podOf(nameOf(i)), "app", 300, 240<<20)
	}
	policy := policyOf(namespace, "local", func(p *v1beta1.ScalingPolicy) { p.Spec.Template.UpdatePolicy.CooldownSeconds = ptr.To(int32(0)) })
	create(t, policy)
	mark := env.Mark()
	operator := env.StartOperator(t, c, use, namespace)
	kubelets(t)
	testkit.Eventually(t, busy, func() string {
		return number(t, namespace, many, func(s *v1beta1.VerticalScaler) bool { return s.Status.Recommendation != nil })
	})
	resizes := func() []testkit.Write {
		return writesOf(t, mark, operator.Agent, "pods/resize", "pods", "pods/eviction", "deployments")
	}
	if writes := resizes(); len(writes) > 0 {
		t.Fatalf("in Recommend, the operator writes %s", writes[0])
	}

	patchObject(t, &v1beta1.ScalingPolicy{}, client.ObjectKeyFromObject(policy), `{"spec":{"rollout":{"start":"InPlace"}}}`)
	testkit.Eventually(t, busy, func() string {
		if n := len(resizes()); n < most+2 {
			return fmt.Sprintf("%d resizes", n)
		}
		return ""
	})
	runbook(t, own, "create configmap verticalscaler-freeze")
	testkit.Eventually(t, busy, func() string {
		reasons := appliedReasons(t, namespace)
		if reasons[v1beta1.ReasonFrozen] == 0 || reasons[v1beta1.ReasonWaitingForBudget]+reasons[v1beta1.ReasonResizing]+reasons[v1beta1.ReasonNoRecommendation] > 0 {
			return fmt.Sprintf("scalers by reason: %v", reasons)
		}
		return ""
	})
	held, before := appliedReasons(t, namespace)[v1beta1.ReasonFrozen], len(resizes())
	// The policy is served while changes are frozen: an edit of it reaches the scalers.
	patchObject(t, &v1beta1.ScalingPolicy{}, client.ObjectKeyFromObject(policy), `{"spec":{"template":{"updatePolicy":{"tolerancePercent":7}}}}`)
	testkit.Eventually(t, busy, func() string {
		return number(t, namespace, many, func(s *v1beta1.VerticalScaler) bool { return *s.Spec.UpdatePolicy.TolerancePercent == 7 })
	})

	if writes := resizes()[before:]; len(writes) > 0 {
		t.Errorf("%d changes once the scalers said that they are frozen, such as %s", len(writes), writes[0])
	}
	runbook(t, own, "delete configmap verticalscaler-freeze")
	testkit.Eventually(t, busy, func() string {
		if reasons := appliedReasons(t, namespace); reasons[v1beta1.ReasonApplied] != many {
			return fmt.Sprintf("scalers by reason: %v", reasons)
		}
		return ""
	})
	changes := resizes()
	t.Logf("%d resizes, at most %d in any %s; the freeze held %d of %d", len(changes), busiest(changes, window), window, held, many)
	if got := busiest(changes, window); got > most {
		t.Errorf("%d changes within %s, of %d", got, window, most)
	}
}

// Scalers begin in Recommend and collect evidence. They are promoted a few at a time. If promoted ones do harm, the
// promotion halts, until a user continues it.
func TestFleetIsPromotedWithCare(t *testing.T) {
	const many = 12
	namespace := env.Namespace(t)
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 200 * time.Millisecond
	use := testkit.NewUsage()
	testkit.InParallel(t, many, func(i int) error { return running(t.Context(), namespace, nameOf(i)) })
	env.StartOperator(t, c, use, namespace)
	kubelets(t)
	policy := policyOf(namespace, "local", func(p *v1beta1.ScalingPolicy) {
		p.Spec.Template.UpdatePolicy.UpdateMode, p.Spec.Template.UpdatePolicy.CooldownSeconds = v1beta1.UpdateModeInPlace, ptr.To(int32(0))
		p.Spec.Rollout = v1beta1.PolicyRollout{
			Start: v1beta1.UpdateModeRecommend, AfterSeconds: ptr.To(int32(0)), MaxConcurrentPercent: ptr.To(int32(30)), VerificationSeconds: ptr.To(int32(3600)),
		}
	})
	create(t, policy)
	rollout := func(want string) {
		t.Helper()
		testkit.Eventually(t, soon, func() string {
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
				t.Fatal(err)
			}
			r := policy.Status.Rollout
			if r == nil {
				return "the policy has no rollout yet"
			}
			if got := fmt.Sprintf("%d collect, %d wait, %d verified, %d promoted, %d harmed", r.Collecting, r.Waiting, r.Verifying, r.Promoted, r.Harmed); got != want {
				return fmt.Sprintf("the policy says %q, want %q: %+v", got, want, policy.Status.Conditions)
			}
			return ""
		})
	}
	rollout(fmt.Sprintf("%d collect, 0 wait, 0 verified, 0 promoted, 0 harmed", many))
	if got := condition(policy, v1beta1.ConditionPromoting); got != "True CollectingEvidence" {
		t.Errorf("Promoting %s", got)
	}
	// Usage is evidence, and a third of the scalers is promoted.
	for i := range many {
		use.Set(namespace, podOf(nameOf(i)), "app", 300, 240<<20)
	}
	rollout("0 collect, 8 wait, 4 verified, 4 promoted, 0 harmed")
	first := promotedScalers(t, namespace)
	if len(first) != 4 {
		t.Fatalf("promoted %v", first)
	}
	// They alone change pods.
	testkit.Eventually(t, soon, func() string {
		if reasons := appliedReasons(t, namespace); reasons[v1beta1.ReasonApplied] != 4 {
			return fmt.Sprintf("scalers by reason: %v", reasons)
		}
		return ""
	})
	if got := number(t, namespace, 4, func(s *v1beta1.VerticalScaler) bool { return s.Status.Decision != nil }); got != "" {
		t.Errorf("decisions: %s", got)
	}

	// Two do harm, which may be chance, and a third.
	harms := func(names ...string) {
		t.Helper()
		for _, name := range names {
			testkit.Eventually(t, soon, func() string {
				s := scaler(t, namespace, name)
				if !fleet.HarmedAt(s).IsZero() {
					return ""
				}
				// The operator may have written the status in the meantime, as it was.
				at := metav1.NewTime(fleet.PromotedAt(s).Add(time.Second))
				s.Status.RevertedChanges = []v1beta1.RevertedChange{{
					ContainerName: "app", Resource: v1beta1.ControlledCPU, Value: resource.MustParse("50m"), LastGood: resource.MustParse("100m"), Time: at, Message: "a test says so",
				}}
				if err := env.Client.Status().Update(t.Context(), s); err != nil {
					return err.Error()
				}
				return "the harm of " + name + " is not marked"
			})
		}
	}
	harms(first[:2]...)
	rollout("0 collect, 8 wait, 4 verified, 4 promoted, 2 harmed")
	harms(first[2])
	rollout("0 collect, 8 wait, 4 verified, 4 promoted, 3 harmed")
	message := policySays(t, policy, "False PromotionHalted", "")
	if !strings.HasPrefix(message, "3 of the 4 scalers promoted") || condition(policy, v1beta1.ConditionPromoting) != "False PromotionHalted" || condition(policy, v1beta1.ConditionStalled) != "True PromotionHalted" {
		t.Errorf("halted with %q, Promoting %s, Stalled %s", message, condition(policy, v1beta1.ConditionPromoting), condition(policy, v1beta1.ConditionStalled))
	}
	// There is room for all of them now, and the halt stays.
	key := client.ObjectKeyFromObject(policy)
	patchObject(t, &v1beta1.ScalingPolicy{}, key, `{"spec":{"rollout":{"maxConcurrentPercent":60}}}`)
	policySays(t, policy, "False PromotionHalted", "")
	if got := promotedScalers(t, namespace); !slices.Equal(got, first) {
		t.Errorf("promoted %v while halted, before %v", got, first)
	}
	now := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
	patchObject(t, &v1beta1.ScalingPolicy{}, key, fmt.Sprintf(`{"spec":{"rollout":{"resumeTime":%q}}}`, now))
	rollout("0 collect, 4 wait, 8 verified, 8 promoted, 3 harmed")
	policySays(t, policy, "True OperatingNormally", "")
	// Nothing demotes a scaler.
	if got := promotedScalers(t, namespace); len(got) != 8 || !slices.Contains(got, first[0]) {
		t.Errorf("promoted %v, at first %v", got, first)
	}
}

// condition is the status and the reason of a condition of a policy.
func condition(policy *v1beta1.ScalingPolicy, kind string) string {
	c := meta.FindStatusCondition(policy.Status.Conditions, kind)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason
}

// promotedScalers are the names of those that are promoted, in order. Each must have the mode of the template, and the others
// that of the start.
func promotedScalers(t *testing.T, namespace string) (names []string) {
	t.Helper()
	var list v1beta1.VerticalScalerList
	if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		s := &list.Items[i]
		if fleet.IsPromoted(s) != (s.Spec.UpdatePolicy.UpdateMode == v1beta1.UpdateModeInPlace) {
			t.Errorf("scaler %s is promoted: %t, in mode %s", s.Name, fleet.IsPromoted(s), s.Spec.UpdatePolicy.UpdateMode)
		}
		if fleet.IsPromoted(s) {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}
