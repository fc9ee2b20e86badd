// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

// Package install installs and removes the operator without OLM, on a real control plane,
// with kubectl and the commands of docs/install.md.
package install

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// soon is the timeout of every wait, long enough for a busy machine.
	soon = 2 * time.Minute
	// system is the namespace in dist/install.yaml.
	system = "verticalscaler-system"
	// account is the operator's user name.
	account = "system:serviceaccount:" + system + ":verticalscaler-operator"
)

var env *testkit.Env

func TestMain(m *testing.M) { os.Exit(testkit.ClusterMain(m, &env)) }

// run runs a shell command in the repository, with kubectl for this cluster in its path,
// and returns the output.
func run(t *testing.T, command string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir = testkit.Root()
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(env.Kubectl())+":"+os.Getenv("PATH"), "KUBECONFIG="+env.Kubeconfig())
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must runs a command that has to succeed.
func must(t *testing.T, command string) string {
	t.Helper()
	out, err := run(t, command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// latest is where users find the files of dist.
const latest = "https://github.com/verticalscaler/verticalscaler-operator/releases/latest/download/"

// commandsOf returns the commands in a section of docs/install.md, without comments, and with
// the files of this tree.
func commandsOf(t *testing.T, heading string) (commands []string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "install.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n"+heading+"\n")
	if !found {
		t.Fatalf("docs/install.md has no section %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	_, block, _ := strings.Cut(section, "\n```\n")
	block, _, _ = strings.Cut(block, "\n```")
	for line := range strings.Lines(block) {
		if command, _, _ := strings.Cut(line, " #"); strings.TrimSpace(command) != "" {
			commands = append(commands, strings.ReplaceAll(strings.TrimSpace(command), latest, "dist/"))
		}
	}
	if len(commands) == 0 {
		t.Fatalf("section %q of docs/install.md has no commands", heading)
	}
	return commands
}

// bare removes all traces of the operator from the cluster.
func bare(t *testing.T) {
	t.Helper()
	listed(t)
	must(t, "kubectl delete --ignore-not-found -f dist/install.yaml -f dist/new-pods.yaml -f dist/recreate.yaml -f dist/policies.yaml")
}

// kinds are the resources of the API.
var kinds = []string{"clusterscalingpolicies", "scalingpolicies", "scaleddeployments", "verticalscalers", "verticalscalercheckpoints", "newpodsizes"}

// listed lists the objects of all kinds that exist. Before it deletes a kind, the API server of 1.37 lists its objects.
// Of a kind that nobody has read since it was created, it cannot at once, and may try again only after five minutes. In a
// cluster in use the operator reads all of them.
func listed(t *testing.T) {
	t.Helper()
	for _, kind := range kinds {
		if out, err := run(t, "kubectl get --raw /apis/autoscaling.verticalscaler.io/v1beta1/"+kind); err != nil && !strings.Contains(out, "(NotFound)") {
			t.Fatalf("listing the %s: %v\n%s", kind, err, out)
		}
	}
}

// operator starts the operator with exactly the rights that the installation granted to its
// service account.
func operator(t *testing.T) *testkit.Operator {
	t.Helper()
	return operatorWith(t, testkit.OperatorConfig())
}

// operatorWith starts it with a configuration.
func operatorWith(t *testing.T, c operatorconfig.Operator) *testkit.Operator {
	t.Helper()
	as := *env
	as.Config = rest.CopyConfig(env.Config)
	as.Config.Impersonate = rest.ImpersonationConfig{
		UserName: account, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + system, "system:authenticated"},
	}
	c.Collection.Interval.Duration = 100 * time.Millisecond // each round counts as a minute
	return as.StartOperator(t, c, &podUsage{rounds: time.Now()})
}

// podUsage is a usage source in which all pods have the same usage.
type podUsage struct{ rounds time.Time }

// List implements collect.Source.
func (c *podUsage) List(ctx context.Context, namespace string, _ time.Time) (samples []usage.Sample, refused []usage.Refused, err error) {
	c.rounds = c.rounds.Add(time.Minute)
	var pods corev1.PodList
	if err := env.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, nil, err
	}
	for _, pod := range pods.Items {
		samples = append(samples, usage.Sample{
			Namespace: namespace, Pod: pod.Name, Container: "app", Time: c.rounds, Window: 30 * time.Second,
			CPUMillis: 300, MemoryBytes: 240 << 20,
		})
	}
	return samples, nil, nil
}

// newNamespace creates a namespace, and waits until pods can be created in it.
func newNamespace(t *testing.T) string {
	t.Helper()
	namespace := env.Namespace(t)
	testkit.Eventually(t, soon, func() string {
		return said(env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "default"}, &corev1.ServiceAccount{}))
	})
	return namespace
}

// workload is a Deployment with a scaler.
type workload struct{ namespace, name string }

// scaled creates a Deployment with its scaler and waits until its pods have the decided
// size.
func scaled(t *testing.T, namespace string, mode v1beta1.UpdateMode) workload {
	t.Helper()
	w := workload{namespace, strings.ToLower(string(mode))}
	d := testkit.Deployment(namespace, w.name)
	d.Spec.Replicas = ptr.To(int32(2))
	s := testkit.Scaler(namespace, w.name, w.name)
	s.Spec.UpdatePolicy = v1beta1.UpdatePolicy{UpdateMode: mode, CooldownSeconds: ptr.To(int32(0))}
	for _, obj := range []client.Object{d, s} {
		if err := env.Client.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	w.isSized(t)
	return w
}

// owned creates a ScaledDeployment with two pods. It does not wait.
func owned(t *testing.T, namespace, name string, mode v1beta1.UpdateMode) workload {
	t.Helper()
	w := workload{namespace, name}
	if err := env.Client.Create(t.Context(), &v1beta1.ScaledDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.ScaledDeploymentSpec{
			Replicas: ptr.To(int32(2)), Template: testkit.Deployment(namespace, name).Spec.Template,
			Scaling: &v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{UpdateMode: mode, CooldownSeconds: ptr.To(int32(0))}},
		},
	}); err != nil {
		t.Fatal(err)
	}
	return w
}

// condition returns a condition of the ScaledDeployment.
func (w workload) condition(t *testing.T, kind string) metav1.Condition {
	t.Helper()
	var o v1beta1.ScaledDeployment
	if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: w.name}, &o); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, kind); c != nil && o.Status.ObservedGeneration == o.Generation {
		return *c
	}
	return metav1.Condition{}
}

// owner is the ScaledDeployment by name, without its content.
func (w workload) owner() *v1beta1.ScaledDeployment {
	return &v1beta1.ScaledDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.name}}
}

func patchOwner(t *testing.T, w workload, patch string) {
	t.Helper()
	if err := env.Client.Patch(t.Context(), w.owner(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
}

// isSized waits until the pods have the decided size.
func (w workload) isSized(t *testing.T) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		s := &v1beta1.VerticalScaler{}
		if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: w.name}, s); err != nil {
			return err.Error()
		}
		pods := w.pods(t)
		c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionApplied)
		if c == nil || c.Status != metav1.ConditionTrue || s.Status.Decision == nil || len(pods) != 2 {
			return fmt.Sprintf("%s: %d pods, Applied is %+v", w.name, len(pods), c)
		}
		for _, pod := range pods {
			if got := actualCPU(pod); got < 300 {
				return fmt.Sprintf("pod %s has %dm of CPU applied", pod.Name, got)
			}
		}
		return ""
	})
}

func (w workload) scaler(t *testing.T) *v1beta1.VerticalScaler {
	t.Helper()
	s := &v1beta1.VerticalScaler{}
	if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: w.name}, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (w workload) deploymentToBe() *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.name}}
}

func (w workload) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: w.namespace, Name: w.name}, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// pods returns the pods that are not being deleted.
func (w workload) pods(t *testing.T) (pods []corev1.Pod) {
	t.Helper()
	var list corev1.PodList
	if err := env.Client.List(t.Context(), &list, client.InNamespace(w.namespace), client.MatchingLabels{"app": w.name}); err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods
}

// templateCPU is the CPU request in the pod template.
func (w workload) templateCPU(t *testing.T) int64 {
	t.Helper()
	return w.deployment(t).Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
}

// isRestored checks that the pod template has its original CPU request.
func (w workload) isRestored(t *testing.T) {
	t.Helper()
	if got := w.templateCPU(t); got != 100 {
		t.Errorf("the template of Deployment %s asks for %dm, not for its own 100m", w.name, got)
	}
}

// actualCPU is the CPU request that the kubelet reports as applied, in millicores; 0 for none.
func actualCPU(pod corev1.Pod) int64 {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Resources != nil {
			return status.Resources.Requests.Cpu().MilliValue()
		}
	}
	return 0
}

// gone waits until the object does not exist.
func gone(t *testing.T, obj client.Object) {
	t.Helper()
	testkit.Eventually(t, soon, func() string {
		err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return ""
		}
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%T %s is still there", obj, obj.GetName())
	})
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}
