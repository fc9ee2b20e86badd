// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics has the operator's metrics for Prometheus, each with a stability level, and the
// series about scalers (Scalers) and policies (Policy). docs/metrics.md is generated from it.
package metrics

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Stability is the stability level of a metric, as in Kubernetes.
type Stability string

// The stability levels.
const (
	// Alpha metrics may change or disappear in any release.
	Alpha Stability = "ALPHA"
	// Beta metrics keep their name, type and labels, until two minor releases after a
	// release has announced their end.
	Beta Stability = "BETA"
)

// Kind is the type of a metric.
type Kind string

// The types of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric describes one metric.
type Metric struct {
	Name      string
	Kind      Kind
	Help      string
	Labels    []string
	Stability Stability
	// AboutScalers is true if the configuration key metrics.scalers decides about its series.
	AboutScalers bool
	// AboutPolicies is true if there are series for each policy.
	AboutPolicies bool
}

// fullHelp is the served help. It starts with the stability level, as in Kubernetes.
func (m Metric) fullHelp() string { return "[" + string(m.Stability) + "] " + m.Help }

var known []Metric

// All are the metrics of the packages that are linked in, by name.
func All() []Metric {
	all := slices.Concat(known, aboutScalers)
	slices.SortFunc(all, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// NewCounter registers counters. The series of the given label values start at 0, so that
// rates and alerts have data before the first event.
func NewCounter(m Metric, series ...[]string) *prometheus.CounterVec {
	m.Kind = Counter
	known = append(known, m)
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.fullHelp()}, m.Labels)
	for _, values := range series {
		v.WithLabelValues(values...)
	}
	ctrlmetrics.Registry.MustRegister(v)
	return v
}

// NewGauge registers gauges.
func NewGauge(m Metric) *prometheus.GaugeVec {
	m.Kind = Gauge
	known = append(known, m)
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.fullHelp()}, m.Labels)
	ctrlmetrics.Registry.MustRegister(v)
	return v
}

// NewHistogram registers histograms with these upper bounds of their buckets.
func NewHistogram(m Metric, buckets ...float64) *prometheus.HistogramVec {
	m.Kind = Histogram
	known = append(known, m)
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.fullHelp(), Buckets: buckets}, m.Labels)
	ctrlmetrics.Registry.MustRegister(v)
	return v
}

// Latency is the response time of the API server.
var Latency average

// average is a moving average of durations, in which each one counts for a twentieth.
type average struct{ nanos atomic.Int64 }

// Observe adds a duration.
func (a *average) Observe(d time.Duration) {
	for {
		before := a.nanos.Load()
		if a.nanos.CompareAndSwap(before, before+(d.Nanoseconds()-before)/20) {
			return
		}
	}
}

// Mean is the average; 0 before the first duration.
func (a *average) Mean() time.Duration { return time.Duration(a.nanos.Load()) }
