// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const crd = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: things.example.com
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        description: a thing
        type: object
        properties:
          spec:
            description: what is wanted
            type: object
            properties:
              other: {description: another field, type: string}
              template:
                description: the template
                type: object
                properties:
                  description: {description: a property by that name, type: string}
                  list:
                    description: a list
                    type: array
                    items: {description: an item, type: object, properties: {x: {description: deep, type: string, enum: [description]}}}
`

func write(t *testing.T, text string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "crd.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func read(t *testing.T, file string) (text string) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestDescriptionsBelowAFieldAreRemoved(t *testing.T) {
	file := write(t, crd)
	if err := rewrite(file, []string{"spec", "template"}); err != nil {
		t.Fatal(err)
	}
	once := read(t, file)
	want := crd
	for _, gone := range []string{"description: a property by that name, ", "                    description: a list\n", "description: an item, ", "description: deep, "} {
		if !strings.Contains(want, gone) {
			t.Fatalf("%q is not in the example", gone)
		}
		want = strings.Replace(want, gone, "", 1)
	}
	var wanted, got any
	for text, into := range map[string]*any{want: &wanted, once: &got} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("rewritten (-want +got):\n%s", diff)
	}
	if err := rewrite(file, []string{"spec", "template"}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(once, read(t, file)); diff != "" {
		t.Errorf("rewritten again (-once +twice):\n%s", diff)
	}
}

func TestBound(t *testing.T) {
	schema := map[string]any{"properties": map[string]any{"cpu": map[string]any{"pattern": quantity}, "name": map[string]any{"pattern": "^a$"}}}
	bound([]any{schema})
	cpu := schema["properties"].(map[string]any)["cpu"].(map[string]any)
	pattern := regexp.MustCompile(cpu["pattern"].(string))
	for text, want := range map[string]bool{
		"1": true, "100m": true, "1.5": true, ".5": true, "+1.50Gi": true, "3E": true, "2Ei": true, "1e3": true, "1E-03": true, "1e-12": true,
		"1e100": false, "1e-99999999": false, "1e.5": false, "": false, "1x": false, "1e": false,
	} {
		if pattern.MatchString(text) != want {
			t.Errorf("%q matches: %t", text, !want)
		}
	}
	if cpu["maxLength"] != longestQuantity {
		t.Errorf("quantities of any length: %v", cpu)
	}
	if got := schema["properties"].(map[string]any)["name"]; !cmp.Equal(got, map[string]any{"pattern": "^a$"}) {
		t.Errorf("a string that is no quantity: %v", got)
	}
}

func TestOtherFilesAreLeftUnchanged(t *testing.T) {
	for name, tc := range map[string]struct {
		text  string
		field string
		want  string
	}{
		"no such field":     {crd, "spec.pods", "has no field spec.pods"},
		"a field below one": {crd, "spec.other.more", "has no field spec.other.more"},
		"another kind":      {"kind: ConfigMap\ndata: {a: b}\n", "spec", "is not a CustomResourceDefinition"},
		"no YAML":           {"a: [", "spec", "reading "},
	} {
		t.Run(name, func(t *testing.T) {
			file := write(t, tc.text)
			err := rewrite(file, strings.Split(tc.field, "."))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("rewrite() = %v, want an error with %q", err, tc.want)
			}
			if read(t, file) != tc.text {
				t.Error("the file was changed")
			}
		})
	}
	if err := rewrite(filepath.Join(t.TempDir(), "none.yaml"), []string{"spec"}); !os.IsNotExist(err) {
		t.Errorf("without a file: %v", err)
	}
}

func TestAParagraphIsALine(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "",
		"one line":                             "one line",
		"two\nlines":                           "two lines",
		"one\n\ntwo\nlines":                    "one\n\ntwo lines",
		"these:\n- the\n  first\n- the second": "these:\n- the first\n- the second",
	} {
		if got := joined(text); got != want || joined(got) != want {
			t.Errorf("joined(%q) = %q, want %q", text, got, want)
		}
	}
	file := write(t, strings.ReplaceAll(crd, "description: another field", `description: "another\nfield"`))
	if err := rewrite(file, nil); err != nil {
		t.Fatal(err)
	}
	if got := read(t, file); !strings.Contains(got, "description: another field\n") || !strings.Contains(got, "description: deep\n") {
		t.Errorf("rewritten without a field:\n%s", got)
	}
}

// kubectl explain keeps the line breaks of a description, and adds its own at 80 columns.
func TestKubectlExplainsInWholeLines(t *testing.T) {
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d CRDs, %v", len(files), err)
	}
	for _, file := range files {
		committed := read(t, file)
		rewritten := write(t, committed)
		if err := rewrite(rewritten, nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(committed, read(t, rewritten)); diff != "" {
			t.Errorf("%s has lines to join (-now +joined):\n%s", file, diff)
		}
	}
}
