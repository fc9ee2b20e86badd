// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
			} else if anchor != "" && !anchors(read(t, target))[anchor] {
				t.Errorf("%s: %s has no heading #%s", page, target, anchor)
			}
		}
	}
}

func TestEveryPageIsListed(t *testing.T) {
	index := read(t, filepath.Join(root, "docs", "README.md"))
	for _, page := range files(t, "docs/*.md") {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(index, "("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

var (
	item      = regexp.MustCompile(`(?m)^(?:\d+\.|\*) (?:.*\n?(?:   .*\n)*)`)
	namedFile = regexp.MustCompile("`((?:api|bench|cmd|config|controllers|docs|hack|internal|test)/[\\w./-]+\\.\\w+)`")
	namedWord = regexp.MustCompile("`([A-Z][a-z]+[A-Z][A-Za-z]+)`")
)

// A step that names files exists for a reader only if they do, and have what it says: a word of code is in one of the files.
func TestFilesThatAreNamedHaveWhatIsSaid(t *testing.T) {
	for _, page := range files(t, "CONTRIBUTING.md", "docs/ARCHITECTURE.md") {
		for _, step := range item.FindAllString(read(t, page), -1) {
			texts := ""
			for _, m := range namedFile.FindAllStringSubmatch(step, -1) {
				texts += read(t, filepath.Join(root, m[1]))
			}
			for _, m := range namedWord.FindAllStringSubmatch(step, -1) {
				if texts != "" && !strings.Contains(texts, m[1]) {
					t.Errorf("%s: no file has %s in\n%s", page, m[1], step)
				}
			}
		}
	}
}
