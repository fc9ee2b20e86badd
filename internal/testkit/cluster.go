// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	// assetsVariable names a folder with etcd, kube-apiserver and kubectl.
	assetsVariable = "KUBEBUILDER_ASSETS"
	// binaryVariable names the localcluster binary.
	binaryVariable = "LOCALCLUSTER"
	// kubeconfigVariable names the kubeconfig of a cluster to be used as it is.
	kubeconfigVariable = "VERTICALSCALER_TEST_KUBECONFIG"
	// kwokNodes is enough for a thousand pods, and for 80 CPUs of requests.
	kwokNodes = 10
	// startTimeout is longer than a cluster needs on a machine that is busy.
	startTimeout = 3 * time.Minute
	// stopTimeout is longer than its components need to end.
	stopTimeout = 30 * time.Second
)

// StartCluster starts a whole control plane, with a controller manager, a scheduler
// and nodes that kwok plays, and installs our CRDs.
//
// The binary is hack/cluster's, and is built if need be. A cluster of your own is used instead if
// VERTICALSCALER_TEST_KUBECONFIG names its kubeconfig; tests that need kwok or the
// audit log are then skipped.
func StartCluster() (*Env, error) {
	if path := os.Getenv(kubeconfigVariable); path != "" {
		e := &Env{stop: func() error { return nil }}
		return e, e.open(path, true)
	}
	return StartClusterWith(ClusterOptions{VPAs: true})
}

// ClusterOptions change what StartClusterWith starts.
type ClusterOptions struct {
	// MetricsServer runs metrics-server, which reads the pods' annotations every 10 s.
	MetricsServer bool
	// AuditReads logs every request, not only writes.
	AuditReads bool
	// GuardOwners has the API server ask, as OpenShift's does, whether whoever writes an
	// owner reference may block the owner's deletion. It hears of new kinds half a minute
	// late.
	GuardOwners bool
	// VPAs installs the kind VerticalPodAutoscaler, and nothing that does anything with it.
	VPAs bool
	// NoCRDs leaves it to somebody else to install our CRDs.
	NoCRDs bool
}

// StartClusterWith starts a cluster like StartCluster's, always one of its own.
func StartClusterWith(o ClusterOptions) (*Env, error) {
	binary, err := localcluster()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "verticalscaler-cluster-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the cluster: %w", err)
	}
	flags := []string{
		"-kwok-nodes", strconv.Itoa(kwokNodes),
		// However this process ends, the cluster does not outlive it.
		"-parent-pid", strconv.Itoa(os.Getpid()),
	}
	if o.MetricsServer {
		flags = append(flags, "-metrics-server")
	}
	if o.GuardOwners {
		flags = append(flags, "-apiserver-arg", "enable-admission-plugins=OwnerReferencesPermissionEnforcement")
	}
	if o.AuditReads {
		flags = append(flags, "-audit")
	} else {
		policy, err := writeAuditPolicy(dir)
		if err != nil {
			return nil, err
		}
		flags = append(flags, "-audit-policy", policy)
	}
	home := filepath.Join(dir, "cluster")
	stop, err := runCluster(binary, home, filepath.Join(dir, "localcluster.log"), flags...)
	if err != nil {
		return nil, err
	}
	e := &Env{
		kwok: true, audit: filepath.Join(home, "audit.log"), kubectl: filepath.Join(filepath.Dir(binary), "kubectl"),
		stop: func() error {
			if err := stop(); err != nil {
				return err
			}
			return os.RemoveAll(dir)
		},
	}
	if err := e.open(filepath.Join(home, "admin.kubeconfig"), !o.NoCRDs); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	if o.VPAs {
		if _, err := envtest.InstallCRDs(e.Config, envtest.CRDInstallOptions{Paths: []string{VPACRD()}, ErrorIfPathMissing: true}); err != nil {
			return nil, errors.Join(fmt.Errorf("installing the kind VerticalPodAutoscaler: %w", err), e.stop())
		}
	}
	return e, nil
}

// VPACRD is the path of a CRD of VerticalPodAutoscalers.
func VPACRD() string {
	return filepath.Join(Root(), "internal", "testkit", "testdata", "verticalpodautoscalers.yaml")
}

// buildScript builds the programs of the cluster, if they are not up to date, and
// prints the folder that they are in.
var buildScript = sync.OnceValues(func() (folder string, err error) {
	command := exec.Command(filepath.Join(Root(), "hack", "cluster", "build.sh"))
	command.Stderr = os.Stderr // its progress: the first time, it takes minutes
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("building the test cluster with %s: %w", command.Path, err)
	}
	return strings.TrimSpace(string(out)), nil
})

// assets is the folder with etcd, kube-apiserver and kubectl: that of
// KUBEBUILDER_ASSETS, or else one that is built now.
func assets() (string, error) {
	if folder := os.Getenv(assetsVariable); folder != "" {
		return filepath.Clean(folder), nil
	}
	folder, err := buildScript()
	return filepath.Join(folder, "assets"), err
}

// localcluster is the path of the program that runs a cluster. It is beside the
// assets, unless those are the user's own.
func localcluster() (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		return path, nil
	}
	if folder := os.Getenv(assetsVariable); folder != "" {
		path := filepath.Join(filepath.Dir(filepath.Clean(folder)), "localcluster")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	folder, err := buildScript()
	return filepath.Join(folder, "localcluster"), err
}

// runCluster starts a cluster in a folder and waits until it is up.
func runCluster(binary, dir, output string, flags ...string) (stop func() error, err error) {
	out, err := os.Create(output)
	if err != nil {
		return nil, fmt.Errorf("making the cluster's log: %w", err)
	}
	command := exec.Command(binary, append([]string{"up", "-dir", dir}, flags...)...)
	command.Stdout, command.Stderr = out, out
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting the cluster: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	stop = func() error {
		defer out.Close() //nolint:errcheck // nobody reads it any more
		if err := command.Process.Signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("stopping the cluster: %w", err)
		}
		select {
		case err := <-ended:
			if err != nil {
				return fmt.Errorf("stopping the cluster: %w", err)
			}
			return nil
		case <-time.After(stopTimeout):
			return fmt.Errorf("the cluster has not stopped in %s", stopTimeout)
		}
	}

	late := time.After(startTimeout)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
			return stop, nil
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("starting the cluster: %w: %s", err, contentOf(output))
		case <-late:
			return nil, errors.Join(fmt.Errorf("the cluster is not up after %s: %s", startTimeout, contentOf(output)), stop())
		case <-tick.C:
		}
	}
}

func contentOf(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(content)
}

// open connects to the cluster of a kubeconfig, and installs our CRDs if that is wanted.
func (e *Env) open(kubeconfig string, crds bool) (err error) {
	e.kubeconfig = kubeconfig
	if e.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return fmt.Errorf("reading kubeconfig %s: %w", kubeconfig, err)
	}
	if err := e.connect(); err != nil || !crds {
		return err
	}
	if _, err := envtest.InstallCRDs(e.Config, envtest.CRDInstallOptions{
		Paths:              []string{filepath.Join(Root(), "config", "crd", "bases")},
		ErrorIfPathMissing: true,
	}); err != nil {
		return fmt.Errorf("installing the CRDs: %w", err)
	}
	return nil
}

// Kubeconfig is the path of the administrator's kubeconfig; empty after Start, which
// has none.
func (e *Env) Kubeconfig() string { return e.kubeconfig }

// AuditLog is the path of the API server's audit log; empty where there is none to
// read.
func (e *Env) AuditLog() string { return e.audit }

// Kubectl is the path of kubectl; on a cluster of the user's own it is found in the
// PATH.
func (e *Env) Kubectl() string { return cmp.Or(e.kubectl, "kubectl") }

// NeedKwok skips a test that tells kwok what to do on a cluster with real nodes.
func (e *Env) NeedKwok(t testing.TB) {
	t.Helper()
	if !e.kwok {
		t.Skip("needs nodes played by kwok, which refuses a resize or kills a container when it is told so; this cluster is of " + kubeconfigVariable)
	}
}

// NeedAudit skips a test that counts writes on a cluster whose audit log is out of
// reach.
func (e *Env) NeedAudit(t testing.TB) {
	t.Helper()
	if e.audit == "" {
		t.Skip("needs the audit log of the API server; this cluster is of " + kubeconfigVariable)
	}
}

// ClusterMain runs a package's tests against one whole cluster. It is used like Main,
// but nothing watches beside the tests: what is installed there is theirs.
func ClusterMain(m *testing.M, env **Env) int { return mainWith(m, env, StartCluster, false) }
