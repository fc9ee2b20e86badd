// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func TestTheDashboardsAreUpToDate(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	folder := filepath.Join("..", "..", "..", "config", "components", "grafana")
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) != len(dashboards()) {
		t.Errorf("there are the files %q, %v", files, err)
	}
	for name, builder := range dashboards() {
		want, err := encode(builder)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not up to date, run make generate: %v", name, err)
		}
		var d dashboard.Dashboard
		if err := json.Unmarshal(got, &d); err != nil {
			t.Fatal(err)
		}
		if err := d.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each panel says what it shows, and asks the Prometheus that the user has chosen.
func TestPanelsAreComplete(t *testing.T) {
	for name, builder := range dashboards() {
		built, err := builder.Build()
		if err != nil {
			t.Fatal(err)
		}
		panels, titles := 0, map[string]bool{}
		for _, p := range built.Panels {
			if p.Panel == nil {
				continue
			}
			panels++
			if p.Panel.Title == nil || titles[*p.Panel.Title] || p.Panel.Description == nil || len(p.Panel.Targets) == 0 || *p.Panel.Datasource.Uid != "${datasource}" {
				t.Errorf("%s: a panel lacks a title of its own, a description, a query or the datasource: %+v", name, p.Panel)
				continue
			}
			titles[*p.Panel.Title] = true
		}
		if panels < 10 {
			t.Errorf("%s has %d panels", name, panels)
		}
	}
}
