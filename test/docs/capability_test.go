// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/commands"
)

// levels are the levels of the Operator Framework, lowest first.
var levels = []string{"Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"}

// answer is a line of docs/capability-levels.md.
type answer struct {
	level, question, text string
	evidence              []string
}

// The bundle claims exactly the highest level up to which every question has an answer with
// evidence.
func TestTheCapabilityLevelHasEvidence(t *testing.T) {
	document, answers := capabilityLevels(t)
	shown := ""
	for _, level := range levels {
		open := slices.ContainsFunc(answers, func(a answer) bool {
			return a.level == level && (strings.HasPrefix(a.text, "Not yet") || len(a.evidence) == 0)
		})
		if open {
			break
		}
		shown = level
	}
	bundle := read(t, filepath.Join(root, "bundle", "manifests", "verticalscaler-operator.clusterserviceversion.yaml"))
	if !strings.Contains(bundle, "\n    capabilities: "+shown+"\n") {
		t.Errorf("the bundle does not claim %q, as docs/capability-levels.md shows", shown)
	}
	if !strings.Contains(document, "The bundle claims **"+shown+"**") {
		t.Errorf("docs/capability-levels.md does not say that the bundle claims %q", shown)
	}
}

func TestTheEvidenceOfCapabilityLevelsExists(t *testing.T) {
	_, answers := capabilityLevels(t)
	if len(answers) < 30 {
		t.Errorf("there are only %d answers", len(answers))
	}
	for _, a := range answers {
		if !slices.Contains(levels, a.level) || !regexp.MustCompile("^(Yes|Not applicable: |Not yet)").MatchString(a.text) {
			t.Errorf("%s: %q is answered by %q", a.level, a.question, a.text)
		}
		for _, evidence := range a.evidence {
			if err := commands.Exists(root, evidence); err != nil {
				t.Errorf("%s: %q: %v", a.level, a.question, err)
			}
		}
	}
}

// capabilityLevels reads docs/capability-levels.md.
func capabilityLevels(t *testing.T) (document string, answers []answer) {
	t.Helper()
	document = read(t, filepath.Join(root, "docs", "capability-levels.md"))
	for _, row := range commands.Rows(document) {
		if len(row.Cells) != 3 {
			t.Fatalf("want a question, an answer and evidence: %q", row.Cells)
		}
		answers = append(answers, answer{level: row.Heading, question: row.Cells[0], text: row.Cells[1], evidence: commands.Evidence(row.Cells[2])})
	}
	return document, answers
}
