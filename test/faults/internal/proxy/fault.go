// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"fmt"
	"time"
)

// Write is a write request of the operator. Events, reviews and leases are not among the
// writes: their number depends on time, so they cannot be addressed by it.
type Write struct {
	Verb      string // create, update, patch or delete
	Resource  string // with subresource: "pods/resize"
	Namespace string
	Name      string // empty for a create without a name
	Code      int    // of the answer, also of one that was lost; 0 if there is none
	Fault     string // the action that was applied; empty for none
}

// Kind is what faults are addressed by: the verb and the resource, as in "patch pods/resize".
func (w Write) Kind() string { return w.Verb + " " + w.Resource }

// String describes the write in one line.
func (w Write) String() string {
	text := fmt.Sprintf("%s %s %d", w.Kind(), w.Name, w.Code)
	if w.Fault != "" {
		text += " (" + w.Fault + ")"
	}
	return text
}

// Fault applies an action to writes of a kind.
type Fault struct {
	// Kind is the kind of write, as in "patch pods/resize"; empty for any write.
	Kind string
	// N is the write, counted from 1 for each kind; 0 for every write.
	N int
	// Action is what happens.
	Action Action
}

// applies tells whether the fault applies to the n-th write of its kind.
func (f Fault) applies(n int) bool { return f.N == 0 || f.N == n }

type moment int

const (
	delay moment = iota
	hang
	killBefore
	killAfter
)

// Action is what happens to a write.
type Action struct {
	moment moment
	time   time.Duration // delay
}

// Delay passes the write on that much later, or after Release; 0 stands for no limit.
func Delay(d time.Duration) Action { return Action{moment: delay, time: d} }

// Hang does not answer until the operator gives up, or until Release. The write is not passed
// on.
func Hang() Action { return Action{moment: hang} }

// KillBefore kills the operator instead of passing the write on.
func KillBefore() Action { return Action{moment: killBefore} }

// KillAfter passes the write on and kills the operator before it gets the answer.
func KillAfter() Action { return Action{moment: killAfter} }

// String is the action's part in the name of a fault: "hang", "kill-after".
func (a Action) String() string {
	switch a.moment {
	case delay:
		return "delayed"
	case hang:
		return "hang"
	case killBefore:
		return "kill-before"
	case killAfter:
		return "kill-after"
	}
	return "unknown"
}
