// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config holds the operator's configuration file: one versioned document,
// decoded strictly, so that a misspelt key is an error and not a default.
package config

import (
	"errors"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

const (
	// APIVersion heads every configuration file.
	APIVersion = "config.verticalscaler.io/v1beta1"
	// Kind follows it.
	Kind = "OperatorConfiguration"
)

// Operator is the operator's configuration.
type Operator struct {
	metav1.TypeMeta `json:",inline"`

	// Metrics is where the operator's own metrics are served.
	Metrics Metrics `json:"metrics"`
	// Health is where /healthz and /readyz are served.
	Health Health `json:"health"`
	// LeaderElection lets several replicas run, of which one works.
	LeaderElection LeaderElection `json:"leaderElection"`
	// ResyncPeriod is how often a scaler is reconciled that nothing wakes, spread by
	// a tenth either way. At least 1s. Default 10m.
	ResyncPeriod metav1.Duration `json:"resyncPeriod"`
	// Collection says how usage is collected.
	Collection Collection `json:"collection"`
	// Recommendation says how much evidence is wanted, and how it fades.
	Recommendation Recommendation `json:"recommendation"`
	// Provision says what the operator creates in its own namespace.
	Provision Provision `json:"provision"`
}

// Metrics is where the operator's own metrics are served.
type Metrics struct {
	// BindAddress is host:port; "0" for nowhere. Default ":8443".
	BindAddress string `json:"bindAddress"`
	// Secure serves over TLS and asks the API server whether the reader may GET
	// /metrics. Default true.
	Secure bool `json:"secure"`
}

// Health is where /healthz and /readyz are served.
type Health struct {
	// BindAddress is host:port; "0" for nowhere. Default ":8081".
	BindAddress string `json:"bindAddress"`
}

// LeaderElection lets several replicas run, of which one works.
type LeaderElection struct {
	// Enabled turns it on. Default true.
	Enabled bool `json:"enabled"`
	// Namespace is where the lease is; default the operator's own.
	Namespace string `json:"namespace,omitempty"`
}

// Collection says how usage is collected.
type Collection struct {
	// Interval is the time between two rounds. At least 1s. Default 30s: twice as
	// often as metrics-server's usual resolution lets anything new be seen.
	Interval metav1.Duration `json:"interval"`
}

// Recommendation says how much evidence is wanted, and how it fades. A demonstration
// or a test compresses days into minutes with it; elsewhere the defaults need no
// tuning.
type Recommendation struct {
	// CPUHalfLife is the time after which a CPU sample counts half. Default 24h.
	CPUHalfLife metav1.Duration `json:"cpuHalfLife"`
	// RecentHalfLife is the same for the recent usage that raises at once.
	RecentHalfLife metav1.Duration `json:"recentHalfLife"`
	// MemoryWindow is how long a peak of memory counts. Default 192h.
	MemoryWindow metav1.Duration `json:"memoryWindow"`
	// OOMHalfLife is the time after which the floor of an OOM kill has come half the
	// way down to the peak.
	OOMHalfLife metav1.Duration `json:"oomHalfLife"`
	// MinEvidence is the observed time before the first recommendation. Default 2m.
	MinEvidence metav1.Duration `json:"minEvidence"`
	// FullEvidence is the observed time from which on more proves nothing more.
	FullEvidence metav1.Duration `json:"fullEvidence"`
	// ConfidenceUnit is the observed time at which the upper bound is twice what
	// usage asks for. Default 24h.
	ConfidenceUnit metav1.Duration `json:"confidenceUnit"`
}

// Provision says what the operator creates in its own namespace, where the API server
// serves the kind. What is switched off again is removed.
type Provision struct {
	// Monitoring is a ServiceMonitor and a PrometheusRule with alerts. Default true.
	// Nothing is monitored where no metrics are served.
	Monitoring bool `json:"monitoring"`
	// NetworkPolicy lets nothing in to the operator's pods but scrapes of the metrics.
	// Default true.
	NetworkPolicy bool `json:"networkPolicy"`
}

// Default is the configuration of an empty file.
func Default() Operator {
	p := recommend.DefaultParams()
	d := func(v time.Duration) metav1.Duration { return metav1.Duration{Duration: v} }
	return Operator{
		TypeMeta:       metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind},
		Metrics:        Metrics{BindAddress: ":8443", Secure: true},
		Health:         Health{BindAddress: ":8081"},
		LeaderElection: LeaderElection{Enabled: true},
		ResyncPeriod:   d(10 * time.Minute),
		Collection:     Collection{Interval: d(30 * time.Second)},
		Recommendation: Recommendation{
			CPUHalfLife:    d(p.History.CPUHalfLife),
			RecentHalfLife: d(p.History.RecentHalfLife),
			MemoryWindow:   d(p.History.MemoryWindow),
			OOMHalfLife:    d(p.History.OOMHalfLife),
			MinEvidence:    d(p.MinEvidence),
			FullEvidence:   d(p.FullEvidence),
			ConfidenceUnit: d(p.ConfidenceUnit),
		},
		Provision: Provision{Monitoring: true, NetworkPolicy: true},
	}
}

// Load reads a configuration file over the defaults. No path means the defaults.
func Load(path string) (Operator, error) {
	if path == "" {
		return Default(), nil
	}
	data, err := os.ReadFile(path) //nolint:gosec // the path is the administrator's
	if err != nil {
		return Operator{}, fmt.Errorf("reading the configuration: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return Operator{}, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse decodes a configuration file over the defaults and checks it.
func Parse(data []byte) (Operator, error) {
	c := Default()
	c.TypeMeta = metav1.TypeMeta{}
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return Operator{}, fmt.Errorf("decoding: %w", err)
	}
	if c.APIVersion != APIVersion || c.Kind != Kind {
		return Operator{}, fmt.Errorf("apiVersion and kind must be %s and %s, not %q and %q", APIVersion, Kind, c.APIVersion, c.Kind)
	}
	return c, c.validate()
}

func (c Operator) validate() error {
	var errs []error
	for _, v := range []struct {
		name  string
		value metav1.Duration
		least time.Duration
	}{
		{"resyncPeriod", c.ResyncPeriod, time.Second},
		{"collection.interval", c.Collection.Interval, time.Second},
		{"recommendation.cpuHalfLife", c.Recommendation.CPUHalfLife, time.Second},
		{"recommendation.recentHalfLife", c.Recommendation.RecentHalfLife, time.Second},
		{"recommendation.memoryWindow", c.Recommendation.MemoryWindow, time.Second},
		{"recommendation.oomHalfLife", c.Recommendation.OOMHalfLife, time.Second},
		{"recommendation.minEvidence", c.Recommendation.MinEvidence, 0},
		{"recommendation.fullEvidence", c.Recommendation.FullEvidence, time.Second},
		{"recommendation.confidenceUnit", c.Recommendation.ConfidenceUnit, time.Second},
	} {
		if v.value.Duration < v.least {
			errs = append(errs, fmt.Errorf("%s must be at least %s, not %s", v.name, v.least, v.value.Duration))
		}
	}
	return errors.Join(errs...)
}

// Params are the parameters of histories and recommendations.
func (c Operator) Params() recommend.Params {
	p := recommend.DefaultParams()
	p.History = history.Params{
		CPUHalfLife:    c.Recommendation.CPUHalfLife.Duration,
		RecentHalfLife: c.Recommendation.RecentHalfLife.Duration,
		MemoryWindow:   c.Recommendation.MemoryWindow.Duration,
		OOMHalfLife:    c.Recommendation.OOMHalfLife.Duration,
		// Two rounds may be lost before time stands still.
		MaxGap: max(p.History.MaxGap, 3*c.Collection.Interval.Duration),
	}
	p.MinEvidence = c.Recommendation.MinEvidence.Duration
	p.FullEvidence = c.Recommendation.FullEvidence.Duration
	p.ConfidenceUnit = c.Recommendation.ConfidenceUnit.Duration
	return p
}
