// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// plant is a reconciler on a fake client with one scaler, its Deployment of three pods, and a day
// of usage.
type plant struct {
	*Reconciler

	t      *testing.T
	server client.Client
	key    types.NamespacedName
	clock  *clocktesting.FakePassiveClock
	// refused is the answer to writes of checkpoints; nil accepts them.
	refused error
	// unreadable is the answer to reads of checkpoints; nil accepts them.
	unreadable error
	// conflict is the answer to resizes; nil accepts them.
	conflict error
	// resized are the pods that were resized, in order.
	resized []string
	// finalizers are the lists of finalizers that were written, in order.
	finalizers []string
}

// indexing adds indexes to a fake client before it is built.
type indexing struct{ builder *fake.ClientBuilder }

func (i indexing) IndexField(_ context.Context, object client.Object, field string, value client.IndexerFunc) error {
	i.builder.WithIndex(object, field, value)
	return nil
}

// newPlant has containers that use cpuMillis each, of the 100m and 128Mi that they request.
func newPlant(t *testing.T, cpuMillis int64, changes ...func(*v1beta1.VerticalScaler)) *plant {
	t.Helper()
	p := &plant{t: t, clock: clocktesting.NewFakePassiveClock(noon)}
	vs := checkout(append([]func(*v1beta1.VerticalScaler){withMode("InPlace")}, changes...)...)
	vs.UID, vs.CreationTimestamp = "scaler-1", metav1.NewTime(noon.Add(-24*time.Hour))
	scaler.RecordClaim(&vs.Status, scaler.Claim(vs))
	p.key = client.ObjectKeyFromObject(vs)
	app := corev1.Container{Name: "app", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
		Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("200m"), corev1.ResourceMemory: resource.MustParse("256Mi")},
	}}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", UID: "deployment-1", Generation: 1},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)},
	}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{app}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout-1", UID: "set-1", OwnerReferences: []metav1.OwnerReference{
		*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment")),
	}}}
	objects, began := []client.Object{vs, deployment, set}, metav1.NewTime(noon.Add(-24*time.Hour))
	for _, name := range []string{"checkout-1-a", "checkout-1-b", "checkout-1-c"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Generation: 1, OwnerReferences: []metav1.OwnerReference{
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
	return p
}

// start builds the fake client and the reconciler.
func (p *plant) start(objects []client.Object) {
	p.t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			p.t.Fatal(err)
		}
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&v1beta1.VerticalScaler{})
	if err := inventory.Index(p.t.Context(), indexing{builder}); err != nil {
		p.t.Fatal(err)
	}
	p.server = builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, ok := o.(*v1beta1.VerticalScalerCheckpoint); ok && p.unreadable != nil {
				return p.unreadable
			}
			return c.Get(ctx, key, o, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			if _, ok := o.(*v1beta1.VerticalScalerCheckpoint); ok && p.refused != nil {
				return p.refused
			}
			return c.Create(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			if vs, ok := o.(*v1beta1.VerticalScaler); ok {
				p.finalizers = append(p.finalizers, strings.Join(vs.Finalizers, ","))
			}
			return c.Patch(ctx, o, patch, options...)
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, subresource string, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			if subresource != "resize" {
				return errors.New("only resizes patch a subresource")
			}
			p.resized = append(p.resized, o.GetName())
			return p.conflict
		},
	}).Build()
	p.Reconciler = &Reconciler{
		Client: p.server, Live: p.server, Recorder: events.NewFakeRecorder(100), Clock: p.clock, ResyncPeriod: DefaultResyncPeriod,
		Params: recommend.DefaultParams(), written: &ownwrites.Memory{},
		Histories: &checkpoint.Store{Client: p.server, Params: recommend.DefaultParams().History},
		lookup:    &lookup{indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers())},
	}
}

// learn adds a day of usage.
func (p *plant) learn(vs *v1beta1.VerticalScaler, cpuMillis int64) {
	p.t.Helper()
	if err := p.Histories.Load(p.t.Context(), vs, noon); err != nil {
		p.t.Fatal(err)
	}
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
	var vs v1beta1.VerticalScaler
	if getErr := p.server.Get(p.t.Context(), p.key, &vs); getErr != nil {
		p.t.Fatal(getErr)
	}
	return &vs, result, err
}

func condition(vs *v1beta1.VerticalScaler, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(vs.Status.Conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

var checkpoints = schema.GroupResource{Group: "autoscaling.verticalscaler.io", Resource: "verticalscalercheckpoints"}

// refusals are the ways to refuse a checkpoint.
var refusals = map[string]struct {
	err    error
	reason string
	says   string
}{
	"a missing role": {
		apierrors.NewForbidden(checkpoints, "checkout", errors.New(`User "operator" cannot create resource "verticalscalercheckpoints" in API group`)),
		"Forbidden", "Give the operator the role",
	},
	"a quota":  {apierrors.NewForbidden(checkpoints, "checkout", errors.New("exceeded quota: few, requested: count/verticalscalercheckpoints=1")), "QuotaExceeded", "Raise the ResourceQuota"},
	"a policy": {apierrors.NewInvalid(schema.GroupKind{Group: checkpoints.Group, Kind: "VerticalScalerCheckpoint"}, "checkout", nil), "Rejected", "Make the policy"},
}

// While a checkpoint is refused, what is not urgent waits for it, and the status says what to do.
// Once it is accepted, the change follows soon.
func TestARefusedCheckpointIsReportedAndDefersWhatIsNotUrgent(t *testing.T) {
	for name, tc := range refusals {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, 5) // of 100m
			p.refused = tc.err
			vs, result, err := p.reconcile()
			if err != nil || len(p.resized) > 0 {
				t.Errorf("Reconcile() = %v, resized %v, want no error and no resize", err, p.resized)
			}
			for _, kind := range []string{v1beta1.ConditionApplied, v1beta1.ConditionStalled, v1beta1.ConditionReady} {
				if c := condition(vs, kind); c.Reason != tc.reason || !strings.Contains(c.Message, tc.says) || !strings.Contains(c.Message, "only urgent changes") {
					t.Errorf("condition %s: %s: %s, want %s with %q", kind, c.Reason, c.Message, tc.reason, tc.says)
				}
			}
			if vs.Status.Decision != nil {
				t.Errorf("decided %v, want nothing", vs.Status.Decision)
			}
			if result.RequeueAfter > 30*time.Second {
				t.Errorf("tried again after %s, want within 30s", result.RequeueAfter)
			}
			p.refused = nil
			for range 2 { // a decision to verify is recorded first
				vs, _, err = p.reconcile()
			}
			if err != nil || len(p.resized) == 0 || condition(vs, v1beta1.ConditionStalled).Status != metav1.ConditionFalse {
				t.Errorf("accepted again: %v, resized %v, %v", err, p.resized, condition(vs, v1beta1.ConditionStalled))
			}
		})
	}
}

// A container that needs more than it requests does not wait for a record. The status still says
// that the record is missing.
func TestUrgentRaisesDoNotWaitForACheckpoint(t *testing.T) {
	for name, tc := range refusals {
		t.Run(name, func(t *testing.T) {
			p := newPlant(t, 400) // of 100m
			p.refused = tc.err
			vs, _, err := p.reconcile()
			if err != nil || len(p.resized) != 1 {
				t.Errorf("Reconcile() = %v, resized %v, want one resize", err, p.resized)
			}
			if got := condition(vs, v1beta1.ConditionStalled); got.Status != metav1.ConditionTrue || got.Reason != tc.reason {
				t.Errorf("Stalled is %s: %s, want True: %s", got.Status, got.Reason, tc.reason)
			}
			if got := condition(vs, v1beta1.ConditionReady); got.Status != metav1.ConditionFalse {
				t.Errorf("Ready is %s, want False", got.Status)
			}
		})
	}
}

// A process that may not read the checkpoint does not start from nothing.
func TestACheckpointThatMayNotBeReadIsReported(t *testing.T) {
	p := newPlant(t, 400)
	p.Histories = &checkpoint.Store{Client: p.server, Params: p.Params.History}
	p.unreadable = refusals["a missing role"].err
	vs, result, err := p.reconcile()
	if err != nil || len(p.resized) > 0 || result.RequeueAfter > 30*time.Second {
		t.Errorf("Reconcile() = %+v, %v, resized %v", result, err, p.resized)
	}
	if got := condition(vs, v1beta1.ConditionStalled); got.Status != metav1.ConditionTrue || got.Reason != "Forbidden" || !strings.Contains(got.Message, "cannot be read") {
		t.Errorf("Stalled is %s: %s: %s", got.Status, got.Reason, got.Message)
	}
}

// An outage refuses nothing: it is retried, and nobody has to act.
func TestAFailedCheckpointIsRetried(t *testing.T) {
	p := newPlant(t, 400)
	p.refused = apierrors.NewInternalError(errors.New("etcd"))
	vs, _, err := p.reconcile()
	if err == nil || len(p.resized) > 0 || condition(vs, v1beta1.ConditionStalled).Status != metav1.ConditionFalse {
		t.Errorf("Reconcile() = %v, resized %v, %v", err, p.resized, condition(vs, v1beta1.ConditionStalled))
	}
}
