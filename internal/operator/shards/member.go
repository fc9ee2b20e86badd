// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/fence"
)

// The times of the leases. Others take the namespaces of a replica at the earliest leaseDuration after they
// have seen its last renewal. It writes until renewDeadline after it was sent, so that a request has the rest
// of the time to arrive.
const (
	leaseDuration = 12 * time.Second
	renewDeadline = 9 * time.Second
	retryPeriod   = 3 * time.Second
	// pollPeriod is the time between two reads of the leases. busyPeriod is that of a replica that waits for the
	// others, and for busyTime after any change: changes come together.
	pollPeriod = 2 * time.Second
	busyPeriod = 500 * time.Millisecond
	busyTime   = 4 * time.Second
	// minPause is the shortest time between two reads, if none is asked for.
	minPause = 200 * time.Millisecond
	// settleTime is how long a change must last.
	settleTime = time.Second
)

// RequestTimeout is the timeout of a request for a lease. One that hangs leaves time for another.
const RequestTimeout = retryPeriod

var zeroTime metav1.MicroTime

// ErrSoloist is the cause of the end of a replica because another one does all the work.
var ErrSoloist = errors.New("another replica works alone: its leaderElection.replicas is 1, or its version is older")

// Options say how a replica takes part.
type Options struct {
	// Leases are those of the operator's namespace.
	Leases coordinationclient.LeaseInterface
	// Replicas is how many replicas share the work at most, from 2 to v1beta1.MaxReplicas.
	Replicas int
	// Identity is unique for each replica. One that starts again with the same identity gets its slot back
	// at once, so its predecessor must have ended.
	Identity string
	// Labels are further labels of the own lease.
	Labels map[string]string
	// Clock is the time.
	Clock clock.WithTicker
}

// Member is a replica that shares the work with others. A nil Member does all the work alone.
type Member struct {
	options Options
	fence   *fence.Fence
	wake    chan struct{} // the next round is due

	mu     sync.Mutex
	roster roster
	slot   int
	// hasWorked says that the replica has adopted a view with work.
	hasWorked bool
	// adopted is the view that the replica works on.
	adopted View
	// wanted is the view that it should work on, and wantedSince when that changed.
	wanted      View
	wantedSince time.Time
	// held are the members at the last round, and heldSince when they changed.
	held      string
	heldSince time.Time
	// told is what it has told the others that it knows.
	told string
	// outdated is closed when the adopted view is not the wanted one.
	outdated chan struct{}
}

// New returns a replica without a slot. Run lets it take part.
func New(o Options) *Member {
	o.Identity += sharingSuffix
	return &Member{options: o, fence: fence.NewStrict(o.Clock, renewDeadline), slot: noSlot, wake: make(chan struct{}, 1), outdated: make(chan struct{})}
}

// Adopt returns the view to work on from now on. The caller no longer works on the previous one.
func (m *Member) Adopt() View {
	if m == nil {
		return Alone()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adopted, m.outdated = m.wantedView(), make(chan struct{})
	m.hasWorked = m.hasWorked || !m.adopted.IsStandby()
	m.wanted = m.adopted
	m.wakeUp()
	return m.adopted
}

// Next is the view that Adopt would return now.
func (m *Member) Next() View {
	if m == nil {
		return Alone()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wantedView()
}

// Outdated is closed when the work on the adopted view must stop; never for a nil Member.
func (m *Member) Outdated() <-chan struct{} {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.outdated
}

// Guard is a wrapper for rest.Config.Wrap that sends writes only while the replica holds its lease and works
// on the view.
func (m *Member) Guard(v View) func(http.RoundTripper) http.RoundTripper {
	return fence.Guard(func() error {
		if err := m.fence.Check(); err != nil {
			return err
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if !m.adopted.Equal(v) {
			return fmt.Errorf("other replicas share the work now: %w", fence.ErrClosed)
		}
		return nil
	})
}

// Run takes part until the context ends, and then releases the slot. It must not end before the work has. It
// returns an error if the replica must end, because it may no longer work.
func (m *Member) Run(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("shards"))
	var c *candidacy
	defer func() { c.end() }()
	for {
		if err := m.read(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Cannot read the leases of the replicas")
			if m.hasGivenUp() {
				return fmt.Errorf("the leases of the replicas could not be read for %s: %w", leaseDuration, err)
			}
		}
		next, err := m.stand(ctx, c)
		if err != nil {
			return err
		}
		c = next
		if err := m.tell(ctx, c); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Cannot tell the other replicas that they are known")
		}
		timer := m.options.Clock.NewTimer(m.decide())
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-m.fence.Lost():
			timer.Stop()
			return fmt.Errorf("the lease of the slot was lost: %w", fence.ErrClosed)
		case <-c.done():
			timer.Stop()
			if m.hasSlot() {
				return fmt.Errorf("the lease of the slot was not renewed: %w", fence.ErrClosed)
			}
			c = nil
		case <-m.wake:
			timer.Stop()
		case <-timer.C():
		}
	}
}

// read reads the leases.
func (m *Member) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, retryPeriod)
	defer cancel()
	asked := m.options.Clock.Now()
	list, err := m.options.Leases.List(ctx, metav1.ListOptions{})
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		if m.roster.asked.IsZero() {
			m.roster.asked = asked
		}
		return fmt.Errorf("listing leases: %w", err)
	}
	m.roster.observe(list.Items, asked, m.options.Clock.Now())
	return nil
}

// hasGivenUp reports whether the leases have not been read for too long.
func (m *Member) hasGivenUp() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.options.Clock.Since(m.roster.asked) >= leaseDuration
}

func (m *Member) hasSlot() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.slot != noSlot
}

// stand lets the replica stand for a free slot, unless it has one. It ends a candidacy that another one has
// won.
func (m *Member) stand(ctx context.Context, c *candidacy) (*candidacy, error) {
	m.mu.Lock()
	slot, isFree := m.roster.free(m.options.Replicas, m.options.Identity)
	soloist, hasSlot := m.roster.soloist(), m.slot != noSlot
	isTaken := c != nil && !hasSlot && m.roster.isHeld(c.slot) && m.roster.seats[c.slot].holder != m.options.Identity
	m.mu.Unlock()
	if soloist != "" {
		if hasSlot {
			return c, fmt.Errorf("replica %s: %w", soloist, ErrSoloist)
		}
		c.end()
		return nil, nil
	}
	if isTaken {
		c.end()
		c = nil
	}
	if c != nil || !isFree {
		return c, nil
	}
	return m.candidate(ctx, slot)
}

// tell tells the other replicas that this one knows them, unless it still works on another view.
func (m *Member) tell(ctx context.Context, c *candidacy) error {
	m.mu.Lock()
	if c == nil || m.slot == noSlot || m.roster.seats[m.slot].holder != m.options.Identity {
		m.mu.Unlock()
		return nil
	}
	known := m.roster.members(m.slot)
	isFree := m.adopted.IsStandby() || slices.Equal(m.adopted.Slots, known.slots)
	told := m.told
	m.mu.Unlock()
	if !isFree || known.id == told {
		return nil
	}
	if err := c.tell(ctx, known.id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = known.id
	return nil
}

// decide updates the wanted view, and returns when the next round is due.
func (m *Member) decide() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.options.Clock.Now()
	if v := m.wantedView(); !v.Equal(m.wanted) {
		m.wanted, m.wantedSince = v, now
	}
	if held := m.roster.members(m.slot).id; held != m.held {
		m.held, m.heldSince = held, now
	}
	pause := pollPeriod
	if isJoining := m.slot != noSlot && !m.hasWorked; isJoining || now.Sub(m.heldSince) < busyTime {
		pause = busyPeriod
	}
	if at, ok := m.roster.nextExpiry(); ok {
		pause = min(pause, at.Sub(now))
	}
	if !m.wanted.Equal(m.adopted) {
		left := m.wantedSince.Add(settleTime).Sub(now)
		if left <= 0 {
			m.stop()
			left = pause
		}
		pause = min(pause, left)
	}
	return max(pause, minPause)
}

// stop ends the work on the adopted view. The caller holds mu.
func (m *Member) stop() {
	select {
	case <-m.outdated:
	default:
		close(m.outdated)
	}
}

// wantedView is the view that the replica should work on. The caller holds mu.
func (m *Member) wantedView() View {
	if m.slot == noSlot || m.roster.seats[m.slot].holder != m.options.Identity || m.roster.soloist() != "" {
		return View{}
	}
	known := m.roster.members(m.slot)
	if !m.hasWorked && (m.told != known.id || !m.roster.knowAll(known, m.slot)) {
		return View{}
	}
	return View{Slot: m.slot, Slots: known.slots}
}

// wakeUp makes the next round due.
func (m *Member) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// lockOf is the lock of a slot's lease.
func (m *Member) lockOf(slot int, name string) *slotLock {
	return &slotLock{
		LeaseLock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Name: name},
			Client:     getter{m.options.Leases},
			LockConfig: resourcelock.ResourceLockConfig{Identity: m.options.Identity},
			Labels:     withView(m.options.Labels, ""),
		},
		busy: make(chan struct{}, 1),
		isVacant: func(record *resourcelock.LeaderElectionRecord) bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			s := m.roster.seats[slot]
			return !m.roster.isHeld(slot) && s.holder == record.HolderIdentity && s.renewed.Equal(record.RenewTime.Time)
		},
	}
}

func withView(labels map[string]string, id string) map[string]string {
	out := maps.Clone(labels)
	if out == nil {
		out = map[string]string{}
	}
	out[v1beta1.ReplicaViewLabel] = id
	return out
}

// getter is the client of one namespace.
type getter struct {
	leases coordinationclient.LeaseInterface
}

// Leases implements coordinationclient.LeasesGetter.
func (g getter) Leases(string) coordinationclient.LeaseInterface { return g.leases }
