// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestBound(t *testing.T) {
	schema := map[string]any{"properties": map[string]any{"cpu": map[string]any{"pattern": quantity}, "name": map[string]any{"pattern": "^a$"}}}
	eachSchema([]any{schema}, reduce)
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
	if cpu["maxLength"] != int64(longestQuantity) {
		t.Errorf("quantities of any length: %v", cpu)
	}
	if got := schema["properties"].(map[string]any)["name"]; !cmp.Equal(got, map[string]any{"pattern": "^a$"}) {
		t.Errorf("a string that is no quantity: %v", got)
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
}

// The committed files are as the program writes them.
func TestTheCRDsAreRewritten(t *testing.T) {
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d CRDs, %v", len(files), err)
	}
	for _, file := range files {
		committed, err := os.ReadFile(file)
		must.Succeed(t, err)
		copied := filepath.Join(t.TempDir(), "crd.yaml")
		must.Succeed(t, os.WriteFile(copied, committed, 0o600))
		must.Succeed(t, rewrite(copied))
		rewritten, err := os.ReadFile(copied)
		if diff := cmp.Diff(string(committed), string(rewritten)); diff != "" || err != nil {
			t.Errorf("%s (-now +rewritten), %v:\n%s", file, err, diff)
		}
	}
}
