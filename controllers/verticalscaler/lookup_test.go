// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/cached"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// claiming is a scaler that claims a Deployment.
func claiming(namespace, name, deployment string) *v1beta1.VerticalScaler {
	vs := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: deployment}}
	vs.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: make([]v1beta1.ContainerRecommendation, 2)}
	scaler.RecordClaim(&vs.Status, scaler.Claim(vs))
	return vs
}

// lookupOf finds scalers in a real cache.
func lookupOf(t *testing.T, scalers ...client.Object) lookup {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return lookup{cached.Cache(t, scheme, nil, func(c cache.Cache) error { return indexClaims(t.Context(), c) }, scalers...)}
}

func TestWhichScalersAnObjectConcerns(t *testing.T) {
	find := lookupOf(t, claiming("shop", "web", "web"), claiming("shop", "api", "api"), claiming("bank", "web", "web"))
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	target := func(kind string) autoscalingv2.CrossVersionObjectReference {
		return autoscalingv2.CrossVersionObjectReference{Kind: kind, Name: "web"}
	}
	hpa := func(kind string) *autoscalingv2.HorizontalPodAutoscaler {
		return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: target(kind)}}
	}
	for name, tc := range map[string]struct {
		found func(context.Context) ([]reconcile.Request, error)
		want  []string
	}{
		"a Deployment": {func(ctx context.Context) ([]reconcile.Request, error) {
			return find.ofDeployment(ctx, &appsv1.Deployment{ObjectMeta: meta})
		}, []string{"shop/web"}},
		"an HPA": {func(ctx context.Context) ([]reconcile.Request, error) { return find.ofHPA(ctx, hpa("Deployment")) }, []string{"shop/web"}},
		"an HPA of a ScaledDeployment": {func(ctx context.Context) ([]reconcile.Request, error) {
			return find.ofHPA(ctx, hpa("ScaledDeployment"))
		}, []string{"shop/api", "shop/web"}},
		"an HPA of a StatefulSet": {func(ctx context.Context) ([]reconcile.Request, error) { return find.ofHPA(ctx, hpa("StatefulSet")) }, nil},
		"a VPA": {func(ctx context.Context) ([]reconcile.Request, error) {
			return find.ofVPA(ctx, workload.VPA{Namespace: "shop", Target: target("Deployment")})
		}, []string{"shop/web"}},
		"a LimitRange": {func(ctx context.Context) ([]reconcile.Request, error) {
			return find.ofNamespace(ctx, &corev1.LimitRange{ObjectMeta: meta})
		}, []string{"shop/api", "shop/web"}},
		"the freeze switch": {func(ctx context.Context) ([]reconcile.Request, error) { return find.inNamespace(ctx, "") }, []string{"bank/web", "shop/api", "shop/web"}},
	} {
		found, err := tc.found(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, request := range found {
			got = append(got, request.String())
		}
		slices.Sort(got)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: requests (-want +got):\n%s", name, diff)
		}
	}
}

// A look-up must cost the same however many scalers there are, which its allocations
// show without a clock.
func TestALookupCopiesNoScaler(t *testing.T) {
	for _, n := range []int{100, 10_000} {
		var all []client.Object
		for i := range n {
			all = append(all, claiming(fmt.Sprintf("ns-%d", i/100), fmt.Sprintf("s-%d", i), fmt.Sprintf("d-%d", i)))
		}
		find, target := lookupOf(t, all...), types.NamespacedName{Namespace: "ns-0", Name: "d-50"}
		if got, err := find.claimants(t.Context(), target); err != nil || len(got) != 1 || got[0].Name != "s-50" {
			t.Fatalf("found %v: %v", got, err)
		}
		if got := testing.AllocsPerRun(100, func() { _, _ = find.claimants(context.Background(), target) }); got > 30 {
			t.Errorf("%v allocations among %d scalers", got, n)
		}
	}
}

// A forged claim must not let the Deployments of another namespace trigger the scaler.
func TestOnlyOwnClaimsAreIndexed(t *testing.T) {
	for claim, want := range map[string]int{"shop/web": 1, "shop/other": 1, "bank/web": 0, "shop/web/../x": 0, "shop/": 0, "": 0} {
		vs := claiming("shop", "a", "web")
		scaler.RecordClaim(&vs.Status, claim)
		if got := len(claimOf(vs)); got != want {
			t.Errorf("claim %q is indexed %d times, not %d", claim, got, want)
		}
	}
}
