// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
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

	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// beat is how often a node renews its lease; the node controller waits 50 s.
const beat = 10 * time.Second

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
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: name, world.ScriptedNode: "true"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: world.ScriptedNode, Effect: corev1.TaintEffectNoSchedule}}},
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

// node plays the kubelets of a world's pods.
type node struct {
	client client.Client
	queue  workqueue.TypedDelayingInterface[types.NamespacedName]

	mu      sync.Mutex
	kubelet *world.Kubelet
	kills   map[types.UID]string // containers to be killed
}

func newNode(c client.Client) *node {
	return &node{
		client: c, queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](), kubelet: world.NewKubelet(), kills: map[types.UID]string{},
	}
}

// Script implements world.Surroundings.
func (w *World) Script(app string, ordinal int, answers ...world.Answer) {
	w.node.mu.Lock()
	w.node.kubelet.Script(app, ordinal, answers...) // the next look is the first answer
	w.node.mu.Unlock()
	for _, pod := range w.recorder.runningPods() {
		w.node.queue.Add(client.ObjectKeyFromObject(pod))
	}
}

// Kill implements world.Surroundings.
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
	return n.kubelet.Ordinal(pod)
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
	n.mu.Lock()
	n.kubelet.Answer(pod, now)
	victim := n.kills[pod.UID]
	delete(n.kills, pod.UID)
	n.mu.Unlock()
	if victim != "" {
		world.OOMKill(pod, victim, now)
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
