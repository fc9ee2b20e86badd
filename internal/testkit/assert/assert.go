// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package assert fails a test, and lets it go on, if a value is not the expected one.
package assert

import (
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
