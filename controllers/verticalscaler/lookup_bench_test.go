// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
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

// BenchmarkLookup compares the look-up of the scalers of a Deployment with the stock idioms, on one
// cache: a list by a field index, and a list of the namespace that is filtered. Namespaces have a hundred
// scalers.
func BenchmarkLookup(b *testing.B) {
	for _, size := range []struct{ n, shared int }{{100, 0}, {10_000, 0}, {100_000, 0}, {100_000, 100}} {
		b.Run(fmt.Sprintf("scalers=%d/found=%d", size.n, max(1, size.shared)), func(b *testing.B) {
			cached := cachedScalers(b, size.n, size.shared)
			l, err := newLookup(b.Context(), cached)
			if err != nil {
				b.Fatal(err)
			}
			middle := size.n / 2
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns-%d", middle/100), Name: fmt.Sprintf("d-%d", middle)}}
			if size.shared > 0 {
				deployment.Namespace, deployment.Name = "ns-0", "shared"
			}
			inNamespace, byField := client.InNamespace(deployment.Namespace), client.MatchingFields{stockIndex: deployment.Name}
			check := func(found []reconcile.Request, err error) {
				if err != nil || len(found) != max(1, size.shared) {
					b.Fatalf("found %d scalers: %v", len(found), err)
				}
			}
			bench.InTurns(b,
				bench.Contender{Name: bench.Operator, Run: func() { check(l.ofDeployment(b.Context(), deployment)) }},
				bench.Contender{Name: "indexed-list", Run: func() { check(listed(b, cached, deployment, inNamespace, byField), nil) }},
				bench.Contender{Name: "list-and-filter", Run: func() { check(listed(b, cached, deployment, inNamespace), nil) }},
			)
		})
	}
}

// stockIndex is the index that the stock idiom would have.
const stockIndex = "spec.deploymentName"

// cachedScalers is a cache with manyScalers and the stock index.
func cachedScalers(b *testing.B, n, shared int) cache.Cache {
	b.Helper()
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1beta1.GroupVersion.WithKind("VerticalScaler"), meta.RESTScopeNamespace)
	from := cachetesting.NewFakeControllerSource()
	for _, obj := range manyScalers(b, n, shared).List() {
		from.Add(obj.(*v1beta1.VerticalScaler))
	}
	cached, err := cache.New(&rest.Config{}, cache.Options{
		Scheme: scheme, Mapper: mapper,
		NewInformer: func(_ toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(listThenWatch{from}, kind, resync, indexers)
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := cached.IndexField(b.Context(), &v1beta1.VerticalScaler{}, stockIndex, func(o client.Object) []string {
		return []string{o.(*v1beta1.VerticalScaler).Spec.DeploymentName}
	}); err != nil {
		b.Fatal(err)
	}
	go func() { _ = cached.Start(b.Context()) }()
	if !cached.WaitForCacheSync(b.Context()) {
		b.Fatal("the cache does not sync")
	}
	return cached
}

// listThenWatch is a source in memory, which cannot stream a list.
type listThenWatch struct {
	*cachetesting.FakeControllerSource
}

func (listThenWatch) IsWatchListSemanticsUnSupported() bool { return true }

// listed is the look-up of the stock idiom.
func listed(b *testing.B, reader client.Reader, deployment client.Object, options ...client.ListOption) (out []reconcile.Request) {
	b.Helper()
	var list v1beta1.VerticalScalerList
	if err := reader.List(b.Context(), &list, options...); err != nil {
		b.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.DeploymentName == deployment.GetName() {
			out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return out
}
