// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// NodeName is the node that the tests' pods are bound to.
const NodeName = "node-1"

// Namespace creates a namespace for the test.
func (e *Env) Namespace(t testing.TB) string {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	if e.sidecars {
		namespace.Labels = map[string]string{sidecarLabel: "true"}
	}
	if err := e.Client.Create(t.Context(), namespace); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	return namespace.Name
}

// Create creates objects for the test.
func (e *Env) Create(t testing.TB, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		must.Succeed(t, e.Client.Create(t.Context(), o))
	}
}

// Remains describes an object that still exists; "" if it does not, or if its kind does not.
func (e *Env) Remains(t testing.TB, o client.Object) string {
	t.Helper()
	err := e.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return ""
	}
	return fmt.Sprintf("%T %s is still there: %v", o, client.ObjectKeyFromObject(o), err)
}

// Node makes sure that a node exists: without it, the API server refuses to bind or to
// resize a pod.
func (e *Env) Node(ctx context.Context, name string) error {
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("4"),
		corev1.ResourceMemory: resource.MustParse("8Gi"),
		corev1.ResourcePods:   resource.MustParse("10000"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "linux"}},
		Status:     corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
	}
	if err := e.Client.Create(ctx, node); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating the node: %w", err)
	}
	return nil
}

// The builders of package objects, so that callers import one package.
var (
	Deployment = objects.Deployment
	Container  = objects.Container
	Scaler     = objects.Scaler
)

// Run creates the Deployment's ReplicaSet and one running pod, as the controller manager,
// the scheduler and the kubelet would. It returns the pod.
func (e *Env) Run(ctx context.Context, d *appsv1.Deployment) (*corev1.Pod, error) {
	if err := e.Node(ctx, NodeName); err != nil {
		return nil, err
	}
	const hash = "5d4f8b"
	labels := map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}
	maps.Copy(labels, d.Spec.Template.Labels)
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: d.Name + "-" + hash, Labels: labels,
			Annotations:     map[string]string{"deployment.kubernetes.io/revision": "1"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: d.Spec.Template.Spec},
		},
	}
	if err := e.Client.Create(ctx, set); err != nil {
		return nil, fmt.Errorf("creating a ReplicaSet: %w", err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: d.Namespace, Name: set.Name + "-0", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: d.Spec.Template.Spec,
	}
	pod.Spec.NodeName = NodeName
	if err := e.Client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("creating a pod: %w", err)
	}
	world.Actuate(pod, metav1.Now())
	if err := e.Client.Status().Update(ctx, pod); err != nil {
		return nil, fmt.Errorf("starting a pod: %w", err)
	}
	return pod, nil
}

// Usage is a usage source that a test controls. Each round is one minute after the previous one on
// any clock.
type Usage struct {
	mu      sync.Mutex
	rounds  map[string]int
	start   time.Time
	samples map[string][]usage.Sample // by namespace
}

// NewUsage returns a source without any pods.
func NewUsage() *Usage {
	return &Usage{rounds: map[string]int{}, start: time.Now().Truncate(time.Second), samples: map[string][]usage.Sample{}}
}

// Set sets the usage of the pod's container from now on.
func (u *Usage) Set(namespace, pod, container string, cpuMillis, memoryBytes int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	sample := usage.Sample{
		Namespace: namespace, Pod: pod, Container: container,
		CPUMillis: cpuMillis, MemoryBytes: memoryBytes, Window: 30 * time.Second,
	}
	for i, s := range u.samples[namespace] {
		if s.Pod == pod && s.Container == container {
			u.samples[namespace][i] = sample
			return
		}
	}
	u.samples[namespace] = append(u.samples[namespace], sample)
}

// Rounds is the number of rounds for the namespace so far.
func (u *Usage) Rounds(namespace string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.rounds[namespace]
}

// List implements collect.Source.
func (u *Usage) List(_ context.Context, namespace string, _ time.Time) ([]usage.Sample, []usage.Refused, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.rounds[namespace]++
	out := make([]usage.Sample, len(u.samples[namespace]))
	for i, s := range u.samples[namespace] {
		s.Time = u.start.Add(time.Duration(u.rounds[namespace]) * time.Minute)
		out[i] = s
	}
	return out, nil, nil
}

// InParallel calls f for each of n items, with limited concurrency, and fails the test on
// an error.
func InParallel(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	var all errgroup.Group
	all.SetLimit(16)
	for i := range n {
		all.Go(func() error { return f(i) })
	}
	must.Succeed(t, all.Wait())
}

// Eventually calls f until it returns "". On a timeout, the test fails with its last
// answer.
func Eventually(t testing.TB, within time.Duration, f func() string) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	for {
		began := time.Now()
		what := f()
		if what == "" {
			return
		}
		// Looking takes at most a quarter of the time, so that it does not slow down the operator.
		pause := min(max(30*time.Millisecond, 3*time.Since(began)), time.Second)
		select {
		case <-deadline.C:
			t.Fatalf("not done after %s: %s", within, what)
		case <-time.After(pause):
		}
	}
}

// MessageOf is the message of an error, or "".
func MessageOf(err error) string {
	if err != nil {
		return err.Error()
	}
	return ""
}

// FreeAddress is process.FreeAddress, for a test.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := process.FreeAddress()
	must.Succeed(t, err)
	return address
}
