// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestWhatIsSilent(t *testing.T) {
	running := workload.Pod{
		Name: "web-1", UID: "1", Running: true, Started: noon.Add(-time.Hour),
		Containers: []workload.Container{{Name: "app"}, {Name: "sidecar"}},
	}
	with := func(change func(*workload.Pod)) workload.Pod {
		pod := running
		change(&pod)
		return pod
	}
	both := []string{"app", "sidecar"}
	for name, tc := range map[string]struct {
		pod     workload.Pod
		samples []string // of these containers
		refused []usage.Refused
		want    []string
		named   string
		learns  bool // the samples of the other pods count in full
	}{
		"nothing is missing":                 {pod: running, samples: both},
		"the pod is not in the answer":       {pod: running, want: both, named: "pod web-1: no usage reported"},
		"one container is not":               {pod: running, samples: []string{"app"}, want: []string{"sidecar"}, named: "pod web-1: container sidecar has no usage reported"},
		"the pod is refused":                 {pod: running, refused: []usage.Refused{{Pod: "web-1", Why: usage.Stale}}, want: both, named: "pod web-1: the reported sample is too old"},
		"one container is refused":           {pod: running, samples: []string{"app"}, refused: []usage.Refused{{Pod: "web-1", Container: "sidecar", Why: usage.NotANumber}}, want: []string{"sidecar"}, named: "pod web-1: container sidecar: the reported usage is not a number"},
		"a second item about it":             {pod: running, samples: both, refused: []usage.Refused{{Pod: "web-1", Why: usage.Duplicate}}},
		"the pod is of an older ReplicaSet":  {pod: with(func(p *workload.Pod) { p.Current = false }), want: both, named: "pod web-1: no usage reported"},
		"the pod is pending":                 {pod: with(func(p *workload.Pod) { p.Running = false })},
		"the pod has ended":                  {pod: with(func(p *workload.Pod) { p.Running, p.Ended = false, true })},
		"the pod terminates":                 {pod: with(func(p *workload.Pod) { p.Terminating, p.GraceEnds = true, noon.Add(time.Hour) }), want: both},
		"the pod should have ended long ago": {pod: with(func(p *workload.Pod) { p.Terminating, p.GraceEnds = true, noon })},
		"the pod has just started":           {pod: with(func(p *workload.Pod) { p.Started = noon }), want: both, learns: true},
		"a sample of a new pod is refused":   {pod: with(func(p *workload.Pod) { p.Started = noon }), refused: []usage.Refused{{Pod: "web-1", Why: usage.Malformed}}, want: both, named: "pod web-1: the reported sample cannot be read"},
		"the container has just started":     {pod: with(func(p *workload.Pod) { p.Runs = []workload.Run{{Container: "app", Since: noon}} }), samples: both[1:], want: both[:1]},
		"the container runs":                 {pod: with(func(p *workload.Pod) { p.Runs = []workload.Run{{Container: "app", Since: p.Started}} }), samples: both[1:], want: both[:1], named: "pod web-1: container app has no usage reported"},
		"the container waits for its restart": {pod: with(func(p *workload.Pod) {
			p.Runs, p.BackingOff = []workload.Run{{Container: "app", Restarted: true}}, both[:1]
		}), samples: both[1:], want: both[:1], named: "pod web-1: container app has no usage reported"},
	} {
		t.Run(name, func(t *testing.T) {
			other := podUsage{Pod: with(func(p *workload.Pod) { p.Name, p.UID = "other", "2" }), samples: []usage.Sample{{Container: "app"}, {Container: "sidecar"}}}
			pod := podUsage{Pod: tc.pod, refused: tc.refused}
			for _, container := range tc.samples {
				pod.samples = append(pod.samples, usage.Sample{Pod: "web-1", Container: container})
			}
			want := map[string]bool{}
			for _, container := range tc.want {
				want[container] = !tc.learns
			}
			maps.DeleteFunc(want, func(_ string, isSilent bool) bool { return !isSilent })
			var s silences
			for range outageAfter {
				if got := s.String(); got != "" {
					t.Errorf("named too early: %q", got)
				}
				var silent map[string]bool
				s, silent = s.next([]podUsage{other, pod}, noon, false)
				assert.Equal(t, "silent", want, silent)
			}
			if len(s) != len(tc.want) || s.String() != tc.named {
				t.Errorf("%d silent containers, named %q, want %d, %q", len(s), s, len(tc.want), tc.named)
			}
		})
	}
}

func TestOfManySilentPodsThreeAreNamed(t *testing.T) {
	s := silences{}
	for _, pod := range []string{"web-5", "web-4", "web-3", "web-1", "web-2"} {
		s[containerID{pod: types.UID(pod)}] = silence{pod: pod, why: "no usage reported", isNamed: true}
	}
	if got, want := s.String(), "pod web-1: no usage reported; pod web-2: no usage reported; pod web-3: no usage reported; and more"; got != want {
		t.Errorf("named %q, want %q", got, want)
	}
}

// webPods are pods of one container, of current and older ReplicaSets.
func webPods(n int) (pods []workload.Pod) {
	for i := range n {
		pods = append(pods, workload.Pod{
			Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprint(i)), Running: true, Current: i%2 == 0, Started: noon.Add(-30 * 24 * time.Hour),
			Containers: []workload.Container{{Name: "app"}},
		})
	}
	return pods
}

// deploymentUsage is the usage of pods, and what was learned of it.
type deploymentUsage struct {
	t       *testing.T
	store   *checkpoint.Store
	vs      *v1beta1.VerticalScaler
	pods    []workload.Pod
	now     time.Time
	silence silences
	params  recommend.Params
	// published is the last recommendation.
	published *recommend.Container
}

// step is the time between two rounds. Time passes as far as that after a gap, too.
const step = time.Minute

// In each round, one of many pods is new, and has no usage yet. The usage of the others counts.
func TestAPodThatIsAlwaysNewDoesNotStopTheLearning(t *testing.T) {
	const pods, rounds = 50, 60
	d := newDeploymentUsage(t, pods)
	cpu := make([]int64, pods)
	for i := range cpu {
		cpu[i] = 50
	}
	for round := range rounds {
		fresh := round % pods
		d.pods[fresh] = workload.Pod{
			Name: fmt.Sprintf("web-%d-%d", fresh, round), UID: types.UID(fmt.Sprint("new-", round)), Running: true, Current: true, Started: d.now,
			Containers: []workload.Container{{Name: "app"}},
		}
		d.round(cpu, func(i int) bool { return i == fresh })
	}
	if got := d.observed(); got < (rounds-2)*time.Minute {
		t.Errorf("in %d rounds, %s were observed", rounds, got)
	}
}

func newDeploymentUsage(t *testing.T, pods int) *deploymentUsage {
	t.Helper()
	params := recommend.DefaultParams()
	params.History.MaxGap, params.History.MemoryWindow = step, 64*time.Minute
	// Usage is forgotten 72 times as fast, so that two hours are evidence enough to lower.
	params.History.CPUHalfLife, params.History.RecentHalfLife = time.Hour, 20*time.Second
	params.FullEvidence, params.ConfidenceUnit = time.Hour, time.Second
	d := &deploymentUsage{
		t: t, pods: webPods(pods), now: noon, params: params,
		store: &checkpoint.Store{Client: fake.NewClientBuilder().WithScheme(objects.Scheme()).Build(), Params: params.History},
		vs:    &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "web"}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: "web"}},
	}
	must.Succeed(t, d.store.Load(t.Context(), d.vs, d.now))
	return d
}

// round makes a round in which pod i uses cpu[i] millicores and as many MiB, unless it is silent.
func (d *deploymentUsage) round(cpu []int64, silent func(i int) bool) {
	d.t.Helper()
	d.now = d.now.Add(step)
	samples := map[string][]usage.Sample{}
	for i, pod := range d.pods {
		if silent == nil || !silent(i) {
			samples[pod.Name] = []usage.Sample{{Pod: pod.Name, Container: "app", Time: d.now, Window: step, CPUMillis: cpu[i], MemoryBytes: cpu[i] * mebi}}
		}
	}
	used := usageOf(&d.vs.Spec, d.pods, samples, nil)
	after, silentNow := d.silence.next(used, d.now, false)
	d.silence = after
	if !d.store.Feed(d.vs, newSamples(used, nil, silentNow), func(h history.Histories) {
		if rec, ok := recommend.For("app", h["app"], recommend.Policy{CPU: true, Memory: true}, d.published, d.params); ok {
			d.published = &rec
		}
	}) {
		d.t.Fatal("the history is not loaded")
	}
}

// observed is the observed time so far.
func (d *deploymentUsage) observed() (observed time.Duration) {
	d.store.With(types.NamespacedName{Namespace: "shop", Name: "web"}, func(h history.Histories) { observed = h["app"].Observed() })
	return observed
}

// expectNotLower fails if a target is lower than before.
func (d *deploymentUsage) expectNotLower(before recommend.Container, what string) {
	d.t.Helper()
	if now := d.published.Target; now.CPUMillis < before.Target.CPUMillis || now.MemoryBytes < before.Target.MemoryBytes {
		d.t.Fatalf("%s: the target falls from %+v to %+v", what, before.Target, now)
	}
}

// For every subset of silent pods, and in every order of rounds, no target falls while a pod is
// silent, and no time is observed. A hot pod that is silent keeps its size however long that takes.
func TestNoSubsetOfSilentPodsLowersATarget(t *testing.T) {
	const pods = 4
	cpu := []int64{900, 50, 60, 400}
	all := 1<<pods - 1
	// Events after two hours in which all pods have reported: the pods that are silent in each
	// round, and cold pods, as seen by rounds that read only the others.
	orders := map[string][]int{}
	for subset := 1; subset <= all; subset++ {
		for length := range 3 {
			for order := range 1 << length {
				var rounds []int
				for i := range length {
					rounds = append(rounds, subset*(order>>i&1))
				}
				orders[fmt.Sprintf("pods %04b, %v, and for long", subset, rounds)] = append(rounds, long(subset)...)
			}
		}
	}
	random := rand.New(rand.NewPCG(12, 1))
	for i := range 60 {
		var rounds []int
		for range 120 {
			rounds = append(rounds, random.IntN(all+1)*random.IntN(2))
		}
		orders[fmt.Sprintf("random order %d", i)] = rounds
	}
	for name, rounds := range orders {
		t.Run(name, func(t *testing.T) {
			d := newDeploymentUsage(t, pods)
			for range 120 {
				d.round(cpu, nil)
			}
			for i, subset := range rounds {
				isSilent := func(pod int) bool { return subset>>pod&1 == 1 }
				before, observed := *d.published, d.observed()
				d.round(cpu, isSilent)
				if subset == 0 {
					continue
				}
				d.expectNotLower(before, fmt.Sprintf("round %d, silent %04b", i, subset))
				if got := d.observed(); got != observed {
					t.Fatalf("round %d, silent %04b: %v are observed, and were %v", i, subset, got, observed)
				}
			}
		})
	}
}

// long is a silence that outlasts the windows of CPU and memory.
func long(subset int) []int {
	rounds := make([]int, 90)
	for i := range rounds {
		rounds[i] = subset
	}
	return rounds
}

// After a silence, the targets are at least what they are without the silent rounds, and they still
// fall with the usage of all pods.
func TestAfterASilenceTargetsAreAsHighAsWithout(t *testing.T) {
	hot, cold := []int64{900, 50, 60, 400}, []int64{40, 50, 60, 40}
	for subset := 1; subset < 16; subset++ {
		t.Run(fmt.Sprintf("pods %04b", subset), func(t *testing.T) {
			with, without := newDeploymentUsage(t, 4), newDeploymentUsage(t, 4)
			for range 120 {
				with.round(hot, nil)
				without.round(hot, nil)
			}
			for range 90 {
				with.round(cold, func(pod int) bool { return subset>>pod&1 == 1 })
				without.now = without.now.Add(step) // without reads
			}
			for i := range 240 {
				with.round(cold, nil)
				without.round(cold, nil)
				with.expectNotLower(*without.published, fmt.Sprintf("%d rounds after the silence, compared with no silence", i+1))
			}
			if with.published.Target.CPUMillis >= 900 {
				t.Errorf("four hours of little usage of all pods lower nothing: %+v", with.published.Target)
			}
		})
	}
}

// A pod that is silent in some rounds is named once, and not in each of them.
func TestAFlappingPodIsReportedOnce(t *testing.T) {
	w := newWebFixture(t, "web-1", "web-2")
	w.reports("shop", "web-2", "app", 200, 400*mebi)
	for i := range 40 {
		if i%2 == 0 {
			delete(w.samples["shop"], [2]string{"web-1", "app"})
		} else {
			w.reports("shop", "web-1", "app", 200, 400*mebi)
		}
		w.round()
		w.expectSilent("shop", "web", true)
	}
	w.expectWoken("shop/web")
	w.expectProblems("shop", "web", Problems{Incomplete: "pod web-1: no usage reported"})
}

// A new pod is silent at first. Nothing is lowered meanwhile, and from its first sample on nothing
// waits for it.
func TestANewPodIsHeardOnce(t *testing.T) {
	w := newCollectorFixture(t)
	set := w.deployment("shop", "web", "web-1")
	w.scaler("shop", "web", "web")
	w.reports("shop", "web-1", "app", 200, 400*mebi)
	w.round()
	w.expectSilent("shop", "web", false)
	w.pod("shop", "web-2", set, func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: w.clock.Now()} })
	w.round()
	w.expectSilent("shop", "web", true)
	w.round()
	w.expectWoken()
	w.reports("shop", "web-2", "app", 200, 400*mebi)
	w.round()
	w.expectWoken("shop/web") // it has waited
	w.expectSilent("shop", "web", false)
}

// Before the first round, for example after a restart, nothing is known of any pod. Scalers that
// wait for it are reconciled after the first round.
func TestBeforeTheFirstRoundUsageIsMissing(t *testing.T) {
	w := newWebFixture(t, "web-1")
	w.reports("shop", "web-1", "app", 200, 400*mebi)
	w.expectSilent("shop", "web", true)
	w.round()
	w.expectWoken("shop/web")
	w.expectSilent("shop", "web", false)
	w.round()
	w.expectWoken()
}

// If usage of nearly all pods is missing, that is reported once, and the problems of scalers stay as they were.
func TestMetricsThatAreDownAreOneFact(t *testing.T) {
	for _, fails := range []bool{true, false} {
		w := newCollectorFixture(t)
		w.collector.Missing = &atomic.Bool{}
		names := []string{"api", "batch", "web", "worker"}
		for _, name := range names {
			w.deployment("shop", name, name+"-1", name+"-2")
			w.scaler("shop", name, name)
		}
		w.scaler("shop", "idle", "nothing") // has no pods
		hear := func(silent string) {
			w.samples = map[string]map[[2]string]usage.Sample{}
			for _, name := range names {
				w.reports("shop", name+"-2", "app", 200, 400*mebi)
				if name != silent {
					w.reports("shop", name+"-1", "app", 200, 400*mebi)
				}
			}
		}
		hear("web")
		w.rounds(outageAfter)
		w.expectWoken("shop/web")
		before := Problems{Incomplete: "pod web-1: no usage reported"}
		w.expectProblems("shop", "web", before)

		w.samples = nil
		if fails {
			w.fails["shop"] = func() error { return apierrors.NewServiceUnavailable("down") }
		}
		w.rounds(outageAfter - 1)
		if w.collector.Missing.Load() {
			t.Errorf("fails %v: a short restart is an outage", fails)
		}
		w.rounds(10)
		w.expectWoken()
		w.expectProblems("shop", "web", before)
		w.expectProblems("shop", "api", Problems{})
		w.expectSilent("shop", "api", true)
		if !w.collector.Missing.Load() {
			t.Errorf("fails %v: no scaler is triggered", fails)
		}

		delete(w.fails, "shop")
		hear("api")
		w.round()
		w.rounds(outageAfter)
		if w.expectProblems("shop", "api", Problems{Incomplete: "pod api-1: no usage reported"}); w.collector.Missing.Load() {
			t.Errorf("fails %v: metrics are still down", fails)
		}
		w.expectProblems("shop", "worker", Problems{})
	}
}

// Metrics whose times are all wrong are not down: each scaler reports that clocks differ.
func TestEachScalerReportsThatClocksDiffer(t *testing.T) {
	w := newCollectorFixture(t)
	w.collector.Missing = &atomic.Bool{}
	names, items := []string{"api", "batch", "web"}, []usage.Refused(nil)
	for _, name := range names {
		w.deployment("shop", name, name+"-1")
		w.scaler("shop", name, name)
		items = append(items, usage.Refused{Pod: name + "-1", Why: usage.FromTheFuture, Time: w.clock.Now().Add(2 * time.Hour)})
	}
	w.refuses("shop", items...)
	w.rounds(2 * outageAfter)
	for _, name := range names {
		w.expectProblems("shop", name, Problems{Outage: "all usage is 2h0m0s ahead: the clocks of the operator and of the metrics server or its nodes differ"})
	}
}
