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
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// A change may take this long on a busy machine, and a thousand changes much longer.
const (
	busy   = 2 * time.Minute
	stormy = 8 * time.Minute
)

// kubelets applies all requested and past resizes of any pod, until the test ends.
func kubelets(t *testing.T) {
	t.Helper()
	watcher, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
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
func scaled(ctx context.Context, namespace, name string, mode v1beta1.UpdateMode) error {
	d := testkit.Deployment(namespace, name)
	d.Spec.Replicas = ptr.To(int32(1))
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

// appliedReasons counts the scalers of the namespaces by the reason of Applied.
func appliedReasons(t *testing.T, namespaces ...string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, namespace := range namespaces {
		var list v1beta1.VerticalScalerList
		if err := env.Client.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Items {
			if c := meta.FindStatusCondition(s.Status.Conditions, "Applied"); c != nil {
				out[c.Reason]++
			}
		}
	}
	return out
}

// writesOf returns the operator's writes of these resources since the mark, by time.
func writesOf(t *testing.T, mark testkit.AuditMark, agent string, resources ...string) (out []testkit.Write) {
	t.Helper()
	all, err := env.WritesSince(mark, agent)
	if err != nil {
		t.Fatal(err)
	}
	for _, write := range all {
		if slices.Contains(resources, write.Resource) {
			out = append(out, write)
		}
	}
	slices.SortFunc(out, func(a, b testkit.Write) int { return a.Received.Compare(b.Received) })
	return out
}

// busiest is the largest number of these writes in any window.
func busiest(writes []testkit.Write, window time.Duration) (most int) {
	for i, j := 0, 0; j < len(writes); j++ {
		for writes[j].Received.Sub(writes[i].Received) >= window {
			i++
		}
		most = max(most, j-i+1)
	}
	return most
}

// runbook runs the command of docs/runbook.md that contains these words, with the
// operator's namespace replaced.
func runbook(t *testing.T, namespace, words string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "runbook.md"))
	if err != nil {
		t.Fatal(err)
	}
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

func TestNothingIsChangedWhileFrozen(t *testing.T) {
	const some = 40
	own, namespace := env.Namespace(t), env.Namespace(t)
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 200 * time.Millisecond
	c.Freeze.Namespace = own
	// Four changes a second, so that the freeze begins between them.
	c.Budget = operatorconfig.Budget{ChangesPerMinute: 2, ChangesPerMinutePerNamespace: 2, Window: 500 * time.Millisecond}
	use := testkit.NewUsage()
	name := func(i int) string { return fmt.Sprintf("d-%02d", i) }
	if err := scaled(t.Context(), namespace, "rolled", v1beta1.UpdateModeRollout); err != nil {
		t.Fatal(err)
	}
	use.Set(namespace, podOf("rolled"), "app", 300, 240<<20)
	began := env.Mark()
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
	wrote := func(n int) {
		t.Helper()
		testkit.Eventually(t, busy, func() string {
			if got := len(touches(began)); got < n {
				return fmt.Sprintf("%d of %d changes", got, n)
			}
			return ""
		})
	}
	wrote(1) // the template is taken over
	testkit.InParallel(t, some, func(i int) error { return scaled(t.Context(), namespace, name(i), v1beta1.UpdateModeInPlace) })
	for i := range some {
		use.Set(namespace, podOf(name(i)), "app", 300, 240<<20)
	}
	wrote(6)

	mark := env.Mark()
	runbook(t, own, "create configmap verticalscaler-freeze")
	made := writesOf(t, mark, "kubectl", "configmaps")[0].Answered
	testkit.Eventually(t, busy, func() string {
		reasons := appliedReasons(t, namespace)
		if reasons[v1beta1.ReasonWaitingForBudget]+reasons[v1beta1.ReasonResizing] > 0 || reasons[v1beta1.ReasonFrozen] == 0 {
			return fmt.Sprintf("scalers by reason: %v", reasons)
		}
		return ""
	})
	held, frozen := appliedReasons(t, namespace), env.Mark()
	for i := range some {
		s := scaler(t, namespace, name(i))
		c := meta.FindStatusCondition(s.Status.Conditions, "Applied")
		if want := "ConfigMap " + own + "/verticalscaler-freeze freezes changes: incident 42"; c.Reason == v1beta1.ReasonFrozen && c.Message != want {
			t.Errorf("Applied says %q, not %q", c.Message, want)
		}
		if !meta.IsStatusConditionTrue(s.Status.Conditions, "Ready") {
			t.Errorf("scaler %s is not Ready", s.Name)
		}
	}
	// A freeze shows on every scaler, also on those that have nothing to change.
	testkit.Eventually(t, busy, func() string {
		for i := range some {
			if got := inShort(t, namespace, name(i)); got != v1beta1.ReasonFrozen {
				return fmt.Sprintf("%s is %s", name(i), got)
			}
		}
		return ""
	})
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
	// Recommendations continue, and a new operator reads the switch before it acts.
	operator.Stop(t)
	for i := range some {
		use.Set(namespace, podOf(name(i)), "app", 900, 240<<20)
	}
	operator = env.StartOperator(t, c, use, namespace)
	testkit.Eventually(t, busy, func() string {
		for i := range some {
			if r := scaler(t, namespace, name(i)).Status.Recommendation; r == nil || r.ContainerRecommendations[0].Target.CPU.MilliValue() < 900 {
				return fmt.Sprintf("%s is recommended %+v", name(i), r)
			}
		}
		return ""
	})
	if writes := touches(frozen); len(writes) > 0 {
		t.Errorf("%d changes once the scalers said that they are frozen, such as %s", len(writes), writes[0])
	}
	var last time.Duration
	for _, write := range touches(mark) {
		last = max(last, write.Received.Sub(made))
	}
	t.Logf("%d of %d scalers were frozen; the last change began %s after the switch was created", held[v1beta1.ReasonFrozen], some, last)

	runbook(t, own, "delete configmap verticalscaler-freeze")
	testkit.Eventually(t, busy, func() string {
		if reasons := appliedReasons(t, namespace); reasons[v1beta1.ReasonApplied] != some {
			return fmt.Sprintf("scalers by reason: %v", reasons)
		}
		for i := range some {
			if got := inShort(t, namespace, name(i)); got != v1beta1.ReasonApplied {
				return fmt.Sprintf("%s is still %s", name(i), got)
			}
		}
		return ""
	})
	testkit.Eventually(t, busy, func() string {
		err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(rolled), &v1beta1.VerticalScaler{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the scaler that was deleted is still there: %v", err)
		}
		return ""
	})
	var d appsv1.Deployment
	if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: "rolled"}, &d); err != nil {
		t.Fatal(err)
	}
	if got := d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String(); got != "100m" {
		t.Errorf("the template was not restored: it requests %s", got)
	}
}

// A storm: all scalers are out of range at once. The budget window is shorter than a minute
// to shorten the test.
func TestAStormStaysWithinTheBudget(t *testing.T) {
	const (
		most         = 40
		perNamespace = 16
		window       = 2 * time.Second
	)
	many := 400
	if testing.Short() {
		many = 100
	}
	var namespaces []string
	for range 4 {
		namespaces = append(namespaces, env.Namespace(t))
	}
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 5 * time.Second
	c.Budget = operatorconfig.Budget{ChangesPerMinute: most, ChangesPerMinutePerNamespace: perNamespace, Window: window}
	use := testkit.NewUsage()
	testkit.InParallel(t, many, func(i int) error {
		name := fmt.Sprintf("d-%04d", i)
		use.Set(namespaces[i%4], podOf(name), "app", 300, 240<<20)
		return scaled(t.Context(), namespaces[i%4], name, v1beta1.UpdateModeInPlace)
	})
	mark, began := env.Mark(), time.Now()
	operator := env.StartOperator(t, c, use, namespaces...)
	kubelets(t)
	waited := 0
	testkit.Eventually(t, stormy, func() string {
		reasons := appliedReasons(t, namespaces...)
		waited = max(waited, reasons[v1beta1.ReasonWaitingForBudget])
		if reasons[v1beta1.ReasonApplied] < many {
			return fmt.Sprintf("scalers by reason: %v", reasons)
		}
		return ""
	})
	took := time.Since(began)
	changes := writesOf(t, mark, operator.Agent, "pods/resize")
	statuses := writesOf(t, mark, operator.Agent, "verticalscalers/status")
	t.Logf("%d scalers out of range at once, %d of them waiting at the same time, converged after %s: %d resizes, at most %d in any %s; %d statuses",
		many, waited, took.Round(time.Second), len(changes), busiest(changes, window), window, len(statuses))
	if got := busiest(changes, window); got > most {
		t.Errorf("%d changes within %s, of %d", got, window, most)
	}
	for _, namespace := range namespaces {
		in := slices.DeleteFunc(slices.Clone(changes), func(w testkit.Write) bool { return w.Namespace != namespace })
		if got := busiest(in, window); got > perNamespace {
			t.Errorf("%d changes of a namespace within %s, of %d", got, window, perNamespace)
		}
	}
	// The only additional requests are retries after a conflict.
	if n := len(changes); n < many || n > many+many/10 {
		t.Errorf("%d resizes", n)
	}
	if waited == 0 {
		t.Log("no change had to wait: this machine makes fewer changes than the budget allows")
	}
	// The status changes at most this often: found, recommended, waiting, resizing,
	// applied, and a new recommendation because the history grows. A write for each retry
	// would exceed this by far.
	if n := len(statuses); n > 15*many {
		t.Errorf("%d statuses were written", n)
	}
}
