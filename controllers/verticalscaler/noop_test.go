// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/cached"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// A settled scaler must cost the same with any number of HorizontalPodAutoscalers of other
// Deployments, which its allocations show without a clock.
func TestASettledScalerDoesNotPayForItsNeighbours(t *testing.T) {
	alone, crowded := newSettled(t, 0).allocated(), newSettled(t, 1000).allocated()
	if crowded > alone+alone/20 {
		t.Errorf("a reconcile allocates %d bytes beside 1,000 HorizontalPodAutoscalers, and %d without them", crowded, alone)
	}
}

// allocated is the number of bytes that a reconcile allocates.
func (p *plant) allocated() uint64 {
	const passes = 20
	var before, after runtime.MemStats
	p.pass() // the first one fills caches
	runtime.ReadMemStats(&before)
	for range passes {
		p.pass()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / passes
}

// BenchmarkNoOp is a reconcile that finds nothing to do, of a Deployment with 3 pods,
// without and beside HorizontalPodAutoscalers of other Deployments. It reads from the cache of
// controller-runtime, as the operator does.
func BenchmarkNoOp(b *testing.B) {
	for _, hpas := range []int{0, 1000} {
		b.Run(fmt.Sprintf("hpas=%d", hpas), func(b *testing.B) {
			settled := newSettled(b, hpas)
			b.ReportAllocs()
			began := cpuTime(b)
			for b.Loop() {
				settled.pass()
			}
			b.ReportMetric(float64(cpuTime(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// pass reconciles once. A write fails it, because the client has no server.
func (p *plant) pass() {
	if _, err := p.Reconcile(p.t.Context(), reconcile.Request{NamespacedName: p.key}); err != nil {
		p.t.Fatal(err)
	}
}

// newSettled is a plant with nothing left to do, beside HorizontalPodAutoscalers of other Deployments, a LimitRange and a
// ResourceQuota. It reads from a real cache.
func newSettled(tb testing.TB, hpas int) *plant {
	tb.Helper()
	p := newPlant(tb, 180)
	p.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}, Status: corev1.NodeStatus{Allocatable: resources("16", "64Gi")}})
	p.create(&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bounds"},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: resources("4", "8Gi")}}},
	})
	p.create(team("40", "12"))
	for i := range hpas {
		target := autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprintf("other-%d", i)}
		p.create(&autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: target.Name}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: target, MaxReplicas: 5},
		})
	}
	p.Budget, p.Metrics, p.Usage = budget.New(budget.Limits{Changes: 300, PerNamespace: 60, Window: time.Minute}), &metrics.Scalers{Detail: metrics.Full}, allUsage{}
	p.Ceilings = config.Default().Ceilings.Plan()
	p.actuates = true
	for before, now := "", "at first"; before != now; {
		before, now = now, fmt.Sprint(p.mustReconcile().ResourceVersion, p.resized)
	}
	if len(p.resized) != 3 {
		tb.Fatalf("resized %v, want each pod once", p.resized)
	}
	p.Client = p.cached()
	return p
}

// allUsage finds no usage missing.
type allUsage struct{}

func (allUsage) ProblemsOf(types.NamespacedName) collect.Problems { return collect.Problems{} }

func (allUsage) AddOOMEvents(string, []workload.Pod) {}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// cached is a client that reads from the synced cache of a manager, and cannot write.
func (p *plant) cached() client.Client {
	p.t.Helper()
	for _, object := range p.objects {
		must.Succeed(p.t, p.server.Get(p.t.Context(), client.ObjectKeyFromObject(object), object))
	}
	c := cached.Cache(p.t, p.server.Scheme(), inventory.Trim, func(c cache.Cache) (err error) {
		own, ok := c.(*inventory.Cache)
		if !ok {
			p.t.Fatalf("the cache is a %T", c)
		}
		if p.Nodes, err = inventory.WatchNodes(p.t.Context(), c, own.Pods); err != nil {
			return err
		}
		return inventory.Index(p.t.Context(), c)
	}, p.objects...)
	p.Pods = c.Pods
	return cached.Client(p.t, p.server.Scheme(), c)
}

// cpuTime is the CPU time that the process has spent. Unlike wall-clock time, it is valid on a busy machine.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
