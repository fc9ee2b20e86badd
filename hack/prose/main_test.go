// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTextsKeepTheirLines(t *testing.T) {
	for name, tc := range map[string]struct {
		read   func([]byte) (texts, error)
		source string
		want   string
	}{
		"Go":                        {ofGo, "package a\n\nvar code = \"Code\"\n\nvar a, b = \"one two three\", \"four \" + code + \" five six\"\n", "\n\n\n\n- one two three. four X five six.\n"},
		"a raw string of two lines": {ofGo, "package a\n\nconst a = `One two three\nfour.`\n", "\n\n- One two three\n  four.\n"},
		"no tag and no import":      {ofGo, "package a\n\nimport \"a b c d\"\n\ntype a struct {\n\tB int `one two three four`\n}\n", ""},
		"a block in YAML":           {ofYAML, "a:\n  description: |-\n    One two three\n    four.\n  type: string\n", "\n\n- One two three\n  four.\n"},
		"a line in YAML":            {ofYAML, "- message: one two three\n  x: y\n", "- one two three.\n"},
		"a field called message":    {ofYAML, "message:\n  type: string\n", ""},
	} {
		found, err := tc.read([]byte(tc.source))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, found.markdown()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
