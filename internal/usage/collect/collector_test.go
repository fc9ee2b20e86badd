// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/cached"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	mebi     = 1 << 20
	interval = 30 * time.Second
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestANamespaceIsAskedOncePerRound(t *testing.T) {
	w := newCollectorFixture(t)
	w.round()
	w.expectAsked() // without scalers

	for _, name := range []string{"a", "b", "c"} {
		w.scaler("shop", name, "web")
	}
	w.scaler("bank", "a", "ledger")
	w.deployment("idle", "web", "web-1") // a namespace without scalers
	w.round()
	w.expectAsked("bank", "shop")
	w.round()
	w.expectAsked("bank", "shop")
}

func TestOnlyScalersThatMovedAreWoken(t *testing.T) {
	w := newCollectorFixture(t)
	for _, name := range []string{"api", "web", "worker"} {
		w.deployment("shop", name, name+"-1")
		w.scaler("shop", name, name)
		w.reports("shop", name+"-1", "app", 200, 400*mebi)
	}
	w.round()
	w.expectWoken()
	w.publish("shop", "web", &v1beta1.Recommendation{})
	w.round()
	w.expectWoken("shop/web")
	w.publish("shop", "web", nil)
	w.round()
	w.expectWoken()
}

func TestNewSamplesCountForTheRecommendation(t *testing.T) {
	w := newCollectorFixture(t)
	w.deployment("shop", "web", "web-1")
	w.container("shop", "web", "app")
	vs := w.scaler("shop", "web", "web")
	w.collector.Params = recommend.DefaultParams()
	w.collector.Params.MinEvidence = 0
	recommended := func() (out *v1beta1.Recommendation) {
		w.collector.Histories.With(client.ObjectKeyFromObject(vs), func(histories history.Histories) {
			out = scaler.APIRecommendation(scaler.Recommendations(vs, workload.Deployment{Containers: []workload.Container{{Name: "app"}}}, nil, histories, nil, w.collector.Params))
		})
		return out
	}
	w.reports("shop", "web-1", "sidecar", 10, 20*mebi)
	w.round()
	w.expectWoken() // the Deployment's template has no such container
	w.reports("shop", "web-1", "app", 200, 400*mebi)
	w.round()
	w.expectWoken("shop/web")
	w.publish("shop", "web", recommended())
	w.round()
	w.expectWoken() // the status reports the history
	w.reports("shop", "web-1", "app", 200, 600*mebi)
	w.round()
	w.expectWoken("shop/web")
	w.publish("shop", "web", recommended())
	w.round()
	w.expectWoken()
}

// TestAThrottledStartWakesItsScaler: the pod gets more CPU in the same start.
func TestAThrottledStartWakesItsScaler(t *testing.T) {
	w := newCollectorFixture(t)
	w.deployment("shop", "web", "web-1")
	w.scaler("shop", "web", "web")
	since := w.clock.Now()
	app := workload.Container{Name: "app", Resources: workload.Resources{Requests: quantity.Amounts{CPUMillis: 100}, Limits: quantity.Amounts{CPUMillis: 200}}}
	w.collector.Pods = &storedPods{collectorFixture: w, pods: map[string][]workload.Pod{"shop/web": {{
		Name: "web-1", UID: "web-1", Running: true, Containers: []workload.Container{app}, ReadyChanged: since, Runs: []workload.Run{{Container: "app", Since: since}},
	}}}}
	for _, step := range []struct {
		used  int64
		woken []string
	}{{150, nil}, {200, []string{"shop/web"}}, {150, nil}} {
		w.clock.Step(time.Minute)
		w.reports("shop", "web-1", "app", step.used, 400*mebi)
		w.round()
		w.expectWoken(step.woken...)
	}
}

func TestAnOutageIsReportedOnce(t *testing.T) {
	w := newCollectorFixture(t)
	for _, name := range []string{"api", "web"} {
		w.deployment("shop", name, name+"-1")
		w.scaler("shop", name, name)
		w.reports("shop", name+"-1", "app", 200, 400*mebi)
	}
	w.deployment("bank", "ledger", "ledger-1")
	w.scaler("bank", "ledger", "ledger")
	w.reports("bank", "ledger-1", "app", 200, 400*mebi)
	w.round()
	w.expectWoken()
	before := w.history("shop", "web")

	// All scalers would be triggered again if the wording changed with the request.
	round := 0
	w.fails["shop"] = func() error {
		round++
		return apierrors.NewServiceUnavailable(fmt.Sprintf("dial tcp 10.0.0.%d:443: connection refused", round))
	}
	for range 2 {
		w.round()
		w.expectWoken()
		w.expectProblems("shop", "web", Problems{})
		w.expectSilent("shop", "api", true) // its reconcile waits for usage
	}
	w.round()
	w.expectWoken("shop/api", "shop/web")
	for range 10 {
		w.expectProblems("shop", "web", Problems{Outage: "metrics.k8s.io is unavailable: is metrics-server running?"})
		w.expectProblems("bank", "ledger", Problems{})
		w.round()
		w.expectWoken()
	}
	w.fails["shop"] = func() error { return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")) }
	w.rounds(2)
	w.expectWoken("shop/api", "shop/web") // another outage
	w.expectProblems("shop", "web", Problems{Outage: "the operator may not list pods.metrics.k8s.io"})
	assert.Equal(t, "the history after the outage", before, w.history("shop", "web"))

	delete(w.fails, "shop")
	w.round()
	w.expectWoken("shop/api", "shop/web")
	w.expectProblems("shop", "web", Problems{})
	w.rounds(recoveredAfter - 1)
	w.expectWoken("shop/api") // the source is trusted again
	w.round()
	w.expectWoken()
}

func TestFailuresCountInARow(t *testing.T) {
	w := newWebFixture(t, "web-1")
	w.reports("shop", "web-1", "app", 200, 400*mebi)
	for range 5 {
		for range 2 {
			w.fails["shop"] = func() error { return errors.New("EOF") }
			w.round()
		}
		delete(w.fails, "shop")
		w.round()
	}
	w.expectWoken()
	w.expectProblems("shop", "web", Problems{})
}

func TestOutagesReportWhatToDo(t *testing.T) {
	resource := schema.GroupResource{Group: "metrics.k8s.io", Resource: "pods"}
	for want, err := range map[string]error{
		"the operator may not list pods.metrics.k8s.io":                                 apierrors.NewForbidden(resource, "", errors.New("no")),
		"metrics.k8s.io is not served: is metrics-server installed?":                    apierrors.NewNotFound(resource, ""),
		"metrics.k8s.io is unavailable: is metrics-server running?":                     apierrors.NewServiceUnavailable("no endpoints"),
		"metrics.k8s.io does not answer as it should; the operator's log has the error": context.DeadlineExceeded,
	} {
		// As the source wraps them.
		if got := describeOutage(fmt.Errorf("reading the usage of namespace %q: %w", "shop", err)); got != want {
			t.Errorf("describeOutage(%v) = %q, want %q", err, got, want)
		}
	}
}

// If all samples of a namespace are refused for their time, its pods are not silent: the source fails. The message
// is the same in all rounds.
func TestUsageOfAnotherClockIsAnOutage(t *testing.T) {
	differ := "the clocks of the operator and of the metrics server or its nodes differ"
	for name, tc := range map[string]struct {
		ages       [2]time.Duration // of the usage of two pods
		drift      time.Duration    // of both in each round
		other      []usage.Refused
		outage     string
		incomplete bool
	}{
		"an hour ahead":            {ages: [2]time.Duration{-time.Hour, 40*time.Second - time.Hour}, outage: "all usage is 1h0m0s ahead: " + differ},
		"ahead by a scrape's age":  {ages: [2]time.Duration{-time.Hour, -time.Hour}, drift: 20 * time.Second, outage: "all usage is 1h0m0s ahead: " + differ},
		"an hour behind":           {ages: [2]time.Duration{time.Hour, time.Hour + 40*time.Second}, outage: "all usage is at least 1h0m0s old: " + differ + ", or the metrics server has stopped"},
		"a stopped metrics server": {ages: [2]time.Duration{5 * time.Minute, 5 * time.Minute}, drift: interval, outage: "all usage is at least 5m0s old: " + differ + ", or the metrics server has stopped"},
		"of two clocks":            {ages: [2]time.Duration{-time.Hour, time.Hour}, incomplete: true},
		"one is of another cause":  {ages: [2]time.Duration{-time.Hour, -time.Hour}, other: []usage.Refused{{Pod: "web-1", Why: usage.Malformed}}, incomplete: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWebFixture(t, "web-1", "web-2")
			w.reports("shop", "web-1", "app", 200, 400*mebi)
			w.reports("shop", "web-2", "app", 200, 400*mebi)
			w.round()
			before, samples := w.history("shop", "web"), w.samples["shop"]
			w.samples["shop"] = nil
			for i := range 3 * outageAfter {
				var items []usage.Refused
				for pod, age := range tc.ages {
					age += time.Duration(i) * tc.drift
					why := usage.Stale
					if age < 0 {
						why = usage.FromTheFuture
					}
					items = append(items, usage.Refused{Pod: fmt.Sprintf("web-%d", pod+1), Why: why, Time: w.clock.Now().Add(-age)})
				}
				w.refuses("shop", append(items, tc.other...)...)
				w.round()
				w.expectSilent("shop", "web", true)
			}
			w.expectWoken("shop/web")
			got := w.collector.ProblemsOf(types.NamespacedName{Namespace: "shop", Name: "web"})
			if got.Outage != tc.outage || (got.Incomplete != "") != tc.incomplete {
				t.Errorf("the problems are %+v", got)
			}
			assert.Equal(t, "the history", before, w.history("shop", "web"))
			w.refuses("shop")
			w.samples["shop"] = samples
			w.rounds(recoveredAfter)
			w.expectProblems("shop", "web", Problems{})
		})
	}
}

func TestARefusedItemCostsOnlyItself(t *testing.T) {
	w := newCollectorFixture(t)
	set := w.deployment("shop", "web", "web-2")
	w.pod("shop", "web-1", set, withSidecar)
	w.scaler("shop", "web", "web")
	w.reports("shop", "web-2", "app", 200, 400*mebi)
	w.refuses("shop",
		usage.Refused{Pod: "web-1", Container: "sidecar", Why: usage.TooLarge},
		usage.Refused{Pod: "web-1", Container: "app", Why: usage.NotANumber},
		usage.Refused{Pod: "web-1", Container: "app", Why: usage.NotANumber},
		usage.Refused{Pod: "other", Why: usage.Stale},
		usage.Refused{Why: usage.Malformed},
	)
	w.round()
	assert.Equal(t, "counted", map[string]int{"Used": 1, "NotANumber": 2, "TooLarge": 1, "Stale": 1, "Malformed": 1}, w.counted())
	w.rounds(outageAfter - 1)
	w.expectWoken("shop/web")
	w.expectProblems("shop", "web", Problems{Incomplete: "pod web-1: container app: the reported usage is not a number, container sidecar: the reported usage is implausibly large"})
	assert.Equal(t, "the sample of web-2 counts as evidence for more", map[string]seen{"app": {Peak: 400 * mebi}}, w.history("shop", "web"))
	w.round()
	w.expectWoken() // still the same

	w.refuses("shop")
	w.reports("shop", "web-1", "app", 200, 400*mebi)
	w.reports("shop", "web-1", "sidecar", 200, 400*mebi)
	w.rounds(backAfter - 1)
	w.expectWoken()
	w.round()
	w.expectWoken("shop/web")
	w.expectProblems("shop", "web", Problems{Recovering: "usage is back, and counts after 10 rounds in a row, in 5m0s"})
	w.rounds(recoveredAfter - backAfter - 1)
	w.expectWoken()
	w.round()
	w.expectWoken("shop/web")
	w.expectProblems("shop", "web", Problems{})
}

// The reads of a round grow with pods plus scalers, not with their product: each object is read
// once.
func TestARoundReadsEachPodOnce(t *testing.T) {
	for _, tc := range []struct{ namespaces, scalers, pods int }{
		{1, 1, 1}, {1, 5, 4}, {1, 40, 4}, {1, 5, 32}, {10, 4, 4},
	} {
		t.Run(fmt.Sprintf("%d pods of %d scalers in %d namespaces", tc.pods, tc.scalers, tc.namespaces), func(t *testing.T) {
			w := newCollectorFixture(t)
			want, stored := map[string]int{}, &storedPods{collectorFixture: w, pods: map[string][]workload.Pod{}}
			w.collector.Pods = stored
			for i := range tc.namespaces {
				namespace := fmt.Sprintf("ns-%d", i)
				for j := range tc.scalers {
					name := fmt.Sprintf("d-%d", j)
					want["*v1beta1.VerticalScaler "+namespace+"/"+name] = 1
					want["*v1.Deployment "+namespace+"/"+name] = 1
					var pods []string
					for k := range tc.pods {
						pod := fmt.Sprintf("%s-1-%d", name, k)
						stored.pods[namespace+"/"+name] = append(stored.pods[namespace+"/"+name], workload.Pod{
							Name: pod, UID: types.UID(pod), Running: true, Containers: []workload.Container{{Name: "app"}},
						})
						pods = append(pods, pod)
						w.reports(namespace, pod, "app", 200, 400*mebi)
						w.reports(namespace, pod, "sidecar", 10, 40*mebi)
					}
					want["pods of "+namespace+"/"+name] = 1
					w.deployment(namespace, name, pods...)
					w.scaler(namespace, name, name)
				}
			}
			// Scalers behind another one cost no more: that one sizes the Deployment.
			for j := range 3 {
				name := fmt.Sprintf("later-%d", j)
				want["*v1beta1.VerticalScaler ns-0/"+name] = 1
				w.create(&v1beta1.VerticalScaler{
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns-0", Name: name}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: "d-0"},
				})
			}
			w.reads, w.read = 0, map[string]int{}
			w.round()
			assert.Equal(t, "how often each was read", want, w.read)
			if got, want := w.reads, 1+tc.scalers*tc.namespaces; got != want {
				t.Errorf("%d requests to the cache, want %d: one, and one for each scaler", got, want)
			}
			if got := w.history("ns-0", "d-0")["app"].Samples; got != tc.pods {
				t.Errorf("a history has %d samples, want one of each pod: %d", got, tc.pods)
			}
		})
	}
}

// The source is asked more often than it measures, and may stand still for minutes.
func TestASampleCountsOnce(t *testing.T) {
	w := newWebFixture(t, "web-1", "web-2")
	w.reports("shop", "web-1", "app", 200, 400*mebi)
	w.reports("shop", "web-2", "app", 200, 400*mebi) // at the same moment, but another pod
	w.rounds(5)
	if got := w.history("shop", "web")["app"].Samples; got != 2 {
		t.Errorf("after five equal answers there are %d samples, want 2", got)
	}
	w.expectWoken() // an old sample is still a sample: nothing is missing

	w.reports("shop", "web-1", "app", 200, 400*mebi)
	w.round()
	if got := w.history("shop", "web")["app"].Samples; got != 3 {
		t.Errorf("after a new sample there are %d, want 3", got)
	}
	w.fails["shop"] = func() error { return errors.New("EOF") }
	w.round()
	delete(w.fails, "shop")
	w.round()
	if got := w.history("shop", "web")["app"].Samples; got != 3 {
		t.Errorf("after a lost answer in between there are %d samples, want 3", got)
	}
	old := w.samples["shop"][[2]string{"web-1", "app"}]
	delete(w.samples["shop"], [2]string{"web-1", "app"})
	w.round()
	w.samples["shop"][[2]string{"web-1", "app"}] = old
	w.round()
	if got := w.history("shop", "web")["app"].Samples; got != 3 {
		t.Errorf("after the pod was missing in between there are %d samples, want 3", got)
	}
}

func TestAScalerThatIsGoneIsForgotten(t *testing.T) {
	w := newCollectorFixture(t)
	w.deployment("shop", "web", "web-1")
	vs := w.scaler("shop", "web", "web")
	w.fails["shop"] = func() error { return errors.New("EOF") }
	w.rounds(3)
	w.expectWoken("shop/web")

	must.Succeed(t, w.client.Delete(t.Context(), vs))
	w.round()
	w.expectProblems("shop", "web", Problems{})
	if c := w.collector; len(c.known)+len(c.namespaces) != 0 {
		t.Errorf("still in memory: known %v, namespaces %v", c.known, c.namespaces)
	}

	// Its problems do not affect a new one.
	w.scaler("shop", "web", "web")
	w.round()
	w.expectWoken()
	w.expectProblems("shop", "web", Problems{})
}

func TestAScalerWithoutDeploymentWaits(t *testing.T) {
	w := newCollectorFixture(t)
	w.scaler("shop", "web", "web")
	w.publish("shop", "web", &v1beta1.Recommendation{})
	w.round()
	w.expectWoken()
	w.expectProblems("shop", "web", Problems{})
}

// Until the scaler's first pass has read the saved history, usage would go into a history that is
// about to be replaced.
func TestAScalerWhoseHistoryIsNotLoadedWaits(t *testing.T) {
	w := newCollectorFixture(t)
	w.deployment("shop", "web", "web-1")
	vs := w.scaler("shop", "web", "web")
	w.collector.Histories.Forget(client.ObjectKeyFromObject(vs))
	w.publish("shop", "web", &v1beta1.Recommendation{})
	w.round()
	w.expectWoken()
	w.expectProblems("shop", "web", Problems{})
	if n := w.collector.Histories.Len(); n != 0 {
		t.Errorf("the collector made %d histories of its own", n)
	}
}

func TestAnUnreadableCacheCostsTheRound(t *testing.T) {
	for name, kind := range map[string]client.ObjectList{
		"scalers": &v1beta1.VerticalScalerList{}, "ReplicaSets": &metav1.PartialObjectMetadataList{}, "pods": &corev1.PodList{},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWebFixture(t, "web-1")
			w.publish("shop", "web", &v1beta1.Recommendation{})
			w.unlistable = fmt.Sprintf("%T", kind)
			w.round()
			w.expectWoken()
			w.unlistable = ""
			w.round()
			w.expectWoken("shop/web")
		})
	}
}

func TestStartCollectsAtOnceAndOncePerInterval(t *testing.T) {
	w := newCollectorFixture(t)
	w.scaler("shop", "web", "web")
	if !w.collector.NeedLeaderElection() {
		t.Error("every replica would collect")
	}
	asked := make(chan time.Time)
	w.collector.Source = sourceFunc(func(now time.Time) { asked <- now })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.collector.Start(ctx) }()

	for i := range 4 {
		if got, want := <-asked, noon.Add(time.Duration(i)*interval); !got.Equal(want) {
			t.Errorf("round %d was at %v, want %v", i, got, want)
		}
		w.clock.Step(interval)
	}
	<-asked
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Start() = %v", err)
	}
}

// The queue may be full when the operator ends.
func TestNobodyToWakeDoesNotKeepTheOperatorAlive(t *testing.T) {
	w := newWebFixture(t, "web-1")
	w.publish("shop", "web", &v1beta1.Recommendation{})
	w.collector.Wake = make(chan event.GenericEvent) // without a reader
	ctx, cancel := context.WithCancel(t.Context())
	w.collector.Source = sourceFunc(func(time.Time) { cancel() })
	w.collector.Collect(ctx)
}

// collectorFixture is a cache, a source of usage and a clock.
type collectorFixture struct {
	mu         sync.Mutex // guards the fields that callbacks use
	t          *testing.T
	client     client.WithWatch
	unlistable string // the type of list that cannot be read
	clock      *clocktesting.FakeClock
	collector  *Collector
	wake       chan event.GenericEvent
	before     map[string]int // samples counted before, by outcome

	asked   []string
	reads   int            // requests to the cache
	read    map[string]int // reads of the cache, by type and name
	samples map[string]map[[2]string]usage.Sample
	refused map[string][]usage.Refused
	fails   map[string]func() error
}

func newCollectorFixture(t *testing.T) *collectorFixture {
	t.Helper()
	w := &collectorFixture{
		t: t, clock: clocktesting.NewFakeClock(noon), wake: make(chan event.GenericEvent, 100),
		samples: map[string]map[[2]string]usage.Sample{}, refused: map[string][]usage.Refused{},
		fails: map[string]func() error{}, read: map[string]int{},
	}
	builder := fake.NewClientBuilder().WithScheme(objects.Scheme())
	w.client = builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			w.hasRead(obj)
			return err
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if fmt.Sprintf("%T", list) == w.unlistable {
				return errors.New("the cache is broken")
			}
			err := c.List(ctx, list, opts...)
			items, _ := meta.ExtractList(list)
			w.hasRead(items...)
			return err
		},
	}).Build()
	w.collector = &Collector{
		Cached:    w.client,
		Pods:      cached.LivePods{Reader: w.client},
		Source:    w,
		Histories: &checkpoint.Store{Client: w.client, Params: history.DefaultParams()},
		Interval:  interval,
		Clock:     w.clock,
		Wake:      w.wake,
	}
	w.before = samplesCounted(t)
	return w
}

// newWebWorld has a scaler of the Deployment shop/web.
func newWebFixture(t *testing.T, pods ...string) *collectorFixture {
	t.Helper()
	w := newCollectorFixture(t)
	w.deployment("shop", "web", pods...)
	w.scaler("shop", "web", "web")
	return w
}

// counted is the number of samples counted since the start of the test, by outcome.
func (w *collectorFixture) counted() map[string]int {
	w.t.Helper()
	out := samplesCounted(w.t)
	for outcome, n := range w.before {
		if out[outcome] -= n; out[outcome] == 0 {
			delete(out, outcome)
		}
	}
	return out
}

func samplesCounted(t *testing.T) map[string]int {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must.Succeed(t, err)
	out := map[string]int{}
	for _, family := range families {
		if family.GetName() != "verticalscaler_samples_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			out[m.GetLabel()[0].GetValue()] = int(m.GetCounter().GetValue())
		}
	}
	return out
}

// publish writes a recommendation into the scaler's status. The Deployments have no
// containers, so their histories lead to none.
func (w *collectorFixture) publish(namespace, name string, recommendation *v1beta1.Recommendation) {
	w.t.Helper()
	var vs v1beta1.VerticalScaler
	must.Succeed(w.t, w.client.Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, &vs))
	vs.Status.Recommendation = recommendation
	must.Succeed(w.t, w.client.Update(w.t.Context(), &vs))
}

// container adds a container to a Deployment.
func (w *collectorFixture) container(namespace, deployment, name string) {
	w.t.Helper()
	var d appsv1.Deployment
	must.Succeed(w.t, w.client.Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: deployment}, &d))
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: name})
	must.Succeed(w.t, w.client.Update(w.t.Context(), &d))
}

// hasRead counts the objects in the answer to one request to the cache.
func (w *collectorFixture) hasRead(objects ...runtime.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	for _, o := range objects {
		if m, err := meta.Accessor(o); err == nil {
			w.read[fmt.Sprintf("%T %s/%s", o, m.GetNamespace(), m.GetName())]++
		}
	}
}

// storedPods knows the pods of Deployments, by namespace and name.
type storedPods struct {
	collectorFixture *collectorFixture
	pods             map[string][]workload.Pod
}

func (p *storedPods) Of(_ context.Context, d *appsv1.Deployment) ([]workload.Pod, error) {
	p.collectorFixture.mu.Lock()
	defer p.collectorFixture.mu.Unlock()
	key := client.ObjectKeyFromObject(d).String()
	p.collectorFixture.read["pods of "+key]++
	return p.pods[key], nil
}

// List is the source.
func (w *collectorFixture) List(_ context.Context, namespace string, _ time.Time) ([]usage.Sample, []usage.Refused, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, namespace)
	if fail := w.fails[namespace]; fail != nil {
		return nil, nil, fail()
	}
	var samples []usage.Sample
	for _, sample := range w.samples[namespace] {
		samples = append(samples, sample)
	}
	return samples, w.refused[namespace], nil
}

// sourceFunc is a source that reports when it was asked.
type sourceFunc func(now time.Time)

func (f sourceFunc) List(_ context.Context, _ string, now time.Time) ([]usage.Sample, []usage.Refused, error) {
	f(now)
	return nil, nil, nil
}

// reports makes the source report a container's usage of now from now on.
func (w *collectorFixture) reports(namespace, pod, container string, cpuMillis, memoryBytes int64) {
	if w.samples[namespace] == nil {
		w.samples[namespace] = map[[2]string]usage.Sample{}
	}
	w.samples[namespace][[2]string{pod, container}] = usage.Sample{
		Namespace: namespace, Pod: pod, Container: container, Time: w.clock.Now(), Window: time.Minute,
		CPUMillis: cpuMillis, MemoryBytes: memoryBytes,
	}
}

func (w *collectorFixture) refuses(namespace string, items ...usage.Refused) {
	w.refused[namespace] = items
}

// scaler makes a scaler whose first pass has loaded its history.
func (w *collectorFixture) scaler(namespace, name, deployment string) *v1beta1.VerticalScaler {
	w.t.Helper()
	vs := &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("scaler-" + name)},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: deployment},
	}
	scaler.RecordClaim(&vs.Status, scaler.Claim(vs))
	w.create(vs)
	must.Succeed(w.t, w.collector.Histories.Load(w.t.Context(), vs, w.clock.Now()))
	return vs
}

// deployment makes a Deployment, its ReplicaSet and running pods.
func (w *collectorFixture) deployment(namespace, name string, pods ...string) *appsv1.ReplicaSet {
	w.t.Helper()
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
		Spec:       appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	w.create(deployment)
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name + "-1", UID: types.UID(namespace + name + "-1"), Labels: map[string]string{"app": "web"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
	}}
	w.create(set)
	for _, pod := range pods {
		w.pod(namespace, pod, set, nil)
	}
	return set
}

// pod makes a pod that has been running for an hour. All pods have the same labels.
func (w *collectorFixture) pod(namespace, name string, set *appsv1.ReplicaSet, change func(*corev1.Pod)) {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, StartTime: ptr.To(metav1.NewTime(noon.Add(-time.Hour)))},
	}
	if set != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))}
	}
	if change != nil {
		change(pod)
	}
	going := pod.DeletionTimestamp != nil
	w.create(pod)
	if going {
		must.Succeed(w.t, w.client.Delete(w.t.Context(), pod))
	}
}

func (w *collectorFixture) create(obj client.Object) {
	w.t.Helper()
	must.Succeed(w.t, w.client.Create(w.t.Context(), obj))
}

// round makes a round, and lets the time pass until the next.
func (w *collectorFixture) round() {
	w.t.Helper()
	w.asked = nil
	w.collector.Collect(w.t.Context())
	w.clock.Step(interval)
}

func (w *collectorFixture) rounds(n int) {
	w.t.Helper()
	for range n {
		w.round()
	}
}

func (w *collectorFixture) expectAsked(want ...string) {
	w.t.Helper()
	slices.Sort(w.asked)
	assert.Equal(w.t, "asked about namespaces", want, w.asked)
}

// expectWoken compares the scalers that were to be reconciled since its last call.
func (w *collectorFixture) expectWoken(want ...string) {
	w.t.Helper()
	var got []string
	for len(w.wake) > 0 {
		e := <-w.wake
		got = append(got, client.ObjectKeyFromObject(e.Object).String())
	}
	slices.Sort(got)
	assert.Equal(w.t, "woken", want, got)
}

// expectProblems compares the reported problems. It does not count as reading them.
func (w *collectorFixture) expectProblems(namespace, name string, want Problems) {
	w.t.Helper()
	got := w.collector.known[types.NamespacedName{Namespace: namespace, Name: name}].Problems
	got.Silent = false
	assert.Equal(w.t, fmt.Sprintf("problems of %s/%s", namespace, name), want, got)
}

// expectSilent reads as a reconcile does whether usage is missing.
func (w *collectorFixture) expectSilent(namespace, name string, want bool) {
	w.t.Helper()
	if got := w.collector.ProblemsOf(types.NamespacedName{Namespace: namespace, Name: name}); got.Silent != want {
		w.t.Errorf("%s/%s: %+v, want silent %t", namespace, name, got, want)
	}
}

// withSidecar adds a container.
func withSidecar(p *corev1.Pod) {
	p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "sidecar"})
}

// seen is the content of a history.
type seen struct {
	Peak    int64
	Samples int
}

// history returns the content of the scaler's history, by container.
func (w *collectorFixture) history(namespace, name string) map[string]seen {
	w.t.Helper()
	out := map[string]seen{}
	w.collector.Histories.With(types.NamespacedName{Namespace: namespace, Name: name}, func(histories history.Histories) {
		for container, c := range histories {
			out[container] = seen{Peak: c.Peak(), Samples: int(c.Samples())}
		}
	})
	return out
}
