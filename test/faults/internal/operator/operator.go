// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator runs the manager binary as a process that can be killed, stopped and
// restarted.
package operator

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

const (
	// grace is how long a process may take to end after SIGTERM.
	grace = 30 * time.Second
	// scrapeTimeout is the timeout of a request for metrics.
	scrapeTimeout = 10 * time.Second
)

// Build builds the manager into a folder, as "make build" does, and returns its path.
func Build(ctx context.Context, folder string) (string, error) {
	path := filepath.Join(folder, "manager")
	command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, ".")
	command.Dir = testkit.Root()
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the manager: %w: %s", err, out)
	}
	return path, nil
}

// Options say how the operator runs.
type Options struct {
	// Binary is the path of the manager.
	Binary string
	// Folder is where the log and the configuration are written. It must exist.
	Folder string
	// Name is the prefix of its files.
	Name string
	// Kubeconfig is the path of its kubeconfig.
	Kubeconfig string
	// Namespaces are watched.
	Namespaces []string
	// Config is its configuration. The address of its metrics is chosen by Start.
	Config config.Operator
	// Env is added to its environment, as in "FAKETIME=+1h".
	Env []string
}

// Operator is an operator process and those that replace it.
type Operator struct {
	options Options
	config  string // the path of the configuration
	log     string
	address string // of its metrics

	mu       sync.Mutex
	process  *process.Process
	intended int      // deaths by Kill or Stop
	ends     []string // deaths that nobody intended
	stopped  bool
}

// Start starts the operator. It does not wait until the operator is ready.
func Start(o Options) (*Operator, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	op := &Operator{
		options: o,
		config:  filepath.Join(o.Folder, o.Name+".yaml"),
		log:     filepath.Join(o.Folder, o.Name+".log"),
		address: address,
	}
	o.Config.Metrics.BindAddress = address
	content, err := yaml.Marshal(o.Config)
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration: %w", err)
	}
	if err := os.WriteFile(op.config, content, 0o600); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	return op, op.start()
}

func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer listener.Close() //nolint:errcheck // nothing was accepted
	return listener.Addr().String(), nil
}

// start starts a process. The caller holds the lock, or nobody else has the operator yet.
func (o *Operator) start() error {
	command := exec.Command(o.options.Binary, "-config="+o.config, "-kubeconfig="+o.options.Kubeconfig) //nolint:noctx // Stop ends it
	command.Env = append(os.Environ(), app.WatchNamespaceEnv+"="+strings.Join(o.options.Namespaces, ","))
	command.Env = append(command.Env, o.options.Env...)
	p, err := process.Start("the operator", o.log, command)
	if err != nil {
		return err
	}
	o.process = p
	return nil
}

// Kill kills the operator as kill -9 does and starts it again. It returns when the old process is
// dead.
func (o *Operator) Kill() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return nil
	}
	if o.process.HasEnded() {
		o.noteEnd()
	} else {
		o.end(0)
	}
	return o.start()
}

// Restart starts the operator again if it has ended by itself, as a kubelet does, and tells
// whether it had.
func (o *Operator) Restart() (bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped || !o.process.HasEnded() {
		return false, nil
	}
	o.noteEnd()
	return true, o.start()
}

func (o *Operator) noteEnd() { o.ends = append(o.ends, o.process.Failure().Error()) }

func (o *Operator) end(grace time.Duration) {
	o.intended++
	if grace == 0 {
		_ = syscall.Kill(-o.process.PID(), syscall.SIGKILL)
		<-o.process.Ended
		return
	}
	o.process.Stop(grace)
}

// Pause stops the process as a frozen machine does, with SIGSTOP.
func (o *Operator) Pause() error { return o.signal(syscall.SIGSTOP) }

// Continue lets a paused process go on.
func (o *Operator) Continue() error { return o.signal(syscall.SIGCONT) }

func (o *Operator) signal(signal syscall.Signal) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := syscall.Kill(o.process.PID(), signal); err != nil {
		return fmt.Errorf("sending %s to the operator: %w", signal, err)
	}
	return nil
}

// Stop ends the operator as SIGTERM does.
func (o *Operator) Stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped {
		return
	}
	o.stopped = true
	if o.process.HasEnded() {
		o.noteEnd()
		return
	}
	o.end(grace)
}

// Log is the path of the log of all its processes.
func (o *Operator) Log() string { return o.log }

// Violations describes what no operator process may do: panic, or end by itself.
func (o *Operator) Violations() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := append([]string(nil), o.ends...)
	content, err := os.ReadFile(o.log)
	if err != nil {
		return append(out, err.Error())
	}
	for _, sign := range []string{"panic:", "Observed a panic", "fatal error:", "DATA RACE"} {
		if at := bytes.Index(content, []byte(sign)); at >= 0 {
			out = append(out, fmt.Sprintf("the log has %q: %.2000s", sign, content[at:]))
		}
	}
	return out
}

// Measures are what the process says of itself.
type Measures struct {
	Goroutines, HeapBytes, QueueDepth, Panics float64
}

// Measures scrapes the process.
func (o *Operator) Measures(ctx context.Context) (Measures, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.address+"/metrics", http.NoBody)
	if err != nil {
		return Measures{}, fmt.Errorf("asking for the operator's metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return Measures{}, fmt.Errorf("asking for the operator's metrics: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(response.Body, 8<<20))
	if err != nil {
		return Measures{}, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	total := func(name string) (sum float64) {
		for _, metric := range families[name].GetMetric() {
			sum += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
		return sum
	}
	return Measures{
		Goroutines: total("go_goroutines"),
		HeapBytes:  total("go_memstats_heap_inuse_bytes"),
		QueueDepth: total("workqueue_depth"),
		Panics:     total("controller_runtime_reconcile_panics_total"),
	}, nil
}
