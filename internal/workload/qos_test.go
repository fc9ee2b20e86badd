// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"cmp"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The API server works the class out in another way: from the sums over all
// containers. On any pod that it accepts, the answers must be the same.
func TestQoSOfEqualsTheAPIServer(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	seen := map[corev1.PodQOSClass]int{}
	for range 50_000 {
		var containers []workload.Container
		for range 1 + r.IntN(3) {
			var c workload.Container
			c.Limits = amounts(r.Int64N(3), r.Int64N(3))
			c.Requests = amounts(r.Int64N(3), r.Int64N(3))
			if r.IntN(2) == 0 {
				c.Requests = c.Limits
			}
			// The API server refuses requests above their limits.
			if c.Limits.CPUMillis > 0 {
				c.Requests.CPUMillis = min(c.Requests.CPUMillis, c.Limits.CPUMillis)
			}
			if c.Limits.MemoryBytes > 0 {
				c.Requests.MemoryBytes = min(c.Requests.MemoryBytes, c.Limits.MemoryBytes)
			}
			containers = append(containers, c)
		}
		inits := r.IntN(len(containers))
		want, got := computePodQOS(containers), workload.QoSOf(containers[:inits], containers[inits:])
		if got != want {
			t.Fatalf("seed %d: QoSOf(%+v) = %s, want %s", seed, containers, got, want)
		}
		seen[want]++
	}
	if len(seen) != 3 {
		t.Errorf("only %v were tried", seen)
	}
}

// computePodQOS follows ComputePodQOS in pkg/apis/core/v1/helper/qos of Kubernetes.
func computePodQOS(containers []workload.Container) corev1.PodQOSClass {
	requests, limits := map[string]int64{}, map[string]int64{}
	isGuaranteed := true
	for _, c := range containers {
		add := func(sum map[string]int64, a quantity.Amounts) (found int) {
			for name, v := range map[string]int64{"cpu": a.CPUMillis, "memory": a.MemoryBytes} {
				if v > 0 {
					sum[name] += v
					found++
				}
			}
			return found
		}
		// The API server fills in requests.
		add(requests, quantity.Amounts{
			CPUMillis: cmp.Or(c.Requests.CPUMillis, c.Limits.CPUMillis), MemoryBytes: cmp.Or(c.Requests.MemoryBytes, c.Limits.MemoryBytes),
		})
		if add(limits, c.Limits) < 2 {
			isGuaranteed = false
		}
	}
	if len(requests) == 0 && len(limits) == 0 {
		return corev1.PodQOSBestEffort
	}
	for name, request := range requests {
		if limit, ok := limits[name]; !ok || limit != request {
			isGuaranteed = false
		}
	}
	if isGuaranteed && len(requests) == len(limits) {
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
