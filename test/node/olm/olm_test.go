// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build node

// Package olm installs the operator through the Operator Lifecycle Manager on a real node,
// as a user does: with operator-sdk, from images in a registry. It needs root on Linux;
// "make test-node-olm" prepares what it needs.
package olm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/node/internal/realnode"
)

const (
	operator  = "verticalscaler-operator"
	namespace = "verticalscaler-system"
	// enforce is the label with the pod security level of a namespace.
	enforce = "pod-security.kubernetes.io/enforce"
	// busybox is the image that operator-sdk uses to unpack files.
	busybox = "verticalscaler.local/busybox:dev"
	// long is the timeout of every wait. The operator runs with the configuration of its
	// bundle, in which the first recommendation needs two minutes of evidence.
	long     = 8 * time.Minute
	replicas = 2
)

var (
	node *realnode.Node
	load = client.ObjectKey{Namespace: "default", Name: "load"}
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	realnode.Main(m, "olm-node/up.sh", func(n *realnode.Node) error {
		node = n
		install := realnode.Script("olm-node/install.sh", "-dir", n.Dir)
		install.Stdout, install.Stderr = os.Stdout, os.Stderr
		return install.Run()
	})
}

// TestLifecycle follows the operator from its installation to its removal. Each step needs
// the steps before it.
func TestLifecycle(t *testing.T) {
	passed := t.Run("operator-sdk run bundle installs the operator", runsBundle) &&
		t.Run("its pod runs in a namespace that enforces restricted pods", runsRestricted) &&
		t.Run("pods are resized in the cgroup without a restart", resizes) &&
		t.Run("operator-sdk scorecard passes in pods", scorecard) &&
		t.Run("operator-sdk cleanup leaves the workload as it is", cleansUp)
	if !passed {
		show(t)
	}
}

// runsBundle installs the content of the bundle image.
func runsBundle(t *testing.T) {
	// The pod with which operator-sdk serves the bundle does not comply with "restricted".
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{enforce: "baseline"}}})
	sdk(t, "run", "bundle", imageOf(t, "bundle"), "--install-mode=AllNamespaces", "--namespace="+namespace,
		"--index-image="+imageOf(t, "opm"), "--decompression-image="+busybox, "--security-context-config=restricted",
		"--timeout="+long.String())
	isInstalled(t)
}

// runsRestricted labels the namespace, and recreates the pod.
func runsRestricted(t *testing.T) {
	label(t, "restricted")
	before := operatorPod(t)
	must.Succeed(t, node.Client.Delete(t.Context(), &before))
	var pod corev1.Pod
	testkit.Eventually(t, long, func() string {
		pod = operatorPod(t)
		if pod.UID == before.UID {
			return "the old pod is still there"
		}
		return notReady(pod)
	})
	const user = "65532:65532"
	testkit.Eventually(t, long, func() string { // The process of the old pod may still be stopping.
		// As the kernel reports it, not the API.
		out, err := node.Exec(t.Context(), "sh", "-c",
			`for exe in /proc/[0-9]*/exe; do [ "$(readlink "$exe")" != /manager ] || stat -c %u:%g "${exe%/exe}"; done`).Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != user {
			return fmt.Sprintf("the operator runs as %q, not as one process of %s: %v", got, user, err)
		}
		return ""
	})
	t.Logf("pod %s is Ready, as user %s", pod.Name, user)
}

func resizes(t *testing.T) {
	create(t, realnode.Deployment(load, replicas))
	create(t, testkit.Scaler(load.Namespace, load.Name, load.Name))
	testkit.Eventually(t, long, func() string {
		if n := len(node.RunningPods(t, load)); n != replicas {
			return fmt.Sprintf("%d pods run", n)
		}
		return ""
	})
	for _, pod := range node.RunningPods(t, load) {
		t.Logf("pod %s: the cgroup has %+v", pod.Name, node.Limits(t, pod))
		node.Load(t, pod, realnode.AppPort, 250, 100)
	}
	testkit.Eventually(t, long, func() string {
		return unapplied(t)
	})
	for _, pod := range node.RunningPods(t, load) {
		t.Logf("pod %s: the cgroup has %+v", pod.Name, node.Limits(t, pod))
	}
	noRestart(t)
}

// unapplied is the reason why the cgroups of the pods do not have a decision that covers the usage.
func unapplied(t *testing.T) string {
	t.Helper()
	s := scaler(t)
	if s.Status.Decision == nil || !meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionApplied) {
		return fmt.Sprintf("not applied: %+v", s.Status.Conditions)
	}
	decided := s.Status.Decision.Containers[0].Requests
	if decided.CPU == nil || decided.Memory == nil || decided.CPU.MilliValue() < 250 || decided.Memory.Value() < 100<<20 {
		return fmt.Sprintf("decided is %+v, below the usage", decided)
	}
	pods := node.RunningPods(t, load)
	if len(pods) != replicas {
		return fmt.Sprintf("%d pods run", len(pods))
	}
	for _, pod := range pods {
		// The limits are three times the CPU and twice the memory.
		got := node.Limits(t, pod)
		if want := 2 * decided.Memory.Value(); got.MemoryLimitBytes != want {
			return fmt.Sprintf("pod %s: the cgroup's memory limit is %d, not %d", pod.Name, got.MemoryLimitBytes, want)
		}
		if want := 3 * decided.CPU.MilliValue() * got.CPUPeriodMicros / 1000; got.CPUQuotaMicros != want {
			return fmt.Sprintf("pod %s: the cgroup's CPU quota is %d, not %d", pod.Name, got.CPUQuotaMicros, want)
		}
	}
	return ""
}

// scorecard runs all tests of the bundle, with exactly the rights that they require.
func scorecard(t *testing.T) {
	const name = "verticalscaler-scorecard"
	if out, err := node.Exec(t.Context(), "kubectl", "apply", "-f", "rbac.yaml").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	config, err := os.ReadFile(filepath.Join(testkit.Root(), "bin", "olm-node", "bundle", "tests", "scorecard", "config.yaml"))
	must.Succeed(t, err)
	out := sdk(t, "scorecard", "bundle", "--namespace="+name, "--service-account="+name, "--pod-security=restricted",
		"--untar-image="+busybox, "--storage-image="+busybox, "--wait-time="+long.String())
	want := bytes.Count(config, []byte("entrypoint:"))
	if got := strings.Count(out, "State: pass"); got != want || want < 6 {
		t.Errorf("%d of %d tests passed", got, want)
	}
	if out, err := node.Exec(t.Context(), "kubectl", "delete", "-f", "rbac.yaml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// cleansUp removes the operator with its CRDs and all scalers.
func cleansUp(t *testing.T) {
	before := map[string]realnode.Limits{}
	for _, pod := range node.RunningPods(t, load) {
		before[pod.Name] = node.Limits(t, pod)
	}
	sdk(t, "cleanup", operator, "--namespace="+namespace, "--timeout="+long.String())

	testkit.Eventually(t, long, func() string {
		crds := &unstructured.UnstructuredList{}
		crds.SetAPIVersion("apiextensions.k8s.io/v1")
		crds.SetKind("CustomResourceDefinitionList")
		if err := node.Client.List(t.Context(), crds); err != nil {
			return err.Error()
		}
		for _, crd := range crds.Items {
			if strings.HasSuffix(crd.GetName(), "."+v1beta1.GroupVersion.Group) {
				return fmt.Sprintf("CRD %s is there, finalizers %v", crd.GetName(), crd.GetFinalizers())
			}
		}
		var pods corev1.PodList
		if err := node.Client.List(t.Context(), &pods, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		if len(pods.Items) > 0 {
			return fmt.Sprintf("pod %s is there", pods.Items[0].Name)
		}
		return ""
	})
	pods := node.RunningPods(t, load)
	if len(pods) != replicas {
		t.Errorf("%d pods of the workload run, not %d", len(pods), replicas)
	}
	for _, pod := range pods {
		if got := node.Limits(t, pod); got != before[pod.Name] {
			t.Errorf("pod %s had %+v in its cgroup, and has %+v", pod.Name, before[pod.Name], got)
		}
	}
	noRestart(t)
}

// noRestart checks that the pods were changed in place.
func noRestart(t *testing.T) {
	t.Helper()
	for _, pod := range node.RunningPods(t, load) {
		if n := pod.Status.ContainerStatuses[0].RestartCount; n != 0 {
			t.Errorf("pod %s was restarted %d times", pod.Name, n)
		}
	}
}

// isInstalled checks that OLM reports the version as installed, and that its pod is ready.
func isInstalled(t *testing.T) {
	t.Helper()
	csv := &unstructured.Unstructured{}
	csv.SetAPIVersion("operators.coreos.com/v1alpha1")
	csv.SetKind("ClusterServiceVersion")
	_, version, _ := strings.Cut(imageOf(t, "bundle"), ":")
	must.Succeed(t, node.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: operator + "." + version}, csv))
	phase, _, _ := unstructured.NestedString(csv.Object, "status", "phase")
	reason, _, _ := unstructured.NestedString(csv.Object, "status", "reason")
	if phase != "Succeeded" || reason != "InstallSucceeded" {
		t.Errorf("%s is %s: %s", csv.GetName(), phase, reason)
	}
	testkit.Eventually(t, long, func() string { return notReady(operatorPod(t)) })
}

// operatorPod returns the newest pod of the operator, or an empty pod if there is none.
func operatorPod(t *testing.T) (newest corev1.Pod) {
	t.Helper()
	var pods corev1.PodList
	must.Succeed(t, node.Client.List(t.Context(), &pods, client.InNamespace(namespace),
		client.MatchingLabels{"app.kubernetes.io/name": operator}))
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil && !pod.CreationTimestamp.Before(&newest.CreationTimestamp) {
			newest = pod
		}
	}
	return newest
}

func notReady(pod corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return ""
		}
	}
	return fmt.Sprintf("pod %q is not ready: %s %+v", pod.Name, pod.Status.Phase, pod.Status.ContainerStatuses)
}

// label sets the pod security standard of the operator's namespace.
func label(t *testing.T, standard string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, enforce, standard)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	must.Succeed(t, node.Client.Patch(t.Context(), ns, client.RawPatch(types.MergePatchType, []byte(patch))))
}

func scaler(t *testing.T) (s v1beta1.VerticalScaler) {
	t.Helper()
	must.Succeed(t, node.Client.Get(t.Context(), load, &s))
	return s
}

// imageOf is the name of an image in the registry.
func imageOf(t *testing.T, kind string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(testkit.Root(), "bin", "olm-node", "images", "names"))
	must.Succeed(t, err)
	for line := range strings.Lines(string(content)) {
		if folder, name, _ := strings.Cut(strings.TrimSpace(line), " "); folder == kind {
			return name
		}
	}
	t.Fatalf("there is no image %s", kind)
	return ""
}

// sdk runs operator-sdk inside the node. It prints the output as progress, and returns it.
func sdk(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long+time.Minute)
	defer cancel()
	var out bytes.Buffer
	fmt.Printf("$ operator-sdk %s\n", strings.Join(args, " "))
	command := node.Exec(ctx, append([]string{"./operator-sdk"}, args...)...)
	command.Stdout = io.MultiWriter(&out, shortLines{os.Stdout})
	command.Stderr = command.Stdout
	start := time.Now()
	if err := command.Run(); err != nil {
		t.Fatalf("operator-sdk %s: %v", args[0], err)
	}
	t.Logf("operator-sdk %s took %.0fs", strings.Join(args[:min(2, len(args))], " "), time.Since(start).Seconds())
	return out.String()
}

// shortLines shortens the log: one of the scorecard's tests prints whole CRDs in a line.
type shortLines struct{ io.Writer }

func (w shortLines) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		if len(line) > 300 {
			line = line[:300] + "...\n"
		}
		if _, err := io.WriteString(w.Writer, line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// show prints the relevant objects after a failed step, and the end of the operator's log.
func show(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, args := range [][]string{
		{"get", "events", "-A"},
		{"get", "pods,jobs,catalogsources,subscriptions,installplans,clusterserviceversions", "-A"},
		{"get", "customresourcedefinitions"},
		{"logs", "--namespace=" + namespace, "--selector=app.kubernetes.io/name=" + operator, "--tail=20"},
	} {
		fmt.Printf("$ kubectl %s\n", strings.Join(args, " "))
		command := node.Exec(ctx, append([]string{"kubectl"}, args...)...)
		command.Stdout = shortLines{os.Stdout}
		command.Stderr = command.Stdout
		if err := command.Run(); err != nil {
			t.Logf("kubectl %s: %v", args[0], err)
		}
	}
}

func create(t *testing.T, obj client.Object) {
	t.Helper()
	must.Succeed(t, node.Client.Create(t.Context(), obj))
}
