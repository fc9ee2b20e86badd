// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pressure finds nodes that have used up their CPU.
package pressure

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// busyPercent is the CPU usage of a busy node, in percent of its allocatable CPU.
	busyPercent = 90
	// rowOf is the number of readings in a row that show a busy node: one may be a moment.
	rowOf = 2
	// askAgain is the least time between two questions about a node. The metrics API has a new reading every 15 to 60
	// seconds.
	askAgain = 30 * time.Second
	// currentFor is how long a reading is current, and how far apart two of a row may be.
	currentFor = 2 * time.Minute
)

// ErrNotKnown means that there is no current usage of the node, or no size.
var ErrNotKnown = errors.New("no current usage, or no size, of the node is known")

// Source reads the CPU that a node uses, in millicores, and the time of that reading.
type Source interface {
	NodeCPU(ctx context.Context, node string) (millis int64, at time.Time, err error)
}

// Nodes finds nodes that have used up their CPU. It reads only nodes that callers ask about. It is safe for concurrent use.
type Nodes struct {
	Source Source
	// Allocatable is the allocatable CPU of a node, in millicores; 0 if unknown.
	Allocatable func(node string) int64
	Clock       clock.PassiveClock

	mu    sync.Mutex
	known map[string]row
}

// row is the state of a node.
type row struct {
	asked time.Time // by our clock, like seen
	seen  time.Time // when the last reading was new
	at    time.Time // by the clock of the metrics API
	busy  int       // readings in a row
	err   error
}

// IsBusy reports whether two readings of the node in a row were at 90 % of its allocatable CPU. An error tells why that is
// unknown: ErrNotKnown, or that of the Source.
func (n *Nodes) IsBusy(ctx context.Context, node string) (bool, error) {
	if now := n.Clock.Now(); n.asks(node, now) {
		millis, at, err := n.Source.NodeCPU(ctx, node)
		n.note(node, now, millis, at, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.isBusy(n.known[node])
}

// Take uses up the readings of a busy node, and reports whether it was busy. A pod that leaves may be enough, which only new
// readings show.
func (n *Nodes) Take(node string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.known[node]
	if isBusy, _ := n.isBusy(r); !isBusy {
		return false
	}
	r.busy = 0
	n.known[node] = r
	return true
}

func (n *Nodes) isBusy(r row) (bool, error) {
	switch {
	case r.err != nil:
		return false, r.err
	case n.Clock.Since(r.seen) > currentFor:
		return false, ErrNotKnown
	}
	return r.busy >= rowOf, nil
}

// asks reports whether it is time to ask about the node, and records that. Meanwhile, others use the last reading.
func (n *Nodes) asks(node string, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known == nil {
		n.known = map[string]row{}
	}
	r, isKnown := n.known[node]
	if isKnown && now.Before(r.asked.Add(askAgain)) {
		return false
	}
	maps.DeleteFunc(n.known, func(_ string, r row) bool { return now.Sub(r.asked) > currentFor })
	r.asked = now
	n.known[node] = r
	return true
}

func (n *Nodes) note(node string, now time.Time, millis int64, at time.Time, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	r, most := n.known[node], n.Allocatable(node)
	if r.err = err; err == nil && most == 0 {
		r.err = ErrNotKnown
	}
	if r.err == nil && !at.Equal(r.at) {
		if now.Sub(r.seen) > currentFor || millis*100 < most*busyPercent {
			r.busy = 0
		}
		if millis*100 >= most*busyPercent {
			r.busy++
		}
		r.at, r.seen = at, now
	}
	n.known[node] = r
}
