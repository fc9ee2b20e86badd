// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// soon is the timeout of every wait for the controllers of the cluster.
	soon = 2 * time.Minute
	mebi = int64(1) << 20
)

// fixture is a namespace with its own operator, and the usage of its
// pods.
type fixture struct {
	*testing.T
	namespace string
	usage     *podUsage
	config    operatorconfig.Operator
	operator  *testkit.Operator
	began     testkit.AuditMark
}

// newFixture creates a namespace and starts an operator for it. Each option changes the
// operator's configuration.
func newFixture(t *testing.T, options ...func(*operatorconfig.Operator)) *fixture {
	t.Helper()
	w := &fixture{T: t, namespace: env.Namespace(t), config: testkit.OperatorConfig()}
	for _, option := range options {
		option(&w.config)
	}
	w.usage = &podUsage{Usage: testkit.NewUsage()}
	t.Cleanup(func() {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
		if err := env.Client.Delete(context.Background(), namespace); err != nil {
			t.Logf("deleting the namespace: %v", err)
		}
	})
	w.eventually(func() string { // pods need the service account
		return said(env.Client.Get(t.Context(), w.key("default"), &corev1.ServiceAccount{}))
	})
	w.began = env.Mark()
	w.start()
	return w
}

// quick compresses the history. An hour of usage, which takes six seconds, is then enough
// evidence to lower a request, and its peaks are forgotten.
func quick(c *operatorconfig.Operator) {
	r := &c.Recommendation
	r.CPUHalfLife.Duration = 4 * time.Minute
	r.RecentHalfLife.Duration = 2 * time.Minute
	r.MemoryWindow.Duration = 32 * time.Minute
	r.FullEvidence.Duration = time.Hour
	r.ConfidenceUnit.Duration = time.Minute
}

func (w *fixture) start() {
	w.Helper()
	w.operator = env.StartOperator(w.T, w.config, w.usage, w.namespace)
}

func (w *fixture) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: name}
}

// eventually lets rounds of usage pass, each of which counts as a minute, until f describes nothing that is wrong.
func (w *fixture) eventually(f func() string) {
	w.Helper()
	testkit.Eventually(w.T, soon, func() string {
		wrong := f()
		if wrong != "" {
			w.rounds(1)
		}
		return wrong
	})
}

// rounds makes rounds of usage. Each counts as a minute, and begins when nothing is under way in the cluster.
func (w *fixture) rounds(n int) {
	w.Helper()
	for range n {
		w.rest()
		if w.operator != nil {
			w.operator.Collect(w.T)
		}
	}
}

// mostRest is how long a round waits for the cluster at most: a pod may have no node, or a kubelet may never answer.
const mostRest = time.Second

// rest waits until the controllers and kubelets of the cluster have done their work, so that no hours of usage pass
// while a pod starts.
func (w *fixture) rest() {
	w.Helper()
	for began := time.Now(); w.isUnderWay() && time.Since(began) < mostRest; {
		time.Sleep(20 * time.Millisecond)
	}
}

// isUnderWay reports whether a Deployment or a pod is changing.
func (w *fixture) isUnderWay() bool {
	w.Helper()
	var deployments appsv1.DeploymentList
	var pods corev1.PodList
	for _, list := range []client.ObjectList{&deployments, &pods} {
		if err := env.Client.List(w.Context(), list, client.InNamespace(w.namespace)); err != nil {
			w.Fatal(err)
		}
	}
	return slices.ContainsFunc(deployments.Items, func(d appsv1.Deployment) bool {
		s, want := d.Status, ptr.Deref(d.Spec.Replicas, 1)
		return s.ObservedGeneration != d.Generation || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.Replicas != want
	}) || slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || p.Status.Phase != corev1.PodRunning || p.Status.ObservedGeneration != p.Generation
	})
}

// create creates an object. A scaler without a policy gets a margin of 15 %, so that
// constant usage leads to a distinctive number. A scaler without verificationSeconds gets
// 0. A scaler in the mode InPlace leaves new pods as in the template unless it says otherwise: the
// policy for new pods is for all tests of the cluster, and not all of them install it.
func (w *fixture) create(obj client.Object) {
	w.Helper()
	if scaler, ok := obj.(*v1beta1.VerticalScaler); ok {
		if update := &scaler.Spec.UpdatePolicy; update.NewPods == "" && update.UpdateMode != v1beta1.UpdateModeInitial && update.Fallback != v1beta1.FallbackRecreate {
			update.NewPods = v1beta1.NewPodsAsTemplate
		}
	}
	if scaler, ok := obj.(*v1beta1.VerticalScaler); ok && scaler.Spec.RecommendationPolicy == nil {
		scaler.Spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{SafetyMarginPercent: ptr.To[int32](15)}
	}
	if scaler, ok := obj.(*v1beta1.VerticalScaler); ok && scaler.Spec.UpdatePolicy.VerificationSeconds == nil {
		scaler.Spec.UpdatePolicy.VerificationSeconds = ptr.To[int32](0)
	}
	if err := env.Client.Create(w.Context(), obj); err != nil {
		w.Fatal(err)
	}
}

func (w *fixture) remove(obj client.Object) {
	w.Helper()
	if err := env.Client.Delete(w.Context(), obj, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		w.Fatal(err)
	}
}

// patch sends a merge patch.
func (w *fixture) patch(obj client.Object, format string, args ...any) {
	w.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))
	if err := env.Client.Patch(w.Context(), obj, patch); err != nil {
		w.Fatal(err)
	}
}

// annotate sets an annotation, or removes it if the value is "".
func (w *fixture) annotate(obj client.Object, key, value string) {
	w.Helper()
	encoded := "null"
	if value != "" {
		encoded = fmt.Sprintf("%q", value)
	}
	w.patch(obj, `{"metadata":{"annotations":{%q:%s}}}`, key, encoded)
}

// deploy creates a Deployment with three replicas and waits until it runs.
func (w *fixture) deploy(name string, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	w.Helper()
	d := testkit.Deployment(w.namespace, name)
	d.Spec.Replicas = ptr.To(int32(3))
	for _, change := range changes {
		change(d)
	}
	w.create(d)
	return w.runs(name)
}

// runs waits until the Deployment is rolled out, and returns it.
func (w *fixture) runs(name string) *appsv1.Deployment {
	w.Helper()
	var d *appsv1.Deployment
	w.eventually(func() string {
		d = w.deployment(name)
		s, want := d.Status, *d.Spec.Replicas
		if s.ObservedGeneration != d.Generation || s.UpdatedReplicas != want || s.AvailableReplicas != want || s.Replicas != want {
			return fmt.Sprintf("Deployment %s has %d of %d pods available, %d updated", name, s.AvailableReplicas, want, s.UpdatedReplicas)
		}
		if pods := w.pods(name); len(pods) != int(want) {
			return fmt.Sprintf("Deployment %s has %d pods", name, len(pods))
		}
		return ""
	})
	return d
}

func (w *fixture) deployment(name string) *appsv1.Deployment {
	w.Helper()
	var d appsv1.Deployment
	if err := env.Client.Get(w.Context(), w.key(name), &d); err != nil {
		w.Fatal(err)
	}
	return &d
}

// change updates the Deployment, as a user does who replaces it as a whole.
func (w *fixture) change(name, manager string, f func(*appsv1.Deployment)) {
	w.Helper()
	w.eventually(func() string { // the Deployment controller writes at the same time
		d := w.deployment(name)
		f(d)
		err := env.Client.Update(w.Context(), d, client.FieldOwner(manager))
		if err != nil && !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
		return said(err)
	})
}

// pods returns the Deployment's pods that are not being deleted, by name.
func (w *fixture) pods(name string) []corev1.Pod {
	w.Helper()
	var list corev1.PodList
	if err := env.Client.List(w.Context(), &list, client.InNamespace(w.namespace), client.MatchingLabels{"app": name}); err != nil {
		w.Fatal(err)
	}
	var out []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil {
			out = append(out, pod)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Name < out[j].Name })
	return out
}

func (w *fixture) sets(name string) map[string]int64 {
	w.Helper()
	var list appsv1.ReplicaSetList
	if err := env.Client.List(w.Context(), &list, client.InNamespace(w.namespace), client.MatchingLabels{"app": name}); err != nil {
		w.Fatal(err)
	}
	out := map[string]int64{}
	for _, set := range list.Items {
		out[set.Name] = set.Generation
	}
	return out
}

// scale creates a scaler of the Deployment with that name, without a cooldown.
func (w *fixture) scale(name string, changes ...func(*v1beta1.VerticalScaler)) {
	w.Helper()
	s := testkit.Scaler(w.namespace, name, name)
	s.Spec.UpdatePolicy.CooldownSeconds = ptr.To(int32(0))
	for _, change := range changes {
		change(s)
	}
	w.create(s)
}

func inMode(mode v1beta1.UpdateMode) func(*v1beta1.VerticalScaler) {
	return func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = mode }
}

func (w *fixture) scaler(name string) *v1beta1.VerticalScaler {
	w.Helper()
	var s v1beta1.VerticalScaler
	if err := env.Client.Get(w.Context(), w.key(name), &s); err != nil {
		w.Fatal(err)
	}
	return &s
}

func (w *fixture) condition(name, kind string) metav1.Condition {
	w.Helper()
	if c := meta.FindStatusCondition(w.scaler(name).Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// says waits until a condition has this status and reason, and its message contains all the
// words.
func (w *fixture) says(name, kind, status, reason string, words ...string) {
	w.Helper()
	w.eventually(func() string {
		c := w.condition(name, kind)
		wrong := string(c.Status) != status || c.Reason != reason
		for _, word := range words {
			wrong = wrong || !strings.Contains(c.Message, word)
		}
		if wrong {
			return fmt.Sprintf("%s is %s, %s: %q; want %s, %s, with %q", kind, c.Status, c.Reason, c.Message, status, reason, words)
		}
		return ""
	})
}

// sized waits until the scaler reports that all is applied and every pod has the decided
// requests. It returns those of the first container.
func (w *fixture) sized(name string) *corev1.ResourceList {
	w.Helper()
	var want corev1.ResourceList
	w.eventually(func() string {
		want = nil
		s := w.scaler(name)
		if c := meta.FindStatusCondition(s.Status.Conditions, "Applied"); c == nil || c.Status != metav1.ConditionTrue || c.Reason != "Applied" {
			return fmt.Sprintf("Applied is %+v", c)
		}
		if s.Status.Decision == nil {
			return "there is no decision"
		}
		d := w.deployment(s.Spec.DeploymentName)
		pods := w.pods(d.Spec.Template.Labels["app"])
		if len(pods) != int(*d.Spec.Replicas) {
			return fmt.Sprintf("there are %d pods", len(pods))
		}
		for _, c := range s.Status.Decision.Containers {
			requests := corev1.ResourceList{}
			if c.Requests.CPU != nil {
				requests["cpu"] = *c.Requests.CPU
			}
			if c.Requests.Memory != nil {
				requests["memory"] = *c.Requests.Memory
			}
			if want == nil || c.ContainerName == d.Spec.Template.Spec.Containers[0].Name {
				want = requests
			}
			for _, pod := range pods {
				for kind, amount := range requests {
					if got := actual(pod, c.ContainerName).Requests[kind]; got.Cmp(amount) != 0 {
						return fmt.Sprintf("pod %s has %s of %s applied, not %s", pod.Name, got.String(), kind, amount.String())
					}
				}
			}
		}
		return ""
	})
	return &want
}

// actual is the resources that the kubelet reports as applied.
func actual(pod corev1.Pod, container string) *corev1.ResourceRequirements {
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if status.Name == container && status.Resources != nil {
			return status.Resources
		}
	}
	return &corev1.ResourceRequirements{}
}

// resourcesOf returns the resources in the pod's spec.
func resourcesOf(pod corev1.Pod, container string) *corev1.ResourceRequirements {
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		if c.Name == container {
			return &c.Resources
		}
	}
	return &corev1.ResourceRequirements{}
}

// between fails unless the amount is in the range, including both ends.
func (w *fixture) between(what string, got resource.Quantity, least, most string) {
	w.Helper()
	if got.Cmp(resource.MustParse(least)) < 0 || got.Cmp(resource.MustParse(most)) > 0 {
		w.Errorf("%s is %s, not between %s and %s", what, got.String(), least, most)
	}
}

// writes returns this operator's write requests since the mark, without events.
func (w *fixture) writes(since testkit.AuditMark) []testkit.Write {
	w.Helper()
	env.NeedAudit(w.T)
	all, err := env.WritesSince(since, w.operator.Agent)
	if err != nil {
		w.Fatal(err)
	}
	var out []testkit.Write
	for _, write := range all {
		if write.UserAgent == w.operator.Agent && write.Namespace == w.namespace && write.Resource != "events" {
			out = append(out, write)
		}
	}
	return out
}

// accepted returns the writes that the API server has accepted. It rejects writes that rest
// on an older version of a Deployment, whose controller writes at the same time.
func accepted(writes []testkit.Write) (out []testkit.Write) {
	for _, write := range writes {
		if write.Code < 300 {
			out = append(out, write)
		}
	}
	return out
}

// count counts the writes of a resource by object name.
func count(writes []testkit.Write, resource string) map[string]int {
	out := map[string]int{}
	for _, write := range writes {
		if write.Resource == resource {
			out[write.Name]++
		}
	}
	return out
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// tell logs the number of writes of each kind.
func (w *fixture) tell(what string, writes []testkit.Write) {
	w.Helper()
	kinds := map[string]int{}
	for _, write := range writes {
		kinds[fmt.Sprintf("%s %s (%d)", write.Verb, write.Resource, write.Code)]++
	}
	var words []string
	for kind, n := range kinds {
		words = append(words, fmt.Sprintf("%d %s", n, kind))
	}
	sort.Strings(words)
	w.Logf("%s: %d writes: %s", what, len(writes), strings.Join(words, ", "))
}

// noted waits for an event on the object whose note contains all the words.
func (w *fixture) noted(uid types.UID, reason string, words ...string) {
	w.Helper()
	w.eventually(func() string {
		var list eventsv1.EventList
		if err := env.Client.List(w.Context(), &list, client.InNamespace(w.namespace)); err != nil {
			return err.Error()
		}
		var seen []string
		for _, event := range list.Items {
			if event.Regarding.UID != uid {
				continue
			}
			ok := event.Reason == reason
			for _, word := range words {
				ok = ok && strings.Contains(event.Note, word)
			}
			if ok {
				return ""
			}
			seen = append(seen, event.Reason+": "+event.Note)
		}
		return fmt.Sprintf("no event %s with %q among %q", reason, words, seen)
	})
}

func said(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// gone waits until the object does not exist.
func (w *fixture) gone(obj client.Object) {
	w.Helper()
	w.eventually(func() string {
		err := env.Client.Get(w.Context(), client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) {
			return ""
		}
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%T %s is still there", obj, obj.GetName())
	})
}

// podUsage is a usage source in which all pods of a Deployment have the same usage, including
// future pods.
type podUsage struct {
	*testkit.Usage

	mu   sync.Mutex
	uses map[string]use // by Deployment and container
}

type use struct {
	deployment, container  string
	cpuMillis, memoryBytes int64
}

// uses sets the usage of a container in each pod of the Deployment from now on.
func (w *fixture) uses(deployment, container string, cpuMillis, memoryMebi int64) {
	c := w.usage
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uses == nil {
		c.uses = map[string]use{}
	}
	c.uses[deployment+"/"+container] = use{deployment, container, cpuMillis, memoryMebi * mebi}
}

// List implements collect.Source.
func (c *podUsage) List(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error) {
	pods := metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	if err := env.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pod := range pods.Items {
		for _, use := range c.uses {
			if pod.Labels["app"] == use.deployment {
				c.Set(namespace, pod.Name, use.container, use.cpuMillis, use.memoryBytes)
			}
		}
	}
	return c.Usage.List(ctx, namespace, now)
}

// withProxy gives the template a native sidecar between two init containers that end.
func withProxy(d *appsv1.Deployment) {
	proxy := testkit.Container("proxy")
	proxy.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	d.Spec.Template.Spec.InitContainers = []corev1.Container{testkit.Container("first"), proxy, testkit.Container("second")}
}
