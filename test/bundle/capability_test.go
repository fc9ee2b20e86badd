// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// levels are those of the Operator Framework, from the lowest.
var levels = []string{"Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"}

// answer is a line of docs/capability-levels.md.
type answer struct {
	level, question, text string
	evidence              []string
}

// The level that the bundle claims is the highest up to which every question has an
// answer with evidence: no more, and no less.
func TestTheCapabilityLevelIsWhatIsShown(t *testing.T) {
	b, err := Read(inTree("bundle"))
	if err != nil {
		t.Fatal(err)
	}
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
	if got := capability(b); got != shown {
		t.Errorf("the bundle claims %q, docs/capability-levels.md shows %q", got, shown)
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
			if err := exists(evidence); err != nil {
				t.Errorf("%s: %q: %v", a.level, a.question, err)
			}
		}
	}
}

// What is wrong with evidence must be seen.
func TestEvidenceThatDoesNotExistIsSeen(t *testing.T) {
	for evidence, good := range map[string]bool{
		"docs/ARCHITECTURE.md": true,
		"docs/NOTHING.md":      false,
		"make demo DEMO=once":  true,
		"make nothing":         false,
		"go test ./test/bundle -run TestCRDsCanBeUpgraded":      true,
		"go test ./test/bundle -run TestCRDsCanBeUpgraded/a":    true,
		"go test ./test/bundle -run TestCRDsFall":               false,
		"go test ./test/nothing -run TestCRDsCanBeUpgraded":     false,
		"make test PKG=./test/bundle ARGS='-run TestCRDsCanBe'": true,
		"make test PKG=./test/bundle ARGS='-run TestCRDsFall'":  false,
	} {
		if err := exists(evidence); (err == nil) != good {
			t.Errorf("%s: %v", evidence, err)
		}
	}
}

// capabilityLevels reads docs/capability-levels.md.
func capabilityLevels(t testing.TB) (document string, answers []answer) {
	t.Helper()
	data, err := os.ReadFile(inTree("docs", "capability-levels.md"))
	if err != nil {
		t.Fatal(err)
	}
	level := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if heading, ok := strings.CutPrefix(line, "## "); ok {
			level = heading
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") || strings.HasPrefix(line, "| Question |") {
			continue
		}
		if len(cells) != 3 {
			t.Fatalf("want a question, an answer and evidence: %s", line)
		}
		a := answer{level: level, question: strings.TrimSpace(cells[0]), text: strings.TrimSpace(cells[1])}
		for _, match := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[2], -1) {
			a.evidence = append(a.evidence, match[1])
		}
		answers = append(answers, a)
	}
	return string(data), answers
}

// exists says what is missing of a file, a target of make, or a test.
func exists(evidence string) error {
	words := strings.Fields(strings.ReplaceAll(evidence, "'", ""))
	var pkg, run string
	for i, word := range words {
		if name, ok := strings.CutPrefix(word, "PKG="); ok {
			pkg = name
		}
		if strings.HasPrefix(evidence, "go test ") && strings.HasPrefix(word, "./") {
			pkg = word
		}
		if strings.HasSuffix(word, "-run") && i+1 < len(words) {
			run, _, _ = strings.Cut(words[i+1], "/")
		}
	}
	switch words[0] {
	case "make":
		makefile, err := os.ReadFile(inTree("Makefile"))
		if err != nil {
			return err
		}
		if !strings.Contains(string(makefile), "\n"+words[1]+":") {
			return fmt.Errorf("there is no target %s", words[1])
		}
	case "go":
	default:
		_, err := os.Stat(inTree(filepath.FromSlash(evidence)))
		return err
	}
	if pkg == "" {
		return nil
	}
	return hasTest(inTree(filepath.FromSlash(pkg)), run)
}

func hasTest(dir, run string) error {
	name, err := regexp.Compile(`(?m)^func ` + "(" + run + `)\w*\(`)
	if err != nil {
		return err
	}
	found := false
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		found = found || name.Match(data)
		return err
	})
	if err == nil && !found {
		err = fmt.Errorf("there is no test %s in %s", run, dir)
	}
	return err
}
