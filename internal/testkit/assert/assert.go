// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package assert fails a test, and lets it go on, if a value or a text is not the expected one.
package assert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Equal fails the test with the difference unless got is want.
func Equal(tb testing.TB, what string, want, got any, options ...cmp.Option) {
	tb.Helper()
	if diff := cmp.Diff(want, got, options...); diff != "" {
		tb.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Contains fails the test for each part that is not in the text.
func Contains(tb testing.TB, what, text string, parts ...string) {
	tb.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			tb.Errorf("%s: there is no %q in:\n%s", what, part, text)
		}
	}
}
