// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// busy is how long a change may take on a busy machine.
const busy = 2 * time.Minute

// kubelets applies all requested and past resizes of any pod, until the test ends.
func kubelets(t *testing.T) {
	t.Helper()
	watcher, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Client.Scheme()})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	pods, err := watcher.Watch(ctx, &corev1.PodList{})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range pods.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || len(pod.Status.ContainerStatuses) == 0 || equality.Semantic.DeepEqual(pod.Status.ContainerStatuses[0].Resources, &pod.Spec.Containers[0].Resources) {
				continue
			}
			world.Actuate(pod, metav1.Now())
			if err := env.Client.Status().Update(ctx, pod); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				t.Errorf("applying a resize: %v", err)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// scaled creates a Deployment with one pod and a scaler, without a cooldown.
func scaled(ctx context.Context, namespace, name string, mode v1beta1.UpdateMode, changes ...func(*appsv1.Deployment)) error {
	d := testkit.Deployment(namespace, name)
	d.Spec.Replicas = ptr.To(int32(1))
	for _, change := range changes {
		change(d)
	}
	if err := env.Client.Create(ctx, d); err != nil {
		return err
	}
	if _, err := env.Run(ctx, d); err != nil {
		return err
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1, ReadyReplicas: 1}
	if err := env.Client.Status().Update(ctx, d); err != nil {
		return err
	}
	s := testkit.Scaler(namespace, name, name)
	s.Spec.UpdatePolicy.UpdateMode = mode
	s.Spec.UpdatePolicy.CooldownSeconds = ptr.To(int32(0))
	return env.Client.Create(ctx, s)
}

func podOf(name string) string { return name + "-5d4f8b-0" }

// writesOf returns the operator's writes of these resources since the mark, by time.
func writesOf(t *testing.T, mark testkit.AuditMark, agent string, resources ...string) (out []testkit.Write) {
	t.Helper()
	for _, write := range env.Writes(t, mark, agent) {
		if slices.Contains(resources, write.Resource) {
			out = append(out, write)
		}
	}
	slices.SortFunc(out, func(a, b testkit.Write) int { return a.Received.Compare(b.Received) })
	return out
}

// runbook runs the command of docs/runbook.md that contains these words, with the
// operator's namespace replaced.
func runbook(t *testing.T, namespace, words string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "runbook.md"))
	must.Succeed(t, err)
	lines := strings.Split(string(text), "\n")
	i := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "kubectl ") && strings.Contains(line, words) })
	if i < 0 {
		t.Fatalf("the runbook has no command with %q", words)
	}
	command := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(lines[i], "verticalscaler-system", namespace))
	command.Env = append(os.Environ(), "KUBECONFIG="+env.Kubeconfig(), "PATH="+filepath.Dir(env.Kubectl())+string(os.PathListSeparator)+os.Getenv("PATH"))
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", lines[i], err, out)
	}
}

// inShort is the one word that kubectl get shows for a scaler.
func inShort(t *testing.T, namespace, name string) string {
	t.Helper()
	if summary := scaler(t, namespace, name).Status.Summary; summary != nil {
		return summary.Reason
	}
	return ""
}

// Recommendations continue, and a new operator reads the switch before it acts.
func TestNothingIsChangedWhileFrozen(t *testing.T) {
	own, namespace := env.Namespace(t), env.Namespace(t)
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 200 * time.Millisecond
	c.Freeze.Namespace = own
	use := testkit.NewUsage()
	modes := map[string]v1beta1.UpdateMode{"rolled": v1beta1.UpdateModeRollout, "web": v1beta1.UpdateModeInPlace, "api": v1beta1.UpdateModeInPlace}
	uses := func(cpuMillis int64) {
		for name := range modes {
			use.Set(namespace, podOf(name), "app", cpuMillis, 240<<20)
		}
	}
	for name, mode := range modes {
		must.Succeed(t, scaled(t.Context(), namespace, name, mode))
	}
	uses(300)
	operator := env.StartOperator(t, c, use, namespace)
	kubelets(t)
	touches := func(since testkit.AuditMark) (out []testkit.Write) {
		for _, write := range writesOf(t, since, operator.Agent, "pods/resize", "pods", "pods/eviction", "deployments") {
			if write.Code < 300 {
				out = append(out, write)
			}
		}
		return out
	}
	testkit.Eventually(t, busy, func() string {
		if got := len(touches(0)); got < len(modes) {
			return fmt.Sprintf("%d of %d changes", got, len(modes))
		}
		return ""
	})

	runbook(t, own, "create configmap verticalscaler-freeze")
	shows := func(reason string, names ...string) { // on every scaler, also on one that has nothing to change
		t.Helper()
		testkit.Eventually(t, busy, func() string {
			for _, name := range names {
				if got := inShort(t, namespace, name); got != reason {
					return name + " is " + got
				}
			}
			return ""
		})
	}
	shows(v1beta1.ReasonFrozen, "web", "api", "rolled")
	// The original values are not restored either, so the scaler stays.
	rolled := scaler(t, namespace, "rolled")
	remove(t, rolled)
	testkit.Eventually(t, busy, func() string {
		var list eventsv1.EventList
		if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			return err.Error()
		}
		for _, event := range list.Items {
			if event.Regarding.UID == rolled.UID && event.Reason == "Blocked" && strings.Contains(event.Note, "Frozen: Waiting to restore the original values") {
				return ""
			}
		}
		return "no event tells why the scaler stays"
	})
	frozen := env.Mark()
	operator.Stop(t)
	uses(900)
	operator = env.StartOperator(t, c, use, namespace)
	testkit.Eventually(t, busy, func() string {
		for name := range modes {
			s := scaler(t, namespace, name)
			if r := s.Status.Recommendation; r == nil || name != "rolled" && r.ContainerRecommendations[0].Target.CPU.MilliValue() < 900 {
				return fmt.Sprintf("%s is recommended %+v", name, r)
			}
			const want = "/verticalscaler-freeze freezes changes: incident 42"
			if c := meta.FindStatusCondition(s.Status.Conditions, "Applied"); name != "rolled" && c.Message != "ConfigMap "+own+want {
				return "Applied says " + c.Message
			}
			if !meta.IsStatusConditionTrue(s.Status.Conditions, "Ready") {
				return name + " is not Ready"
			}
		}
		return ""
	})
	if writes := touches(frozen); len(writes) > 0 {
		t.Errorf("%d changes once the scalers said that they are frozen, such as %s", len(writes), writes[0])
	}

	runbook(t, own, "delete configmap verticalscaler-freeze")
	shows(v1beta1.ReasonApplied, "web", "api")
	isForgotten(t, rolled)
	var d appsv1.Deployment
	must.Succeed(t, env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "rolled"}, &d))
	if got := d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "100m" {
		t.Errorf("the template was not restored: it requests %s", got)
	}
}

// isForgotten waits until an object is gone.
func isForgotten(t *testing.T, object client.Object) {
	t.Helper()
	testkit.Eventually(t, busy, func() string { return env.Remains(t, object) })
}
