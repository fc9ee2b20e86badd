// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	upstream = "community-operators"
	prod     = "community-operators-prod"
)

// A folder is what "hub write" writes of this tree, to be broken.
type folder struct {
	t       *testing.T
	root    string // of the hub
	catalog string // our own catalog
}

// tree is the root of the source tree.
var tree = filepath.Join("..", "..")

// smallBundle is the bundle without what takes most of the time to read: the schemas in CRDs.
var smallBundle string

func TestMain(m *testing.M) {
	var err error
	if smallBundle, err = os.MkdirTemp("", "hub-test"); err == nil {
		err = shrink(filepath.Join(tree, "bundle"), smallBundle)
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(smallBundle)
	os.Exit(code)
}

func shrink(bundle, folder string) error {
	if err := os.CopyFS(folder, os.DirFS(bundle)); err != nil {
		return err
	}
	paths, err := filepath.Glob(filepath.Join(folder, "manifests", "autoscaling.*.yaml"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("the bundle has %d CRDs: %w", len(paths), err)
	}
	for _, path := range paths {
		o, err := readOptional(path)
		if err != nil {
			return err
		}
		for _, v := range lookup(o, "spec", "versions").([]any) {
			version := v.(map[string]any)
			version["schema"] = map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}
			delete(version, "selectableFields")
		}
		data, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func newFolder(t *testing.T, hub, bundle string) *folder {
	t.Helper()
	scratch := t.TempDir()
	f := &folder{t: t, root: filepath.Join(scratch, hub), catalog: filepath.Join(scratch, "basic.yaml")}
	if err := write(io.Discard, bundle, filepath.Join(tree, "catalog", "basic.yaml"), filepath.Join(tree, "config", "hubs"), scratch); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(tree, "catalog", "basic.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.catalog, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

// path is that of a file in our folder. VERSION stands for the version.
func (f *folder) path(file string) string {
	return filepath.Join(f.root, "operators", packageName, strings.Replace(file, "VERSION", f.version(), 1))
}

func (f *folder) version() string {
	f.t.Helper()
	found, err := filepath.Glob(filepath.Join(f.root, "operators", packageName, "[0-9]*"))
	if err != nil || len(found) == 0 {
		f.t.Fatalf("there is no version: %v", err)
	}
	return filepath.Base(found[0])
}

func (f *folder) write(path, text string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f *folder) read(path string) string {
	f.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		f.t.Fatal(err)
	}
	return string(data)
}

// replace replaces all matches of a pattern, of which there must be one.
func (f *folder) replace(path, pattern, with string) {
	f.t.Helper()
	old := f.read(path)
	compiled := regexp.MustCompile("(?m)" + pattern)
	if !compiled.MatchString(old) {
		f.t.Fatalf("%s does not match %s", filepath.Base(path), pattern)
	}
	f.write(path, compiled.ReplaceAllString(old, with))
}

// findings are the findings by rule.
func (f *folder) findings() map[string][]string {
	f.t.Helper()
	i := slices.IndexFunc(hubs, func(h hub) bool { return h.name == filepath.Base(f.root) })
	s, err := load(hubs[i], f.root, f.catalog)
	if err != nil {
		f.t.Fatal(err)
	}
	found := map[string][]string{}
	for _, r := range rules {
		if !r.appliesTo(s) {
			continue
		}
		if findings := r.check(s); len(findings) > 0 {
			found[r.name] = findings
		}
	}
	return found
}

const (
	csvFile     = "VERSION/manifests/verticalscaler-operator.clusterserviceversion.yaml"
	annotations = "VERSION/metadata/annotations.yaml"
	releaseFile = "VERSION/release-config.yaml"
	templates   = "catalog-templates/basic.yaml"
)

// template is a template in the hub, with the version in some channels, an image for it, and a line for a further entry.
func (f *folder) template(entry, image string) string {
	text := "schema: olm.template.basic\nentries:\n- {schema: olm.package, name: verticalscaler-operator, defaultChannel: stable}\n"
	for _, channel := range []string{"candidate", "fast", "stable"} {
		text += "- {schema: olm.channel, name: " + channel + ", package: verticalscaler-operator, entries: [" + entry + "]}\n"
	}
	return text + "- {schema: olm.bundle, image: " + image + "}\n"
}

func (f *folder) ours() string { return "{name: verticalscaler-operator.v" + f.version() + "}" }

// hubImage is the image that the hub gives to the version.
var hubImage = "quay.io/community-operator-pipeline-prod/verticalscaler-operator@sha256:" + strings.Repeat("f", 64)

// Each rule is broken once on purpose, and only that rule must find it.
var breaks = []struct {
	rule  string
	name  string // of the case, if the rule has several
	hub   string
	how   func(f *folder)
	words string
}{
	{
		rule: "all files belong to the operator", hub: prod, words: "README.md is outside",
		how: func(f *folder) { f.write(filepath.Join(f.root, "README.md"), "Hello\n") },
	},
	{
		rule: "one bundle is added", hub: prod, words: "must be one",
		how: func(f *folder) {
			if err := os.CopyFS(f.path("0.0.9"), os.DirFS(f.path("VERSION"))); err != nil {
				f.t.Fatal(err)
			}
		},
	},
	{
		rule: "bundles and catalogs are not added at once", hub: prod, words: "catalogs/v4.21/verticalscaler-operator/catalog.yaml is in another pull request",
		how: func(f *folder) {
			f.write(filepath.Join(f.root, "catalogs", "v4.21", packageName, "catalog.yaml"), "schema: olm.package\n")
		},
	},
	{
		rule: "each further folder is a bundle", hub: prod, words: "0.0.9 has no manifests",
		how: func(f *folder) { f.write(f.path("0.0.9/metadata/annotations.yaml"), "annotations: {}\n") },
	},
	{
		rule: "yamllint has no errors", hub: prod, words: "line 2 ends with spaces",
		how: func(f *folder) { f.replace(f.path(releaseFile), `^catalog_templates:$`, "catalog_templates:  ") },
	},
	{
		rule: "yamllint has no errors", name: "duplicate key", hub: upstream, words: `key "updateGraph" already set`,
		how: func(f *folder) { f.write(f.path("ci.yaml"), f.read(f.path("ci.yaml"))+"updateGraph: semver-mode\n") },
	},
	{
		rule: "yamllint has no errors", name: "no newline", hub: upstream, words: "no newline at the end",
		how: func(f *folder) { f.write(f.path("ci.yaml"), strings.TrimSpace(f.read(f.path("ci.yaml")))) },
	},
	{
		rule: "yamllint has no errors", name: "empty lines", hub: upstream, words: "third empty line",
		how: func(f *folder) { f.write(f.path("ci.yaml"), "---\n\n\n\nupdateGraph: semver-mode\n") },
	},
	{
		rule: "yamllint has no errors", name: "carriage return", hub: upstream, words: "line 2 ends with a carriage return",
		how: func(f *folder) { f.write(f.path("ci.yaml"), "---\nupdateGraph: semver-mode\r\n") },
	},
	{
		rule: "ci.yaml obeys its schema", name: "no reviewers", hub: prod, words: "ci.yaml.reviewers has 0 items, must have at least 1",
		how: func(f *folder) { f.write(f.path("ci.yaml"), f.read(f.path("ci.yaml"))+"reviewers: []\n") },
	},
	{
		rule: "ci.yaml obeys its schema", name: "unknown field", hub: prod, words: "ci.yaml.fbc.enable is not known",
		how: func(f *folder) { f.replace(f.path("ci.yaml"), `^  enabled: true`, "  enabled: true\n  enable: true") },
	},
	{
		rule: "ci.yaml obeys its schema", name: "unknown word", hub: prod, words: `is "sometimes", must be one of`,
		how: func(f *folder) { f.replace(f.path("ci.yaml"), `review-needed`, "sometimes") },
	},
	{
		rule: "ci.yaml obeys its schema", name: "another type", hub: prod, words: "ci.yaml.merge is of type string, must be boolean",
		how: func(f *folder) { f.write(f.path("ci.yaml"), f.read(f.path("ci.yaml"))+"merge: 'no'\n") },
	},
	{
		rule: "ci.yaml obeys its schema", name: "missing field", hub: prod, words: "catalog_mapping[1].type is missing",
		how: func(f *folder) {
			f.write(f.path("ci.yaml"), f.read(f.path("ci.yaml"))+"    - {template_name: more.yaml, catalog_names: [v4.20]}\n")
		},
	},
	{
		rule: "each catalog has one template", hub: prod, words: "catalog v4.21 has the templates [basic.yaml more.yaml]",
		how: func(f *folder) {
			f.write(f.path("ci.yaml"), f.read(f.path("ci.yaml"))+"    - {template_name: more.yaml, type: olm.template.basic, catalog_names: [v4.21]}\n")
		},
	},
	{
		rule: "the hub has the catalogs", hub: prod, words: "community-operators-prod has no catalog latest",
		how: func(f *folder) { f.replace(f.path("ci.yaml"), `v4.22`, "latest") },
	},
	{
		rule: "ci.yaml names the update graph", hub: upstream, words: "updateGraph is missing",
		how: func(f *folder) { f.write(f.path("ci.yaml"), "---\nfbc: {enabled: false}\n") },
	},
	{
		rule: "each named template exists", hub: upstream, words: "names the template basic.yaml, which does not exist",
		how: func(f *folder) {
			f.write(f.path("ci.yaml"), strings.Replace(f.read(filepath.Join(tree, "config", "hubs", prod, "ci.yaml")), "[v4.21, v4.22]", "[latest]", 1))
			f.write(f.path(releaseFile), "catalog_templates:\n- {template_name: basic.yaml, channels: [stable, candidate, fast]}\n")
		},
	},
	{
		rule: "release-config.yaml obeys its schema", hub: prod, words: "skips has 0 items",
		how: func(f *folder) { f.replace(f.path(releaseFile), `^  template_name:`, "  skips: []\n  template_name:") },
	},
	{
		rule: "release-config.yaml obeys its schema", name: "channel twice", hub: prod, words: "channels[3] is in the list twice",
		how: func(f *folder) { f.replace(f.path(releaseFile), `^  - stable`, "  - stable\n  - stable") },
	},
	{
		rule: "release-config.yaml fits ci.yaml", hub: prod, words: "maps no catalog to the template more.yaml",
		how: func(f *folder) {
			f.write(f.path(releaseFile), f.read(f.path(releaseFile))+"- {channels: [stable], template_name: more.yaml}\n")
		},
	},
	{
		rule: "release-config.yaml fits ci.yaml", name: "no catalog", hub: upstream, words: "fbc.enabled in ci.yaml is not true",
		how: func(f *folder) {
			f.write(f.path(releaseFile), "catalog_templates:\n- {template_name: basic.yaml, channels: [stable]}\n")
		},
	},
	{
		rule: "the hub can release the bundle to its catalog", hub: prod, words: "default channel beta is not among the channels",
		how: func(f *folder) { f.replace(f.path(releaseFile), `defaultChannel: stable`, "defaultChannel: beta") },
	},
	{
		rule: "the hub can release the bundle to its catalog", name: "no release-config.yaml", hub: prod, words: "there is no release-config.yaml",
		how: func(f *folder) {
			if err := os.Remove(f.path(releaseFile)); err != nil {
				f.t.Fatal(err)
			}
		},
	},
	{
		rule: "the hub's catalog has our channels and updates", hub: prod, words: "the version is not in the channel fast",
		how: func(f *folder) { f.replace(f.path(releaseFile), `^  - fast\n`, "") },
	},
	{
		rule: "the hub's catalog has our channels and updates", name: "another channel", hub: prod, words: "in the channel alpha, which it has not reached",
		how: func(f *folder) { f.replace(f.path(releaseFile), `^  - fast`, "  - fast\n  - alpha") },
	},
	{
		rule: "the hub's catalog has our channels and updates", name: "another update", hub: prod, words: "must be {Name:verticalscaler-operator.v",
		how: func(f *folder) {
			f.replace(f.path(releaseFile), `^  template_name:`, "  replaces: verticalscaler-operator.v0.0.1\n  template_name:")
		},
	},
	{
		rule: "the hub's catalog has our default channel", hub: prod, words: "the default channel is candidate, must be stable",
		how: func(f *folder) { f.replace(f.path(releaseFile), `^  defaultChannel: stable\n`, "") },
	},
	{
		rule: "the hub's catalog has each bundle once", hub: prod, words: "1 versions have 2 images of bundles",
		how: func(f *folder) {
			f.write(f.path(templates), f.template(f.ours(), "quay.io/openshift-community-operators/verticalscaler-operator:v"+f.version()))
		},
	},
	{
		rule: "the hub's catalog has each version once in a channel", hub: prod, words: "is in the channel fast 2 times",
		how: func(f *folder) {
			f.write(f.path(templates), f.template(strings.Replace(f.ours(), "}", ", replaces: verticalscaler-operator.v0.0.1}", 1), hubImage))
		},
	},
	{
		rule: "each channel has one head", hub: prod, words: "the channel stable has the heads [verticalscaler-operator.v0.0.1 ",
		how: func(f *folder) {
			f.write(f.path(templates), f.template("{name: verticalscaler-operator.v0.0.1}", "quay.io/openshift-community-operators/verticalscaler-operator:v0.0.1"))
		},
	},
	{
		rule: "bundles in the hub's catalog are in its registries", hub: prod, words: "ghcr.io/verticalscaler/verticalscaler-operator-bundle:v0.0.1 is in none of",
		how: func(f *folder) {
			update := func(path, old string) {
				f.replace(path, old, old+", replaces: verticalscaler-operator.v0.0.1")
			}
			f.write(f.path(templates), f.template("{name: verticalscaler-operator.v0.0.1}", "ghcr.io/verticalscaler/verticalscaler-operator-bundle:v0.0.1"))
			f.write(f.catalog, f.template("{name: verticalscaler-operator.v0.0.1}, "+f.ours(), hubImage))
			update(f.catalog, "name: verticalscaler-operator.v"+f.version())
			f.replace(f.path(releaseFile), `^  template_name:`, "  replaces: verticalscaler-operator.v0.0.1\n  template_name:")
		},
	},
	{
		rule: "package, name and folder agree", hub: prod, words: `the package is "scaler"`,
		how: func(f *folder) { f.replace(f.path(annotations), `(package.v1): .*`, "$1: scaler") },
	},
	{
		rule: "version and folder agree", hub: prod, words: "the folder 9.9.9",
		how: func(f *folder) {
			if err := os.Rename(f.path("VERSION"), f.path("9.9.9")); err != nil {
				f.t.Fatal(err)
			}
		},
	},
	{
		rule: "there is no NetworkPolicy", hub: prod, words: "policy.yaml is a NetworkPolicy",
		how: func(f *folder) {
			f.write(f.path("VERSION/manifests/policy.yaml"), "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: p\n")
		},
	},
	{
		rule: "the replaced version exists", hub: upstream, words: "spec.replaces is verticalscaler-operator.v0.0.1",
		how: func(f *folder) {
			f.replace(f.path(csvFile), `^spec:$`, "spec:\n  replaces: verticalscaler-operator.v0.0.1")
		},
	},
	{
		rule: "required fields are there", hub: prod, words: "metadata.annotations.support is missing",
		how: func(f *folder) { f.replace(f.path(csvFile), `^    support: .*\n`, "") },
	},
	{
		rule: "required fields are there", name: "no name", hub: prod, words: "spec.displayName has an invalid value",
		how: func(f *folder) { f.replace(f.path(csvFile), `^  displayName: VerticalScaler$`, "  displayName: VS") },
	},
	{
		rule: "required fields are there", name: "no time", hub: prod, words: "createdAt has an invalid value",
		how: func(f *folder) { f.replace(f.path(csvFile), `^    createdAt: .*`, "    createdAt: today") },
	},
	{
		rule: "required fields are there", name: "no icon", hub: prod, words: "spec.icon has an invalid value",
		how: func(f *folder) {
			f.replace(f.path(csvFile), `^  - base64data: ....`, "  - base64data: '####'\n    more: ")
		},
	},
	{
		rule: "operator-sdk's validators pass", hub: prod, words: "docs",
		how: func(f *folder) {
			f.replace(f.path(csvFile), `url: https://github.com/verticalscaler/verticalscaler-operator$`, "url: docs")
		},
	},
	{
		rule: "minKubeVersion fits the versions of OpenShift", hub: prod, words: "OpenShift 4.20 has Kubernetes 1.33",
		how: func(f *folder) { f.replace(f.path(annotations), `v4.21`, "v4.20") },
	},
	{
		rule: "the image's Dockerfile can be generated", hub: prod, words: "cannot be a label in single quotes",
		how: func(f *folder) {
			f.replace(f.path(annotations), `^annotations:$`, "annotations:\n  example.com/note: it's")
		},
	},
	{
		rule: "feature annotations are answered", hub: prod, words: "features.operators.openshift.io/csv is not known",
		how: func(f *folder) { f.replace(f.path(csvFile), `openshift.io/csi`, "openshift.io/csv") },
	},
	{
		rule: "feature annotations are answered", name: "missing", hub: prod, words: "fips-compliant is missing",
		how: func(f *folder) { f.replace(f.path(csvFile), `^.*openshift.io/fips-compliant.*\n`, "") },
	},
	{
		rule: "it runs in a restricted network if all images have digests", hub: prod, words: "disconnected is true, but the image ghcr.io",
		how: func(f *folder) { f.replace(f.path(csvFile), `(openshift.io/disconnected:) "false"`, `$1 "true"`) },
	},
	{
		rule: "it runs in a restricted network if all images have digests", name: "not said", hub: prod, words: "although all images have digests",
		how: func(f *folder) {
			f.replace(f.path(csvFile), `(ghcr.io/verticalscaler/verticalscaler-operator):v[0-9.]+`, "$1@sha256:"+strings.Repeat("a", 64))
		},
	},
	{
		rule: "all images are related images", hub: prod, words: "is not in spec.relatedImages",
		how: func(f *folder) { f.replace(f.path(csvFile), `^(    containerImage: .*)`, "$1-debug") },
	},
}

func TestEachRuleFindsWhatItIsFor(t *testing.T) {
	broken := map[string]bool{}
	for _, b := range breaks {
		broken[b.rule] = true
		t.Run(strings.TrimSuffix(b.rule+": "+b.name, ": "), func(t *testing.T) {
			t.Parallel()
			f := newFolder(t, b.hub, smallBundle)
			b.how(f)
			found := f.findings()
			if !strings.Contains(strings.Join(found[b.rule], "\n"), b.words) {
				t.Errorf("the rule finds %q, want %q", found[b.rule], b.words)
			}
			delete(found, b.rule)
			if len(found) > 0 {
				t.Errorf("other rules find %q", found)
			}
		})
	}
	for _, r := range rules {
		if !broken[r.name] {
			t.Errorf("the rule %q is never broken", r.name)
		}
		delete(broken, r.name)
		if !strings.Contains(r.source, "/") {
			t.Errorf("the rule %q has no source", r.name)
		}
	}
	for name := range broken {
		t.Errorf("there is no rule %q", name)
	}
}

func TestThisTreeHasNoFindings(t *testing.T) {
	for _, h := range hubs {
		if diff := cmp.Diff(map[string][]string{}, newFolder(t, h.name, filepath.Join(tree, "bundle")).findings()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", h.name, diff)
		}
	}
}
