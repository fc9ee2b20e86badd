// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// runWorkloads plays the Deployment controller, the garbage collector and the kubelet in the
// namespaces, until the test ends. Each change of a pod template replaces all pods at once. A
// kubelet applies each resize; no container restarts.
func runWorkloads(t *testing.T, namespaces []string) {
	t.Helper()
	if err := env.Node(t.Context(), testkit.NodeName); err != nil {
		t.Fatal(err)
	}
	watcher, err := client.NewWithWatch(env.Config, client.Options{Scheme: env.Client.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	turns := map[string]*sync.Mutex{} // one for each namespace
	for _, namespace := range namespaces {
		turns[namespace] = &sync.Mutex{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	t.Cleanup(func() { cancel(); done.Wait() })
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.PodList{}} {
		events, err := watcher.Watch(ctx, list)
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() {
			for event := range events.ResultChan() {
				object, ok := event.Object.(client.Object)
				if !ok || !slices.Contains(namespaces, object.GetNamespace()) {
					continue
				}
				done.Go(func() {
					inTurn := turns[object.GetNamespace()]
					inTurn.Lock()
					defer inTurn.Unlock()
					if err := playNewest(ctx, object); err != nil && ctx.Err() == nil {
						t.Errorf("playing the cluster for %s: %v", client.ObjectKeyFromObject(object), err)
					}
				})
			}
		})
	}
}

// playNewest repeats what conflicts with another write.
func playNewest(ctx context.Context, object client.Object) error {
	err := play(ctx, object)
	for apierrors.IsConflict(err) {
		if err = env.Client.Get(ctx, client.ObjectKeyFromObject(object), object); err == nil {
			err = play(ctx, object)
		}
	}
	return client.IgnoreNotFound(err)
}

func play(ctx context.Context, object client.Object) error {
	switch object := object.(type) {
	case *appsv1.Deployment:
		if object.DeletionTimestamp != nil {
			return collect(ctx, object)
		}
		return rollOut(ctx, object)
	case *corev1.Pod:
		return actuate(ctx, object)
	}
	return nil
}

// collect ends a deletion in the foreground.
func collect(ctx context.Context, d *appsv1.Deployment) error {
	if len(d.Finalizers) == 0 {
		return nil
	}
	if err := replacePods(ctx, d, ""); err != nil {
		return err
	}
	d.Finalizers = nil
	return env.Client.Update(ctx, d)
}

// rollOut brings the pods to the Deployment's template, and its status to its spec.
func rollOut(ctx context.Context, d *appsv1.Deployment) error {
	if d.Status.ObservedGeneration >= d.Generation {
		return nil
	}
	template, err := json.Marshal(d.Spec.Template)
	if err != nil {
		return err
	}
	hash := fnv.New32a()
	hash.Write(template)
	name := fmt.Sprintf("%.200s-%x", d.Name, hash.Sum32())
	if err := replacePods(ctx, d, name); err != nil {
		return err
	}
	set, err := newestSet(ctx, d, name)
	if err != nil {
		return err
	}
	const most = 3 // more pods would show nothing new
	replicas := ptr.Deref(d.Spec.Replicas, 1)
	running := int32(0)
	for i := range int32(most) {
		switch err := startOrStop(ctx, set, d.Spec.Template, i, i < replicas); {
		case err == nil && i < replicas:
			running++
		case err != nil && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err):
			return err
		}
	}
	if running == most {
		running = replicas
	}
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: running, UpdatedReplicas: running, AvailableReplicas: running, ReadyReplicas: running,
	}
	return env.Client.Status().Update(ctx, d)
}

// replacePods deletes the Deployment's pods, and its ReplicaSets but the one to keep.
func replacePods(ctx context.Context, d *appsv1.Deployment, keep string) error {
	var sets appsv1.ReplicaSetList
	if err := env.Client.List(ctx, &sets, client.InNamespace(d.Namespace)); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := env.Client.List(ctx, &pods, client.InNamespace(d.Namespace)); err != nil {
		return err
	}
	for _, set := range sets.Items {
		if !metav1.IsControlledBy(&set, d) || set.Name == keep {
			continue
		}
		for _, pod := range pods.Items {
			if metav1.IsControlledBy(&pod, &set) {
				if err := env.Client.Delete(ctx, &pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
					return err
				}
			}
		}
		if err := env.Client.Delete(ctx, &set); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// newestSet returns the ReplicaSet with that name, which is the only one.
func newestSet(ctx context.Context, d *appsv1.Deployment, name string) (*appsv1.ReplicaSet, error) {
	labels := maps.Clone(d.Spec.Template.Labels)
	labels[appsv1.DefaultDeploymentUniqueLabelKey] = name[strings.LastIndex(name, "-")+1:]
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: name, Labels: labels,
			Annotations:     map[string]string{"deployment.kubernetes.io/revision": strconv.FormatInt(d.Generation, 10)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: d.Spec.Template.Spec},
		},
	}
	err := env.Client.Create(ctx, set)
	if apierrors.IsAlreadyExists(err) {
		return set, env.Client.Get(ctx, client.ObjectKeyFromObject(set), set)
	}
	return set, err
}

// startOrStop deletes the pod with that number, or creates one that has been running for two hours.
func startOrStop(ctx context.Context, set *appsv1.ReplicaSet, template corev1.PodTemplateSpec, i int32, wanted bool) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, i), Labels: set.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: template.Spec,
	}
	if !wanted {
		return client.IgnoreNotFound(env.Client.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	}
	pod.Spec.NodeName, pod.Spec.SchedulingGates = testkit.NodeName, nil
	if err := env.Client.Create(ctx, pod); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	world.Actuate(pod, metav1.Now())
	began := metav1.NewTime(time.Now().Add(-2 * time.Hour))
	pod.Status.StartTime = &began
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: began}}
	for i := range pod.Status.ContainerStatuses {
		pod.Status.ContainerStatuses[i].State.Running.StartedAt = began
		pod.Status.ContainerStatuses[i].Started = ptr.To(true)
	}
	return env.Client.Status().Update(ctx, pod)
}

// isActuated says whether the pod has its requested resources.
func isActuated(pod *corev1.Pod) bool {
	for i, status := range pod.Status.ContainerStatuses {
		if i < len(pod.Spec.Containers) && !equality.Semantic.DeepEqual(status.Resources, &pod.Spec.Containers[i].Resources) {
			return false
		}
	}
	return len(pod.Status.ContainerStatuses) > 0
}

// actuate applies a resize.
func actuate(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Status.ContainerStatuses) == 0 || isActuated(pod) || pod.DeletionTimestamp != nil {
		return nil
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		status.Resources = pod.Spec.Containers[i].Resources.DeepCopy()
		status.AllocatedResources = pod.Spec.Containers[i].Resources.Requests
	}
	pod.Status.ObservedGeneration = pod.Generation
	return env.Client.Status().Update(ctx, pod)
}

// unevenUsage reports the usage of all pods in a namespace: the first one uses twice as much as the
// others. Each round is a minute after the one before it. The usage never changes, so that each
// change of a recommendation has another cause.
type unevenUsage struct {
	began time.Time

	mu     sync.Mutex
	rounds map[string]int // by namespace
}

func (u *unevenUsage) List(ctx context.Context, namespace string, _ time.Time) ([]usage.Sample, []usage.Refused, error) {
	var pods corev1.PodList
	if err := env.Client.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return nil, nil, err
	}
	u.mu.Lock()
	u.rounds[namespace]++
	at := u.began.Add(time.Duration(u.rounds[namespace]) * time.Minute)
	u.mu.Unlock()
	var samples []usage.Sample
	for _, pod := range pods.Items {
		share := int64(1)
		if strings.HasSuffix(pod.Name, "-0") {
			share = 2
		}
		for _, c := range pod.Spec.Containers {
			samples = append(samples, usage.Sample{
				Namespace: namespace, Pod: pod.Name, Container: c.Name, Time: at, Window: 30 * time.Second,
				CPUMillis: 100 * share, MemoryBytes: share * 100 << 20,
			})
		}
	}
	return samples, nil, nil
}

func (u *unevenUsage) Rounds(namespace string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rounds[namespace]
}

// state is what users see of a workload, without times, counters and random names.
type state struct {
	texts map[string]string
	// amounts are requests, limits and targets, in thousandths of a core or byte.
	amounts map[string]int64
}

// passing are fields that change although nothing else does, or that repeat others.
var passing = []string{
	"lastTransitionTime", "time", "observedGeneration", "generation", "uid", "observedSeconds", "effectiveSince", "lastRevertTime", "ineffectiveOnPod", "history", "summary",
}

// add adds a value. Objects and lists are added by their fields and items.
func (s *state) add(name string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			if !slices.Contains(passing, key) {
				s.add(name+"."+key, field)
			}
		}
	case []any:
		for i, item := range value {
			if condition, ok := item.(map[string]any); ok && condition["lastTransitionTime"] != nil {
				s.add(fmt.Sprintf("%s.%s", name, condition["type"]), item)
				continue
			}
			s.add(fmt.Sprintf("%s[%d]", name, i), item)
		}
	default:
		text := fmt.Sprint(value)
		q, err := resource.ParseQuantity(text)
		isAmount := slices.Contains([]string{"cpu", "memory", "value"}, name[strings.LastIndex(name, ".")+1:])
		if isAmount && err == nil {
			s.amounts[name] = q.MilliValue()
		} else {
			s.texts[name] = text
		}
	}
}

// isExplanation says whether a value tells how a target came about or why it was decided. That may
// depend on what was before.
func isExplanation(name string) bool {
	return strings.Contains(name, ".reasons[") || strings.HasSuffix(name, ".decision.reason")
}

// isNear says whether two states are equal, and amounts are at most that percentage apart. It
// ignores explanations, and the decision: pods at their target have one if they had another size
// before, and then Applied says Applied instead of WithinTolerance. NewPodsSized is there only with a decision.
func (s *state) isNear(other *state, percent int64) bool {
	const applied = ".conditions.Applied."
	isIgnored := func(name string) bool {
		before, _, isOfApplied := strings.Cut(name, applied)
		both := []string{s.texts[before+applied+"reason"], other.texts[before+applied+"reason"]}
		slices.Sort(both)
		return isExplanation(name) || strings.Contains(name, ".status.decision.") || strings.Contains(name, ".conditions.NewPodsSized.") ||
			isOfApplied && slices.Equal(both, []string{v1beta1.ReasonApplied, v1beta1.ReasonWithinTolerance})
	}
	for name := range merged(s.texts, other.texts) {
		if s.texts[name] != other.texts[name] && !isIgnored(name) {
			return false
		}
	}
	for name := range merged(s.amounts, other.amounts) {
		if a, b := s.amounts[name], other.amounts[name]; max(a-b, b-a)/percent > max(a, b)/100 && !isIgnored(name) {
			return false
		}
	}
	return true
}

// difference lists the names and values that differ, in order.
func (s *state) difference(other *state) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(merged(s.texts, other.texts))) {
		if a, b := s.texts[name], other.texts[name]; a != b {
			out = append(out, fmt.Sprintf("%s: %q -> %q", name, a, b))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(merged(s.amounts, other.amounts))) {
		if a, b := s.amounts[name], other.amounts[name]; a != b {
			out = append(out, fmt.Sprintf("%s: %d -> %d", name, a, b))
		}
	}
	return strings.Join(out, "\n\t")
}

func merged[V cmp.Ordered](a, b map[string]V) map[string]V {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// poll calls f until it returns "", or an error with its last answer. Unlike testkit.Eventually, it
// may be used outside of the test's goroutine.
func poll(ctx context.Context, within time.Duration, f func() string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		began := time.Now()
		what := f()
		if what == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New(what)
		case <-time.After(max(50*time.Millisecond, time.Since(began))):
		}
	}
}
