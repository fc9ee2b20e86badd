// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"fmt"
	"slices"
	"testing"
)

func TestChangesIn(t *testing.T) {
	for message, want := range map[string]string{
		"ScaleDown: app cpu 500m->310m, memory 512Mi->256Mi; log memory 64Mi->48Mi": "[{app cpu 500m} {app memory 512Mi} {log memory 64Mi}]",
		"LowerBound: app memory 256Mi->512Mi (restored: not verified yet)":          "[{app memory 256Mi}]",
		"Adopted: app cpu 500m, memory 512Mi":                                       "[{app cpu 500m} {app memory 512Mi}]",
		"OOMKill":                                                                   "[]",
		"OOMKill: app":                                                              "[]",
		"a user edited this text":                                                   "[]",
	} {
		if got := fmt.Sprint(slices.Collect(ChangesIn(message))); got != want {
			t.Errorf("%q has %s, want %s", message, got, want)
		}
	}
}
