// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package faults

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

const (
	// quietRounds is how many rounds of usage the operator must be quiet for. The first may be under way.
	quietRounds = 4
	// beat is the time between two rounds of work of a world.
	beat = 200 * time.Millisecond
	// latest is how long a world waits for anything, on a busy machine.
	latest = 4 * time.Minute
)

// run is one run of a scenario: a world in a namespace of its own, the operator, and the proxy between them.
type run struct {
	*world.World

	t        *testing.T
	scenario world.Scenario
	proxy    *proxy // of the operator that acts at the end
	folder   string
}

// outcome has the results in which runs are compared.
type outcome struct {
	state  world.State
	writes []write
}

// newRun creates a world with its workloads.
func newRun(t *testing.T, s world.Scenario) *run {
	t.Helper()
	for _, node := range world.Nodes {
		must.Succeed(t, env.Node(t.Context(), node.Name))
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "faults-"}} // without sidecars
	must.Succeed(t, env.Client.Create(t.Context(), namespace))
	r := &run{t: t, scenario: s, folder: t.TempDir()}
	r.World = world.New(t, env.Client, namespace.Name, world.Options{RealTime: r.await})
	r.SetUp(s)
	return r
}

// await lets everybody work until f describes nothing that is wrong. The operator is a process, in real time.
func (r *run) await(f func() string) {
	r.Helper()
	for deadline := time.Now().Add(latest); ; time.Sleep(beat) { // the operator is another process, so no event of ours ends the wait
		wrong := r.Round(f)
		if wrong == "" {
			return
		}
		if time.Now().After(deadline) {
			r.Fatalf("after %s, %s", latest, wrong)
		}
	}
}

// end awaits the end of the scenario, and that the operator is quiet then. It compares with a run without faults, if there is
// one.
func (r *run) end(reference *outcome) outcome {
	r.Helper()
	r.Await("the end of "+r.scenario.Name, func() string { return r.scenario.IsDone(r.World) })
	r.proxy.release()
	written, since := -1, 0
	r.Await("a quiet operator", func() string {
		if n := disturbing(r.proxy.seen()); n != written {
			written, since = n, r.Usage.Rounds
		}
		if r.Usage.Rounds < since+quietRounds {
			return "it has just written"
		}
		return r.scenario.IsDone(r.World)
	})
	state, err := r.EndState()
	must.Succeed(r, err)
	got := outcome{state, r.proxy.seen()}
	if reference != nil {
		if diff := reference.state.DiffAfterFaults(state); diff != "" {
			r.Errorf("the end differs from the reference (-) (+):\n%s", diff)
		}
		want := disruptions(reference.writes)
		for kind, n := range disruptions(got.writes) {
			if n > want[kind] {
				r.Errorf("%d times %q, and %d in the reference", n, kind, want[kind])
			}
		}
	}
	for i, w := range got.writes {
		if reference == nil || r.Failed() {
			r.Logf("write %d: %s", i+1, w)
		}
	}
	return got
}

// disturbing counts the writes that nothing explains once a scenario has ended: checkpoints and statuses may follow from more
// evidence.
func disturbing(writes []write) (n int) {
	for _, w := range writes {
		if !strings.Contains(w.kind, "checkpoints") && !strings.HasSuffix(w.kind, "/status") {
			n++
		}
	}
	return n
}

// disruptions counts the accepted writes that end pods. Those of Deployments are not among them: a second one with the same
// content changes nothing, and the end state has the ReplicaSets.
func disruptions(writes []write) map[string]int {
	out := map[string]int{}
	for _, w := range writes {
		if w.code >= 200 && w.code < 300 && (w.kind == "create pods/eviction" || strings.HasPrefix(w.kind, "delete")) {
			out[w.kind]++
		}
	}
	return out
}

// panics matches signs of a panic in a log, also of one that the controller has recovered from.
var panics = regexp.MustCompile(`panic:|Observed a panic|fatal error:`)

// operator is a process of the operator, and those that replace it.
type operator struct {
	t         *testing.T
	log       string
	namespace string
	args      []string
	// mayEnd is true if the operator may end by itself.
	mayEnd bool

	mu      sync.Mutex
	process *process.Process
}

// startOperator starts an operator that asks a proxy.
func (r *run) startOperator(name string, p *proxy, changes ...func(*operatorconfig.Operator)) *operator {
	r.Helper()
	c := operatorconfig.Default()
	c.Metrics.BindAddress, c.Health.BindAddress = "0", "0"
	c.LeaderElection.Enabled = false // A killed process would block the next one until its lease has run out.
	c.ResyncPeriod.Duration = 5 * time.Second
	// A second of usage, the shortest interval that the configuration accepts, is full evidence.
	world.Compress(&c, time.Second)
	c.Budget.ChangesPerMinute, c.Budget.ChangesPerMinutePerNamespace = 100000, 100000
	if r.scenario.Config != nil {
		r.scenario.Config(&c)
	}
	for _, change := range changes {
		change(&c)
	}
	content, err := yaml.Marshal(c)
	must.Succeed(r, err)
	path := filepath.Join(r.folder, name)
	must.Succeed(r, os.WriteFile(path+".yaml", content, 0o600))
	o := &operator{t: r.t, log: path + ".log", namespace: r.Namespace, args: []string{"-config=" + path + ".yaml", "-kubeconfig=" + p.kubeconfig}}
	p.kill = o.kill
	o.start()
	r.Cleanup(o.stop)
	return o
}

// start starts a process. The caller holds the lock, or is the only one with access to the operator.
func (o *operator) start() {
	command := exec.Command(manager, o.args...)
	command.Env = append(os.Environ(), app.WatchNamespaceEnv+"="+o.namespace)
	p, err := process.Start("the operator", o.log, command)
	if err != nil {
		o.t.Error(err)
		return
	}
	o.process = p
}

// kill kills the operator as kill -9 does and starts it again.
func (o *operator) kill() {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = syscall.Kill(-o.process.PID(), syscall.SIGKILL) // fails only if it has ended
	<-o.process.Ended
	o.start()
}

// pause stops the process as a frozen machine does.
func (o *operator) pause() { _ = syscall.Kill(o.process.PID(), syscall.SIGSTOP) }

// resume lets a paused process go on.
func (o *operator) resume() { _ = syscall.Kill(o.process.PID(), syscall.SIGCONT) }

func (o *operator) hasEnded() bool { return o.process.HasEnded() }

// stop ends the operator, and checks that it has run until now and has not panicked.
func (o *operator) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.hasEnded() && !o.mayEnd {
		o.t.Error(o.process.Failure())
	}
	o.process.Stop(30 * time.Second)
	if content, err := os.ReadFile(o.log); err != nil || panics.Match(content) {
		o.t.Errorf("the operator has panicked: %v", err)
	}
	if o.t.Failed() {
		o.t.Logf("the end of the operator's log:\n%s", o.process.Tail(40))
	}
}
