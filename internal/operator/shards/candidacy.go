// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// candidacy is a leader election for one slot, from when the replica stands for it until it loses or
// releases it. A nil candidacy has not begun.
type candidacy struct {
	slot  int
	clock clock.Clock
	lock  *slotLock
	// fenced is the lock behind the fence.
	fenced resourcelock.Interface
	cancel context.CancelFunc
	ended  chan struct{}
}

// candidate lets the replica stand for a slot.
func (m *Member) candidate(ctx context.Context, slot int) (*candidacy, error) {
	name := v1beta1.ReplicaLeaseName(slot)
	c := &candidacy{slot: slot, clock: m.options.Clock, lock: m.lockOf(slot, name), ended: make(chan struct{})}
	c.fenced = m.fence.Lock(c.lock, nil)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            c.fenced,
		Name:            name,
		LeaseDuration:   leaseDuration,
		RenewDeadline:   renewDeadline,
		RetryPeriod:     retryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				log.FromContext(ctx).Info("Got a slot", "slot", slot)
				m.mu.Lock()
				defer m.mu.Unlock()
				m.slot = slot
				m.wakeUp()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("standing for slot %d: %w", slot, err)
	}
	// It ends by end only, after the work has ended.
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(c.ended)
		elector.Run(ctx)
	}()
	return c, nil
}

// end ends the candidacy. A slot that was won is released.
func (c *candidacy) end() {
	if c == nil {
		return
	}
	c.cancel()
	<-c.ended
}

// done is closed when the candidacy has ended by itself.
func (c *candidacy) done() <-chan struct{} {
	if c == nil {
		return nil
	}
	return c.ended
}

// tell writes what the replica knows into its lease. It is a renewal, too.
func (c *candidacy) tell(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, retryPeriod)
	defer cancel()
	if err := c.lock.setView(ctx, id); err != nil {
		return fmt.Errorf("waiting for a renewal: %w", err)
	}
	record, _, err := c.fenced.Get(ctx)
	if err != nil {
		return fmt.Errorf("reading the own lease: %w", err)
	}
	record.RenewTime = metav1.NewTime(c.clock.Now())
	if err := c.fenced.Update(ctx, *record); err != nil {
		return fmt.Errorf("writing the own lease: %w", err)
	}
	return nil
}

// slotLock is the lock of a slot's lease. It lets the elector take a lease whose holder has not renewed it
// for leaseDuration, as far as the roster knows: the elector alone would begin to wait when it begins to
// stand.
type slotLock struct {
	*resourcelock.LeaseLock
	isVacant func(*resourcelock.LeaderElectionRecord) bool
	// busy holds a value while the elector or tell uses the lock. Both may wait for it as long as their requests
	// may take.
	busy chan struct{}
}

// use waits until nobody else uses the lock.
func (l *slotLock) use(ctx context.Context) error {
	select {
	case l.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *slotLock) free() { <-l.busy }

// Get implements resourcelock.Interface.
func (l *slotLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if err := l.use(ctx); err != nil {
		return nil, nil, err
	}
	defer l.free()
	record, raw, err := l.LeaseLock.Get(ctx)
	if err == nil && record.HolderIdentity != l.Identity() && l.isVacant(record) {
		record.HolderIdentity = ""
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *slotLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.use(ctx); err != nil {
		return err
	}
	defer l.free()
	return l.LeaseLock.Create(ctx, record)
}

// Update implements resourcelock.Interface.
func (l *slotLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := l.use(ctx); err != nil {
		return err
	}
	defer l.free()
	return l.LeaseLock.Update(ctx, record)
}

// setView sets what the next write tells.
func (l *slotLock) setView(ctx context.Context, id string) error {
	if err := l.use(ctx); err != nil {
		return err
	}
	defer l.free()
	l.Labels = withView(l.Labels, id)
	return nil
}
