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

// NeedingNewPod are those that are a matter for the fallback.
func (o Obstacles) NeedingNewPod() (out Obstacles) {
	for _, each := range o {
		if each.NeedsNewPod {
			out = append(out, each)
		}
	}
	return out
}

// Concern reports whether one of them is about the subject.
func (o Obstacles) Concern(subject string) bool {
	return slices.ContainsFunc(o, func(each Obstacle) bool { return each.Subject == subject })
}

// Verdict sums them up, whatever their order. Its reason is the one that most needs a user.
// No obstacles make an empty verdict.
func (o Obstacles) Verdict() Verdict {
	if len(o) == 0 {
		return Verdict{}
	}
	sorted := slices.SortedFunc(slices.Values(o), byUrgency)
	var parts []string
	for rest := sorted; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(each Obstacle) bool { return !each.saysTheSameAs(rest[0]) })
		if n < 0 {
			n = len(rest)
		}
		parts = append(parts, fmt.Sprintf("%s: %s", subjectsOf(rest[:n]), rest[0].Message))
		rest = rest[n:]
	}
	if more := len(parts) - MostNamed; more > 0 {
		parts = append(parts[:MostNamed], fmt.Sprintf("and %d more", more))
	}
	return blockedState(sorted[0].Stalled).Because(sorted[0].Reason, strings.Join(parts, "; "))
}

// byUrgency sorts what needs a user first.
func byUrgency(a, b Obstacle) int {
	if a.Stalled != b.Stalled {
		if a.Stalled {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Subject, b.Subject))
}

func (o Obstacle) saysTheSameAs(other Obstacle) bool {
	return o.Message == other.Message && o.Reason == other.Reason
}

// MostNamed is how many obstacles or pods a message names. It keeps the messages of large
// Deployments short and stable.
const MostNamed = 3

func subjectsOf(list Obstacles) string {
	var subjects []string
	for _, each := range list {
		subjects = append(subjects, each.Subject)
	}
	subjects = slices.Compact(subjects)
	if more := len(subjects) - MostNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(subjects[:MostNamed], ", "), more)
	}
	return strings.Join(subjects, ", ")
}
