// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// Each alert has a section in the runbook, and each section has an alert.
func TestEachAlertHasItsSectionInTheRunbook(t *testing.T) {
	sections := map[string]string{}
	for _, part := range strings.Split(read(t, filepath.Join(root, "docs", "runbook.md")), "\n## ")[1:] {
		title, body, _ := strings.Cut(part, "\n")
		sections[title] = body
	}
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert       string            `json:"alert"`
					Labels      map[string]string `json:"labels"`
					Annotations map[string]string `json:"annotations"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	must.Succeed(t, yaml.Unmarshal([]byte(read(t, filepath.Join(root, "config", "monitoring", "prometheus_rule.yaml"))), &rule))
	alerts := map[string]bool{}
	for _, group := range rule.Spec.Groups {
		for _, alert := range group.Rules {
			alerts[alert.Alert] = true
			want := "https://github.com/verticalscaler/verticalscaler-operator/blob/main/docs/runbook.md#" + strings.ToLower(alert.Alert)
			if got := alert.Annotations["runbook_url"]; got != want {
				t.Errorf("%s leads to %s, want %s", alert.Alert, got, want)
			}
			assert.Contains(t, "the runbook's section "+alert.Alert, sections[alert.Alert], "**Meaning:**", "**Impact:**", "**Diagnosis:**", "**Mitigation:**")
			if alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" || alert.Labels["severity"] == "" {
				t.Errorf("%s lacks a summary, a description or a severity", alert.Alert)
			}
		}
	}
	if len(alerts) == 0 {
		t.Error("there are no alerts")
	}
	for title := range sections {
		if strings.HasPrefix(title, "VerticalScaler") && !alerts[title] {
			t.Errorf("the runbook has a section %s, which is no alert", title)
		}
	}
}
