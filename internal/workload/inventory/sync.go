// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"sync"
	"sync/atomic"
)

// firstLists counts the watches that have not delivered all objects yet. The zero value waits for none.
type firstLists struct {
	missing atomic.Int32
	done    chan struct{}
}

// expect waits for n watches from now on.
func (l *firstLists) expect(n int) {
	l.done = make(chan struct{})
	l.missing.Store(int32(n))
}

// one returns what a watch calls after each list.
func (l *firstLists) one() func() {
	return sync.OnceFunc(func() {
		if l.missing.Add(-1) == 0 {
			close(l.done)
		}
	})
}

func (l *firstLists) hasSynced() bool { return l.missing.Load() == 0 }

// wait waits for all, or until the context ends.
func (l *firstLists) wait(ctx context.Context) error {
	if l.hasSynced() {
		return nil
	}
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
