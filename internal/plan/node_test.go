// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// largestNode is the largest node, in millicores and MiB.
func largestNode(cpu, memory int64) func(*world) {
	return func(w *world) { w.situation.LargestNode, w.situation.Ceilings.NodePercent = amounts(cpu, memory), 100 }
}

// withSidecar is the pod with a native sidecar.
func withSidecar(p workload.Pod, sidecar workload.Container) workload.Pod {
	return with(p, func(p *workload.Pod) {
		sidecar.IsSidecar = true
		p.Containers = append([]workload.Container{sidecar}, p.Containers...)
		p.Actual = p.Actual.With(sidecar.Name, sidecar.Resources)
	})
}

func TestTheLargestNode(t *testing.T) {
	onlyCPU := policyOfApp(func(p *plan.ContainerPolicy) { p.Memory = false })
	wants := func(cpu int64) func(*world) {
		return recommends(rec(amounts(cpu, 0), amounts(cpu, 0), amounts(cpu, 0)))
	}
	// has is a world of one container that has been given so much CPU.
	has := func(cpu int64, more ...func(*world)) world {
		c := sized("app", amounts(cpu, 128), quantity.Amounts{})
		return given(append([]func(*world){
			onlyCPU, template(c), pods(pod("web-1", c)),
			decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(cpu, 0) }),
		}, more...)...)
	}
	beside := func(name string, cpu int64) workload.Container {
		return sized(name, amounts(cpu, 0), quantity.Amounts{})
	}
	rule := rulesOf(t)
	rule("A pod that has ended takes no part",
		has(1000, pods(pod("web-1", beside("app", 1000)), with(pod("evicted", beside("app", 1000), beside("injected", 1500)), func(p *workload.Pod) { p.Running, p.Ended = false, true })), wants(6000), largestNode(4000, 0)),
		"decides app 4000m - (LowerBound) · resizes web-1 to app 4000m - of - - · Resizing · 0/1 changing")
	rule("An init container that ends takes no part",
		has(1000, pods(with(pod("web-1", beside("app", 1000)), func(p *workload.Pod) { p.Others = []workload.Container{beside("init", 1500)} })), wants(6000), largestNode(4000, 0)),
		"decides app 4000m - (LowerBound) · resizes web-1 to app 4000m - of - - · Resizing · 0/1 changing")
	rule("What is injected counts while a rollout has not made a pod yet",
		has(1000, func(w *world) {
			old := pod("web-1", beside("app", 1000), beside("injected", 1500))
			old.Current = false
			w.situation.Pods = []workload.Pod{old}
		}, wants(6000), largestNode(4000, 0)),
		"decides app 2500m - (LowerBound) · RolloutInProgress: 1 of 1 pods have an older template, and keep their size until they are replaced · 0/1")
}
