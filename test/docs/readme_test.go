// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// The numbers in the README and in the bundle's description equal the output of their commands in docs/record.md and
// docs/rivals.md.
func TestTheNumbersOfTheReadme(t *testing.T) {
	readme := read(t, filepath.Join(root, "README.md"))
	csv := read(t, filepath.Join(root, "config", "manifests", "bases", "verticalscaler-operator.clusterserviceversion.yaml"))
	nodes, err := strconv.ParseFloat(firstOf(t, "record.md", `\| Balanced/Recreate \| x([0-9.]+)`), 64)
	must.Succeed(t, err)
	for i, want := range []string{
		fmt.Sprintf("**%.0f %% less CPU** than with VPA's rule, for %.0f %% more memory, and %s instead of %s of days with an OOM kill: %s recorded containers.",
			-recorded(t, "cores"), recorded(t, "GiB"), balanced(t, "OOM days")[0], ofVPA(t, "OOM days"), firstOf(t, "record.md", `### Containers, one pod, as recorded: (\d+) series`)),
		fmt.Sprintf("**%.0f %% fewer node-hours** than", 100-100*nodes),
		fmt.Sprintf("**%s issues** of %s other projects", firstOf(t, "rivals.md", `lists (\d+) issues`), words[firstOf(t, "rivals.md", `lists \d+ issues of (\d+) projects`)]),
	} {
		if !strings.Contains(readme, want) || i == 0 && !strings.Contains(csv, want) {
			t.Errorf("README.md or, for the first sentence, the ClusterServiceVersion does not say: %s", want)
		}
	}
}

var words = map[string]string{"5": "five", "6": "six", "7": "seven", "8": "eight", "9": "nine"}

func firstOf(t *testing.T, page, pattern string) string {
	t.Helper()
	match := regexp.MustCompile(pattern).FindStringSubmatch(read(t, filepath.Join(root, "docs", page)))
	if match == nil {
		t.Fatalf("docs/%s has no %s", page, pattern)
	}
	return match[1]
}

// row are the cells of a measure in the record of containers: its name, VPA's, Balanced's.
func row(t *testing.T, measure string) []string {
	t.Helper()
	_, table, _ := strings.Cut(read(t, filepath.Join(root, "docs", "record.md")), "### Containers, one pod, as recorded")
	for line := range strings.Lines(table) {
		if cells := strings.Split(strings.Trim(line, "| \n"), " | "); cells[0] == measure && len(cells) > 2 {
			return cells
		}
	}
	t.Fatalf("docs/record.md has no row %q", measure)
	return nil
}

func ofVPA(t *testing.T, measure string) string { t.Helper(); return percent(row(t, measure)[1]) }

// balanced are the profile's value and its ratio to VPA's.
func balanced(t *testing.T, measure string) []string {
	t.Helper()
	value, ratio, _ := strings.Cut(row(t, measure)[2], ", ")
	return []string{percent(value), ratio}
}

// recorded is the difference to VPA in percent, rounded.
func recorded(t *testing.T, measure string) float64 {
	t.Helper()
	ratio, _, _ := strings.Cut(strings.TrimPrefix(balanced(t, measure)[1], "x"), " ")
	number, err := strconv.ParseFloat(ratio, 64)
	must.Succeed(t, err)
	return math.Round((number - 1) * 100)
}

func percent(text string) string { return strings.Replace(text, "%", " %", 1) }
