// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// SeriesPerPolicy is the most series of a policy.
const SeriesPerPolicy = 8

// The labels of a policy. Its namespace is not called "namespace": Prometheus gives that label the operator's. It is
// empty for a ClusterScalingPolicy.
const (
	labelKind            = "kind"
	labelPolicyNamespace = "policy_namespace"
	labelPolicy          = "policy"
)

var (
	policyDeployments = ofPolicy("verticalscaler_policy_deployments", "Deployments that the selectors of the policy match, by state: scaled if they have a scaler of this policy, skipped if they must have none.", "state")
	policyScalers     = ofPolicy("verticalscaler_policy_scalers", "Scalers of the policy, by stage: collecting evidence, waiting for their turn, or promoted. Of those that are promoted, verifying are being verified, and harmed did harm. Absent if the policy promotes none.", "stage")
	policyHalted      = ofPolicy("verticalscaler_policy_promotion_halted", "1 if the promotion has halted because too many scalers did harm: a user must act. Absent if the policy promotes none.")
)

func ofPolicy(name, help string, labels ...string) *prometheus.GaugeVec {
	return NewGauge(Metric{Name: name, Help: help, Labels: append([]string{labelKind, labelPolicyNamespace, labelPolicy}, labels...), Stability: Alpha, AboutPolicies: true})
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

// Record replaces what is known of the policy.
func (p Policy) Record(state PolicyState) {
	set := func(of *prometheus.GaugeVec, v int32, labels ...string) {
		of.WithLabelValues(append([]string{p.Kind, p.Namespace, p.Name}, labels...)...).Set(float64(v))
	}
	set(policyDeployments, state.Scaled, "scaled")
	set(policyDeployments, state.Skipped, "skipped")
	if state.Stages == nil {
		p.forget(policyScalers, policyHalted)
		return
	}
	set(policyScalers, state.Stages.Collecting, "collecting")
	set(policyScalers, state.Stages.Waiting, "waiting")
	set(policyScalers, state.Stages.Verifying, "verifying")
	set(policyScalers, state.Stages.Promoted, "promoted")
	set(policyScalers, state.Stages.Harmed, "harmed")
	set(policyHalted, int32(toInt(state.Stages.Halted)))
}

// Forget drops the series of a deleted policy.
func (p Policy) Forget() { p.forget(policyDeployments, policyScalers, policyHalted) }

func (p Policy) forget(metrics ...*prometheus.GaugeVec) {
	for _, m := range metrics {
		m.DeletePartialMatch(prometheus.Labels{labelKind: p.Kind, labelPolicyNamespace: p.Namespace, labelPolicy: p.Name})
	}
}

// ForgetPolicies drops the series of all policies, before another manager serves them.
func ForgetPolicies() {
	policyDeployments.Reset()
	policyScalers.Reset()
	policyHalted.Reset()
}
