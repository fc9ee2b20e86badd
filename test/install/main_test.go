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
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

const (
	// soon is the timeout of every wait, long enough for a busy machine.
	soon = 2 * time.Minute
	// system is the namespace in dist/install.yaml.
	system = "verticalscaler-system"
	// account is the operator's user name.
	account = "system:serviceaccount:" + system + ":verticalscaler-operator"
)

var (
	env *testkit.Env
	// used is the CPU that each pod uses.
	used = resource.MustParse("300m")
)

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

// mustRun runs a command that has to succeed.
func mustRun(t *testing.T, command string) string {
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
	must.Succeed(t, err)
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
	allowDeletion(t)
	mustRun(t, "kubectl delete --ignore-not-found -f dist/install.yaml -f dist/new-pods.yaml -f dist/recreate.yaml -f dist/policies.yaml")
}

// allow lets the CRD of ScaledDeployments be deleted.
const allow = "kubectl annotate --overwrite crd scaleddeployments.autoscaling.verticalscaler.io autoscaling.verticalscaler.io/allow-deletion=true"

// allowDeletion lets the CRD be deleted if it exists.
func allowDeletion(t *testing.T) {
	t.Helper()
	if out, err := run(t, allow); err != nil && !strings.Contains(out, "(NotFound)") {
		t.Fatalf("%s: %v\n%s", allow, err, out)
	}
}

// kinds are the resources of the API.
var kinds = []string{"clusterscalingpolicies", "scalingpolicies", "scaleddeployments", "verticalscalers", "verticalscalercheckpoints", "newpodsizes"}

// listed lists the objects of all kinds that exist. Before it deletes a kind, the API server of 1.37 lists its objects.
// It cannot at once list a kind that was never read since it was created, and may try again only after five minutes. In
// a cluster in use the operator reads all of them.
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
			CPUMillis: used.MilliValue(), MemoryBytes: 240 << 20,
		})
	}
	return samples, nil, nil
}

// newNamespace creates a namespace, and waits until pods can be created in it.
func newNamespace(t *testing.T) *world.World {
	t.Helper()
	w := world.New(t, env.Client, env.Namespace(t), world.Options{RealTime: func(f func() string) {
		t.Helper()
		testkit.Eventually(t, soon, f)
	}})
	w.Until(func() string {
		return testkit.MessageOf(env.Client.Get(t.Context(), w.Key("default"), &corev1.ServiceAccount{}))
	})
	return w
}

// workload is a Deployment of two pods, with a scaler of the same name.
type workload struct {
	*world.World
	name string
}

// scaled creates a Deployment with its scaler and waits until its pods have the decided size.
func scaled(w *world.World, mode v1beta1.UpdateMode) workload {
	w.Helper()
	d := testkit.Deployment(w.Namespace, strings.ToLower(string(mode)))
	d.Spec.Replicas = ptr.To(int32(2))
	w.Create(d)
	w.Scale(d.Name, world.InMode(mode))
	out := workload{w, d.Name}
	out.isSized()
	return out
}

// owned creates a ScaledDeployment. It does not wait.
func owned(w *world.World, name string, mode v1beta1.UpdateMode) workload {
	w.Helper()
	w.Create(w.NewOwner(name, world.Scaled(mode), func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = ptr.To(int32(2)) }))
	return workload{w, name}
}

// isSized waits until the pods have the decided size, which covers their usage.
func (w workload) isSized() {
	w.Helper()
	w.Until(func() string {
		return testkit.MessageOf(w.Client.Get(w.Context(), w.Key(w.name), &v1beta1.VerticalScaler{}))
	})
	w.Until(func() string {
		if requests := w.Sized(w.name); requests.Cpu().Cmp(used) < 0 {
			return fmt.Sprintf("the pods of %s have %s of CPU", w.name, requests.Cpu())
		}
		return ""
	})
}

// templateCPU is the CPU request in the pod template, in millicores.
func (w workload) templateCPU() int64 {
	w.Helper()
	return w.Deployment(w.name).Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
}

// isRestored checks that the pod template has its original CPU request.
func (w workload) isRestored() {
	w.Helper()
	if got := w.templateCPU(); got != 100 {
		w.Errorf("the template of Deployment %s asks for %dm, not for its own 100m", w.name, got)
	}
}

// pods are the UIDs of the pods.
func (w workload) pods() (uids []string) {
	w.Helper()
	for _, pod := range w.Pods(w.name) {
		uids = append(uids, string(pod.UID))
	}
	slices.Sort(uids)
	return uids
}

// gone waits until the object does not exist.
func gone(t *testing.T, obj client.Object) {
	t.Helper()
	testkit.Eventually(t, soon, func() string { return env.Remains(t, obj) })
}
