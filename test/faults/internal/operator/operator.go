// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operator runs the manager binary as a process that can be killed, stopped and
// restarted.
package operator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

	mu      sync.Mutex
	process *process.Process
	ends    []string // how processes have ended by themselves
	stopped bool
}

// Start starts the operator. It does not wait until the operator is ready.
func Start(o Options) (*Operator, error) {
	address, err := process.FreeAddress()
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

// start starts a process. The caller holds the lock, or nobody else has the operator yet.
func (o *Operator) start() error {
	command := exec.Command(o.options.Binary, "-config="+o.config, "-kubeconfig="+o.options.Kubeconfig)
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

// Crash kills the operator as kill -9 does. It is not started again.
func (o *Operator) Crash() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	o.end(0)
}

func (o *Operator) noteEnd() { o.ends = append(o.ends, o.process.Failure().Error()) }

func (o *Operator) end(grace time.Duration) {
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

// Log is what all processes have logged.
func (o *Operator) Log() ([]byte, error) {
	content, err := os.ReadFile(o.log)
	if err != nil {
		return nil, fmt.Errorf("reading the operator's log: %w", err)
	}
	return content, nil
}

// Ends describes the processes that have ended by themselves.
func (o *Operator) Ends() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.ends)
}

// Supervise starts the operator again whenever it ends by itself, as a kubelet does, until the
// context ends or Stop is called.
func (o *Operator) Supervise(ctx context.Context) error {
	for {
		o.mu.Lock()
		ended, stopped := o.process.Ended, o.stopped
		o.mu.Unlock()
		if stopped {
			return nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil
		}
		if err := o.restart(); err != nil {
			return err
		}
	}
}

// restart starts the operator again if it has ended by itself.
func (o *Operator) restart() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stopped || !o.process.HasEnded() {
		return nil
	}
	o.noteEnd()
	return o.start()
}

// Metrics scrapes the process: the sum of each family, by name.
func (o *Operator) Metrics(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.address+"/metrics", http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("asking for the operator's metrics: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for the operator's metrics: %w", err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(response.Body, 8<<20))
	if err != nil {
		return nil, fmt.Errorf("reading the operator's metrics: %w", err)
	}
	out := make(map[string]float64, len(families))
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			out[name] += metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return out, nil
}
