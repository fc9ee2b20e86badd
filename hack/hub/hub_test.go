// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What opm makes of several versions, as TestEdgesBetweenVersions in hack/images has it: 0.2.1 is a fix of 0.2.0 that reached
// stable, and 0.2.0 did not.
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
  name: fast
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

// From the second version on, channels can have different edges. The entry with the default channel is the first.
func TestTheReleaseConfigOfALaterVersion(t *testing.T) {
	const want = `---
catalog_templates:
- channels:
  - stable
  defaultChannel: stable
  replaces: verticalscaler-operator.v0.1.0
  template_name: basic.yaml
- channels:
  - candidate
  - fast
  replaces: verticalscaler-operator.v0.1.0
  skips:
  - verticalscaler-operator.v0.2.0
  template_name: basic.yaml
`
	ours, err := parseTemplate([]byte(severalVersions))
	if err != nil {
		t.Fatal(err)
	}
	got, err := releaseConfig(ours, "verticalscaler-operator.v0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// laterVersion is the folder of 0.2.1.
func laterVersion(t *testing.T) *folder {
	t.Helper()
	f := newFolder(t, prod, smallBundle)
	bundle := filepath.Join(t.TempDir(), "bundle")
	if err := os.CopyFS(bundle, os.DirFS(smallBundle)); err != nil {
		t.Fatal(err)
	}
	csv := filepath.Join(bundle, "manifests", "verticalscaler-operator.clusterserviceversion.yaml")
	f.replace(csv, `^  name: verticalscaler-operator.v.*`, "  name: verticalscaler-operator.v0.2.1")
	f.replace(csv, `^  version: [0-9.]+$`, "  version: 0.2.1")
	f.write(f.catalog, severalVersions)
	var out bytes.Buffer
	if err := write(&out, bundle, f.catalog, filepath.Join(tree, "config", "hubs"), filepath.Dir(f.root)); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestALaterVersionHasNoFindings(t *testing.T) {
	if diff := cmp.Diff(map[string][]string{}, laterVersion(t).findings()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// What a later version would break if release-config.yaml did not follow our catalog.
func TestALaterVersionWithWrongUpdatesIsFound(t *testing.T) {
	f := laterVersion(t)
	f.replace(f.path(releaseFile), `^  skips:\n  - .*\n`, "")
	want := []string{"each channel has one head", "the hub's catalog has our channels and updates"}
	found := f.findings()
	got := make([]string, 0, len(found))
	for name := range found {
		got = append(got, name)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A hub without a file-based catalog adds a version to all channels of the bundle at once.
func TestOperatorHubGetsAVersionWhenItIsStable(t *testing.T) {
	f := newFolder(t, upstream, smallBundle)
	f.replace(f.catalog, `  name: stable\n  package`, "  name: other\n  package")
	var out bytes.Buffer
	if err := write(&out, smallBundle, f.catalog, filepath.Join(tree, "config", "hubs"), filepath.Dir(f.root)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "community-operators: not yet, because the version has not reached stable\n") {
		t.Errorf("it says %q", out.String())
	}
	if _, err := os.Stat(f.root); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of an earlier run is still there: %v", err)
	}
}

func TestTheResultIsAListAndAStatus(t *testing.T) {
	f := newFolder(t, prod, smallBundle)
	f.write(filepath.Join(f.root, "README.md"), "Hello\n")
	var out bytes.Buffer
	err := run([]string{"check", "-catalog", f.catalog, filepath.Dir(f.root)}, &out)
	if !errors.Is(err, errFindings) {
		t.Errorf("the error is %v", err)
	}
	for _, want := range []string{
		"  FAILED  all files belong to the operator\n          (redhat-openshift-ecosystem/operator-pipelines operatorcert/parsed_file.py ",
		"          - README.md is outside of operators/verticalscaler-operator\n", "  passed  one bundle is added\n", "\n1 finding\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("there is no %q in\n%s", want, out.String())
		}
	}
}

func TestWhatCannotBeCheckedIsAnError(t *testing.T) {
	for words, args := range map[string][]string{
		"has no folder of a hub":       {"check", "-catalog", filepath.Join(tree, "catalog", "basic.yaml"), t.TempDir()},
		`no command "push"`:            {"push"},
		"flag provided but not defin":  {"check", "-push"},
		"is in no channel of":          {"write", "-bundle", smallBundle, "-catalog", write021(t), t.TempDir()},
		"has no ClusterServiceVersion": {"write", "-bundle", t.TempDir(), "-catalog", filepath.Join(tree, "catalog", "basic.yaml"), t.TempDir()},
	} {
		if err := run(args, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v: the error is %v, want %q", args, err, words)
		}
	}
	for _, help := range [][]string{{"--help"}, {"check", "--help"}} {
		var out bytes.Buffer
		if err := run(help, &out); err != nil || !strings.Contains(out.String(), "usage: hub write") {
			t.Errorf("%v: %v, %q", help, err, out.String())
		}
	}
}

// write021 writes a catalog that has only another version.
func write021(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "basic.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(severalVersions, "v0.1.0", "v0.0.1")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The hub's own checks are Python. Here a script stands for it.
func TestTheHubsOwnChecksAreFindings(t *testing.T) {
	f := newFolder(t, prod, smallBundle)
	if err := os.RemoveAll(filepath.Join(filepath.Dir(f.root), upstream)); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	script := `#!/bin/sh
[ "$1 $2 $3 $4" = "-m operatorcert.entrypoints.static_tests --repo-path ` + f.root + `" ] || exit 3
case $PYTHONPATH in /checkout*) ;; *) exit 4 ;; esac
echo '{"outputs": [{"type": "error", "check": "check_icon", "message": "no icon"}, {"type": "warning", "check": "check_using_fbc"}]}' >"$6"
`
	if err := os.WriteFile(filepath.Join(folder, "python3"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
	var out bytes.Buffer
	err := run([]string{"check", "-catalog", f.catalog, "-pipelines", "/checkout", filepath.Dir(f.root)}, &out)
	if !errors.Is(err, errFindings) || !strings.Contains(out.String(), "- error: check_icon: no icon\n") || strings.Contains(out.String(), "check_using_fbc") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := os.WriteFile(filepath.Join(folder, "python3"), []byte("#!/bin/sh\necho no module >&2; exit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	err = run([]string{"check", "-catalog", f.catalog, "-pipelines", "/checkout", filepath.Dir(f.root)}, &out)
	if err == nil || errors.Is(err, errFindings) || !strings.Contains(err.Error(), "no module") {
		t.Errorf("the error is %v", err)
	}
}
