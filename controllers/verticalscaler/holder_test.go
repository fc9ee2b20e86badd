// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
)

// holderWorld has a Deployment "web" and two scalers that name it, of which "holder"
// holds its template.
func holderWorld(t *testing.T, funcs interceptor.Funcs) (*Reconciler, *v1beta1.VerticalScaler, *v1beta1.VerticalScaler) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: "web-1", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: Name, Operation: "Apply"}},
	}}
	holder := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "holder", Finalizers: []string{v1beta1.RestoreFinalizer}}}
	holder.Spec.DeploymentName = "web"
	holder.Status.OriginalResources = &v1beta1.OriginalResources{DeploymentName: "web", UID: "web-1"}
	other := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "other"}}
	other.Spec.DeploymentName = "web"
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(holder, other).WithStatusSubresource(holder).
		WithInterceptorFuncs(funcs).Build()
	for _, obj := range []client.Object{holder, other} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			t.Fatal(err)
		}
	}
	return &Reconciler{Client: c, Live: liveDeployment{web}, Recorder: events.NewFakeRecorder(10)}, holder, other
}

// liveDeployment reads one Deployment with its managed fields, which the fake client
// would leave out.
type liveDeployment struct{ *appsv1.Deployment }

func (l liveDeployment) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	d, ok := into.(*appsv1.Deployment)
	if !ok {
		return errors.New("only Deployments are read live")
	}
	l.DeepCopyInto(d)
	return nil
}

func (liveDeployment) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("nothing is listed live")
}

func TestWhatAnotherScalerHoldsIsNotTheUsers(t *testing.T) {
	r, _, other := holderWorld(t, interceptor.Funcs{})
	step := plan.TakeOver{UID: "web-1", Originals: []plan.Original{{Container: "app", CPU: true}}}
	p := &scope{scaler: other, plan: plan.Plan{Verdict: plan.Changing.Because("RollingOut", ""), Step: step}}
	if err := p.answer(r.takeOver(t.Context(), p, step)); err != nil {
		t.Fatal(err)
	}
	if p.status.OriginalResources != nil || p.plan.Verdict.Reason != "Conflict" || p.plan.Verdict.State == plan.Changing {
		t.Errorf("held %+v, reason %s", p.status.OriginalResources, p.plan.Verdict.Reason)
	}
}

func TestAForgedRecordRestoresNothingOfAnotherScaler(t *testing.T) {
	r, _, other := holderWorld(t, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("the Deployment is written to")
		},
	})
	if err := r.restore(t.Context(), other, &v1beta1.OriginalResources{DeploymentName: "web", UID: "web-1"}); err != nil {
		t.Error(err)
	}
}

func TestARejectedDeletionIsReported(t *testing.T) {
	r, holder, _ := holderWorld(t, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "verticalscalers"}, "holder", errors.New(`User "x" cannot patch resource "verticalscalers"`))
		},
	})
	if err := r.release(t.Context(), &scope{scaler: holder, now: time.Unix(1000, 0)}); err == nil {
		t.Error("the scaler is let go")
	}
	recorder, ok := r.Recorder.(*events.FakeRecorder)
	if !ok || len(recorder.Events) != 1 {
		t.Fatal("no event tells why the scaler does not go")
	}
}
