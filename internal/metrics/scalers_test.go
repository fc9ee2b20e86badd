// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const gibi = int64(1) << 30

func key(namespace, name string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// scalers are two scalers in one namespace, and one that has no Deployment in another.
func scalers(detail Detail) *Scalers {
	s := &Scalers{Detail: detail}
	amounts := func(cpu, memory int64) quantity.Amounts {
		return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory}
	}
	s.Record(key("shop", "web"), State{Reason: "Resizing", Ready: true}, &Sizes{
		PodsAtSize: 1, Pods: 3,
		Requested: amounts(1500, 3*gibi), Recommended: amounts(600, 3*gibi), Original: amounts(3000, 3*gibi),
		Containers: []Container{{Name: "app", Request: amounts(500, gibi), Target: amounts(200, gibi), LowerBound: amounts(150, gibi), UpperBound: amounts(400, 2*gibi)}},
	})
	s.Record(key("shop", "cart"), State{Reason: "Contested", Stalled: true}, &Sizes{
		PodsAtSize: 1, Pods: 1, Requested: amounts(500, 2*gibi), Recommended: amounts(500, 2*gibi), Original: amounts(250, gibi),
		Containers: []Container{{Name: "app", Request: amounts(500, 2*gibi)}, {Name: "log"}},
	})
	s.Record(key("ops", "typo"), State{Reason: "DeploymentNotFound", Ready: true}, &Sizes{})
	for range 2 {
		s.Count(key("shop", "web"), Resized)
	}
	s.Count(key("shop", "cart"), Resized)
	s.Count(key("shop", "cart"), Undone)
	s.Count(key("ops", "typo"), KilledLowered)
	return s
}

func TestScalersHaveSeriesOfTheirOwn(t *testing.T) {
	want := `
# HELP verticalscaler_changes_total [BETA] Changes of pods and pod templates, by action: resize, rollout, evict, restore.
# TYPE verticalscaler_changes_total counter
verticalscaler_changes_total{action="evict",scaler="cart",target_namespace="shop"} 0
verticalscaler_changes_total{action="evict",scaler="typo",target_namespace="ops"} 0
verticalscaler_changes_total{action="evict",scaler="web",target_namespace="shop"} 0
verticalscaler_changes_total{action="resize",scaler="cart",target_namespace="shop"} 1
verticalscaler_changes_total{action="resize",scaler="typo",target_namespace="ops"} 0
verticalscaler_changes_total{action="resize",scaler="web",target_namespace="shop"} 2
verticalscaler_changes_total{action="restore",scaler="cart",target_namespace="shop"} 0
verticalscaler_changes_total{action="restore",scaler="typo",target_namespace="ops"} 0
verticalscaler_changes_total{action="restore",scaler="web",target_namespace="shop"} 0
verticalscaler_changes_total{action="rollout",scaler="cart",target_namespace="shop"} 0
verticalscaler_changes_total{action="rollout",scaler="typo",target_namespace="ops"} 0
verticalscaler_changes_total{action="rollout",scaler="web",target_namespace="shop"} 0
# HELP verticalscaler_container_request [BETA] The request of the container in the pod that is furthest from the target. Not in aggregated detail.
# TYPE verticalscaler_container_request gauge
verticalscaler_container_request{resource="cpu",scaler="cart",target_container="app",target_namespace="shop",unit="core"} 0.5
verticalscaler_container_request{resource="cpu",scaler="web",target_container="app",target_namespace="shop",unit="core"} 0.5
verticalscaler_container_request{resource="memory",scaler="cart",target_container="app",target_namespace="shop",unit="byte"} 2.147483648e+09
verticalscaler_container_request{resource="memory",scaler="web",target_container="app",target_namespace="shop",unit="byte"} 1.073741824e+09
# HELP verticalscaler_saved [BETA] Sum of the requests of all running pods with the original pod template, minus their present requests. Below 0, they request more.
# TYPE verticalscaler_saved gauge
verticalscaler_saved{resource="cpu",scaler="cart",target_namespace="shop",unit="core"} -0.25
verticalscaler_saved{resource="cpu",scaler="typo",target_namespace="ops",unit="core"} 0
verticalscaler_saved{resource="cpu",scaler="web",target_namespace="shop",unit="core"} 1.5
verticalscaler_saved{resource="memory",scaler="cart",target_namespace="shop",unit="byte"} -1.073741824e+09
verticalscaler_saved{resource="memory",scaler="typo",target_namespace="ops",unit="byte"} 0
verticalscaler_saved{resource="memory",scaler="web",target_namespace="shop",unit="byte"} 0
# HELP verticalscaler_stalled [BETA] Scalers with the condition Stalled=True: a user must act.
# TYPE verticalscaler_stalled gauge
verticalscaler_stalled{scaler="cart",target_namespace="shop"} 1
verticalscaler_stalled{scaler="typo",target_namespace="ops"} 0
verticalscaler_stalled{scaler="web",target_namespace="shop"} 0
# HELP verticalscaler_status [BETA] Scalers by their state: the reason that kubectl get shows. 1 for each scaler.
# TYPE verticalscaler_status gauge
verticalscaler_status{reason="Contested",scaler="cart",target_namespace="shop"} 1
verticalscaler_status{reason="Resizing",scaler="web",target_namespace="shop"} 1
verticalscaler_status{reason="DeploymentNotFound",scaler="typo",target_namespace="ops"} 1
`
	names := []string{
		"verticalscaler_changes_total", "verticalscaler_container_request", "verticalscaler_saved", "verticalscaler_stalled", "verticalscaler_status",
	}
	must.Succeed(t, testutil.CollectAndCompare(scalers(Full), strings.NewReader(want), names...))
}

func TestNamespacesHaveSums(t *testing.T) {
	want := `
# HELP verticalscaler_pods [BETA] Running pods of the target Deployments.
# TYPE verticalscaler_pods gauge
verticalscaler_pods{scaler="",target_namespace="ops"} 0
verticalscaler_pods{scaler="",target_namespace="shop"} 4
# HELP verticalscaler_saved [BETA] Sum of the requests of all running pods with the original pod template, minus their present requests. Below 0, they request more.
# TYPE verticalscaler_saved gauge
verticalscaler_saved{resource="cpu",scaler="",target_namespace="ops",unit="core"} 0
verticalscaler_saved{resource="cpu",scaler="",target_namespace="shop",unit="core"} 1.25
verticalscaler_saved{resource="memory",scaler="",target_namespace="ops",unit="byte"} 0
verticalscaler_saved{resource="memory",scaler="",target_namespace="shop",unit="byte"} -1.073741824e+09
# HELP verticalscaler_status [BETA] Scalers by their state: the reason that kubectl get shows. 1 for each scaler.
# TYPE verticalscaler_status gauge
verticalscaler_status{reason="Contested",scaler="",target_namespace="shop"} 1
verticalscaler_status{reason="Resizing",scaler="",target_namespace="shop"} 1
verticalscaler_status{reason="DeploymentNotFound",scaler="",target_namespace="ops"} 1
`
	names := []string{"verticalscaler_pods", "verticalscaler_saved", "verticalscaler_status", "verticalscaler_container_request"}
	must.Succeed(t, testutil.CollectAndCompare(scalers(Aggregated), strings.NewReader(want), names...))
}

// Prometheus takes a falling counter for a restarted one, and would count the rest once more: an
// alert would fire because a scaler was deleted.
func TestADeletedScalerLowersNoSum(t *testing.T) {
	s := scalers(Aggregated)
	s.Forget(key("shop", "cart"))
	want := `
# HELP verticalscaler_reverts_total [BETA] Changes that were undone, by cause: Regression if the operator reverted its own change because pods did worse with it, OtherWriter if another writer undid it.
# TYPE verticalscaler_reverts_total counter
verticalscaler_reverts_total{cause="OtherWriter",scaler="",target_namespace="ops"} 0
verticalscaler_reverts_total{cause="OtherWriter",scaler="",target_namespace="shop"} 1
verticalscaler_reverts_total{cause="Regression",scaler="",target_namespace="ops"} 0
verticalscaler_reverts_total{cause="Regression",scaler="",target_namespace="shop"} 0
`
	must.Succeed(t, testutil.CollectAndCompare(s, strings.NewReader(want), "verticalscaler_reverts_total"))
	s.Forget(key("shop", "web"))
	s.Record(key("shop", "web"), State{Reason: "Learning"}, nil)
	if got := testutil.CollectAndCount(s, "verticalscaler_reverts_total"); got != 4 {
		t.Errorf("%d series after the namespace was empty", got)
	}
	s.Forget(key("shop", "web"))
	if len(s.gone) > 0 {
		t.Errorf("empty namespaces are remembered: %v", s.gone)
	}
}

// The number of series matches docs/metrics.md, after any events.
func TestSeriesAreBounded(t *testing.T) {
	const number, containers = 300, 3
	fill := func(detail Detail) *Scalers {
		s := &Scalers{Detail: detail}
		for i := range number {
			k := key(fmt.Sprintf("team-%d", i%10), fmt.Sprintf("scaler-%d", i))
			sizes := &Sizes{Pods: i}
			for c := range containers {
				one := quantity.Amounts{CPUMillis: 1, MemoryBytes: 1}
				sizes.Containers = append(sizes.Containers, Container{Name: fmt.Sprint(c), Request: one, Target: one, LowerBound: one, UpperBound: one})
			}
			for _, event := range events {
				s.Count(k, event)
			}
			for _, reason := range []string{"Resizing", "Verifying", "Applied"} {
				s.Record(k, State{Reason: reason}, sizes)
			}
		}
		return s
	}
	for detail, want := range map[Detail]int{
		Full:       number * (SeriesPerScaler + containers*SeriesPerContainer),
		Aggregated: 10 * SeriesPerScaler,
		Off:        0,
	} {
		s := fill(detail)
		if got := testutil.CollectAndCount(s); got != want {
			t.Errorf("%s: %d series instead of %d", detail, got, want)
		}
		for i := range number {
			s.Forget(key(fmt.Sprintf("team-%d", i%10), fmt.Sprintf("scaler-%d", i)))
		}
		if got := testutil.CollectAndCount(s); got != 0 {
			t.Errorf("%s: %d series of deleted scalers", detail, got)
		}
	}
}

func TestAFailedReconcileKeepsTheSizes(t *testing.T) {
	s := scalers(Full)
	before := testutil.CollectAndCount(s, "verticalscaler_container_target")
	s.Record(key("shop", "web"), State{Reason: "Unknown"}, nil)
	if got := testutil.CollectAndCount(s, "verticalscaler_container_target"); got != before {
		t.Errorf("%d targets instead of %d", got, before)
	}
}

// A scaler has one series although two managers have reconciled it, as when the first is restarted:
// two would fail the whole scrape. The series of a stopped manager are gone.
func TestManagersShareTheEndpoint(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(&served)
	synctest.Test(t, func(t *testing.T) {
		start := func(s *Scalers) (stop context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			go func() { _ = s.Start(ctx) }()
			synctest.Wait()
			return cancel
		}
		second := &Scalers{Detail: Full}
		second.Record(key("shop", "web"), State{Reason: "Applied"}, &Sizes{Pods: 5})
		stopFirst, stopSecond := start(scalers(Full)), start(second)
		stopFirst()
		synctest.Wait()
		want := `
# HELP verticalscaler_pods [BETA] Running pods of the target Deployments.
# TYPE verticalscaler_pods gauge
verticalscaler_pods{scaler="web",target_namespace="shop"} 5
`
		must.Succeed(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "verticalscaler_pods"))
		stopSecond()
		synctest.Wait()
		if got, err := testutil.GatherAndCount(registry, "verticalscaler_pods"); err != nil || got != 0 {
			t.Errorf("%d series after all managers have stopped: %v", got, err)
		}
	})
}

func TestTheLatencyFollowsTheLastRequests(t *testing.T) {
	var latency average
	for range 100 {
		latency.Observe(time.Second)
	}
	if got := latency.Mean(); got < 990*time.Millisecond || got > time.Second {
		t.Errorf("after a hundred requests of a second: %s", got)
	}
}

// Names and labels follow the conventions of Prometheus, and each metric has its stability. Prometheus renames a label that
// its targets have too: "container" would be the operator's.
func TestMetricsFollowConventions(t *testing.T) {
	ofTargets := []string{"job", "instance", "namespace", "service", "pod", "container", "endpoint", "node"}
	for _, m := range All() {
		if !strings.HasPrefix(m.Name, "verticalscaler_") || strings.HasSuffix(m.Name, "_total") != (m.Kind == Counter) {
			t.Errorf("%s is a %s", m.Name, m.Kind)
		}
		if m.Help == "" || m.Stability == "" || slices.ContainsFunc(m.Labels, func(label string) bool { return slices.Contains(ofTargets, label) }) {
			t.Errorf("%s has the help %q, the stability %q and the labels %q", m.Name, m.Help, m.Stability, m.Labels)
		}
	}
}

// BenchmarkScrape is a scrape of a thousand scalers of one container.
func BenchmarkScrape(b *testing.B) {
	s := &Scalers{Detail: Full}
	for i := range 1000 {
		one := quantity.Amounts{CPUMillis: int64(i + 1), MemoryBytes: int64(i+1) << 20}
		s.Record(key(fmt.Sprintf("team-%d", i%10), fmt.Sprintf("scaler-%d", i)), State{Reason: "Applied"}, &Sizes{
			Pods: 3, Containers: []Container{{Name: "app", Request: one, Target: one, LowerBound: one, UpperBound: one}},
		})
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
