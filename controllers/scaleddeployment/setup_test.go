// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
)

func TestScalerChangesThatTriggerAReconcile(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1beta1.VerticalScaler)
		want   bool
	}{
		"no change":            {func(*v1beta1.VerticalScaler) {}, false},
		"the resource version": {func(s *v1beta1.VerticalScaler) { s.ResourceVersion = "2" }, false},
		"a recommendation":     {func(s *v1beta1.VerticalScaler) { s.Status.Recommendation = &v1beta1.Recommendation{} }, false},
		"another condition":    {func(s *v1beta1.VerticalScaler) { s.Status.Conditions[1].Reason = "RollingOut" }, false},
		"a finalizer":          {func(s *v1beta1.VerticalScaler) { s.Finalizers = []string{"x"} }, false},
		"the status of Ready":  {func(s *v1beta1.VerticalScaler) { s.Status.Conditions[0].Status = "False" }, true},
		"the message of Ready": {func(s *v1beta1.VerticalScaler) { s.Status.Conditions[0].Message = "other" }, true},
		"no Ready condition":   {func(s *v1beta1.VerticalScaler) { s.Status.Conditions = nil }, true},
		"the spec":             {func(s *v1beta1.VerticalScaler) { s.Generation = 2 }, true},
		"a label":              {func(s *v1beta1.VerticalScaler) { s.Labels = nil }, true},
		"an annotation":        {func(s *v1beta1.VerticalScaler) { s.Annotations = map[string]string{"a": "b"} }, true},
		"no owner":             {func(s *v1beta1.VerticalScaler) { s.OwnerReferences = nil }, true},
		"an owner that is no longer the controller": {func(s *v1beta1.VerticalScaler) { s.OwnerReferences[0].Controller = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			before := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "web", Generation: 1, Labels: map[string]string{"a": "b"}, OwnerReferences: []metav1.OwnerReference{{UID: "owner-1", Controller: ptr.To(true)}},
			}}
			before.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True"}, {Type: "Applied", Status: "True"}}
			after := before.DeepCopy()
			tc.change(after)
			if got := scalerPredicate().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tc.want {
				t.Errorf("Update() = %t", got)
			}
		})
	}
	if !scalerPredicate().Create(event.CreateEvent{}) || !scalerPredicate().Delete(event.DeleteEvent{}) {
		t.Error("creating or deleting a scaler does not trigger a reconcile")
	}
	if scalerPredicate().Update(event.UpdateEvent{ObjectOld: &appsv1.Deployment{}, ObjectNew: &v1beta1.VerticalScaler{}}) {
		t.Error("an object of another kind triggers a reconcile")
	}
}

func TestForeignObjectChangesThatTriggerAReconcile(t *testing.T) {
	controlled := func(uid types.UID) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "other"}, {UID: uid, Controller: ptr.To(true)}}}}
	}
	owned := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: "a"}}}}
	for name, tc := range map[string]struct {
		before, after *appsv1.Deployment
		want          bool
	}{
		"the status":                           {&appsv1.Deployment{}, &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 1}}, false},
		"an owner that is not the controller":  {&appsv1.Deployment{}, owned, false},
		"the same controller":                  {controlled("a"), controlled("a"), false},
		"another controller":                   {controlled("a"), controlled("b"), true},
		"a new controller":                     {&appsv1.Deployment{}, controlled("a"), true},
		"the controller is removed":            {controlled("a"), &appsv1.Deployment{}, true},
		"the controller becomes a plain owner": {controlled("a"), owned, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := controllerChangedPredicate().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
				t.Errorf("Update() = %t", got)
			}
		})
	}
	if !controllerChangedPredicate().Create(event.CreateEvent{}) || !controllerChangedPredicate().Delete(event.DeleteEvent{}) {
		t.Error("creating or deleting an object does not trigger a reconcile")
	}
}

// Any user can write an owner reference of a version that is not served. It must cost no request.
func TestOnlyAServedScaledDeploymentIsAnOwner(t *testing.T) {
	for name, tc := range map[string]struct {
		apiVersion, kind string
		controller       *bool
		want             int
	}{
		"the served version":  {"autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", ptr.To(true), 1},
		"an unknown version":  {"autoscaling.verticalscaler.io/v9", "ScaledDeployment", ptr.To(true), 0},
		"no version":          {"autoscaling.verticalscaler.io", "ScaledDeployment", ptr.To(true), 0},
		"another kind":        {"autoscaling.verticalscaler.io/v1beta1", "VerticalScaler", ptr.To(true), 0},
		"another group":       {"apps/v1", "ScaledDeployment", ptr.To(true), 0},
		"not the controller":  {"autoscaling.verticalscaler.io/v1beta1", "ScaledDeployment", nil, 0},
		"no list at all":      {"", "", nil, 0},
		"an empty controller": {"", "", ptr.To(true), 0},
	} {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-v2", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: tc.apiVersion, Kind: tc.kind, Name: "web", UID: "x", Controller: tc.controller},
		}}}
		found, err := ownerOf(t.Context(), d)
		if err != nil || len(found) != tc.want || tc.want > 0 && found[0].String() != "shop/web" {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}

func TestOwnersByDeploymentName(t *testing.T) {
	owner := func(namespace, name, deployment string) *v1beta1.ScaledDeployment {
		return anOwner(func(o *v1beta1.ScaledDeployment) {
			o.Namespace, o.Name, o.Spec.DeploymentName = namespace, name, deployment
		})
	}
	build := func(funcs interceptor.Funcs) client.Client {
		return fake.NewClientBuilder().WithScheme(objects.Scheme()).WithInterceptorFuncs(funcs).
			WithIndex(&v1beta1.ScaledDeployment{}, deploymentIndex, nameIndex).
			WithObjects(owner("shop", "web", ""), owner("shop", "a", "web"), owner("shop", "api", ""), owner("bank", "web", ""), owner("shop", "b", "other")).Build()
	}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	want := []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "a"}}, {NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}}
	got, err := ownersByDeploymentName(build(interceptor.Funcs{}))(t.Context(), web)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("ownersByDeploymentName: %v (-want +got):\n%s", err, diff)
	}
	broken := build(interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return errors.New("no cache")
	}})
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: web.ObjectMeta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"},
	}}
	for of, find := range map[client.Object]func(context.Context, client.Object) ([]reconcile.Request, error){
		web: ownersByDeploymentName(broken), hpa: ownersByHPA(broken),
	} {
		if got, err := find(t.Context(), of); err == nil {
			t.Errorf("%T: without a cache, the owners are %v, and nothing is retried", of, got)
		}
	}
}

// nameIndex is the index that SetupWithManager registers with the cache.
func nameIndex(o client.Object) []string {
	if owner, ok := o.(*v1beta1.ScaledDeployment); ok {
		return []string{deploymentName(owner)}
	}
	return nil
}
