// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditions merges the conditions of a reconcile into an object's.
package conditions

import (
	"strings"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxMessage is the maximum length of a message in bytes, so that messages of the API server
// do not fill the status.
const MaxMessage = 1024

// New is a condition that is True or False.
func New(kind string, isTrue bool, reason, message string) metav1.Condition {
	c := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	if isTrue {
		c.Status = metav1.ConditionTrue
	}
	return c
}

// Merge returns the current conditions, all of them with the given generation. A condition
// whose status is the same as before keeps its transition time. The others get the time at,
// in seconds.
func Merge(before, current []metav1.Condition, generation int64, at time.Time) (merged []metav1.Condition) {
	merged = make([]metav1.Condition, 0, len(current))
	for _, c := range current {
		if old := meta.FindStatusCondition(before, c.Type); old != nil {
			merged = append(merged, *old)
		}
		c.ObservedGeneration = generation
		c.Message = Truncated(c.Message)
		c.LastTransitionTime = metav1.NewTime(at.Truncate(time.Second))
		meta.SetStatusCondition(&merged, c)
	}
	return merged
}

// Became returns the condition of that type if it is True now, and was absent or False before. After Unknown it is not new: a
// failed reconcile in between has no information.
func Became(before, now []metav1.Condition, kind string) (metav1.Condition, bool) {
	c, old := meta.FindStatusCondition(now, kind), meta.FindStatusCondition(before, kind)
	if c == nil || c.Status != metav1.ConditionTrue || old != nil && old.Status != metav1.ConditionFalse {
		return metav1.Condition{}, false
	}
	return *c, true
}

// Truncated cuts a message to MaxMessage bytes without splitting a character. Control characters but line breaks become
// spaces: they would change the terminals of readers.
func Truncated(message string) string {
	message = strings.Map(printable, message)
	if len(message) <= MaxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:MaxMessage-3], "") + "..."
}

func printable(r rune) rune {
	if unicode.IsControl(r) && r != '\n' {
		return ' '
	}
	return r
}

// maxQuote is the maximum length in bytes of a text of a user that a message quotes.
const maxQuote = 256

// OneLine turns a text of a user into one short line of valid UTF-8, without control characters, that a message
// can quote.
func OneLine(text string) string {
	text = strings.Join(strings.Fields(strings.Map(printable, strings.ToValidUTF8(text, ""))), " ")
	if len(text) > maxQuote {
		text = strings.ToValidUTF8(text[:maxQuote], "") + "..."
	}
	return text
}
