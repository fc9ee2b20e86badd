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
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

// Of the updates of an object, only those trigger a reconcile that may lead to a write. All creations and deletions do.
func TestUpdatesThatTriggerAReconcile(t *testing.T) {
	scaler := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{
		Generation: 1, Labels: map[string]string{v1beta1.PolicyLabel: "p"}, OwnerReferences: []metav1.OwnerReference{{UID: "p", Controller: new(true)}},
	}}
	policy := &v1beta1.ScalingPolicy{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Status: v1beta1.ScalingPolicyStatus{ObservedGeneration: 1}}
	cluster := &v1beta1.ClusterScalingPolicy{ObjectMeta: policy.ObjectMeta, Status: policy.Status}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"env": "live"}}}
	for name, tc := range map[string]struct {
		predicate     predicate.Predicate
		before, after client.Object
		want          bool
	}{
		"a finalizer of a scaler": {memberPredicate(), scaler, changed(scaler, func(s *v1beta1.VerticalScaler) { s.Finalizers = []string{"x"} }), false},
		"the status of a scaler":  {memberPredicate(), scaler, changed(scaler, func(s *v1beta1.VerticalScaler) { s.Status.ObservedGeneration = 1 }), false},
		"the spec of a scaler":    {memberPredicate(), scaler, changed(scaler, func(s *v1beta1.VerticalScaler) { s.Generation = 2 }), true},
		"a label of a scaler":     {memberPredicate(), scaler, changed(scaler, func(s *v1beta1.VerticalScaler) { s.Labels = nil }), true},
		"a detached scaler":       {memberPredicate(), scaler, changed(scaler, annotated[*v1beta1.VerticalScaler](v1beta1.DetachedAnnotation, "")), true},
		"a scaler's controller":   {memberPredicate(), scaler, changed(scaler, func(s *v1beta1.VerticalScaler) { s.OwnerReferences[0].Controller = nil }), true},
		"the status of a policy":  {policyPredicate(), policy, changed(policy, func(p *v1beta1.ScalingPolicy) { p.Status.ObservedGeneration = 2 }), false},
		"a status that another program has reset": {
			policyPredicate(), cluster, changed(cluster, func(p *v1beta1.ClusterScalingPolicy) { p.Status = v1beta1.ScalingPolicyStatus{} }), true,
		},
		"the spec of a policy":          {policyPredicate(), policy, changed(policy, func(p *v1beta1.ScalingPolicy) { p.Generation = 2 }), true},
		"a paused policy":               {policyPredicate(), policy, changed(policy, annotated[*v1beta1.ScalingPolicy](v1beta1.PausedAnnotation, "")), true},
		"a label of a policy":           {policyPredicate(), policy, changed(policy, func(p *v1beta1.ScalingPolicy) { p.Labels = map[string]string{"a": "b"} }), false},
		"the phase of a namespace":      {namespacePredicate(), namespace, changed(namespace, func(n *corev1.Namespace) { n.Status.Phase = "Active" }), false},
		"an annotation of a namespace":  {namespacePredicate(), namespace, changed(namespace, annotated[*corev1.Namespace]("a", "b")), false},
		"an excluded namespace":         {namespacePredicate(), namespace, changed(namespace, annotated[*corev1.Namespace](v1beta1.ExcludeAnnotation, "")), true},
		"a label of a namespace":        {namespacePredicate(), namespace, changed(namespace, func(n *corev1.Namespace) { n.Labels = nil }), true},
		"the deletion of the namespace": {namespacePredicate(), namespace, changed(namespace, func(n *corev1.Namespace) { n.DeletionTimestamp = new(metav1.Now()) }), true},
	} {
		if got := tc.predicate.Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("%s: triggers a reconcile: %t", name, got)
		}
		if !tc.predicate.Create(event.CreateEvent{Object: tc.after}) || !tc.predicate.Delete(event.DeleteEvent{Object: tc.before}) {
			t.Errorf("%s: a creation or a deletion is dropped", name)
		}
	}
}

// changed is a changed copy.
func changed[T interface {
	client.Object
	DeepCopy() T
}](object T, change func(T)) T {
	out := object.DeepCopy()
	change(out)
	return out
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

// found lists the names of the requests if there is no error.
func found(requests []reconcile.Request, err error) []string {
	if err != nil {
		return []string{err.Error()}
	}
	return names(requests)
}

// Without the list of scalers, the Deployments are still reconciled, and the look-up is repeated.
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
		requested := s.listen(s.reconciler.startPolicies)
		failures = 2
		s.reconciler.notify("shop")
		if got := requested(); got != nil {
			t.Errorf("without a cache, %q are triggered", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, "triggered with a cache again", []string{"shop/"}, requested())
	})
}

// Only the policies that may select Deployments of the namespace are triggered, each once.
func TestPoliciesAreTriggeredByTheirNamespaces(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aClusterPolicy("fleet"), aClusterPolicy("other"), aPolicy("p"), aPolicy("q", func(p *v1beta1.ScalingPolicy) { p.Namespace = "bank" }))
	s.reconciler.notify("shop") // Before the controller starts, there is no queue, and it starts with all policies.
	requested := s.listen(s.reconciler.startPolicies)
	s.reconciler.notify("shop")
	assert.Equal(t, "triggered", []string{"/fleet", "/other", "shop/"}, requested())
	s.reconciler.notify("empty")
	assert.Equal(t, "triggered", []string{"/fleet", "/other"}, requested())
	s.reconciler.ServesCluster = false
	s.reconciler.notify("bank")
	assert.Equal(t, "triggered", []string{"bank/"}, requested())
}

// The controller of Deployments starts with all of them, once they are known.
func TestTheControllerStartsWithAllDeployments(t *testing.T) {
	s := newFixture(t, interceptor.Funcs{}, aDeployment("shop", "web"), aDeployment("bank", "ledger"))
	assert.Equal(t, "started with", []string{"bank/ledger", "shop/web"}, s.listen(s.reconciler.startMembers)())
}
