// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command grafana writes the Grafana dashboards into a folder, one file each.
//
// They read only what the operator serves: no panel is empty because another exporter is missing.
// The tests in test/prometheus ask a real Prometheus each query.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// The units of Grafana.
const (
	unitNumber = "short"
	unitCores  = "suffix: cores"
	unitBytes  = "bytes"
)

// The selectors of series: those of one operator, of the chosen namespaces, and of one scaler.
const (
	own       = `job="$job"`
	chosen    = own + `, target_namespace=~"$target_namespace"`
	ofScaler  = own + `, target_namespace="$target_namespace", scaler="$scaler"`
	withCPU   = `, resource="cpu"`
	withBytes = `, resource="memory"`
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: grafana FOLDER")
		os.Exit(2)
	}
	for name, builder := range dashboards() {
		if err := write(filepath.Join(os.Args[1], name), builder); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func dashboards() map[string]*dashboard.DashboardBuilder {
	return map[string]*dashboard.DashboardBuilder{"fleet.json": fleet(), "scaler.json": scaler()}
}

func encode(builder *dashboard.DashboardBuilder) ([]byte, error) {
	built, err := builder.Build()
	if err != nil {
		return nil, fmt.Errorf("building the dashboard: %w", err)
	}
	text, err := json.MarshalIndent(built, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the dashboard: %w", err)
	}
	return append(text, '\n'), nil
}

func write(path string, builder *dashboard.DashboardBuilder) error {
	text, err := encode(builder)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644) //nolint:gosec // everybody may read it
}

// fleet is about all scalers.
func fleet() *dashboard.DashboardBuilder {
	return board("verticalscaler-fleet", "VerticalScaler / Fleet", "What all scalers save, wait for and change").
		WithVariable(namespaces(true)).
		WithPanel(single("Scalers", "All scalers.", unitNumber, `sum(verticalscaler_status{`+chosen+`})`)).
		WithPanel(single("Stalled", "Scalers that need action by a user.", unitNumber, `sum(verticalscaler_stalled{`+chosen+`})`)).
		WithPanel(single("Waiting", "Scalers of which a change is due and waits.", unitNumber, `sum(verticalscaler_waiting{`+chosen+`})`)).
		WithPanel(single("CPU saved", "Requests with the original pod templates, minus present requests. Below 0, pods request more.", unitCores, `sum(verticalscaler_saved{`+chosen+withCPU+`})`)).
		WithPanel(single("Memory saved", "Requests with the original pod templates, minus present requests. Below 0, pods request more.", unitBytes, `sum(verticalscaler_saved{`+chosen+withBytes+`})`)).
		WithPanel(single("OOM kills in 24 hours", "OOM kills of containers that had less memory than the original pod template gives.", unitNumber, `sum(increase(verticalscaler_oom_kills_total{`+chosen+`, memory="lowered"}[24h]))`)).
		WithRow(dashboard.NewRowBuilder("Requests")).
		WithPanel(lines("CPU", "Requests of all pods, and what the recommendations add up to.", unitCores,
			query(`sum(verticalscaler_requested{`+chosen+withCPU+`})`, "requested"), query(`sum(verticalscaler_recommended{`+chosen+withCPU+`})`, "recommended"))).
		WithPanel(lines("Memory", "Requests of all pods, and what the recommendations add up to.", unitBytes,
			query(`sum(verticalscaler_requested{`+chosen+withBytes+`})`, "requested"), query(`sum(verticalscaler_recommended{`+chosen+withBytes+`})`, "recommended"))).
		WithPanel(lines("CPU that could be saved, by namespace", "Requests minus recommendations: the ten namespaces with most.", unitCores,
			query(`topk(10, sum by (target_namespace) (verticalscaler_requested{`+chosen+withCPU+`} - verticalscaler_recommended{`+chosen+withCPU+`}))`, "{{target_namespace}}"))).
		WithPanel(lines("Memory that could be saved, by namespace", "Requests minus recommendations: the ten namespaces with most.", unitBytes,
			query(`topk(10, sum by (target_namespace) (verticalscaler_requested{`+chosen+withBytes+`} - verticalscaler_recommended{`+chosen+withBytes+`}))`, "{{target_namespace}}"))).
		WithRow(dashboard.NewRowBuilder("Scalers")).
		WithPanel(stacked("States", "Scalers by the reason that kubectl get shows.", unitNumber, query(`sum by (reason) (verticalscaler_status{`+chosen+`})`, "{{reason}}"))).
		WithPanel(stacked("Changes in 10 minutes", "Changes of pods and pod templates.", unitNumber, query(`sum by (action) (increase(verticalscaler_changes_total{`+chosen+`}[10m]))`, "{{action}}"))).
		WithPanel(stacked("Reverts in an hour", "Changes that were undone: by the operator (Regression) or by another writer.", unitNumber, query(`sum by (cause) (increase(verticalscaler_reverts_total{`+chosen+`}[1h]))`, "{{cause}}"))).
		WithPanel(stacked("OOM kills in an hour", "With less memory than the original pod template gives (lowered), or not (original).", unitNumber, query(`sum by (memory) (increase(verticalscaler_oom_kills_total{`+chosen+`}[1h]))`, "{{memory}}"))).
		WithRow(dashboard.NewRowBuilder("Policies")).
		WithPanel(stacked("Deployments of policies", "Deployments that the selectors of all policies match: with a scaler of the policy, or skipped. One that two policies match counts for both.", unitNumber,
			query(`sum by (state) (verticalscaler_policy_deployments{`+own+`})`, "{{state}}"))).
		WithPanel(lines("Promotion", "Scalers of all policies. Those that are promoted include those that are being verified, and those that did harm.", unitNumber,
			query(`sum by (stage) (verticalscaler_policy_scalers{`+own+`})`, "{{stage}}"))).
		WithPanel(lines("Promoted, by policy", "Promoted scalers: the ten policies with most.", unitNumber,
			query(`topk(10, sum by (policy_namespace, policy) (verticalscaler_policy_scalers{`+own+`, stage="promoted"}))`, "{{policy_namespace}} {{policy}}"))).
		WithPanel(lines("Halted promotions", "Policies of which the promotion has halted because too many scalers did harm.", unitNumber,
			query(`sum(verticalscaler_policy_promotion_halted{`+own+`})`, "policies"))).
		WithRow(dashboard.NewRowBuilder("Operator")).
		WithPanel(lines("Waiting for the budget", "Scalers whose next change waits for the budget.", unitNumber, query(`max(verticalscaler_budget_waiting{`+own+`})`, "scalers"))).
		WithPanel(stacked("Reconciles in 10 minutes", "Reconciles of all controllers, by result.", unitNumber, query(`sum by (result) (increase(controller_runtime_reconcile_total{`+own+`}[10m]))`, "{{result}}"))).
		WithPanel(stacked("Usage samples in 10 minutes", "Samples that the operator has received, by outcome.", unitNumber, query(`sum by (outcome) (increase(verticalscaler_samples_total{`+own+`}[10m]))`, "{{outcome}}"))).
		WithPanel(stacked("Requests for changes in 10 minutes", "Changes asked of the API server, by outcome.", unitNumber, query(`sum by (outcome) (increase(verticalscaler_actions_total{`+own+`}[10m]))`, "{{outcome}}")))
}

// scaler is about one scaler. It needs the series of single scalers (metrics.scalers: full).
func scaler() *dashboard.DashboardBuilder {
	container := func(title, description, selector, unit string) *timeseries.PanelBuilder {
		in := `{` + ofScaler + `, target_container=~"$container"` + selector + `}`
		return lines(title, description, unit,
			query(`verticalscaler_container_request`+in, "{{target_container}} request"),
			query(`verticalscaler_container_target`+in, "{{target_container}} target"),
			query(`verticalscaler_container_lower_bound`+in, "{{target_container}} lower bound"),
			query(`verticalscaler_container_upper_bound`+in, "{{target_container}} upper bound")).Span(24).Height(9)
	}
	return board("verticalscaler-scaler", "VerticalScaler / Scaler", "Requests, recommendations and changes of one scaler").
		WithVariable(namespaces(false)).
		WithVariable(choice("scaler", "Scaler", `label_values(verticalscaler_status{`+own+`, target_namespace="$target_namespace"}, scaler)`, false)).
		WithVariable(choice("container", "Container", `label_values(verticalscaler_container_request{`+ofScaler+`}, target_container)`, true)).
		WithPanel(single("Ready", "1 if the scaler is ready.", unitNumber, `max(verticalscaler_ready{`+ofScaler+`})`)).
		WithPanel(single("Stalled", "1 if a user must act.", unitNumber, `max(verticalscaler_stalled{`+ofScaler+`})`)).
		WithPanel(single("Pods", "Running pods.", unitNumber, `max(verticalscaler_pods{`+ofScaler+`})`)).
		WithPanel(single("Pods at size", "Pods that have the decided requests.", unitNumber, `max(verticalscaler_pods_at_size{`+ofScaler+`})`)).
		WithPanel(single("CPU saved", "Requests with the original pod template, minus present requests. Below 0, pods request more.", unitCores, `sum(verticalscaler_saved{`+ofScaler+withCPU+`})`)).
		WithPanel(single("Memory saved", "Requests with the original pod template, minus present requests. Below 0, pods request more.", unitBytes, `sum(verticalscaler_saved{`+ofScaler+withBytes+`})`)).
		WithPanel(container("CPU", "Of one pod: the request furthest from the target, the recommended target, and its bounds.", withCPU, unitCores)).
		WithPanel(container("Memory", "Of one pod: the request furthest from the target, the recommended target, and its bounds.", withBytes, unitBytes)).
		WithPanel(stacked("State", "The reason that kubectl get shows.", unitNumber, query(`sum by (reason) (verticalscaler_status{`+ofScaler+`})`, "{{reason}}"))).
		WithPanel(stacked("Changes in 10 minutes", "Changes of pods and the pod template.", unitNumber, query(`sum by (action) (increase(verticalscaler_changes_total{`+ofScaler+`}[10m]))`, "{{action}}"))).
		WithPanel(stacked("Reverts in an hour", "Changes that were undone: by the operator (Regression) or by another writer.", unitNumber, query(`sum by (cause) (increase(verticalscaler_reverts_total{`+ofScaler+`}[1h]))`, "{{cause}}"))).
		WithPanel(stacked("OOM kills in an hour", "With less memory than the original pod template gives (lowered), or not (original).", unitNumber, query(`sum by (memory) (increase(verticalscaler_oom_kills_total{`+ofScaler+`}[1h]))`, "{{memory}}")))
}

// board is a dashboard that asks for a Prometheus and a job.
func board(uid, title, description string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder(title).
		Uid(uid).
		Description(description).
		Tags([]string{"verticalscaler"}).
		Time("now-24h", "now").
		Refresh("1m").
		Timezone(common.TimeZoneBrowser).
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Link(dashboard.NewDashboardLinkBuilder("VerticalScaler").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"verticalscaler"}).KeepTime(true).IncludeVars(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus")).
		WithVariable(choice("job", "Job", `label_values(verticalscaler_budget_waiting, job)`, false))
}

func namespaces(several bool) *dashboard.QueryVariableBuilder {
	return choice("target_namespace", "Namespace", `label_values(verticalscaler_status{`+own+`}, target_namespace)`, several)
}

// choice is a variable with the values of a label.
func choice(name, label, values string, several bool) *dashboard.QueryVariableBuilder {
	b := dashboard.NewQueryVariableBuilder(name).Label(label).
		Datasource(source()).
		Query(dashboard.StringOrMap{String: cog.ToPtr(values)}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc)
	if several {
		b.Multi(true).IncludeAll(true).AllValue(".*")
	}
	return b
}

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

func query(expr, legend string) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Datasource(source()).Expr(expr).LegendFormat(legend)
}

// single shows the latest number.
func single(title, description, unit, expr string) *stat.PanelBuilder {
	return stat.NewPanelBuilder().Title(title).Description(description).Datasource(source()).
		Unit(unit).Span(4).Height(4).GraphMode(common.BigValueGraphModeArea).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).
		WithTarget(query(expr, title))
}

func lines(title, description, unit string, queries ...*prometheus.DataqueryBuilder) *timeseries.PanelBuilder {
	b := timeseries.NewPanelBuilder().Title(title).Description(description).Datasource(source()).
		Unit(unit).Span(12).Height(8).LineWidth(2).FillOpacity(0).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti))
	for i, q := range queries {
		b.WithTarget(q.RefId(string(rune('A' + i))))
	}
	return b
}

func stacked(title, description, unit string, queries ...*prometheus.DataqueryBuilder) *timeseries.PanelBuilder {
	return lines(title, description, unit, queries...).FillOpacity(30).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
}
