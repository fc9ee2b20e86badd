// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

// Package olm installs, upgrades and removes the operator with OLM's own programs, by the commands of docs/olm.md. OLM and the
// operator run as local processes beside a control plane.
package olm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

const (
	// soon is the timeout of every wait, long enough for a busy machine. OLM retries some
	// steps only after a while, and metrics-server scrapes every 10 s.
	soon = 3 * time.Minute
	// stopTimeout is how long a process may take to end after SIGTERM.
	stopTimeout = 30 * time.Second
	// olmNamespace is the namespace of OLM and the catalog.
	olmNamespace = "olm"
)

var (
	// env is the cluster that all tests share.
	env *testkit.Env
	// work is the folder for all files that the tests write.
	work string
	// node runs the operator's pods.
	node *kubelet
	// store is the catalog that OLM installs from.
	store *catalog
	// paths are the values of the variables below.
	paths = map[string]string{}
)

// The variables with the programs and files that the tests need; make test-olm sets them.
const (
	olmVariable     = "OLM_OPERATOR"
	catalogVariable = "OLM_CATALOG"
	opmVariable     = "OPM"
	v1Variable      = "OLMV1"
	crdsVariable    = "OLM_CRDS"
	bundleVariable  = "BUNDLE"
)

// TestOLM covers the life cycle of the operator under OLM. The scenarios share the cluster
// and its CRDs, so they run one after the other. Each begins and ends without the operator.
func TestOLM(t *testing.T) {
	t.Run("AllNamespaces", allNamespaces)
	t.Run("OwnNamespace", func(t *testing.T) { withinOnly(t, "own", own, own) })
	t.Run("SingleNamespace", func(t *testing.T) { withinOnly(t, "single", "single-system", blog) })
	t.Run("MultiNamespace", func(t *testing.T) { withinOnly(t, "multi", "multi-system", shop, lab) })
	t.Run("Upgrade", upgrade)
	t.Run("Uninstall", uninstall)
}

func TestMain(m *testing.M) {
	flag.Parse()
	ctrl.SetLogger(logr.Discard())
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if err := programs(); err != nil {
		return 1, err
	}
	if work, err = os.MkdirTemp("", "verticalscaler-olm-"); err != nil {
		return 1, fmt.Errorf("making a folder: %w", err)
	}
	defer func() {
		if code == 0 && err == nil {
			_ = os.RemoveAll(work)
		} else {
			fmt.Fprintf(os.Stderr, "Logs are kept in %s\n", work)
		}
	}()
	if err := buildManager(); err != nil {
		return 1, err
	}
	if env, err = testkit.StartClusterWith(testkit.ClusterOptions{ForOLM: true}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := prepareCluster(ctx, paths[crdsVariable]); err != nil {
		return 1, err
	}
	node = startKubelet(ctx)
	defer node.stop()
	store = &catalog{}
	defer store.stop()
	for name, args := range map[string][]string{
		// Both use port 8080 for their metrics. The second one logs the conflict and continues.
		olmVariable:     {"--namespace", olmNamespace, "--writeStatusName", ""},
		catalogVariable: {"--namespace", olmNamespace},
	} {
		cmd := exec.Command(paths[name], args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig())
		started, err := start(name, cmd)
		if err != nil {
			return 1, err
		}
		defer started.Stop(stopTimeout)
	}
	return m.Run(), nil
}

// start starts a program that logs to a file with its name in the folder of the test.
func start(name string, cmd *exec.Cmd) (*process.Process, error) {
	return process.Start(name, filepath.Join(work, name+".log"), cmd)
}

// programs finds the programs and files that the tests need but do not build.
func programs() error {
	for _, name := range []string{olmVariable, catalogVariable, opmVariable, v1Variable, crdsVariable, bundleVariable} {
		path := os.Getenv(name)
		if path != "" && !filepath.IsAbs(path) {
			path = filepath.Join(testkit.Root(), path)
		}
		if _, err := os.Stat(path); path == "" || err != nil {
			return fmt.Errorf("these tests need OLM: run them with make test-olm, which builds it; %s=%q names no file", name, path)
		}
		paths[name] = path
	}
	return nil
}

func managerPath() string { return filepath.Join(work, "manager") }

// buildManager builds the operator from the source tree, as its image does.
func buildManager() error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", managerPath(), "./cmd/operator")
	cmd.Dir = testkit.Root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the manager: %w\n%s", err, out)
	}
	return nil
}

// prepareCluster creates what OLM and the operator expect in a cluster: OLM's kinds and
// namespace, and the kinds of the Vertical Pod Autoscaler.
func prepareCluster(ctx context.Context, olmCRDs string) error {
	if _, err := envtest.InstallCRDs(env.Config, envtest.CRDInstallOptions{
		Paths:              []string{olmCRDs, filepath.Join(testkit.Root(), "internal", "testkit", "testdata", "verticalpodautoscalers.yaml")},
		ErrorIfPathMissing: true,
	}); err != nil {
		return fmt.Errorf("installing the CRDs of OLM and of others: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: olmNamespace}}
	if err := env.Client.Create(ctx, namespace); err != nil {
		return fmt.Errorf("creating namespace %s: %w", olmNamespace, err)
	}
	return nil
}

// eventually waits, and fails at once if an operator has ended unexpectedly.
func eventually(t *testing.T, f func() string) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		t.Helper()
		node.check(t)
		return f()
	})
}
