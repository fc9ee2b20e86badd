// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

func withFinalizer(s *v1beta1.VerticalScaler) { s.Finalizers = []string{v1beta1.RestoreFinalizer} }

// A finalizer is removed when nothing is or will be recorded, after the status reports that.
func TestTheFinalizerIsThereForOriginalValues(t *testing.T) {
	recorded := func(s *v1beta1.VerticalScaler) {
		s.Status.OriginalResources = &v1beta1.OriginalResources{DeploymentName: "checkout", UID: "deployment-1"}
	}
	for name, tc := range map[string]struct {
		cpuMillis int64
		mode      v1beta1.UpdateMode
		change    func(*v1beta1.VerticalScaler)
		first     int // number of finalizers after the first step
		recorded  bool
	}{
		"Rollout, and nothing to change":    {95, "Rollout", withFinalizer, 0, false},
		"Recommend":                         {400, "Recommend", withFinalizer, 0, false},
		"Recommend, with values to restore": {400, "Recommend", func(s *v1beta1.VerticalScaler) { withFinalizer(s); recorded(s) }, 1, false},
		"Rollout, and a change":             {400, "Rollout", func(*v1beta1.VerticalScaler) {}, 1, true},
		"InPlace, and a resize":             {400, "InPlace", withFinalizer, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, tc.cpuMillis, withMode(tc.mode), tc.change, func(s *v1beta1.VerticalScaler) {
				s.Spec.UpdatePolicy.TolerancePercent = ptr.To[int32](90)
			})
			p.actuates = true
			if tc.recorded {
				p.mustReconcile() // It decides.
			}
			if vs := p.mustReconcile(); len(vs.Finalizers) != tc.first || (vs.Status.OriginalResources != nil) != tc.recorded {
				t.Errorf("at first: finalizers %v, original values %+v", vs.Finalizers, vs.Status.OriginalResources)
			}
			if tc.recorded {
				return
			}
			for range 6 {
				p.mustReconcile()
			}
			if vs, _, err := p.reconcile(); err != nil || len(vs.Finalizers) > 0 || len(p.finalizers) != 1 {
				t.Errorf("finalizers %v after %d writes, %v, %v", vs.Finalizers, len(p.finalizers), err, condition(vs, "Applied"))
			}
		})
	}
}

// Nothing changes before the status claims the Deployment: a restarted operator finds its changes by the claim.
func TestNothingIsChangedBeforeTheClaim(t *testing.T) {
	p := newPlant(t, 400)
	var vs v1beta1.VerticalScaler
	must.Succeed(t, p.server.Get(t.Context(), p.key, &vs))
	scaler.RecordClaim(&vs.Status, "")
	must.Succeed(t, p.server.Status().Update(t.Context(), &vs))
	for reconciles, want := range []int{0, 1} {
		if vs := p.mustReconcile(); len(p.resized) != want || scaler.RecordedClaim(vs) == "" {
			t.Errorf("after %d reconciles: resized %v, claim %q", reconciles+1, p.resized, scaler.RecordedClaim(vs))
		}
	}
}

// The cache has no finalizers of others. A write of ours must not remove them.
func TestAWriteKeepsTheFinalizersOfOthers(t *testing.T) {
	p := newPlant(t, 95, withMode("Rollout"), withFinalizer, func(s *v1beta1.VerticalScaler) { s.Finalizers = append(s.Finalizers, "example.com/keep") })
	p.Client = trimming(t, p)
	for range 3 {
		p.mustReconcile()
	}
	var vs v1beta1.VerticalScaler
	must.Succeed(t, p.server.Get(t.Context(), client.ObjectKeyFromObject(checkout()), &vs))
	if len(vs.Finalizers) != 1 || vs.Finalizers[0] != "example.com/keep" {
		t.Errorf("the finalizers are %v", vs.Finalizers)
	}
}

// trimming is a client that reads as the cache does.
func trimming(t *testing.T, p *plant) client.Client {
	t.Helper()
	return interceptor.NewClient(p.server, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			whole, _ := o.DeepCopyObject().(client.Object)
			if err := c.Get(ctx, key, whole, options...); err != nil {
				return err
			}
			trimmed, err := inventory.Trim(whole.DeepCopyObject())
			must.Succeed(t, err)
			reflect.ValueOf(o).Elem().Set(reflect.ValueOf(trimmed).Elem())
			return nil
		},
	})
}

func TestADeploymentThatIsTooLargeIsReported(t *testing.T) {
	p := newPlant(t, 400)
	var d appsv1.Deployment
	must.Succeed(t, p.server.Get(t.Context(), client.ObjectKeyFromObject(checkout()), &d))
	for i := range 64 {
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: fmt.Sprint("more-", i)})
	}
	must.Succeed(t, p.server.Update(t.Context(), &d))
	p.Client = trimming(t, p)
	vs := p.mustReconcile()
	for _, kind := range []string{v1beta1.ConditionTargetFound, v1beta1.ConditionStalled} {
		if c := condition(vs, kind); c.Reason != v1beta1.ReasonTooLarge {
			t.Errorf("%s is %+v", kind, c)
		}
	}
}
