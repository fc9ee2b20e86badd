// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/metricsapi"
)

// A hot pod among cold ones goes silent, in each way in which a metrics API can leave it out.
// Nothing is lowered, and the scaler names the pod. When it is heard again, lowering may go on. If a
// pod goes silent in the middle of lowering, the other pods keep their size until then.
func TestNothingIsLoweredWhileAPodIsSilent(t *testing.T) {
	testkit.Tidy(t, "the test says itself what each pod uses, and which pod is silent, and how",
		testkit.UnevenUsage, testkit.SilentPods, testkit.SkewedClocks, testkit.Storms)
	w := newSilence(t)
	hot, cold := w.pods[0], w.pods[1]
	w.uses(hot, 900, 700)
	w.sized(700)
	w.rounds(90) // evidence enough to lower

	for _, cause := range []struct{ how, says string }{
		{"absent", "pod " + hot + ": no usage reported"},
		{"without containers", "pod " + hot + ": no usage reported"},
		{"stale", "pod " + hot + ": Stale"},
		{"not a number", "pod " + hot + ": container app NotANumber"},
	} {
		w.leavesOut(hot, cause.how)
		w.says("RecommendationProvided", v1beta1.ReasonMetricsIncomplete, cause.says)
		before := w.sizes()
		w.rounds(60) // an hour by the samples
		w.notLower(cause.how, before)
		mark := env.Mark()
		w.rounds(30)
		if writes := writesOf(t, mark, w.operator.Agent, "verticalscalers/status", "verticalscalercheckpoints"); len(writes) > 0 {
			t.Errorf("%s: writes although nothing has changed: %v", cause.how, writes)
		}
		w.leavesOut(hot, "")
		w.says("RecommendationProvided", v1beta1.ReasonEnoughHistory, "enough usage")
	}

	// More usage of another pod raises while the hot one is silent.
	w.leavesOut(hot, "absent")
	w.says("RecommendationProvided", v1beta1.ReasonMetricsIncomplete, hot)
	before := w.sizes()
	w.uses(cold, 1200, 800)
	w.sized(800)
	w.notLower("with more usage", before)
	w.leavesOut(hot, "")
	w.says("RecommendationProvided", v1beta1.ReasonEnoughHistory, "enough usage")

	// The hot pods cool down. One pod is lowered and verified first, and then another is silent.
	w.uses(hot, 50, 60)
	w.uses(cold, 50, 60)
	testkit.Eventually(t, busy, func() string {
		if n := w.lowered(); n == 0 {
			return "no pod is lowered yet"
		}
		return ""
	})
	last := w.pods[len(w.pods)-1]
	w.leavesOut(last, "absent")
	w.says("RecommendationProvided", v1beta1.ReasonMetricsIncomplete, last)
	w.says("Applied", v1beta1.ReasonMetricsIncomplete, "waits until all running pods report usage (pod "+last+": no usage reported)")
	before = w.sizes()
	w.silentFor(2 * verification)
	w.notLower("in the middle of lowering", before)
	if n := w.lowered(); n == len(w.pods) {
		t.Errorf("all %d pods are lowered", n)
	}
	w.leavesOut(last, "")
	testkit.Eventually(t, busy, func() string {
		if n := w.lowered(); n < len(w.pods) {
			return fmt.Sprintf("%d of %d pods are lowered", n, len(w.pods))
		}
		return ""
	})
}

// verification is how long the first lowered pods are verified. It is longer than the monitor waits
// before it takes a lower request for a violation.
const verification = 8 * time.Second

// longest is what the answers of a test may cover. A day of them takes a minute.
const longest = 20 * 24 * time.Hour

// silence is a Deployment of eight pods, its scaler, and a metrics API that leaves pods out.
type silence struct {
	*testing.T

	namespace string
	pods      []string
	operator  *testkit.Operator

	mu      sync.Mutex
	began   time.Time // when the first answer seems to be
	answers int
	usage   map[string][2]int64 // millicores and MiB, by pod
	omits   map[string]string   // how a pod is left out
}

func newSilence(t *testing.T) *silence {
	t.Helper()
	w := &silence{T: t, namespace: env.Namespace(t), began: time.Now().Add(-longest), usage: map[string][2]int64{}, omits: map[string]string{}}
	d := testkit.Deployment(w.namespace, "web")
	d.Spec.Replicas = ptr.To(int32(8))
	d.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("2Gi")}
	w.must(env.Client.Create(t.Context(), d))
	first, err := env.Run(t.Context(), d)
	w.must(err)
	for i := range 8 {
		pod := first
		if i > 0 {
			pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: w.namespace, Name: strings.TrimSuffix(first.Name, "0") + fmt.Sprint(i), Labels: first.Labels, OwnerReferences: first.OwnerReferences,
			}, Spec: d.Spec.Template.Spec}
			pod.Spec.NodeName = testkit.NodeName
			w.must(env.Client.Create(t.Context(), pod))
		}
		testkit.Actuate(pod)
		started := metav1.NewTime(time.Now().Add(-time.Hour))
		pod.Status.StartTime, pod.Status.ContainerStatuses[0].State.Running.StartedAt = &started, started
		w.must(env.Client.Status().Update(t.Context(), pod))
		w.pods = append(w.pods, pod.Name)
		w.uses(pod.Name, 50, 60)
	}
	d.Status = appsv1.DeploymentStatus{ObservedGeneration: d.Generation, Replicas: 8, UpdatedReplicas: 8, AvailableReplicas: 8, ReadyReplicas: 8}
	w.must(env.Client.Status().Update(t.Context(), d))
	w.kubelet()

	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	source, err := metricsapi.New(&rest.Config{Host: server.URL, QPS: -1})
	w.must(err)
	source.MaxAge = 2 * longest
	s := testkit.Scaler(w.namespace, "web", "web")
	s.Spec.UpdatePolicy.CooldownSeconds = ptr.To(int32(0))
	s.Spec.UpdatePolicy.VerificationSeconds = ptr.To(int32(verification / time.Second))
	w.must(env.Client.Create(t.Context(), s))
	c := testkit.OperatorConfig()
	c.Collection.Interval.Duration = 50 * time.Millisecond
	r := &c.Recommendation
	r.CPUHalfLife.Duration, r.RecentHalfLife.Duration = 4*time.Minute, 2*time.Minute
	r.MemoryWindow.Duration, r.FullEvidence.Duration, r.ConfidenceUnit.Duration = 32*time.Minute, time.Hour, time.Minute
	w.operator = env.StartOperator(t, c, source, w.namespace)
	return w
}

func (w *silence) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// kubelet applies all resizes of the namespace's pods until the test ends. Their processes go on.
func (w *silence) kubelet() {
	watcher, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Client.Scheme()})
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	pods, err := watcher.Watch(ctx, &corev1.PodList{}, client.InNamespace(w.namespace))
	if err != nil {
		cancel()
		w.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range pods.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok || len(pod.Status.ContainerStatuses) == 0 || equality.Semantic.DeepEqual(pod.Status.ContainerStatuses[0].Resources, &pod.Spec.Containers[0].Resources) {
				continue
			}
			status := &pod.Status.ContainerStatuses[0]
			status.Resources, status.AllocatedResources = pod.Spec.Containers[0].Resources.DeepCopy(), pod.Spec.Containers[0].Resources.Requests
			pod.Status.ObservedGeneration = pod.Generation
			if err := env.Client.Status().Update(ctx, pod); err != nil && !apierrors.IsConflict(err) && ctx.Err() == nil {
				w.Errorf("applying a resize: %v", err)
			}
		}
	}()
	w.Cleanup(func() { cancel(); <-done })
}

// ServeHTTP is the metrics API. Each answer is one minute after the one before.
func (w *silence) ServeHTTP(response http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers++
	at := w.began.Add(time.Duration(w.answers) * time.Minute)
	items := []any{}
	for _, pod := range w.pods {
		timestamp, cpu := at, fmt.Sprintf("%dm", w.usage[pod][0])
		containers := []any{}
		switch w.omits[pod] {
		case "absent":
			continue
		case "stale":
			timestamp = at.Add(-3 * longest)
		case "not a number":
			cpu = "NaN"
		}
		if w.omits[pod] != "without containers" {
			containers = append(containers, map[string]any{"name": "app", "usage": map[string]any{"cpu": cpu, "memory": fmt.Sprintf("%dMi", w.usage[pod][1])}})
		}
		items = append(items, map[string]any{
			"metadata": map[string]any{"name": pod, "namespace": w.namespace}, "timestamp": timestamp.Format(time.RFC3339), "window": "30s", "containers": containers,
		})
	}
	response.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(response).Encode(map[string]any{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "items": items}); err != nil {
		w.Errorf("answering: %v", err)
	}
}

// uses sets the usage of a pod from now on.
func (w *silence) uses(pod string, millis, mebi int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.usage[pod] = [2]int64{millis, mebi}
}

// leavesOut leaves a pod out of the answers from now on; no longer if how is empty.
func (w *silence) leavesOut(pod, how string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.omits[pod] = how
}

// rounds waits for that many more rounds.
func (w *silence) rounds(n int) {
	w.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.answers
	}
	until := count() + n
	testkit.Eventually(w, busy, func() string {
		if now := count(); now < until {
			return fmt.Sprintf("%d answers of %d", now, until)
		}
		return ""
	})
}

// silentFor waits that long, in rounds.
func (w *silence) silentFor(d time.Duration) {
	w.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		w.rounds(10)
	}
}

// sizes are the recommended requests, and those of the pods, in millicores and MiB.
func (w *silence) sizes() map[string][2]int64 {
	w.Helper()
	out := map[string][2]int64{}
	var pods corev1.PodList
	w.must(env.Client.List(w.Context(), &pods, client.InNamespace(w.namespace)))
	for _, pod := range pods.Items {
		requests := pod.Spec.Containers[0].Resources.Requests
		out[pod.Name] = [2]int64{requests.Cpu().MilliValue(), requests.Memory().Value() >> 20}
	}
	var s v1beta1.VerticalScaler
	w.must(env.Client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web"}, &s))
	if s.Status.Recommendation != nil {
		target := s.Status.Recommendation.ContainerRecommendations[0].Target
		out["the target"] = [2]int64{target.CPU.MilliValue(), target.Memory.Value() >> 20}
	}
	return out
}

// notLower fails if a size is lower than before.
func (w *silence) notLower(when string, before map[string][2]int64) {
	w.Helper()
	now := w.sizes()
	for what, size := range before {
		if now[what][0] < size[0] || now[what][1] < size[1] {
			w.Errorf("%s: %s falls from %v to %v", when, what, size, now[what])
		}
	}
}

// sized waits until the target and each pod have at least that much memory.
func (w *silence) sized(mebi int64) {
	w.Helper()
	testkit.Eventually(w, busy, func() string {
		sizes := w.sizes()
		for _, size := range sizes {
			if size[1] < mebi {
				return fmt.Sprintf("the sizes are %v", sizes)
			}
		}
		return ""
	})
}

// lowered is the number of pods that request little memory.
func (w *silence) lowered() (n int) {
	w.Helper()
	for what, size := range w.sizes() {
		if size[1] < 700 && what != "the target" {
			n++
		}
	}
	return n
}

// says waits for a condition with this reason and message.
func (w *silence) says(condition, reason, message string) {
	w.Helper()
	testkit.Eventually(w, busy, func() string {
		var s v1beta1.VerticalScaler
		if err := env.Client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web"}, &s); err != nil {
			return err.Error()
		}
		c := meta.FindStatusCondition(s.Status.Conditions, condition)
		if c == nil || c.Reason != reason || !strings.Contains(c.Message, message) {
			return fmt.Sprintf("%s is %+v, want %s: %q", condition, c, reason, message)
		}
		return ""
	})
}
