// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func yaml(source []byte) (texts, error) { return ofYAML(source), nil }

func TestTextsKeepTheirLines(t *testing.T) {
	for name, tc := range map[string]struct {
		read   func([]byte) (texts, error)
		source string
		want   texts
	}{
		"Go":                        {ofGo, "package a\n\nvar code = \"Code\"\n\nvar a, b = \"one two three\", \"four \" + code + \" five six\"\n", texts{"", "", "", "", "- one two three. four X five six."}},
		"a raw string of two lines": {ofGo, "package a\n\nconst a = `One two three\nfour.`\n", texts{"", "", "- One two three", "  four."}},
		"no tag and no import":      {ofGo, "package a\n\nimport \"a b c d\"\n\ntype a struct {\n\tB int `one two three four`\n}\n", nil},
		"a block in YAML":           {yaml, "a:\n  description: |-\n    One two three\n    four.\n  type: string\n", texts{"", "", "- One two three", "  four."}},
		"a line in YAML":            {yaml, "- message: one two three\n  x: y\n", texts{"- one two three."}},
		"a field called message":    {yaml, "message:\n  type: string\n", nil},
	} {
		found, err := tc.read([]byte(tc.source))
		must.Succeed(t, err)
		if diff := cmp.Diff(tc.want, found); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
