// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"os"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// docs/plugin.md shows the output of status.
func TestThePageShowsWhatStatusPrints(t *testing.T) {
	named := func(name string, summary v1beta1.Summary, changes ...change) explain.Row {
		e := checkout(changes...)
		e.Scaler.Name, e.Scaler.Spec.DeploymentName, e.Scaler.Status.Summary = name, name, &summary
		return explain.RowOf(explain.Evidence{Scaler: e.Scaler})
	}
	o := explain.Overview{Scalers: []explain.Row{
		named("checkout", v1beta1.Summary{CPU: "500m->310m", Memory: "512Mi->640Mi", Pods: "4/6"}, conditions("Applied False Resizing Pods are being resized in place")),
		named("web", v1beta1.Summary{CPU: "230m", Memory: "480Mi", Pods: "2/2"}, conditions("Applied True HPAConflict All pods have the decided size")),
		named("search", v1beta1.Summary{CPU: "500m (230m)", Memory: "480Mi", Pods: "0/2"}, conditions("Ready True RecommendOnly -", "Applied False RecommendOnly -"),
			spec(func(s *v1beta1.VerticalScalerSpec) { s.UpdatePolicy.UpdateMode = "Recommend" })),
		named("api", v1beta1.Summary{}, conditions("Ready True DeploymentNotFound Waiting", "Applied Unknown DeploymentNotFound Waiting")),
	}}
	printed := o.Table(noon, explain.Columns{})
	page, err := os.ReadFile("../../docs/plugin.md")
	must.Succeed(t, err)
	_, shown, _ := strings.Cut(string(page), "```\nNAME ")
	shown, _, _ = strings.Cut("NAME "+shown, "```")
	assert.Equal(t, "docs/plugin.md", strings.Split(printed, "\n"), strings.Split(shown, "\n"))
}
