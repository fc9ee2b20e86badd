// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

//go:embed workload.yaml
var workloadYAML []byte

//go:embed scaler.yaml
var scalerYAML []byte

// lookEvery is how often the cluster is looked at, and the view drawn.
const lookEvery = 300 * time.Millisecond

// demo is a run of the demo.
type demo struct {
	options
	root   string
	dir    string
	screen *screen

	cluster  *stage.Cluster
	operator *process.Process
	config   *rest.Config
	admin    client.Client

	observer *observer
	record   *record
}

// run is the whole demo: start, play, sum up, stay, and clean up whatever happens.
func run(ctx context.Context, o options) (err error) {
	began := time.Now()
	d := &demo{options: o, screen: newScreen(os.Stdout, o.plain, began), record: newRecord(o.piece())}
	if d.root, err = stage.Root(); err != nil {
		return err
	}
	if err := d.makeDir(); err != nil {
		return err
	}
	defer func() {
		d.screen.close()
		d.cleanUp(err != nil && !isAsked(ctx))
	}()

	if err := d.start(ctx, began); err != nil {
		return d.explain(ctx, err)
	}
	if err := d.play(ctx); err != nil {
		if !isAsked(ctx) {
			d.sumUp()
		}
		return d.explain(ctx, err)
	}
	var unexplained error
	if !d.owned {
		unexplained = d.explainScaler(ctx)
	}
	failed := d.sumUp()
	if unexplained != nil {
		return unexplained
	}
	if failed > 0 && o.ends() {
		return fmt.Errorf("%d of the checks above failed", failed)
	}
	if o.ends() {
		return nil
	}
	return d.explain(ctx, d.stay(ctx))
}

// start brings up the cluster with the operator in it, and tells what is special
// about them.
func (d *demo) start(ctx context.Context, began time.Time) (err error) {
	d.screen.say("Starting a cluster in %s, and building the operator", d.dir)
	if d.cluster, err = stage.StartCluster(d.clusterDir, filepath.Join(d.dir, "cluster")); err != nil {
		return err
	}
	binary := filepath.Join(d.root, "bin", "demo", "verticalscaler-operator")
	build, err := stage.Build(d.root, ".", binary, filepath.Join(d.dir, "build.log"))
	if err != nil {
		return err
	}
	defer build.Stop(time.Second)
	if err := d.cluster.Await(ctx); err != nil {
		return err
	}
	d.screen.say("The cluster is up, with metrics-server and two fake nodes:")
	d.screen.footer = "KUBECONFIG=" + d.cluster.Kubeconfig()
	d.screen.say("  %s", d.screen.footer)
	if d.config, d.admin, err = d.cluster.Admin("verticalscaler-demo"); err != nil {
		return err
	}
	if err := install(ctx, d.cluster, d.admin, d.root, d.record.piece.without); err != nil {
		return err
	}
	d.screen.say("config/default is installed, but for the operator's pod and %s", d.record.piece.rights)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-build.Ended:
	}
	if build.Err() != nil {
		return build.Failure()
	}
	operator := stage.Operator{Binary: binary, Dir: d.dir, Configuration: operatorConfig}
	if d.operator, err = operator.Start(ctx, d.config, d.admin); err != nil {
		return err
	}
	d.screen.say("The operator runs, with the rights of ServiceAccount %s/%s and no others", stage.SystemNamespace, stage.ServiceAccount)
	here, err := config.Parse(operatorConfig)
	if err != nil {
		return err
	}
	for _, line := range sayCompression(config.Default(), here) {
		d.screen.say("  %s", line)
	}
	d.observer, err = newObserver(began, d.config, d.admin, d.cluster.Audit())
	return err
}

// play plays the phases, in a namespace of its own.
func (d *demo) play(ctx context.Context) error {
	if err := d.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
		return fmt.Errorf("creating the sample's namespace: %w", err)
	}
	lead := d.appear
	if d.owned {
		lead = func(ctx context.Context) error { return d.observer.follow(ctx, d.config) }
	}
	if err := lead(ctx); err != nil {
		return err
	}
	for _, ph := range d.record.piece.phases {
		if err := d.playPhase(ctx, ph); err != nil {
			return fmt.Errorf("phase %s: %w", ph.name, err)
		}
	}
	return nil
}

// appear lets the Deployment appear after its scaler.
func (d *demo) appear(ctx context.Context) error {
	d.screen.say("Creating the scaler, which waits for a Deployment that does not exist yet")
	if err := d.apply(ctx, scalerYAML); err != nil {
		return err
	}
	if err := d.until(ctx, 30*time.Second, func(s state) string {
		if s.condition("TargetFound").Reason == "DeploymentNotFound" {
			return ""
		}
		return "the scaler to say that it waits for its Deployment"
	}); err != nil {
		return err
	}
	if err := d.apply(ctx, workloadYAML); err != nil {
		return err
	}
	return d.until(ctx, time.Minute, func(state) string {
		if d.record.first != nil && d.record.found >= 0 {
			return ""
		}
		return "the Deployment's pods to run, and the scaler to find it"
	})
}

// playPhase does what the phase is about, and waits for what should come of it.
func (d *demo) playPhase(ctx context.Context, ph phase) error {
	if !d.screen.live {
		d.screen.say("-- %s: %s", ph.name, ph.story)
	}
	oom := ""
	if ph.oom {
		oom = "demo"
	}
	p := d.record.begin(ph, d.record.last.at)
	for _, command := range ph.commands {
		if err := d.kubectl(ctx, command); err != nil {
			return err
		}
	}
	if ph.load != (quantity.Amounts{}) {
		victim, err := drive(ctx, d.admin, ph.load, oom)
		if err != nil {
			return err
		}
		if victim != "" {
			d.record.strike(victim)
		}
	}
	err := d.until(ctx, ph.within, func(s state) string { return ph.missing(p, s) })
	if err != nil {
		return err
	}
	p.done = d.record.last.at
	if d.once || d.owned && !d.screen.live {
		return nil
	}
	return d.until(ctx, time.Hour, func(s state) string {
		if s.at-p.done < readable {
			return "nothing more: all of it was seen"
		}
		return ""
	})
}

// prompt is in front of a command.
const prompt = "$ kubectl -n " + namespace + " "

// kubectl does what a user would. Only quotes around a whole word are understood.
func (d *demo) kubectl(ctx context.Context, command string) error {
	if !d.screen.live {
		d.screen.say("%s%s", prompt, command)
	}
	args := []string{"-n", namespace}
	for _, word := range strings.Fields(command) {
		args = append(args, strings.Trim(word, "'"))
	}
	cmd := exec.CommandContext(ctx, filepath.Join(d.clusterDir, "kubectl"), args...)
	cmd.Dir = d.root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.cluster.Kubeconfig(), "KUBECACHEDIR="+filepath.Join(d.dir, "kubectl"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", command, err, bytes.TrimSpace(out))
	}
	return nil
}

// until looks and shows until nothing is missing anymore.
func (d *demo) until(ctx context.Context, within time.Duration, missing func(state) string) error {
	deadline := time.Now().Add(within)
	var failing time.Time // since when looking has failed
	for {
		what := "an answer of the API server"
		s, err := d.observer.look(ctx)
		switch {
		case err == nil:
			before := d.record.last
			d.record.add(s)
			what = missing(s)
			d.screen.show(d.record, before, what)
			failing = time.Time{}
		case failing.IsZero():
			failing = time.Now()
		}
		if what == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.cluster.Ended:
			return d.cluster.Failure()
		case <-d.operator.Ended:
			return d.operator.Failure()
		case <-time.After(lookEvery):
		}
		if !failing.IsZero() && time.Since(failing) > 10*time.Second {
			return err
		}
		if time.Now().After(deadline) {
			says := d.record.last.condition(v1beta1.ConditionApplied)
			if d.owned {
				says = find(d.record.last.said(), v1beta1.ConditionReady)
			}
			return fmt.Errorf("waited %s in vain for %s; the operator says %s: %s", within, what, says.Reason, says.Message)
		}
	}
}

// explainScaler lets the plugin of kubectl say in words how it came to this.
func (d *demo) explainScaler(ctx context.Context) error {
	plugin := filepath.Join(d.root, "bin", "demo", "kubectl-vscaler")
	build, err := stage.Build(d.root, "./cmd/kubectl-vscaler", plugin, filepath.Join(d.dir, "build-plugin.log"))
	if err != nil {
		return err
	}
	defer build.Stop(time.Second)
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-build.Ended:
	}
	if build.Err() != nil {
		return build.Failure()
	}
	for _, args := range [][]string{{"status"}, {"explain", "web"}} {
		cmd := exec.CommandContext(ctx, plugin, append([]string{"-n", namespace}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+d.cluster.Kubeconfig())
		out, err := cmd.CombinedOutput()
		if err != nil {
			return fmt.Errorf("kubectl vscaler %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
		}
		d.screen.print("", "$ kubectl vscaler -n "+namespace+" "+strings.Join(args, " "), strings.TrimRight(string(out), "\n"))
	}
	return nil
}

// sumUp prints the checks, and answers how many have failed.
func (d *demo) sumUp() int {
	checks := checksOf(d.record)
	d.screen.print("", d.screen.paint.bold(fmt.Sprintf("Summary after %s", d.record.last.at.Round(time.Second))))
	d.screen.print(renderSummary(checks, d.screen.paint)...)
	d.screen.print("")
	return failedOf(checks)
}

// stay keeps all running for looking around, and goes on telling what changes.
func (d *demo) stay(ctx context.Context) error {
	kubectl := filepath.Join(d.clusterDir, "kubectl")
	d.screen.print(
		"Everything keeps running until Ctrl-C. To look around, in another terminal:",
		"",
		"  export KUBECONFIG="+d.cluster.Kubeconfig(),
		"  alias kubectl="+kubectl,
		"",
		"  kubectl get vscaler -n demo -w",
		"  kubectl describe vscaler -n demo web",
		"  kubectl get events -n demo",
		"  kubectl top pod -n demo",
		"",
		"To move the usage, and to run out of memory (with any new word for \"again\"):",
		"",
		"  kubectl annotate pod -n demo -l app=web --overwrite \\",
		"    "+cpuAnnotation+"=300m "+memoryAnnotation+"=250Mi",
		"  kubectl annotate pod -n demo "+d.record.last.pods[0].Name+" --overwrite "+oomAnnotation+"=again",
		"",
		"The operator's log: "+d.operator.Log,
		"",
	)
	d.screen.live = false
	return d.until(ctx, 24*time.Hour, func(state) string { return "Ctrl-C" })
}

// apply applies the objects of a file.
func (d *demo) apply(ctx context.Context, file []byte) error {
	objects, err := stage.Decode(file)
	if err != nil {
		return err
	}
	return stage.Apply(ctx, d.admin, objects...)
}

// makeDir makes the folder that all is written to.
func (d *demo) makeDir() (err error) {
	if d.options.dir == "" {
		if d.dir, err = os.MkdirTemp("", "verticalscaler-demo-"); err != nil {
			return fmt.Errorf("making a temporary folder: %w", err)
		}
		return nil
	}
	d.keep = true
	if d.dir, err = filepath.Abs(d.options.dir); err != nil {
		return fmt.Errorf("finding the folder: %w", err)
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	return nil
}

func isAsked(ctx context.Context) bool { return ctx.Err() != nil }

// explain adds the operator's last words to an error. Being asked to end is none,
// unless all was to be seen.
func (d *demo) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case isAsked(ctx) && d.ends():
		return errors.New("ended before all was seen")
	case isAsked(ctx):
		return nil
	}
	if d.operator != nil && !d.operator.HasEnded() {
		return fmt.Errorf("%w\nThe end of the operator's log, %s:\n%s", err, d.operator.Log, d.operator.Tail(20))
	}
	return err
}

// cleanUp ends what was started, the operator first, and removes the folder. After a
// failure the logs stay.
func (d *demo) cleanUp(failed bool) {
	d.operator.Stop(30 * time.Second)
	if d.cluster != nil {
		d.cluster.Stop(30 * time.Second)
	}
	switch {
	case d.keep:
		d.screen.say("All has ended; kept is %s", d.dir)
	case failed:
		if d.cluster != nil {
			d.cluster.Clear()
		}
		d.screen.say("All has ended; the logs are kept in %s", d.dir)
	default:
		if err := os.RemoveAll(d.dir); err != nil {
			d.screen.say("All has ended, but the folder stays: %v", err)
			return
		}
		d.screen.say("All has ended, and nothing is left behind")
	}
}
