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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

var resourceOfScalers = schema.GroupResource{Group: v1beta1.GroupVersion.Group, Resource: "verticalscalers"}

func TestEachSelectedDeploymentHasAScalerAndThenNothingIsWritten(t *testing.T) {
	owned := aDeployment("shop", "owned", func(d *appsv1.Deployment) {
		d.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: v1beta1.ScaledDeploymentKind, Name: "owned", UID: "o", Controller: new(true)}}
	})
	s := newFixture(t, interceptor.Funcs{}, aClusterPolicy("fleet"), aPolicy("local", func(p *v1beta1.ScalingPolicy) {
		p.Spec.DeploymentSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "front"}}
	}),
		aDeployment("shop", "web", func(d *appsv1.Deployment) { d.Labels = map[string]string{"tier": "front"} }),
		aDeployment("shop", "api"), aDeployment("bank", "ledger"), aDeployment("elsewhere", "lost"), owned,
		aDeployment("shop", "excluded", annotated[*appsv1.Deployment](v1beta1.ExcludeAnnotation, "")),
		aDeployment("shop", "by-hand"), byHand("shop", "mine", "by-hand"), aDeployment("shop", strings.Repeat("n", 64)),
	)
	s.settle()
	s.expectWrites("at first", "create bank/ledger", "create shop/api", "create shop/web", "status fleet", "status shop/local")
	for range 3 {
		s.settle()
		s.clock.SetTime(s.clock.Now().Add(time.Hour))
	}
	s.expectWrites("settled")
	fleetStatus := get(s, "fleet", &v1beta1.ClusterScalingPolicy{}).Status
	if fleetStatus.Summary.Deployments != "2/6" || fleetStatus.ObservedGeneration != 1 || fleetStatus.Rollout != nil {
		t.Errorf("status of fleet: %+v", fleetStatus)
	}
	var skipped []string
	for _, c := range fleetStatus.Skipped {
		skipped = append(skipped, fmt.Sprint(c.Reason, " ", c.Count))
	}
	if want := []string{"Excluded 1", "NameTooLong 1", "OtherPolicy 1", "OtherScaler 1", "ScaledDeployment 1"}; !slices.Equal(skipped, want) {
		t.Errorf("skipped %q, want %q", skipped, want)
	}
	for policy, want := range map[string]string{"fleet": "True OperatingNormally", "shop/local": "True OperatingNormally"} {
		s.hasCondition(policy, "Ready", want)
		s.hasCondition(policy, "Reconciling", "False")
	}
	if owner := metav1.GetControllerOf(s.scaler("shop/web")); owner.Kind != v1beta1.ScalingPolicyKind || owner.UID != "uid-of-shop-local" {
		t.Errorf("the controller of web is %+v", owner)
	}
	// A policy of lower rank is notified when the other one is gone.
	s.must(s.api.Delete(t.Context(), aPolicy("local")))
	s.settle()
	s.expectWrites("the other policy is gone", "status fleet", "update shop/web")
	if owner := metav1.GetControllerOf(s.scaler("shop/web")); owner.Name != "fleet" || s.scaler("shop/web").Labels[v1beta1.PolicyLabel] != "fleet" {
		t.Errorf("the controller of web is %+v", owner)
	}
}

// If the cache lacks an object, the API server is asked to change only objects that were read. The next reconcile is soon, and
// later each time.
func TestAnOldCacheLeadsToARetryAndNotToAWrongScaler(t *testing.T) {
	retriesAreLater := func(s *fixture) {
		t.Helper()
		for _, want := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond} {
			if after, err := s.member("shop/web"); err != nil || after != want {
				t.Errorf("Reconcile() = %s, %v, want a retry in %s", after, err, want)
			}
		}
		s.expectWrites("with an old cache")
	}
	t.Run("a scaler that a user has just created", func(t *testing.T) {
		s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"))
		s.must(s.api.Create(t.Context(), byHand("shop", "web", "web")))
		retriesAreLater(s)
		s.settle()
		s.expectWrites("with a new cache", "status shop/p")
		if fleet.IsGenerated(s.scaler("shop/web")) {
			t.Error("the user's scaler was taken over")
		}
		// The row of conflicts has ended.
		s.must(s.api.Delete(t.Context(), byHand("shop", "web", "web")))
		s.sync()
		s.must(s.api.Create(t.Context(), byHand("shop", "web", "web")))
		retriesAreLater(s)
	})
	existing := func(t *testing.T) *fixture {
		t.Helper()
		s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"))
		s.settle()
		s.wrote()
		return s
	}
	t.Run("a scaler that was edited twice", func(t *testing.T) {
		s := existing(t)
		edit(s, "shop/web", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.Spec.Suspend = true })
		s.sync()
		edit(s, "shop/web", &v1beta1.VerticalScaler{}, annotated[*v1beta1.VerticalScaler](v1beta1.DetachedAnnotation, "yes"))
		retriesAreLater(s)
		s.settle()
		s.expectWrites("with a new cache", "status shop/p", "update shop/web")
		if got := s.scaler("shop/web"); fleet.IsGenerated(got) || !got.Spec.Suspend || got.Labels[v1beta1.PolicyLabel] != "" {
			t.Errorf("detached: %+v", got)
		}
	})
	t.Run("a scaler that was detached when its Deployment was excluded", func(t *testing.T) {
		s := existing(t)
		edit(s, "shop/web", &appsv1.Deployment{}, annotated[*appsv1.Deployment](v1beta1.ExcludeAnnotation, "yes"))
		s.sync()
		edit(s, "shop/web", &v1beta1.VerticalScaler{}, annotated[*v1beta1.VerticalScaler](v1beta1.DetachedAnnotation, ""))
		retriesAreLater(s)
		s.settle()
		if fleet.IsGenerated(s.scaler("shop/web")) {
			t.Error("the scaler is not released")
		}
	})
	t.Run("a scaler that was deleted and created again", func(t *testing.T) {
		s := existing(t)
		edit(s, "shop/web", &appsv1.Deployment{}, annotated[*appsv1.Deployment](v1beta1.ExcludeAnnotation, "yes"))
		s.sync()
		s.must(s.api.Delete(t.Context(), s.scaler("shop/web")))
		s.must(s.api.Create(t.Context(), byHand("shop", "web", "web")))
		retriesAreLater(s)
		s.scaler("shop/web") // It is there.
	})
	t.Run("a scaler that is gone", func(t *testing.T) {
		s := existing(t)
		edit(s, "shop/web", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.Spec.Suspend = true })
		s.sync()
		s.must(s.api.Delete(t.Context(), s.scaler("shop/web")))
		retriesAreLater(s)
		s.settle()
		s.expectWrites("with a new cache", "create shop/web")
	})
	t.Run("a Deployment that is gone", func(t *testing.T) {
		s := existing(t)
		s.must(s.api.Delete(t.Context(), s.scaler("shop/web")))
		s.must(s.api.Delete(t.Context(), aDeployment("shop", "web")))
		s.sync()
		if after, err := s.member("shop/web"); after != 0 || err != nil {
			t.Errorf("Reconcile() = %s, %v", after, err)
		}
		s.expectWrites("without the Deployment")
	})
}

func TestErrorsOfWritesAreClassified(t *testing.T) {
	terminating := apierrors.NewForbidden(resourceOfScalers, "web", errors.New("being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err      error
		after    time.Duration
		fails    bool
		rejected string
	}{
		"invalid":                  {apierrors.NewInvalid(v1beta1.GroupVersion.WithKind("VerticalScaler").GroupKind(), "web", nil), rejectedRetry, false, "VerticalScaler.autoscaling.verticalscaler.io \"web\" is invalid"},
		"forbidden":                {apierrors.NewForbidden(resourceOfScalers, "web", errors.New("exceeded quota: team")), rejectedRetry, false, "exceeded quota: team"},
		"refused by a webhook":     {apierrors.NewBadRequest(strings.Repeat("no! ", 2000)), rejectedRetry, false, "no! no!"},
		"terminating":              {terminating, 0, false, ""},
		"a conflict":               {apierrors.NewConflict(resourceOfScalers, "web", errors.New("changed")), 50 * time.Millisecond, false, ""},
		"created by another":       {apierrors.NewAlreadyExists(resourceOfScalers, "web"), 50 * time.Millisecond, false, ""},
		"the namespace is gone":    {apierrors.NewNotFound(corev1.Resource("namespaces"), "shop"), 50 * time.Millisecond, false, ""},
		"a lost connection":        {errors.New("connection refused"), 0, true, ""},
		"an overloaded API server": {apierrors.NewTooManyRequests("slow down", 1), 0, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fails := true
			s := newFixture(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				if fails {
					return tc.err
				}
				return c.Create(ctx, o, options...)
			}}, aPolicy("p"), aDeployment("shop", "web"))
			if after, err := s.member("shop/web"); after != tc.after || (err != nil) != tc.fails {
				t.Errorf("Reconcile() = %s, %v", after, err)
			}
			if got := s.reconciler.rejection(keyOf("shop/web")); !strings.Contains(got, tc.rejected) || (got == "") != (tc.rejected == "") || len(got) > 1024 {
				t.Errorf("rejected: %q", got)
			}
			if _, err := s.policy("shop/p"); err != nil {
				t.Fatal(err)
			}
			status := get(s, "shop/p", &v1beta1.ScalingPolicy{}).Status
			if got := s.condition("shop/p", "Stalled"); strings.HasPrefix(got, "True ScalersRejected: The API server rejects scalers, such as: ") != (tc.rejected != "") {
				t.Errorf("Stalled %s", got)
			}
			if got := s.condition("shop/p", "Reconciling"); strings.HasPrefix(got, "True CreatingScalers") != (tc.rejected == "") {
				t.Errorf("Reconciling %s", got)
			}
			if isSkipped := len(status.Skipped) == 1 && status.Skipped[0].Reason == "ScalersRejected" && len(status.Skipped[0].Message) <= 1024; isSkipped != (tc.rejected != "") {
				t.Errorf("skipped %+v", status.Skipped)
			}
			// Once it is accepted, the rejection is gone.
			fails = false
			s.settle()
			if got := s.condition("shop/p", "Ready"); !strings.HasPrefix(got, "True OperatingNormally") || !slices.Contains(s.scalers(), "shop/web") {
				t.Errorf("Ready %s, with %v", got, s.scalers())
			}
		})
	}
}

// A rejection is news once, and its end is.
func TestARejectionTriggersThePoliciesOnce(t *testing.T) {
	fails := true
	s := newFixture(t, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
		if fails {
			return apierrors.NewBadRequest("no")
		}
		return c.Create(ctx, o, options...)
	}}, aPolicy("p"), aPolicy("elsewhere", func(p *v1beta1.ScalingPolicy) { p.Namespace = "bank" }), aClusterPolicy("fleet"), aDeployment("shop", "web"))
	requested := s.listen(s.reconciler.startPolicies)
	for range 3 {
		if after, err := s.member("shop/web"); after != rejectedRetry || err != nil {
			t.Fatalf("Reconcile() = %s, %v", after, err)
		}
	}
	assert.Equal(t, "triggered", []string{"/fleet", "shop/"}, requested())
	fails = false
	s.settle()
	assert.Equal(t, "triggered", []string{"/fleet", "shop/"}, requested())
}

func TestANamespaceThatIsBeingDeletedGetsNoScaler(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aClusterPolicy("fleet"), aPolicy("p"), aDeployment("shop", "web"), aDeployment("unheard-of", "web"))
	edit(s, "shop", &corev1.Namespace{}, func(n *corev1.Namespace) { n.Finalizers = []string{"example.com/slow"} })
	s.must(s.api.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}))
	s.settle()
	s.expectWrites("while the namespace is being deleted", "status fleet", "status shop/p")
	for _, policy := range []string{"fleet", "shop/p"} {
		// Its Deployments are not waited for.
		s.hasCondition(policy, "Reconciling", "False")
		s.hasCondition(policy, "Ready", "True NoDeployments")
	}
}

// The garbage collector deletes or orphans the scalers of a policy that is being deleted.
func TestScalersOfAPolicyThatIsBeingDeletedAreLeftAlone(t *testing.T) {
	for _, finalizer := range []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, "example.com/approval"} {
		t.Run(finalizer, func(t *testing.T) {
			s := newFixture(t, interceptor.Funcs{}, aPolicy("p", func(p *v1beta1.ScalingPolicy) { p.Finalizers = []string{finalizer} }), aClusterPolicy("fleet"),
				aDeployment("shop", "web"), aDeployment("bank", "ledger"))
			s.settle()
			s.must(s.api.Delete(t.Context(), aPolicy("p")))
			s.must(s.api.Create(t.Context(), aDeployment("shop", "late")))
			edit(s, "shop/web", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.Spec.Suspend = true })
			s.wrote()
			s.settle()
			s.expectWrites("while the policy is being deleted", "create shop/late", "status fleet")
			if owner := metav1.GetControllerOf(s.scaler("shop/late")); owner.Name != "fleet" {
				t.Errorf("the controller of late is %+v", owner)
			}
			// Its scalers are orphaned, and then the policy is gone: they are a user's.
			edit(s, "shop/web", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.OwnerReferences = nil })
			edit(s, "shop/p", &v1beta1.ScalingPolicy{}, func(p *v1beta1.ScalingPolicy) { p.Finalizers = nil })
			s.wrote()
			s.settle()
			s.expectWrites("after the policy is gone", "status fleet", "update shop/web")
			if got := s.scaler("shop/web"); !got.Spec.Suspend || got.OwnerReferences != nil || got.Labels[v1beta1.PolicyLabel] != "" {
				t.Errorf("orphaned: %+v", got)
			}
		})
	}
}

func TestScalersOfAPolicyThatCannotBeReadStay(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aClusterPolicy("fleet"), aDeployment("shop", "web"), aDeployment("bank", "ledger"))
	s.settle()
	before := get(s, "shop/p", &v1beta1.ScalingPolicy{}).Status
	edit(s, "shop/p", &v1beta1.ScalingPolicy{}, func(p *v1beta1.ScalingPolicy) {
		p.Spec.DeploymentSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Like"}}}
	})
	edit(s, "shop/web", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.Spec.Suspend = true })
	s.must(s.api.Create(t.Context(), aDeployment("shop", "late")))
	s.wrote()
	s.settle()
	s.expectWrites("with a selector that cannot be parsed", "create shop/late", "status fleet", "status shop/p")
	const want = `InvalidSelector: spec.deploymentSelector: "Like" is not a valid label selector operator. The policy selects nothing, and its scalers stay as they are`
	if ready, stalled := s.condition("shop/p", "Ready"), s.condition("shop/p", "Stalled"); ready != "False "+want || stalled != "True "+want {
		t.Errorf("Ready %s, Stalled %s", ready, stalled)
	}
	after := get(s, "shop/p", &v1beta1.ScalingPolicy{}).Status
	if after.ObservedGeneration != 2 || after.Scaled != before.Scaled || after.Summary.Deployments != "1/1" {
		t.Errorf("status %+v", after)
	}
	if !s.scaler("shop/web").Spec.Suspend {
		t.Error("the edit was reverted")
	}
	edit(s, "shop/p", &v1beta1.ScalingPolicy{}, func(p *v1beta1.ScalingPolicy) { p.Spec.DeploymentSelector = nil })
	s.wrote()
	s.settle()
	s.expectWrites("repaired", "status fleet", "status shop/p", "update shop/late", "update shop/web")
}

func TestAPausedPolicyChangesNoScaler(t *testing.T) {
	pause := annotated[*v1beta1.ScalingPolicy](v1beta1.PausedAnnotation, "incident 7\nsee the channel")
	s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"), aDeployment("shop", "api"), aDeployment("shop", "old"))
	s.settle()
	edit(s, "shop/p", &v1beta1.ScalingPolicy{}, pause)
	s.must(s.api.Create(t.Context(), aDeployment("shop", "late")))
	s.must(s.api.Delete(t.Context(), aDeployment("shop", "old")))
	edit(s, "shop/web", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.Spec.Suspend = true })
	edit(s, "shop/api", &appsv1.Deployment{}, annotated[*appsv1.Deployment](v1beta1.ExcludeAnnotation, "true"))
	s.wrote()
	s.settle()
	s.expectWrites("paused", "status shop/p")
	const want = "Paused: The annotation autoscaling.verticalscaler.io/paused is set: no scaler is created, changed, deleted or promoted: incident 7 see the channel"
	assert.Equal(t, "Ready", "True "+want, s.condition("shop/p", "Ready"))
	s.hasCondition("shop/p", "Reconciling", "False")
	// A user can still detach a scaler.
	edit(s, "shop/web", &v1beta1.VerticalScaler{}, annotated[*v1beta1.VerticalScaler](v1beta1.DetachedAnnotation, "true"))
	s.wrote()
	s.settle()
	s.expectWrites("detached", "status shop/p", "update shop/web")
	edit(s, "shop/p", &v1beta1.ScalingPolicy{}, annotated[*v1beta1.ScalingPolicy](v1beta1.PausedAnnotation, "false"))
	s.wrote()
	s.settle()
	s.expectWrites("continued", "create shop/late", "delete shop/api", "delete shop/old", "status shop/p")
}

// A policy may be created paused, to see what it would select. Until it is resumed, it takes over nothing from another one.
func TestAPausedPolicyThatComesFirstTakesNothingOver(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aClusterPolicy("fleet"), aDeployment("shop", "web"), aDeployment("bank", "ledger"))
	s.settle()
	s.must(s.api.Create(t.Context(), aPolicy("first", annotated[*v1beta1.ScalingPolicy](v1beta1.PausedAnnotation, "true"))))
	s.must(s.api.Create(t.Context(), aDeployment("shop", "late")))
	s.wrote()
	s.settle()
	s.expectWrites("paused", "status fleet", "status shop/first")
	s.hasCondition("fleet", "Reconciling", "False")
	edit(s, "shop/first", &v1beta1.ScalingPolicy{}, func(p *v1beta1.ScalingPolicy) { p.Annotations = nil })
	s.wrote()
	s.settle()
	s.expectWrites("continued", "create shop/late", "status shop/first", "update shop/web")
}

// A scaler of a user comes first. A scaler that was edited to name another Deployment is found by its own name.
func TestAUsersScalerComesFirst(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"), aDeployment("shop", "api"), byHand("shop", "web", "api"))
	s.settle()
	s.expectWrites("a user's scaler has the name of another Deployment", "status shop/p")
	if got := get(s, "shop/p", &v1beta1.ScalingPolicy{}).Status; got.Summary.Deployments != "0/2" || len(got.Skipped) != 2 {
		t.Errorf("status %+v", got)
	}
	s.must(s.api.Delete(t.Context(), byHand("shop", "web", "api")))
	s.settle()
	s.expectWrites("it is gone", "create shop/api", "create shop/web", "status shop/p")
	edit(s, "shop/web", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.Spec.DeploymentName = "api" })
	s.settle()
	s.expectWrites("a generated scaler names another Deployment", "update shop/web")
	s.must(s.api.Create(t.Context(), byHand("shop", "mine", "web")))
	s.settle()
	s.expectWrites("a user creates one", "delete shop/web", "status shop/p")
	s.must(s.api.Delete(t.Context(), byHand("shop", "mine", "web")))
	s.settle()
	s.expectWrites("and deletes it", "create shop/web", "status shop/p")
}

// A scaler whose policy is not in the cache stays until the API server reports that the policy is gone.
func TestAPolicyThatTheCacheLacksIsAskedFor(t *testing.T) {
	for _, tc := range []struct {
		name     string
		policy   client.Object
		list     client.ObjectList
		sameName client.Object
	}{
		{"shop/p", aPolicy("p", func(p *v1beta1.ScalingPolicy) { p.UID = "new" }), &v1beta1.ScalingPolicyList{}, aPolicy("p")},
		{"p", aClusterPolicy("p", func(p *v1beta1.ClusterScalingPolicy) { p.UID = "new" }), &v1beta1.ClusterScalingPolicyList{}, aClusterPolicy("p")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newFixture(t, interceptor.Funcs{}, aDeployment("shop", "web"), aDeployment("shop", "api"))
			s.must(s.api.Create(t.Context(), tc.policy))
			s.settle()
			// The cache has the scalers, and not their policy yet.
			s.must(s.api.Delete(t.Context(), tc.policy))
			s.sync()
			tc.policy.SetResourceVersion("")
			s.must(s.api.Create(t.Context(), tc.policy))
			s.wrote()
			s.live = 0
			for range 2 {
				if after, err := s.member("shop/web"); after != 0 || err != nil {
					t.Errorf("Reconcile() = %s, %v", after, err)
				}
			}
			s.expectWrites("the policy exists")
			if s.live != 2 {
				t.Errorf("the API server was asked %d times", s.live)
			}
			// Another one with its name does not count.
			s.must(s.api.Delete(t.Context(), tc.policy))
			s.must(s.api.Create(t.Context(), tc.sameName))
			for _, name := range []string{"shop/web", "shop/api"} {
				if _, err := s.member(name); err != nil {
					t.Fatal(err)
				}
			}
			s.expectWrites("the policy is gone", "delete shop/api", "delete shop/web")
			s.settle()
			s.expectWrites("the other one", "create shop/api", "create shop/web", "status "+tc.name)
		})
	}
}

func TestAFailedQuestionDeletesNothing(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"))
	s.settle()
	s.must(s.api.Delete(t.Context(), aPolicy("p")))
	s.sync()
	s.wrote()
	s.reconciler.Live = interceptor.NewClient(s.api, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("connection refused")
	}})
	if _, err := s.member("shop/web"); err == nil || !strings.Contains(err.Error(), "looking for ScalingPolicy p: connection refused") {
		t.Errorf("Reconcile() = %v", err)
	}
	s.expectWrites("the API server does not answer")
}

// The cache has no labels, annotations, finalizers and owners of others. A write must not remove them.
func TestAWriteKeepsTheMetadataOfOthers(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"))
	s.settle()
	others := func(v *v1beta1.VerticalScaler) bool {
		return v.Labels["team"] == "shop" && v.Annotations["note"] == "x" && slices.Contains(v.Finalizers, "example.com/keep") &&
			slices.ContainsFunc(v.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "ConfigMap" })
	}
	edit(s, "shop/web", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) {
		v.Labels["team"], v.Annotations, v.Finalizers = "shop", map[string]string{"note": "x"}, []string{"example.com/keep"}
		v.OwnerReferences = append(v.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "7"})
		v.Spec.Suspend = true
	})
	s.settle()
	if got := get(s, "shop/web", &v1beta1.VerticalScaler{}); got.Spec.Suspend || !others(got) {
		t.Errorf("after a revert: %+v", got.ObjectMeta)
	}
	edit(s, "shop/web", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.Annotations[v1beta1.DetachedAnnotation] = "" })
	s.settle()
	if got := get(s, "shop/web", &v1beta1.VerticalScaler{}); metav1.GetControllerOf(got) != nil || !others(got) {
		t.Errorf("after a release: %+v", got.ObjectMeta)
	}
}

// An operator of some namespaces reads neither namespaces nor ClusterScalingPolicies, and leaves the scalers of those alone.
func TestAnOperatorOfSomeNamespacesServesScalingPolicies(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aClusterPolicy("fleet"), aDeployment("shop", "web"), aDeployment("bank", "ledger"))
	s.settle()
	s.reconciler.ServesCluster = false
	s.must(s.api.Create(t.Context(), aPolicy("p")))
	s.must(s.api.Create(t.Context(), aDeployment("shop", "late")))
	edit(s, "bank/ledger", &v1beta1.VerticalScaler{}, func(v *v1beta1.VerticalScaler) { v.Spec.Suspend = true })
	s.must(client.IgnoreNotFound(s.api.Delete(t.Context(), aDeployment("bank", "ledger"))))
	s.wrote()
	s.live = 0
	s.settle()
	s.expectWrites("without ClusterScalingPolicies", "create shop/late", "status shop/p", "update shop/web")
	if got := get(s, "shop/p", &v1beta1.ScalingPolicy{}).Status; got.Selected != 2 || got.Scaled != 2 {
		t.Errorf("status %+v", got)
	}
	if s.live > 0 {
		t.Error("the operator asks for ClusterScalingPolicies, which it may not read")
	}
}
