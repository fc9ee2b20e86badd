// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

var tree = filepath.Join("..", "..")

// severalVersions is our catalog once 0.2.1 is released: a fix of 0.2.0 that reached stable, and 0.2.0 did not.
const severalVersions = `schema: olm.template.basic
entries:
- {schema: olm.package, name: verticalscaler-operator, defaultChannel: stable}
- schema: olm.channel
  name: candidate
  entries:
  - name: verticalscaler-operator.v0.1.0
  - name: verticalscaler-operator.v0.2.0
  - {name: verticalscaler-operator.v0.2.1, replaces: verticalscaler-operator.v0.1.0, skips: [verticalscaler-operator.v0.2.0]}
- schema: olm.channel
  name: stable
  entries:
  - name: verticalscaler-operator.v0.1.0
  - {name: verticalscaler-operator.v0.2.1, replaces: verticalscaler-operator.v0.1.0}
`

// Channels can have different edges. The entry with the default channel is the first.
func TestTheReleaseConfigOfALaterVersion(t *testing.T) {
	const want = `- channels:
  - stable
  defaultChannel: stable
  replaces: verticalscaler-operator.v0.1.0
  template_name: basic.yaml
- channels:
  - candidate
  replaces: verticalscaler-operator.v0.1.0
  skips:
  - verticalscaler-operator.v0.2.0
  template_name: basic.yaml
`
	var ours template
	must.Succeed(t, yaml.Unmarshal([]byte(severalVersions), &ours))
	got, err := yaml.Marshal(ours.releaseEntries("verticalscaler-operator.v0.2.1"))
	must.Succeed(t, err)
	assert.Equal(t, "entries", want, string(got))
}

// change copies the tree's bundle and catalog, with a change of one file.
func change(t *testing.T, file, from, to string) (args []string, folder string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"bundle", "catalog"} {
		must.Succeed(t, os.CopyFS(filepath.Join(dir, name), os.DirFS(filepath.Join(tree, name))))
	}
	path := filepath.Join(dir, filepath.FromSlash(file))
	content, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(content), from) {
		t.Fatalf("%s has no %q, %v", file, from, err)
	}
	must.Succeed(t, os.WriteFile(path, []byte(strings.ReplaceAll(string(content), from, to)), 0o600))
	folder = filepath.Join(dir, "hub")
	return []string{
		"-bundle", filepath.Join(dir, "bundle"), "-catalog", filepath.Join(dir, "catalog", "basic.yaml"), "-config", filepath.Join(tree, "config", "hubs"), folder,
	}, folder
}

const csvFile = "bundle/manifests/verticalscaler-operator.clusterserviceversion.yaml"

func TestTheFoldersOfTheHubs(t *testing.T) {
	args, folder := change(t, "catalog/basic.yaml", "", "")
	var out bytes.Buffer
	must.Succeed(t, run(args, &out))
	for _, hub := range hubs {
		operator := filepath.Join(folder, hub, "operators", packageName)
		for _, pattern := range []string{"ci.yaml", "*/manifests/*.clusterserviceversion.yaml", "*/metadata/annotations.yaml", "*/tests/scorecard/config.yaml"} {
			if found, err := filepath.Glob(filepath.Join(operator, pattern)); len(found) != 1 || err != nil {
				t.Errorf("%s: %d files %s, %v", hub, len(found), pattern, err)
			}
		}
	}
	// A hub without a file-based catalog adds a version to all channels of the bundle at once.
	args, _ = change(t, "catalog/basic.yaml", "name: stable", "name: other")
	if err := run(args, &out); err != nil || !strings.Contains(out.String(), "community-operators: not yet, because the version has not reached stable\n") {
		t.Errorf("%v; it says %q", err, out.String())
	}
}

func TestWhatAHubWouldNoticeTooLate(t *testing.T) {
	for words, c := range map[string]struct{ file, from, to string }{
		"is in no channel of":  {"catalog/basic.yaml", "verticalscaler-operator.v", "verticalscaler-operator.v9."},
		"which is not that of": {csvFile, "    containerImage: ", "    containerImage: example.com/other:latest # "},
	} {
		args, _ := change(t, c.file, c.from, c.to)
		if err := run(args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", words, err)
		}
	}
}
