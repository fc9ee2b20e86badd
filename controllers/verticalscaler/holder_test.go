// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// Values that another scaler has written into the template and not restored are not the user's: they are neither
// recorded, nor restored by a forged record.
func TestWhatAnotherScalerHoldsIsNotTheUsers(t *testing.T) {
	original := &v1beta1.OriginalResources{DeploymentName: "checkout", UID: "deployment-1"}
	for name, change := range map[string]func(*v1beta1.VerticalScaler){
		"recorded": withMode("Rollout"),
		"forged":   func(vs *v1beta1.VerticalScaler) { vs.Status.OriginalResources = original },
	} {
		p := newPlant(t, 400, change)
		p.create(checkout(func(vs *v1beta1.VerticalScaler) { vs.Name, vs.Status.OriginalResources = "holder", original }))
		p.Client = interceptor.NewClient(p.server, interceptor.Funcs{
			Patch: func(_ context.Context, _ client.WithWatch, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
				if _, ok := o.(*appsv1.Deployment); ok {
					t.Errorf("%s: the Deployment is written", name)
				}
				return nil
			},
		})
		p.Live = interceptor.NewClient(p.server, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
				err := c.Get(ctx, key, o, options...)
				o.SetManagedFields([]metav1.ManagedFieldsEntry{managed(Name, "", allOfApp)})
				return err
			},
		})
		var vs *v1beta1.VerticalScaler
		for range 4 {
			vs = p.mustReconcile()
		}
		if c := condition(vs, v1beta1.ConditionApplied); vs.Status.OriginalResources != nil || (c.Reason == v1beta1.ReasonConflict) != (name == "recorded") {
			t.Errorf("%s: recorded %+v, %s: %s", name, vs.Status.OriginalResources, c.Reason, c.Message)
		}
	}
}

func TestARejectedDeletionIsReported(t *testing.T) {
	p := newPlant(t, 80, withFinalizer)
	must.Succeed(t, p.server.Delete(t.Context(), checkout()))
	p.Client = interceptor.NewClient(p.server, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return apierrors.NewForbidden(v1beta1.GroupVersion.WithResource("verticalscalers").GroupResource(), "checkout", errors.New(`User "x" cannot patch resource "verticalscalers"`))
		},
	})
	if _, _, err := p.reconcile(); err == nil {
		t.Error("the scaler is let go")
	}
	recorder, _ := p.Recorder.(*events.FakeRecorder)
	if len(recorder.Events) != 1 || !strings.Contains(<-recorder.Events, "Cannot restore the original values") {
		t.Error("no event reports why the scaler does not go")
	}
}
