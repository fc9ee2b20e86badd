// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
)

// fullQueue has 5,000 requests over 50 namespaces, of which the largest has a hundred times as many as
// the smallest.
func fullQueue() (requests []reconcile.Request) {
	for ns := 0; len(requests) < 5000; ns = (ns + 1) % 50 {
		for range 1 + ns*ns/25 {
			requests = append(requests, in(fmt.Sprint("ns-", ns), len(requests)))
		}
	}
	return requests[:5000]
}

// anyQueue is a queue to compare; add adds a request of a class if the queue knows any.
type anyQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	add func(reconcile.Request, Class)
}

func queuesToCompare() map[string]func() anyQueue {
	limiter := workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
	byPriority := func(q priorityqueue.PriorityQueue[reconcile.Request]) anyQueue {
		return anyQueue{q, func(r reconcile.Request, class Class) { q.AddWithOpts(with(class), r) }}
	}
	return map[string]func() anyQueue{
		"client-go": func() anyQueue {
			q := workqueue.NewTypedRateLimitingQueue(limiter)
			return anyQueue{q, func(r reconcile.Request, _ Class) { q.Add(r) }}
		},
		"controller-runtime": func() anyQueue { return byPriority(priorityqueue.New[reconcile.Request]("")) },
		bench.Operator: func() anyQueue {
			q, _ := newQueue("", limiter).(*classQueue)
			return byPriority(q)
		},
	}
}

func (q anyQueue) serve() reconcile.Request {
	request, _ := q.Get()
	q.Done(request)
	return request
}

// BenchmarkQueue compares our queue with those of the libraries: the CPU time to fill it with 5,000 requests and
// to serve them.
func BenchmarkQueue(b *testing.B) {
	requests := fullQueue()
	var contenders []bench.Contender
	for name, build := range queuesToCompare() {
		q := build()
		defer q.ShutDown()
		contenders = append(contenders, bench.Contender{Name: name, Run: func() {
			for i, request := range requests {
				q.add(request, Class(i%int(classes)))
			}
			for range requests {
				q.serve()
			}
		}})
	}
	bench.InTurns(b, contenders...)
}

// BenchmarkOrder compares what the order means for the one that waits. kill is how many of 5,000 routine requests
// are served before an OOM kill. starved is how many of 100 routine requests were not served among 2,000 requests
// while there was always an urgent one. unfair is how many of 5,000 requests of one namespace are served before one
// of another namespace, in the same class.
func BenchmarkOrder(b *testing.B) {
	for b.Loop() {
		for name, build := range queuesToCompare() {
			bench.Report(b, name, "kill", float64(servedBeforeKill(build())))
			bench.Report(b, name, "starved", float64(starved(build())))
			bench.Report(b, name, "unfair", float64(servedBeforeQuiet(build())))
		}
	}
	b.ReportMetric(0, "ns/op") // It would be the time of all queues.
}

func servedBeforeKill(q anyQueue) int {
	defer q.ShutDown()
	for _, request := range fullQueue() {
		q.add(request, Routine)
	}
	return q.servedBefore(in("bank", 0), Urgent)
}

func servedBeforeQuiet(q anyQueue) int {
	defer q.ShutDown()
	for i := range 5000 {
		q.add(in("storm", i), Workload)
	}
	return q.servedBefore(in("quiet", 0), Workload)
}

func (q anyQueue) servedBefore(request reconcile.Request, class Class) (n int) {
	q.Len() // the library's queue adds in the background, and Len waits for that
	q.add(request, class)
	q.Len()
	for q.serve() != request {
		n++
	}
	return n
}

func starved(q anyQueue) (left int) {
	defer q.ShutDown()
	const routine = 100
	for i := range routine {
		q.add(in("shop", i), Routine)
	}
	left = routine
	for i := range 2000 {
		q.add(in("storm", i), Urgent)
		q.add(in("storm", i+1), Urgent)
		q.Len()
		if q.serve().Namespace == "shop" {
			left--
		}
	}
	return left
}
