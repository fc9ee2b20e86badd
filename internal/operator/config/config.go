// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package config reads the operator's configuration file: one versioned document. It is
// decoded strictly, so that a misspelled key is an error.
package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
)

const (
	// APIVersion is the apiVersion of a configuration file.
	APIVersion = "config.verticalscaler.io/v1beta1"
	// Kind is the kind of a configuration file.
	Kind = "OperatorConfiguration"
)

const (
	// mostChanges is the largest budget. It is practically no limit.
	mostChanges = 100000
	// mostWorkers is the largest number of workers. An API server serves a few hundred requests at once.
	mostWorkers = 100
)

// Operator is the operator's configuration.
type Operator struct {
	metav1.TypeMeta `json:",inline"`

	// Version is the version of the program, such as "v0.1.0". It is not part of the file. Empty if
	// unknown.
	Version string `json:"-"`
	// Ignored are the settings of the file that have no meaning anymore, as warnings.
	Ignored []string `json:"-"`

	// Metrics is the endpoint of the operator's metrics.
	Metrics Metrics `json:"metrics"`
	// Health is the endpoint of /healthz and /readyz.
	Health Health `json:"health"`
	// LeaderElection lets several replicas run: one is active, and the others wait to take over.
	LeaderElection LeaderElection `json:"leaderElection"`
	// ResyncPeriod is the time between reconciles of a scaler without an event. Each has its own time in the
	// period, by its UID. At least 1s. Defaults to 10m.
	ResyncPeriod metav1.Duration `json:"resyncPeriod"`
	// Workers are the numbers of objects that are reconciled at once.
	Workers Workers `json:"workers"`
	// Collection configures the collection of usage.
	Collection Collection `json:"collection"`
	// Recommendation configures the evidence that a recommendation needs, and how long it counts.
	Recommendation Recommendation `json:"recommendation"`
	// Budget limits the rate of changes.
	Budget Budget `json:"budget"`
	// Ceilings bound raised requests.
	Ceilings Ceilings `json:"ceilings"`
	// Freeze is the switch that stops all changes.
	Freeze Freeze `json:"freeze"`
	// Prometheus is the source of past usage. It is used only if it has an address.
	Prometheus Prometheus `json:"prometheus"`
}

// Metrics is the endpoint of the operator's metrics.
type Metrics struct {
	// BindAddress is host:port. "0" turns the endpoint off. Defaults to ":8443".
	BindAddress string `json:"bindAddress"`
	// Secure serves over TLS, and only to clients with the right to get /metrics. Defaults
	// to true.
	Secure bool `json:"secure"`
	// CertDir is the folder of the certificate and its key: tls.crt and tls.key (PEM). They
	// are read again when they change. While they are missing, the operator creates a
	// self-signed certificate. Defaults to "/etc/verticalscaler-metrics". "" means always
	// self-signed.
	CertDir string `json:"certDir"`
	// Scalers is the level of detail of the series about scalers: full, aggregated (sums for each
	// namespace) or off. docs/metrics.md lists them. Defaults to full.
	Scalers metrics.Detail `json:"scalers"`
}

// Health is the endpoint of /healthz and /readyz.
type Health struct {
	// BindAddress is host:port. "0" turns the endpoint off. Defaults to ":8081".
	BindAddress string `json:"bindAddress"`
}

// LeaderElection lets several replicas run: one is active, and the others wait to take over.
type LeaderElection struct {
	// Enabled turns leader election on. Defaults to true.
	Enabled bool `json:"enabled"`
	// Namespace is the namespace of the lease. Defaults to the operator's namespace.
	Namespace string `json:"namespace,omitempty"`
}

// Workers are the numbers of objects that are reconciled at once. A worker mostly waits for the API server, and may take a
// minute at most for a reconcile. More workers make more requests at once; they help if the answers are slow.
type Workers struct {
	// VerticalScalers is the number of VerticalScalers, from 1 to 100. Defaults to 32.
	VerticalScalers int `json:"verticalScalers"`
}

// Collection configures the collection of usage.
type Collection struct {
	// Interval is the time between two collections. At least 1s. Defaults to 30s, half of
	// metrics-server's usual resolution.
	Interval metav1.Duration `json:"interval"`
}

// Recommendation configures the evidence that a recommendation needs, and how long evidence counts.
// Demos and tests use it to compress days into minutes. In production, the defaults need no tuning.
type Recommendation struct {
	// CPUHalfLife is the time after which CPU usage counts half. The windows of hours and
	// days scale with it. Defaults to 72h.
	CPUHalfLife metav1.Duration `json:"cpuHalfLife"`
	// RecentHalfLife is the same for the windows of minutes, which raise a request at once,
	// and for the time between two reductions of CPU. Defaults to 20m.
	RecentHalfLife metav1.Duration `json:"recentHalfLife"`
	// MemoryWindow is the time for which a memory peak counts. The need proven by an OOM kill
	// counts 4.5 times as long. Defaults to 192h.
	MemoryWindow metav1.Duration `json:"memoryWindow"`
	// OOMHalfLife is the time after which the floor that an OOM kill sets has halved. It falls no
	// further than the container's proven need.
	OOMHalfLife metav1.Duration `json:"oomHalfLife"`
	// MinEvidence is the observed time before the first recommendation. Defaults to 2m.
	MinEvidence metav1.Duration `json:"minEvidence"`
	// FullEvidence is the observed time after which more usage adds no confidence.
	FullEvidence metav1.Duration `json:"fullEvidence"`
	// ConfidenceUnit is the time scale at which bounds narrow. After a quarter of it, the
	// upper bound is twice the target. Defaults to 24h.
	ConfidenceUnit metav1.Duration `json:"confidenceUnit"`
}

// Budget limits the rate of changes. A change is a resize of one pod or a write of one pod
// template, accepted or not. docs/budget-and-freeze.md has the order of changes.
type Budget struct {
	// ChangesPerMinute is the maximum number of changes in any 60 seconds, from 1 to 100000.
	// OOM kills and reverts may make a fifth more. Defaults to 300: a thousand Deployments of
	// three pods are resized within one resync period, at five small requests per second.
	ChangesPerMinute int `json:"changesPerMinute"`
	// ChangesPerMinutePerNamespace is the maximum in one namespace, from 1 to 100000. Defaults
	// to 60, so that one namespace does not delay all others.
	ChangesPerMinutePerNamespace int `json:"changesPerMinutePerNamespace"`
	// PodPercentPerMinute raises both maximums where there are many pods: to this percentage of
	// the pods that scalers may change, in total or in the namespace. From 0, which raises
	// nothing, to 100. Defaults to 5, so that a fleet of any size is resized within 20 minutes.
	PodPercentPerMinute int `json:"podPercentPerMinute"`
	// Window is the period of the budget. Only tests change it.
	Window time.Duration `json:"-"`
}

// Ceilings bound the requests that the operator raises, above the policy of any scaler: minAllowed,
// OOM kills and startup boosts, too. They do not lower existing requests. docs/limits-and-guards.md
// describes them.
type Ceilings struct {
	// Container is the most that one container requests. Defaults to 32 CPUs and 128Gi.
	Container Ceiling `json:"container"`
	// Pod is the most that all containers of a pod request together. Defaults to 64 CPUs and 256Gi.
	Pod Ceiling `json:"pod"`
	// NodePercent limits the requests of a pod that is resized in place, in percent of the largest
	// node's allocatable resources, from 1 to 100. It has no effect if nodes are not read. Defaults
	// to 75.
	NodePercent int `json:"nodePercent"`
	// RaiseFactor bounds the raises of a container's resources while its policy has no maxAllowed. The bound is this
	// multiple of the request or limit in the template, but at least 1 CPU and 1Gi. It is also the highest ratio of a
	// limit to its request that is kept. From 2 to 1000; 0 means no bound. Defaults to 8.
	RaiseFactor int `json:"raiseFactor"`
}

// Ceiling is an amount of each resource. 0 means no ceiling.
type Ceiling struct {
	// CPU is in cores, such as "2" or "500m".
	CPU resource.Quantity `json:"cpu"`
	// Memory is in bytes, such as "8Gi".
	Memory resource.Quantity `json:"memory"`
}

// Freeze is the switch that stops all changes while a ConfigMap exists.
type Freeze struct {
	// ConfigMap is the name of the ConfigMap. The Role own-namespace must have the same
	// name. "" turns the switch off. Defaults to "verticalscaler-freeze".
	ConfigMap string `json:"configMap"`
	// Namespace is the namespace of the ConfigMap. Defaults to the operator's namespace.
	Namespace string `json:"namespace,omitempty"`
}

// Prometheus is the source of past usage. With it, a new scaler needs no days to learn.
// docs/prometheus.md describes the setup. Files are read again for each use. Environment
// variables are ignored.
type Prometheus struct {
	// Address is the URL of Prometheus or of a compatible API, without credentials, query
	// and fragment: "https://prometheus.monitoring.svc:9091". "" turns it off. Defaults to "".
	Address string `json:"address"`
	// Labels are extra labels that series must have, such as {cluster: east}. At most 16.
	Labels map[string]string `json:"labels,omitempty"`
	// Lookback is the range of past usage that is read, from 1h to 2160h. Defaults to 192h, the
	// memory window.
	Lookback metav1.Duration `json:"lookback"`
	// Step is the time between two samples, in whole seconds. At least 15s, and at most 2m
	// or three collection intervals. A container's memory must be scraped at least every
	// two steps. Defaults to 1m.
	Step metav1.Duration `json:"step"`
	// RateWindow is the time over which CPU usage is averaged, from 30s to 1h in whole
	// seconds. It must contain two scrapes. Defaults to 5m, the averaging length of CPU.
	RateWindow metav1.Duration `json:"rateWindow"`
	// CAFile is the CA bundle for Prometheus's certificate (PEM). Defaults to the system's,
	// or, in the image, which has no system, to Mozilla's.
	CAFile string `json:"caFile,omitempty"`
	// CertFile and KeyFile are the client certificate and its key (PEM).
	CertFile string `json:"certFile,omitempty"`
	KeyFile  string `json:"keyFile,omitempty"`
	// BearerTokenFile is the file with a bearer token. It is sent only over HTTPS.
	BearerTokenFile string `json:"bearerTokenFile,omitempty"`
	// Username and PasswordFile replace the token. They are sent only over HTTPS.
	Username     string `json:"username,omitempty"`
	PasswordFile string `json:"passwordFile,omitempty"`
}

// removed are the settings that have no meaning anymore, and their replacements.
var removed = map[string]string{
	"leaderElection.replicas":   "one process serves the whole cluster, and further replicas wait to take over (docs/scaling.md)",
	"prometheus.maxBytes":       "an answer has at most 8 MiB",
	"prometheus.timeout":        "a query may take 30s",
	"provision":                 "apply monitoring.yaml for the ServiceMonitor and the alerts (docs/monitoring.md)",
	"workers.scaledDeployments": "4 are reconciled at once",
}

// removedVariables are environment variables that have no meaning anymore, and their replacements.
var removedVariables = map[string]string{
	"OPERATOR_REPLICAS":           removed["leaderElection.replicas"],
	"OTEL_EXPORTER_OTLP_ENDPOINT": "the operator sends no traces; metrics and events say what it does (docs/monitoring.md)",
}

// Warnings lists the settings of the file and of the environment that have no meaning anymore.
func (c Operator) Warnings(getenv func(string) string) []string {
	warnings := c.Ignored
	for _, name := range slices.Sorted(maps.Keys(removedVariables)) {
		if getenv(name) != "" {
			warnings = append(warnings, name+" is ignored: "+removedVariables[name])
		}
	}
	return warnings
}

// Default returns the configuration of an empty file.
func Default() Operator {
	p := recommend.DefaultParams()
	d := func(v time.Duration) metav1.Duration { return metav1.Duration{Duration: v} }
	return Operator{
		TypeMeta:       metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind},
		Metrics:        Metrics{BindAddress: ":8443", Secure: true, CertDir: "/etc/verticalscaler-metrics", Scalers: metrics.Full},
		Health:         Health{BindAddress: ":8081"},
		LeaderElection: LeaderElection{Enabled: true},
		ResyncPeriod:   d(10 * time.Minute),
		Workers:        Workers{VerticalScalers: 32},
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
		Budget: Budget{ChangesPerMinute: 300, ChangesPerMinutePerNamespace: 60, PodPercentPerMinute: 5, Window: time.Minute},
		Ceilings: Ceilings{
			Container:   Ceiling{CPU: resource.MustParse("32"), Memory: resource.MustParse("128Gi")},
			Pod:         Ceiling{CPU: resource.MustParse("64"), Memory: resource.MustParse("256Gi")},
			NodePercent: 75,
			RaiseFactor: 8,
		},
		Freeze: Freeze{ConfigMap: "verticalscaler-freeze"},
		Prometheus: Prometheus{
			Lookback:   d(p.History.MemoryWindow),
			Step:       d(time.Minute),
			RateWindow: d(5 * time.Minute),
		},
	}
}

// Load reads a configuration file over the defaults. Without a path, it returns the defaults.
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
	var content map[string]any
	if err := yaml.UnmarshalStrict(data, &content); err != nil {
		return Operator{}, fmt.Errorf("decoding: %w", err)
	}
	for _, setting := range slices.Sorted(maps.Keys(removed)) {
		path := strings.Split(setting, ".")
		if _, found, _ := unstructured.NestedFieldNoCopy(content, path...); found {
			unstructured.RemoveNestedField(content, path...)
			c.Ignored = append(c.Ignored, setting+" is ignored: "+removed[setting])
		}
	}
	known, err := json.Marshal(content)
	if err == nil {
		err = yaml.UnmarshalStrict(known, &c)
	}
	if err != nil {
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
		name               string
		value, least, most int
	}{
		{"budget.changesPerMinute", c.Budget.ChangesPerMinute, 1, mostChanges},
		{"budget.changesPerMinutePerNamespace", c.Budget.ChangesPerMinutePerNamespace, 1, mostChanges},
		{"budget.podPercentPerMinute", c.Budget.PodPercentPerMinute, 0, 100},
		{"ceilings.nodePercent", c.Ceilings.NodePercent, 1, 100},
		{"workers.verticalScalers", c.Workers.VerticalScalers, 1, mostWorkers},
	} {
		if v.value < v.least || v.value > v.most {
			errs = append(errs, fmt.Errorf("%s must be from %d to %d, not %d", v.name, v.least, v.most, v.value))
		}
	}
	if !slices.Contains(metrics.Details(), c.Metrics.Scalers) {
		errs = append(errs, fmt.Errorf("metrics.scalers must be one of %q, not %q", metrics.Details(), c.Metrics.Scalers))
	}
	errs = append(errs, c.Ceilings.validate()...)
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
			errs = append(errs, fmt.Errorf("%s: %q is not a valid name: %s", v.name, v.value, strings.Join(wrong, "; ")))
		}
	}
	errs = append(errs, c.Prometheus.validate(c.Params().History.MaxGap)...)
	return errors.Join(errs...)
}

func (c Ceilings) validate() (errs []error) {
	if c.RaiseFactor != 0 && (c.RaiseFactor < 2 || c.RaiseFactor > 1000) {
		errs = append(errs, fmt.Errorf("ceilings.raiseFactor must be 0 or from 2 to 1000, not %d", c.RaiseFactor))
	}
	for _, v := range []struct {
		name  string
		value Ceiling
	}{{"ceilings.container", c.Container}, {"ceilings.pod", c.Pod}} {
		if _, err := quantity.CPUMillis(v.value.CPU); err != nil {
			errs = append(errs, fmt.Errorf("%s.cpu: %w", v.name, err))
		}
		if _, err := quantity.MemoryBytes(v.value.Memory); err != nil {
			errs = append(errs, fmt.Errorf("%s.memory: %w", v.name, err))
		}
	}
	return errs
}

// Plan returns the ceilings as the plan reads them.
func (c Ceilings) Plan() model.Ceilings {
	return model.Ceilings{Container: c.Container.amounts(), Pod: c.Pod.amounts(), NodePercent: int64(c.NodePercent), RaiseFactor: int64(c.RaiseFactor)}
}

// amounts are the amounts of a valid ceiling.
func (c Ceiling) amounts() (a quantity.Amounts) {
	a.CPUMillis, _ = quantity.CPUMillis(c.CPU)
	a.MemoryBytes, _ = quantity.MemoryBytes(c.Memory)
	return a
}

// Params returns the parameters of histories and recommendations.
func (c Operator) Params() recommend.Params {
	p := recommend.DefaultParams()
	p.History = history.Params{
		CPUHalfLife:    c.Recommendation.CPUHalfLife.Duration,
		RecentHalfLife: c.Recommendation.RecentHalfLife.Duration,
		MemoryWindow:   c.Recommendation.MemoryWindow.Duration,
		OOMHalfLife:    c.Recommendation.OOMHalfLife.Duration,
		// Two lost collections do not interrupt observed time.
		MaxGap: max(p.History.MaxGap, 3*c.Collection.Interval.Duration),
		Prices: p.History.Prices,
	}
	p.MinEvidence = c.Recommendation.MinEvidence.Duration
	p.FullEvidence = c.Recommendation.FullEvidence.Duration
	p.ConfidenceUnit = c.Recommendation.ConfidenceUnit.Duration
	return p
}
