// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
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

var (
	policyDeployments = ofPolicy("verticalscaler_policy_deployments", "Deployments that the selectors of the policy match, by state: scaled if they have a scaler of this policy, skipped if they must have none.", "state")
	policyScalers     = ofPolicy("verticalscaler_policy_scalers", "Scalers of the policy, by stage: collecting evidence, waiting for their turn, or promoted. Of those that are promoted, verifying are being verified, and harmed did harm. Absent if the policy promotes none.", "stage")
	policyAction      = ofPolicy("verticalscaler_policy_action_required", "1 if a user must act on the policy, by the reason that the plugin shows. Otherwise 0, without a reason. If usage is missing in the whole cluster, verticalscaler_usage_missing says so.", "reason")
)

func ofPolicy(name, help string, labels ...string) *prometheus.GaugeVec {
	return NewGauge(Metric{Name: name, Help: help, Labels: append([]string{labelKind, labelPolicyNamespace, labelPolicy}, labels...), Stability: Alpha, AboutPolicies: true})
}

// labelsOf are the labels of a policy. A ClusterScalingPolicy has no namespace.
func labelsOf(policy types.NamespacedName) []string {
	kind := v1beta1.ScalingPolicyKind
	if policy.Namespace == "" {
		kind = v1beta1.ClusterScalingPolicyKind
	}
	return []string{kind, policy.Namespace, policy.Name}
}

// RecordPolicy replaces the series of a policy by its status.
func RecordPolicy(policy types.NamespacedName, status v1beta1.ScalingPolicyStatus) {
	set := func(of *prometheus.GaugeVec, v int32, labels ...string) {
		of.WithLabelValues(append(labelsOf(policy), labels...)...).Set(float64(v))
	}
	var skipped int32
	for _, count := range status.Skipped {
		skipped += count.Count
	}
	set(policyDeployments, status.Scaled, "scaled")
	set(policyDeployments, skipped, "skipped")
	action := scaler.ActionOf(status)
	forgetPolicy(policy, policyAction)
	set(policyAction, int32(toInt(action != "")), action)
	r := status.Rollout
	if r == nil {
		forgetPolicy(policy, policyScalers)
		return
	}
	set(policyScalers, r.Collecting, "collecting")
	set(policyScalers, r.Waiting, "waiting")
	set(policyScalers, r.Verifying, "verifying")
	set(policyScalers, r.Promoted, "promoted")
	set(policyScalers, r.Harmed, "harmed")
}

// ForgetPolicy drops the series of a deleted policy.
func ForgetPolicy(policy types.NamespacedName) {
	forgetPolicy(policy, policyDeployments, policyScalers, policyAction)
}

func forgetPolicy(policy types.NamespacedName, metrics ...*prometheus.GaugeVec) {
	labels := labelsOf(policy)
	for _, m := range metrics {
		m.DeletePartialMatch(prometheus.Labels{labelKind: labels[0], labelPolicyNamespace: labels[1], labelPolicy: labels[2]})
	}
}

// ForgetPolicies drops the series of all policies, before another manager serves them.
func ForgetPolicies() {
	policyDeployments.Reset()
	policyScalers.Reset()
	policyAction.Reset()
}
