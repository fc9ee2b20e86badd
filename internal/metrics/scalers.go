// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Detail is the level of detail of the series about scalers.
type Detail string

// The details.
const (
	// Full has series for each scaler and container.
	Full Detail = "full"
	// Aggregated has sums for each namespace.
	Aggregated Detail = "aggregated"
	// Off has none.
	Off Detail = "off"
)

// Details are all details.
func Details() []Detail { return []Detail{Full, Aggregated, Off} }

// The most series in full detail: SeriesPerScaler and SeriesPerContainer. In aggregated detail,
// a namespace has SeriesPerScaler and one for each further reason that its scalers have.
const (
	SeriesPerScaler    = 20
	SeriesPerContainer = 8
)

// State is the result of a scaler's last reconcile.
type State struct {
	// Reason is the reason that kubectl get shows; empty before the first.
	Reason string
	// Ready and Stalled are the conditions. Waiting means that a change is due and not begun.
	Ready, Stalled, Waiting bool
}

// Sizes are the sizes of a scaler's pods.
type Sizes struct {
	// PodsAtSize of Pods have the decided requests.
	PodsAtSize, Pods int
	// Requested, Recommended and Original are requests of all running pods: the current ones, the
	// recommended ones, and those of the user's pod template.
	Requested, Recommended, Original quantity.Amounts
	// Containers are the containers of the pod template.
	Containers []Container
}

// Container is the state of one container. A request is from the pod furthest from the target. An
// amount of 0 is unknown, and has no series.
type Container struct {
	Name                                    string
	Request, Target, LowerBound, UpperBound quantity.Amounts
}

// Event is a counted event of a scaler: a metric, and the value of its own label.
type Event struct{ metric, value string }

// The events.
var (
	// Resized means that a pod was resized in place.
	Resized = Event{"verticalscaler_changes_total", "resize"}
	// RolledOut means that the pod template was rewritten.
	RolledOut = Event{"verticalscaler_changes_total", "rollout"}
	// Evicted means that a pod was evicted.
	Evicted = Event{"verticalscaler_changes_total", "evict"}
	// Restored means that the original values of the pod template were restored.
	Restored = Event{"verticalscaler_changes_total", "restore"}
	// Regressed means that a change was reverted because pods did worse with it.
	Regressed = Event{"verticalscaler_reverts_total", "Regression"}
	// Undone means that another writer undid a change.
	Undone = Event{"verticalscaler_reverts_total", "OtherWriter"}
	// KilledLowered means an OOM kill with less memory than the user's template gives.
	KilledLowered = Event{"verticalscaler_oom_kills_total", "lowered"}
	// KilledOriginal means an OOM kill with as much memory or more.
	KilledOriginal = Event{"verticalscaler_oom_kills_total", "original"}

	events = []Event{Resized, RolledOut, Evicted, Restored, Regressed, Undone, KilledLowered, KilledOriginal}
)

// counts are the numbers of events.
type counts map[Event]float64

// add adds other counts to these, which may be nil.
func (c *counts) add(other counts) {
	if *c == nil {
		*c = counts{}
	}
	for event, n := range other {
		(*c)[event] += n
	}
}

// The namespace and the container are not called "namespace" and "container": Prometheus gives these
// labels the operator's.
const (
	labelNamespace = "target_namespace"
	labelScaler    = "scaler"
	labelContainer = "target_container"
	labelResource  = "resource"
	labelUnit      = "unit"
)

// aboutScalers are the metrics about scalers.
var aboutScalers = []Metric{
	ofScaler("verticalscaler_status", Gauge, "Scalers by their state: the reason that kubectl get shows. 1 for each scaler.", "reason"),
	ofScaler("verticalscaler_ready", Gauge, "Scalers with the condition Ready=True."),
	ofScaler("verticalscaler_stalled", Gauge, "Scalers with the condition Stalled=True: a user must act."),
	ofScaler("verticalscaler_waiting", Gauge, "Scalers of which a change is due and waits, for example for the budget, a window, a rollout or a node."),
	ofScaler("verticalscaler_pods", Gauge, "Running pods of the target Deployments."),
	ofScaler("verticalscaler_pods_at_size", Gauge, "Running pods that have the decided requests."),
	ofScaler("verticalscaler_requested", Gauge, "Sum of the requests of all running pods.", labelResource, labelUnit),
	ofScaler("verticalscaler_recommended", Gauge, "Sum of the requests of all running pods if each had the recommended targets. A container without a target counts with its request.", labelResource, labelUnit),
	ofScaler("verticalscaler_saved", Gauge, "Sum of the requests of all running pods with the original pod template, minus their present requests. Below 0, they request more.", labelResource, labelUnit),
	ofScaler("verticalscaler_container_request", Gauge, "The request of the container in the pod that is furthest from the target. Not in aggregated detail.", labelContainer, labelResource, labelUnit),
	ofScaler("verticalscaler_container_target", Gauge, "The recommended request of the container. Not in aggregated detail.", labelContainer, labelResource, labelUnit),
	ofScaler("verticalscaler_container_lower_bound", Gauge, "The lower bound of the recommendation. Not in aggregated detail.", labelContainer, labelResource, labelUnit),
	ofScaler("verticalscaler_container_upper_bound", Gauge, "The upper bound of the recommendation. Not in aggregated detail.", labelContainer, labelResource, labelUnit),
	ofScaler("verticalscaler_changes_total", Counter, "Changes of pods and pod templates, by action: resize, rollout, evict, restore.", "action"),
	ofScaler("verticalscaler_reverts_total", Counter, "Changes that were undone, by cause: Regression if the operator reverted its own change because pods did worse with it, OtherWriter if another writer undid it.", "cause"),
	ofScaler("verticalscaler_oom_kills_total", Counter, "OOM kills of sized containers, by memory: lowered if the container had less than the original pod template gives, else original.", "memory"),
}

func ofScaler(name string, kind Kind, help string, labels ...string) Metric {
	return Metric{Name: name, Kind: kind, Help: help, Labels: append([]string{labelNamespace, labelScaler}, labels...), Stability: Beta, AboutScalers: true}
}

var descs = func() map[string]*prometheus.Desc {
	out := map[string]*prometheus.Desc{}
	for _, m := range aboutScalers {
		out[m.Name] = prometheus.NewDesc(m.Name, m.fullHelp(), m.Labels, nil)
	}
	return out
}()

// Scalers has the state of the scalers that one manager reconciles. A replica without the lease
// has none, so that no two replicas report the same scaler. A nil Scalers records nothing.
type Scalers struct {
	// Detail is the level of detail.
	Detail Detail

	mu      sync.Mutex
	scalers map[types.NamespacedName]*entry
	// gone has, by namespace, the counts of deleted scalers: a sum must not fall.
	gone map[string]counts
}

// entry is the record of one scaler.
type entry struct {
	state  State
	sizes  Sizes
	counts counts
}

// Record replaces the record of a scaler. Without sizes, because a reconcile failed before it knew
// them, the last known ones stay.
func (s *Scalers) Record(key types.NamespacedName, state State, sizes *Sizes) {
	s.update(key, func(e *entry) {
		e.state = state
		if sizes != nil {
			e.sizes = *sizes
		}
	})
}

// Count counts an event of a scaler.
func (s *Scalers) Count(key types.NamespacedName, event Event) {
	s.update(key, func(e *entry) { e.counts.add(counts{event: 1}) })
}

func (s *Scalers) update(key types.NamespacedName, change func(*entry)) {
	if s == nil || s.Detail == Off {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scalers == nil {
		s.scalers = map[types.NamespacedName]*entry{}
	}
	if s.scalers[key] == nil {
		s.scalers[key] = &entry{}
	}
	change(s.scalers[key])
}

// Forget drops a deleted scaler. The sums of its namespace keep its counts, until the namespace has
// no scaler.
func (s *Scalers) Forget(key types.NamespacedName) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	deleted := s.scalers[key]
	delete(s.scalers, key)
	if deleted == nil || s.Detail != Aggregated {
		return
	}
	if s.gone == nil {
		s.gone = map[string]counts{}
	}
	sum := s.gone[key.Namespace]
	sum.add(deleted.counts)
	s.gone[key.Namespace] = sum
	for other := range s.scalers {
		if other.Namespace == key.Namespace {
			return
		}
	}
	delete(s.gone, key.Namespace)
}

// Start serves the series until the context ends. It implements the interface of runnables of a
// manager.
func (s *Scalers) Start(ctx context.Context) error {
	served.Store(s)
	<-ctx.Done()
	served.CompareAndSwap(s, nil)
	return nil
}

// Describe implements prometheus.Collector.
func (s *Scalers) Describe(out chan<- *prometheus.Desc) {
	for _, m := range aboutScalers {
		out <- descs[m.Name]
	}
}

// Collect implements prometheus.Collector.
func (s *Scalers) Collect(out chan<- prometheus.Metric) {
	for key, e := range s.entries() {
		e.collect(out, key.Namespace, key.Name)
	}
}

// entries are the scalers, or the sums of namespaces, which have no name.
func (s *Scalers) entries() map[types.NamespacedName]total {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[types.NamespacedName]total{}
	for key, e := range s.scalers {
		if s.Detail == Aggregated {
			key.Name = ""
		}
		out[key] = out[key].with(*e, s.Detail)
	}
	for namespace, counts := range s.gone {
		key := types.NamespacedName{Namespace: namespace}
		out[key] = out[key].with(entry{counts: counts}, s.Detail)
	}
	return out
}

// total is the sum of some scalers.
type total struct {
	entry

	reasons                 map[string]int
	ready, stalled, waiting int
	saved                   quantity.Amounts
}

func (t total) with(e entry, detail Detail) total {
	if t.reasons == nil {
		t.reasons = map[string]int{}
	}
	if e.state.Reason != "" {
		t.reasons[e.state.Reason]++
	}
	t.ready += toInt(e.state.Ready)
	t.stalled += toInt(e.state.Stalled)
	t.waiting += toInt(e.state.Waiting)
	t.sizes.Pods += e.sizes.Pods
	t.sizes.PodsAtSize += e.sizes.PodsAtSize
	t.sizes.Requested = t.sizes.Requested.Plus(e.sizes.Requested)
	t.sizes.Recommended = t.sizes.Recommended.Plus(e.sizes.Recommended)
	t.saved = t.saved.Plus(difference(e.sizes.Original, e.sizes.Requested))
	t.counts.add(e.counts)
	if detail == Full {
		t.sizes.Containers = e.sizes.Containers
	}
	return t
}

// collect sends the series of a scaler, or of a namespace.
func (t total) collect(out chan<- prometheus.Metric, namespace, scaler string) {
	gauge := func(name string, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(descs[name], prometheus.GaugeValue, v, append([]string{namespace, scaler}, labels...)...)
	}
	amounts := func(name string, a quantity.Amounts, labels ...string) {
		gauge(name, float64(a.CPUMillis)/1000, append(slices.Clone(labels), "cpu", "core")...)
		gauge(name, float64(a.MemoryBytes), append(slices.Clone(labels), "memory", "byte")...)
	}
	for _, reason := range slices.Sorted(maps.Keys(t.reasons)) {
		gauge("verticalscaler_status", float64(t.reasons[reason]), reason)
	}
	gauge("verticalscaler_ready", float64(t.ready))
	gauge("verticalscaler_stalled", float64(t.stalled))
	gauge("verticalscaler_waiting", float64(t.waiting))
	gauge("verticalscaler_pods", float64(t.sizes.Pods))
	gauge("verticalscaler_pods_at_size", float64(t.sizes.PodsAtSize))
	amounts("verticalscaler_requested", t.sizes.Requested)
	amounts("verticalscaler_recommended", t.sizes.Recommended)
	amounts("verticalscaler_saved", t.saved)
	for _, c := range t.sizes.Containers {
		for name, a := range map[string]quantity.Amounts{
			"verticalscaler_container_request":     c.Request,
			"verticalscaler_container_target":      c.Target,
			"verticalscaler_container_lower_bound": c.LowerBound,
			"verticalscaler_container_upper_bound": c.UpperBound,
		} {
			if a.CPUMillis > 0 {
				gauge(name, float64(a.CPUMillis)/1000, c.Name, "cpu", "core")
			}
			if a.MemoryBytes > 0 {
				gauge(name, float64(a.MemoryBytes), c.Name, "memory", "byte")
			}
		}
	}
	for _, event := range events {
		out <- prometheus.MustNewConstMetric(descs[event.metric], prometheus.CounterValue, t.counts[event], namespace, scaler, event.value)
	}
}

// served holds the served series: the newest manager's, because a series may exist only once. The registry is the process's,
// while managers are restarted with other namespaces.
var served endpoint

func init() { ctrlmetrics.Registry.MustRegister(&served) }

type endpoint struct{ atomic.Pointer[Scalers] }

// Describe implements prometheus.Collector.
func (e *endpoint) Describe(out chan<- *prometheus.Desc) { (&Scalers{}).Describe(out) }

// Collect implements prometheus.Collector.
func (e *endpoint) Collect(out chan<- prometheus.Metric) {
	if s := e.Load(); s != nil {
		s.Collect(out)
	}
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func difference(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: a.CPUMillis - b.CPUMillis, MemoryBytes: a.MemoryBytes - b.MemoryBytes}
}
