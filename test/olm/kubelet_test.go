// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

const (
	// nodeName is the node of the operator's pods. A taint keeps other pods away. The
	// configuration of the Subscription tolerates it.
	nodeName = "operator-node"
	taintKey = "verticalscaler.io/operator"
	// leaseSeconds is the lease duration of the node.
	leaseSeconds = 40
	// kubeletPeriod is the time between two syncs of the kubelet.
	kubeletPeriod = 200 * time.Millisecond
)

// kubelet runs the operator's pods as local processes, as far as the operator and OLM
// depend on a kubelet. The process gets what the pod specifies, the pod is ready when the
// readiness probe succeeds, and a deleted pod disappears once its process has ended.
type kubelet struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu   sync.Mutex
	pods map[types.UID]*runningPod
	errs []error // errors since the last check
}

// runningPod is a pod with its process.
type runningPod struct {
	name    types.NamespacedName
	process *process.Process
	health  string // host:port
	started time.Time
	probed  time.Time
	ready   bool
	// stopping reports that the process got SIGTERM.
	stopping bool
}

// startKubelet adds the node to the cluster and starts to run its pods.
func startKubelet(ctx context.Context) (*kubelet, error) {
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("2"),
		corev1.ResourceMemory: resource.MustParse("2Gi"),
		corev1.ResourcePods:   resource.MustParse("10"),
	}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{
			corev1.LabelHostname: nodeName, corev1.LabelOSStable: runtime.GOOS, corev1.LabelArchStable: runtime.GOARCH,
		}},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: taintKey, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
	for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		status := corev1.ConditionFalse
		if kind == corev1.NodeReady {
			status = corev1.ConditionTrue
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: kind, Status: status, Reason: "TheTestSaysSo", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		})
	}
	if err := env.Client.Create(ctx, n); err != nil {
		return nil, fmt.Errorf("creating the operator's node: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	k := &kubelet{cancel: cancel, done: make(chan struct{}), pods: map[types.UID]*runningPod{}}
	if err := k.renew(ctx); err != nil {
		cancel()
		return nil, err
	}
	go k.loop(ctx)
	return k, nil
}

// stop stops the node and all its processes.
func (k *kubelet) stop() {
	k.cancel()
	<-k.done
	for _, pod := range k.pods {
		pod.process.Stop(stopTimeout)
	}
}

// check fails the test if an operator has ended unexpectedly or stopped answering.
func (k *kubelet) check(t *testing.T) {
	t.Helper()
	k.mu.Lock()
	err := errors.Join(k.errs...)
	k.errs = nil
	k.mu.Unlock()
	if err != nil {
		t.Fatalf("the operator's node: %v", err)
	}
}

func (k *kubelet) complain(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.errs = append(k.errs, err)
}

// operator returns the ready pod of the operator in that namespace; nil if there is none,
// or more than one.
func (k *kubelet) operator(namespace string) *runningPod {
	k.mu.Lock()
	defer k.mu.Unlock()
	var found []*runningPod
	for _, pod := range k.pods {
		if pod.name.Namespace == namespace {
			found = append(found, pod)
		}
	}
	if len(found) != 1 || !found[0].ready || found[0].stopping {
		return nil
	}
	return found[0]
}

// running is the number of processes of pods in that namespace.
func (k *kubelet) running(namespace string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range k.pods {
		if pod.name.Namespace == namespace {
			n++
		}
	}
	return n
}

func (k *kubelet) loop(ctx context.Context) {
	defer close(k.done)
	tick := time.NewTicker(kubeletPeriod)
	defer tick.Stop()
	renewed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if time.Since(renewed) > leaseSeconds/4*time.Second {
			renewed = time.Now()
			if err := k.renew(ctx); err != nil && ctx.Err() == nil {
				k.complain(err)
			}
		}
		if err := k.sync(ctx); err != nil && ctx.Err() == nil {
			k.complain(err)
		}
	}
}

// renew renews the node's lease.
func (k *kubelet) renew(ctx context.Context) error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: nodeName}}
	err := env.Client.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = ptr.To(nodeName), ptr.To[int32](leaseSeconds)
	lease.Spec.RenewTime = ptr.To(metav1.NowMicro())
	if apierrors.IsNotFound(err) {
		err = env.Client.Create(ctx, lease)
	} else if err == nil {
		err = env.Client.Update(ctx, lease)
	}
	if err != nil {
		return fmt.Errorf("renewing the node's lease: %w", err)
	}
	return nil
}

// sync makes the processes match the node's pods, and the pods' status match the processes.
func (k *kubelet) sync(ctx context.Context) error {
	var list corev1.PodList
	if err := env.Client.List(ctx, &list); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var errs []error
	for i := range list.Items {
		if pod := &list.Items[i]; pod.Spec.NodeName == nodeName {
			errs = append(errs, client.IgnoreNotFound(k.syncPod(ctx, pod)))
		}
	}
	return errors.Join(errs...)
}

func (k *kubelet) syncPod(ctx context.Context, pod *corev1.Pod) error {
	k.mu.Lock()
	r := k.pods[pod.UID]
	k.mu.Unlock()
	switch {
	case r == nil && pod.DeletionTimestamp == nil:
		r, err := startPod(ctx, pod)
		if err != nil {
			return fmt.Errorf("starting pod %s/%s: %w", pod.Namespace, pod.Name, err)
		}
		k.mu.Lock()
		k.pods[pod.UID] = r
		k.mu.Unlock()
		return k.report(ctx, pod, r)
	case pod.DeletionTimestamp != nil:
		return k.end(ctx, pod, r)
	}
	if !k.probe(r) {
		return nil
	}
	return k.report(ctx, pod, r)
}

// end stops the process of a pod that is being deleted, and removes the pod.
func (k *kubelet) end(ctx context.Context, pod *corev1.Pod, r *runningPod) error {
	if r != nil {
		if !r.stopping {
			k.mu.Lock()
			r.stopping = true
			k.mu.Unlock()
			go r.process.Stop(stopTimeout)
		}
		select {
		case <-r.process.Ended:
			if r.process.Err() != nil {
				k.complain(r.process.Failure())
			}
		default:
			return nil
		}
	}
	k.mu.Lock()
	delete(k.pods, pod.UID)
	k.mu.Unlock()
	return env.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
}

// probe probes the process, and reports whether its readiness has changed.
func (k *kubelet) probe(r *runningPod) bool {
	select {
	case <-r.process.Ended:
		// A kubelet would restart it. Here it is a failure.
		if !r.stopping {
			k.complain(r.process.Failure())
			k.mu.Lock()
			r.stopping = true
			k.mu.Unlock()
		}
		return false
	default:
	}
	if r.ready && time.Since(r.probed) < time.Second {
		return false
	}
	r.probed = time.Now()
	ready := answers("http://" + r.health + "/readyz")
	k.mu.Lock()
	defer k.mu.Unlock()
	changed := ready != r.ready
	r.ready = ready
	return changed
}

// answers reports whether a server answers with a success.
func answers(url string) bool {
	response, err := (&http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	if err != nil {
		return false
	}
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// report writes the pod's status.
func (k *kubelet) report(ctx context.Context, pod *corev1.Pod, r *runningPod) error {
	before := pod.DeepCopy()
	now := metav1.Now()
	status := corev1.ConditionFalse
	if r.ready {
		status = corev1.ConditionTrue
	}
	pod.Status.Phase = corev1.PodRunning
	if pod.Status.StartTime == nil {
		pod.Status.StartTime = &now
	}
	pod.Status.ObservedGeneration = pod.Generation
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		c := corev1.PodCondition{Type: kind, Status: status, LastTransitionTime: now}
		if kind == corev1.PodInitialized {
			c.Status = corev1.ConditionTrue
		}
		i := slices.IndexFunc(pod.Status.Conditions, func(old corev1.PodCondition) bool { return old.Type == kind })
		if i < 0 {
			pod.Status.Conditions = append(pod.Status.Conditions, c)
		} else {
			pod.Status.Conditions[i] = c
		}
	}
	container := pod.Spec.Containers[0]
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: container.Name, Image: container.Image, Ready: r.ready, Started: ptr.To(true),
		State:              corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(r.started)}},
		AllocatedResources: container.Resources.Requests, Resources: container.Resources.DeepCopy(),
	}}
	if err := env.Client.Status().Patch(ctx, pod, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("writing the status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// startPod starts the process of a pod.
func startPod(ctx context.Context, pod *corev1.Pod) (*runningPod, error) {
	r := &runningPod{name: client.ObjectKeyFromObject(pod), started: time.Now()}
	var err error
	if r.health, err = process.FreeAddress(); err != nil {
		return nil, err
	}
	cmd, err := r.command(ctx, pod)
	if err != nil {
		return nil, err
	}
	r.process, err = start("operator-"+pod.Name, cmd)
	return r, err
}
