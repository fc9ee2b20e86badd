// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package conditions

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBecame(t *testing.T) {
	of := func(status metav1.ConditionStatus) []metav1.Condition {
		if status == "" {
			return nil
		}
		return []metav1.Condition{{Type: "Other", Status: "True"}, {Type: "Ready", Status: status, Reason: "Learning"}}
	}
	for _, before := range []metav1.ConditionStatus{"", "False", "Unknown", "True"} {
		for _, now := range []metav1.ConditionStatus{"", "False", "Unknown", "True"} {
			c, ok := Became(of(before), of(now), "Ready")
			if want := now == "True" && (before == "" || before == "False"); ok != want || ok != (c.Reason == "Learning") {
				t.Errorf("%q to %q: %t, %+v", before, now, ok, c)
			}
		}
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

// FuzzMerge merges conditions twice: the second time, nothing changes.
func FuzzMerge(f *testing.F) {
	f.Add(uint8(0), uint8(1), "old", "new", int64(1), int64(1_700_000_000))
	f.Add(uint8(3), uint8(3), strings.Repeat("é", 600), "a\nb\x00\x1b[2J\u009b\u202e", int64(-1), int64(-1))
	f.Add(uint8(7), uint8(0), "", strings.Repeat("\xff", 2000), int64(1<<62), int64(0))
	types := []string{"Ready", "Applied", "Stalled"}
	statuses := []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse}
	f.Fuzz(func(t *testing.T, wasTrue, isTrue uint8, old, message string, generation, seconds int64) {
		began := time.Unix(seconds%(1<<33), 0)
		of := func(bits uint8, message string) (list []metav1.Condition) {
			for i, kind := range types {
				list = append(list, metav1.Condition{
					Type: kind, Status: statuses[bits>>i&1], Reason: "R", Message: message, LastTransitionTime: metav1.NewTime(began), ObservedGeneration: 1,
				})
			}
			return list
		}
		before, current := of(wasTrue, old), of(isTrue, message)
		before[2].Type = "Gone"
		now := began.Add(time.Hour)
		merged := Merge(before, current, generation, now.Add(time.Millisecond))
		if len(merged) != len(types) {
			t.Fatalf("%d conditions", len(merged))
		}
		for i, c := range merged {
			isKept := i < 2 && before[i].Status == current[i].Status
			since := map[bool]time.Time{true: began, false: now}[isKept]
			if c.Type != types[i] || c.Status != current[i].Status || c.ObservedGeneration != generation || !c.LastTransitionTime.Time.Equal(since) || c.Message != Truncated(message) {
				t.Errorf("%+v after %+v became %+v", current[i], before[i], c)
			}
			if len(c.Message) > MaxMessage || utf8.ValidString(message) && !utf8.ValidString(c.Message) {
				t.Errorf("a message of %d bytes, valid: %t", len(c.Message), utf8.ValidString(c.Message))
			}
			if strings.ContainsFunc(c.Message, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }) {
				t.Errorf("%q has control characters", c.Message)
			}
		}
		if again := Merge(merged, current, generation, now.Add(time.Hour)); !cmp.Equal(merged, again) {
			t.Errorf("merged twice (-once +twice):\n%s", cmp.Diff(merged, again))
		}
	})
}

func TestOneLineHasNoControlCharacters(t *testing.T) {
	if got := OneLine("paused\x1b[2J\x07 by\n\u009bme"); got != "paused [2J by me" {
		t.Errorf("OneLine() = %q", got)
	}
}
