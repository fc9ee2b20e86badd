// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// passes is whether an update passes, and fails unless creations and deletions do.
func passes(t *testing.T, p predicate.Predicate, before, after client.Object) bool {
	t.Helper()
	if !p.Create(event.CreateEvent{Object: after}) || !p.Delete(event.DeleteEvent{Object: before}) {
		t.Error("a creation or a deletion is dropped")
	}
	if p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: &corev1.Pod{}}) && p.Update(event.UpdateEvent{ObjectOld: &corev1.Pod{}, ObjectNew: nil}) {
		t.Error("objects of another kind pass")
	}
	return p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
}

func TestChangesOfScalersThatTriggerAReconcile(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		change           func(*v1beta1.VerticalScaler)
		member, policies bool
	}{
		"nothing":              {func(*v1beta1.VerticalScaler) {}, false, false},
		"the resource version": {func(s *v1beta1.VerticalScaler) { s.ResourceVersion = "2" }, false, false},
		"a finalizer":          {func(s *v1beta1.VerticalScaler) { s.Finalizers = []string{"x"} }, false, false},
		"a managed field":      {func(s *v1beta1.VerticalScaler) { s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}} }, false, false},
		"the status":           {func(s *v1beta1.VerticalScaler) { s.Status.Summary = &v1beta1.Summary{Reason: "Applied"} }, false, true},
		"a condition": {func(s *v1beta1.VerticalScaler) {
			s.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReadyForPromotion, Status: "True"}}
		}, false, true},
		"the spec":         {func(s *v1beta1.VerticalScaler) { s.Generation = 2 }, true, true},
		"a label":          {func(s *v1beta1.VerticalScaler) { s.Labels = nil }, true, true},
		"an annotation":    {func(s *v1beta1.VerticalScaler) { s.Annotations = map[string]string{v1beta1.DetachedAnnotation: ""} }, true, true},
		"no owner":         {func(s *v1beta1.VerticalScaler) { s.OwnerReferences = nil }, true, true},
		"no controller":    {func(s *v1beta1.VerticalScaler) { s.OwnerReferences[0].Controller = nil }, true, true},
		"its own deletion": {func(s *v1beta1.VerticalScaler) { s.DeletionTimestamp = &now }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{
				Generation: 1, Labels: map[string]string{v1beta1.PolicyLabel: "p"}, OwnerReferences: []metav1.OwnerReference{{UID: "p", Controller: new(true)}},
			}}
			after := before.DeepCopy()
			tc.change(after)
			if got := passes(t, memberPredicate(), before, after); got != tc.member {
				t.Errorf("the Deployment is reconciled: %t", got)
			}
			if got := passes(t, statusPredicate(), before, after); got != tc.policies {
				t.Errorf("the policies are reconciled: %t", got)
			}
		})
	}
}

func TestChangesOfPoliciesThatTriggerAReconcile(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		change func(o client.Object, status *v1beta1.ScalingPolicyStatus)
		want   bool
	}{
		"nothing":    {func(client.Object, *v1beta1.ScalingPolicyStatus) {}, false},
		"the status": {func(_ client.Object, s *v1beta1.ScalingPolicyStatus) { s.Scaled, s.ObservedGeneration = 7, 2 }, false},
		"a status that another program has reset": {func(_ client.Object, s *v1beta1.ScalingPolicyStatus) { *s = v1beta1.ScalingPolicyStatus{} }, true},
		"the spec": {func(o client.Object, _ *v1beta1.ScalingPolicyStatus) { o.SetGeneration(2) }, true},
		"a pause": {func(o client.Object, _ *v1beta1.ScalingPolicyStatus) {
			o.SetAnnotations(map[string]string{v1beta1.PausedAnnotation: ""})
		}, true},
		"the deletion":  {func(o client.Object, _ *v1beta1.ScalingPolicyStatus) { o.SetDeletionTimestamp(&now) }, true},
		"another label": {func(o client.Object, _ *v1beta1.ScalingPolicyStatus) { o.SetLabels(map[string]string{"a": "b"}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			status := v1beta1.ScalingPolicyStatus{ObservedGeneration: 1}
			before := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: status}
			after := before.DeepCopy()
			tc.change(after, &after.Status)
			if got := passes(t, policyPredicate(), before, after); got != tc.want {
				t.Errorf("a ScalingPolicy passes: %t", got)
			}
			wide := &v1beta1.ClusterScalingPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: status}
			wider := wide.DeepCopy()
			tc.change(wider, &wider.Status)
			if got := passes(t, policyPredicate(), wide, wider); got != tc.want {
				t.Errorf("a ClusterScalingPolicy passes: %t", got)
			}
		})
	}
}

func TestChangesOfNamespacesThatTriggerAReconcile(t *testing.T) {
	now := metav1.Now()
	for name, tc := range map[string]struct {
		change func(*corev1.Namespace)
		want   bool
	}{
		"nothing":                  {func(*corev1.Namespace) {}, false},
		"the phase":                {func(n *corev1.Namespace) { n.Status.Phase = "Active" }, false},
		"another annotation":       {func(n *corev1.Namespace) { n.Annotations = map[string]string{"a": "b"} }, false},
		"an exclusion":             {func(n *corev1.Namespace) { n.Annotations = map[string]string{v1beta1.ExcludeAnnotation: ""} }, true},
		"no exclusion":             {func(n *corev1.Namespace) { n.Annotations = map[string]string{v1beta1.ExcludeAnnotation: "false"} }, false},
		"a label":                  {func(n *corev1.Namespace) { n.Labels = map[string]string{"env": "test"} }, true},
		"the namespace's deletion": {func(n *corev1.Namespace) { n.DeletionTimestamp = &now }, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"env": "live"}}}
			after := before.DeepCopy()
			tc.change(after)
			if got := passes(t, namespacePredicate(), before, after); got != tc.want {
				t.Errorf("it passes: %t", got)
			}
		})
	}
}

func names(requests []reconcile.Request) (out []string) {
	for _, r := range requests {
		out = append(out, r.String())
	}
	slices.Sort(out)
	return out
}

func TestEventsAreMappedToDeployments(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aClusterPolicy("fleet"), aPolicy("p"), aDeployment("shop", "web"), aDeployment("shop", "old"), aDeployment("bank", "ledger"),
		byHand("shop", "mine", "gone"))
	s.settle()
	s.must(s.api.Delete(t.Context(), aDeployment("shop", "old")))
	s.sync()
	for what, tc := range map[string]struct{ got, want []string }{
		"a scaler":                        {names(membersOfScaler(t.Context(), s.scaler("shop/web"))), []string{"shop/web"}},
		"a scaler of another Deployment":  {names(membersOfScaler(t.Context(), byHand("shop", "mine", "web"))), []string{"shop/mine", "shop/web"}},
		"another kind":                    {names(membersOfScaler(t.Context(), &corev1.Pod{})), nil},
		"a ScalingPolicy":                 {found(s.reconciler.membersOfPolicy(t.Context(), aPolicy("p"))), []string{"shop/old", "shop/web"}},
		"a ClusterScalingPolicy":          {found(s.reconciler.membersOfPolicy(t.Context(), aClusterPolicy("fleet"))), []string{"bank/ledger", "shop/old", "shop/web"}},
		"a namespace":                     {found(s.reconciler.membersOfNamespace(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "bank"}})), []string{"bank/ledger"}},
		"a namespace without Deployments": {found(s.reconciler.membersOfNamespace(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "empty"}})), nil},
	} {
		if !slices.Equal(tc.got, tc.want) {
			t.Errorf("%s: %q, want %q", what, tc.got, tc.want)
		}
	}
}

// found are the names of what is found, without an error.
func found(requests []reconcile.Request, err error) []string {
	if err != nil {
		return []string{err.Error()}
	}
	return names(requests)
}

// Without the list of scalers, the Deployments are reconciled all the same, and the look-up is repeated.
func TestWithoutACacheNoEventIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t, interceptor.Funcs{}, aPolicy("p"), aDeployment("shop", "web"))
		s.settle()
		withWatch, ok := s.reconciler.Cached.(cached).Reader.(client.WithWatch)
		if !ok {
			t.Fatal("the fake client cannot watch")
		}
		failures := 1
		s.reconciler.Cached = cached{Reader: interceptor.NewClient(withWatch, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
				if failures--; failures >= 0 {
					return errors.New("no cache")
				}
				return c.List(ctx, list, o...)
			},
		})}
		if got, err := s.reconciler.membersOfPolicy(t.Context(), aPolicy("p")); err == nil || !slices.Equal(names(got), []string{"shop/web"}) {
			t.Errorf("without a cache: %q, %v", got, err)
		}
		told := s.listen(&s.reconciler.changedPolicies)
		failures = 2
		s.reconciler.notify("shop")
		if got := told(); got != nil {
			t.Errorf("without a cache, %q are triggered", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := told(); !slices.Equal(got, []string{"shop/p"}) {
			t.Errorf("with a cache again, %q are triggered", got)
		}
	})
}

// Only the policies that may select Deployments of the namespace are triggered, each once.
func TestPoliciesAreTriggeredByTheirNamespaces(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aClusterPolicy("fleet"), aClusterPolicy("other"), aPolicy("p"), aPolicy("q", func(p *v1beta1.ScalingPolicy) { p.Namespace = "bank" }))
	s.reconciler.notify("shop") // Before the controller starts, there is no queue, and it starts with all policies.
	told := s.listen(&s.reconciler.changedPolicies)
	s.reconciler.notifyOf(byHand("shop", "a", "a"), byHand("shop", "b", "b"))
	if got := told(); !slices.Equal(got, []string{"/fleet", "/other", "shop/p"}) {
		t.Errorf("triggered %q", got)
	}
	s.reconciler.notify("empty")
	if got := told(); !slices.Equal(got, []string{"/fleet", "/other"}) {
		t.Errorf("triggered %q", got)
	}
	s.reconciler.ServesCluster = false
	s.reconciler.notify("bank")
	if got := told(); !slices.Equal(got, []string{"bank/q"}) {
		t.Errorf("triggered %q", got)
	}
}

// The controller of Deployments starts with all of them, once they are known.
func TestTheControllerStartsWithAllDeployments(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aDeployment("shop", "web"), aDeployment("bank", "ledger"))
	s.reconciler.changedMembers.add(keyOf("shop/before"))
	s.reconciler.changedMembers.all = s.reconciler.allMembers
	told := s.listen(&s.reconciler.changedMembers)
	if got := told(); !slices.Equal(got, []string{"bank/ledger", "shop/web"}) {
		t.Errorf("started with %q", got)
	}
	s.reconciler.changedMembers.add(keyOf("shop/late"))
	if got := told(); !slices.Equal(got, []string{"shop/late"}) {
		t.Errorf("then %q", got)
	}
}
