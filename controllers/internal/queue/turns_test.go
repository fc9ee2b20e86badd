// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func in(namespace string, i int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}}
}

// overtakings are, by waiting request, how many requests of each other namespace were served since
// it was added.
type overtakings map[reconcile.Request]map[string]int

// FuzzNoNamespaceWaitsForMoreThanOneTurnOfEachOther checks the promise of the order for any sequence
// of additions and servings. A byte below 192 adds a request to one of 8 namespaces, of which the
// first gets the most; any other byte serves a request.
func FuzzNoNamespaceWaitsForMoreThanOneTurnOfEachOther(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 255, 255, 2, 255, 255, 255, 255})
	f.Add([]byte("\x00\x08\x10\x18\x20\x28\x01\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, sequence []byte) {
		checkTurns(t, newTurns(), sequence)
	})
}

// The queue of client-go breaks the promise. If the check did not notice, it would prove nothing.
func TestTheCheckNoticesAQueueThatIsNotFair(t *testing.T) {
	unfair := workqueue.DefaultQueue[reconcile.Request]()
	for i := range 3 {
		unfair.Push(in("storm", i))
	}
	unfair.Push(in("quiet", 0))
	over := overtakings{in("quiet", 0): {}}
	ahead := map[reconcile.Request]int{in("quiet", 0): 0}
	problem := ""
	for range 3 {
		problem = over.serve(unfair.Pop(), ahead)
	}
	if problem == "" {
		t.Error("three requests of one namespace went before the only request of another, and nothing was noticed")
	}
}

// serve counts a serving, and says which request has waited for too long. Of its own namespace,
// ahead requests were before it when it was added.
func (o overtakings) serve(served reconcile.Request, ahead map[reconcile.Request]int) (problem string) {
	delete(o, served)
	for waiting, by := range o {
		if served.Namespace == waiting.Namespace {
			continue
		}
		by[served.Namespace]++
		if by[served.Namespace] > ahead[waiting]+1 {
			problem = fmt.Sprintf("%s waits, with %d before it in its namespace, although %d requests of namespace %s were served since",
				waiting, ahead[waiting], by[served.Namespace], served.Namespace)
		}
	}
	return problem
}

func checkTurns(t *testing.T, queue workqueue.Queue[reconcile.Request], sequence []byte) {
	t.Helper()
	over, ahead := overtakings{}, map[reconcile.Request]int{}
	waiting := map[string][]reconcile.Request{}
	n := 0
	serve := func() {
		before := queue.Len()
		served := queue.Pop()
		if queue.Len() != before-1 {
			t.Fatalf("%d requests after one of %d was served", queue.Len(), before)
		}
		of := waiting[served.Namespace]
		if len(of) == 0 || of[0] != served {
			t.Fatalf("%s was served, but %v wait in its namespace, in this order", served, of)
		}
		waiting[served.Namespace] = of[1:]
		if problem := over.serve(served, ahead); problem != "" {
			t.Fatal(problem)
		}
		delete(ahead, served)
	}
	for _, b := range sequence {
		if b >= 192 {
			if queue.Len() > 0 {
				serve()
			}
			continue
		}
		namespace := fmt.Sprintf("ns-%d", max(0, int(b%16)-8))
		request := in(namespace, n)
		n++
		ahead[request], over[request] = len(waiting[namespace]), map[string]int{}
		waiting[namespace] = append(waiting[namespace], request)
		queue.Push(request)
	}
	for queue.Len() > 0 {
		serve()
	}
	for namespace, left := range waiting {
		if len(left) > 0 {
			t.Fatalf("%d requests of namespace %s were never served", len(left), namespace)
		}
	}
}

// A namespace that has nothing to do must not stay in memory.
func TestAnEmptyNamespaceIsForgotten(t *testing.T) {
	queue := newTurns()
	for i := range 100 {
		queue.Push(in(fmt.Sprintf("ns-%d", i), 0))
		queue.Pop()
	}
	if len(queue.waiting) != 0 || queue.namespaces.Len() != 0 {
		t.Errorf("%d namespaces and %d turns are left", len(queue.waiting), queue.namespaces.Len())
	}
}
