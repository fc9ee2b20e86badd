// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// nodeLabel is the label and the taint of scripted nodes. Kwok does not play them.
	nodeLabel = "faults.verticalscaler.io/scripted"
	// beat is how often a node renews its lease; the node controller waits 50 s.
	beat = 10 * time.Second
	// late is how long a late kubelet takes to actuate a resize.
	late = 700 * time.Millisecond
)

// skews are the scripted nodes, and how far their clocks are ahead of the API server's. The
// operator excuses containers without usage that started less than two minutes ago, which
// most runs take less than, even with the clock that is behind.
var skews = map[string]time.Duration{"scripted-ahead": 90 * time.Second, "scripted-behind": -15 * time.Second}

// nodes are the scripted nodes of a cluster, which all worlds share.
type nodes struct {
	client client.Client
	stop   func()
}

// startNodes creates the nodes and keeps them alive.
func startNodes(c client.Client) (*nodes, error) {
	ctx, cancel := context.WithCancel(context.Background())
	n := &nodes{client: c}
	ended := make(chan struct{})
	n.stop = func() { cancel(); <-ended }
	for name := range skews {
		if err := n.register(ctx, name); err != nil {
			cancel()
			return nil, err
		}
	}
	go func() {
		defer close(ended)
		ticker := time.NewTicker(beat)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				for name := range skews {
					_ = n.renew(ctx, name) // the next one may succeed
				}
			}
		}
	}()
	return n, nil
}

func (n *nodes) register(ctx context.Context, name string) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("128Gi"),
		corev1.ResourcePods: resource.MustParse("10000"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: name, nodeLabel: "true"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: nodeLabel, Effect: corev1.TaintEffectNoSchedule}}},
	}
	if err := n.client.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating node %s: %w", name, err)
	}
	if err := n.client.Get(ctx, client.ObjectKeyFromObject(node), node); err != nil {
		return fmt.Errorf("reading node %s: %w", name, err)
	}
	before := node.DeepCopy()
	node.Status.Capacity, node.Status.Allocatable = capacity, capacity
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	if err := n.client.Status().Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("starting node %s: %w", name, err)
	}
	return n.renew(ctx, name)
}

func (n *nodes) renew(ctx context.Context, name string) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: name}}
	err := n.client.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &name, ptr.To[int32](40)
	lease.Spec.RenewTime = ptr.To(metav1.NewMicroTime(time.Now().Add(skews[name])))
	switch {
	case apierrors.IsNotFound(err):
		err = n.client.Create(ctx, lease)
	case err == nil:
		err = n.client.Update(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("renewing the lease of node %s: %w", name, err)
	}
	return nil
}

// Answer is what a kubelet does with a resize.
type Answer string

// The answers of a kubelet.
const (
	// Actuates applies the resize at once. It is what an unscripted kubelet does.
	Actuates Answer = "actuates"
	// Late says that the resize is in progress, and applies it a little later.
	Late Answer = "late"
	// Deferred keeps the resize for later.
	Deferred Answer = "deferred"
	// Infeasible refuses the resize for good.
	Infeasible Answer = "infeasible"
	// Fails accepts the resize and cannot actuate it.
	Fails Answer = "error"
	// Never says and does nothing.
	Never Answer = "never"
	// Kills applies the resize, and the first container is OOM-killed.
	Kills Answer = "kills"
)

// node plays the kubelets of a world's pods.
type node struct {
	client client.Client
	queue  workqueue.TypedDelayingInterface[types.NamespacedName]

	mu       sync.Mutex
	ordinals map[types.UID]int // in which order the pods of an app were seen, from 0
	seen     map[string]int    // the number of pods by app
	scripts  map[string]map[int][]Answer
	answered map[types.UID]int64     // the generation that was last answered
	answers  map[types.UID]int       // the number of answered resizes
	due      map[types.UID]time.Time // when a late resize is actuated
	kills    map[types.UID]string    // containers to be killed
}

func newNode(c client.Client, _ *nodes) *node {
	return &node{
		client: c, queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		ordinals: map[types.UID]int{}, seen: map[string]int{}, scripts: map[string]map[int][]Answer{},
		answered: map[types.UID]int64{}, answers: map[types.UID]int{}, due: map[types.UID]time.Time{}, kills: map[types.UID]string{},
	}
}

// Script sets the answers to the resizes of a pod, in order. The last one is repeated. Pods
// of a Deployment are counted from 0 as the nodes see them first.
func (w *World) Script(deployment string, ordinal int, answers ...Answer) {
	n := w.node
	n.mu.Lock()
	if n.scripts[deployment] == nil {
		n.scripts[deployment] = map[int][]Answer{}
	}
	n.scripts[deployment][ordinal] = answers
	clear(n.answers)
	clear(n.answered) // the next look is the first answer
	n.mu.Unlock()
	for _, pod := range w.recorder.runningPods() {
		n.queue.Add(client.ObjectKeyFromObject(pod))
	}
}

// Kill makes a container run out of memory. It restarts at once.
func (w *World) Kill(pod *corev1.Pod, container string) {
	w.node.mu.Lock()
	w.node.kills[pod.UID] = container
	w.node.mu.Unlock()
	w.node.queue.Add(client.ObjectKeyFromObject(pod))
}

// ordinal is the pod's place among the pods of its Deployment.
func (n *node) ordinal(pod *corev1.Pod) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i, ok := n.ordinals[pod.UID]; ok {
		return i
	}
	app := pod.Labels[appLabel]
	n.ordinals[pod.UID] = n.seen[app]
	n.seen[app]++
	return n.ordinals[pod.UID]
}

// saw tells the node about a pod that has changed.
func (n *node) saw(pod *corev1.Pod) {
	if pod.Spec.NodeName != "" {
		n.ordinal(pod)
		n.queue.Add(client.ObjectKeyFromObject(pod))
	}
}

// run answers until the context ends.
func (n *node) run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		n.queue.ShutDown()
	}()
	for {
		key, stopped := n.queue.Get()
		if stopped {
			return
		}
		if err := n.answer(ctx, key); err != nil && ctx.Err() == nil {
			n.queue.AddAfter(key, 50*time.Millisecond)
		}
		n.queue.Done(key)
	}
}

// answer does with a pod what its kubelet does.
func (n *node) answer(ctx context.Context, key types.NamespacedName) error {
	pod := &corev1.Pod{}
	if err := n.client.Get(ctx, key, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	skew, isOurs := skews[pod.Spec.NodeName]
	if !isOurs {
		return nil
	}
	if pod.DeletionTimestamp != nil {
		return client.IgnoreNotFound(n.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
	}
	now := metav1.NewTime(time.Now().Add(skew))
	before := pod.Status.DeepCopy()
	if pod.Status.Phase == corev1.PodPending {
		begin(pod, n.ordinal(pod), now)
	}
	if isResized(pod) {
		n.resize(pod, now)
	} else if n.mayObserve(pod) {
		pod.Status.ObservedGeneration = pod.Generation
		setPodCondition(pod, corev1.PodResizePending, "", "", now)
		setPodCondition(pod, corev1.PodResizeInProgress, "", "", now)
	}
	n.mu.Lock()
	victim := n.kills[pod.UID]
	delete(n.kills, pod.UID)
	n.mu.Unlock()
	if victim != "" {
		kill(pod, victim, now)
	}
	if apiequality.Semantic.DeepEqual(*before, pod.Status) {
		return nil
	}
	if err := n.client.Status().Update(ctx, pod, client.FieldOwner("kubelet")); err != nil {
		if victim != "" {
			n.mu.Lock()
			n.kills[pod.UID] = victim
			n.mu.Unlock()
		}
		return err
	}
	return nil
}

// mayObserve says whether a kubelet that answers at all has something to say about the pod.
func (n *node) mayObserve(pod *corev1.Pod) bool { return n.scripted(pod) != Never }

// scripted is the answer to the pod's current resize.
func (n *node) scripted(pod *corev1.Pod) Answer {
	ordinal := n.ordinal(pod)
	n.mu.Lock()
	defer n.mu.Unlock()
	script := n.scripts[pod.Labels[appLabel]][ordinal]
	if len(script) == 0 {
		return Actuates
	}
	return script[min(max(n.answers[pod.UID]-1, 0), len(script)-1)]
}

// resize answers a resize by the script.
func (n *node) resize(pod *corev1.Pod, now metav1.Time) {
	n.mu.Lock()
	if n.answered[pod.UID] != pod.Generation {
		n.answered[pod.UID] = pod.Generation
		n.answers[pod.UID]++
		n.due[pod.UID] = time.Now().Add(late)
	}
	due := n.due[pod.UID]
	n.mu.Unlock()
	switch answer := n.scripted(pod); answer {
	case Never:
	case Deferred:
		pend(pod, corev1.PodReasonDeferred, now)
	case Infeasible:
		pend(pod, corev1.PodReasonInfeasible, now)
	case Fails:
		allocate(pod)
		setPodCondition(pod, corev1.PodResizePending, "", "", now)
		setPodCondition(pod, corev1.PodResizeInProgress, corev1.PodReasonError, "the runtime could not apply the cgroup's limits", now)
	case Late:
		if remaining := time.Until(due); remaining > 0 {
			allocate(pod)
			setPodCondition(pod, corev1.PodResizePending, "", "", now)
			setPodCondition(pod, corev1.PodResizeInProgress, "InProgress", "", now)
			n.queue.AddAfter(client.ObjectKeyFromObject(pod), remaining)
			return
		}
		actuate(pod, now)
	case Actuates, Kills:
		actuate(pod, now)
		if answer == Kills {
			kill(pod, pod.Spec.Containers[0].Name, now)
		}
	}
}

// begin starts the pod's containers. Pods differ: every third one has restarted before.
func begin(pod *corev1.Pod, ordinal int, now metav1.Time) {
	s := &pod.Status
	s.Phase, s.StartTime, s.ObservedGeneration = corev1.PodRunning, &now, pod.Generation
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		setPodCondition(pod, kind, "Started", "", now)
	}
	status := func(c corev1.Container) corev1.ContainerStatus {
		out := corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: ptr.To(true), ContainerID: "scripted://" + c.Name,
			State:     corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			Resources: c.Resources.DeepCopy(), AllocatedResources: c.Resources.Requests.DeepCopy(),
		}
		if ordinal%replicas == 1 {
			out.RestartCount = 1
			out.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: now, FinishedAt: now}
		}
		return out
	}
	for _, c := range pod.Spec.InitContainers {
		s.InitContainerStatuses = append(s.InitContainerStatuses, status(c))
	}
	for _, c := range pod.Spec.Containers {
		s.ContainerStatuses = append(s.ContainerStatuses, status(c))
	}
}

// isResized says whether the pod asks for other resources than its containers have.
func isResized(pod *corev1.Pod) bool {
	for _, c := range pod.Spec.Containers {
		for _, s := range pod.Status.ContainerStatuses {
			if s.Name == c.Name && s.Resources != nil && !apiequality.Semantic.DeepEqual(c.Resources, *s.Resources) {
				return true
			}
		}
	}
	return false
}

func allocate(pod *corev1.Pod) {
	pod.Status.ObservedGeneration = pod.Generation
	for i := range pod.Status.ContainerStatuses {
		for _, c := range pod.Spec.Containers {
			if c.Name == pod.Status.ContainerStatuses[i].Name {
				pod.Status.ContainerStatuses[i].AllocatedResources = c.Resources.Requests.DeepCopy()
			}
		}
	}
}

func actuate(pod *corev1.Pod, now metav1.Time) {
	allocate(pod)
	for i := range pod.Status.ContainerStatuses {
		for _, c := range pod.Spec.Containers {
			if c.Name == pod.Status.ContainerStatuses[i].Name {
				pod.Status.ContainerStatuses[i].Resources = c.Resources.DeepCopy()
			}
		}
	}
	setPodCondition(pod, corev1.PodResizePending, "", "", now)
	setPodCondition(pod, corev1.PodResizeInProgress, "", "", now)
}

func pend(pod *corev1.Pod, reason string, now metav1.Time) {
	pod.Status.ObservedGeneration = pod.Generation
	setPodCondition(pod, corev1.PodResizePending, reason, "the node has no room, says the script", now)
}

// kill records an OOM kill of a container that has restarted since.
func kill(pod *corev1.Pod, container string, now metav1.Time) {
	for i := range pod.Status.ContainerStatuses {
		s := &pod.Status.ContainerStatuses[i]
		if s.Name != container {
			continue
		}
		started := now
		if s.State.Running != nil {
			started = s.State.Running.StartedAt
		}
		s.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 137, Reason: "OOMKilled", StartedAt: started, FinishedAt: now, ContainerID: s.ContainerID,
		}}
		s.RestartCount++
		s.ContainerID = fmt.Sprintf("scripted://%s/%d", container, s.RestartCount)
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	}
}

// setPodCondition sets a condition to True; without a reason, it removes the condition.
func setPodCondition(pod *corev1.Pod, kind corev1.PodConditionType, reason, message string, now metav1.Time) {
	all := pod.Status.Conditions
	for i := range all {
		if all[i].Type != kind {
			continue
		}
		if reason == "" {
			pod.Status.Conditions = slices.Delete(all, i, i+1)
			return
		}
		if all[i].Reason != reason || all[i].Status != corev1.ConditionTrue {
			all[i].LastTransitionTime = now
		}
		all[i].Status, all[i].Reason, all[i].Message, all[i].ObservedGeneration = corev1.ConditionTrue, reason, message, pod.Generation
		return
	}
	if reason != "" {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: now, ObservedGeneration: pod.Generation,
		})
	}
}
