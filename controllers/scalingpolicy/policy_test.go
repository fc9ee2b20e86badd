// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const aDay = 24 * time.Hour

// graduated policies begin in Recommend and end in InPlace.
func graduated(p *v1beta1.ClusterScalingPolicy) {
	p.Spec.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
}

// isReady is the status of a scaler with enough evidence.
func isReady(status *v1beta1.VerticalScalerStatus) {
	status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReadyForPromotion, Status: metav1.ConditionTrue, Reason: "Any", LastTransitionTime: metav1.NewTime(noon)}}
}

// reverts is the status of a scaler that has reverted a change at that time.
func reverts(at time.Time) func(*v1beta1.VerticalScalerStatus) {
	return func(status *v1beta1.VerticalScalerStatus) {
		status.RevertedChanges = append(status.RevertedChanges, v1beta1.RevertedChange{ContainerName: "app", Resource: "cpu", Time: metav1.NewTime(at)})
	}
}

// aFleet has Deployments with scalers of policy "fleet" with enough evidence, half of them in each namespace, and no promotion yet.
func aFleet(t *testing.T, size int, funcs interceptor.Funcs, changes ...func(*v1beta1.ClusterScalingPolicy)) *fixture {
	t.Helper()
	objects := []client.Object{aClusterPolicy("fleet", append(changes, graduated)...)}
	for i := range size {
		objects = append(objects, aDeployment([]string{"shop", "bank"}[i%2], fmt.Sprintf("web-%03d", i/2)))
	}
	s := newFixture(t, funcs, objects...)
	s.settle()
	for _, name := range s.scalers() {
		s.report(name, isReady)
	}
	s.wrote()
	return s
}

// promoted are the scalers that are promoted according to the API server.
func (s *fixture) promoted() (names []string) {
	s.Helper()
	for _, name := range s.scalers() {
		scaler := s.scaler(name)
		if isPromoted, mode := fleet.IsPromoted(scaler), scaler.Spec.UpdatePolicy.UpdateMode; isPromoted != (mode == v1beta1.UpdateModeInPlace) {
			s.Errorf("scaler %s in mode %s, promoted: %t", name, mode, isPromoted)
		} else if isPromoted {
			names = append(names, name)
		}
	}
	return names
}

// hasPromoted fails unless that many scalers are promoted.
func (s *fixture) hasPromoted(want int) {
	s.Helper()
	if got := s.promoted(); len(got) != want {
		s.Errorf("promoted %v, want %d", got, want)
	}
}

func (s *fixture) advance(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func TestAFewScalersArePromotedAtATime(t *testing.T) {
	s := aFleet(t, 100, interceptor.Funcs{})
	s.sync()
	after, err := s.policy("fleet")
	if err != nil || after != time.Second {
		t.Errorf("Reconcile() = %s, %v", after, err)
	}
	s.hasPromoted(5)
	s.settle()
	if got := get(s, "fleet", &v1beta1.ClusterScalingPolicy{}).Status; got.Rollout.Verifying != 5 || got.Rollout.Waiting != 95 || got.Summary.Promoted != "5/100" {
		t.Errorf("status %+v, %+v", got.Rollout, got.Summary)
	}
	s.hasCondition("fleet", "Promoting", "True PromotionInProgress: 5 of 100 scalers are promoted; 5 are being verified; 95 wait for their turn")
	s.wrote()
	s.settle()
	s.expectWrites("while they are verified")
	// The next reconcile is when their verification ends.
	s.advance(aDay - 5*time.Minute)
	s.sync()
	if after, err := s.policy("fleet"); err != nil || after > 5*time.Minute || after < 4*time.Minute {
		t.Errorf("Reconcile() = %s, %v", after, err)
	}
	s.hasPromoted(5) // until the first are verified
	s.advance(5 * time.Minute)
	s.settle()
	s.hasPromoted(10)
}

// While the cache does not show our last status or our last promotions, nothing is even tried.
func TestAnOldCachePromotesNone(t *testing.T) {
	s := aFleet(t, 100, interceptor.Funcs{})
	s.sync()
	if _, err := s.policy("fleet"); err != nil {
		t.Fatal(err)
	}
	tried := s.tried
	for _, lacks := range []string{"its status", "the promotions"} {
		if after, err := s.policy("fleet"); err != nil || after <= 0 || after >= time.Second || s.tried != tried {
			t.Errorf("without %s: Reconcile() = %s, %v with %d writes, want a retry", lacks, after, err, s.tried-tried)
		}
		s.sync(&v1beta1.VerticalScalerList{})
	}
	s.advance(2 * time.Minute) // The cache is taken for current then, and each write has the version that was read.
	if after, err := s.policy("fleet"); err != nil || after > time.Second {
		t.Errorf("Reconcile() = %s, %v, want a retry", after, err)
	}
	s.settle()
	s.hasPromoted(5)
}

func TestAConflictOfOnePromotionIsRetriedSoon(t *testing.T) {
	s := aFleet(t, 40, interceptor.Funcs{})
	s.sync()
	for _, name := range s.scalers() { // Users edit them all.
		edit(s, name, &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.Labels["team"] = "web" })
	}
	if after, err := s.policy("fleet"); err != nil || after != 50*time.Millisecond {
		t.Errorf("Reconcile() = %s, %v", after, err)
	}
	s.expectWrites("with an old cache")
	s.settle()
	if got := s.promoted(); len(got) != 2 || s.scaler(got[0]).Labels["team"] != "web" {
		t.Errorf("promoted %v", got)
	}
}

func TestTooMuchHarmHaltsThePromotionUntilAUserContinuesIt(t *testing.T) {
	s := aFleet(t, 40, interceptor.Funcs{}, func(p *v1beta1.ClusterScalingPolicy) { p.Spec.Rollout.MaxConcurrentPercent = new(int32(20)) })
	s.settle()
	first := s.promoted()
	if len(first) != 8 {
		t.Fatalf("promoted %v", first)
	}
	s.advance(time.Hour)
	s.report(first[0], reverts(s.clock.Now().Add(-10*time.Minute)))
	s.report(first[1], reverts(s.clock.Now().Add(-20*time.Minute)))
	s.wrote()
	s.settle()
	s.expectWrites("two do harm", "status fleet", "update "+first[0], "update "+first[1])
	if got := fleet.HarmedAt(s.scaler(first[0])); !got.Equal(s.clock.Now().Add(-10 * time.Minute).Truncate(time.Second)) {
		t.Errorf("harmed at %s", got)
	}
	if got := get(s, "fleet", &v1beta1.ClusterScalingPolicy{}).Status.Rollout; got.Harmed != 2 || got.HarmedExamples[0] != first[0] {
		t.Errorf("rollout %+v", got)
	}
	s.advance(aDay - 30*time.Minute) // The verification of the first has not ended yet.
	s.advance(-time.Hour)
	for _, name := range []string{first[2], first[4], first[5], first[6]} { // three of each namespace then
		s.report(name, reverts(s.clock.Now()))
	}
	s.settle()
	s.advance(2 * aDay)
	s.settle()
	s.hasPromoted(8) // the promotion has halted
	for kind, want := range map[string]string{"Ready": "False", "Stalled": "True", "Promoting": "False"} {
		s.hasCondition("fleet", kind, want+" PromotionHalted: 3 of the 4 scalers")
	}
	s.wrote()
	s.advance(time.Hour)
	s.settle()
	s.expectWrites("halted")
	must.Succeed(t, s.api.Delete(t.Context(), s.scaler(first[0])))
	s.advance(30 * aDay)
	s.settle()
	if halts := get(s, "fleet", &v1beta1.ClusterScalingPolicy{}).Status.Rollout.Halts; len(halts) != 2 || halts[0].Namespace != "bank" {
		t.Errorf("a month later, without one that did harm: halts %+v", halts)
	}
	edit(s, "fleet", &v1beta1.ClusterScalingPolicy{}, func(p *v1beta1.ClusterScalingPolicy) {
		p.Spec.Rollout.ResumeTime = &metav1.Time{Time: s.clock.Now()}
	})
	s.settle()
	s.hasPromoted(15) // the promotion has continued
	s.hasCondition("fleet", "Ready", "True")
	// An edit of the template reaches each scaler, in its own mode, and the marks stay.
	edit(s, "fleet", &v1beta1.ClusterScalingPolicy{}, func(p *v1beta1.ClusterScalingPolicy) { p.Spec.Template.UpdatePolicy.TolerancePercent = new(int32(20)) })
	s.settle()
	if got := s.promoted(); len(got) != 15 || fleet.HarmedAt(s.scaler(first[1])).IsZero() || *s.scaler(first[1]).Spec.UpdatePolicy.TolerancePercent != 20 {
		t.Errorf("promoted %v after an edit", got)
	}
}

// Harm that has just been found counts at once, also when there are free places.
func TestNothingIsPromotedInTheReconcileThatFindsTheHarm(t *testing.T) {
	s := aFleet(t, 40, interceptor.Funcs{}, func(p *v1beta1.ClusterScalingPolicy) { p.Spec.Rollout.MaxConcurrentPercent = new(int32(15)) })
	s.settle()
	first := s.promoted()
	s.advance(time.Hour)
	for _, name := range first {
		s.report(name, reverts(s.clock.Now().Add(-time.Minute)))
	}
	edit(s, "fleet", &v1beta1.ClusterScalingPolicy{}, func(p *v1beta1.ClusterScalingPolicy) { p.Spec.Rollout.MaxConcurrentPercent = new(int32(100)) })
	s.settle()
	if got := s.promoted(); len(first) != 6 || len(got) != 6 {
		t.Errorf("promoted %v, then %v", first, got)
	}
}

// Promotion stops during a freeze, and while its state is unknown. The end sends no event.
func TestNothingIsPromotedWhileFrozen(t *testing.T) {
	s := aFleet(t, 40, interceptor.Funcs{}, func(p *v1beta1.ClusterScalingPolicy) { p.Spec.Rollout.MaxConcurrentPercent = new(int32(100)) })
	s.reconciler.Freeze = freeze.New(types.NamespacedName{Namespace: "sizing", Name: "verticalscaler-freeze"})
	s.sync()
	if after, err := s.policy("fleet"); err != nil || after > time.Second || len(s.promoted()) > 0 {
		t.Errorf("before the switch is known: Reconcile() = %s, %v, promoted %v", after, err, s.promoted())
	}
	s.hasCondition("fleet", "Promoting", "True")
	s.reconciler.Freeze.Set(freeze.State{Active: true, Namespaces: []string{"shop"}, Reason: "incident 42"})
	s.settle()
	if got := s.promoted(); len(got) != 20 || slices.ContainsFunc(got, func(name string) bool { return strings.HasPrefix(name, "shop/") }) {
		t.Errorf("promoted %v", got)
	}
	assert.Equal(t, "Promoting", "False Frozen: ConfigMap sizing/verticalscaler-freeze freezes changes: incident 42", s.condition("fleet", "Promoting"))
	s.wrote()
	s.sync()
	if after, err := s.policy("fleet"); err != nil || after != 15*time.Second {
		t.Errorf("frozen: Reconcile() = %s, %v", after, err)
	}
	s.expectWrites("frozen")
	s.reconciler.Freeze.Set(freeze.State{})
	s.settle()
	s.hasPromoted(40)
	s.hasCondition("fleet", "Promoting", "True AllPromoted")
}

// A paused policy promotes and changes no scaler. It still counts harm, and records it after the pause.
func TestAPausedPolicyPromotesNoneAndNotesHarmLater(t *testing.T) {
	s := aFleet(t, 10, interceptor.Funcs{})
	s.settle()
	first := s.promoted()[0]
	edit(s, "fleet", &v1beta1.ClusterScalingPolicy{}, func(p *v1beta1.ClusterScalingPolicy) {
		p.Spec.Rollout.MaxConcurrentPercent, p.Annotations = new(int32(50)), map[string]string{v1beta1.PausedAnnotation: "true"}
	})
	s.advance(time.Hour)
	s.report(first, reverts(s.clock.Now().Add(-time.Minute)))
	s.wrote()
	s.settle()
	s.expectWrites("paused", "status fleet")
	if got := get(s, "fleet", &v1beta1.ClusterScalingPolicy{}).Status.Rollout; got.Harmed != 1 {
		t.Errorf("rollout %+v", got)
	}
	s.hasCondition("fleet", "Promoting", "False Paused: The annotation")
	edit(s, "fleet", &v1beta1.ClusterScalingPolicy{}, func(p *v1beta1.ClusterScalingPolicy) { p.Annotations = nil })
	s.settle()
	if fleet.HarmedAt(s.scaler(first)).IsZero() {
		t.Error("the harm is not noted after the pause")
	}
}

// The API server rejects changes of some scalers. The others are promoted, and the status reports it.
func TestARejectedPromotionStopsNoOther(t *testing.T) {
	rejects := true
	s := aFleet(t, 20, interceptor.Funcs{Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
		if rejects && o.GetNamespace() == "shop" {
			return apierrors.NewForbidden(resourceOfScalers, o.GetName(), errors.New("a policy of the cluster says no"))
		}
		return c.Update(ctx, o, options...)
	}}, func(p *v1beta1.ClusterScalingPolicy) { p.Spec.Rollout.MaxConcurrentPercent = new(int32(50)) })
	s.sync()
	if after, err := s.policy("fleet"); err != nil || after != time.Second {
		t.Errorf("Reconcile() = %s, %v", after, err)
	}
	s.hasPromoted(5)
	if got := s.condition("fleet", "Stalled"); !strings.HasPrefix(got, "True ScalersRejected") || !strings.Contains(got, "a policy of the cluster says no") {
		t.Errorf("Stalled %s", got)
	}
	s.sync()
	if _, err := s.policy("fleet"); err != nil {
		t.Fatal(err)
	}
	// It is not asked each second.
	edit(s, "fleet", &v1beta1.ClusterScalingPolicy{}, func(p *v1beta1.ClusterScalingPolicy) {
		p.Spec.Exclude = &v1beta1.ClusterExclusions{Namespaces: []string{"bank"}}
	})
	s.sync()
	if after, err := s.policy("fleet"); err != nil || after != rejectedRetry {
		t.Errorf("Reconcile() = %s, %v", after, err)
	}
	rejects = false
	s.settle()
	s.hasCondition("fleet", "Ready", "True OperatingNormally")
}

func TestAnErrorOfAPromotionIsRetried(t *testing.T) {
	s := aFleet(t, 4, interceptor.Funcs{Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
		return errors.New("connection refused")
	}})
	s.sync()
	if _, err := s.policy("fleet"); err == nil || !strings.Contains(err.Error(), "updating VerticalScaler ") {
		t.Errorf("Reconcile() = %v", err)
	}
	s.expectWrites("without a connection")
}

// The states and savings of scalers follow each recommendation. They alone are written now and then.
func TestSavingsAloneAreWrittenSeldom(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"))
	recommends := func(cpuMillis int64) {
		t.Helper()
		s.report("shop/web", func(status *v1beta1.VerticalScalerStatus) {
			cpu, memory := quantity.CPU(cpuMillis), quantity.Memory(256<<20)
			status.Summary = &v1beta1.Summary{Reason: fmt.Sprint("Reason", cpuMillis)}
			status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionNewPodsSized, Status: metav1.ConditionFalse, Reason: fmt.Sprint("Reason", cpuMillis)}}
			status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{ContainerName: "app", Target: v1beta1.Amounts{CPU: &cpu, Memory: &memory}}}}
		})
		s.sync()
	}
	s.settle()
	s.wrote()
	for i := range int64(4) {
		s.advance(slowPeriod / 5)
		recommends(100 + 100*i)
		if after, err := s.policy("shop/p"); err != nil || after != slowPeriod-time.Duration(i+1)*slowPeriod/5 {
			t.Errorf("Reconcile() = %s, %v", after, err)
		}
	}
	s.expectWrites("within the period")
	// Anything else is written at once, and with it what they are now.
	s.must(s.api.Create(t.Context(), aDeployment("shop", "late")))
	s.sync()
	if _, err := s.policy("shop/p"); err != nil {
		t.Fatal(err)
	}
	s.expectWrites("another Deployment", "status shop/p")
	if got := get(s, "shop/p", &v1beta1.ScalingPolicy{}).Status; got.Savings.Recommended.CPU.String() != "200m" || got.States[0].Reason != "Reason400" || got.UnsizedNewPods[0].Reason != "Reason400" {
		t.Errorf("status %+v", got)
	}
	recommends(50)
	s.advance(slowPeriod)
	if _, err := s.policy("shop/p"); err != nil {
		t.Fatal(err)
	}
	s.expectWrites("after the period", "status shop/p")
	if got := get(s, "shop/p", &v1beta1.ScalingPolicy{}).Status; got.Savings.Recommended.CPU.String() != "900m" {
		t.Errorf("savings %+v", got.Savings)
	}
}

func TestAPolicyReportsWhichRightsAreMissing(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"))
	s.settle()
	s.must(s.api.Create(t.Context(), aDeployment("shop", "late")))
	s.wrote()
	s.reconciler.Forbidden = "create verticalscalers.autoscaling.verticalscaler.io"
	s.sync()
	for range 2 {
		if after, err := s.policy("shop/p"); err != nil || after != 10*time.Minute {
			t.Errorf("Reconcile() = %s, %v", after, err)
		}
		if after, err := s.member("shop/late"); err != nil || after != 0 {
			t.Errorf("Reconcile() = %s, %v", after, err)
		}
		s.sync()
	}
	s.expectWrites("without rights", "status shop/p")
	const want = "False Forbidden: The operator may not create verticalscalers.autoscaling.verticalscaler.io, which policies need. An administrator can grant it: kubectl apply --server-side -f https://github.com/verticalscaler/verticalscaler-operator/releases/latest/download/policies.yaml"
	assert.Equal(t, "Ready", want, s.condition("shop/p", "Ready"))
	if got := get(s, "shop/p", &v1beta1.ScalingPolicy{}).Status; got.Summary.Deployments != "1/1" {
		t.Errorf("status %+v", got)
	}
	s.reconciler.Forbidden = ""
	s.settle()
	s.expectWrites("with rights", "create shop/late", "status shop/p")
}

func TestEventsReportWhenAPolicyNeedsAUserAndWhatItReverts(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"))
	expect := func(want ...string) {
		t.Helper()
		var got []string
		for len(s.recorder.Events) > 0 {
			got = append(got, <-s.recorder.Events)
		}
		if len(got) != len(want) {
			t.Fatalf("events %q, want %q", got, want)
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("event %q, want %q", got[i], want[i])
			}
		}
	}
	s.settle()
	expect()
	edit(s, "shop/p", &v1beta1.ScalingPolicy{}, func(p *v1beta1.ScalingPolicy) {
		p.Spec.DeploymentSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like"}}}
	})
	s.settle()
	s.settle()
	expect("Warning InvalidSelector spec.deploymentSelector")
	edit(s, "shop/p", &v1beta1.ScalingPolicy{}, func(p *v1beta1.ScalingPolicy) { p.Spec.DeploymentSelector = nil })
	s.settle()
	expect("Normal OperatingNormally")
	edit(s, "shop/p", &v1beta1.ScalingPolicy{}, func(p *v1beta1.ScalingPolicy) { p.Spec.Template.Suspend = true })
	s.settle()
	expect() // the scaler follows its policy
	edit(s, "shop/web", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.Spec.Suspend = false })
	s.settle()
	s.settle()
	expect("Warning EditReverted An edit of the scaler was reverted: to change it, edit spec.template of ScalingPolicy shop/p, or detach")
	edit(s, "shop/p", &v1beta1.ScalingPolicy{}, annotated[*v1beta1.ScalingPolicy](v1beta1.PausedAnnotation, "true"))
	s.settle()
	expect()
}

func TestAConflictOfTheStatusIsRetriedSoon(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"))
	edit(s, "shop/p", &v1beta1.ScalingPolicy{}, func(p *v1beta1.ScalingPolicy) { p.Labels = map[string]string{"a": "b"} })
	for _, want := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond} {
		if after, err := s.policy("shop/p"); err != nil || after != want {
			t.Errorf("Reconcile() = %s, %v", after, err)
		}
	}
	s.sync()
	if after, err := s.policy("shop/p"); err != nil || after != 10*time.Minute {
		t.Errorf("Reconcile() = %s, %v, want the resync", after, err)
	}
	s.must(s.api.Delete(t.Context(), aPolicy("p")))
	if _, err := s.policy("shop/p"); err != nil {
		t.Error(err)
	}
	s.sync()
	if after, err := s.policy("shop/p"); err != nil || after != 0 {
		t.Errorf("Reconcile() = %s, %v for a policy that is gone", after, err)
	}
}

func TestAFailedReadIsAnError(t *testing.T) {
	for _, fails := range []client.ObjectList{&v1beta1.ScalingPolicyList{}, &v1beta1.ClusterScalingPolicyList{}, &v1beta1.VerticalScalerList{}, &corev1.NamespaceList{}} {
		t.Run(fmt.Sprintf("%T", fails), func(t *testing.T) {
			s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"))
			withWatch, ok := s.reconciler.Cached.(cached).Reader.(client.WithWatch)
			if !ok {
				t.Fatal("the fake client cannot watch")
			}
			broken := errors.New("no cache")
			s.reconciler.Cached = cached{Reader: interceptor.NewClient(withWatch, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
					if fmt.Sprintf("%T", list) == fmt.Sprintf("%T", fails) {
						return broken
					}
					return c.List(ctx, list, options...)
				},
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
					if _, ok := into.(*metav1.PartialObjectMetadata); ok && fmt.Sprintf("%T", fails) == "*v1.NamespaceList" {
						return broken
					}
					return c.Get(ctx, key, into, options...)
				},
			})}
			if _, err := s.policy("shop/p"); !errors.Is(err, broken) {
				t.Errorf("Reconcile() of the policy = %v", err)
			}
			if _, err := s.member("shop/web"); !errors.Is(err, broken) {
				t.Errorf("Reconcile() of the Deployment = %v", err)
			}
			s.expectWrites("without a cache")
		})
	}
}
