// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verification

import "testing"

// Where too many pods were unhealthy before, a change is not blamed.
func TestNoChangeIsToBlameWhereTooManyPodsWereUnhealthy(t *testing.T) {
	for isSaturated, want := range map[bool]bool{false: true, true: false} {
		h := cohortHealth{changed: 4, unhealthyChanged: 4, isSaturated: isSaturated}
		if got := h.isRegression(); got != want {
			t.Errorf("saturated: %t: isRegression() = %t", isSaturated, got)
		}
		h.kills = []string{"pod web-1: container app was OOM-killed"}
		if !h.isRegression() {
			t.Errorf("saturated: %t: an OOM kill is no regression", isSaturated)
		}
	}
}
