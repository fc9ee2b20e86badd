// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

// Package realprometheus runs a real Prometheus for tests, and has the queries of the dashboards.
package realprometheus

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// Job is the job of the operator: the name of its Service.
const Job = "verticalscaler-metrics"

// patience is how long the start may take, on a busy machine.
const patience = 2 * time.Minute

// Prometheus is a running Prometheus.
type Prometheus struct {
	*process.Process

	// Address is its URL.
	Address string
}

// Run starts a Prometheus whose files are in a folder, with further flags, and returns when it is ready. Its data are in the
// folder data.
func Run(dir string, config map[string]any, flags ...string) (*Prometheus, error) {
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("these tests need a real Prometheus: apt-get install --no-install-recommends prometheus: %w", err)
		}
	}
	text, err := yaml.Marshal(config)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	address, err := process.FreeAddress()
	if err != nil {
		return nil, err
	}
	flags = append(flags, "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn")
	server, err := process.Start("prometheus", filepath.Join(dir, "log"), exec.Command("prometheus", flags...))
	if err != nil {
		return nil, err
	}
	p := &Prometheus{server, "http://" + address}
	// Prometheus does not announce that it is ready, and must be asked.
	err = wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		response, err := http.Get(p.Address + "/-/ready")
		if err != nil {
			if p.HasEnded() {
				return false, p.Failure()
			}
			return false, nil
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK, nil
	})
	if err != nil {
		p.Stop(time.Second)
		return nil, fmt.Errorf("Prometheus is not ready: %w: %s", err, p.Tail(20))
	}
	return p, nil
}

// Start starts a Prometheus that scrapes the address over plain HTTP every 3 seconds, as the job of
// the operator in the namespace. It adds the labels that the Prometheus Operator adds to the targets
// of a ServiceMonitor: Prometheus renames labels of metrics that have the same names.
func Start(t *testing.T, target, namespace string) *Prometheus {
	t.Helper()
	p, err := Run(t.TempDir(), map[string]any{
		"scrape_configs": []any{map[string]any{
			"job_name": Job, "scrape_interval": "3s", "scrape_timeout": "3s",
			"static_configs": []any{map[string]any{"targets": []string{target}, "labels": map[string]string{
				"namespace": namespace, "service": Job, "pod": "operator-0", "container": "manager", "endpoint": "metrics",
			}}},
		}},
	})
	must.Succeed(t, err)
	t.Cleanup(func() { p.Stop(10 * time.Second) })
	return p
}

// Query asks for the present values.
func (p *Prometheus) Query(expression string) (model.Vector, error) {
	client, err := api.NewClient(api.Config{Address: p.Address})
	if err != nil {
		return nil, err
	}
	value, _, err := v1.NewAPI(client).Query(context.Background(), expression, time.Now())
	vector, ok := value.(model.Vector)
	if err == nil && !ok {
		err = fmt.Errorf("the result is a %T", value)
	}
	return vector, err
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
		must.Succeed(t, err)
		var board struct {
			Title  string
			Panels []struct {
				Type, Title string
				Targets     []struct{ Expr string }
			}
		}
		must.Succeed(t, json.Unmarshal(text, &board))
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
		case slices.ContainsFunc(samples, func(s *model.Sample) bool { return math.IsNaN(float64(s.Value)) }):
			empty = append(empty, fmt.Sprintf("%s, %s is not a number: %s", q.Dashboard, q.Panel, q.Expression))
		}
	}
	return empty
}
