// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Obstacle is something that keeps a pod or a resource from having its size.
type Obstacle struct {
	Reason  string
	Subject string
	Message string
	// Stalled is true if a user must act.
	Stalled bool
	// NeedsNewPod is true if only a new pod can have the size: a matter for the fallback.
	NeedsNewPod bool
}

// Wait is an obstacle that ends without a user.
func Wait(reason, format string, args ...any) Obstacle {
	return Obstacle{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Stall is an obstacle that a user must remove.
func Stall(reason, format string, args ...any) Obstacle {
	o := Wait(reason, format, args...)
	o.Stalled = true
	return o
}

// Exists reports whether there is an obstacle.
func (o Obstacle) Exists() bool { return o.Reason != "" }

// On is the obstacle of another subject.
func (o Obstacle) On(subject string) Obstacle {
	o.Subject = subject
	return o
}

// Verdict is the obstacle's own verdict, without its subject.
func (o Obstacle) Verdict() Verdict { return blockedState(o.Stalled).Because(o.Reason, o.Message) }

func blockedState(stalled bool) State {
	if stalled {
		return Stalled
	}
	return Waiting
}

// Obstacles are obstacles in any order.
type Obstacles []Obstacle

// Verdict sums them up, whatever their order. Its reason is the one that most needs a user. No obstacles make an empty verdict.
func (o Obstacles) Verdict() Verdict {
	if len(o) == 0 {
		return Verdict{}
	}
	sorted := slices.SortedFunc(slices.Values(o), byUrgency)
	subjects := map[string][]string{} // by message
	var messages []string
	for _, each := range sorted {
		if subjects[each.Message] == nil {
			messages = append(messages, each.Message)
		}
		subjects[each.Message] = append(subjects[each.Message], each.Subject)
	}
	for i, message := range messages {
		messages[i] = Listed(slices.Compact(subjects[message]), ", ") + ": " + message
	}
	return blockedState(sorted[0].Stalled).Because(sorted[0].Reason, Listed(messages, "; "))
}

func byUrgency(a, b Obstacle) int {
	return cmp.Or(cmp.Compare(blockedState(b.Stalled), blockedState(a.Stalled)),
		cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Subject, b.Subject))
}

// Listed joins the first three items, and says how many more there are. It keeps the messages of large Deployments short
// and stable.
func Listed(items []string, separator string) string {
	const most = 3
	if more := len(items) - most; more > 0 {
		items = append(slices.Clone(items[:most]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(items, separator)
}
