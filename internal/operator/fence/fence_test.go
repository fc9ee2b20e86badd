// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const (
	leaseName     = "leader"
	renewDeadline = 10 * time.Second
)

// pausedClock is a clock whose wall clock and monotonic clock can stand still, or jump, alone.
type pausedClock struct {
	wall  time.Time
	since time.Duration // by the monotonic clock, for any time
}

func (c *pausedClock) Now() time.Time { return c.wall }

func (c *pausedClock) Since(time.Time) time.Duration { return c.since }

// process is one process of the operator: its lease, and a client of an API server that counts the
// requests that arrive.
type process struct {
	*lease

	t       *testing.T
	clock   *pausedClock
	client  kubernetes.Interface
	arrived []string
}

func newProcess(t *testing.T, server kubernetes.Interface, name string) *process {
	t.Helper()
	p := &process{t: t, clock: &pausedClock{wall: time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)}}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "system", leaseName, server.CoreV1(), server.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
	must.Succeed(t, err)
	p.lease = &lease{Interface: lock, fence: New(p.clock, renewDeadline)}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.arrived = append(p.arrived, r.Method)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"metadata":{"name":"web"}}`))
	}))
	t.Cleanup(api.Close)
	config := &rest.Config{Host: api.URL, QPS: -1}
	config.Wrap(p.fence.Wrap)
	if p.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return p
}

// holder is the lease as held by the process; without a name, it is free.
func holder(name string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: name, LeaseDurationSeconds: 15}
}

// take reads the lease and takes it.
func (p *process) take() {
	p.t.Helper()
	_, _, err := p.Get(p.t.Context())
	if err == nil {
		err = p.Update(p.t.Context(), holder(p.Identity()))
	} else {
		err = p.Create(p.t.Context(), holder(p.Identity()))
	}
	if err != nil {
		p.t.Fatalf("process %s: taking the lease: %v", p.Identity(), err)
	}
}

// expect checks whether a write is sent. Reads, reviews and events always are.
func (p *process) expect(when string, writes bool) {
	p.t.Helper()
	ctx, pod := p.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	p.arrived = nil
	_, err := p.client.CoreV1().Pods("shop").UpdateResize(ctx, "web", pod, metav1.UpdateOptions{})
	if sent := len(p.arrived) == 1; sent != writes || errors.Is(err, ErrClosed) == writes {
		p.t.Errorf("%s: a write of process %s is sent: %t, %v; want %t", when, p.Identity(), sent, err, writes)
	}
	p.arrived = nil
	_, err1 := p.client.CoreV1().Pods("shop").Get(ctx, "web", metav1.GetOptions{})
	_, err2 := p.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{}, metav1.CreateOptions{})
	_, err3 := p.client.CoreV1().Events("shop").Create(ctx, &corev1.Event{}, metav1.CreateOptions{})
	if err := errors.Join(err1, err2, err3); err != nil || len(p.arrived) != 3 {
		p.t.Errorf("%s: of a read, a review and an event of process %s, %v were sent: %v", when, p.Identity(), p.arrived, err)
	}
}

// pause lets time pass, by either clock.
func (p *process) pause(wall, monotonic time.Duration) {
	p.clock.wall, p.clock.since = p.clock.wall.Add(wall), p.clock.since+monotonic
}

func TestAProcessThatIsNotALeaderYetIsNotStopped(t *testing.T) {
	a := newProcess(t, fake.NewClientset(), "a")
	a.pause(time.Hour, time.Hour)
	a.expect("before the first election", true)
}

func TestALeaderThatDoesNotRenewStopsWriting(t *testing.T) {
	for name, tc := range map[string]struct {
		wall, monotonic time.Duration
		writes          bool
	}{
		"just before the deadline":          {renewDeadline - 1, renewDeadline - 1, true},
		"a signal stopped it":               {renewDeadline, renewDeadline, false},
		"its machine was suspended":         {time.Hour, time.Second, false},
		"its wall clock was set back":       {-time.Hour, renewDeadline, false},
		"its wall clock was set back a bit": {-time.Hour, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newProcess(t, fake.NewClientset(), "a")
			a.take()
			a.expect("with a new lease", true)
			a.pause(tc.wall, tc.monotonic)
			a.expect("after the pause", tc.writes)
			a.clock.since = 0
			a.take()
			a.expect("renewed, and nobody has led meanwhile", true)
		})
	}
}

// The time counts from when a renewal was sent. Its answer may have been late.
func TestALateAnswerRenewsNothing(t *testing.T) {
	a := newProcess(t, fake.NewClientset(), "a")
	a.take()
	a.Interface = lateLock{a.Interface, a}
	must.Succeed(t, a.Update(t.Context(), holder("a")))
	a.expect("the answer has come, and the renewal was sent long ago", false)
}

// lateLock answers late.
type lateLock struct {
	resourcelock.Interface
	process *process
}

func (l lateLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.process.pause(renewDeadline, 0)
	return l.Interface.Update(ctx, record)
}

// A paused process continues where it stopped. Another one may have led, and released the lease since.
func TestAProcessThatAnotherHasReplacedNeverWritesAgain(t *testing.T) {
	for name, meanwhile := range map[string]func(server kubernetes.Interface, b *process) error{
		"it leads": func(kubernetes.Interface, *process) error { return nil },
		"it has released the lease": func(_ kubernetes.Interface, b *process) error {
			defer b.expect("after it has released the lease", false)
			return b.Update(b.t.Context(), holder(""))
		},
		"the lease was deleted": func(server kubernetes.Interface, b *process) error {
			return server.CoordinationV1().Leases("system").Delete(b.t.Context(), leaseName, metav1.DeleteOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := fake.NewClientset()
			a, b := newProcess(t, server, "a"), newProcess(t, server, "b")
			a.take()
			b.take()
			b.expect("as the new leader", true)
			must.Succeed(t, meanwhile(server, b))
			// Both clocks of a have stood still: it knows nothing of the pause.
			if _, _, err := a.Get(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("reading the lease: %v, want %v", err, ErrClosed)
			}
			a.expect("replaced", false)
			if err := a.Create(t.Context(), holder("a")); !errors.Is(err, ErrClosed) {
				t.Errorf("creating the lease: %v, want %v", err, ErrClosed)
			}
			if err := a.Update(t.Context(), holder("a")); !errors.Is(err, ErrClosed) {
				t.Errorf("updating the lease: %v, want %v", err, ErrClosed)
			}
			a.expect("replaced, after it has tried again", false)
		})
	}
}

// etcd is restored from a backup in which a process holds the lease already, or the one before it. Neither the leader nor a
// process that has watched it continues with its old state.
func TestAfterARestoreOfEtcdNoProcessLeads(t *testing.T) {
	noon := metav1.NewTime(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))
	record := func(holder string, transitions int, after time.Duration) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{
			HolderIdentity: holder, LeaderTransitions: transitions, RenewTime: metav1.NewTime(noon.Add(after)), LeaseDurationSeconds: 15,
		}
	}
	for name, tc := range map[string]struct {
		restored resourcelock.LeaderElectionRecord
		lost     bool
	}{
		"its own earlier renewal":                {record("a", 1, -5*time.Second), true},
		"an earlier leader":                      {record("c", 0, -time.Hour), true},
		"its last renewal":                       {record("a", 1, 0), false},
		"its last renewal, rounded":              {record("a", 1, -time.Microsecond), false},
		"a renewal whose reply was lost":         {record("a", 1, 5*time.Second), false},
		"another leader, whose clock is behind":  {record("c", 2, -time.Hour), false},
		"released by the leader, clock set back": {record("", 1, -time.Hour), false},
	} {
		t.Run(name, func(t *testing.T) {
			server := fake.NewClientset()
			a, b := newProcess(t, server, "a"), newProcess(t, server, "b")
			must.Succeed(t, a.Create(t.Context(), record("a", 1, 0)))
			if _, _, err := b.Get(t.Context()); err != nil {
				t.Fatal(err)
			}
			spec := resourcelock.LeaderElectionRecordToLeaseSpec(&tc.restored)
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: leaseName}, Spec: spec}
			if _, err := server.CoordinationV1().Leases("system").Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, p := range []*process{a, b} {
				_, _, err := p.Get(t.Context())
				replaced := p == a && tc.restored.HolderIdentity != "a"
				if want := tc.lost || replaced; errors.Is(err, ErrClosed) != want {
					t.Errorf("reading the lease by %s: %v; want lost: %t", p.Identity(), err, want)
				} else if want && !errors.Is(p.fence.Start(t.Context()), ErrClosed) {
					t.Errorf("%s does not end", p.Identity())
				}
			}
		})
	}
}

// Only reviews and events are not writes, unlike other resources of similar names.
func TestWhatIsFenced(t *testing.T) {
	for path, want := range map[string]bool{
		"/api/v1/namespaces/shop/pods/web-1/resize":                                                    true,
		"/api/v1/namespaces/events/pods/web-1/resize":                                                  true,
		"/apis/apps/v1/namespaces/events/deployments/web":                                              true,
		"/apis/apps/v1/namespaces/shop/deployments/events":                                             true,
		"/apis/autoscaling.verticalscaler.io/v1beta1/namespaces/shop/verticalscalers/events/status":    true,
		"/apis/autoscaling.verticalscaler.io/v1beta1/namespaces/shop/verticalscalercheckpoints/events": true,
		"/apis/autoscaling.verticalscaler.io/v1beta1/namespaces/events/newpodsizes/verticalscaler":     true,
		"/api/v1/namespaces/events":                                                                    true,
		"/api/v1/namespaces/events/events/web.1":                                                       false,
		"/apis/events.k8s.io/v1/namespaces/shop/events":                                                false,
		"/apis/events.k8s.io/v1/namespaces/shop/events/web.1":                                          false,
		"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":                                       false,
		"/apis/authentication.k8s.io/v1/tokenreviews":                                                  false,
	} {
		if got := isWrite(httptest.NewRequest(http.MethodPatch, path, nil)); got != want {
			t.Errorf("PATCH %s is a write: %t, want %t", path, got, want)
		}
	}
}
