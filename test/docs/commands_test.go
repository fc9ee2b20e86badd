// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package docs tests what the documentation promises: its commands exist, and the first
// one that contributors are told to run does run tests.
package docs

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/commands"
)

// root is the root of the source tree. Tests run in the folder of their package.
var root = filepath.Join("..", "..")

func TestTheCommandsInTheDocumentationExist(t *testing.T) {
	checked := 0
	for _, path := range pages(t) {
		for _, command := range commands.Of(read(t, path)) {
			checked++
			if err := commands.Check(root, command); err != nil {
				t.Errorf("%s: %s: %v", name(path), command, err)
			}
		}
	}
	if checked < 50 {
		t.Errorf("only %d commands have been found", checked)
	}
}

// The worked examples name files, which move.
func TestTheFilesThatContributorsAreToldOfExist(t *testing.T) {
	for _, match := range regexp.MustCompile("`([\\w.-]+(?:/[\\w.-]+)*/?)`").FindAllStringSubmatch(read(t, filepath.Join(root, "CONTRIBUTING.md")), -1) {
		path := match[1]
		if !strings.Contains(path, "/") && filepath.Ext(path) == "" || strings.HasPrefix(path, "bin/") {
			continue // not a path, or built
		}
		if strings.HasPrefix(path, "updatePolicy.") {
			continue // a field
		}
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(path))); err != nil {
			t.Error(err)
		}
	}
}

// A newcomer runs the first command of CONTRIBUTING.md. It must run a test, and need no
// cluster.
func TestTheFirstCommandRunsATest(t *testing.T) {
	all := commands.Of(read(t, filepath.Join(root, "CONTRIBUTING.md")))
	// A package in internal/ also keeps this test from running itself.
	if len(all) == 0 || !strings.Contains(all[0], " PKG=./internal/") {
		t.Fatalf("the first command of CONTRIBUTING.md does not name a package: %q", all)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-c", all[0])
	command.Dir = root
	// Our own make, if any, has flags that are not meant for this one.
	command.Env = append(os.Environ(), "MAKEFLAGS=", "MAKELEVEL=", "KUBEBUILDER_ASSETS=/nonexistent")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", all[0], err, out)
	}
	if !regexp.MustCompile(`(?m)^--- PASS: Test`).Match(out) {
		t.Errorf("%s runs no test:\n%s", all[0], out)
	}
}

func TestTheWorkflowsCallTargetsThatExist(t *testing.T) {
	workflows, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*.yaml"))
	if err != nil || len(workflows) == 0 {
		t.Fatalf("%d workflows, %v", len(workflows), err)
	}
	target := regexp.MustCompile(`\b(make(?: [a-zA-Z][\w=-]*)+)`)
	for _, path := range workflows {
		found := target.FindAllString(read(t, path), -1)
		if len(found) == 0 {
			t.Errorf("%s calls no target", name(path))
		}
		for _, command := range found {
			if err := commands.Check(root, command); err != nil {
				t.Errorf("%s: %s: %v", name(path), command, err)
			}
		}
	}
}

// pages are the documents that tell people what to run. The changelog and the records
// of decisions tell what was so once.
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
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func name(path string) string {
	relative, err := filepath.Rel(root, path)
	if err != nil {
		return path
	}
	return relative
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
