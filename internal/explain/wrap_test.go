// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

func TestWrap(t *testing.T) {
	const text = "VerticalScaler shop/web\n    message   one two three four five six seven eight\n        200m  the highest usage of the last 15 minutes\n"
	const want = `VerticalScaler shop/web
    message   one two three four five
              six seven eight
        200m  the highest usage of the
              last 15 minutes
`
	if got := explain.Wrap(text, 40); got != want {
		t.Errorf("got\n%s", got)
	}
	if got := explain.Wrap(text, 0); got != text {
		t.Errorf("without a terminal:\n%s", got)
	}
}

// Lines fit into the terminal, and no text is lost.
func TestWidthOfExplanations(t *testing.T) {
	for name, e := range cases() {
		got := explain.Of(e).Text(noon)
		for _, width := range []int{60, 80, 120} {
			wrapped := explain.Wrap(got, width)
			for line := range strings.Lines(wrapped) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > width && len(strings.Fields(line)) > 1 && !strings.Contains(line, "kubectl patch") { // a word is not broken, nor a command
					t.Errorf("%s: %d columns in a terminal of %d: %s", name, n, width, line)
				}
			}
			if a, b := strings.Fields(got), strings.Fields(wrapped); strings.Join(a, " ") != strings.Join(b, " ") {
				t.Errorf("%s: words are lost:\n%s", name, wrapped)
			}
		}
	}
}
