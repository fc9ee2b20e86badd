// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config holds the operator's configuration file: one versioned document,
// decoded strictly, so that a misspelt key is an error and not a default.
package config

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
)

const (
	// APIVersion heads every configuration file.
	APIVersion = "config.verticalscaler.io/v1beta1"
	// Kind follows it.
	Kind = "OperatorConfiguration"
)

// mostChanges is the largest budget: it limits nothing any more.
const mostChanges = 100000

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
	// Budget says how much is changed at once.
	Budget Budget `json:"budget"`
	// Freeze is the switch that stops all changes.
	Freeze Freeze `json:"freeze"`
	// Provision says what the operator creates in its own namespace.
	Provision Provision `json:"provision"`
	// Prometheus is asked for usage of the past, if it has an address.
	Prometheus Prometheus `json:"prometheus"`
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
	// CPUHalfLife is the time after which what a level of CPU would have cost counts
	// half. The windows of hours and days go with it. Default 72h.
	CPUHalfLife metav1.Duration `json:"cpuHalfLife"`
	// RecentHalfLife is the same for the windows of minutes, which raise at once, and for
	// the pauses between two falls of CPU. Default 20m.
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
	// ConfidenceUnit is the observed time that bounds are wide for: the upper
	// one is twice what usage asks for after a quarter of it. Default 24h.
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

// Budget says how much is changed at once. A change is a resize of one pod or a write of
// one pod template, accepted or not. docs/budget-and-freeze.md tells who goes first.
type Budget struct {
	// ChangesPerMinute is how many changes there may be in any 60 s. From 1 to 100000.
	// Default 300: a thousand Deployments of three pods are all resized within one resync
	// period, at five small requests a second.
	ChangesPerMinute int `json:"changesPerMinute"`
	// ChangesPerMinutePerNamespace is how many of them may be in one namespace. From 1 to
	// 100000. Default 60, a fifth, so that one namespace does not keep all others waiting.
	ChangesPerMinutePerNamespace int `json:"changesPerMinutePerNamespace"`
	// Window is the minute. Only tests have another.
	Window time.Duration `json:"-"`
}

// Freeze is the switch that stops all changes: a ConfigMap that need only exist.
type Freeze struct {
	// ConfigMap is its name. Default "verticalscaler-freeze". The Role own-namespace must
	// name the same. "" is for none.
	ConfigMap string `json:"configMap"`
	// Namespace is where it is; default the operator's own.
	Namespace string `json:"namespace,omitempty"`
}

// Prometheus says where usage of the past comes from, so that a new scaler need not
// learn for days. docs/prometheus.md tells how to set it up. Files are read anew when
// they are needed; nothing is taken from the environment.
type Prometheus struct {
	// Address is the URL of Prometheus, or of what speaks its API, without credentials,
	// query and fragment: "https://prometheus.monitoring.svc:9091". Default "": nobody
	// is asked.
	Address string `json:"address"`
	// Labels are those that series must have besides, such as {cluster: east}. At most 16.
	Labels map[string]string `json:"labels,omitempty"`
	// Lookback is how far into the past is asked. From 1h to 2160h. Default 192h, the
	// memory window.
	Lookback metav1.Duration `json:"lookback"`
	// Step is the time between two samples of the past. At least 15s, whole seconds, and
	// at most the longest gap that counts: 2m or three collection intervals. Default 1m.
	// A container's memory must be scraped once in two steps.
	Step metav1.Duration `json:"step"`
	// RateWindow is what CPU usage is averaged over, and must hold two scrapes. From 30s
	// to 1h, whole seconds. Default 4m.
	RateWindow metav1.Duration `json:"rateWindow"`
	// Timeout is for one query. From 1s to 5m. Default 30s.
	Timeout metav1.Duration `json:"timeout"`
	// MaxBytes is the longest answer that is read. When one is longer, less is asked for
	// at once. From 64Ki to 256Mi, as a plain number. Default 8388608.
	MaxBytes int64 `json:"maxBytes"`
	// CAFile holds the certificates that Prometheus's is verified with, in PEM. Default
	// those of the system.
	CAFile string `json:"caFile,omitempty"`
	// CertFile and KeyFile are our own certificate and its key, in PEM.
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// BearerTokenFile holds a token, which is sent over https only.
	BearerTokenFile string `json:"bearerTokenFile,omitempty"`
	// Username and PasswordFile are sent instead of a token, over https only.
	Username     string `json:"username,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
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
		Budget:    Budget{ChangesPerMinute: 300, ChangesPerMinutePerNamespace: 60, Window: time.Minute},
		Freeze:    Freeze{ConfigMap: "verticalscaler-freeze"},
		Provision: Provision{Monitoring: true, NetworkPolicy: true},
		Prometheus: Prometheus{
			Lookback:   d(p.History.MemoryWindow),
			Step:       d(time.Minute),
			RateWindow: d(4 * time.Minute),
			Timeout:    d(30 * time.Second),
			MaxBytes:   8 << 20,
		},
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
	for _, v := range []struct {
		name  string
		value int
	}{
		{"budget.changesPerMinute", c.Budget.ChangesPerMinute},
		{"budget.changesPerMinutePerNamespace", c.Budget.ChangesPerMinutePerNamespace},
	} {
		if v.value < 1 || v.value > mostChanges {
			errs = append(errs, fmt.Errorf("%s must be from 1 to %d, not %d", v.name, mostChanges, v.value))
		}
	}
	for _, v := range []struct {
		name, value string
		wrong       func(string) []string
	}{
		{"freeze.configMap", c.Freeze.ConfigMap, validation.IsDNS1123Subdomain},
		{"freeze.namespace", c.Freeze.Namespace, validation.IsDNS1123Label},
	} {
		if v.value == "" {
			continue
		}
		if wrong := v.wrong(v.value); len(wrong) > 0 {
			errs = append(errs, fmt.Errorf("%s: %q cannot be a name: %s", v.name, v.value, strings.Join(wrong, "; ")))
		}
	}
	errs = append(errs, c.Prometheus.validate(c.Params().History.MaxGap)...)
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
		Prices: p.History.Prices,
	}
	p.MinEvidence = c.Recommendation.MinEvidence.Duration
	p.FullEvidence = c.Recommendation.FullEvidence.Duration
	p.ConfidenceUnit = c.Recommendation.ConfidenceUnit.Duration
	return p
}
