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

// Users apply and download the files of a release by their names. hack/release-check.sh checks
// the plugin's files.
func TestTheFilesOfAReleaseExist(t *testing.T) {
	file := regexp.MustCompile(`verticalscaler-operator/releases/latest/download/([\w.-]+)`)
	plugin := regexp.MustCompile(`^(vscaler\.yaml|SHA256SUMS|kubectl-vscaler_(linux|darwin|windows)_(amd64|arm64)\.(tar\.gz|cdx\.json))$`)
	found := 0
	for _, path := range pages(t) {
		for _, match := range file.FindAllStringSubmatch(read(t, path), -1) {
			found++
			name := strings.TrimSuffix(match[1], ".")
			if _, err := os.Stat(filepath.Join(root, "dist", name)); err != nil && !plugin.MatchString(name) {
				t.Errorf("%s: a release has no file %s", path, name)
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d files have been found", found)
	}
}

// The page about the installation lists each file.
func TestEveryFileOfDistIsDocumented(t *testing.T) {
	page := read(t, filepath.Join(root, "docs", "install.md"))
	for _, path := range files(t, "dist/*.yaml") {
		if !strings.Contains(page, "`"+filepath.Base(path)+"`") {
			t.Errorf("docs/install.md does not name %s", filepath.Base(path))
		}
	}
}
