// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// inTree returns a path in the source tree. Tests run in the folder of their package.
func inTree(path ...string) string {
	return filepath.Join(append([]string{"..", ".."}, path...)...)
}

func TestTheBundleObeysEveryRule(t *testing.T) {
	b, err := Read(inTree("bundle"))
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range Rules() {
		t.Run(rule.Name, func(t *testing.T) {
			for _, complaint := range rule.Check(b) {
				t.Error(complaint)
			}
		})
	}
}

// The bundle must match the source tree: an outdated bundle can be valid.
func TestTheBundleHasTheCurrentCRDs(t *testing.T) {
	entries, err := os.ReadDir(inTree("config", "crd", "bases"))
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 6 {
		t.Errorf("there are %d CRDs, want those of scalers, checkpoints, sizes of new pods, ScaledDeployments and both kinds of policies", len(entries))
	}
	for _, entry := range entries {
		want := readObject(t, inTree("config", "crd", "bases", entry.Name()))
		got := readObject(t, inTree("bundle", "manifests", entry.Name()))
		if diff := cmp.Diff(asYAML(t, want.Object["spec"]), asYAML(t, got.Object["spec"])); diff != "" {
			t.Errorf("%s is not up to date, run make bundle (-config/crd +bundle):\n%s", entry.Name(), diff)
		}
	}
}

// Consoles show the examples as templates: they are the samples, with a status that shows
// what to expect.
func TestTheExamplesAreTheSamples(t *testing.T) {
	b, err := Read(inTree("bundle"))
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string]any{}
	for _, path := range yamlFiles(t, inTree("config", "samples")) {
		if filepath.Base(path) == "kustomization.yaml" {
			continue
		}
		o := readObject(t, path)
		if _, has := o.Object["status"]; has {
			t.Errorf("%s has a status, which the API server drops", path)
		}
		if mode, _, _ := unstructured.NestedString(o.Object, "spec", "updatePolicy", "updateMode"); o.GetKind() == "VerticalScaler" && mode == "Initial" {
			continue // It does nothing without a file that no bundle can contain.
		}
		samples[o.GetName()] = o.Object
	}
	examples := map[string]any{}
	for _, o := range b.Examples {
		if o.GetKind() == "VerticalScalerCheckpoint" || o.GetKind() == "NewPodSizes" {
			continue // Only the operator writes them.
		}
		o = o.DeepCopy()
		delete(o.Object, "status")
		examples[o.GetName()] = o.Object
	}
	if len(samples) < 3 {
		t.Errorf("there are %d samples", len(samples))
	}
	// Compare numbers by their text: one side was JSON, the other YAML.
	if diff := cmp.Diff(asYAML(t, samples), asYAML(t, examples)); diff != "" {
		t.Errorf("(-samples +examples):\n%s", diff)
	}
}

// The documentation promises that a policy for a whole fleet takes six lines.
func TestAPolicyForAFleetHasSixLines(t *testing.T) {
	path := inTree("config", "samples", "cluster_scaling_policy.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			lines++
		}
	}
	if o := readObject(t, path); lines != 6 || o.GetKind() != "ClusterScalingPolicy" {
		t.Errorf("%s has %d lines without comments, and is a %s", path, lines, o.GetKind())
	}
}

// Broken links would only be found by users.
func TestLinksLeadToExistingFiles(t *testing.T) {
	b, err := Read(inTree("bundle"))
	if err != nil {
		t.Fatal(err)
	}
	const files = "https://github.com/verticalscaler/verticalscaler-operator/blob/main/"
	count := 0
	for _, link := range b.CSV.Spec.Links {
		path, ok := strings.CutPrefix(link.URL, files)
		if !ok {
			continue
		}
		count++
		if _, err := os.Stat(inTree(filepath.FromSlash(path))); err != nil {
			t.Errorf("link %q: %v", link.Name, err)
		}
	}
	if count < 3 {
		t.Errorf("only %d links lead to files", count)
	}
}

func readObject(t testing.TB, path string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(data, &o.Object); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return o
}

func yamlFiles(t testing.TB, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) == 0 {
		t.Fatalf("there are no files in %s", dir)
	}
	slices.Sort(paths)
	return paths
}

func asYAML(t testing.TB, v any) string {
	t.Helper()
	data, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// copyBundle copies the bundle, so that a test can break the copy.
func copyBundle(t testing.TB) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "bundle")
	if err := os.CopyFS(dir, os.DirFS(inTree("bundle"))); err != nil {
		t.Fatal(err)
	}
	dockerfile, err := os.ReadFile(inTree("bundle.Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+".Dockerfile", dockerfile, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The copy itself must be valid before it is broken.
func TestACopyOfTheBundleIsValid(t *testing.T) {
	if complaints := Complaints(copyBundle(t)); len(complaints) > 0 {
		t.Error(strings.Join(complaints, "\n"))
	}
}

// contains reports whether one of the complaints contains the words.
func contains(complaints []string, words string) bool {
	return slices.ContainsFunc(complaints, func(c string) bool { return strings.Contains(c, words) })
}

// listed formats complaints for a message.
func listed(complaints []string) string {
	if len(complaints) == 0 {
		return "nothing"
	}
	return fmt.Sprintf("%d complaints:\n  %s", len(complaints), strings.Join(complaints, "\n  "))
}
