// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/cached"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
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
	return lookup{cached.Cache(t, watchedScheme(t), nil, func(c cache.Cache) error { return indexClaims(t.Context(), c) }, scalers...)}
}

func TestWhichScalersAnObjectConcerns(t *testing.T) {
	behind, restoring := claiming("shop", "behind", "web"), claiming("shop", "restoring", "web")
	scaler.RecordClaim(&behind.Status, "")
	scaler.RecordClaim(&restoring.Status, "") // behind another scaler, and not done yet
	restoring.Status.OriginalResources = &v1beta1.OriginalResources{DeploymentName: "web"}
	find := lookupOf(t, claiming("shop", "web", "web"), claiming("shop", "api", "api"), claiming("bank", "web", "web"), behind, restoring)
	mayWait := func(key types.NamespacedName) bool { return key.Name != "web" }
	meta := metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	hpa := func(kind string) client.Object {
		out := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta}
		out.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: kind, Name: "web"}
		return out
	}
	ofVPA := func(ctx context.Context, o client.Object) ([]reconcile.Request, error) {
		return find.ofVPA(ctx, workload.VPA{Namespace: "shop", Target: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: o.GetName()}})
	}
	deployment := &appsv1.Deployment{ObjectMeta: meta}
	for name, tc := range map[string]struct {
		find   func(context.Context, client.Object) ([]reconcile.Request, error)
		object client.Object
		want   string
	}{
		"a Deployment":                 {find.ofDeployment, deployment, "shop/web"},
		"an HPA":                       {find.ofHPA, hpa("Deployment"), "shop/web"},
		"an HPA of a ScaledDeployment": {find.ofHPA, hpa("ScaledDeployment"), "shop/api shop/restoring shop/web"},
		"an HPA of a StatefulSet":      {find.ofHPA, hpa("StatefulSet"), ""},
		"a VPA":                        {ofVPA, deployment, "shop/web"},
		"a LimitRange":                 {find.ofNamespace, &corev1.LimitRange{ObjectMeta: meta}, "shop/api shop/restoring shop/web"},
		"a ResourceQuota":              {find.ofQuota(mayWait), &corev1.ResourceQuota{ObjectMeta: meta}, "shop/api shop/restoring"},
		"the freeze switch":            {find.ofNamespace, &metav1.PartialObjectMetadata{}, "bank/web shop/api shop/restoring shop/web"},
	} {
		found, err := tc.find(t.Context(), tc.object)
		must.Succeed(t, err)
		var got []string
		for _, request := range found {
			got = append(got, request.String())
		}
		slices.Sort(got)
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s concerns %v, want %s", name, got, tc.want)
		}
	}
}

// A look-up must cost the same with any number of scalers, which its allocations show without a
// clock.
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
