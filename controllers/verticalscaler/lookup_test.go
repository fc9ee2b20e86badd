// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// flakyCache is a cache of several namespaces, which has no indexer, whose lists fail a number of times.
func flakyCache(t *testing.T, failures int) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	building := fake.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if failures--; failures >= 0 {
				return errors.New("no cache")
			}
			return c.List(ctx, list, o...)
		},
	})
	building.WithIndex(&v1beta1.VerticalScaler{}, claimIndex, func(o client.Object) []string { return claimValues(o.(*v1beta1.VerticalScaler)) })
	for _, key := range []types.NamespacedName{{Namespace: "shop", Name: "web"}, {Namespace: "shop", Name: "api"}, {Namespace: "bank", Name: "web"}} {
		vs := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: key.Name}}
		scaler.RecordClaim(&vs.Status, scaler.Claim(vs))
		building.WithObjects(vs)
	}
	return building.Build()
}

func newRequests(t *testing.T) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	t.Helper()
	requests := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(requests.ShutDown)
	return requests
}

// Whatever has changed around a scaler, its event is not lost if the look-up fails.
func TestAnEventWhoseLookUpFailsIsNotLost(t *testing.T) {
	web := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	hpa := func(kind string) *autoscalingv2.HorizontalPodAutoscaler {
		return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "x"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: kind, Name: "web"},
		}}
	}
	vpa := func(kind string) func(*lookup, find) find {
		return func(l *lookup, all find) find {
			return func(ctx context.Context, o client.Object) ([]reconcile.Request, error) {
				return l.ofVPA(all)(ctx, workload.VPA{Namespace: o.GetNamespace(), Target: autoscalingv2.CrossVersionObjectReference{Kind: kind, Name: o.GetName()}})
			}
		}
	}
	every := func(_ *lookup, all find) find { return all }
	ofHPA := func(l *lookup, all find) find { return l.ofHPA(all) }
	for name, tc := range map[string]struct {
		object client.Object
		mapped func(l *lookup, all find) find
		want   []string
	}{
		"a Deployment":                 {web, func(l *lookup, _ find) find { return l.ofDeployment }, []string{"shop/web"}},
		"an HPA":                       {hpa("Deployment"), ofHPA, []string{"shop/web"}},
		"an HPA of a ScaledDeployment": {hpa("ScaledDeployment"), ofHPA, []string{"shop/api", "shop/web"}},
		"a VPA":                        {web, vpa("Deployment"), []string{"shop/web"}},
		"a VPA of a ScaledDeployment":  {web, vpa("ScaledDeployment"), []string{"shop/api", "shop/web"}},
		"a LimitRange":                 {&corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, every, []string{"shop/api", "shop/web"}},
		"a ResourceQuota": {
			&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}},
			func(_ *lookup, all find) find {
				return ofQuota(all, func(key types.NamespacedName) bool { return key.Name == "api" })
			},
			[]string{"shop/api"},
		},
		"the freeze switch": {inNamespace(""), every, []string{"bank/web", "shop/api", "shop/web"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cached, requests := flakyCache(t, 3), newRequests(t)
				queue.Mapped(clock.RealClock{}, tc.mapped(&lookup{reader: cached}, ofNamespace(cached))).
					Generic(t.Context(), event.GenericEvent{Object: tc.object}, requests)
				if requests.Len() > 0 {
					t.Fatal("the look-up has not failed")
				}
				time.Sleep(time.Second)
				synctest.Wait()
				var got []string
				for requests.Len() > 0 {
					request, _ := requests.Get()
					got = append(got, request.String())
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// A change of a pod is not lost either.
func TestAPodWhoseLookUpFailsIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changed inventory.PodHandler
		pods := followed(func(h inventory.PodHandler) { changed = h })
		requests := newRequests(t)
		if err := (podSource{pods, (&lookup{reader: flakyCache(t, 2)}).claimants, clock.RealClock{}}).Start(t.Context(), requests); err != nil {
			t.Fatal(err)
		}
		changed(types.NamespacedName{Namespace: "bank", Name: "web"}, nil, &workload.Pod{})
		time.Sleep(time.Second)
		synctest.Wait()
		if requests.Len() != 1 {
			t.Errorf("%d requests, want 1", requests.Len())
		}
	})
}

// followed is what tells about changes of pods.
type followed func(inventory.PodHandler)

func (f followed) OnChange(h inventory.PodHandler) { f(h) }
