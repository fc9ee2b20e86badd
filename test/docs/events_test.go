// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/commands"
)

// docs/reasons.md lists the events of both controllers, and no others.
func TestEveryEventIsDocumented(t *testing.T) {
	var recorded, documented []string
	for _, controller := range []string{"verticalscaler", "scaleddeployment"} {
		source := read(t, filepath.Join(root, "controllers", controller, "events.go"))
		for _, match := range regexp.MustCompile(`(?m)^\s+event\w+\s+= "(\w+)"`).FindAllStringSubmatch(source, -1) {
			recorded = append(recorded, match[1])
		}
	}
	for _, row := range commands.Rows(read(t, filepath.Join(root, "docs", "reasons.md"))) {
		if row.Heading == "Events" {
			documented = append(documented, commands.Evidence(row.Cells[0])...)
		}
	}
	slices.Sort(recorded)
	recorded = slices.Compact(recorded) // both controllers record Ready
	slices.Sort(documented)
	if diff := cmp.Diff(recorded, documented); diff != "" || len(recorded) < 10 {
		t.Errorf("events (-recorded +documented):\n%s", diff)
	}
}
