// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/bench/cluster"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/podmetrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// authorized is the answer to each question about rights.
var authorized = authorizationv1.SelfSubjectAccessReview{
	TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
	Status:   authorizationv1.SubjectAccessReviewStatus{Allowed: true},
}

// session is one run.
type session struct {
	options

	root     string // of the source tree
	folder   string // of the program, its configuration and its log
	table    io.Writer
	progress cluster.Progress
	api      *api
	operator *process.Process
	metrics  string        // its URL
	resizes  chan accepted // what the kubelets have not applied yet

	mu     sync.Mutex
	growth float64 // of usage
	seen   seen
}

// accepted is a resize that the API server has accepted.
type accepted struct {
	pod types.NamespacedName
	at  time.Time
}

// seen has the operator's writes so far. Pods and scalers are numbered as their Deployments.
type seen struct {
	described, sized map[int]bool // the scalers with a status, and with a recommendation
	resized          int
	first            time.Time // the first change after the wave began
	killed           map[int]time.Time
	memory           map[int]int64 // of killed containers
	answered         []time.Duration
	edited           map[int]edit
	told             []time.Duration
}

// edit is a change of a template.
type edit struct {
	generation int64
	at         time.Time
}

func (s *session) run(ctx context.Context) (err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/verticalscaler/verticalscaler-operator").Output()
	if err != nil {
		return fmt.Errorf("finding the source tree: %w", err)
	}
	s.root = strings.TrimSpace(string(root))
	if s.folder, err = os.MkdirTemp("", "verticalscaler-limits-"); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s.resizes, s.growth = make(chan accepted, 1<<20), 1
	s.seen = seen{described: map[int]bool{}, sized: map[int]bool{}, killed: map[int]time.Time{}, memory: map[int]int64{}, edited: map[int]edit{}}
	s.api = newAPI(podmetrics.Handler(s.list), s.wrote)
	s.progress("creating %d scalers with %d pods", s.Scalers, s.Scalers*s.Pods)
	if err := s.seed(); err != nil {
		return fmt.Errorf("creating the fleet: %w", err)
	}
	server := httptest.NewUnstartedServer(s.api)
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.CloseClientConnections()
	s.api.delay = s.Delay
	go s.kubelets(ctx)
	began := time.Now()
	if err := s.startOperator(ctx, server); err != nil {
		return err
	}
	defer s.operator.Stop(30 * time.Second)
	fmt.Fprintf(s.table, "%d scalers, %d pods, %d containers; an operator with one CPU and a memory limit of %d MiB; writes take %s.\n\n",
		s.Scalers, s.Scalers*s.Pods, s.Scalers*s.Pods*cluster.Containers, s.MemoryLimit, s.Delay)
	fmt.Fprintln(s.table, "| What | Measured |\n|---|---|")
	for _, stage := range []func(context.Context, time.Time) error{s.start, s.learn, s.idle, s.wave} {
		if err := stage(ctx, began); err != nil {
			return fmt.Errorf("%w (log in %s)", err, s.folder)
		}
	}
	return os.RemoveAll(s.folder)
}

// startOperator starts the operator, with the default configuration but for its metrics, which are sums.
func (s *session) startOperator(ctx context.Context, server *httptest.Server) error {
	if s.Operator == "" {
		s.progress("building the operator")
		s.Operator = filepath.Join(s.folder, "operator")
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", s.Operator, "./cmd/operator")
		build.Dir, build.Stderr = s.root, os.Stderr
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if err := build.Run(); err != nil {
			return fmt.Errorf("building the operator: %w", err)
		}
	}
	address, err := process.FreeAddress()
	if err != nil {
		return err
	}
	s.metrics = "http://" + address + "/metrics"
	access := clientcmdapi.NewConfig()
	access.Clusters["it"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}
	access.Contexts["it"] = &clientcmdapi.Context{Cluster: "it"}
	access.CurrentContext = "it"
	kubeconfig := filepath.Join(s.folder, "kubeconfig")
	if err := clientcmd.WriteToFile(*access, kubeconfig); err != nil {
		return err
	}
	metrics := fmt.Sprintf("{bindAddress: %q, secure: false, scalers: aggregated}", address)
	s.operator, err = cluster.StartOperator(s.folder, s.Operator, kubeconfig, metrics, s.MemoryLimit)
	return err
}

// wrote notes what a write means.
func (s *session) wrote(w write) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch object := w.object.(type) {
	case *v1beta1.VerticalScaler:
		var i int
		if _, err := fmt.Sscanf(w.key.Name, "web-%06d", &i); err != nil || w.kind != "update verticalscalers/status" {
			return
		}
		s.seen.described[i] = true
		if r := object.Status.Recommendation; r != nil && len(r.ContainerRecommendations) == cluster.Containers {
			s.seen.sized[i] = true
		}
		if e, ok := s.seen.edited[i]; ok && object.Status.Target != nil && object.Status.Target.Generation >= e.generation {
			s.seen.told = append(s.seen.told, w.received.Sub(e.at))
			delete(s.seen.edited, i)
		}
	case *corev1.Pod:
		s.seen.resized++
		s.resizes <- accepted{w.key, w.completed}
		i, _ := cluster.DeploymentOf(w.key.Name)
		if s.seen.first.IsZero() && s.growth > 1 && !s.isSpared(i) {
			s.seen.first = w.completed
		}
		at, ok := s.seen.killed[i]
		if ok && w.key.Name == cluster.PodName(i, 0) && object.Spec.Containers[0].Resources.Requests.Memory().Value() > s.seen.memory[i] {
			s.seen.answered = append(s.seen.answered, w.completed.Sub(at))
			delete(s.seen.killed, i)
		}
	}
}

// kubelets apply each resize after a second.
func (s *session) kubelets(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case next := <-s.resizes:
			if cluster.Pause(ctx, time.Until(next.at.Add(time.Second))) == nil {
				_ = s.api.change("/pods", next.pod, resized) // pods are not deleted
			}
		}
	}
}

// isSpared reports whether a Deployment is one of those with a kill.
func (s *session) isSpared(i int) bool {
	return slices.Contains(s.every(0), i)
}

// every is as many Deployments as there are kills, spread over the fleet.
func (s *session) every(offset int) (out []int) {
	for k := range s.Kills {
		out = append(out, k*s.Scalers/s.Kills+offset)
	}
	return out
}

func (s *session) factor() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.growth
}

// moment has the usage and the counts until a point in time.
type moment struct {
	cluster.Used

	at      time.Time
	counts  map[string]int
	resized int
}

func (s *session) now() (out moment, err error) {
	s.api.mu.Lock()
	out.at, out.counts = time.Now(), maps.Clone(s.api.counts)
	s.api.mu.Unlock()
	s.mu.Lock()
	out.resized = s.seen.resized
	s.mu.Unlock()
	out.Used, err = cluster.UsedBy(s.operator)
	return out, err
}

// requests are those since an earlier moment, by kind.
func (m moment) requests(before moment) map[string]int {
	out := map[string]int{}
	for kind, n := range m.counts {
		if n -= before.counts[kind]; n > 0 && !strings.HasSuffix(kind, " leases") {
			out[kind] = n
		}
	}
	return out
}

// writes splits requests into writes, and others.
func writes(requests map[string]int) (writes, others map[string]int, sum int) {
	writes, others = map[string]int{}, map[string]int{}
	for kind, n := range requests {
		switch verb, _, _ := strings.Cut(kind, " "); verb {
		case "create", "update", "patch", "delete":
			writes[kind] = n
			sum += n
		default:
			others[kind] = n
		}
	}
	return writes, others, sum
}

// each lists counts as shares of a number.
func each(counts map[string]int, of float64) string {
	var parts []string
	for _, kind := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int { return counts[b] - counts[a] }) {
		parts = append(parts, fmt.Sprintf("%s %.2f", kind, float64(counts[kind])/of))
	}
	return strings.Join(parts, ", ")
}

func (s *session) row(title, format string, args ...any) {
	fmt.Fprintf(s.table, "| %s | %s |\n", title, fmt.Sprintf(format, args...))
}

// await waits until nothing is left.
func (s *session) await(ctx context.Context, what string, left func() int) error {
	for reported := time.Now(); ; {
		s.mu.Lock()
		n := left()
		s.mu.Unlock()
		if n <= 0 {
			return nil
		}
		if time.Since(reported) > 10*time.Second {
			reported = time.Now()
			used, err := cluster.UsedBy(s.operator)
			if err != nil {
				return err
			}
			s.progress("waiting for %s: %d are missing; %s, CPU %s", what, n, cluster.MiB(used.RSS), used.CPU)
		}
		if err := cluster.Pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

func (s *session) start(ctx context.Context, began time.Time) error {
	of := float64(s.Scalers)
	for _, end := range []struct {
		title, what string
		of          map[int]bool
	}{
		{"Start until each scaler has a status", "statuses", s.seen.described},
		{"Start until each scaler has a recommendation", "recommendations", s.seen.sized},
	} {
		if err := s.await(ctx, end.what, func() int { return s.Scalers - len(end.of) }); err != nil {
			return err
		}
		now, err := s.now()
		if err != nil {
			return err
		}
		all, _, sum := writes(now.requests(moment{}))
		s.row(end.title, "%s", cluster.Seconds(now.at.Sub(began).Seconds()))
		s.row("– CPU; for each scaler", "%s; %.2f ms", cluster.Seconds(now.CPU.Seconds()), now.CPU.Seconds()*1000/of)
		s.row("– writes for each scaler", "%.2f (%s)", float64(sum)/of, each(all, of))
		s.row("– memory (RSS); at most", "%s; %s", cluster.MiB(now.RSS), cluster.MiB(now.Peak))
	}
	return nil
}

func (s *session) learn(ctx context.Context, _ time.Time) error {
	return s.steady(ctx, "Learn", s.Learn)
}

func (s *session) idle(ctx context.Context, began time.Time) error {
	return s.steady(ctx, fmt.Sprintf("Idle, %.0f minutes after the start", time.Since(began).Minutes()), s.Idle)
}

// steady measures what it costs that usage stays as it is.
func (s *session) steady(ctx context.Context, title string, d time.Duration) error {
	s.progress("%s", title)
	before, err := s.now()
	if err != nil {
		return err
	}
	if err := cluster.Pause(ctx, d); err != nil {
		return err
	}
	after, err := s.now()
	if err != nil {
		return err
	}
	all, others, sum := writes(after.requests(before))
	used, took := after.CPU-before.CPU, after.at.Sub(before.at)
	s.row(fmt.Sprintf("%s, for %s: CPU", title, d), "%.2f cores", used.Seconds()/took.Seconds())
	s.row("– writes a second, except of leases", "%.2f", float64(sum)/took.Seconds())
	s.row("– writes for each scaler", "%.3f (%s)", float64(sum)/float64(s.Scalers), each(all, float64(s.Scalers)))
	live, err := s.liveHeap()
	if err != nil {
		return err
	}
	s.row("– other requests a second", "%s", each(others, took.Seconds()))
	s.row("– memory (RSS); at most until then", "%s; %s", cluster.MiB(after.RSS), cluster.MiB(after.Peak))
	s.row("– live heap; for each scaler", "%s; %.1f KiB", cluster.MiB(live), live/1024/float64(s.Scalers))
	return nil
}

// wave measures a wave of changes.
func (s *session) wave(ctx context.Context, _ time.Time) error {
	s.mu.Lock()
	s.growth = 1.5
	s.mu.Unlock()
	if err := s.await(ctx, "the first change of the wave", func() int {
		if s.seen.first.IsZero() {
			return 1
		}
		return 0
	}); err != nil {
		return err
	}
	s.progress("the wave has begun")
	before, err := s.now()
	if err != nil {
		return err
	}
	waits, err := s.queue()
	if err != nil {
		return err
	}
	var depths []float64
	killed, others := s.every(0), s.every(1)
	for k := range s.Kills {
		if k%10 == 0 {
			q, err := s.queue()
			if err != nil {
				return err
			}
			depths = append(depths, q.depth)
		}
		if err := s.disturb(killed[k], others[k]); err != nil {
			return err
		}
		if err := cluster.Pause(ctx, time.Second); err != nil {
			return err
		}
	}
	if err := cluster.Pause(ctx, time.Until(before.at.Add(s.Wave))); err != nil {
		return err
	}
	after, err := s.now()
	if err != nil {
		return err
	}
	end, err := s.queue()
	if err != nil {
		return err
	}
	all, _, sum := writes(after.requests(before))
	used, took := after.CPU-before.CPU, after.at.Sub(before.at)
	changes, allowed := after.resized-before.resized, float64(cluster.AllowedInMinute(s.Scalers, s.Pods))
	s.row(fmt.Sprintf("Wave, for %s: changes a minute; share of the budget", s.Wave), "%.0f; %s", float64(changes)/took.Minutes(), cluster.Percent(float64(changes)/took.Minutes()/allowed))
	s.row("– CPU; for each change", "%.2f cores; %.2f ms", used.Seconds()/took.Seconds(), used.Seconds()*1000/float64(changes))
	s.row("– writes a second", "%.0f", float64(sum)/took.Seconds())
	s.row("– writes for each change", "%.2f (%s)", float64(sum)/float64(changes), each(all, float64(changes)))
	s.row("– memory (RSS); at most until then", "%s; %s", cluster.MiB(after.RSS), cluster.MiB(after.Peak))
	s.row("– length of the queue at the kills", "%.0f", depths)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.row("– OOM kill until the killed pod has more: median; 99th percentile", "%s", quantiles(s.seen.answered, s.Kills))
	s.row("– edit of a template until the write of its status: median; 99th percentile", "%s", quantiles(s.seen.told, s.Kills))
	for _, class := range slices.Sorted(maps.Keys(end.waits)) {
		s.row("– wait in the queue, class "+class+": median; 99th percentile", "%s", end.waits[class].since(waits.waits[class]))
	}
	refused := map[string]int{}
	for kind, n := range after.requests(moment{}) {
		if what, ok := strings.CutPrefix(kind, "refused: "); ok {
			refused[what] = n
		}
	}
	s.row("Whole run: CPU; refused writes", "%s; %s", cluster.Seconds(after.CPU.Seconds()), each(refused, 1))
	return nil
}

// disturb OOM-kills the first pod of a Deployment, and edits the template of another one.
func (s *session) disturb(kill, edits int) error {
	pod := types.NamespacedName{Namespace: cluster.Namespace(kill), Name: cluster.PodName(kill, 0)}
	deployment := types.NamespacedName{Namespace: cluster.Namespace(edits), Name: cluster.Name(edits)}
	s.api.mu.Lock()
	memory := s.api.resources["/pods"].objects[pod].(*corev1.Pod).Spec.Containers[0].Resources.Requests.Memory().Value()
	generation := s.api.resources["apps/deployments"].objects[deployment].GetGeneration() + 1
	s.api.mu.Unlock()
	s.mu.Lock()
	s.seen.memory[kill], s.seen.killed[kill] = memory, time.Now()
	s.seen.edited[edits] = edit{generation, time.Now()}
	s.mu.Unlock()
	if err := s.api.change("/pods", pod, killed); err != nil {
		return err
	}
	return s.api.change("apps/deployments", deployment, edited)
}

// quantiles are the median and the 99th percentile, if there are as many as there should be.
func quantiles(took []time.Duration, of int) string {
	slices.Sort(took)
	at := func(part float64) string {
		if n := int(math.Ceil(part*float64(of))) - 1; n < len(took) {
			return cluster.Seconds(took[n].Seconds())
		}
		return "none"
	}
	return fmt.Sprintf("%s; %s (%d of %d)", at(0.5), at(0.99), len(took), of)
}

// queue has the operator's metrics of the queue of scalers.
type queue struct {
	depth float64
	waits map[string]waits
}

// waits are how many have waited for at most some seconds.
type waits map[float64]uint64

// scrape reads the operator's metrics, by name.
func (s *session) scrape() (map[string]*dto.MetricFamily, error) {
	answer, err := http.Get(s.metrics)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	defer answer.Body.Close() //nolint:errcheck // it has been read
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		return nil, fmt.Errorf("reading metrics: %w", err)
	}
	return all, nil
}

// liveHeap is the heap that the last garbage collection has left, in bytes.
func (s *session) liveHeap() (bytes float64, err error) {
	all, err := s.scrape()
	if err != nil {
		return 0, err
	}
	for _, m := range all["go_gc_heap_live_bytes"].GetMetric() {
		bytes += m.GetGauge().GetValue()
	}
	return bytes, nil
}

func (s *session) queue() (out queue, err error) {
	all, err := s.scrape()
	if err != nil {
		return out, err
	}
	out.waits = map[string]waits{}
	for _, m := range all["workqueue_depth"].GetMetric() {
		if labelsOf(m)["controller"] == "verticalscaler" {
			out.depth += m.GetGauge().GetValue()
		}
	}
	for _, m := range all["verticalscaler_queue_wait_seconds"].GetMetric() {
		if labelsOf(m)["controller"] != "verticalscaler" {
			continue
		}
		class := waits{}
		for _, b := range m.GetHistogram().GetBucket() {
			class[b.GetUpperBound()] = b.GetCumulativeCount()
		}
		out.waits[labelsOf(m)["class"]] = class
	}
	return out, nil
}

func labelsOf(m *dto.Metric) map[string]string {
	out := map[string]string{}
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// since are the median and the 99th percentile of those that came after an earlier moment, as upper bounds.
func (w waits) since(before waits) string {
	all := w[math.Inf(1)] - before[math.Inf(1)]
	at := func(part float64) string {
		for _, bound := range slices.Sorted(maps.Keys(w)) {
			if float64(w[bound]-before[bound]) >= part*float64(all) {
				return "≤ " + cluster.Seconds(bound)
			}
		}
		return "none"
	}
	return fmt.Sprintf("%s; %s (%d)", at(0.5), at(0.99), all)
}
