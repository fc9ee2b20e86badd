// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fence lets a process write only while it knows that it holds its lease.
//
// The leader election of client-go alone is not enough. A process that was paused, with its machine or by
// a signal, continues where it stopped, and finds out only later that another one has taken its place. See
// docs/adr/0018-write-only-while-the-leader-lease-is-renewed.md.
package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// ErrClosed is the cause of a write that was not sent.
var ErrClosed = errors.New("the write was not sent, because the lease of this process was not renewed in time")

// Fence knows whether this process still holds its lease. Without a lease so far, it stops nothing: the
// code that needs the lease does not run yet.
type Fence struct {
	clock    clock.PassiveClock
	deadline time.Duration

	mu sync.Mutex
	// renewed is the time at which the last successful renewal was sent; zero before the first.
	renewed time.Time

	// lost is closed if another process may have led since the first renewal, or if etcd was restored from a backup.
	lost      chan struct{}
	closeLost func()
}

// New returns a fence that lets writes pass until the deadline after the last renewal was sent.
func New(c clock.PassiveClock, deadline time.Duration) *Fence {
	lost := make(chan struct{})
	return &Fence{clock: c, deadline: deadline, lost: lost, closeLost: sync.OnceFunc(func() { close(lost) })}
}

// Start implements manager.Runnable: a process that may not lead any more ends. Its state may be older than the save of
// another leader. After a restore, the watches of its caches wait for versions that the API server may not reach for days.
func (f *Fence) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-f.lost:
		return f.Lost()
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a process that waits for the lease can lose it, too.
func (*Fence) NeedLeaderElection() bool { return false }

// renew notes that a renewal succeeded that was sent at a time.
func (f *Fence) renew(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed = sent
}

// lose records that this process does not hold the lease. Once it has led, it never leads again.
func (f *Fence) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.renewed.IsZero() {
		f.closeLost()
	}
}

// Lost is an error if this process may not lead any more.
func (f *Fence) Lost() error {
	select {
	case <-f.lost:
		return fmt.Errorf("another process may have taken over, or etcd was restored from a backup: %w", ErrClosed)
	default:
		return nil
	}
}

// Check is an error if another process may have the lease now.
func (f *Fence) Check() error {
	if err := f.Lost(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed.IsZero() {
		return nil
	}
	if ago := elapsed(f.clock, f.renewed); ago >= f.deadline {
		return fmt.Errorf("last renewed %s ago: %w", ago.Round(time.Second), ErrClosed)
	}
	return nil
}

// elapsed is the time since then, by the clock that has advanced more. The monotonic clock may
// stand still while the machine is suspended. The wall clock may be set back.
func elapsed(c clock.PassiveClock, since time.Time) time.Duration {
	return max(c.Since(since), c.Now().Round(0).Sub(since.Round(0)))
}

// Wrap is a wrapper for rest.Config.Wrap. Each attempt to send a write is checked: a client may wait
// between two attempts.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper { return &transport{next, f.Check} }

type transport struct {
	next  http.RoundTripper
	check func() error
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if isWrite(request) {
		if err := t.check(); err != nil {
			return nil, err
		}
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// isWrite reports whether a request changes something that matters, unlike reviews and events.
func isWrite(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	switch group, resource := target(request.URL.Path); group {
	case "authentication.k8s.io", "authorization.k8s.io":
		return false
	case "", "events.k8s.io":
		return resource != "events"
	}
	return true
}

// target is the group and the resource in the path of a request: /api/VERSION/… or /apis/GROUP/VERSION/…, and then
// RESOURCE/… or namespaces/NAMESPACE/RESOURCE/….
func target(path string) (group, resource string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = parts[1], parts[3:]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	return group, parts[0]
}

// Lock returns a lock of the leader election that reports changes of the lease to the fence.
func (f *Fence) Lock(lock resourcelock.Interface) resourcelock.Interface {
	return &lease{Interface: lock, fence: f}
}

// lease reports changes of the lease to the fence.
type lease struct {
	resourcelock.Interface
	fence *Fence
	last  resourcelock.LeaderElectionRecord // read or written; only the leader election calls the lease
}

// Get implements resourcelock.Interface. Once the process has led, a lease without its identity is
// lost for good, and the process ends.
func (l *lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if apierrors.IsNotFound(err) || err == nil && record.HolderIdentity != l.Identity() {
		l.fence.lose()
	}
	if err == nil {
		if isBefore(record, &l.last) {
			l.fence.closeLost() // etcd was restored from a backup
		}
		l.last = *record
	}
	if lost := l.fence.Lost(); lost != nil {
		log.FromContext(ctx).Info("Lost the lease", "lease", l.Describe())
		return nil, nil, lost
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.put(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface. It is bound to the version that was read last, so that
// its success shows that no other process has held the lease since.
func (l *lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.put(ctx, record, l.Interface.Update)
}

// put writes the lease. A record without a holder releases it.
func (l *lease) put(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if err := l.fence.Lost(); err != nil {
		return err
	}
	sent := l.fence.clock.Now()
	if err := write(ctx, record); err != nil {
		return err
	}
	l.last = record
	if record.HolderIdentity != l.Identity() {
		l.fence.lose()
		return nil
	}
	l.fence.renew(sent)
	return l.fence.Lost()
}

// isBefore reports whether a record is older than another one of the server. A lease stores microseconds.
func isBefore(record, last *resourcelock.LeaderElectionRecord) bool {
	if record.LeaderTransitions != last.LeaderTransitions {
		return record.LeaderTransitions < last.LeaderTransitions
	}
	return record.HolderIdentity == last.HolderIdentity && record.RenewTime.Add(time.Second).Before(last.RenewTime.Time)
}
