// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/leaderelection"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

// The times of the leader election. Another process leads at the earliest leaseDuration after the
// last renewal. The leader writes until renewDeadline after it, so that a request has the rest of the
// time to arrive. Nothing breaks while no process leads, so the lease is renewed more rarely than that of a control
// plane. But another process leads within the minute after which the plugin reports the operator as silent.
const (
	leaseDuration = 30 * time.Second
	renewDeadline = 20 * time.Second
	retryPeriod   = 5 * time.Second
)

// errNotLeading is the cause of a write that was not sent.
var errNotLeading = errors.New("the write was not sent, because the lease of the leader was not renewed in time")

// NewManager creates a manager. If it takes part in a leader election, it sends writes only while
// it knows that it leads.
//
// The leader election of client-go alone is not enough: a process that was paused, with its machine
// or by a signal, goes on where it stopped, and finds out only later that another one leads.
func NewManager(restConfig *rest.Config, c config.Operator, scope Scope) (ctrl.Manager, error) {
	options := ManagerOptions(c, scope)
	if !options.LeaderElection {
		return ctrl.NewManager(restConfig, options)
	}
	lease := &fencedLease{fence: &fence{clock: clock.RealClock{}}}
	options.LeaderElectionResourceLockInterface = lease
	fenced := rest.CopyConfig(restConfig)
	fenced.Wrap(lease.fence.wrap)
	mgr, err := ctrl.NewManager(fenced, options)
	if err != nil {
		return nil, err
	}
	if lease.Interface, err = newLock(restConfig, mgr, options, c.Version); err != nil {
		return nil, fmt.Errorf("creating the lease of the leader: %w", err)
	}
	return mgr, nil
}

// newLock is the lease of the leader, with the version of this process.
func newLock(restConfig *rest.Config, events recorder.Provider, options manager.Options, version string) (resourcelock.Interface, error) {
	return leaderelection.NewResourceLock(restConfig, events, leaderelection.Options{
		LeaderElection:          true,
		LeaderElectionID:        options.LeaderElectionID,
		LeaderElectionNamespace: options.LeaderElectionNamespace,
		RenewDeadline:           ptr.Deref(options.RenewDeadline, renewDeadline),
		LeaderLabels:            leaseLabels(version),
	})
}

// leaseLabels tell users of the plugin which version leads. A version that cannot be a label has none.
func leaseLabels(version string) map[string]string {
	if version == "" || len(validation.IsValidLabelValue(version)) > 0 {
		return nil
	}
	return map[string]string{v1beta1.VersionLabel: version}
}

// fence knows whether this process still leads. The zero value, with a clock, has never led, and
// stops nothing: what needs a leader does not run yet.
type fence struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// renewed is when the last successful renewal was sent; zero before the first.
	renewed time.Time
	// isLost says that another process may have led since the first renewal.
	isLost bool
}

// renew notes that a renewal succeeded that was sent at a time.
func (f *fence) renew(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.renewed = sent
}

// lose notes that this process does not hold the lease. Once it has led, it never leads again: what
// it knows may be older than what another leader has saved.
func (f *fence) lose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isLost = f.isLost || !f.renewed.IsZero()
}

// lost is an error if this process may not lead any more.
func (f *fence) lost() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isLost {
		return fmt.Errorf("another process may have led meanwhile: %w", errNotLeading)
	}
	return nil
}

// check is an error if another process may lead now.
func (f *fence) check() error {
	if err := f.lost(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed.IsZero() {
		return nil
	}
	if ago := elapsed(f.clock, f.renewed); ago >= renewDeadline {
		return fmt.Errorf("last renewed %s ago: %w", ago.Round(time.Second), errNotLeading)
	}
	return nil
}

// elapsed is the time since then, by the clock that says more. The monotonic clock may stand still
// while the machine is suspended. The wall clock may be set back.
func elapsed(c clock.PassiveClock, since time.Time) time.Duration {
	return max(c.Since(since), c.Now().Round(0).Sub(since.Round(0)))
}

// wrap is a wrapper for rest.Config.Wrap. Each attempt to send a write is checked: a client may wait
// between two attempts.
func (f *fence) wrap(next http.RoundTripper) http.RoundTripper { return &fencedTransport{next, f} }

type fencedTransport struct {
	next  http.RoundTripper
	fence *fence
}

// RoundTrip implements http.RoundTripper.
func (t *fencedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if isWrite(request) {
		if err := t.fence.check(); err != nil {
			return nil, err
		}
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport below.
func (t *fencedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

// isWrite says whether a request changes something that matters. A review only asks, and an event
// only tells.
func isWrite(request *http.Request) bool {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !slices.ContainsFunc(harmless, func(path string) bool { return strings.Contains(request.URL.Path+"/", path) })
}

// harmless are parts of the paths of requests that change nothing that matters.
var harmless = []string{"/apis/authentication.k8s.io/", "/apis/authorization.k8s.io/", "/events/"}

// fencedLease tells the fence what becomes of the lease.
type fencedLease struct {
	resourcelock.Interface
	fence *fence
}

// Get implements resourcelock.Interface. After the process has led, a lease that it does not hold is
// lost for good: the leader election ends at its deadline, and with it the process.
func (l *fencedLease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if apierrors.IsNotFound(err) || err == nil && record.HolderIdentity != l.Identity() {
		l.fence.lose()
	}
	if lost := l.fence.lost(); lost != nil {
		log.FromContext(ctx).Info("Lost the lease of the leader", "lease", l.Describe())
		return nil, nil, lost
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *fencedLease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.put(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface. It is bound to the version that was read last, so that
// its success shows that no other process has held the lease since.
func (l *fencedLease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.put(ctx, record, l.Interface.Update)
}

// put writes the lease. A record without a holder releases it.
func (l *fencedLease) put(ctx context.Context, record resourcelock.LeaderElectionRecord, write func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if err := l.fence.lost(); err != nil {
		return err
	}
	sent := l.fence.clock.Now()
	if err := write(ctx, record); err != nil {
		return err
	}
	if record.HolderIdentity == l.Identity() {
		l.fence.renew(sent)
	} else {
		l.fence.lose()
	}
	return nil
}
