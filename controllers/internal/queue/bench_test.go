// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// BenchmarkQueue compares our queue with the one of client-go, which knows no classes: the CPU time to fill it with
// 5,000 requests and to serve them.
func BenchmarkQueue(b *testing.B) {
	limiter := workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
	plain, own := workqueue.NewTypedRateLimitingQueue(limiter), newQueue("", limiter)
	defer plain.ShutDown()
	defer own.ShutDown()
	for name, q := range map[string]workqueue.TypedRateLimitingInterface[reconcile.Request]{"client-go": plain, "operator": own} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				for i := range 5000 {
					InClass(q, []Class{Routine, Workload, Edit, Urgent}[i%4]).Add(in(fmt.Sprint("ns-", i%50), i))
				}
				for range 5000 {
					request, _ := q.Get()
					q.Done(request)
				}
			}
		})
	}
}
