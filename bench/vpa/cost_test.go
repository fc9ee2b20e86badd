// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package vpa

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	vpatypes "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	vpaclient "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/client/clientset/versioned/typed/autoscaling.k8s.io/v1"
	vpacheckpoint "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/checkpoint"
	"k8s.io/autoscaler/vertical-pod-autoscaler/pkg/recommender/model"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// fleet is a number of containers, each in its own workload with one pod: the state of one
// side for them, and how to feed it.
type fleet interface {
	// add adds a sample of both resources: millicores and bytes.
	add(i int, at time.Time, cpu, memory int64)
	// recommend computes target and bounds of both resources.
	recommend(i int)
}

// sides are the operator's store and VPA's cluster state, with names, owners, the last checkpoint, pods and label selectors.
var sides = []func(tb testing.TB, n int) fleet{
	func(tb testing.TB, n int) fleet { tb.Helper(); return newStore(tb, n) },
	func(tb testing.TB, n int) fleet { tb.Helper(); return newCluster(tb, n) },
}

var (
	start  = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	params = recommend.DefaultParams()
	policy = recommend.Policy{CPU: true, Memory: true}
)

// published is the first recommendation by container. The operator finds it in the scaler's
// status.
type published []*recommend.Container

func (p published) recommend(i int, h *history.Container) recommend.Container {
	r, ok := recommend.For("app", h, policy, p[i], params)
	if ok && p[i] == nil {
		p[i] = &r
	}
	return r
}

// store is the operator's.
type store struct {
	published
	store   *checkpoint.Store
	server  *apiServer
	scalers []*v1beta1.VerticalScaler
}

func newStore(tb testing.TB, n int) *store {
	tb.Helper()
	server := &apiServer{}
	s := &store{
		published: make(published, n), store: &checkpoint.Store{Client: server, Params: params.History}, server: server,
		scalers: make([]*v1beta1.VerticalScaler, n),
	}
	for i := range s.scalers {
		s.scalers[i] = &v1beta1.VerticalScaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(i), Name: nameOf(i), UID: types.UID(fmt.Sprintf("4e8b9a52-7f1c-4a77-9d0b-%012d", i))},
			Spec:       v1beta1.VerticalScalerSpec{DeploymentName: nameOf(i)},
		}
		if err := s.store.Load(tb.Context(), s.scalers[i], time.Now()); err != nil {
			tb.Fatal(err)
		}
	}
	return s
}

func (s *store) add(i int, at time.Time, cpu, memory int64) {
	sample := usage.Sample{Container: "app", Time: at, CPUMillis: cpu, MemoryBytes: memory}
	s.store.Feed(s.scalers[i], checkpoint.Round{Samples: []usage.Sample{sample}}, func(history.Histories) {})
}

func (s *store) recommend(i int) {
	s.store.With(client.ObjectKeyFromObject(s.scalers[i]), func(histories history.Histories) { s.published.recommend(i, histories["app"]) })
}

// checkpoint writes a container's checkpoint, and returns the object as it was sent.
func (s *store) checkpoint(tb testing.TB, i int, now time.Time) any {
	tb.Helper()
	s.recommend(i)
	r := *s.published[i]
	if err := s.store.Save(tb.Context(), s.scalers[i], []recommend.Container{r}, now); err != nil {
		tb.Fatal(err)
	}
	return s.server.written
}

// apiServer keeps the last written object.
type apiServer struct {
	client.Client
	written client.Object
}

func (a *apiServer) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{Resource: "verticalscalercheckpoints"}, key.Name)
}

func (a *apiServer) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	a.written = object.DeepCopyObject().(client.Object) //nolint:forcetypeassert // a copy is of the same type
	object.SetResourceVersion("123456")
	object.SetUID("9c1d3c1e-54a5-4d3e-8a55-0f9d8e3a7b11")
	return nil
}

// cluster is the state of VPA's recommender.
type cluster struct {
	library
	state  model.ClusterState
	writer vpacheckpoint.CheckpointWriter
	server *vpaServer
	pods   []model.PodID
	vpas   []*model.Vpa
}

func newCluster(tb testing.TB, n int) *cluster {
	tb.Helper()
	c := &cluster{
		library: *newLibrary(1), state: model.NewClusterState(time.Hour), server: &vpaServer{written: map[string]*vpatypes.VerticalPodAutoscalerCheckpoint{}},
		pods: make([]model.PodID, n), vpas: make([]*model.Vpa, n),
	}
	c.writer = vpacheckpoint.NewCheckpointWriter(c.state, c.server)
	for i := range n {
		object := &vpatypes.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(i), Name: nameOf(i)}}
		if err := c.state.AddOrUpdateVpa(object, labels.SelectorFromSet(labels.Set{"app": nameOf(i)})); err != nil {
			tb.Fatal(err)
		}
		c.vpas[i] = c.state.VPAs()[model.VpaID{Namespace: object.Namespace, VpaName: object.Name}]
		c.pods[i] = model.PodID{Namespace: namespaceOf(i), PodName: nameOf(i) + "-5d4f8c7b9c-x2k9p"}
		c.state.AddOrUpdatePod(c.pods[i], labels.Set{"app": nameOf(i), "pod-template-hash": "5d4f8c7b9c"}, corev1.PodRunning)
		request := model.Resources{model.ResourceCPU: 500, model.ResourceMemory: 512 * mebi}
		if err := c.state.AddOrUpdateContainer(model.ContainerID{PodID: c.pods[i], ContainerName: "app"}, request); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

func (c *cluster) add(i int, at time.Time, cpu, memory int64) {
	c.addOne(i, model.ContainerUsageSample{MeasureStart: at, Usage: model.ResourceAmount(cpu), Resource: model.ResourceCPU})
	c.addOne(i, model.ContainerUsageSample{MeasureStart: at, Usage: model.ResourceAmount(memory), Resource: model.ResourceMemory})
}

func (c *cluster) addOne(i int, sample model.ContainerUsageSample) {
	if err := c.state.AddSample(&model.ContainerUsageSampleWithKey{
		ContainerUsageSample: sample, Container: model.ContainerID{PodID: c.pods[i], ContainerName: "app"},
	}); err != nil {
		panic(err)
	}
}

func (c *cluster) recommend(i int) {
	c.recommender.GetRecommendedPodResources(c.vpas[i].AggregateStateByContainerName())
}

// checkpoint does the same by VPA's own writer.
func (c *cluster) checkpoint(tb testing.TB, i int, _ time.Time) any {
	tb.Helper()
	c.writer.StoreCheckpoints(tb.Context(), 1)
	return c.server.written[nameOf(i)+"-app"]
}

// vpaServer keeps the checkpoints that VPA's writer creates.
type vpaServer struct {
	vpaclient.VerticalPodAutoscalerCheckpointInterface
	written map[string]*vpatypes.VerticalPodAutoscalerCheckpoint
}

func (s *vpaServer) VerticalPodAutoscalerCheckpoints(string) vpaclient.VerticalPodAutoscalerCheckpointInterface {
	return s
}

func (s *vpaServer) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions, _ ...string) (*vpatypes.VerticalPodAutoscalerCheckpoint, error) {
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "verticalpodautoscalercheckpoints"}, name)
}

func (s *vpaServer) Create(_ context.Context, object *vpatypes.VerticalPodAutoscalerCheckpoint, _ metav1.CreateOptions) (*vpatypes.VerticalPodAutoscalerCheckpoint, error) {
	s.written[object.Name] = object
	return object, nil
}

func namespaceOf(i int) string { return fmt.Sprintf("ns-%d", i/100) }
func nameOf(i int) string      { return fmt.Sprintf("deployment-%d", i) }

// grow feeds every container one sample a minute.
func grow(f fleet, n, minutes int, w wave) {
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 7))
		for m := range minutes {
			at := start.Add(time.Duration(m) * time.Minute)
			cpu, memory := w(r, at.Unix())
			f.add(i, at, cpu, memory)
		}
	}
}

// liveHeap is the size of all live objects, in bytes.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC() // finishes the sweep of the first one
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// heapOf is the live heap in bytes that each of n containers adds.
func heapOf(tb testing.TB, build func(testing.TB, int) fleet, n, minutes int) float64 {
	tb.Helper()
	before := liveHeap()
	f := build(tb, n)
	grow(f, n, minutes, waves["diurnal"])
	// The objects of the API server, and what was recommended in them, count for neither.
	switch f := f.(type) {
	case *store:
		// What the store remembers of a checkpoint is part of what a container costs. VPA's
		// recommender keeps nothing of those that it has written.
		for i := range n {
			f.checkpoint(tb, i, start)
		}
		f.published, f.scalers = nil, nil
	case *cluster:
		f.pods, f.vpas = nil, nil
	}
	after := liveHeap()
	runtime.KeepAlive(f)
	return (float64(after) - float64(before)) / float64(n)
}

// encoded is the size of an object as JSON, which is how it is sent and stored.
func encoded(tb testing.TB, object any) float64 {
	tb.Helper()
	b, err := json.Marshal(object)
	if err != nil {
		tb.Fatal(err)
	}
	return float64(len(b))
}

// TestHeap holds that a container takes no more of our heap than of VPA's, whatever its age.
func TestHeap(t *testing.T) {
	const n = 500
	for _, build := range sides {
		heapOf(t, build, 1, 10) // initializes what both sides share
	}
	for _, minutes := range []int{10, 100} {
		ours, theirs := heapOf(t, sides[0], n, minutes), heapOf(t, sides[1], n, minutes)
		t.Logf("%d minutes: %.0f B a container, VPA's %.0f B, %.2f of it", minutes, ours, theirs, ours/theirs)
		if ours > theirs {
			t.Errorf("%d minutes: a container takes %.0f B of heap, more than VPA's %.0f B", minutes, ours, theirs)
		}
	}
}

// BenchmarkHeap reports the live heap of a container, at ages up to the eight days that
// both look back.
func BenchmarkHeap(b *testing.B) {
	for _, size := range []struct {
		n, minutes int
		age        string
	}{{2000, 10, "10m"}, {200, 1440, "1d"}, {200, 8 * 1440, "8d"}} {
		b.Run(fmt.Sprintf("containers=%d/age=%s", size.n, size.age), func(b *testing.B) {
			var ours, theirs float64
			for range b.N {
				ours += heapOf(b, sides[0], size.n, size.minutes)
				theirs += heapOf(b, sides[1], size.n, size.minutes)
			}
			report(b, "B/container", ours/float64(b.N), theirs/float64(b.N))
		})
	}
}

// BenchmarkCPU reports the CPU time of a minute of a container: a sample of both resources,
// and target and bounds of both. It is that of the process, the garbage collector's
// included; both sides take turns, so that a busy machine slows both. The least is that of
// the quickest round: what it takes where nothing else wants the caches.
func BenchmarkCPU(b *testing.B) {
	const n, known = 50, 1440
	fleets := [2]fleet{sides[0](b, n), sides[1](b, n)}
	for _, f := range fleets {
		grow(f, n, known, waves["diurnal"])
		for i := range n {
			f.recommend(i)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	at := start.Add(known * time.Minute)
	var added, recommended, least [2]time.Duration
	for range b.N {
		cpu, memory := [n]int64{}, [n]int64{}
		for i := range n {
			cpu[i], memory[i] = waves["diurnal"](r, at.Unix())
		}
		for side, f := range fleets {
			begin := bench.CPUTime(b)
			for i := range n {
				f.add(i, at, cpu[i], memory[i])
			}
			between := bench.CPUTime(b)
			for i := range n {
				f.recommend(i)
			}
			end := bench.CPUTime(b)
			added[side] += between - begin
			recommended[side] += end - between
			if least[side] == 0 || end-begin < least[side] {
				least[side] = end - begin
			}
		}
		at = at.Add(time.Minute)
	}
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(n*b.N) }
	report(b, "µs/minute", each(added[0]+recommended[0]), each(added[1]+recommended[1]))
	for side, name := range []string{bench.Operator, "vpa"} {
		bench.Report(b, name, "least-µs/minute", each(least[side]*time.Duration(b.N)))
		bench.Report(b, name, "µs/sample", each(added[side]))
		bench.Report(b, name, "µs/recommendation", each(recommended[side]))
	}
}

// BenchmarkCheckpoint reports the size of a container's checkpoint: of the whole object, as
// it is sent. VPA's grows with how far usage strays, ours does not.
func BenchmarkCheckpoint(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(waves)) {
		b.Run(name, func(b *testing.B) {
			var ours, theirs float64
			for range b.N {
				mine, others := newStore(b, 1), newCluster(b, 1)
				for _, f := range []fleet{mine, others} {
					grow(f, 1, 8*1440, waves[name])
				}
				ours, theirs = encoded(b, mine.checkpoint(b, 0, start)), encoded(b, others.checkpoint(b, 0, start))
			}
			report(b, "B/checkpoint", ours, theirs)
		})
	}
}

// report reports both, and the ratio.
func report(b *testing.B, unit string, ours, theirs float64) {
	b.Helper()
	bench.Report(b, bench.Operator, unit, ours)
	bench.Report(b, "vpa", unit, theirs)
	b.ReportMetric(ours/theirs, "ours/vpa")
	b.ReportMetric(0, "ns/op") // says nothing: both are in it
}
