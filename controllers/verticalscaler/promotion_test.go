// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// policyCache is a cache with policies, some of which cannot be read.
type policyCache struct {
	client.Reader
	err error
}

func (c policyCache) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if c.err != nil {
		return c.err
	}
	return c.Reader.Get(ctx, key, o, options...)
}

func ofPolicy(kind, name string) func(*v1beta1.VerticalScaler) {
	return func(vs *v1beta1.VerticalScaler) {
		vs.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1beta1.GroupVersion.String(), Kind: kind, Name: name, UID: "policy-1", Controller: new(true),
		}}
		vs.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend
	}
}

func rollout(after time.Duration) v1beta1.PolicyRules {
	rules := v1beta1.PolicyRules{Rollout: v1beta1.PolicyRollout{Start: v1beta1.UpdateModeRecommend, AfterSeconds: ptr.To(int32(after / time.Second)), MaxStarvedPercent: new(int32(3))}}
	rules.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
	return rules
}

// promotable is a plant whose scaler belongs to a policy.
type promotable struct {
	*plant

	minute int // of usage
}

func newPromotable(t *testing.T, rules v1beta1.PolicyRules, changes ...func(*v1beta1.VerticalScaler)) *promotable {
	t.Helper()
	p := newPlant(t, 100, append([]func(*v1beta1.VerticalScaler){ofPolicy(v1beta1.ScalingPolicyKind, "team")}, changes...)...)
	p.create(&v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "team", UID: "policy-1"}, Spec: v1beta1.ScalingPolicySpec{PolicyRules: rules}})
	p.Policies = p.server
	return &promotable{plant: p}
}

// use adds minutes of usage of two uneven pods.
func (p *promotable) use(minutes int, memory int64) {
	p.t.Helper()
	p.Histories.With(p.key, func(histories history.Histories) {
		for range minutes {
			p.minute++
			p.clock.SetTime(noon.Add(time.Duration(p.minute) * time.Minute))
			for i, pod := range []string{"checkout-1-b", "checkout-1-a"} {
				histories.Add(usage.Sample{Container: "app", Pod: pod, Time: p.clock.Now(), CPUMillis: int64(98 + i), MemoryBytes: memory}, p.Params.History)
			}
		}
	})
}

// expect reconciles and compares the condition.
func (p *promotable) expect(when, want string) *v1beta1.VerticalScaler {
	p.t.Helper()
	vs, _, err := p.reconcile()
	must.Succeed(p.t, err)
	c := condition(vs, v1beta1.ConditionReadyForPromotion)
	got := ""
	if c.Type != "" {
		got = string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	if got != want {
		p.t.Errorf("%s, the condition is\n%q, want\n%q", when, got, want)
	}
	return vs
}

const (
	needsADay = "False CollectingEvidence: Needs 24h of usage that the recommendations would have covered"
	coversDay = "True EnoughEvidence: The recommendations would have covered 24h of usage"
)

func TestAScalerIsReadyForPromotionOnceItsUsageWasCovered(t *testing.T) {
	p := newPromotable(t, rollout(24*time.Hour))
	p.expect("before any usage", needsADay)
	for range 23 * 6 {
		p.use(10, 100*mebi)
		p.expect("after less than a day", needsADay)
	}
	p.use(70, 100*mebi)
	p.expect("after a day", coversDay)

	p.restart()
	p.Policies = p.server
	p.expect("after a restart", coversDay)
	p.use(10, 900*mebi)
	again := needsADay + "; container app used more memory than recommended at 2026-03-03T12:11:00Z"
	p.expect("once more memory is used", again)
	p.use(10, 100*mebi)
	p.expect("ten minutes later", again)

	// It is promoted, and waits no more.
	vs := p.expect("and then", again)
	vs.Annotations = map[string]string{v1beta1.PromotedAnnotation: "2026-03-02T13:00:00Z"}
	must.Succeed(t, p.server.Update(t.Context(), vs))
	p.expect("of a promoted scaler", "")
	p.Histories.With(p.key, func(histories history.Histories) {
		if got := histories["app"].Coverage(); got != (history.Coverage{}) {
			t.Errorf("%+v is still known of a promoted scaler", got)
		}
	})
}

func TestWhoWaitsForPromotion(t *testing.T) {
	day := rollout(24 * time.Hour)
	atOnce := rollout(0)
	same := rollout(24 * time.Hour)
	same.Rollout.Start = v1beta1.UpdateModeInPlace
	byDefault := v1beta1.PolicyRules{}
	byDefault.Template.UpdatePolicy.UpdateMode = v1beta1.UpdateModeInPlace
	cases := map[string]struct {
		rules  v1beta1.PolicyRules
		change func(p *promotable, vs *v1beta1.VerticalScaler)
		want   string
	}{
		"a scaler of a policy":           {rules: day, want: needsADay},
		"a scaler of a policy's default": {rules: byDefault, want: "False CollectingEvidence: Needs 7d of usage that the recommendations would have covered"},
		"a recommendation is enough":     {rules: atOnce, want: "True EnoughEvidence: The policy asks for a recommendation only (rollout.afterSeconds is 0)"},
		"a policy that promotes none":    {rules: same},
		"a scaler of a user":             {rules: day, change: func(_ *promotable, vs *v1beta1.VerticalScaler) { vs.OwnerReferences = nil }},
		"a scaler of another policy of that name": {
			rules: day, change: func(_ *promotable, vs *v1beta1.VerticalScaler) { vs.OwnerReferences[0].UID = "policy-2" },
		},
		"a scaler whose policy does not exist": {
			rules: day, change: func(_ *promotable, vs *v1beta1.VerticalScaler) { vs.OwnerReferences[0].Name = "gone" },
		},
		"a promoted scaler": {
			rules: day, change: func(_ *promotable, vs *v1beta1.VerticalScaler) {
				vs.Annotations = map[string]string{v1beta1.PromotedAnnotation: "at some time"}
			},
		},
		"a scaler of a ClusterScalingPolicy": {
			rules: day, want: needsADay,
			change: func(p *promotable, vs *v1beta1.VerticalScaler) {
				p.create(&v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all", UID: "policy-1"}, Spec: v1beta1.ClusterScalingPolicySpec{PolicyRules: day}})
				vs.OwnerReferences[0].Kind, vs.OwnerReferences[0].Name = v1beta1.ClusterScalingPolicyKind, "all"
			},
		},
		"policies are not served": {rules: day, change: func(p *promotable, _ *v1beta1.VerticalScaler) { p.Policies = nil }},
		"policies cannot be read": {rules: day, change: func(p *promotable, _ *v1beta1.VerticalScaler) {
			p.Policies = policyCache{err: errors.New("no informer")}
		}},
		"there is no Deployment":   {rules: day, want: needsADay, change: func(_ *promotable, vs *v1beta1.VerticalScaler) { vs.Spec.DeploymentName = "missing" }},
		"a recommendation of none": {rules: atOnce, want: "False CollectingEvidence: Needs a recommendation that is based on enough usage", change: func(_ *promotable, vs *v1beta1.VerticalScaler) { vs.Spec.DeploymentName = "missing" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPromotable(t, tc.rules)
			vs := p.mustReconcile()
			if tc.change != nil {
				tc.change(p, vs)
				must.Succeed(t, p.server.Update(t.Context(), vs))
			}
			p.expect("of "+name, tc.want)
		})
	}
}

// The policy was edited: its scalers do not have its new start mode yet. Earlier records stay.
func TestNothingIsRecordedInAnotherMode(t *testing.T) {
	p := newPromotable(t, rollout(24*time.Hour))
	p.expect("at first", needsADay)
	p.use(23*60, 100*mebi)
	setMode := func(mode v1beta1.UpdateMode) {
		vs := p.expect("in "+string(mode), needsADay)
		vs.Spec.UpdatePolicy.UpdateMode = mode
		must.Succeed(t, p.server.Update(t.Context(), vs))
	}
	setMode(v1beta1.UpdateModeInitial)
	p.expect("in Initial", needsADay)
	p.use(24*60, 100*mebi)
	setMode(v1beta1.UpdateModeRecommend)
	p.expect("in Recommend again", needsADay)
	p.use(80, 100*mebi)
	p.expect("in Recommend for an hour", coversDay)
}

// A transient error does not change the evidence.
func TestAFailedReconcileKeepsTheConditionOfPromotion(t *testing.T) {
	p := newPromotable(t, rollout(24*time.Hour))
	p.expect("at first", needsADay)
	p.use(25*60, 100*mebi)
	p.expect("after a day", coversDay)
	p.restart()
	p.Policies = p.server
	p.unreadable = errors.New("the connection was lost")
	vs, _, err := p.reconcile()
	if err == nil || !strings.Contains(err.Error(), "connection") {
		t.Fatalf("the reconcile ended with %v", err)
	}
	if c := condition(vs, v1beta1.ConditionReadyForPromotion); c.Status != metav1.ConditionTrue {
		t.Errorf("the condition is %+v", c)
	}
	p.unreadable = nil
	p.expect("after another try", coversDay)
}

// The message names the container that began again last, of those that have not covered enough.
func TestTheLastShortfallIsNamed(t *testing.T) {
	at := func(name string, covered time.Duration, why history.Shortfall, minutes int) coveredContainer {
		return coveredContainer{name, history.Coverage{Time: covered, Shortfall: why, At: noon.Add(time.Duration(minutes) * time.Minute)}}
	}
	p := promotion{waits: true, goal: history.Goal{Time: time.Hour, MaxStarvedPercent: 3}}
	for want, covered := range map[string][]coveredContainer{
		"": {{"app", history.Coverage{Time: time.Minute}}},
		"; container app was OOM-killed at 2026-03-02T12:05:00Z": {
			at("sidecar", 0, history.ShortOfMemory, 4), at("app", 0, history.KilledForMemory, 5), at("done", time.Hour, history.ShortOfCPU, 6),
		},
		"; container app used more CPU than recommended for more than 3 % of the time until 2026-03-02T12:01:00Z": {
			at("app", 0, history.ShortOfCPU, 1),
		},
	} {
		if p.covered = covered; p.lastShortfall() != want {
			t.Errorf("%q, want %q", p.lastShortfall(), want)
		}
	}
}
