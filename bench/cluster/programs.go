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

// programs are the programs of one side: the operator, or the recommender and the updater of VPA.
type programs []program

// Used is the usage of a process since its start.
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

// usage is the usage of all programs together.
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
	return w.Code < 300 && !w.DryRun && (w.Resource == "pods/resize" || w.Resource == "pods/eviction")
}

// isSteady selects what is written while nothing changes, other than leases.
func isSteady(w testkit.Write) bool { return w.Resource != "leases" }

const operatorConfig = `apiVersion: config.verticalscaler.io/v1beta1
kind: OperatorConfiguration
metrics: %[1]s
health:
  bindAddress: "0"
leaderElection:
  namespace: %[2]s
freeze:
  namespace: %[2]s
`

// agent begins the user agent of the operator's requests.
const agent = "verticalscaler-operator"

// StartOperator starts the operator's program on one CPU, with the default configuration but for its metrics. Its log and its
// configuration are in the folder.
func StartOperator(folder, path, kubeconfig, metrics string, memoryMiB int) (*process.Process, error) {
	config := filepath.Join(folder, "operator.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, operatorConfig, metrics, System), 0o600); err != nil {
		return nil, err
	}
	return start(folder, path, agent, kubeconfig, []string{fmt.Sprintf("MEMORY_LIMIT=%d", memoryMiB<<20)}, "-config="+config)
}

// startOperator starts it with the memory limit of config/manager.
func (r *rig) startOperator(o Options) (programs, error) {
	p, err := StartOperator(o.dir, o.Operator, r.env.Kubeconfig(), `{bindAddress: "0"}`, 512)
	return programs{{p, agent}}, err
}

// startVPA starts the recommender and the updater with their defaults. Neither checks for the
// admission controller, which does not run.
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
		name, kubeconfig := filepath.Base(component.path), r.env.Kubeconfig()
		flags := slices.Concat(component.flags, []string{"--kubeconfig=" + kubeconfig, "--address=" + address})
		p, err := start(o.dir, component.path, name, kubeconfig, []string{"NAMESPACE=" + System}, flags...)
		if err != nil {
			return all, err
		}
		all = append(all, program{p, name})
	}
	return all, nil
}

// start starts a program on one CPU, with this process's GOGC. Its log is in the folder.
func start(folder, path, name, kubeconfig string, env []string, flags ...string) (*process.Process, error) {
	command := exec.Command(path, flags...)
	command.Env = slices.Concat(env, []string{"KUBECONFIG=" + kubeconfig, "GOMAXPROCS=1", "GOGC=" + os.Getenv("GOGC")})
	return process.Start(name, filepath.Join(folder, name+".log"), command)
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
