// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests that the documentation leads somewhere: its links, anchors and make targets exist.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// root is the root of the source tree. Tests run in the folder of their package.
var root = filepath.Join("..", "..")

// Every make target that a document or a workflow names exists.
func TestEveryTargetExists(t *testing.T) {
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(read(t, filepath.Join(root, "Makefile")), -1) {
		targets[match[1]] = true
	}
	named := regexp.MustCompile("(?m)(?:^    |`|&& |run: )make ([a-z][a-z0-9-]+)")
	checked := 0
	for _, path := range append(pages(t), files(t, ".github/workflows/*.yaml")...) {
		for _, match := range named.FindAllStringSubmatch(read(t, path), -1) {
			if checked++; !targets[match[1]] {
				t.Errorf("%s: there is no target %s", path, match[1])
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d targets have been found", checked)
	}
}

// Every test that a document names exists. A name may be a pattern for -run.
func TestEveryTestExists(t *testing.T) {
	var tests []string
	defined := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, "_test.go") {
			for _, match := range defined.FindAllStringSubmatch(read(t, path), -1) {
				tests = append(tests, match[1])
			}
		}
		return err
	})
	must.Succeed(t, err)
	named := regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`)
	checked := 0
	for _, path := range pages(t) {
		for _, name := range named.FindAllString(read(t, path), -1) {
			checked++
			if !slices.ContainsFunc(tests, func(test string) bool { return strings.HasPrefix(test, name) }) {
				t.Errorf("%s: there is no test %s", path, name)
			}
		}
	}
	if checked < 150 {
		t.Errorf("only %d tests are named", checked)
	}
}

// pages are the documents that tell people what to run. The changelog and the records of decisions tell what was so once.
func pages(t *testing.T) []string {
	t.Helper()
	paths := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md"), filepath.Join(root, "SECURITY.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "adr" {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			paths = append(paths, path)
		}
		return err
	})
	must.Succeed(t, err)
	return paths
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	must.Succeed(t, err)
	return string(content)
}
