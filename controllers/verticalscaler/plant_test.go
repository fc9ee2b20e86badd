// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/cached"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// plant is a reconciler on a fake client with one scaler, its Deployment of three pods, and a day
// of usage.
type plant struct {
	*Reconciler

	t      testing.TB
	server client.WithWatch
	// objects are the created objects.
	objects []client.Object
	key     types.NamespacedName
	clock   *clocktesting.FakePassiveClock
	// refused is the answer to writes of checkpoints; nil accepts them.
	refused error
	// unreadable is the answer to reads of checkpoints; nil accepts them.
	unreadable error
	// conflict is the answer to resizes; nil accepts them. answer, if set, answers each one.
	conflict error
	answer   func(o client.Object, patch client.Patch) error
	// resized are the pods that were resized, in order.
	resized []string
	// actuates is true if pods get the resources of a resize at once.
	actuates bool
	// shared are the objects that were read without a copy.
	shared []sharedObject
	// finalizers are the lists of finalizers that were written, in order.
	finalizers []string
}

// sharedObject is an object that the cache shares with its readers, and its original.
type sharedObject struct{ cached, before runtime.Object }

// share makes the object that was read the cache's own.
func (p *plant) share(o client.Object) {
	cached := o.DeepCopyObject()
	p.shared = append(p.shared, sharedObject{cached, o.DeepCopyObject()})
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(cached).Elem())
}

// checkShared fails the test if an object of the cache was modified.
func (p *plant) checkShared() {
	p.t.Helper()
	for _, object := range p.shared {
		if !reflect.DeepEqual(object.before, object.cached) { // a quantity is modified by being formatted, too
			p.t.Errorf("an object of the cache was modified (-before +after):\n%s", cmp.Diff(object.before, object.cached))
		}
	}
	p.shared = nil
}

// indexing adds indexes to a fake client before it is built.
type indexing struct{ builder *fake.ClientBuilder }

func (i indexing) IndexField(_ context.Context, object client.Object, field string, value client.IndexerFunc) error {
	i.builder.WithIndex(object, field, value)
	return nil
}

// newPlant has containers that use cpuMillis each, of the 100m and 128Mi that they request.
func newPlant(t testing.TB, cpuMillis int64, changes ...func(*v1beta1.VerticalScaler)) *plant {
	t.Helper()
	p := &plant{t: t, clock: clocktesting.NewFakePassiveClock(noon)}
	vs := checkout(append([]func(*v1beta1.VerticalScaler){withMode("InPlace")}, changes...)...)
	vs.UID, vs.CreationTimestamp = "scaler-1", metav1.NewTime(noon.Add(-24*time.Hour))
	scaler.RecordClaim(&vs.Status, scaler.Claim(vs))
	p.key = client.ObjectKeyFromObject(vs)
	app := corev1.Container{Name: "app", Resources: corev1.ResourceRequirements{Requests: resources("100m", "128Mi"), Limits: resources("200m", "256Mi")}}
	labels := map[string]string{"app": "checkout"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", UID: "deployment-1", Generation: 1},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{app}
	deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout-1", UID: "set-1", Labels: labels, OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment")),
	}}}
	objects, began := []client.Object{vs, deployment, set}, metav1.NewTime(noon.Add(-24*time.Hour))
	for _, name := range []string{"checkout-1-a", "checkout-1-b", "checkout-1-c"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Generation: 1, Labels: labels, OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet")),
			}},
			Spec: *deployment.Spec.Template.Spec.DeepCopy(),
		}
		pod.Spec.NodeName = "node-1"
		pod.Status = corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: &began, ObservedGeneration: 1,
			ContainerStatuses: []corev1.ContainerStatus{{
				Name: "app", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}},
				AllocatedResources: app.Resources.Requests, Resources: app.Resources.DeepCopy(),
			}},
		}
		objects = append(objects, pod)
	}
	p.start(objects)
	p.learn(vs, cpuMillis)
	t.Cleanup(p.checkShared)
	return p
}

// start builds the fake client and the reconciler.
func (p *plant) start(objects []client.Object) {
	p.t.Helper()
	p.objects = objects
	builder := fake.NewClientBuilder().WithScheme(watchedScheme(p.t)).WithObjects(objects...).WithStatusSubresource(&v1beta1.VerticalScaler{}).
		WithIndex(&v1beta1.VerticalScaler{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} })
	must.Succeed(p.t, inventory.Index(p.t.Context(), indexing{builder}))
	p.server = builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, ok := o.(*v1beta1.VerticalScalerCheckpoint); ok && p.unreadable != nil {
				return p.unreadable
			}
			err := c.Get(ctx, key, o, options...)
			if err == nil && ptr.Deref((&client.GetOptions{}).ApplyOptions(options).UnsafeDisableDeepCopy, false) {
				p.share(o)
			}
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, ok := o.(*v1beta1.VerticalScalerCheckpoint); ok && p.refused != nil {
				return p.refused
			}
			return c.Create(ctx, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if _, ok := o.(*v1beta1.VerticalScalerCheckpoint); ok && p.refused != nil {
				return p.refused
			}
			return c.Update(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if vs, ok := o.(*v1beta1.VerticalScaler); ok {
				p.finalizers = append(p.finalizers, strings.Join(vs.Finalizers, ","))
			}
			return c.Patch(ctx, o, patch, options...)
		},
		// The answer to a write is decoded into the object that was sent, through its pointers.
		SubResourceUpdate: func(ctx context.Context, c client.Client, subresource string, o client.Object, options ...client.SubResourceUpdateOption) error {
			stored, ok := o.DeepCopyObject().(client.Object)
			if !ok {
				return errors.New("a copy of an object is one")
			}
			if err := c.SubResource(subresource).Update(ctx, stored, options...); err != nil {
				return err
			}
			if vs, ok := stored.(*v1beta1.VerticalScaler); ok && vs.Status.Annotations != nil {
				vs.Status.Annotations["answer"] = "differs from what was sent"
			}
			answer, err := json.Marshal(stored)
			if err != nil {
				return err
			}
			return json.Unmarshal(answer, o)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			if subresource != "resize" {
				return errors.New("only resizes patch a subresource")
			}
			p.resized = append(p.resized, o.GetName())
			if p.answer != nil {
				return p.answer(o, patch)
			}
			if p.actuates {
				return actuate(ctx, c, o, patch)
			}
			return p.conflict
		},
	}).Build()
	p.restart()
}

// actuate applies a resize, as the API server and the kubelet would.
func actuate(ctx context.Context, c client.Client, o client.Object, patch client.Patch) error {
	if err := c.Patch(ctx, o, patch); err != nil {
		return err
	}
	var pod corev1.Pod
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), &pod); err != nil {
		return err
	}
	for i, declared := range pod.Spec.Containers {
		pod.Status.ContainerStatuses[i].Resources = declared.Resources.DeepCopy()
	}
	return c.Status().Update(ctx, &pod)
}

// restart is a new process, which knows only the API server's objects.
func (p *plant) restart() {
	p.Reconciler = &Reconciler{
		Client: p.server, Live: p.server, Recorder: events.NewFakeRecorder(100), Clock: p.clock, ResyncPeriod: DefaultResyncPeriod,
		Pods: cached.LivePods{Reader: p.server}, Params: recommend.DefaultParams(), written: &ownwrites.Memory{},
		Histories: &checkpoint.Store{Client: p.server, Params: recommend.DefaultParams().History},
		order:     precedence.New(precedence.MaxReported),
		Usage:     complete{}, NewPodsRefused: notRefused,
	}
}

// complete is usage without problems.
type complete struct{}

func (complete) ProblemsOf(types.NamespacedName) collect.Problems { return collect.Problems{} }

func (complete) AddOOMEvents(string, []workload.Pod) {}

func notRefused(string) apierror.Rejection { return apierror.Rejection{} }

// learn adds a day of usage.
func (p *plant) learn(vs *v1beta1.VerticalScaler, cpuMillis int64) {
	p.t.Helper()
	must.Succeed(p.t, p.Histories.Load(p.t.Context(), vs, noon))
	p.Histories.With(p.key, func(histories history.Histories) {
		for minute := range 24 * 60 {
			at := noon.Add(time.Duration(minute-24*60) * time.Minute)
			histories.Add(usage.Sample{Container: "app", Pod: "checkout-1-a", Time: at, CPUMillis: cpuMillis, MemoryBytes: 100 * mebi}, p.Params.History)
		}
	})
}

// reconcile reconciles once, and returns the scaler after it.
func (p *plant) reconcile() (*v1beta1.VerticalScaler, reconcile.Result, error) {
	p.t.Helper()
	result, err := p.Reconcile(p.t.Context(), reconcile.Request{NamespacedName: p.key})
	p.checkShared()
	var vs v1beta1.VerticalScaler
	must.Succeed(p.t, p.server.Get(p.t.Context(), p.key, &vs))
	return &vs, result, err
}

// mustReconcile reconciles once without an error, and returns the scaler after it.
func (p *plant) mustReconcile() *v1beta1.VerticalScaler {
	p.t.Helper()
	vs, _, err := p.reconcile()
	must.Succeed(p.t, err)
	return vs
}

// create creates an object on the server.
func (p *plant) create(o client.Object) {
	p.t.Helper()
	must.Succeed(p.t, p.server.Create(p.t.Context(), o))
	p.objects = append(p.objects, o)
}

func condition(vs *v1beta1.VerticalScaler, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(vs.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}
