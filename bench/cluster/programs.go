// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// program is a running program that is measured.
type program struct {
	*process.Process
	agent string // begins the user agent of its requests
}

// programs are those of one side: the operator, or the recommender and the updater of VPA.
type programs []program

// Used is what a process has used since it started.
type Used struct {
	CPU       time.Duration
	RSS, Peak float64 // bytes, now and at most
}

// UsedBy reads what the kernel says about a process. It fails if the process has ended.
func UsedBy(p *process.Process) (out Used, err error) {
	if p.HasEnded() {
		return out, p.Failure()
	}
	proc, err := procfs.NewProc(p.PID())
	if err != nil {
		return out, fmt.Errorf("reading about a process: %w", err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return out, fmt.Errorf("reading the CPU time of a process: %w", err)
	}
	status, err := proc.NewStatus()
	if err != nil {
		return out, fmt.Errorf("reading the memory of a process: %w", err)
	}
	return Used{time.Duration(stat.CPUTime() * float64(time.Second)), float64(status.VmRSS), float64(status.VmHWM)}, nil
}

// usage is what all programs have used.
func (all programs) usage() (sum Used, err error) {
	for _, p := range all {
		used, err := UsedBy(p.Process)
		if err != nil {
			return sum, err
		}
		sum.CPU += used.CPU
		sum.RSS += used.RSS
		sum.Peak += used.Peak
	}
	return sum, nil
}

func (all programs) stop() {
	for _, p := range all {
		p.Stop(30 * time.Second)
	}
}

// writes counts the programs' write requests since the mark that select accepts.
func (r *rig) writes(mark testkit.AuditMark, all programs, isCounted func(testkit.Write) bool) (out []testkit.Write, err error) {
	writes, err := r.env.WritesSince(mark, "")
	if err != nil {
		return nil, err
	}
	for _, w := range writes {
		ours := slices.ContainsFunc(all, func(p program) bool { return strings.HasPrefix(w.UserAgent, p.agent) })
		if ours && isCounted(w) {
			out = append(out, w)
		}
	}
	return out, nil
}

// isChange selects changes of pods.
func isChange(w testkit.Write) bool {
	return w.Code < 300 && (w.Resource == "pods/resize" || w.Resource == "pods/eviction")
}

// isSteady selects what is written while nothing changes, other than leases.
func isSteady(w testkit.Write) bool { return w.Resource != "leases" }

const operatorConfig = `apiVersion: config.verticalscaler.io/v1beta1
kind: OperatorConfiguration
metrics:
  bindAddress: "0"
health:
  bindAddress: "0"
leaderElection:
  namespace: %[1]s
freeze:
  namespace: %[1]s
`

// startOperator starts the operator with the limits of config/manager and the default configuration.
func (r *rig) startOperator(o Options) (programs, error) {
	config := filepath.Join(o.dir, "operator.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, operatorConfig, system), 0o600); err != nil {
		return nil, err
	}
	p, err := r.start(o, o.Operator, "verticalscaler-operator", []string{"MEMORY_LIMIT=536870912"}, "-config="+config)
	if err != nil {
		return nil, err
	}
	return programs{p}, nil
}

// startVPA starts the recommender and the updater with their defaults. Nobody checks for the admission
// controller, which does not run.
func (r *rig) startVPA(o Options) (all programs, err error) {
	for _, component := range []struct {
		path  string
		flags []string
	}{
		{o.Recommender, nil},
		{o.Updater, []string{"--use-admission-controller-status=false"}},
	} {
		address, err := process.FreeAddress()
		if err != nil {
			return all, err
		}
		flags := slices.Concat(component.flags, []string{"--kubeconfig=" + r.env.Kubeconfig(), "--address=" + address})
		p, err := r.start(o, component.path, filepath.Base(component.path), []string{"NAMESPACE=" + system}, flags...)
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, nil
}

// start starts a program on one CPU.
func (r *rig) start(o Options, path, agent string, env []string, flags ...string) (program, error) {
	command := exec.Command(path, flags...)
	command.Env = slices.Concat(env, []string{"KUBECONFIG=" + r.env.Kubeconfig(), "GOMAXPROCS=1"})
	p, err := process.Start(agent, filepath.Join(o.dir, agent+".log"), command)
	return program{p, agent}, err
}

// installVPA installs the CRDs of VPA, which are in its module.
func (r *rig) installVPA(ctx context.Context) error {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/autoscaler/vertical-pod-autoscaler")
	list.Dir = "bench"
	list.Stderr = os.Stderr
	folder, err := list.Output()
	if err != nil {
		return fmt.Errorf("finding the module of VPA: %w", err)
	}
	crds := filepath.Join(strings.TrimSpace(string(folder)), "deploy", "vpa-v1-crd-gen.yaml")
	if _, err := envtest.InstallCRDs(r.env.Config, envtest.CRDInstallOptions{Paths: []string{crds}, ErrorIfPathMissing: true}); err != nil {
		return fmt.Errorf("installing the CRDs of VPA: %w", err)
	}
	return nil
}
