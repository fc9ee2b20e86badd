// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs checks what the documentation refers to: other pages, files and tests.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// generated is the page whose generator leaves a few types out that it links to.
const generated = "api.md"

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func files(t *testing.T, patterns ...string) (names []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(found), err)
		}
		names = append(names, found...)
	}
	return names
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```")
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	mark    = regexp.MustCompile(`[^\w\- ]`)
)

// anchors are the headings of a page, as GitHub writes them into links.
func anchors(page string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		found[strings.ReplaceAll(mark.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")] = true
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range files(t, "*.md", "docs/*.md", "docs/adr/*.md") {
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(read(t, page), ""), -1) {
			if strings.Contains(m[1], ":") { // another site
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if anchor != "" && filepath.Base(page) != generated && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: %s has no heading #%s", page, target, anchor)
			}
		}
	}
}

func TestEveryPageIsListed(t *testing.T) {
	index := read(t, filepath.Join(root, "docs/README.md"))
	for _, page := range files(t, "docs/*.md") {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

var (
	command = regexp.MustCompile("`((?:go test|make test-cluster|make test-integration) [^`]*-run [^`]*)`")
	run     = regexp.MustCompile(`-run ["']*([^"' ]+)`)
	folder  = regexp.MustCompile(`\./([\w/]+)(/\.\.\.)?`)
	test    = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
)

// A pattern for tests that matches none passes, and shows nothing.
func TestClaimsNameTests(t *testing.T) {
	claims := read(t, filepath.Join(root, "docs/claims.md"))
	commands := command.FindAllStringSubmatch(claims, -1)
	if len(commands) < 40 {
		t.Errorf("only %d commands are found", len(commands))
	}
	for _, m := range commands {
		names := testsOf(t, m[1])
		for pattern := range strings.SplitSeq(strings.ReplaceAll(run.FindStringSubmatch(m[1])[1], `\|`, "|"), "|") {
			if !regexp.MustCompile(`(?m)` + pattern).MatchString(names) {
				t.Errorf("%s: no test matches %s", m[1], pattern)
			}
		}
	}
}

// testsOf are the names of the tests in the packages of a command, one a line.
func testsOf(t *testing.T, command string) string {
	t.Helper()
	patterns := []string{"test/cluster/*_test.go"}
	if strings.HasPrefix(command, "make test-integration") {
		patterns = []string{"test/integration/*_test.go"}
	}
	if strings.HasPrefix(command, "go test") {
		patterns = nil
		for _, m := range folder.FindAllStringSubmatch(command, -1) {
			patterns = append(patterns, m[1]+"/*_test.go")
			if subfolders, err := filepath.Glob(filepath.Join(root, m[1], "*", "*_test.go")); m[2] != "" && err == nil && len(subfolders) > 0 {
				patterns = append(patterns, m[1]+"/*/*_test.go")
			}
		}
	}
	var names strings.Builder
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range found {
			for _, m := range test.FindAllStringSubmatch(read(t, file), -1) {
				names.WriteString(m[1] + "\n")
			}
		}
	}
	return names.String()
}
