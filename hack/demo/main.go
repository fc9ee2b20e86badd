// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows the operator at work in a local cluster, and checks what it did.
//
// The operator runs as a process with the rights of its ServiceAccount and no others.
// The demo changes the simulated usage of a Deployment, waits for the operator to react,
// and prints what kubectl shows. Tables list the steps (scenarios.go).
//
//	make demo             keeps running until Ctrl-C
//	make demo DEMO=once   exits, with an error unless all checks pass
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

const (
	lookEvery   = 300 * time.Millisecond
	reportEvery = 10 * time.Second
	// usualPatience is how long a step may take.
	usualPatience = 3 * time.Minute
)

// demo is one run.
type demo struct {
	scenario
	began    time.Time
	dir      string // the folder of the operator's files
	env      *testkit.Env
	operator *process.Process
	observer *observer
	last     snapshot
	seen     []*progress
}

// The kernel stops a child process when the thread that started it ends (testkit/process).
// The main thread lives as long as the program.
func init() { runtime.LockOSThread() }

func main() {
	once := flag.Bool("once", false, "exit after the checks")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "Shows the operator at work in a local cluster. Use \"make demo\", which builds what is needed.\n\nFlags:\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	d := &demo{scenario: scalerScenario, began: time.Now()}
	ctrl.SetLogger(logr.Discard()) // the client returns its errors
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := d.run(ctx, !*once)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

// run starts a cluster, takes the steps, prints the results of the checks, and stops.
func (d *demo) run(ctx context.Context, stay bool) (err error) {
	defer func() { err = errors.Join(err, d.stop(err != nil && ctx.Err() == nil)) }()
	if err := d.start(ctx); err != nil {
		return err
	}
	err = d.takeSteps(ctx)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	requests, logErr := d.observer.requests(0)
	lines, passed := d.results(d.seen, requests)
	d.say("Checks:\n%s", strings.Join(lines, "\n"))
	if err = errors.Join(err, logErr); err == nil && !passed {
		err = errors.New("a check failed")
	}
	if err != nil || !stay {
		return err
	}
	fmt.Printf(`
The cluster keeps running until Ctrl-C. To use it in another terminal:

  export KUBECONFIG=%s PATH=%s:$PWD/bin/demo:$PATH
  kubectl vscaler top web
  kubectl vscaler explain web
  %s

The log of the operator is %s

`, d.env.Kubeconfig(), filepath.Dir(d.env.Kubectl()), step{usage: high}.commands()[0], d.operator.Log)
	_ = d.wait(ctx, 24*time.Hour, func() string { _ = d.takeLook(ctx, &progress{}); return "Ctrl-C" }) // which is no error
	return nil
}

// start starts a cluster, with simulated nodes and metrics-server, and the operator.
func (d *demo) start(ctx context.Context) (err error) {
	if d.dir, err = os.MkdirTemp("", "verticalscaler-demo-"); err != nil {
		return fmt.Errorf("creating a folder: %w", err)
	}
	d.say("Starting a cluster")
	if d.env, err = testkit.StartClusterWith(testkit.ClusterOptions{MetricsServer: true, AuditReads: true}); err != nil {
		return err
	}
	if err := d.env.Install(ctx); err != nil {
		return err
	}
	if err := d.env.InjectSidecars(ctx); err != nil {
		return err
	}
	if _, err := d.shell(ctx, fmt.Sprintf("hack/demo/setup.sh '%s'", d.without)); err != nil {
		return err
	}
	cmd := exec.Command("bin/demo/operator", "-config=hack/demo/operator.yaml", "-zap-encoder=console", "-zap-log-level=debug")
	// Nothing else of our environment, which could name another cluster or a proxy.
	cmd.Env = []string{"KUBECONFIG=" + filepath.Join(d.dir, "operator.kubeconfig")}
	if d.operator, err = process.Start("the operator", filepath.Join(d.dir, "operator.log"), cmd); err != nil {
		return err
	}
	d.say("The operator of config/default runs as %s, without the roles: %s", operatorUser, d.without)
	d.say("Time is compressed: see hack/demo/operator.yaml")
	d.say("To use the cluster: export KUBECONFIG=%s", d.env.Kubeconfig())
	d.observer, err = newObserver(d.env)
	return err
}

// takeSteps takes the steps one after the other.
func (d *demo) takeSteps(ctx context.Context) (err error) {
	if d.last, err = d.observer.look(ctx); err != nil {
		return err
	}
	for i, s := range d.steps {
		fmt.Println()
		d.say("Step %d of %d, %s: %s", i+1, len(d.steps), s.name, s.story)
		d.observer.step = d.env.Mark()
		p := &progress{step: s, start: d.last, end: d.last}
		d.seen = append(d.seen, p)
		if err := d.takeStep(ctx, p); err != nil {
			return fmt.Errorf("step %s: %w", s.name, err)
		}
	}
	return nil
}

func (d *demo) takeStep(ctx context.Context, p *progress) error {
	for _, command := range p.commands() {
		if err := d.show(ctx, strings.ReplaceAll(command, "$POD", p.victim().Name)); err != nil {
			return err
		}
	}
	err := d.wait(ctx, usualPatience, func() string {
		if err := d.takeLook(ctx, p); err != nil {
			return "an answer of the API server: " + err.Error()
		}
		if p.missing == nil {
			return ""
		}
		return p.missing(p)
	})
	p.done = err == nil
	d.say("After %.1fs:", p.took().Seconds())
	return errors.Join(err, d.show(ctx, "kubectl vscaler status"))
}

// takeLook takes a snapshot and prints the events that are new.
func (d *demo) takeLook(ctx context.Context, p *progress) error {
	s, err := d.observer.look(ctx)
	if err != nil {
		return err
	}
	known := map[any]bool{}
	for _, e := range d.last.events {
		known[e.UID] = true
	}
	for _, e := range s.events {
		if !known[e.UID] {
			d.say("%s %s: %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
		}
	}
	d.last = s
	p.add(s)
	return nil
}

// wait waits until nothing is missing, and prints from time to time what is.
func (d *demo) wait(ctx context.Context, within time.Duration, missing func() string) error {
	began, reported := time.Now(), time.Now()
	for {
		what := missing()
		if what == "" {
			return nil
		}
		if d.operator.HasEnded() {
			return d.operator.Failure()
		}
		if time.Since(began) > within {
			return fmt.Errorf("waited %s for %s", within, what)
		}
		if time.Since(reported) > reportEvery {
			d.say("Waiting for %s", what)
			reported = time.Now()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

// show runs a command and prints it with its output.
func (d *demo) show(ctx context.Context, command string) error {
	out, err := d.shell(ctx, command)
	fmt.Printf("$ %s\n%s", command, out)
	return err
}

// shell runs a command as a user types it, and returns its output.
func (d *demo) shell(ctx context.Context, command string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.env.Kubeconfig(), "OPERATOR_KUBECONFIG="+filepath.Join(d.dir, "operator.kubeconfig"),
		"KUBECACHEDIR="+filepath.Join(d.dir, "kubectl"), "PATH="+filepath.Dir(d.env.Kubectl())+":bin/demo:"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return out, err
}

// stop stops everything, the operator first, so that it releases its lease.
func (d *demo) stop(failed bool) (err error) {
	d.operator.Stop(30 * time.Second)
	if d.env != nil {
		err = d.env.Stop()
	}
	if failed && d.operator != nil {
		d.say("The log of the operator is %s", d.operator.Log)
		return err
	}
	return errors.Join(err, os.RemoveAll(d.dir))
}

// say prints a line with the time since the demo began.
func (d *demo) say(format string, args ...any) {
	fmt.Printf("[%6.1fs] %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}
