// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

// Package rules tests the alerts with promtool. It needs no cluster.
package rules

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/prometheus/internal/realprometheus"
)

const namespace = "ops"

type group struct {
	Name  string           `json:"name"`
	Rules []map[string]any `json:"rules"`
}

// alerts are the groups of alerts as in a namespace of their own.
func alerts(t *testing.T) []group {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "monitoring", "prometheus_rule.yaml"))
	must.Succeed(t, err)
	var rule struct {
		Spec struct {
			Groups []group `json:"groups"`
		} `json:"spec"`
	}
	must.Succeed(t, yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "verticalscaler-system", namespace)), &rule))
	return rule.Spec.Groups
}

// series is a series of the operator, or of one of its replicas.
func series(name, values string, labels ...string) map[string]string {
	all := append([]string{`job="` + realprometheus.Job + `"`, `namespace="` + namespace + `"`}, labels...)
	if !slices.ContainsFunc(labels, func(l string) bool { return strings.HasPrefix(l, "pod=") }) {
		all = append(all, `pod="operator-0"`)
	}
	return map[string]string{"series": name + "{" + strings.Join(all, ", ") + "}", "values": values}
}

// of is a series of a scaler.
func of(scaler, name, values string, labels ...string) map[string]string {
	return series(name, values, append([]string{`target_namespace="shop"`, `scaler="` + scaler + `"`}, labels...)...)
}

// cpuOf are the labels of the CPU of a container.
func cpuOf(container string, more ...string) []string {
	return append([]string{fmt.Sprintf("target_container=%q", container), `resource="cpu"`, `unit="core"`}, more...)
}

func TestAlerts(t *testing.T) {
	up := series("up", "1x240")
	cases := []struct {
		name   string
		series []map[string]string
		// fires has the alerts that fire, by the time since the start, as "alert" or "alert scaler".
		fires map[string][]string
	}{
		{
			"all is well",
			[]map[string]string{
				up, series("leader_election_master_status", "1x240"),
				series("controller_runtime_reconcile_total", "0+60x240", `controller="verticalscaler"`, `result="success"`),
				series("controller_runtime_reconcile_errors_total", "0+1x240", `controller="verticalscaler"`),
				series("verticalscaler_admission_policy_missing", "0x240", `policy="operator-pods"`),
				of("web", "verticalscaler_stalled", "0x240"), of("web", "verticalscaler_status", "1x240", `reason="Applied"`),
				of("web", "verticalscaler_oom_kills_total", "0x240", `memory="lowered"`), of("web", "verticalscaler_reverts_total", "0x240", `cause="Regression"`),
			},
			map[string][]string{"1h": nil, "4h": nil},
		},
		{"down, and back", []map[string]string{series("up", "1x10 0x20 1x30")}, map[string][]string{"15m": nil, "25m": {"VerticalScalerDown"}, "40m": nil}},
		{"gone", []map[string]string{series("up", "1x10")}, map[string][]string{"10m": nil, "40m": {"VerticalScalerDown"}}},
		{"one of two replicas is up", []map[string]string{up, series("up", "0x240", `pod="operator-1"`)}, map[string][]string{"1h": nil}},
		{"never up", []map[string]string{series("up", "0x240")}, map[string][]string{"1h": nil}},
		{
			"no leader",
			[]map[string]string{up, series("leader_election_master_status", "0x240"), series("leader_election_master_status", "0x240", `pod="operator-1"`)},
			map[string][]string{"4m": nil, "10m": {"VerticalScalerNoLeader"}},
		},
		{"one leader of two replicas", []map[string]string{series("leader_election_master_status", "0x240"), series("leader_election_master_status", "1x240", `pod="operator-1"`)}, map[string][]string{"1h": nil}},
		{
			"reconciles fail",
			[]map[string]string{
				series("controller_runtime_reconcile_total", "0+60x240", `controller="verticalscaler"`, `result="error"`),
				series("controller_runtime_reconcile_errors_total", "0+12x240", `controller="verticalscaler"`),
			},
			map[string][]string{"10m": nil, "30m": {"VerticalScalerReconcileErrors"}},
		},
		{
			"reconciles wait",
			[]map[string]string{
				series("workqueue_queue_duration_seconds_bucket", "0+1x240", `name="verticalscaler"`, `le="10"`),
				series("workqueue_queue_duration_seconds_bucket", "0+10x240", `name="verticalscaler"`, `le="100"`),
				series("workqueue_queue_duration_seconds_bucket", "0+10x240", `name="verticalscaler"`, `le="+Inf"`),
			},
			map[string][]string{"10m": nil, "30m": {"VerticalScalerBehind"}},
		},
		{
			"the memory of one of two replicas is near its limit",
			[]map[string]string{
				series("go_gc_heap_live_bytes", "300x240"), series("go_gc_gomemlimit_bytes", "400x240"),
				series("go_gc_heap_live_bytes", "270x240", `pod="operator-1"`), series("go_gc_gomemlimit_bytes", "400x240", `pod="operator-1"`),
			},
			map[string][]string{"10m": nil, "30m": {"VerticalScalerMemoryNearLimit"}},
		},
		{"no memory limit", []map[string]string{series("go_gc_heap_live_bytes", "3e11x240"), series("go_gc_gomemlimit_bytes", "9.2e18x240")}, map[string][]string{"1h": nil}},
		{"a certificate that is good for a week", []map[string]string{series("verticalscaler_metrics_certificate_expiry_timestamp_seconds", "604800x240")}, map[string][]string{"2h": nil}},
		{"a certificate that is good for a day", []map[string]string{series("verticalscaler_metrics_certificate_expiry_timestamp_seconds", "86400x240")}, map[string][]string{"30m": nil, "2h": {"VerticalScalerCertificateExpires"}}},
		{"a policy is missing", []map[string]string{series("verticalscaler_admission_policy_missing", "1x240", `policy="operator-pods"`)}, map[string][]string{"20m": nil, "40m": {"VerticalScalerPoliciesMissing"}}},
		{
			"the promotion of one of two policies halts, and continues",
			[]map[string]string{
				series("verticalscaler_policy_action_required", "_x10 1x40 _x240", `kind="ClusterScalingPolicy"`, `policy_namespace=""`, `policy="fleet"`, `reason="PromotionHalted"`),
				series("verticalscaler_policy_action_required", "0x240", `kind="ScalingPolicy"`, `policy_namespace="shop"`, `policy="fleet"`),
			},
			map[string][]string{"10m": nil, "12m": nil, "20m": {"VerticalScalerPolicyActionRequired"}, "1h": nil},
		},
		{
			"metrics are down, or a scaler of a small cluster has none, or few have none",
			[]map[string]string{
				series("verticalscaler_usage_missing", "0x10 1x40 0x240"),
				of("web", "verticalscaler_status", "_x100 1x40 _x200", `reason="MetricsUnavailable"`), of("cart", "verticalscaler_status", "1x240", `reason="MetricsIncomplete"`),
			},
			map[string][]string{"15m": nil, "30m": {"VerticalScalerUsageMissing"}, "1h": nil, "2h": {"VerticalScalerUsageMissing"}, "3h": nil},
		},
		{
			"the leader changes while a promotion is halted",
			[]map[string]string{
				series("verticalscaler_policy_action_required", "1x20", `kind="ClusterScalingPolicy"`, `policy="fleet"`, `pod="operator-0"`),
				series("verticalscaler_policy_action_required", "_x21 1x240", `kind="ClusterScalingPolicy"`, `policy="fleet"`, `pod="operator-1"`),
			},
			map[string][]string{"20m": {"VerticalScalerPolicyActionRequired"}, "23m": {"VerticalScalerPolicyActionRequired"}, "1h": {"VerticalScalerPolicyActionRequired"}},
		},
		{
			"OOM-killed after lowering, and forgiven after an hour",
			[]map[string]string{
				of("web", "verticalscaler_oom_kills_total", "0x10 1x240", `memory="lowered"`), of("cart", "verticalscaler_oom_kills_total", "0x10 9x240", `memory="original"`),
			},
			map[string][]string{"9m": nil, "15m": {"VerticalScalerOOMKilledAfterLowering web"}, "60m": {"VerticalScalerOOMKilledAfterLowering web"}, "90m": nil},
		},
		{
			"a restart of the operator is no OOM kill",
			[]map[string]string{
				of("web", "verticalscaler_oom_kills_total", "5x30", `memory="lowered"`), of("web", "verticalscaler_oom_kills_total", "_x31 0x100", `memory="lowered"`, `pod="operator-1"`),
				of("web", "verticalscaler_reverts_total", "5x30", `cause="Regression"`), of("web", "verticalscaler_reverts_total", "_x31 0x100", `cause="Regression"`, `pod="operator-1"`),
			},
			map[string][]string{"20m": nil, "40m": nil},
		},
		{
			"reverted by the operator, or by another writer",
			[]map[string]string{
				of("web", "verticalscaler_reverts_total", "0x10 1x240", `cause="Regression"`), of("cart", "verticalscaler_reverts_total", "0x10 1x240", `cause="OtherWriter"`),
			},
			map[string][]string{"15m": {"VerticalScalerReverted web"}, "90m": nil},
		},
		{
			"stalled, and contested, which is stalled, too",
			[]map[string]string{
				of("web", "verticalscaler_stalled", "1x240"), of("web", "verticalscaler_status", "1x240", `reason="Forbidden"`),
				of("cart", "verticalscaler_stalled", "1x240"), of("cart", "verticalscaler_status", "1x240", `reason="Contested"`),
			},
			map[string][]string{"3m": nil, "20m": {"VerticalScalerContested cart"}, "40m": {"VerticalScalerContested cart", "VerticalScalerStalled web"}},
		},
		{"stalled for a moment", []map[string]string{of("web", "verticalscaler_stalled", "0x10 1x20 0x240")}, map[string][]string{"25m": nil, "45m": nil}},
		{
			"waits for the budget, or for a moment",
			[]map[string]string{
				of("web", "verticalscaler_status", "1x240", `reason="WaitingForBudget"`),
				of("cart", "verticalscaler_status", "1x5 _x5 1x5 _x5 1x5 _x200", `reason="WaitingForBudget"`), of("cart", "verticalscaler_status", "_x6 1x4 _x6 1x4 _x6 1x200", `reason="Resizing"`),
			},
			map[string][]string{"20m": nil, "40m": {"VerticalScalerBudgetStarved web"}},
		},
		{
			"below what it needs: for long, for a moment, as recommended only, and one of two resources",
			[]map[string]string{
				of("web", "verticalscaler_container_request", "0.1x240", cpuOf("app")...), of("web", "verticalscaler_container_lower_bound", "0.3x240", cpuOf("app")...),
				of("web", "verticalscaler_container_request", "9x240", cpuOf("sidecar")...), of("web", "verticalscaler_container_lower_bound", "0.3x240", cpuOf("sidecar")...),
				of("cart", "verticalscaler_container_request", "0.1x20 0.4x240", cpuOf("app")...), of("cart", "verticalscaler_container_lower_bound", "0.3x240", cpuOf("app")...),
				of("new", "verticalscaler_container_request", "0.1x240", cpuOf("app")...), of("new", "verticalscaler_container_lower_bound", "0.3x240", cpuOf("app")...),
				of("blind", "verticalscaler_container_request", "0.1x240", cpuOf("app")...), of("blind", "verticalscaler_container_lower_bound", "0.3x240", cpuOf("app")...),
				of("blind", "verticalscaler_status", "1x240", `reason="MetricsIncomplete"`),
				of("new", "verticalscaler_status", "1x240", `reason="RecommendOnly"`), of("web", "verticalscaler_status", "1x240", `reason="Deferred"`),
				of("idle", "verticalscaler_container_request", "0.3x240", cpuOf("app")...), of("idle", "verticalscaler_container_lower_bound", "0.3x240", cpuOf("app")...),
				of("unset", "verticalscaler_container_lower_bound", "0.3x240", cpuOf("app")...),
			},
			map[string][]string{"25m": nil, "40m": {"VerticalScalerBelowBaseline web"}, "3h": {"VerticalScalerBelowBaseline web"}},
		},
		{
			"below what it needs while the operator is replaced, and then raised",
			[]map[string]string{
				of("web", "verticalscaler_container_request", "0.1x40", cpuOf("app")...), of("web", "verticalscaler_container_lower_bound", "0.3x40", cpuOf("app")...),
				of("web", "verticalscaler_container_request", "_x41 0.1x20 0.3x100", cpuOf("app", `pod="operator-1"`)...), of("web", "verticalscaler_container_lower_bound", "_x41 0.3x120", cpuOf("app", `pod="operator-1"`)...),
			},
			map[string][]string{"25m": nil, "38m": {"VerticalScalerBelowBaseline web"}, "55m": {"VerticalScalerBelowBaseline web"}, "80m": nil},
		},
		{
			"OOM kills that go on, one wave of kills, and two",
			[]map[string]string{
				of("web", "verticalscaler_oom_kills_total", "0 0+1x60 60x200", `memory="original"`),
				of("cart", "verticalscaler_oom_kills_total", "0x10 9x240", `memory="original"`),
				of("api", "verticalscaler_oom_kills_total", "0x10 9x20 12x240", `memory="original"`),
			},
			map[string][]string{"20m": nil, "50m": {"VerticalScalerOOMKillsContinue web"}, "2h": nil},
		},
		{
			"sums of a namespace",
			[]map[string]string{
				of("", "verticalscaler_stalled", "3x240"), of("", "verticalscaler_status", "1x240", `reason="Forbidden"`), of("", "verticalscaler_oom_kills_total", "0x10 2x240", `memory="lowered"`),
			},
			map[string][]string{"15m": {"VerticalScalerOOMKilledAfterLowering"}, "50m": {"VerticalScalerOOMKilledAfterLowering", "VerticalScalerStalled"}},
		},
	}
	var tests []map[string]any
	for _, c := range cases {
		var asked []map[string]any
		for at, firing := range c.fires {
			samples := []map[string]any{}
			for _, alert := range firing {
				name, scaler, _ := strings.Cut(alert, " ")
				labels := fmt.Sprintf("{alertname=%q}", name)
				if scaler != "" {
					labels = fmt.Sprintf("{alertname=%q, scaler=%q}", name, scaler)
				}
				samples = append(samples, map[string]any{"labels": labels, "value": 1})
			}
			asked = append(asked, map[string]any{"expr": `count by (alertname, scaler) (ALERTS{alertstate="firing"})`, "eval_time": at, "exp_samples": samples})
		}
		tests = append(tests, map[string]any{"name": c.name, "interval": "1m", "input_series": c.series, "promql_expr_test": asked})
	}
	dir := t.TempDir()
	writeYAML(t, filepath.Join(dir, "rules.yaml"), map[string]any{"groups": alerts(t)})
	writeYAML(t, filepath.Join(dir, "tests.yaml"), map[string]any{"rule_files": []string{"rules.yaml"}, "evaluation_interval": "1m", "tests": tests})
	for _, arguments := range [][]string{{"check", "rules", "--lint=all", "--lint-fatal"}, {"test", "rules"}} {
		file := map[string]string{"check": "rules.yaml", "test": "tests.yaml"}[arguments[0]]
		if out, err := exec.Command("promtool", append(arguments, filepath.Join(dir, file))...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
	}

	// Each alert fires in one of the cases.
	for _, g := range alerts(t) {
		for _, rule := range g.Rules {
			if name := rule["alert"].(string); !slices.ContainsFunc(tests, func(test map[string]any) bool {
				return strings.Contains(fmt.Sprint(test), fmt.Sprintf("alertname=%q", name))
			}) {
				t.Errorf("%s fires in no test", name)
			}
		}
	}
}

func writeYAML(t *testing.T, path string, content any) {
	t.Helper()
	text, err := yaml.Marshal(content)
	must.Succeed(t, err)
	must.Succeed(t, os.WriteFile(path, text, 0o600))
}
