// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

const (
	// soon is the timeout of every wait, long enough for a busy machine. OLM retries some
	// steps only after a while, and metrics-server scrapes every 10 s.
	soon = 3 * time.Minute
	// olmNamespace is the namespace of OLM and the catalog.
	olmNamespace = "olm"
)

// update rewrites the golden file of the used rights.
var update = flag.Bool("update", false, "rewrite the golden file in testdata")

var (
	// env is the cluster that all tests share.
	env *testkit.Env
	// work is the folder for all files that the tests write.
	work string
	// node runs the operator's pods.
	node *kubelet
	// store is the catalog that OLM installs from.
	store *catalog
)

// lifecycle is the OLM that the tests are for: v0, unless a test of OLM v1 replaces it.
var lifecycle = lifecycleManager{
	needs: []string{olmVariable, catalogVariable, opmVariable, crdsVariable, bundleVariable},
	crds:  func(paths map[string]string) []string { return []string{paths[crdsVariable]} },
	start: startV0,
}

// lifecycleManager is one of the two versions of OLM.
type lifecycleManager struct {
	// needs are the variables with the programs and files that the tests need.
	needs []string
	// crds are the folders with its CRDs.
	crds func(paths map[string]string) []string
	// start starts its programs.
	start func(ctx context.Context, paths map[string]string) (stop func(), err error)
}

// The variables with the programs and files that the tests need; make test-olm sets them.
const (
	olmVariable     = "OLM_OPERATOR"
	catalogVariable = "OLM_CATALOG"
	opmVariable     = "OPM"
	crdsVariable    = "OLM_CRDS"
	bundleVariable  = "BUNDLE"
)

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
	began := time.Now()
	paths, err := programs()
	if err != nil {
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
	say(began, "manager built")
	if env, err = testkit.StartClusterWith(testkit.ClusterOptions{MetricsServer: true, AuditReads: true, GuardOwners: true, NoCRDs: true}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, env.Stop()) }()
	say(began, "control plane, kwok and metrics-server are up")

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := prepareCluster(ctx, lifecycle.crds(paths)); err != nil {
		return 1, err
	}
	if node, err = startKubelet(ctx); err != nil {
		return 1, err
	}
	defer node.stop()
	stop, err := lifecycle.start(ctx, paths)
	if err != nil {
		return 1, err
	}
	defer stop()
	say(began, "OLM's operators run")
	return m.Run(), nil
}

// startV0 starts OLM v0's operators and prepares its catalog.
func startV0(_ context.Context, paths map[string]string) (stop func(), err error) {
	store = &catalog{opm: paths[opmVariable]}
	running := []func(){store.stop}
	stop = func() {
		for _, stop := range slices.Backward(running) {
			stop()
		}
	}
	for _, p := range []struct {
		name string
		cmd  *exec.Cmd
	}{
		// Both use port 8080 for their metrics. The second one logs the conflict and continues.
		{"olm", exec.Command(paths[olmVariable], "--namespace", olmNamespace, "--writeStatusName", "")},
		{"catalog", exec.Command(paths[catalogVariable], "--namespace", olmNamespace)},
	} {
		p.cmd.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig())
		started, err := start(p.name, p.cmd)
		if err != nil {
			stop()
			return nil, err
		}
		running = append(running, func() { started.Stop(stopTimeout) })
	}
	return stop, nil
}

func say(began time.Time, what string) {
	if testing.Verbose() {
		fmt.Printf("after %s: %s\n", time.Since(began).Round(100*time.Millisecond), what)
	}
}

// programs finds the programs that the tests need but do not build.
func programs() (map[string]string, error) {
	paths := map[string]string{}
	var missing []string
	for _, name := range lifecycle.needs {
		path := os.Getenv(name)
		if path != "" && !filepath.IsAbs(path) {
			path = filepath.Join(testkit.Root(), path)
		}
		if _, err := os.Stat(path); path == "" || err != nil {
			missing = append(missing, fmt.Sprintf("%s=%q", name, path))
		}
		paths[name] = path
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("these tests need OLM: run them with make test-olm or make test-olm-v1, which build it. These variables name no file: %s",
			strings.Join(missing, ", "))
	}
	return paths, nil
}

func managerPath() string { return filepath.Join(work, "manager") }

// buildManager builds the operator from the source tree, as its image does.
func buildManager() error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", managerPath(), ".")
	cmd.Dir = testkit.Root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the manager: %w\n%s", err, out)
	}
	return nil
}

// prepareCluster creates what OLM and the operator expect in a cluster: OLM's kinds and
// namespace, and the kinds of the Prometheus Operator and of the Vertical Pod Autoscaler.
func prepareCluster(ctx context.Context, olmCRDs []string) error {
	if _, err := envtest.InstallCRDs(env.Config, envtest.CRDInstallOptions{
		Paths:              append(olmCRDs, testkit.VPACRD()),
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

// said is the text of an error, or "".
func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

func create(t *testing.T, obj client.Object) {
	t.Helper()
	if err := env.Client.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
}
