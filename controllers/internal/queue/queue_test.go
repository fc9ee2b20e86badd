// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}}
}

// requests is the queue of a controller.
type requests = priorityqueue.PriorityQueue[reconcile.Request]

// start runs a controller that begins with these objects, until the test stops it. It hands over
// the queue, for later changes.
func start(t *testing.T, options controller.Options, ready func(requests), names ...string) (stop func()) {
	t.Helper()
	c, err := controller.NewUnmanaged(t.Name(), options)
	must.Succeed(t, err)
	err = c.Watch(source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		for _, name := range names {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
			(&handler.EnqueueRequestForObject{}).Create(ctx, event.CreateEvent{Object: object, IsInInitialList: true}, queue)
		}
		classed, ok := queue.(requests)
		if !ok {
			t.Error("the queue has no classes")
		}
		ready(classed)
		return nil
	}))
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() { cancel(); running.Wait() }
}

// Every worker has an object whose request is never answered. The objects behind them are still
// reconciled, again and again.
func TestRequestsThatHangDoNotStopTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const workers = 8
		var names []string
		for i := range workers {
			names = append(names, fmt.Sprintf("hung-%d", i))
		}
		var mu sync.Mutex
		var reconciled []time.Duration
		began := time.Now()
		options := queue.Options(workers)
		options.SkipNameValidation = ptr.To(true) // for -count
		options.Reconciler = reconcile.Func(func(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
			if r.Name != "healthy" {
				<-ctx.Done()
				return reconcile.Result{}, ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			reconciled = append(reconciled, time.Since(began))
			return reconcile.Result{RequeueAfter: time.Second}, nil
		})
		stop := start(t, options, func(requests) {}, append(names, "healthy")...)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		stop()
		if len(reconciled) == 0 || reconciled[0] > queue.Deadline {
			t.Fatalf("the healthy object was first reconciled after %v, want within %v", reconciled, queue.Deadline)
		}
		for i, at := range reconciled[1:] {
			if waited := at - reconciled[i]; waited > queue.Deadline+time.Second {
				t.Errorf("the healthy object waited for %v, want at most %v", waited, queue.Deadline+time.Second)
			}
		}
	})
}

// A controller with a long queue answers an OOM kill next, and tries again soon if that fails, also
// before the rest of the queue. Routine requests wait.
func TestAControllerServesByClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		kill := request("7")
		options := queue.Options(1)
		options.SkipNameValidation = ptr.To(true) // for -count
		failed := false
		options.Reconciler = reconcile.Func(func(_ context.Context, r reconcile.Request) (reconcile.Result, error) {
			time.Sleep(time.Second)
			order = append(order, r.Name)
			if r == kill && !failed {
				failed = true
				return reconcile.Result{}, errors.New("no connection")
			}
			return reconcile.Result{RequeueAfter: time.Millisecond, Priority: queue.Routine.Priority()}, nil
		})
		stop := start(t, options, func(q requests) {
			go func() {
				time.Sleep(2500 * time.Millisecond)
				q.AddWithOpts(priorityqueue.AddOpts{Priority: queue.Urgent.Priority()}, kill)
			}()
		}, "1", "2", "3", "4", "5", "6", "7", "8", "9")
		time.Sleep(12500 * time.Millisecond)
		stop()
		// The kill comes during the third reconcile. Its retry is due 100 ms after it has failed.
		assert.Equal(t, "order of reconciles", []string{"1", "2", "3", "7", "4", "7", "5", "6", "8", "9", "1", "2"}, order[:min(len(order), 12)])
	})
}

// Objects that are reconciled at the same moment are resynced evenly over the period, and each one always at its
// own time.
func TestResyncsAreSpreadOverThePeriod(t *testing.T) {
	const period, n = 10 * time.Minute, 1000
	now := time.Date(2026, 3, 1, 12, 3, 4, 5, time.UTC)
	inMinute := map[time.Duration]int{}
	for i := range n {
		share := float64(i) / n
		after := queue.UntilSlot(now, period, share)
		if after < period/10 || after >= period+period/10 {
			t.Errorf("a share of %g is resynced after %s", share, after)
		}
		inMinute[after.Truncate(time.Minute)]++
		if again := queue.UntilSlot(now.Add(after), period, share); again != period {
			t.Errorf("a share of %g is resynced after %s, and then after %s", share, after, again)
		}
		if earlier := queue.UntilSlot(now.Add(after-5*time.Minute), period, share); earlier != 5*time.Minute {
			t.Errorf("a share of %g, 5 minutes before its resync, is resynced after %s", share, earlier)
		}
	}
	for minute, count := range inMinute {
		if count > 2*n/10 {
			t.Errorf("minute %s has %d of %d resyncs", minute, count, n)
		}
	}
}

// A stopped queue keeps its depth in the metric: see docs/runbook.md.
func TestAStoppedQueueKeepsItsDepth(t *testing.T) {
	q := queue.Options(1).NewQueue(t.Name(), queue.Options(1).RateLimiter)
	q.Add(request("a"))
	q.Len() // takes in the request
	q.ShutDown()
	if depth := depthOf(t, t.Name()); depth != 1 {
		t.Errorf("the depth is %g after the end: the runbook need not explain it any longer", depth)
	}
}

// depthOf is the depth of a controller's queue by the metric.
func depthOf(t *testing.T, name string) (depth float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must.Succeed(t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			isOf := func(l *dto.LabelPair) bool { return l.GetName() == "name" && l.GetValue() == name }
			if family.GetName() == "workqueue_depth" && slices.ContainsFunc(m.GetLabel(), isOf) {
				depth += m.GetGauge().GetValue()
			}
		}
	}
	return depth
}
