// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/cluster"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/operator"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/proxy"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// patience is how long a run may take until it has converged and is quiet. It allows a write that
// hangs until the operator's deadline, and a busy machine.
const patience = 4 * time.Minute

// run is one run of a scenario: a world, an operator and the proxy between them.
type run struct {
	*testing.T

	scenario world.Scenario
	fault    string // the family of faults: a row of the table
	name     string
	ctx      context.Context //nolint:containedctx // it ends with the run
	world    *cluster.World
	proxy    *proxy.Proxy
	operator *operator.Operator
	began    time.Time
	folder   string // of the operator's files
	wrong    []string
	// mayEnd is true if the operator may end by itself and be restarted.
	mayEnd bool

	closers []func() // what close does, last first
}

// close ends the run. It is called when the test ends, or before.
func (r *run) close() {
	for _, step := range slices.Backward(r.closers) {
		step()
	}
	r.closers = nil
}

func (r *run) onClose(step func()) { r.closers = append(r.closers, step) }

// outcome is what a run is compared by.
type outcome struct {
	state   world.State
	writes  []proxy.Write
	metrics map[string]float64
}

// upstream has the rights of the operator's service account.
func upstream() *rest.Config {
	c := rest.CopyConfig(env.Config)
	c.QPS, c.Burst = -1, -1
	c.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + testkit.System + ":" + testkit.ServiceAccount,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + testkit.System, "system:authenticated"},
	}
	return c
}

// newRun creates a world with its workloads, and the proxy. The operator is not started yet. The run ends within that time.
func newRun(t *testing.T, opened *cluster.Cluster, scenario world.Scenario, fault string, within time.Duration) *run {
	t.Helper()
	_, name, _ := strings.Cut(t.Name(), "/")
	r := &run{T: t, scenario: scenario, fault: fault, name: name, began: time.Now(), folder: t.TempDir()}
	ctx, cancel := context.WithTimeoutCause(t.Context(), within, fmt.Errorf("not done after %s", within))
	t.Cleanup(r.close)
	r.onClose(cancel)
	r.ctx = ctx
	var err error
	if r.world, err = opened.NewWorld(ctx, t, scenario); err != nil {
		t.Fatal(err)
	}
	r.onClose(func() {
		if err := r.world.Close(context.Background()); err != nil {
			t.Log(err)
		}
	})
	if err := r.world.SetUp(); err != nil {
		t.Fatal(err)
	}
	r.proxy = r.newProxy()
	return r
}

func (r *run) newProxy() *proxy.Proxy {
	r.Helper()
	p, err := proxy.Start(upstream(), r.world.Metrics())
	if err != nil {
		r.Fatal(err)
	}
	r.onClose(func() {
		if err := p.Close(); err != nil {
			r.Error(err)
		}
	})
	return p
}

// start starts the operator with a plan of faults. It is started again whenever it ends.
func (r *run) start(faults ...proxy.Fault) {
	r.Helper()
	r.proxy.Plan(faults...)
	r.operator = r.startOperator("operator", r.proxy)
}

func (r *run) startOperator(name string, p *proxy.Proxy, changes ...func(*operator.Options)) *operator.Operator {
	r.Helper()
	options := operator.Options{
		Binary: manager, Folder: r.folder, Name: name, Kubeconfig: p.Kubeconfig(),
		Namespaces: []string{r.world.Namespace()}, Config: r.world.Config(),
	}
	for _, change := range changes {
		change(&options)
	}
	o, err := operator.Start(options)
	if err != nil {
		r.Fatal(err)
	}
	p.OnKill(func() {
		if err := o.Kill(); err != nil {
			r.Error(err)
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.Supervise(ctx) }()
	r.onClose(func() {
		o.Stop()
		cancel()
		if err := <-ended; err != nil {
			r.Error(err)
		}
		r.keepLog(name, o)
	})
	return o
}

// keepLog copies the log of a failed run to the folder of VERTICALSCALER_FAULT_LOGS.
func (r *run) keepLog(name string, o *operator.Operator) {
	folder := os.Getenv("VERTICALSCALER_FAULT_LOGS")
	if folder == "" || !r.Failed() {
		return
	}
	content, err := o.Log()
	if err != nil {
		r.Log(err)
	}
	path := filepath.Join(folder, strings.ReplaceAll(r.name, "/", "_")+"."+name+".log")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		r.Log(err)
	}
}

// act does what the scenario's user does.
func (r *run) act() {
	if err := r.world.Act(); err != nil {
		r.violated("acting: %v", err)
	}
}

// violated notes a violation.
func (r *run) violated(format string, args ...any) {
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

// settle waits until the scenario is done, ends the faults, and waits until the operator is quiet.
// It returns how the world ended.
func (r *run) settle() outcome {
	if err := r.world.Converge(r.ctx); err != nil {
		r.violated("no convergence: %v", err)
	}
	r.proxy.Release()
	if len(r.wrong) == 0 {
		if err := r.world.StayQuiet(r.ctx); err != nil {
			r.violated("no rest: %v", err)
		}
	}
	out := outcome{writes: r.proxy.Writes()}
	var err error
	if out.state, err = r.world.EndState(context.WithoutCancel(r.ctx)); err != nil {
		r.violated("%v", err)
	}
	if out.metrics, err = r.metrics(); err != nil {
		r.violated("%v", err)
	}
	return out
}

// metrics reads the operator's metrics. An operator that was killed at its last write may still be starting.
func (r *run) metrics() (out map[string]float64, err error) {
	if waiting := r.wait("the operator's metrics", func() bool {
		out, err = r.operator.Metrics(r.ctx)
		return err == nil
	}); waiting != nil {
		return out, errors.Join(waiting, err)
	}
	return out, nil
}

// judge adds what the oracles say, and reports all violations. The reference is nil for a
// reference run.
func (r *run) judge(got outcome, reference *outcome) {
	r.Helper()
	if reference != nil {
		r.compare(got, *reference)
	}
	seen := cluster.Operator{End: got.metrics, Injected: r.proxy.Injected()}
	var err error
	if seen.Log, err = r.operator.Log(); err != nil {
		r.violated("%v", err)
	}
	if reference != nil {
		seen.Reference = reference.metrics
	}
	r.world.Observe(seen)
	r.wrong = append(r.wrong, r.world.Violations()...)
	if ends := r.operator.Ends(); len(ends) > 0 && !r.mayEnd {
		r.wrong = append(r.wrong, ends...)
	}
	for _, wrong := range r.wrong {
		r.Errorf("%s: %s", r.name, wrong)
	}
	if len(r.wrong) > 0 {
		for _, write := range got.writes {
			r.Logf("  %s", write)
		}
	}
	results.add(r.name, cell{r.scenario.Name, r.fault}, sums{1, r.proxy.Injected(), len(r.wrong)}, time.Since(r.began))
}

// compare compares how the run ended, and its disruptive writes, with the reference.
func (r *run) compare(got, reference outcome) {
	if diff := reference.state.DiffAfterFaults(got.state); diff != "" {
		r.violated("the end differs from the reference (-) (+):\n%s", diff)
	}
	want, have := disruptions(reference.writes), disruptions(got.writes)
	for kind, n := range have {
		if n > want[kind] {
			r.violated("%d times %q, and %d in the reference", n, kind, want[kind])
		}
	}
}

func isAccepted(write proxy.Write) bool { return write.Code >= 200 && write.Code < 300 }

// accepted counts the writes that the API server has accepted by kind.
func accepted(writes []proxy.Write) map[string]int {
	out := map[string]int{}
	for _, write := range writes {
		if isAccepted(write) {
			out[write.Kind()]++
		}
	}
	return out
}

// disruptions counts the accepted writes that end pods. Those of Deployments are not among them: a
// second one with the same content changes nothing, and the end state has the ReplicaSets.
func disruptions(writes []proxy.Write) map[string]int {
	out := map[string]int{}
	for kind, n := range accepted(writes) {
		if kind == "create pods/eviction" || strings.HasPrefix(kind, "delete") {
			out[kind] = n
		}
	}
	return out
}
