// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// No metric of the operator's own is registered without being listed.
func TestEachMetricIsListed(t *testing.T) {
	listed := map[string]bool{}
	for _, m := range metrics.All() {
		listed[m.Name] = true
	}
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		ctrlmetrics.Registry.(prometheus.Collector).Describe(descs)
	}()
	for desc := range descs {
		text := desc.String()
		if name, _, _ := strings.Cut(strings.TrimPrefix(text, `Desc{fqName: "`), `"`); strings.HasPrefix(name, "verticalscaler_") && !listed[name] {
			t.Errorf("%s is not listed", text)
		}
	}
}

// Dashboards and alerts ask only for metrics that exist, and each metric about scalers and policies is on a
// dashboard.
func TestQueriesNameMetricsThatExist(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	files, err := filepath.Glob(filepath.Join(root, "config", "components", "grafana", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("there are the dashboards %q, %v", files, err)
	}
	files = append(files, filepath.Join(root, "config", "monitoring", "prometheus_rule.yaml"), filepath.Join(root, "docs", "runbook.md"))
	asked := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		for _, name := range regexp.MustCompile(`\bverticalscaler_\w+`).FindAllString(string(text), -1) {
			asked[name] = true
		}
	}
	for _, m := range metrics.All() {
		if (m.AboutScalers || m.AboutPolicies) && !asked[m.Name] {
			t.Errorf("%s is on no dashboard", m.Name)
		}
		delete(asked, m.Name)
	}
	for name := range asked {
		t.Errorf("%s is no metric", name)
	}
}
