// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// withQueue calls f with a queue with the clock of synctest.
func withQueue(t *testing.T, f func(q *fairQueue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newTestQueue(t)) })
}

func newTestQueue(t *testing.T) *fairQueue {
	t.Helper()
	q := newQueue("", workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, time.Minute)).(*oneClass).PriorityQueue.(*fairQueue)
	t.Cleanup(q.ShutDown)
	return q
}

func in(namespace string, i int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}}
}

func with(class Class) priorityqueue.AddOpts {
	return priorityqueue.AddOpts{Priority: class.Priority()}
}

func (q *fairQueue) mustGet(t *testing.T, want reconcile.Request, class Class) {
	t.Helper()
	got, priority, _ := q.GetWithPriority()
	if got != want || Class(priority) != class {
		t.Errorf("got %s with class %d, want %s with class %d", got, priority, want, class)
	}
}

// Only the first kills of a namespace precede kills in another namespace.
func TestAFloodOfKillsDelaysNoOtherNamespace(t *testing.T) {
	withQueue(t, func(q *fairQueue) {
		for i := range 2300 {
			q.AddWithOpts(with(Urgent), in("flood", i))
		}
		q.AddWithOpts(with(Edit), in("shop", 1))
		for i := range maxFirst {
			q.mustGet(t, in("flood", i), Urgent)
		}
		q.AddWithOpts(with(Urgent), in("bank", 1))
		q.mustGet(t, in("bank", 1), Urgent)
		for i := maxFirst; i < 2300; i++ {
			q.mustGet(t, in("flood", i), crowd)
		}
		q.mustGet(t, in("shop", 1), Edit)
		if len(q.first) != 0 {
			t.Errorf("%d namespaces are left", len(q.first))
		}
	})
}

// added lists the classes of added requests in order.
type added struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	classes []Class
}

func (q *added) Add(request reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, request) }

func (q *added) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	for range requests {
		q.classes = append(q.classes, Class(ptr.Deref(o.Priority, int(Edit))))
	}
}

func TestTheClassOfAHandler(t *testing.T) {
	pod := func(version string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: version}}
	}
	var got added
	watched := In(Workload, &handler.EnqueueRequestForObject{})
	watched.Create(t.Context(), event.CreateEvent{Object: pod("1"), IsInInitialList: true}, &got)
	watched.Create(t.Context(), event.CreateEvent{Object: pod("1")}, &got)
	watched.Update(t.Context(), event.UpdateEvent{ObjectOld: pod("1"), ObjectNew: pod("2")}, &got)
	watched.Delete(t.Context(), event.DeleteEvent{Object: pod("2")}, &got)
	assert.Equal(t, "classes of a listed, a created, an updated and a deleted object", []Class{Routine, Workload, Workload, Workload}, got.classes)
}

// A wait counts for the class in which the request is served, from when it may be served.
func TestWaitsAreMeasuredByClass(t *testing.T) {
	withQueue(t, func(q *fairQueue) {
		q.name = t.Name()
		serve := func(request reconcile.Request) {
			t.Helper()
			if got, _ := q.Get(); got != request {
				t.Errorf("got %s, want %s", got, request)
			}
			q.Done(request)
		}
		delayed := with(Routine)
		delayed.After = 30 * time.Second
		failed := with(Workload)
		failed.RateLimited = true // for a second
		q.AddWithOpts(with(Routine), in("a", 1), in("a", 2))
		q.AddWithOpts(delayed, in("a", 3))
		q.AddWithOpts(failed, in("a", 4))
		time.Sleep(40 * time.Second) // of simulated time: requests wait longer than the delays above
		q.AddWithOpts(with(Urgent), in("a", 1))
		time.Sleep(5 * time.Second) // of simulated time: the urgent request waits, too
		serve(in("a", 1))
		serve(in("a", 4))
		serve(in("a", 2))
		serve(in("a", 3))
		want := map[string]float64{"Urgent": 5, "Workload": 44, "Routine": 45 + 15}
		for class, seconds := range want {
			var got dto.Metric
			must.Succeed(t, waits.WithLabelValues(q.name, class).(prometheus.Metric).Write(&got))
			if got.GetHistogram().GetSampleSum() != seconds {
				t.Errorf("%s: waited for %g s, want %g", class, got.GetHistogram().GetSampleSum(), seconds)
			}
		}
		if len(q.waiting) > 0 {
			t.Errorf("%v are left", q.waiting)
		}
	})
}

// Late routine requests are reported once, with the latency of the API server, and so is their end.
func TestALateQueueIsReportedOnce(t *testing.T) {
	withQueue(t, func(q *fairQueue) {
		var lines []string
		q.log = funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
		metrics.Latency.Observe(20 * time.Second)
		for i, wait := range []time.Duration{59 * time.Second, 61 * time.Second, 5 * time.Minute, 40 * time.Second, 61 * time.Second, 29 * time.Second, 0} {
			q.AddWithOpts(with(Routine), in("a", i))
			time.Sleep(wait) // of simulated time: how late the request is
			q.mustGet(t, in("a", i), Routine)
			q.Done(in("a", i))
		}
		if len(lines) != 2 || !strings.Contains(lines[0], `"waited"="1m1s" "averageRequestDuration"="1s"`) || !strings.Contains(lines[1], "anymore") {
			t.Errorf("the log is:\n%s", strings.Join(lines, "\n"))
		}
	})
}
