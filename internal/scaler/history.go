// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"iter"
	"strings"
)

// Change is one request in an entry of the history, such as "memory 512Mi->256Mi" of a container.
type Change struct {
	Container, Resource string
	// From is the amount before, or the amount that was adopted.
	From string
}

// ChangesIn are the changes in the message of an entry: "ScaleDown: app cpu 500m->310m, memory 512Mi->256Mi; log memory …".
func ChangesIn(message string) iter.Seq[Change] {
	_, text, _ := strings.Cut(message, ": ")
	return func(yield func(Change) bool) {
		for part := range strings.SplitSeq(text, "; ") {
			container, changes, _ := strings.Cut(part, " ")
			for change := range strings.SplitSeq(changes, ", ") {
				name, amounts, ok := strings.Cut(change, " ")
				from, _, _ := strings.Cut(amounts, "->")
				if ok && !yield(Change{container, name, from}) {
					return
				}
			}
		}
	}
}
