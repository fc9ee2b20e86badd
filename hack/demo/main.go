// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows the operator at work in a local cluster, and checks what it did.
//
// The operator runs as a process with the rights of its ServiceAccount and no others.
// The demo changes the simulated usage of a Deployment, waits for the operator to react,
// and prints what kubectl shows. A table lists the steps (steps.go).
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
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	lookEvery   = 300 * time.Millisecond
	reportEvery = 10 * time.Second
	// usualPatience is how long a step may take.
	usualPatience = 3 * time.Minute

	// operatorUser is the operator's name in the audit log.
	operatorUser = "system:serviceaccount:verticalscaler-system:verticalscaler-operator"
	// unneeded are the roles of config/default that the operator does without: it has no right to change Deployments.
	unneeded = "manager-rollout manager-scaled-deployment"
)

// demo is one run.
type demo struct {
	began    time.Time
	dir      string // the folder of the operator's files
	env      *testkit.Env
	operator *process.Process
	told     map[types.UID]bool // the events that were printed
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
	d := &demo{began: time.Now(), told: map[types.UID]bool{}}
	ctrl.SetLogger(logr.Discard()) // the client returns its errors
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := d.run(ctx, !*once)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

// run starts a cluster, takes the steps, checks what the operator did, and stops.
func (d *demo) run(ctx context.Context, stay bool) (err error) {
	defer func() { err = errors.Join(err, d.stop(err != nil && ctx.Err() == nil)) }()
	if err := d.start(ctx); err != nil {
		return err
	}
	if err := d.takeSteps(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	}
	if !stay {
		return nil
	}
	fmt.Printf(`
The cluster keeps running until Ctrl-C. To use it in another terminal:

  export KUBECONFIG=%s PATH=%s:$PWD/bin/demo:$PATH
  kubectl vscaler top web
  kubectl vscaler explain web
  %s

The log of the operator is %s

`, d.env.Kubeconfig(), filepath.Dir(d.env.Kubectl()), step{usage: high}.commands()[0], d.operator.Log)
	_ = d.wait(ctx, 24*time.Hour, func() string { _, _ = d.look(ctx, 0); return "Ctrl-C" }) // which is no error
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
	if _, err := d.shell(ctx, fmt.Sprintf("hack/demo/setup.sh '%s'", unneeded)); err != nil {
		return err
	}
	cmd := exec.Command("bin/demo/operator", "-config=hack/demo/operator.yaml", "-zap-encoder=console", "-zap-log-level=debug")
	// Nothing else of our environment, which could name another cluster or a proxy.
	cmd.Env = []string{"KUBECONFIG=" + filepath.Join(d.dir, "operator.kubeconfig")}
	if d.operator, err = process.Start("the operator", filepath.Join(d.dir, "operator.log"), cmd); err != nil {
		return err
	}
	d.say("The operator of config/default runs as %s, without the roles: %s", operatorUser, unneeded)
	d.say("Time is compressed: see hack/demo/operator.yaml")
	d.say("To use the cluster: export KUBECONFIG=%s", d.env.Kubeconfig())
	return nil
}

// takeSteps takes the steps one after the other, and then checks what the operator did.
func (d *demo) takeSteps(ctx context.Context) (err error) {
	var steady, now state
	for i, s := range steps {
		fmt.Println()
		d.say("Step %d of %d, %s: %s", i+1, len(steps), s.name, s.story)
		mark, before := d.env.Mark(), now
		before.at = time.Now()
		for _, command := range s.commands() {
			if err := d.show(ctx, strings.ReplaceAll(command, "$POD", before.podName())); err != nil {
				return err
			}
		}
		err := d.wait(ctx, usualPatience, func() string {
			if now, err = d.look(ctx, mark); err != nil {
				return "an answer of the API server: " + err.Error()
			}
			if s.missing == nil {
				return ""
			}
			return s.missing(before, now)
		})
		d.say("After %.1fs:", time.Since(before.at).Seconds())
		if err := errors.Join(err, d.show(ctx, "kubectl vscaler status")); err != nil {
			return fmt.Errorf("step %s: %w", s.name, err)
		}
		if s.name == "steady" {
			steady = now
		}
	}
	requests, err := d.requests(0)
	if err == nil {
		err = check(steady, now, requests)
	}
	if err == nil {
		d.say("All checks passed: pods are resized in place, and the operator sends only the requests that it needs.")
	}
	return err
}

// look reads the state of the namespace, and prints the events that are new. The mark is when the step began.
func (d *demo) look(ctx context.Context, mark testkit.AuditMark) (s state, err error) {
	var (
		scaler v1beta1.VerticalScaler
		pods   corev1.PodList
		events eventsv1.EventList
	)
	web := client.ObjectKey{Namespace: "demo", Name: "web"}
	if err := errors.Join(
		client.IgnoreNotFound(d.env.Client.Get(ctx, web, &scaler)), client.IgnoreNotFound(d.env.Client.Get(ctx, web, &s.target)),
		d.env.Client.List(ctx, &pods, client.InNamespace("demo"), client.MatchingLabels{"app": "web"}),
		d.env.Client.List(ctx, &events, client.InNamespace("demo")),
	); err != nil {
		return s, err
	}
	for _, e := range events.Items {
		if e.Regarding.APIVersion == v1beta1.GroupVersion.String() && !d.told[e.UID] {
			d.told[e.UID] = true
			d.say("%s %s: %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note)
		}
	}
	s.at, s.isApplied = time.Now(), isApplied(&scaler)
	for i := range pods.Items {
		s.pods = append(s.pods, workload.ReadPod(&pods.Items[i], true))
		for _, c := range pods.Items[i].Status.ContainerStatuses {
			s.restarts += c.RestartCount
		}
	}
	// Last, so that the audit log has every write whose effect is in the state.
	requests, err := d.requests(mark)
	for _, r := range requests {
		if isWrite(r) {
			s.lastWrite = r.Answered
		}
	}
	return s, err
}

// requests are the operator's requests since a mark of the audit log.
func (d *demo) requests(since testkit.AuditMark) ([]testkit.Write, error) {
	all, err := d.env.WritesSince(since, "")
	return slices.DeleteFunc(all, func(w testkit.Write) bool { return w.User != operatorUser }), err
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
