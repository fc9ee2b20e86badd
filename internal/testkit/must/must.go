// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package must ends a test at an error that the test does not expect.
package must

import "testing"

// Succeed ends the test if err is not nil.
func Succeed(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
