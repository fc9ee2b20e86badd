// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AppLabel is the label by which scripts and usage know the pods of a Deployment.
const AppLabel = "app"

// Nodes are the nodes of pods, in turn, and how far their clocks are ahead of the world's.
var Nodes = []struct {
	Name  string
	Ahead time.Duration
}{{"node-1", 0}, {"node-ahead", 5 * time.Second}, {"node-behind", -20 * time.Second}}

// Answer is the answer of a kubelet to a resize.
type Answer string

// The answers of a kubelet.
const (
	// Actuates applies the resize at once.
	Actuates Answer = ""
	// Late reports that the resize is in progress, and applies it in the next round of work.
	Late Answer = "late"
	// Deferred keeps the resize for later.
	Deferred Answer = "deferred"
	// Infeasible refuses the resize for good.
	Infeasible Answer = "infeasible"
	// Fails accepts the resize and cannot actuate it.
	Fails Answer = "error"
)

// Kubelet plays the kubelets of the world's pods, and its scheduler: a pod without a node gets one.
type Kubelet struct {
	world    *World
	scripts  map[scripted]Answer
	ordinals map[types.UID]int // the order in which the pods of an app were seen, from 0
	seen     map[string]int    // the number of pods by app
	// restarted is true if the containers of every third pod have restarted before.
	restarted bool
}

// scripted is a pod by its app and ordinal.
type scripted struct {
	app     string
	ordinal int
}

func newKubelet(w *World) *Kubelet {
	return &Kubelet{world: w, scripts: map[scripted]Answer{}, ordinals: map[types.UID]int{}, seen: map[string]int{}}
}

// Script sets the answer to the resizes of a pod, also to the one that it waits for. Pods with an app label are counted from
// 0 in the order in which they start.
func (k *Kubelet) Script(app string, ordinal int, answer Answer) {
	k.scripts[scripted{app, ordinal}] = answer
}

// Ordinal is the pod's place among the pods of its app.
func (k *Kubelet) Ordinal(pod *corev1.Pod) int {
	if i, ok := k.ordinals[pod.UID]; ok {
		return i
	}
	app := pod.Labels[AppLabel]
	k.ordinals[pod.UID] = k.seen[app]
	k.seen[app]++
	return k.ordinals[pod.UID]
}

// now is the time by the clock of the pod's node.
func (k *Kubelet) now(pod *corev1.Pod) metav1.Time {
	for _, node := range Nodes {
		if node.Name == pod.Spec.NodeName {
			return metav1.NewTime(k.world.Clock.Now().Add(node.Ahead))
		}
	}
	return metav1.NewTime(k.world.Clock.Now())
}

// work does with each pod what its kubelet does.
func (k *Kubelet) work(ctx context.Context) error {
	pods, err := k.world.allPods(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	for i := range pods {
		if err := k.serve(ctx, pods[i].DeepCopy()); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("playing the kubelet of pod %s: %w", pods[i].Name, err)
		}
	}
	return nil
}

func (k *Kubelet) serve(ctx context.Context, pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return nil
	}
	if pod.DeletionTimestamp != nil {
		return k.world.wrote(pod, k.world.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
	}
	if pod.Spec.NodeName == "" {
		if err := k.schedule(ctx, pod); err != nil || pod.Spec.NodeName == "" {
			return err
		}
	}
	before := pod.Status.DeepCopy()
	k.answer(pod, k.now(pod))
	if apiequality.Semantic.DeepEqual(*before, pod.Status) {
		return nil
	}
	return k.world.wrote(pod, k.world.Client.Status().Update(ctx, pod, client.FieldOwner("kubelet")))
}

// answer does with a pod's status what its kubelet does.
func (k *Kubelet) answer(pod *corev1.Pod, now metav1.Time) {
	if pod.Status.Phase != corev1.PodRunning {
		Actuate(pod, now)
		if k.restarted && k.Ordinal(pod)%replicas == 1 {
			for i := range pod.Status.ContainerStatuses {
				s := &pod.Status.ContainerStatuses[i]
				s.RestartCount = 1
				s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: now, FinishedAt: now}
			}
		}
	}
	if IsResized(pod) {
		k.resize(pod, now)
	} else {
		pod.Status.ObservedGeneration = pod.Generation
		removeConditions(pod, corev1.PodResizePending, corev1.PodResizeInProgress)
	}
}

// schedule binds a pod to one of Nodes, in turn.
func (k *Kubelet) schedule(ctx context.Context, pod *corev1.Pod) error {
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		Target:     corev1.ObjectReference{Kind: "Node", Name: Nodes[k.Ordinal(pod)%len(Nodes)].Name},
	}
	if err := k.world.wrote(pod, k.world.Client.SubResource("binding").Create(ctx, pod, binding)); err != nil {
		return err
	}
	return k.world.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
}

// resize answers a resize by the script.
func (k *Kubelet) resize(pod *corev1.Pod, now metav1.Time) {
	answer := k.scripts[scripted{pod.Labels[AppLabel], k.Ordinal(pod)}]
	inProgress := func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodResizeInProgress && c.ObservedGeneration == pod.Generation
	}
	switch {
	case answer == Deferred:
		pend(pod, corev1.PodReasonDeferred, now)
	case answer == Infeasible:
		pend(pod, corev1.PodReasonInfeasible, now)
	case answer == Fails:
		progress(pod, corev1.PodReasonError, "the runtime could not apply the cgroup's limits", now)
	case answer == Late && !slices.ContainsFunc(pod.Status.Conditions, inProgress):
		progress(pod, "InProgress", "", now)
	default:
		actuate(pod)
	}
}

// Actuate sets the pod's status as a kubelet does that has started the pod with what its spec says.
func Actuate(pod *corev1.Pod, now metav1.Time) {
	s := &pod.Status
	s.Phase, s.StartTime, s.ObservedGeneration = corev1.PodRunning, &now, pod.Generation
	setCondition(pod, corev1.PodScheduled, "Scheduled", "", now)
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		setCondition(pod, kind, "Started", "", now)
	}
	status := func(c corev1.Container) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: ptr.To(true), ContainerID: "scripted://" + c.Name,
			State:     corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			Resources: c.Resources.DeepCopy(), AllocatedResources: c.Resources.Requests.DeepCopy(),
		}
	}
	s.InitContainerStatuses, s.ContainerStatuses = nil, nil
	for _, c := range pod.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, status(c))
	}
	for _, c := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, status(c))
	}
	if pod.Spec.Resources != nil {
		s.Resources, s.AllocatedResources = pod.Spec.Resources.DeepCopy(), pod.Spec.Resources.Requests.DeepCopy()
	}
}

// containersOf are the containers of a pod, also its init containers.
func containersOf(pod *corev1.Pod) (all []*corev1.Container) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// statusOf is the status of a container; nil if it has none.
func statusOf(pod *corev1.Pod, container string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == container {
				return &list[i]
			}
		}
	}
	return nil
}

// IsResized reports whether the pod asks for other resources than it has.
func IsResized(pod *corev1.Pod) bool {
	for _, c := range containersOf(pod) {
		if s := statusOf(pod, c.Name); s != nil && s.Resources != nil && !apiequality.Semantic.DeepEqual(c.Resources, *s.Resources) {
			return true
		}
	}
	return pod.Spec.Resources != nil && pod.Status.Resources != nil && !apiequality.Semantic.DeepEqual(*pod.Spec.Resources, *pod.Status.Resources)
}

func allocate(pod *corev1.Pod) {
	pod.Status.ObservedGeneration = pod.Generation
	for _, c := range containersOf(pod) {
		if s := statusOf(pod, c.Name); s != nil {
			s.AllocatedResources = c.Resources.Requests.DeepCopy()
		}
	}
	if pod.Spec.Resources != nil {
		pod.Status.AllocatedResources = pod.Spec.Resources.Requests.DeepCopy()
	}
	removeConditions(pod, corev1.PodResizePending)
}

// progress accepts a resize without applying it.
func progress(pod *corev1.Pod, reason, message string, now metav1.Time) {
	allocate(pod)
	setCondition(pod, corev1.PodResizeInProgress, reason, message, now)
}

func actuate(pod *corev1.Pod) {
	allocate(pod)
	for _, c := range containersOf(pod) {
		if s := statusOf(pod, c.Name); s != nil && s.Resources != nil {
			s.Resources = c.Resources.DeepCopy()
		}
	}
	if pod.Spec.Resources != nil {
		pod.Status.Resources = pod.Spec.Resources.DeepCopy()
	}
	removeConditions(pod, corev1.PodResizeInProgress)
}

func pend(pod *corev1.Pod, reason string, now metav1.Time) {
	pod.Status.ObservedGeneration = pod.Generation
	setCondition(pod, corev1.PodResizePending, reason, "the node has no room, says the script", now)
}

// OOMKill records an OOM kill of a container that has restarted since.
func OOMKill(pod *corev1.Pod, container string, now metav1.Time) {
	s := statusOf(pod, container)
	s.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "OOMKilled", StartedAt: s.State.Running.StartedAt, FinishedAt: now, ContainerID: s.ContainerID,
	}}
	s.RestartCount++
	s.ContainerID = fmt.Sprintf("scripted://%s/%d", s.Name, s.RestartCount)
	s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
}

// setCondition sets a condition to True.
func setCondition(pod *corev1.Pod, kind corev1.PodConditionType, reason, message string, now metav1.Time) {
	next := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: now, ObservedGeneration: pod.Generation}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
	if i < 0 {
		pod.Status.Conditions = append(pod.Status.Conditions, next)
		return
	}
	if before := pod.Status.Conditions[i]; before.Reason == reason && before.Message == message {
		next.LastTransitionTime = before.LastTransitionTime
	}
	pod.Status.Conditions[i] = next
}

func removeConditions(pod *corev1.Pod, kinds ...corev1.PodConditionType) {
	pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return slices.Contains(kinds, c.Type) })
}
