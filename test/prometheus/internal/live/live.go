// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

// Package live runs a real Prometheus for tests, and has the queries of the dashboards.
package live

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// Job is the job of the operator: the name of its Service.
const Job = "verticalscaler-metrics"

// Prometheus is a running Prometheus.
type Prometheus struct{ address string }

// Start starts a Prometheus that scrapes the address over plain HTTP every 3 seconds, as the job of
// the operator in the namespace. It adds the labels that the Prometheus Operator adds to the targets
// of a ServiceMonitor: Prometheus renames labels of metrics that have the same names.
func Start(t *testing.T, target, namespace string) *Prometheus {
	t.Helper()
	dir := t.TempDir()
	config, err := yaml.Marshal(map[string]any{
		"scrape_configs": []any{map[string]any{
			"job_name": Job, "scrape_interval": "3s", "scrape_timeout": "3s",
			"static_configs": []any{map[string]any{"targets": []string{target}, "labels": map[string]string{
				"namespace": namespace, "service": Job, "pod": "operator-0", "container": "manager", "endpoint": "metrics",
			}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	address, err := process.FreeAddress()
	if err != nil {
		t.Fatal(err)
	}
	p, err := process.Start("prometheus", filepath.Join(dir, "log"), exec.Command("prometheus", "--config.file="+file,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(10 * time.Second) })
	return &Prometheus{address}
}

// Sample is one series of an answer.
type Sample struct {
	Labels map[string]string `json:"metric"`
	Value  []any             `json:"value"`
}

// Query asks for the present values. An answer that is an error is an error.
func (p *Prometheus) Query(expression string) ([]Sample, error) {
	response, err := http.PostForm("http://"+p.address+"/api/v1/query", url.Values{"query": {expression}})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() //nolint:errcheck // only read
	var answer struct {
		Status, Error string
		Data          struct {
			Result []Sample `json:"result"`
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return answer.Data.Result, nil
}

// Query is a query of a dashboard.
type Query struct{ Dashboard, Panel, Expression string }

// Queries are all queries of the dashboards, with these values of their variables.
func Queries(t *testing.T, variables map[string]string) (all []Query) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(testkit.Root(), "config", "components", "grafana", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are the dashboards %q, %v", files, err)
	}
	var replacements []string
	for name, value := range variables {
		replacements = append(replacements, "$"+name, value)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board struct {
			Title  string
			Panels []struct {
				Type, Title string
				Targets     []struct{ Expr string }
			}
		}
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		for _, panel := range board.Panels {
			for _, target := range panel.Targets {
				expression := strings.NewReplacer(replacements...).Replace(target.Expr)
				if strings.Contains(expression, "$") {
					t.Errorf("%s, %s: a variable is not known in %s", board.Title, panel.Title, expression)
				}
				all = append(all, Query{board.Title, panel.Title, expression})
			}
		}
	}
	return all
}

// Empty are the queries without a value now.
func (p *Prometheus) Empty(queries []Query) (empty []string) {
	for _, q := range queries {
		switch samples, err := p.Query(q.Expression); {
		case err != nil:
			empty = append(empty, fmt.Sprintf("%s, %s: %v", q.Dashboard, q.Panel, err))
		case len(samples) == 0:
			empty = append(empty, fmt.Sprintf("%s, %s: %s", q.Dashboard, q.Panel, q.Expression))
		case slices.ContainsFunc(samples, func(s Sample) bool { return s.Value[1] == "NaN" }):
			empty = append(empty, fmt.Sprintf("%s, %s is not a number: %s", q.Dashboard, q.Panel, q.Expression))
		}
	}
	return empty
}
