// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// recordingQueue records the priority of added requests, and serves none.
type recordingQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	added   chan int
	serving chan struct{}
}

// GetWithPriority is first called when all sources have synced.
func (q *recordingQueue) GetWithPriority() (reconcile.Request, int, bool) {
	close(q.serving)
	return q.PriorityQueue.GetWithPriority()
}

func (q *recordingQueue) Add(request reconcile.Request) {
	q.AddWithOpts(priorityqueue.AddOpts{}, request)
}

func (q *recordingQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	for range requests {
		q.added <- max(ptr.Deref(o.Priority, *queue.Edit.Priority()), *queue.Routine.Priority())
	}
}

// lists is the lists and watches of one kind, from memory.
type lists struct {
	*cachetesting.FakeControllerSource
}

func (lists) IsWatchListSemanticsUnSupported() bool { return true }

// api lists and watches from memory.
type api struct {
	client.WithWatch
	lists func(runtime.Object) toolscache.ListerWatcher
}

func (a api) of(list client.ObjectList) toolscache.ListerWatcherWithContext {
	kind := runtime.Object(&appsv1.ReplicaSet{})
	switch list.(type) {
	case *corev1.PodList:
		kind = &corev1.Pod{}
	case *appsv1.DeploymentList:
		kind = &appsv1.Deployment{}
	}
	return toolscache.ToListerWatcherWithContext(a.lists(kind))
}

func (a api) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	found, err := a.of(list).ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	items, err := meta.ExtractList(found)
	if err != nil {
		return err
	}
	list.SetResourceVersion(found.(metav1.ListInterface).GetResourceVersion())
	return meta.SetList(list, items)
}

func (a api) Watch(ctx context.Context, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
	var o client.ListOptions
	o.ApplyOptions(options)
	return a.of(list).WatchWithContext(ctx, *o.AsListOptions())
}

func (api) IsWatchListSemanticsUnSupported() bool { return true }

// The handlers, the predicates and the informers are the real ones.
func TestTheClassOfEachTrigger(t *testing.T) {
	var mu sync.Mutex // the watches of several kinds begin at once
	sources := map[string]*cachetesting.FakeControllerSource{}
	of := func(obj runtime.Object) *cachetesting.FakeControllerSource {
		kinds, _, err := watchedScheme(t).ObjectKinds(obj)
		must.Succeed(t, err)
		kind := kinds[0].Kind
		mu.Lock()
		defer mu.Unlock()
		if sources[kind] == nil {
			sources[kind] = cachetesting.NewFakeControllerSource()
		}
		return sources[kind]
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	vs := &v1beta1.VerticalScaler{ObjectMeta: meta("web"), Spec: v1beta1.VerticalScalerSpec{DeploymentName: "web"}}
	vs.Generation = 1
	scaler.RecordClaim(&vs.Status, scaler.Claim(vs))
	of(vs).Add(vs)
	replicaSet := func(name string) *metav1.PartialObjectMetadata {
		set := &metav1.PartialObjectMetadata{ObjectMeta: meta(name)}
		set.UID, set.OwnerReferences = types.UID(name), []metav1.OwnerReference{{Kind: "Deployment", Name: "web", UID: "web-1", Controller: ptr.To(true)}}
		return set
	}
	podOf := func(hash string) *corev1.Pod {
		pod := &corev1.Pod{ObjectMeta: meta("web-" + hash + "-1")}
		pod.Labels = map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: hash}
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-" + hash, UID: types.UID("web-" + hash), Controller: ptr.To(true)}}
		return pod
	}
	of(&appsv1.ReplicaSet{}).Add(replicaSet("web-1"))

	added := make(chan int, 100)
	collected := make(chan event.GenericEvent)
	changes := budget.New(budget.Limits{Changes: 1, PerNamespace: 1, Window: time.Hour})
	startTriggers(t, added, collected, changes, func(obj runtime.Object) toolscache.ListerWatcher { return lists{of(obj)} })

	next := func(what string, want queue.Class, times int) {
		t.Helper()
		for range times {
			select {
			case got := <-added:
				if got != *want.Priority() {
					t.Errorf("%s: priority %d, want %d", what, got, *want.Priority())
				}
			case <-time.After(30 * time.Second):
				t.Fatalf("%s triggers nothing", what)
			}
		}
	}
	next("a scaler that exists at the start", queue.Routine, 2) // by the scaler, and by the order of the scalers
	edited := vs.DeepCopy()
	edited.Generation = 2
	of(vs).Modify(edited)
	next("an edit of the spec", queue.Edit, 1)

	pod, set := podOf("2"), replicaSet("web-2")
	of(pod).Add(pod) // its ReplicaSet is not known yet
	of(pod).Add(podOf("1"))
	next("a pod that is new", queue.Workload, 1) // so the previous one is in the cache
	of(&appsv1.ReplicaSet{}).Add(set)
	next("a ReplicaSet that comes after its pod", queue.Workload, 1)
	set = set.DeepCopy()
	set.Generation = 2
	of(&appsv1.ReplicaSet{}).Modify(set) // the changed fields are not read
	pod = pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	of(pod).Modify(pod)
	next("a pod that starts", queue.Workload, 1)
	pod = pod.DeepCopy()
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled"}}}}
	of(pod).Modify(pod)
	next("an OOM kill", queue.Urgent, 1)
	of(pod).Delete(pod)
	next("a pod that is gone", queue.Workload, 1)

	of(&appsv1.Deployment{}).Add(&appsv1.Deployment{ObjectMeta: meta("web")})
	next("a Deployment", queue.Workload, 1)
	of(&corev1.LimitRange{}).Add(&corev1.LimitRange{ObjectMeta: meta("range")})
	next("a LimitRange", queue.Workload, 1)
	hpa := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: meta("web")}
	hpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}
	of(hpa).Add(hpa)
	next("an HPA", queue.Workload, 1)

	collected <- event.GenericEvent{Object: vs}
	next("collected usage", queue.Routine, 1)
	other := client.ObjectKey{Namespace: "shop", Name: "other"}
	changes.Ask(time.Now(), other, budget.Want{})
	changes.Ask(time.Now(), client.ObjectKeyFromObject(vs), budget.Want{})
	changes.Return(other)
	next("a slot of the budget", queue.Urgent, 1)
	if len(added) > 0 {
		t.Errorf("%d requests too many", len(added))
	}
}

// startTriggers runs a controller with all triggers until the test ends.
func startTriggers(t *testing.T, added chan int, collected <-chan event.GenericEvent, changes *budget.Budget, lists func(runtime.Object) toolscache.ListerWatcher) {
	t.Helper()
	known := watchedScheme(t)
	mapper := meta.NewDefaultRESTMapper(nil)
	for kind := range known.AllKnownTypes() {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	mgr, err := ctrl.NewManager(&rest.Config{}, ctrl.Options{
		Scheme:         known,
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: ptr.To(true)},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		NewCache: func(config *rest.Config, options cache.Options) (cache.Cache, error) {
			usual, err := cache.New(config, options)
			return inventory.Over(usual, api{lists: lists}), err
		},
		Cache: cache.Options{NewInformer: func(_ toolscache.ListerWatcher, kind runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(lists(kind), kind, resync, indexers)
		}},
	})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cached := mgr.GetCache().(*inventory.Cache)
	r := &Reconciler{Budget: changes, order: precedence.New(precedence.MaxReported), Pods: cached.Pods}
	must.Succeed(t, indexClaims(ctx, cached))
	options, serving := queue.Options(1), make(chan struct{})
	serves := options.NewQueue
	options.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
		served, _ := serves(name, limiter).(priorityqueue.PriorityQueue[reconcile.Request])
		return &recordingQueue{served, added, serving}
	}
	building := ctrl.NewControllerManagedBy(mgr).Named(Name).WithOptions(options)
	r.addTriggers(building, mgr.GetCache(), collected)
	must.Succeed(t, building.Complete(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil })))
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		must.Succeed(t, <-done)
	})
	<-serving
}

func watchedScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, v1beta1.AddToScheme} {
		must.Succeed(t, add(known))
	}
	return known
}

// Unfinished work keeps its class, and a resync follows when there is nothing else to do.
func TestAResyncIsRoutineAndARetryKeepsItsClass(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*scope)
		routine bool
	}{
		"settled":                        {func(*scope) {}, true},
		"waiting for a time of the plan": {func(s *scope) { s.plan.Verdict.RequeueAfter = time.Minute }, true},
		"its Deployment is gone":         {func(s *scope) { s.outcome = gone }, true},
		"the next step needs the last":   {func(s *scope) { s.requeueAfter = staleCacheRetry }, false},
		"conflict":                       {func(s *scope) { s.outcome = conflicted }, false},
		"failed":                         {func(s *scope) { s.outcome, s.err = failed, errors.New("no connection") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &scope{scaler: &v1beta1.VerticalScaler{}}
			tc.change(s)
			result, _ := (&Reconciler{ResyncPeriod: 10 * time.Minute}).result(s)
			if got := result.Priority != nil && *result.Priority == *queue.Routine.Priority(); got != tc.routine {
				t.Errorf("the result is routine: %t, %+v", got, result)
			}
		})
	}
}

// A paused scaler is reconciled when a user gives another reason, and not for other edits.
func TestAnotherReasonOfAPauseIsSeen(t *testing.T) {
	paused := func(reason string, generation int64) *v1beta1.VerticalScaler {
		return &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{
			Generation: generation, Annotations: map[string]string{v1beta1.PausedAnnotation: reason},
		}}
	}
	for after, want := range map[*v1beta1.VerticalScaler]bool{paused("incident 43", 1): true, paused("incident 42", 2): false} {
		if got := scalerPredicate().Update(event.UpdateEvent{ObjectOld: paused("incident 42", 1), ObjectNew: after}); got != want {
			t.Errorf("%v passes: %t", after.Annotations, got)
		}
	}
}
