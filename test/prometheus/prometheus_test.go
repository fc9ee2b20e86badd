// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

// Package prometheus tests with a real Prometheus. It starts Debian's package as a process,
// with days of usage that promtool has written. The operator runs against a real API
// server.
package prometheus

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	source "github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
	"github.com/verticalscaler/verticalscaler-operator/test/prometheus/internal/realprometheus"
)

const (
	// soon is the timeout of every wait, long enough for a busy machine.
	soon = 2 * time.Minute
	mebi = int64(1) << 20
	// days is the length of the past usage.
	days = 5
)

var (
	env *testkit.Env
	// prometheus is the address of the real Prometheus.
	prometheus *url.URL
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "verticalscaler-prometheus-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir) //nolint:errcheck // a folder for temporary files
		server, err := startPrometheus(dir)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Stop(10 * time.Second)
		if prometheus, err = url.Parse(server.Address); err != nil {
			panic(err)
		}
		// The recorded data in Prometheus is about one even pod. The clock of its node must be right.
		return testkit.Main(m, &env)
	}())
}

// startPrometheus starts a Prometheus with the usage of the Deployment web for all
// namespaces of tests.
func startPrometheus(dir string) (*realprometheus.Prometheus, error) {
	metrics := filepath.Join(dir, "metrics")
	if err := write(metrics, time.Now()); err != nil {
		return nil, fmt.Errorf("writing the usage of days: %w", err)
	}
	data := filepath.Join(dir, "data")
	if out, err := exec.Command("promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", metrics, data).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("making Prometheus's data: %w: %s", err, out)
	}
	return realprometheus.Run(dir, map[string]any{})
}

// past is the namespace in Prometheus's data. Queries replace the test's namespace by it.
const past = "past"

// write writes the usage of two successive pods of web, with a memory peak of one minute,
// one day after the first sample. It also writes usage of other pods, which the operator
// must ignore.
func write(path string, now time.Time) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(f)
	now = now.Truncate(time.Minute)
	start, change := now.Add(-days*24*time.Hour), now.Add(-2*24*time.Hour)
	peak := start.Add(24 * time.Hour).Truncate(5 * time.Minute).Add(2 * time.Minute) // inside of one interval
	series := []struct {
		pod, container, namespace string
		from, to                  time.Time
		cores                     float64
		bytes                     int64
	}{
		{"web-7c9b5d8f44-x2z9k", "app", past, start, change, 0.2, 300 * mebi},
		{"web-5d4f8b9c4-bcdfg", "app", past, change, now, 0.2, 300 * mebi},
		{"web-5d4f8b9c4-bcdfg", "", past, change, now, 7, 7000 * mebi},
		{"web-5d4f8b9c4-bcdfg", "POD", past, change, now, 7, 7000 * mebi},
		{"web-db-x2z9k", "app", past, start, now, 8, 8000 * mebi},
		{"web-api-5d4f8b9c4-bcdfg", "app", past, start, now, 9, 9000 * mebi},
		{"web-5d4f8b9c4-bcdfg", "app", "elsewhere", start, now, 9, 9000 * mebi},
	}
	for _, name := range []string{"container_cpu_usage_seconds", "container_memory_working_set_bytes"} {
		isCPU := name == "container_cpu_usage_seconds"
		kind := "gauge"
		if isCPU {
			kind = "counter"
		}
		fmt.Fprintf(out, "# TYPE %s %s\n", name, kind)
		for _, s := range series {
			for at := s.from; at.Before(s.to); at = at.Add(time.Minute) {
				labels := fmt.Sprintf("{namespace=%q,pod=%q,container=%q}", s.namespace, s.pod, s.container)
				value := s.bytes
				if isCPU {
					fmt.Fprintf(out, "%s_total%s %g %d\n", name, labels, s.cores*at.Sub(s.from).Seconds(), at.Unix())
					continue
				}
				if s.container == "app" && at.Equal(peak) && s.pod == "web-7c9b5d8f44-x2z9k" {
					value = 900 * mebi
				}
				fmt.Fprintf(out, "%s%s %d %d\n", name, labels, value, at.Unix())
			}
		}
	}
	writeSizes(out, start, change, now)
	fmt.Fprintln(out, "# EOF")
	return errors.Join(out.Flush(), f.Close())
}

// writeSizes writes the metrics of kube-state-metrics about the same pods, about a failed pod that
// is not deleted, and about pods of other Deployments. It also writes the operator's metrics about
// its scalers. The second pod of web has half the CPU and no limit.
func writeSizes(out io.Writer, start, change, now time.Time) {
	const first, second, failed, other = "web-7c9b5d8f44-x2z9k", "web-5d4f8b9c4-bcdfg", "web-5d4f8b9c4-zzzzz", "web-api-5d4f8b9c4-bcdfg"
	type series struct {
		labels   string
		from, to time.Time
		value    string
	}
	declares := func(pod, container, resource string, from, to time.Time, value string) series {
		return series{fmt.Sprintf("namespace=%q,pod=%q,container=%q,resource=%q", past, pod, container, resource), from, to, value}
	}
	var phases []series
	for pod, phase := range map[string]string{first: "Running", second: "Running", failed: "Failed", other: "Running"} {
		for _, other := range []string{"Pending", "Running", "Succeeded", "Failed", "Unknown"} {
			value := "0"
			if other == phase {
				value = "1"
			}
			phases = append(phases, series{fmt.Sprintf("namespace=%q,pod=%q,phase=%q", past, pod, other), start, now, value})
		}
	}
	kills := func(pod, container, id string, count int) series {
		return series{fmt.Sprintf("namespace=%q,pod=%q,container=%q,id=%q", past, pod, container, id), now.Add(-time.Hour), now, fmt.Sprint(count)}
	}
	reports := func(scaler, value string) series {
		return series{fmt.Sprintf(`namespace="operators",container="manager",target_namespace=%q,scaler=%q,target_container="app",resource="cpu"`, past, scaler), start, now, value}
	}
	for _, family := range []struct {
		name string
		all  []series
	}{
		{"kube_pod_container_resource_requests", []series{
			declares(first, "app", "cpu", start, change, "1"), declares(second, "app", "cpu", change, now, "0.5"),
			declares(failed, "app", "cpu", start, now, "7"), declares(other, "app", "cpu", start, now, "9"),
		}},
		{"kube_pod_init_container_resource_requests", []series{declares(second, "mesh", "cpu", change, now, "0.05")}},
		{"kube_pod_container_resource_limits", []series{declares(first, "app", "memory", start, change, "1073741824")}},
		{"kube_pod_status_phase", phases},
		{"container_oom_events_total", []series{ // of a container before and after its restart, one without a kill, and a pod
			kills(second, "app", "1", 2), kills(second, "app", "2", 0), kills(second, "log", "1", 0), kills(second, "", "1", 5), kills(other, "app", "1", 1),
		}},
		{"verticalscaler_container_request", []series{reports("web", "0.7"), reports("late", "0.3")}},
	} {
		kind, name := "gauge", family.name
		if total, isCounter := strings.CutSuffix(name, "_total"); isCounter {
			kind, name = "counter", total
		}
		fmt.Fprintf(out, "# TYPE %s %s\n", name, kind)
		for _, s := range family.all {
			for at := s.from; at.Before(s.to); at = at.Add(time.Minute) {
				fmt.Fprintf(out, "%s{%s} %s %d\n", family.name, s.labels, s.value, at.Unix())
			}
		}
	}
}

// way is a proxy of the real Prometheus. It translates the test's namespace into that of
// the data, and back in responses, counts queries about time ranges, and can inject errors.
type way struct {
	*httptest.Server

	mu      sync.Mutex
	queries int
	spoil   http.HandlerFunc
}

func newWay(t *testing.T, namespace string, spoil http.HandlerFunc) *way {
	t.Helper()
	w := &way{spoil: spoil}
	proxy := httputil.NewSingleHostReverseProxy(prometheus)
	proxy.ModifyResponse = func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		body = bytes.ReplaceAll(body, fmt.Appendf(nil, "\"namespace\":%q", past), fmt.Appendf(nil, "\"namespace\":%q", namespace))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Del("Content-Length")
		return err
	}
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		if strings.HasSuffix(r.URL.Path, "/query_range") {
			w.queries++
		}
		spoil := w.spoil
		w.mu.Unlock()
		if spoil != nil {
			spoil(rw, r)
			return
		}
		form := r.Form
		form.Set("query", strings.ReplaceAll(form.Get("query"), fmt.Sprintf("namespace=%q", namespace), fmt.Sprintf("namespace=%q", past)))
		body := form.Encode()
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		proxy.ServeHTTP(rw, r)
	}))
	t.Cleanup(w.Close)
	return w
}

func (w *way) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.queries
}

func (w *way) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spoil = nil
}

// fixture is a namespace with the Deployment web and its scaler.
type fixture struct {
	*testing.T
	namespace string
	usage     *testkit.Usage
	config    operatorconfig.Operator
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	w := &fixture{T: t, namespace: env.Namespace(t), usage: testkit.NewUsage(), config: testkit.OperatorConfig()}
	return w
}

// scale creates the Deployment, a pod of it with low current usage, and the scaler.
func (w *fixture) scale() {
	w.Helper()
	d := testkit.Deployment(w.namespace, "web")
	env.Create(w, d)
	pod, err := env.Run(w.Context(), d)
	must.Succeed(w, err)
	w.usage.Set(w.namespace, pod.Name, "app", 100, 100*mebi)
	env.Create(w, testkit.Scaler(w.namespace, "web", "web"))
}

// recommends waits for a recommendation based on at least that much observed time, and
// returns it.
func (w *fixture) recommends(atLeast time.Duration) (rec v1beta1.ContainerRecommendation) {
	w.Helper()
	testkit.Eventually(w.T, soon, func() string {
		s := w.scaler()
		if s.Status.Recommendation == nil || len(s.Status.Recommendation.ContainerRecommendations) != 1 {
			return fmt.Sprintf("there is no recommendation: %+v", s.Status.Conditions)
		}
		rec = s.Status.Recommendation.ContainerRecommendations[0]
		if got := time.Duration(rec.ObservedSeconds) * time.Second; got < atLeast {
			return fmt.Sprintf("it rests on %s", got)
		}
		return ""
	})
	return rec
}

func (w *fixture) scaler() v1beta1.VerticalScaler {
	w.Helper()
	var s v1beta1.VerticalScaler
	must.Succeed(w, env.Client.Get(w.Context(), types.NamespacedName{Namespace: w.namespace, Name: "web"}, &s))
	return s
}

func (w *fixture) start() *testkit.Operator {
	w.Helper()
	return env.StartOperator(w.T, w.config, w.usage, w.namespace)
}

// Usage is collected once in this test, so that the operator can only learn from
// Prometheus.
func TestTheFirstRecommendationRestsOnDays(t *testing.T) {
	w := newFixture(t)
	way := newWay(t, w.namespace, nil)
	w.config.Prometheus.Address = way.URL
	w.scale()
	began := time.Now()
	operator := w.start()
	rec := w.recommends(0) // the first one
	t.Logf("after %s and %d queries: %s observed, target %v, reasons %+v", time.Since(began).Round(time.Millisecond), way.asked(),
		time.Duration(rec.ObservedSeconds)*time.Second, rec.Target, rec.Reasons)
	if got := time.Duration(rec.ObservedSeconds) * time.Second; got < (days*24-1)*time.Hour || got > (days*24+1)*time.Hour {
		t.Errorf("the first recommendation rests on %s, want %d days", got, days)
	}
	between(t, "memory", *rec.Target.Memory, "900Mi", "1300Mi") // the peak of one minute, four days ago
	between(t, "cpu", *rec.Target.CPU, "190m", "300m")
	if n := way.asked(); n != 64 {
		t.Errorf("%d queries for 8 days, want 64", n)
	}

	// After a restart, the operator restores the checkpoint and sends no queries.
	var checkpoint v1beta1.VerticalScalerCheckpoint
	testkit.Eventually(t, soon, func() string {
		if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: "web"}, &checkpoint); err != nil {
			return err.Error()
		}
		if checkpoint.Annotations["autoscaling.verticalscaler.io/filled"] != "true" {
			return fmt.Sprintf("the checkpoint does not say that it was filled: %v", checkpoint.Annotations)
		}
		return ""
	})
	operator.Stop(t)
	w.config.Collection.Interval.Duration = 100 * time.Millisecond
	until := w.usage.Rounds(w.namespace) + 50 // five seconds: the operator retries every two
	w.start()
	testkit.Eventually(t, soon, func() string {
		if n := w.usage.Rounds(w.namespace); n < until {
			return fmt.Sprintf("%d rounds of %d", n, until)
		}
		return ""
	})
	if n := way.asked(); n != 64 {
		t.Errorf("%d more queries after a restart", n-64)
	}
	w.recommends(days*24*time.Hour - time.Hour)
}

// TestOOMEvents: a container that was restarted has two series for some minutes.
func TestOOMEvents(t *testing.T) {
	s, err := source.New(source.Options{Address: prometheus.String(), Step: time.Minute, RateWindow: 5 * time.Minute, Timeout: 20 * time.Second, MaxBytes: 4 << 20})
	must.Succeed(t, err)
	for _, namespaces := range [][]string{nil, {past}} {
		got := map[usage.Container]int{}
		err := s.OOMEvents(t.Context(), namespaces, time.Now(), func(of usage.Container, kills int) { got[of] = kills })
		want := map[usage.Container]int{{Namespace: past, Pod: "web-5d4f8b9c4-bcdfg", Name: "app"}: 2, {Namespace: past, Pod: "web-api-5d4f8b9c4-bcdfg", Name: "app"}: 1}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("in %v: %v, %v; want %v", namespaces, got, err, want)
		}
	}
}

// While Prometheus cannot be reached, the operator learns without it, reports the problem, and retries.
func TestTroubleWithPrometheusDelaysNothing(t *testing.T) {
	w := newFixture(t)
	way := newWay(t, w.namespace, func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_ = c.Close()
		}
	})
	w.config.Prometheus.Address = way.URL
	w.config.Collection.Interval.Duration = 100 * time.Millisecond
	w.scale()
	w.start()
	rec := w.recommends(0)
	if got := time.Duration(rec.ObservedSeconds) * time.Second; got > time.Hour {
		t.Errorf("the first recommendation rests on %s", got)
	}
	// isAboutPrometheus reports whether the condition is about Prometheus.
	isAboutPrometheus := func(want bool) {
		t.Helper()
		testkit.Eventually(t, soon, func() string {
			s := w.scaler()
			c := meta.FindStatusCondition(s.Status.Conditions, "RecommendationProvided")
			if c == nil || c.Status != "True" || strings.Contains(c.Message, "Prometheus: the server cannot be reached") != want {
				return fmt.Sprintf("RecommendationProvided is %+v", c)
			}
			if r := meta.FindStatusCondition(s.Status.Conditions, "Ready"); r == nil || r.Status != "True" {
				return fmt.Sprintf("Ready is %+v", r)
			}
			return ""
		})
	}
	isAboutPrometheus(true)
	way.mend()
	w.recommends((days*24 - 1) * time.Hour)
	isAboutPrometheus(false)
}

// The dashboard plots the requests and limits that the pods had at the time.
func TestTheDashboardsPast(t *testing.T) {
	s, err := source.New(source.Options{Address: prometheus.String(), Step: 38 * time.Minute, RateWindow: 38 * time.Minute, Timeout: 20 * time.Second, MaxBytes: 4 << 20})
	must.Succeed(t, err)
	now := time.Now()
	read := func(deployment string) source.Sizes {
		t.Helper()
		sizes, err := s.Sizes(t.Context(), source.Target{Namespace: past, Deployment: deployment, Containers: []string{"app", "mesh"}, Scaler: deployment}, now.Add(-8*24*time.Hour), now)
		must.Succeed(t, err)
		return sizes
	}
	const gibi = int64(1) << 30
	of := func(millis int64) source.Amount { return source.Amount{Least: millis, Most: millis} }
	web := read("web")
	if !web.HasRequests || !web.HasLimits {
		t.Errorf("requests %t, limits %t", web.HasRequests, web.HasLimits)
	}
	seen := map[string]int{}
	for at, size := range web.At[source.Of{Container: "app", Resource: "cpu"}] {
		age := now.Sub(at)
		seen[fmt.Sprint(size.Request)]++
		switch memory := web.At[source.Of{Container: "app", Resource: "memory"}][at]; {
		case age > 49*time.Hour && (size.Request != of(1000) || memory.Limit != of(gibi)):
			t.Errorf("%s ago: %+v, memory %+v", age, size, memory)
		case age < 47*time.Hour && (size.Request != of(500) || memory.Limit != of(source.None)):
			t.Errorf("%s ago: %+v, memory %+v", age, size, memory)
		}
	}
	if whole := days * 24 * 60 / 38; seen["{1000 1000}"] < whole/2 || seen["{500 500}"] < whole/3 {
		t.Errorf("points by request: %v", seen)
	}
	if n := len(web.At[source.Of{Container: "mesh", Resource: "cpu"}]); n < 2*24*60/38-2 {
		t.Errorf("%d points of the native sidecar", n)
	}
	late := read("late")
	if points := late.At[source.Of{Container: "app", Resource: "cpu"}]; !late.HasRequests || late.HasLimits || len(points) < days*24*60/38-2 {
		t.Errorf("of the operator: requests %t, limits %t, %d points", late.HasRequests, late.HasLimits, len(points))
	}
	if none := read("nobody"); none.HasRequests || len(none.At) > 0 {
		t.Errorf("of nobody: %+v", none)
	}
}

func between(t *testing.T, what string, got resource.Quantity, least, most string) {
	t.Helper()
	if got.Cmp(resource.MustParse(least)) < 0 || got.Cmp(resource.MustParse(most)) > 0 {
		t.Errorf("%s is %s, not between %s and %s", what, got.String(), least, most)
	}
}
