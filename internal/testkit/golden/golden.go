// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package golden compares texts with files that people review. "go test -update" rewrites the files.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// Update reports whether the tests rewrite files.
var Update = flag.Bool("update", false, "rewrite the golden files")

// Compare fails the test unless the file in the folder testdata has this text.
func Compare(tb testing.TB, file, got string) {
	tb.Helper()
	path := filepath.Join("testdata", file)
	if *Update {
		must.Succeed(tb, os.WriteFile(path, []byte(got), 0o600))
	}
	want, err := os.ReadFile(path)
	must.Succeed(tb, err)
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		tb.Errorf("%s (-want +got); -update rewrites it:\n%s", path, diff)
	}
}
