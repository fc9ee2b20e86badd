// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"
)

func TestVersionsMayBeOneMinorVersionApart(t *testing.T) {
	for _, tc := range []struct {
		operator, plugin string
		want             checkResult
	}{
		{"v0.3.0", "v0.3.0", checkOK},
		{"v0.3.9", "v0.3.0", checkOK},
		{"v0.2.0", "v0.3.0", checkOK},
		{"v0.3.0", "v0.2.0-rc.1", checkOK},
		{"v0.1.0", "v0.3.0", checkWarned},
		{"v0.3.0", "v0.1.0", checkWarned},
		{"v1.0.0", "v0.9.0", checkWarned},
		{"devel", "devel", checkOK},
		{"devel", "v0.3.0", checkUnknown},
		{"v0.3.0", "devel", checkUnknown},
		{"", "v0.3.0", checkUnknown},
	} {
		result, message, err := versions(tc.operator, tc.plugin)
		if err != nil {
			result, message = checkUnknown, err.Error()
		}
		if result != tc.want || !strings.Contains(message, tc.plugin) || !strings.Contains(message, tc.operator) {
			t.Errorf("operator %q, plugin %q: %s %s, want %s", tc.operator, tc.plugin, result, message, tc.want)
		}
	}
}
