// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

func sizeFor(t *testing.T, r *Reconciler, vs *v1beta1.VerticalScaler, s *scope) error {
	t.Helper()
	s.scaler = vs
	_, err := r.sizeNewPods(t.Context(), s)
	return err
}

var bindingResource = schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "mutatingadmissionpolicybindings"}

func TestBindingsAreMadeAndRemoved(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	vs := checkout(withMode("Initial"), func(s *v1beta1.VerticalScaler) { s.Status.NewPods = &v1beta1.NewPods{} })
	key := client.ObjectKeyFromObject(vs)
	gone := types.NamespacedName{Namespace: key.Namespace, Name: "gone"}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	newPass := func() *scope {
		p := &scope{now: noon, plan: plan.Plan{Verdict: plan.Waiting.Because("NewPodsOnly", ""), NewPods: plan.NewPods{Sizes: []plan.Size{{Container: "app"}}}}}
		p.observation.deployment = &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: selector}}
		return p
	}
	reconciler := func(funcs interceptor.Funcs, objects ...client.Object) *Reconciler {
		c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, vs.DeepCopy())...).WithInterceptorFuncs(funcs).Build()
		return &Reconciler{Client: c, Live: c, ResyncPeriod: time.Minute}
	}
	bindings := func(r *Reconciler) (names []string) {
		var list admissionv1.MutatingAdmissionPolicyBindingList
		if err := r.Client.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Spec.ParamRef.Name)
		}
		return names
	}
	t.Run("not before the status says that there may be one", func(t *testing.T) {
		r, p, first := reconciler(interceptor.Funcs{}, admission.Policy()), newPass(), vs.DeepCopy()
		first.Status.NewPods = nil
		if err := sizeFor(t, r, first, p); err != nil || p.status.NewPods == nil || p.requeueAfter == 0 || len(bindings(r)) > 0 {
			t.Errorf("%v, admission %v, again in %s, bindings of %v", err, p.status.NewPods, p.requeueAfter, bindings(r))
		}
	})
	t.Run("and removed with the mode; what was left behind is swept up", func(t *testing.T) {
		r, p := reconciler(interceptor.Funcs{}, admission.Policy(), admission.Binding(gone, selector)), newPass()
		if err := sizeFor(t, r, vs, p); err != nil || p.plan.Verdict.State.IsStalled() {
			t.Fatal(err, p.plan.Verdict.Message)
		}
		if got := strings.Join(bindings(r), " "); got != vs.Name {
			t.Errorf("bindings of %s", got)
		}
		off, status := vs.DeepCopy(), vs.Status.DeepCopy()
		off.Spec.UpdatePolicy.UpdateMode = "Recommend"
		if err := r.deleteUnusedBinding(t.Context(), off, status); err != nil || status.NewPods != nil || len(bindings(r)) > 0 {
			t.Errorf("%v, admission %v, bindings of %v", err, status.NewPods, bindings(r))
		}
	})
	t.Run("what was left behind is swept up at the start, and the others go with their scalers", func(t *testing.T) {
		failures := 1
		r := reconciler(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if list.GetObjectKind().GroupVersionKind() == bindingKind && failures > 0 {
				failures--
				return apierrors.NewTooManyRequestsError("busy")
			}
			return c.List(ctx, list, options...)
		}}, admission.Policy(), admission.Binding(gone, selector), admission.Binding(key, selector))
		r.Histories, r.written = &checkpoint.Store{}, &ownwrites.Memory{}
		synctest.Test(t, func(t *testing.T) {
			if err := (sweeper{r}).Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		if got := strings.Join(bindings(r), " "); got != vs.Name {
			t.Errorf("after the start: bindings of %q, want that of %s", got, vs.Name)
		}
		if err := r.forget(t.Context(), key); err != nil || len(bindings(r)) > 0 {
			t.Errorf("after the deletion of a scaler that was not reconciled: %v, bindings of %v", err, bindings(r))
		}
	})
	t.Run("several reconciles sweep at the same time, and leave alone what is not ours", func(t *testing.T) {
		foreign, alike := admission.Binding(gone, selector), admission.Binding(gone, selector)
		foreign.Name, foreign.Spec.ParamRef.Name = "foreign", "foreign"
		foreign.Labels = nil
		alike.Name, alike.Spec.ParamRef.Name = "alike", "alike" // a copy with our labels
		faster := 0
		r := reconciler(interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, options ...client.DeleteOption) error {
			if faster++; faster == 1 { // another reconcile deletes it first
				if err := c.Delete(ctx, obj.DeepCopyObject().(client.Object)); err != nil {
					return err
				}
			}
			return c.Delete(ctx, obj, options...)
		}}, admission.Policy(), foreign, alike, admission.Binding(gone, selector), admission.Binding(types.NamespacedName{Namespace: "shop", Name: "gone-too"}, selector), admission.Binding(key, selector))
		if err := r.sweepBindings(t.Context()); err != nil || !r.admitted.swept.Load() {
			t.Errorf("swept %t, %v", r.admitted.swept.Load(), err)
		}
		got := bindings(r)
		slices.Sort(got)
		if diff := cmp.Diff([]string{"alike", vs.Name, "foreign"}, got); diff != "" {
			t.Errorf("bindings of (-want +got):\n%s", diff)
		}
		if !r.admitted.isBound(key) || r.admitted.isBound(gone) {
			t.Error("it remembers the wrong bindings")
		}
	})
	t.Run("those of other replicas' namespaces are left alone, also when they hand a namespace over", func(t *testing.T) {
		theirs := types.NamespacedName{Namespace: "theirs", Name: "web"} // not in the cache, which does not mean that it is gone
		r := reconciler(interceptor.Funcs{}, admission.Policy(), admission.Binding(theirs, selector), admission.Binding(gone, selector), admission.Binding(key, selector))
		r.Histories, r.written = &checkpoint.Store{}, &ownwrites.Memory{}
		r.Owns = func(namespace string) bool { return namespace != theirs.Namespace }
		if err := r.sweepBindings(t.Context()); err != nil || len(bindings(r)) != 2 {
			t.Errorf("swept: %v, bindings of %v, want theirs and that of %s", err, bindings(r), vs.Name)
		}
		r.admitted.exists(theirs) // It was served here before.
		if result, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: theirs}); err != nil || !result.IsZero() || len(bindings(r)) != 2 {
			t.Errorf("Reconcile() = %+v, %v, bindings of %v", result, err, bindings(r))
		}
	})
	t.Run("what may not be deleted is left for later, and blocks nothing", func(t *testing.T) {
		r := reconciler(interceptor.Funcs{Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			return apierrors.NewForbidden(bindingResource, "x", nil)
		}}, admission.Policy(), admission.Binding(gone, selector))
		if err := r.sweepBindings(t.Context()); err != nil || r.admitted.swept.Load() {
			t.Errorf("swept %t, %v", r.admitted.swept.Load(), err)
		}
	})
	t.Run("while changes are frozen, new pods get what they have been getting", func(t *testing.T) {
		for name, tc := range map[string]struct {
			admission *v1beta1.NewPods
			waits     bool
		}{
			"where nothing is asked for yet": {nil, true},
			"where they got something else":  {&v1beta1.NewPods{}, true},
			"where nothing changes":          {scaler.APINewPods(plan.NewPods{Sizes: []plan.Size{{Container: "app"}}}), false},
		} {
			r, p, before := reconciler(interceptor.Funcs{}, admission.Policy()), newPass(), vs.DeepCopy()
			r.Freeze = freeze.New(types.NamespacedName{})
			r.Freeze.Set(freeze.State{Active: true, Reason: "incident"})
			before.Status.NewPods = tc.admission
			p.status = *before.Status.DeepCopy()
			if err := sizeFor(t, r, before, p); err != nil || len(bindings(r)) > 0 {
				t.Errorf("%s: %v, bindings of %v", name, err, bindings(r))
			}
			if got := p.plan.Verdict.Reason == "Frozen"; got != tc.waits {
				t.Errorf("%s: %s", name, p.plan.Verdict.Reason)
			}
			if completeFor(before, p); !equality.Semantic.DeepEqual(p.status.NewPods, tc.admission) {
				t.Errorf("%s: new pods get %+v", name, p.status.NewPods)
			}
		}
	})
	t.Run("nor is a binding removed while the scaler is paused", func(t *testing.T) {
		r := reconciler(interceptor.Funcs{}, admission.Policy(), admission.Binding(key, selector))
		off := vs.DeepCopy()
		off.Spec.UpdatePolicy.UpdateMode, off.Annotations = "Recommend", map[string]string{v1beta1.PausedAnnotation: "true"}
		status := off.Status.DeepCopy()
		if err := r.deleteUnusedBinding(t.Context(), off, status); err != nil || status.NewPods == nil || len(bindings(r)) != 1 {
			t.Errorf("%v, admission %v, bindings of %v", err, status.NewPods, bindings(r))
		}
	})
	t.Run("no pod is evicted but with a binding and a policy that have been there", func(t *testing.T) {
		recreate, other := vs.DeepCopy(), selector.DeepCopy()
		recreate.Spec.UpdatePolicy = v1beta1.UpdatePolicy{UpdateMode: "InPlace", Fallback: "Recreate"}
		recreate.Status.NewPods = scaler.APINewPods(newPass().plan.NewPods)
		other.MatchLabels["tier"] = "front"
		for name, tc := range map[string]struct {
			objects []client.Object
			evicts  bool
			reason  string
		}{
			"both are":            {[]client.Object{admission.Policy(), admission.Binding(key, selector)}, true, "Recreating"},
			"the binding is gone": {[]client.Object{admission.Policy()}, false, "Recreating"},
			"it is another one":   {[]client.Object{admission.Policy(), admission.Binding(key, other)}, false, "Recreating"},
			"the policy is gone":  {[]client.Object{admission.Binding(key, selector)}, false, "AdmissionUnavailable"},
		} {
			r, p := reconciler(interceptor.Funcs{}, tc.objects...), newPass()
			r.admitted.remember(key, selector, noon) // as it was a moment ago
			p.plan.Verdict.Reason, p.plan.Step, p.plan.NewPods.EffectiveSince = "Recreating", plan.Evict{Pod: "web-1"}, noon
			if err := sizeFor(t, r, recreate, p); err != nil {
				t.Fatal(err)
			}
			if _, got := p.plan.Step.(plan.Evict); got != tc.evicts || p.plan.Verdict.Reason != tc.reason || p.plan.NewPods.EffectiveSince.IsZero() == tc.evicts {
				t.Errorf("%s: evicts %t, %s, the newest pod is of %s", name, got, p.plan.Verdict.Reason, p.plan.NewPods.EffectiveSince)
			}
		}
	})
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "mutatingadmissionpolicies"}, "x", nil)
	for name, tc := range map[string]struct {
		answer error
		reason string
	}{
		"no policy":     {nil, "AdmissionUnavailable"},
		"no such kind":  {&meta.NoKindMatchError{}, "AdmissionUnavailable"},
		"no such right": {forbidden, "Rejected"},
	} {
		t.Run(name, func(t *testing.T) {
			r, p := reconciler(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
				if tc.answer != nil {
					return tc.answer
				}
				return c.Get(ctx, key, obj, options...)
			}}), newPass()
			if err := sizeFor(t, r, vs, p); err != nil {
				t.Fatal(err)
			}
			if p.plan.Verdict.Reason != tc.reason || !p.plan.Verdict.State.IsStalled() || p.plan.NewPods.Sizes != nil {
				t.Errorf("%s: %s, stalled %t, new pods get %v", p.plan.Verdict.Reason, p.plan.Verdict.Message, p.plan.Verdict.State.IsStalled(), p.plan.NewPods)
			}
		})
	}
}
