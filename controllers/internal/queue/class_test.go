// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// withQueue calls f with a queue whose clock is that of synctest.
func withQueue(t *testing.T, f func(q *classQueue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		q, ok := newQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)).(*classQueue)
		if !ok {
			t.Fatal("the queue has no classes")
		}
		defer q.ShutDown()
		f(q)
	})
}

func (q *classQueue) mustGet(t *testing.T, want reconcile.Request, class Class) {
	t.Helper()
	got, priority, _ := q.GetWithPriority()
	if got != want || classOf(&priority) != class {
		t.Errorf("got %s with class %d, want %s with class %d", got, classOf(&priority), want, class)
	}
}

func with(class Class) priorityqueue.AddOpts {
	return priorityqueue.AddOpts{Priority: class.Priority()}
}

func after(class Class, d time.Duration) priorityqueue.AddOpts {
	return priorityqueue.AddOpts{Priority: class.Priority(), After: d}
}

func TestPrioritiesOfControllerRuntimeAreClasses(t *testing.T) {
	for class := range classes {
		if got := classOf(class.Priority()); got != class {
			t.Errorf("class %d has the priority of class %d", class, got)
		}
	}
	for priority, want := range map[int]Class{handler.LowPriority: Routine, -3: Routine, 0: Edit, 7: Urgent} {
		if got := classOf(&priority); got != want {
			t.Errorf("priority %d is class %d, want %d", priority, got, want)
		}
	}
	if got := classOf(nil); got != Edit {
		t.Errorf("no priority is class %d, want %d", got, Edit)
	}
}

func TestARequestIsServedOnceWithItsHighestClass(t *testing.T) {
	withQueue(t, func(q *classQueue) {
		web, api := in("shop", 1), in("shop", 2)
		q.AddWithOpts(with(Workload), api)
		for _, class := range []Class{Routine, Urgent, Workload, Edit} {
			q.AddWithOpts(with(class), web)
		}
		q.mustGet(t, web, Urgent)
		q.mustGet(t, api, Workload)
		if n := q.Len(); n != 0 {
			t.Errorf("%d requests are left", n)
		}
	})
}

// A kill is reported while its scaler is reconciled for another reason.
func TestARequestKeepsAClassThatComesWhileItIsProcessed(t *testing.T) {
	withQueue(t, func(q *classQueue) {
		web, api := in("shop", 1), in("shop", 2)
		q.AddWithOpts(with(Routine), web)
		q.mustGet(t, web, Routine)
		q.AddWithOpts(with(Urgent), web)
		q.AddWithOpts(with(Routine), web, api)
		q.Add(api)
		q.Done(web)
		q.mustGet(t, web, Urgent)
		q.mustGet(t, api, Edit)
	})
}

func TestADelayedRequestKeepsItsClass(t *testing.T) {
	withQueue(t, func(q *classQueue) {
		kill, resync, retry, edit := in("shop", 1), in("shop", 2), in("shop", 3), in("shop", 4)
		q.AddWithOpts(after(Routine, time.Minute), kill, resync)
		q.AddWithOpts(after(Urgent, 50*time.Millisecond), kill)
		q.AddWithOpts(priorityqueue.AddOpts{Priority: Workload.Priority(), RateLimited: true}, retry)
		q.AddAfter(edit, 2*time.Second)
		q.AddRateLimited(edit)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		q.mustGet(t, kill, Urgent)
		q.mustGet(t, edit, Edit)
		q.mustGet(t, retry, Workload)
		q.mustGet(t, resync, Routine)
		if n := len(q.ready.delayed.known); n != 0 {
			t.Errorf("classes of %d requests are left", n)
		}
	})
}

// The resync that waits for its time has nothing to do with a kill that comes before.
func TestAnUrgentRequestDoesNotMakeALaterResyncUrgent(t *testing.T) {
	withQueue(t, func(q *classQueue) {
		web := in("shop", 1)
		q.AddWithOpts(after(Routine, time.Minute), web)
		q.AddWithOpts(with(Urgent), web)
		q.mustGet(t, web, Urgent)
		q.Done(web)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		q.mustGet(t, web, Routine)
	})
}

// added are the classes with which requests were added, in their order.
type added struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	classes []Class
}

func (q *added) Add(request reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, request) }

func (q *added) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	for range requests {
		q.classes = append(q.classes, classOf(o.Priority))
	}
}

func TestTheClassOfAHandler(t *testing.T) {
	pod := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: version}}
	}
	mapped := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{in("shop", 1)}
	})
	own := handler.Funcs{
		CreateFunc: func(_ context.Context, _ event.CreateEvent, q requests) { q.Add(in("shop", 1)) },
		UpdateFunc: func(_ context.Context, _ event.UpdateEvent, q requests) { q.AddAfter(in("shop", 1), time.Second) },
		DeleteFunc: func(_ context.Context, _ event.DeleteEvent, q requests) { q.AddRateLimited(in("shop", 1)) },
	}
	for name, h := range map[string]handler.EventHandler{"of the library": &handler.EnqueueRequestForObject{}, "with a map function": mapped, "of our own": own} {
		t.Run(name, func(t *testing.T) {
			var got added
			watched := In(Workload, h)
			watched.Create(t.Context(), event.CreateEvent{Object: pod("1"), IsInInitialList: true}, &got)
			watched.Create(t.Context(), event.CreateEvent{Object: pod("1")}, &got)
			watched.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("1"), ObjectNew: pod("2")}, &got)
			watched.Delete(t.Context(), event.DeleteEvent{Object: pod("2")}, &got)
			if diff := cmp.Diff([]Class{Routine, Workload, Workload, Workload}, got.classes); diff != "" {
				t.Errorf("classes of a listed, a created, an updated and a deleted object (-want +got):\n%s", diff)
			}
		})
	}
}

// syncing is a source that adds one request.
type syncing struct {
	source.Func
	err error
}

func (s syncing) WaitForSync(context.Context) error { return s.err }

func TestTheClassOfASource(t *testing.T) {
	add := source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.Add(in("shop", 1))
		return nil
	})
	var got added
	never := errors.New("not synced")
	for _, s := range []source.Source{From(Urgent, add), From(Routine, syncing{add, never})} {
		if err := s.Start(t.Context(), &got); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]Class{Urgent, Routine}, got.classes); diff != "" {
		t.Errorf("classes of two sources (-want +got):\n%s", diff)
	}
	if err := From(Routine, syncing{add, never}).WaitForSync(t.Context()); !errors.Is(err, never) {
		t.Errorf("the source synced with %v", err)
	}
	if err := From(Routine, add).WaitForSync(t.Context()); err != nil {
		t.Errorf("a source that does not sync did not sync: %v", err)
	}
}
