// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
)

// SeriesPerPolicy is the most series of a policy.
const SeriesPerPolicy = 8

// The labels of a policy. Its namespace is not called "namespace": Prometheus gives that label the operator's. It is
// empty for a ClusterScalingPolicy.
const (
	labelKind            = "kind"
	labelPolicyNamespace = "policy_namespace"
	labelPolicy          = "policy"
)

// aboutPolicies are the metrics about policies.
var aboutPolicies = []Metric{
	ofPolicy("verticalscaler_policy_deployments", "Deployments that the selectors of the policy match, by state: scaled if they have a scaler of this policy, skipped if they must have none.", "state"),
	ofPolicy("verticalscaler_policy_scalers", "Scalers of the policy, by stage: collecting evidence, waiting for their turn, or promoted. Of those that are promoted, verifying are being verified, and harmed did harm. Absent if the policy promotes none.", "stage"),
	ofPolicy("verticalscaler_policy_promotion_halted", "1 if the promotion has halted because too many scalers did harm: a user must act. Absent if the policy promotes none."),
}

func ofPolicy(name, help string, labels ...string) Metric {
	return Metric{Name: name, Kind: Gauge, Help: help, Labels: append([]string{labelKind, labelPolicyNamespace, labelPolicy}, labels...), Stability: Alpha, AboutPolicies: true}
}

// Policy names a ScalingPolicy, or a ClusterScalingPolicy, which has no namespace.
type Policy struct{ Kind, Namespace, Name string }

// PolicyState is what the status of a policy says.
type PolicyState struct {
	Scaled, Skipped int32
	// Stages is nil if the policy promotes no scalers.
	Stages *Stages
}

// Stages are the scalers of a policy by how far they are.
type Stages struct {
	Collecting, Waiting, Verifying, Promoted, Harmed int32
	// Halted is true if the promotion has halted.
	Halted bool
}

// Policies has the state of the policies that one manager serves. A nil Policies records nothing.
type Policies struct {
	mu    sync.Mutex
	known map[Policy]PolicyState
}

// Record replaces what is known of a policy.
func (p *Policies) Record(policy Policy, state PolicyState) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[Policy]PolicyState{}
	}
	p.known[policy] = state
}

// Forget drops a deleted policy.
func (p *Policies) Forget(policy Policy) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, policy)
}

// Start serves the series until the context ends. It implements the interface of runnables of a manager.
func (p *Policies) Start(ctx context.Context) error {
	servedPolicies.add(p)
	<-ctx.Done()
	servedPolicies.remove(p)
	return nil
}

// Describe implements prometheus.Collector.
func (p *Policies) Describe(out chan<- *prometheus.Desc) {
	for _, m := range aboutPolicies {
		out <- descs[m.Name]
	}
}

// Collect implements prometheus.Collector.
func (p *Policies) Collect(out chan<- prometheus.Metric) {
	p.mu.Lock()
	known := maps.Clone(p.known)
	p.mu.Unlock()
	for policy, state := range known {
		policy.collect(out, state)
	}
}

func (p Policy) collect(out chan<- prometheus.Metric, state PolicyState) {
	gauge := func(name string, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(descs[name], prometheus.GaugeValue, v, append([]string{p.Kind, p.Namespace, p.Name}, labels...)...)
	}
	gauge("verticalscaler_policy_deployments", float64(state.Scaled), "scaled")
	gauge("verticalscaler_policy_deployments", float64(state.Skipped), "skipped")
	if state.Stages == nil {
		return
	}
	for stage, n := range map[string]int32{
		"collecting": state.Stages.Collecting, "waiting": state.Stages.Waiting, "verifying": state.Stages.Verifying,
		"promoted": state.Stages.Promoted, "harmed": state.Stages.Harmed,
	} {
		gauge("verticalscaler_policy_scalers", float64(n), stage)
	}
	gauge("verticalscaler_policy_promotion_halted", float64(toInt(state.Stages.Halted)))
}

// servedPolicies is what the endpoint serves about policies.
var servedPolicies = &policyManagers{}

func init() { ctrlmetrics.Registry.MustRegister(servedPolicies) }

// policyManagers are the Policies of the running managers. Only the newest one is served: a manager knows all policies.
type policyManagers struct {
	mu      sync.Mutex
	running []*Policies
}

func (m *policyManagers) add(p *Policies) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = append(m.running, p)
}

func (m *policyManagers) remove(p *Policies) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = slices.DeleteFunc(slices.Clone(m.running), func(other *Policies) bool { return other == p })
}

// Describe implements prometheus.Collector.
func (m *policyManagers) Describe(out chan<- *prometheus.Desc) { (&Policies{}).Describe(out) }

// Collect implements prometheus.Collector.
func (m *policyManagers) Collect(out chan<- prometheus.Metric) {
	m.mu.Lock()
	running := m.running
	m.mu.Unlock()
	if len(running) > 0 {
		running[len(running)-1].Collect(out)
	}
}
