// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

func aPod(name, version string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, ResourceVersion: version}}
}

// byName finds the request of an object's own name, after a number of failures.
func byName(failures int) (find func(context.Context, client.Object) ([]reconcile.Request, error), asked *[]time.Time) {
	asked = new([]time.Time)
	return func(_ context.Context, object client.Object) ([]reconcile.Request, error) {
		*asked = append(*asked, time.Now())
		if len(*asked) <= failures {
			return nil, errors.New("no cache")
		}
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}, nil
	}, asked
}

// drained are the names that wait, with their classes.
func drained(q *fairQueue) (names map[string]Class) {
	names = map[string]Class{}
	for q.Len() > 0 {
		request, priority, _ := q.GetWithPriority()
		names[request.Name] = Class(priority)
		q.Done(request)
	}
	return names
}

// An event is not lost if its look-up fails: it is repeated, with a growing delay, and leads to a request of the same class.
func TestALookUpThatFailsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t)
		find, asked := byName(10)
		start := time.Now()
		In(Workload, Mapped(find)).Delete(t.Context(), event.DeleteEvent{Object: aPod("web", "1")}, q)
		if got := drained(q); len(got) != 0 {
			t.Errorf("a look-up that fails has found %v", got)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		assert.Equal(t, "requests", map[string]Class{"web": Workload}, drained(q))
		var delays []time.Duration
		for i, at := range *asked {
			delays = append(delays, at.Sub(append([]time.Time{start}, *asked...)[i]))
		}
		want := []time.Duration{
			0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, 1600 * time.Millisecond,
			3200 * time.Millisecond, 6400 * time.Millisecond, 12800 * time.Millisecond, 25600 * time.Millisecond, 30 * time.Second,
		}
		assert.Equal(t, "delays", want, delays)
	})
}

// An update is repeated as a whole if only its old object is found.
func TestAFailureForOneOfTwoObjectsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newTestQueue(t)
		var fails atomic.Bool
		fails.Store(true)
		h := Mapped(func(_ context.Context, object client.Object) ([]reconcile.Request, error) {
			if object.GetName() == "new" && fails.Load() {
				return nil, errors.New("no cache")
			}
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(object)}}, nil
		})
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: aPod("old", "1"), ObjectNew: aPod("new", "2")}, q)
		assert.Equal(t, "requests", map[string]Class{"old": Edit}, drained(q))
		fails.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Equal(t, "requests after the retry", map[string]Class{"old": Edit, "new": Edit}, drained(q))
	})
}

// Both objects of an update lead to one request, which is added once.
func TestARequestIsAddedOnce(t *testing.T) {
	var got added
	find, _ := byName(0)
	In(Urgent, Mapped(find)).Update(t.Context(), event.UpdateEvent{ObjectOld: aPod("web", "1"), ObjectNew: aPod("web", "2")}, &got)
	assert.Equal(t, "classes of the requests", []Class{Urgent}, got.classes)
}
