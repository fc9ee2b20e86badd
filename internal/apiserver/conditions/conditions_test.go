// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMerge(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	c := func(kind, status, message string, generation int64, at time.Time) metav1.Condition {
		return metav1.Condition{
			Type: kind, Status: metav1.ConditionStatus(status), Reason: "R", Message: message,
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(at),
		}
	}
	before := []metav1.Condition{c("Ready", "True", "old", 1, noon), c("Stalled", "False", "old", 1, noon), c("Gone", "True", "old", 1, noon)}
	current := []metav1.Condition{c("Ready", "True", "new", 0, time.Time{}), c("Stalled", "True", "new", 0, time.Time{}), c("Sized", "True", "new", 0, time.Time{})}
	later := noon.Add(time.Hour)
	want := []metav1.Condition{c("Ready", "True", "new", 2, noon), c("Stalled", "True", "new", 2, later), c("Sized", "True", "new", 2, later)}
	if diff := cmp.Diff(want, Merge(before, current, 2, later.Add(time.Millisecond))); diff != "" {
		t.Errorf("Merge() (-want +got):\n%s", diff)
	}
}

func TestTruncated(t *testing.T) {
	long := strings.Repeat("é", 600) + "x"
	got := Truncated(long)
	if len(got) > MaxMessage || !utf8.ValidString(got) || !strings.HasSuffix(got, "é...") {
		t.Errorf("%d bytes, ending with %q", len(got), got[len(got)-8:])
	}
	if whole := strings.Repeat("x", MaxMessage); Truncated(whole) != whole {
		t.Error("a short message is cut")
	}
}
