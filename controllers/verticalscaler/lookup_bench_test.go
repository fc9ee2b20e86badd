// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// manyScalers fills an indexer with n scalers in namespaces of a hundred; shared of
// them claim the Deployment ns-0/shared, the others one each.
func manyScalers(tb testing.TB, n, shared int) toolscache.Indexer {
	tb.Helper()
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers())
	for i := range n {
		namespace, target := fmt.Sprintf("ns-%d", i/100), fmt.Sprintf("d-%d", i)
		if i < shared {
			namespace, target = "ns-0", "shared"
		}
		s := &v1beta1.VerticalScaler{}
		s.Namespace, s.Name, s.Spec.DeploymentName = namespace, fmt.Sprintf("s-%d", i), target
		s.Status.Recommendation = &v1beta1.Recommendation{ContainerRecommendations: make([]v1beta1.ContainerRecommendation, 2)}
		scaler.RecordClaim(&s.Status, scaler.Claim(s))
		if err := indexer.Add(s); err != nil {
			tb.Fatal(err)
		}
	}
	return indexer
}

// A look-up must cost the same however many scalers there are, which its allocations
// show without a clock.
func TestALookupCopiesNoScaler(t *testing.T) {
	for name, tc := range map[string]struct {
		n, shared int
		target    types.NamespacedName
		most      float64
	}{
		"among 100":                {100, 0, types.NamespacedName{Namespace: "ns-0", Name: "d-50"}, 4},
		"among 10,000":             {10_000, 0, types.NamespacedName{Namespace: "ns-50", Name: "d-5050"}, 4},
		"a hundred share the same": {10_000, 100, types.NamespacedName{Namespace: "ns-0", Name: "shared"}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lookup{indexer: manyScalers(t, tc.n, tc.shared)}
			if got, err := l.claimants(t.Context(), tc.target); err != nil || len(got) != max(1, tc.shared) {
				t.Fatalf("%d claimants, not %d: %v", len(got), max(1, tc.shared), err)
			}
			if got := testing.AllocsPerRun(100, func() { _, _ = l.claimants(context.Background(), tc.target) }); got > tc.most {
				t.Errorf("%v allocations, more than %v", got, tc.most)
			}
		})
	}
}

// A forged claim must not let the Deployments of another namespace trigger the scaler.
func TestOnlyOwnClaimsAreIndexed(t *testing.T) {
	for claim, want := range map[string]int{"shop/web": 1, "shop/other": 1, "bank/web": 0, "shop/web/../x": 0, "shop/": 0, "": 0} {
		s := &v1beta1.VerticalScaler{}
		s.Namespace, s.Name, s.Spec.DeploymentName = "shop", "a", "web"
		scaler.RecordClaim(&s.Status, claim)
		if got := len(claimValues(s)); got != want {
			t.Errorf("claim %q is indexed %d times, not %d", claim, got, want)
		}
	}
}
