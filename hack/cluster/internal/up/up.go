// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package up runs a whole Kubernetes cluster out of child processes of this same file.
//
// A cluster starts from nothing every time, lives in one folder, listens on free ports and ends with the launcher,
// whichever way that one ends. Any number of them may run side by side.
package up

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/cluster/internal/fakenode"
	"github.com/verticalscaler/verticalscaler-operator/hack/cluster/internal/pki"
)

// Main runs a cluster until a signal comes, and returns an exit code: 0 if a signal or the parent ended it, 1 for a failure, 2 for
// wrong arguments.
func Main(args []string, out, errout io.Writer) int {
	options, err := Parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintf(errout, "localcluster up: %v\nSee localcluster up -h for what is allowed.\n", err)
		return 2
	}
	// A second signal finds the default behaviour again, and the children go down with us.
	asked, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(asked, restore)

	if err := run(asked, options, out); err != nil {
		fmt.Fprintf(errout, "localcluster up: %v\n", err)
		return 1
	}
	return 0
}

// run is the life of one cluster. It ends without an error only when asked is done.
func run(asked context.Context, o Options, out io.Writer) error {
	home := folder(o.Dir)
	if err := home.prepare(); err != nil {
		return err
	}
	asked, err := untilParentEnds(asked, o.ParentPID)
	if err != nil {
		return err
	}
	c, err := newCluster(asked, o, home, out)
	if err != nil {
		return err
	}
	defer c.stop()
	// Before the components stop, so that a program that waits for the file does not find a cluster that ends.
	defer os.Remove(home.ready())

	err = c.start()
	if err == nil {
		err = os.WriteFile(home.ready(), nil, 0o644)
	}
	if err == nil {
		c.say("cluster is up")
		fmt.Fprintf(out, "KUBECONFIG=%s\n", home.kubeconfig("admin"))
		<-c.ctx.Done()
	}
	if asked.Err() != nil {
		return nil
	}
	if dead := context.Cause(c.ctx); dead != nil {
		return dead // other failures follow from it
	}
	return err
}

// cluster is a set of running components.
type cluster struct {
	o       Options
	folder  folder
	out     io.Writer
	began   time.Time
	nursery *nursery
	prober  *prober
	ca      *pki.Authority
	proxyCA *pki.Authority
	// ctx is done when the cluster must end: a signal came, or a component ended, which is the cause then.
	ctx  context.Context
	fail context.CancelCauseFunc

	// mu guards what components that start at the same time share.
	mu sync.Mutex
	// tiers are the processes by what they depend on: a tier stops before the one it needs.
	tiers [lastTier + 1][]*process
}

func newCluster(asked context.Context, o Options, home folder, out io.Writer) (*cluster, error) {
	c := &cluster{o: o, folder: home, out: out, began: time.Now()}
	c.ctx, c.fail = context.WithCancelCause(asked)

	var err error
	if c.nursery, err = newNursery(); err != nil {
		return nil, err
	}
	// Users and the proxy need different authorities, because the proxy may act as any user.
	if c.proxyCA, err = pki.NewAuthority(home.path("pki"), "front-proxy-ca", c.began); err != nil {
		return nil, err
	}
	if err := c.proxyCA.Issue(pki.Identity{Name: frontProxy, User: frontProxy}, c.began); err != nil {
		return nil, err
	}
	if c.ca, err = pki.NewAuthority(home.path("pki"), "ca", c.began); err != nil {
		return nil, err
	}
	for _, identity := range identities(o) {
		if err := c.ca.Issue(identity, c.began); err != nil {
			return nil, err
		}
	}
	if c.prober, err = newProber(c.ca); err != nil {
		return nil, err
	}
	config, err := fakenode.Config()
	if err != nil {
		return nil, err
	}
	return c, os.WriteFile(home.path(kwokConfigFile), []byte(config), 0o644)
}

// start brings everything up that the options ask for.
func (c *cluster) start() error {
	ctx, cancel := context.WithTimeout(c.ctx, c.o.Timeout)
	defer cancel()

	ports, err := c.run(ctx, etcd(c.folder, c.ca))
	if err != nil {
		return err
	}
	ports, err = c.run(ctx, apiServer(c.o, c.folder, c.ca, c.proxyCA, ports[0]))
	if err != nil {
		return err
	}
	server := fmt.Sprintf("https://%s:%d", c.o.Bind, ports[0])
	for _, user := range users(c.o) {
		if err := c.ca.Kubeconfig(c.folder.kubeconfig(user), server, user); err != nil {
			return err
		}
	}
	api, err := newAPI(c.folder.kubeconfig("admin"))
	if err != nil {
		return err
	}

	// The rest depends on the API server only, and starts at the same time.
	var steps []func() error
	if c.o.Controllers {
		steps = append(steps, func() error {
			if _, err := c.run(ctx, controllerManager(c.folder, c.ca)); err != nil {
				return err
			}
			return api.awaitServiceAccount(ctx)
		})
	}
	if c.o.Scheduler {
		steps = append(steps, func() error {
			_, err := c.run(ctx, scheduler(c.folder, c.ca))
			return err
		})
	}
	if c.o.FakeNodes > 0 {
		steps = append(steps, func() error { return c.startFakeNodes(ctx, api) })
	}
	if c.o.MetricsServer {
		steps = append(steps, func() error { return c.startMetricsServer(ctx, api) })
	}
	return together(steps)
}

// startFakeNodes creates the nodes, starts kwok to simulate them, and waits until pods can be scheduled to them.
func (c *cluster) startFakeNodes(ctx context.Context, api *api) error {
	if err := api.createNodes(ctx, fakenode.Nodes(c.o.FakeNodes)); err != nil {
		return err
	}
	if _, err := c.run(ctx, kwok(c.folder, c.ca)); err != nil {
		return err
	}
	if err := api.awaitNodes(ctx, c.o.FakeNodes, c.o.Controllers); err != nil {
		return err
	}
	c.say("%d fake nodes ready", c.o.FakeNodes)
	return nil
}

// startMetricsServer starts it and makes the API server forward to it. It does not wait for the first numbers, which
// take two rounds of metrics.
func (c *cluster) startMetricsServer(ctx context.Context, api *api) error {
	ports, err := c.run(ctx, metricsServer(c.folder, c.ca))
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(c.ca.CA())
	if err != nil {
		return err
	}
	return api.forwardMetrics(ctx, ports[0], authority)
}

// run starts a component, waits until it works, and returns its ports. From then on the cluster fails when the
// component ends.
func (c *cluster) run(ctx context.Context, m component) ([]int, error) {
	const attempts = 5
	for attempt := 1; ; attempt++ {
		ports, err := freePorts(m)
		if err != nil {
			return nil, err
		}
		if err := os.RemoveAll(c.folder.log(m.name)); err != nil {
			return nil, err
		}
		p, err := c.nursery.start(m.name, c.folder.log(m.name), c.folder.path("home"), m.args(ports))
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.tiers[m.tier] = append(c.tiers[m.tier], p)
		c.mu.Unlock()

		err = c.prober.await(ctx, p, ports[0], m)
		if err == nil {
			go func() {
				<-p.ended
				c.fail(p.failure())
			}()
			c.say("%s works on port %d", m.name, ports[0])
			return ports, nil
		}
		// Another process may have taken the port between our choice and its use.
		if m.fixed != 0 || attempt == attempts || !p.lostItsPort() {
			return nil, err
		}
	}
}

// stop ends all components, the last ones first.
func (c *cluster) stop() {
	began := time.Now()
	c.mu.Lock() // nothing starts anymore: start has returned
	defer c.mu.Unlock()
	for tier := lastTier; tier >= 0; tier-- {
		var all sync.WaitGroup
		for _, p := range c.tiers[tier] {
			all.Go(func() { p.stop(5 * time.Second) })
		}
		all.Wait()
	}
	c.say("stopped in %.1fs", time.Since(began).Seconds())
}

// say prints a line with the time since the beginning.
func (c *cluster) say(format string, args ...any) {
	fmt.Fprintf(c.out, "[%6.2fs] %s\n", time.Since(c.began).Seconds(), fmt.Sprintf(format, args...))
}

// together runs all steps at the same time and waits for all of them.
func together(steps []func() error) error {
	failures := make([]error, len(steps))
	var all sync.WaitGroup
	for i, step := range steps {
		all.Go(func() { failures[i] = step() })
	}
	all.Wait()
	return errors.Join(failures...)
}

// untilParentEnds returns a context that is done when our parent, the process pid, ends, or when ctx is done. 0 means that we
// follow no process.
func untilParentEnds(ctx context.Context, pid int) (context.Context, error) {
	if pid == 0 {
		return ctx, nil
	}
	if os.Getppid() != pid {
		return nil, fmt.Errorf("-parent-pid: process %d has not started us", pid)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		// Polling works on every system.
		ticker := time.NewTicker(300 * time.Millisecond)
		defer ticker.Stop()
		for os.Getppid() == pid {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	}()
	return ctx, nil
}
