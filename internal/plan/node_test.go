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
		p.Actual[sidecar.Name] = sidecar.Resources
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
	rule("Two that want more than there is share it, whichever comes first",
		given(
			template(beside("app", 1000), beside("log", 1000)), pods(pod("web-1", beside("app", 1000), beside("log", 1000))),
			func(w *world) {
				w.policy.Containers = map[string]plan.ContainerPolicy{"app": {CPU: true}, "log": {CPU: true}}
				app := rec(amounts(6000, 0), amounts(6000, 0), amounts(6000, 0))
				log := app
				log.Name = "log"
				recommends(log, app)(w)
			}, largestNode(10000, 0)),
		"decides app 6000m -; log 4000m - (LowerBound) · resizes web-1 to app 6000m - of - -; log 4000m - of - - · Resizing · 0/1 changing")
	rule("An OOM kill is answered as far as the node goes",
		has(1000, policyOfApp(func(p *plan.ContainerPolicy) { p.CPU, p.Memory = false, true }),
			decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(0, 128) }),
			func(w *world) {
				r := rec(amounts(0, 2048), amounts(0, 2048), amounts(0, 2048))
				r.OOMFloor = 2048 * mebi
				recommends(r)(w)
			}, largestNode(4000, 1024)),
		"decides app - 1024Mi (OOMKill) · resizes web-1 to app 1000m 1024Mi of - - · Resizing · 0/1 changing")
	rule("What is injected counts while a rollout has not made a pod yet",
		has(1000, func(w *world) {
			old := pod("web-1", beside("app", 1000), beside("injected", 1500))
			old.Current = false
			w.situation.Pods = []workload.Pod{old}
		}, wants(6000), largestNode(4000, 0)),
		"decides app 2500m - (LowerBound) · RolloutInProgress: 1 of 1 pods have an older template, and keep their size until they are replaced · 0/1")
}
