// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// docs/reasons.md lists the events of scalers, of ScaledDeployments, and of what policies do to scalers, and no others.
func TestEveryEventIsDocumented(t *testing.T) {
	var recorded, documented []string
	for _, file := range []string{"verticalscaler/events.go", "scaleddeployment/events.go", "scalingpolicy/member.go"} {
		source := read(t, filepath.Join(root, "controllers", file))
		for _, match := range regexp.MustCompile(`(?m)^\s+event\w+\s+= "(\w+)"`).FindAllStringSubmatch(source, -1) {
			recorded = append(recorded, match[1])
		}
	}
	_, events, _ := strings.Cut(read(t, filepath.Join(root, "docs", "reasons.md")), "\n## Events\n")
	events, _, _ = strings.Cut(events, "\n## ")
	for _, match := range regexp.MustCompile("(?m)^\\| (`[^|]*`) \\|").FindAllStringSubmatch(events, -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(match[1], -1) {
			documented = append(documented, name[1])
		}
	}
	slices.Sort(recorded)
	recorded = slices.Compact(recorded) // both controllers record Ready
	slices.Sort(documented)
	if diff := cmp.Diff(recorded, documented); diff != "" || len(recorded) < 10 {
		t.Errorf("events (-recorded +documented):\n%s", diff)
	}
}
