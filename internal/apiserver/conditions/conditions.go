// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package conditions turns what a pass has to say into an object's conditions.
package conditions

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MaxMessage is the length in bytes to which a message is cut, so that what an API
// server said does not fill the status.
const MaxMessage = 1024

// Merge makes the conditions now out of those said, all of them about a generation of
// the object. Those whose status has not changed keep the transition time that they
// have in before; the others get at, to the second.
func Merge(before, said []metav1.Condition, generation int64, at time.Time) (now []metav1.Condition) {
	for _, c := range said {
		if old := meta.FindStatusCondition(before, c.Type); old != nil {
			now = append(now, *old)
		}
		c.ObservedGeneration = generation
		c.Message = Truncated(c.Message)
		c.LastTransitionTime = metav1.NewTime(at.Truncate(time.Second))
		meta.SetStatusCondition(&now, c)
	}
	return now
}

// Truncated cuts a message to MaxMessage bytes, without leaving half a letter.
func Truncated(message string) string {
	if len(message) <= MaxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:MaxMessage-3], "") + "..."
}
