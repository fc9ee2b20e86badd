// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

const (
	// assetsVariable names a folder with etcd, kube-apiserver and kubectl.
	assetsVariable = "KUBEBUILDER_ASSETS"
	// binaryVariable names the localcluster binary.
	binaryVariable = "LOCALCLUSTER"
	// clusterVariable names the folder of a running cluster that the packages share:
	// hack/cluster/with.sh sets it.
	clusterVariable = "VERTICALSCALER_TEST_CLUSTER"
	// kubeconfigVariable names the kubeconfig of a running cluster to use.
	kubeconfigVariable = "VERTICALSCALER_TEST_KUBECONFIG"
	// kwokNodes is enough for a thousand pods and 80 CPUs of requests.
	kwokNodes = 10
	// startTimeout is longer than a cluster needs on a busy machine.
	startTimeout = 3 * time.Minute
	// stopTimeout is longer than the components need to stop.
	stopTimeout = 30 * time.Second
)

// StartCluster starts a whole control plane, with a controller manager, a scheduler
// and nodes that kwok plays, and installs our CRDs.
//
// The binary is hack/cluster's, and is built if need be. The cluster that
// hack/cluster/with.sh has started is used instead, if there is one. So is a cluster of
// your own if VERTICALSCALER_TEST_KUBECONFIG names its kubeconfig; tests that need kwok
// or the audit log are then skipped.
func StartCluster() (*Env, error) {
	if folder := os.Getenv(clusterVariable); folder != "" {
		return shareCluster(folder)
	}
	if path := os.Getenv(kubeconfigVariable); path != "" {
		e := &Env{stop: func() error { return nil }}
		return e, e.open(path, true)
	}
	return StartClusterWith(ClusterOptions{})
}

// ClusterOptions are options of StartClusterWith.
type ClusterOptions struct {
	// ForOLM runs metrics-server, which reads the pods' annotations every 10 s, logs every request and not only writes, and leaves
	// the installation of our CRDs to the test. It enables the admission plugin OwnerReferencesPermissionEnforcement, as OpenShift
	// does: it checks whether the author of an owner reference may block the owner's deletion. The plugin learns of new kinds with
	// a delay of half a minute.
	ForOLM bool
	// NoControllers runs neither the controller manager nor the scheduler: the caller does their work.
	NoControllers bool
}

// StartClusterWith starts a cluster like StartCluster, but never a shared one.
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
		// The cluster ends with this process, also after a kill.
		"-parent-pid", strconv.Itoa(os.Getpid()),
		// WritesSince reads one file. The default starts another one after 100 MB.
		"-apiserver-arg", "audit-log-maxsize=0",
	}
	if o.NoControllers {
		flags = append(flags, "-controllers=false", "-scheduler=false")
	}
	policy := auditPolicy()
	if o.ForOLM {
		flags = append(flags, "-metrics-server", "-apiserver-arg", "enable-admission-plugins=OwnerReferencesPermissionEnforcement")
		policy = filepath.Join(filepath.Dir(policy), "audit-policy-reads.yaml")
	}
	flags = append(flags, "-audit-policy", policy)
	home := filepath.Join(dir, "cluster")
	stop, err := runCluster(binary, home, filepath.Join(dir, "localcluster.log"), flags...)
	if err != nil {
		return nil, err
	}
	e := &Env{
		kwok: true, audit: auditLog(home), kubectl: kubectlBeside(binary),
		stop: func() error {
			if err := stop(); err != nil {
				return err
			}
			return os.RemoveAll(dir)
		},
	}
	if err := e.open(adminKubeconfig(home), !o.ForOLM); err != nil {
		return nil, errors.Join(err, e.stop())
	}
	return e, nil
}

// shareCluster uses a running cluster. Stop removes the leftovers of the tests.
func shareCluster(folder string) (*Env, error) {
	binary, err := localcluster()
	if err != nil {
		return nil, err
	}
	e := &Env{kwok: true, audit: auditLog(folder), kubectl: kubectlBeside(binary)}
	e.stop = func() error { return e.clean(context.Background()) }
	return e, e.open(adminKubeconfig(folder), true)
}

// clean removes all namespaces of tests. Scalers with a finalizer are released: their
// operators are gone.
func (e *Env) clean(ctx context.Context) error {
	var namespaces corev1.NamespaceList
	if err := e.Client.List(ctx, &namespaces); err != nil {
		return fmt.Errorf("listing the namespaces of the tests: %w", err)
	}
	for _, namespace := range namespaces.Items {
		if namespace.Name == metav1.NamespaceDefault || strings.HasPrefix(namespace.Name, "kube-") {
			continue
		}
		if err := e.Client.Delete(ctx, &namespace); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting namespace %s: %w", namespace.Name, err)
		}
	}
	var scalers v1beta1.VerticalScalerList
	if err := e.Client.List(ctx, &scalers); err != nil {
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return nil // the tests have removed the CRD
		}
		return fmt.Errorf("listing the scalers of the tests: %w", err)
	}
	release := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	for _, scaler := range scalers.Items {
		if err := e.Client.Patch(ctx, &scaler, release); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("releasing scaler %s/%s: %w", scaler.Namespace, scaler.Name, err)
		}
	}
	return nil
}

// The files of a cluster in its folder.
func adminKubeconfig(folder string) string { return filepath.Join(folder, "admin.kubeconfig") }
func auditLog(folder string) string        { return filepath.Join(folder, "audit.log") }

func kubectlBeside(binary string) string { return filepath.Join(filepath.Dir(binary), "kubectl") }

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

// assets is the folder with etcd, kube-apiserver and kubectl: KUBEBUILDER_ASSETS, or else one that
// is built now.
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

// runCluster starts a cluster in a folder and waits until it is up. The cluster stops last: Ctrl-C is for the tests.
func runCluster(binary, dir, output string, flags ...string) (stop func() error, err error) {
	cluster, err := process.Start("the cluster", output, exec.Command(binary, append([]string{"up", "-dir", dir}, flags...)...))
	if err != nil {
		return nil, err
	}
	stop = func() error {
		cluster.Stop(stopTimeout)
		return cluster.Err()
	}
	for began := time.Now(); time.Since(began) < startTimeout; {
		if _, err := os.Stat(filepath.Join(dir, "ready")); err == nil {
			return stop, nil
		}
		select {
		case <-cluster.Ended:
			return nil, cluster.Failure()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil, errors.Join(fmt.Errorf("the cluster is not up after %s:\n%s", startTimeout, cluster.Tail(20)), stop())
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

// Kubeconfig is the path of the administrator's kubeconfig.
func (e *Env) Kubeconfig() string { return e.kubeconfig }

// Kubectl is the path of kubectl; on a cluster of the user's own it is found in the
// PATH.
func (e *Env) Kubectl() string { return cmp.Or(e.kubectl, "kubectl") }

// NeedKwok skips a test that controls kwok if the cluster has real nodes.
func (e *Env) NeedKwok(t testing.TB) {
	t.Helper()
	if !e.kwok {
		t.Skip("needs kwok nodes, to refuse a resize or to kill a container; this cluster is from " + kubeconfigVariable)
	}
}

// NeedAudit skips a test that counts writes if the cluster's audit log is not readable.
func (e *Env) NeedAudit(t testing.TB) {
	t.Helper()
	if e.audit == "" {
		t.Skip("needs the audit log of the API server; this cluster is from " + kubeconfigVariable)
	}
}

// AwaitGarbageCollector waits until the garbage collector watches the kind of the probe, a valid object. This takes up to a
// minute after the CRD is created or recreated. Until then, the garbage collector does not know the objects of the kind
// that an owner has. It deletes the objects of an owner that is deleted with orphan propagation, and not those of a deleted
// CRD. The probe is created with an owner that does not exist, so the garbage collector deletes it once it watches the
// kind.
func (e *Env) AwaitGarbageCollector(t testing.TB, within time.Duration, probe client.Object) {
	t.Helper()
	probe.SetNamespace(metav1.NamespaceDefault)
	probe.SetGenerateName("probe-")
	probe.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "none"}})
	must.Succeed(t, e.Client.Create(t.Context(), probe))
	Eventually(t, within, func() string {
		err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(probe), probe)
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("the garbage collector has not deleted %T %s, whose owner does not exist: %v", probe, probe.GetName(), err)
	})
}

// ClusterMain runs a package's tests against one whole cluster. It is used like Main.
func ClusterMain(m *testing.M, env **Env) int { return mainWith(m, env, StartCluster) }
