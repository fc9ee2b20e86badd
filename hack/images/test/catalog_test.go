//go:build images

// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package test checks what is released: the operator's image, the edges between versions in a catalog, and what the catalog's
// image serves. "make image-check" and "make catalog-check" run it and set the environment.
package test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	repository = "../../.."
	bundleName = "ghcr.io/verticalscaler/verticalscaler-operator-bundle"
)

// edge is an entry of a channel.
type edge struct {
	Name     string   `json:"name"`
	Replaces string   `json:"replaces,omitempty"`
	Skips    []string `json:"skips,omitempty"`
}

type catalog struct {
	defaultChannel string
	channels       map[string][]edge
	// By bundle: the kinds of its properties.
	properties map[string]map[string]bool
}

// Each list has what has come that far: 0.3.0 is on trial, 0.2.1 is a fix of 0.2.0, and 1.0.0 is another major version.
const template = `schema: olm.semver
generateMajorChannels: true
generateMinorChannels: false
candidate: {bundles: [BUNDLE:v0.1.0, BUNDLE:v0.2.0, BUNDLE:v0.2.1, BUNDLE:v0.3.0, BUNDLE:v1.0.0]}
fast: {bundles: [BUNDLE:v0.1.0, BUNDLE:v0.2.0, BUNDLE:v0.2.1]}
stable: {bundles: [BUNDLE:v0.1.0, BUNDLE:v0.2.1]}
`

func TestEdgesBetweenVersions(t *testing.T) {
	folder := t.TempDir()
	var bundles []string
	for _, version := range []string{"0.1.0", "0.2.0", "0.2.1", "0.3.0", "1.0.0"} {
		bundles = append(bundles, bundleName+":v"+version+"="+bundleOf(t, version))
	}
	path := filepath.Join(folder, "template.yaml")
	text := strings.NewReplacer("[BUNDLE", "[{image: "+bundleName, ", BUNDLE", "}, {image: "+bundleName, "]}", "}]}").Replace(template)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	render(t, path, filepath.Join(folder, "first"), bundles...)
	render(t, path, filepath.Join(folder, "second"), bundles...)
	first := read(t, filepath.Join(folder, "first/verticalscaler-operator/catalog.yaml"))
	if !bytes.Equal(first, read(t, filepath.Join(folder, "second/verticalscaler-operator/catalog.yaml"))) {
		t.Error("rendering twice gives different catalogs")
	}

	name := func(version string) string { return "verticalscaler-operator.v" + version }
	want := map[string][]edge{
		"candidate": {
			{Name: name("0.1.0")},
			{Name: name("0.2.0")},
			{Name: name("0.2.1"), Replaces: name("0.1.0"), Skips: []string{name("0.2.0")}},
			{Name: name("0.3.0"), Replaces: name("0.2.1"), Skips: []string{name("0.1.0"), name("0.2.0")}},
			{Name: name("1.0.0"), Replaces: name("0.3.0")},
		},
		"fast": {
			{Name: name("0.1.0")},
			{Name: name("0.2.0")},
			{Name: name("0.2.1"), Replaces: name("0.1.0"), Skips: []string{name("0.2.0")}},
		},
		"stable": {
			{Name: name("0.1.0")},
			{Name: name("0.2.1"), Replaces: name("0.1.0")},
		},
	}
	got := parse(t, first)
	if diff := cmp.Diff(want, got.channels); diff != "" {
		t.Errorf("channels (-want +got):\n%s", diff)
	}
	if got.defaultChannel != "stable" {
		t.Errorf("the default channel is %q, want stable", got.defaultChannel)
	}
}

func TestCatalogOfThisTree(t *testing.T) {
	got := parse(t, read(t, repository+"/catalog/verticalscaler-operator/catalog.yaml"))
	if got.defaultChannel != "stable" {
		t.Errorf("the default channel is %q, want stable", got.defaultChannel)
	}
	for _, name := range []string{"candidate", "fast", "stable"} {
		if len(got.channels[name]) == 0 {
			t.Errorf("channel %s is missing or empty", name)
		}
	}
	if len(got.channels) != 3 {
		t.Errorf("%d channels, want 3", len(got.channels))
	}
	for bundle, properties := range got.properties {
		if !properties["olm.csv.metadata"] || properties["olm.bundle.object"] {
			t.Errorf("bundle %s has the properties %v: want olm.csv.metadata, no olm.bundle.object", bundle, properties)
		}
	}
}

// bundleOf returns a folder with the bundle of this tree, as another version.
func bundleOf(t *testing.T, version string) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.CopyFS(folder, os.DirFS(repository+"/bundle")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "manifests", "verticalscaler-operator.clusterserviceversion.yaml")
	var csv map[string]any
	if err := yaml.Unmarshal(read(t, path), &csv); err != nil {
		t.Fatal(err)
	}
	csv["metadata"].(map[string]any)["name"] = "verticalscaler-operator.v" + version
	csv["spec"].(map[string]any)["version"] = version
	text, err := yaml.Marshal(csv)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

func render(t *testing.T, template, folder string, bundles ...string) {
	t.Helper()
	command(t, repository+"/hack/images/catalog.sh", append([]string{template, folder}, bundles...)...)
	if _, err := os.Stat(filepath.Join(folder, "basic.yaml")); errors.Is(err, fs.ErrNotExist) {
		t.Error("there is no basic template")
	}
}

// command runs a program to its end, and fails the test with its output if that is not 0.
func command(t *testing.T, program string, args ...string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", filepath.Base(program), err, output)
	}
	return string(output)
}

func parse(t *testing.T, text []byte) catalog {
	t.Helper()
	c := catalog{channels: map[string][]edge{}, properties: map[string]map[string]bool{}}
	for _, document := range strings.Split("\n"+string(text), "\n---\n") {
		var d struct {
			Schema         string `json:"schema"`
			Name           string `json:"name"`
			DefaultChannel string `json:"defaultChannel"`
			Entries        []edge `json:"entries"`
			Properties     []struct {
				Type string `json:"type"`
			} `json:"properties"`
		}
		if err := yaml.Unmarshal([]byte(document), &d); err != nil {
			t.Fatal(err)
		}
		switch d.Schema {
		case "olm.package":
			c.defaultChannel = d.DefaultChannel
		case "olm.channel":
			c.channels[d.Name] = d.Entries
		case "olm.bundle":
			c.properties[d.Name] = map[string]bool{}
			for _, p := range d.Properties {
				c.properties[d.Name][p.Type] = true
			}
		}
	}
	return c
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
