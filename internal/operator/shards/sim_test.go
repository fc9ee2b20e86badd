// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/fence"
)

// server is an API server with leases. It refuses writes of old versions.
type server struct {
	mu      sync.Mutex
	leases  map[string]coordinationv1.Lease
	version int
	writes  int
}

// received is the number of writes so far.
func (s *server) received() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *server) has(lease string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.leases[lease]
	return ok
}

// link is one replica's connection to the server.
type link struct {
	coordinationclient.LeaseInterface

	server *server
	mu     sync.Mutex
	isDown bool
	delay  time.Duration
}

var errDown = errors.New("no connection")

func (l *link) set(isDown bool, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isDown, l.delay = isDown, delay
}

// pass lets a request or an answer pass.
func (l *link) pass(ctx context.Context) error {
	l.mu.Lock()
	isDown, delay := l.isDown, l.delay
	l.mu.Unlock()
	if isDown {
		return errDown
	}
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (l *link) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	l.server.mu.Lock()
	lease, ok := l.server.leases[name]
	l.server.mu.Unlock()
	if !ok {
		return nil, apierrors.NewNotFound(leaseResource, name)
	}
	return lease.DeepCopy(), l.pass(ctx)
}

func (l *link) List(ctx context.Context, _ metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	l.server.mu.Lock()
	list := &coordinationv1.LeaseList{}
	for _, lease := range l.server.leases {
		list.Items = append(list.Items, *lease.DeepCopy())
	}
	l.server.mu.Unlock()
	return list, l.pass(ctx)
}

func (l *link) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return l.write(ctx, lease, true)
}

func (l *link) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	return l.write(ctx, lease, false)
}

func (l *link) write(ctx context.Context, lease *coordinationv1.Lease, isNew bool) (*coordinationv1.Lease, error) {
	if err := l.pass(ctx); err != nil {
		return nil, err
	}
	l.server.mu.Lock()
	stored, exists := l.server.leases[lease.Name]
	switch {
	case isNew && exists:
		l.server.mu.Unlock()
		return nil, apierrors.NewAlreadyExists(leaseResource, lease.Name)
	case !isNew && !exists:
		l.server.mu.Unlock()
		return nil, apierrors.NewNotFound(leaseResource, lease.Name)
	case exists && stored.ResourceVersion != lease.ResourceVersion:
		l.server.mu.Unlock()
		return nil, apierrors.NewConflict(leaseResource, lease.Name, errors.New("it has changed"))
	}
	l.server.version++
	l.server.writes++
	out := lease.DeepCopy()
	out.ResourceVersion = fmt.Sprint(l.server.version)
	l.server.leases[lease.Name] = *out.DeepCopy()
	l.server.mu.Unlock()
	return out, l.pass(ctx)
}

// cluster is some replicas and the namespaces that they write to. It fails the test if two replicas work on
// a namespace at once.
type cluster struct {
	*testing.T

	server     *server
	namespaces []string

	mu     sync.Mutex
	writer map[string]string          // namespace → replica and its view that wrote last
	left   map[string]map[string]bool // namespace → those that wrote before
	last   map[string]time.Time       // namespace → its last write
}

func newCluster(t *testing.T, namespaces int) *cluster {
	t.Helper()
	c := &cluster{
		T: t, server: &server{leases: map[string]coordinationv1.Lease{}},
		writer: map[string]string{}, left: map[string]map[string]bool{}, last: map[string]time.Time{},
	}
	for i := range namespaces {
		name := fmt.Sprintf("team-%03d-prod", i)
		c.namespaces = append(c.namespaces, name)
		c.left[name] = map[string]bool{}
	}
	return c
}

// write is a write of a replica in a view that has arrived.
func (c *cluster) write(namespace, by string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left[namespace][by] {
		c.Errorf("%s: %s writes to %s after %s has written", time.Now().Format("15:04:05.000"), by, namespace, c.writer[namespace])
	}
	if before := c.writer[namespace]; before != by {
		c.left[namespace][before] = true
		c.writer[namespace] = by
	}
	c.last[namespace] = time.Now()
}

// unserved are the namespaces without a write for longer than a duration.
func (c *cluster) unserved(since time.Duration) (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, namespace := range c.namespaces {
		if time.Since(c.last[namespace]) > since {
			out = append(out, namespace)
		}
	}
	return out
}

// servers are the replicas that have written in the last second, with their number of namespaces.
func (c *cluster) servers() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	for _, namespace := range c.namespaces {
		if time.Since(c.last[namespace]) <= time.Second {
			name, _, _ := strings.Cut(c.writer[namespace], " ")
			out[name]++
		}
	}
	return out
}

// expect waits for as long as it may take until every namespace is served, and returns how long it took.
func (c *cluster) expect(what string, atMost time.Duration, replicas ...string) time.Duration {
	c.Helper()
	began := time.Now()
	for {
		got := c.servers()
		isServed := len(c.unserved(time.Second)) == 0 && len(got) == len(replicas)
		for _, name := range replicas {
			isServed = isServed && got[name] > 0
		}
		if isServed {
			c.Logf("%s: served after %s by %v", what, time.Since(began).Round(time.Millisecond), got)
			return time.Since(began)
		}
		if time.Since(began) > atMost {
			c.Fatalf("%s: after %s, %d namespaces are not served, and those who serve are %v, want %v", what, atMost, len(c.unserved(time.Second)), got, replicas)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// process is a replica's process.
type process struct {
	name   string
	link   *link
	cancel context.CancelFunc
	ended  chan error

	mu sync.Mutex
	// drain is how long it takes to stop the work on a view.
	drain  time.Duration
	isDead bool
	member *Member
}

// start starts a replica. Its identity is its name.
func (c *cluster) start(name string, replicas int) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{name: name, link: &link{server: c.server, delay: 3 * time.Millisecond}, cancel: cancel, ended: make(chan error, 1), drain: 200 * time.Millisecond}
	p.member = New(Options{Leases: p.link, Replicas: replicas, Identity: name, Clock: clock.RealClock{}})
	c.Cleanup(func() { _ = p.stop() })
	go func() { p.ended <- p.run(ctx, c) }()
	return p
}

// run runs the replica as app does.
func (p *process) run(ctx context.Context, c *cluster) error {
	working, stopWork := context.WithCancel(ctx)
	sharing, stopSharing := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		defer stopWork()
		ended <- p.member.Run(sharing)
	}()
	for working.Err() == nil {
		p.work(working, c)
	}
	stopSharing()
	return <-ended
}

// work works on one view: it writes to its namespaces ten times a second. The last writes come while it stops.
func (p *process) work(ctx context.Context, c *cluster) {
	view := p.member.Adopt()
	outdated := p.member.Outdated()
	by := fmt.Sprintf("%s %v since %s", p.name, view.Slots, time.Now().Format("15:04:05.000"))
	api := p.member.Guard(view)(roundTripper(func(r *http.Request) (*http.Response, error) {
		c.write(strings.TrimPrefix(r.URL.Path, "/"), by)
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	var stopBy time.Time
	for stopBy.IsZero() || time.Now().Before(stopBy) {
		for _, namespace := range c.namespaces {
			if view.Owns(namespace) && !p.hasDied() {
				request, err := http.NewRequestWithContext(context.Background(), http.MethodPatch, "http://api/"+namespace, http.NoBody)
				if err != nil {
					c.Error(err)
				}
				if response, err := api.RoundTrip(request); err == nil {
					_ = response.Body.Close()
				}
			}
		}
		select {
		case <-time.After(100 * time.Millisecond):
			continue
		case <-ctx.Done():
		case <-outdated:
		}
		if stopBy.IsZero() {
			stopBy = time.Now().Add(p.drainTime())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (p *process) hasDied() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isDead
}

func (p *process) setDrain(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drain = d
}

func (p *process) drainTime() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drain
}

// slot is the slot of the view that the process works on.
func (p *process) slot() int {
	p.member.mu.Lock()
	defer p.member.mu.Unlock()
	return p.member.adopted.Slot
}

// kill ends the process as kill -9 does: nothing of it is sent any more.
func (p *process) kill() {
	p.mu.Lock()
	p.isDead = true
	p.mu.Unlock()
	p.link.set(true, 0)
}

// stop ends the process as SIGTERM does.
func (p *process) stop() error {
	p.cancel()
	err := <-p.ended
	p.ended <- err
	return err
}

// Hours pass in no time here: synctest has a clock of its own.
func TestReplicasShareAndHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 60)
		a, b, d := c.start("a", 3), c.start("b", 3), c.start("d", 3)
		c.expect("the start", 10*time.Second, "a", "b", "d")
		for name, n := range c.servers() {
			if n > 60/2 {
				t.Errorf("%s serves %d of 60 namespaces, want half at most", name, n)
			}
		}

		standby := c.start("standby", 3)
		c.expect("a fourth waits", 10*time.Second, "a", "b", "d")
		a.kill()
		if took := c.expect("a is killed, and the one that waited takes its slot", 20*time.Second, "b", "d", "standby"); took < renewDeadline-retryPeriod {
			t.Errorf("the slot was taken after %s, while it may still have been used", took)
		}
		b.kill()
		c.expect("b is killed", 20*time.Second, "d", "standby")
		c.start("b", 3)
		c.expect("b starts again", 10*time.Second, "b", "d", "standby")
		if err := d.stop(); err != nil {
			t.Errorf("d ends with %v", err)
		}
		c.expect("d is stopped", 5*time.Second, "b", "standby")
		if err := standby.stop(); err != nil {
			t.Errorf("standby ends with %v", err)
		}
		c.expect("all but one are stopped", 5*time.Second, "b")
	})
}

// A container that starts again in its pod has the same identity.
func TestAReplicaThatStartsAgainKeepsItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30)
		a := c.start("a", 2)
		c.start("b", 2)
		c.expect("the start", 10*time.Second, "a", "b")
		a.kill()
		time.Sleep(500 * time.Millisecond)
		c.start("a", 2)
		c.expect("a starts again", 5*time.Second, "a", "b")
	})
}

func TestIdleReplicasOnlyRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30)
		c.start("a", 3)
		c.start("b", 3)
		c.start("d", 3)
		c.expect("the start", 10*time.Second, "a", "b", "d")
		time.Sleep(10 * time.Second)
		before := c.server.received()
		time.Sleep(10 * time.Minute)
		if perMinute := (c.server.received() - before) / 10; perMinute > 3*20 {
			t.Errorf("%d writes a minute, want 60 at most", perMinute)
		}
	})
}

func TestAReplicaWithoutConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30)
		a := c.start("a", 2)
		c.start("b", 2)
		c.expect("the start", 10*time.Second, "a", "b")
		a.link.set(true, 0)
		c.expect("a has no connection", 20*time.Second, "b")
		if err := a.stop(); err == nil {
			t.Error("a ends without an error")
		}
	})
}

// Its reconciles wait for requests, while others serve its namespaces already. The fence stops what they send then.
func TestAReplicaThatStopsSlowlyWritesNothingLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30)
		a := c.start("a", 2)
		c.start("b", 2)
		c.expect("the start", 10*time.Second, "a", "b")
		a.setDrain(20 * time.Second) // that of the manager
		a.link.set(true, 0)          // only that for leases
		c.expect("a does not renew its lease", 20*time.Second, "b")
		time.Sleep(30 * time.Second)
	})
}

// Something of a manager may outlive it, if it does not end in time. It sends nothing once the replica works on another view.
func TestAWriteOfAnEarlierViewIsNotSent(t *testing.T) {
	earlier, now := View{Slot: 0, Slots: []int{0}}, View{Slot: 0, Slots: []int{0, 1}}
	m := New(Options{Replicas: 2, Identity: "a", Clock: clock.RealClock{}})
	sent := 0
	api := m.Guard(earlier)(roundTripper(func(*http.Request) (*http.Response, error) {
		sent++
		return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
	}))
	for _, tc := range []struct {
		adopted View
		method  string
		isSent  bool
	}{
		{earlier, http.MethodPatch, true},
		{now, http.MethodPatch, false},
		{now, http.MethodGet, true},
		{View{}, http.MethodPatch, false},
	} {
		m.adopted, sent = tc.adopted, 0
		request, err := http.NewRequestWithContext(t.Context(), tc.method, "http://api/shop", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := api.RoundTrip(request)
		if err == nil {
			_ = response.Body.Close()
		}
		if (sent == 1) != tc.isSent || errors.Is(err, fence.ErrClosed) == tc.isSent {
			t.Errorf("%s of view %v while the replica works on %v: sent %d times, %v", tc.method, earlier, tc.adopted, sent, err)
		}
	}
}

// Numbers of replicas differ while they are changed.
func TestReplicasThatDisagreeAboutTheirNumberShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 60)
		c.start("a", 2)
		c.start("b", 2)
		c.expect("two", 10*time.Second, "a", "b")
		d := c.start("d", 3)
		c.expect("a third one of three", 10*time.Second, "a", "b", "d")
		if err := d.stop(); err != nil {
			t.Error(err)
		}
		c.expect("two again", 5*time.Second, "a", "b")
	})
}

// A replica whose leaderElection.replicas is 1, or of an older version, does all the work alone.
func TestAReplicaThatWorksAloneWaitsForTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30)
		a, b := c.start("a", 2), c.start("b", 2)
		c.expect("two share the work", 10*time.Second, "a", "b")

		// A process with the number 1 gets the first slot once its holder ends.
		var alone *soloist
		first, second := a, b
		if b.slot() == 0 {
			first, second = b, a
		}
		if err := first.stop(); err != nil {
			t.Error(err)
		}
		alone = c.startAlone("alone")
		c.expect("it works alone", 30*time.Second, "alone")
		if err := second.stop(); !errors.Is(err, ErrSoloist) {
			t.Errorf("the other replica ends with %v, want %v", err, ErrSoloist)
		}
		c.start("d", 2)
		time.Sleep(time.Minute)
		c.expect("one that would share waits", time.Second, "alone")
		alone.stop()
		c.expect("the one alone is stopped", 20*time.Second, "d")
	})
}

// The lease of a replica that works alone is longer than that of a slot. It writes until its own deadline.
func TestAReplicaThatWorksAloneLosesItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 30)
		alone := c.startAlone("alone")
		c.expect("it works alone", 10*time.Second, "alone")
		c.start("a", 2)
		c.start("b", 2)
		time.Sleep(time.Minute)
		c.expect("the others wait", time.Second, "alone")
		alone.link.set(true, 0)
		c.expect("it has no connection", 45*time.Second, "a", "b")
	})
}

// soloist is the process of a replica that works alone, as app runs it.
type soloist struct {
	link   *link
	cancel context.CancelFunc
	ended  chan struct{}
}

func (s *soloist) stop() {
	s.cancel()
	<-s.ended
}

func (c *cluster) startAlone(name string) *soloist {
	ctx, cancel := context.WithCancel(context.Background())
	api := &link{server: c.server, delay: 3 * time.Millisecond}
	s := &soloist{api, cancel, make(chan struct{})}
	c.Cleanup(s.stop)
	leading := fence.New(clock.RealClock{}, 20*time.Second)
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Name: v1beta1.LeaseName}, Client: getter{api}, LockConfig: resourcelock.ResourceLockConfig{Identity: name},
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          leading.Lock(lock, NewOthers(api, clock.RealClock{}).Check),
		LeaseDuration: 30 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 5 * time.Second, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				for ctx.Err() == nil {
					for _, namespace := range c.namespaces {
						if leading.Check() == nil {
							c.write(namespace, name+" all")
						}
					}
					time.Sleep(100 * time.Millisecond)
				}
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		c.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		elector.Run(ctx)
	}()
	return s
}

// Whatever fails, and in whichever order: no two replicas work on a namespace, and in the end all namespaces
// are served.
func TestNoTwoReplicasWorkOnANamespace(t *testing.T) {
	seeds := 12
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { disturb(t, rand.New(rand.NewPCG(uint64(seed), 1))) })
		})
	}
}

// disturb starts, kills, stops, cuts off and delays replicas at random.
func disturb(t *testing.T, chance *rand.Rand) {
	t.Helper()
	c := newCluster(t, 10)
	const replicas = 4
	var running []*process
	started := 0
	start := func(name string) {
		p := c.start(name, replicas)
		p.setDrain(time.Duration(chance.IntN(3000)) * time.Millisecond)
		p.link.set(false, time.Duration(chance.IntN(100))*time.Millisecond)
		running = append(running, p)
	}
	next := func() string {
		started++
		return fmt.Sprintf("r%d", started)
	}
	for range 3 {
		start(next())
	}
	for range 40 {
		time.Sleep(time.Duration(chance.IntN(12000)) * time.Millisecond)
		if len(running) == 0 {
			start(next())
		}
		i := chance.IntN(len(running))
		p := running[i]
		switch chance.IntN(7) {
		case 0:
			start(next())
		case 1:
			p.kill()
			running = slices.Delete(running, i, i+1)
		case 2:
			p.kill()
			running = slices.Delete(running, i, i+1)
			start(p.name)
		case 3:
			_ = p.stop()
			running = slices.Delete(running, i, i+1)
		case 4:
			p.link.set(true, 0)
		case 5:
			p.link.set(false, time.Duration(chance.IntN(2500))*time.Millisecond)
		case 6:
			p.link.set(false, 0)
		}
	}
	for _, p := range running {
		p.link.set(false, 0)
	}
	for range 3 { // Some have ended by themselves.
		start(next())
	}
	time.Sleep(30 * time.Second)
	if late := c.unserved(time.Second); len(late) > 0 {
		t.Errorf("%d namespaces are not served in the end: %v", len(late), c.servers())
	}
	for slot := range v1beta1.MaxReplicas {
		if slot >= replicas && c.server.has(v1beta1.ReplicaLeaseName(slot)) {
			t.Errorf("slot %d was taken, of %d", slot, replicas)
		}
	}
}
