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
	return func(w *world) { w.situation.LargestNode = amounts(cpu, memory) }
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
	rule("A larger one is cut to what it can give", has(1000, wants(6000), largestNode(4000, 0)),
		"decides app 4000m - (LowerBound) · resizes web-1 to app 4000m 128Mi of - - · Resizing · 0/1 changing")
	rule("What is cut says so once all is applied", has(4000, wants(6000), largestNode(4000, 0)),
		"keeps app 4000m - · NodeCapacity: All pods have the decided size. app cpu: 6000m is recommended, but no node has room for it beside the pod's other containers · 1/1 applied")
	rule("A little too much is not worth a word", has(4000, wants(4300), largestNode(4000, 0)), "keeps app 4000m - · Applied · 1/1 applied")
	rule("What a pod has already is not lowered when the largest node goes", has(4000, wants(6000), largestNode(2000, 0)),
		"keeps app 4000m - · NodeCapacity: All pods have the decided size. app cpu: 6000m is recommended, but no node has room for it beside the pod's other containers · 1/1 applied")
	rule("A container that is not managed takes its part",
		has(1000, template(beside("app", 1000), beside("log", 500)), pods(pod("web-1", beside("app", 1000), beside("log", 500))), wants(6000), largestNode(4000, 0)),
		"decides app 3500m - (LowerBound) · resizes web-1 to app 3500m - of - - · Resizing · 0/1 changing")
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
	rule("A container without a request gets none where the others fill the node",
		given(onlyCPU, template(beside("app", 0), beside("log", 5000)), pods(pod("web-1", beside("app", 0), beside("log", 5000))), wants(100), largestNode(4000, 0)),
		"no decision · NodeCapacity: app cpu: 100m is recommended, but no node has room for it beside the pod's other containers · 0/1")
	rule("An OOM kill is answered as far as the node goes",
		has(1000, policyOfApp(func(p *plan.ContainerPolicy) { p.CPU, p.Memory = false, true }),
			decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(0, 128) }),
			func(w *world) {
				r := rec(amounts(0, 2048), amounts(0, 2048), amounts(0, 2048))
				r.OOMFloor = 2048 * mebi
				recommends(r)(w)
			}, largestNode(4000, 1024)),
		"decides app - 1024Mi (OOMKill) · resizes web-1 to app 1000m 1024Mi of - - · Resizing · 0/1 changing")
	rule("One that wants more than any node has leaves the others theirs",
		given(
			template(beside("app", 1000), beside("log", 1000)), pods(pod("web-1", beside("app", 1000), beside("log", 1000))),
			func(w *world) {
				w.policy.Containers = map[string]plan.ContainerPolicy{"app": {CPU: true}, "log": {CPU: true}}
				app, log := rec(amounts(20000, 0), amounts(20000, 0), amounts(20000, 0)), rec(amounts(4000, 0), amounts(4000, 0), amounts(4000, 0))
				log.Name = "log"
				recommends(log, app)(w)
			}, largestNode(10000, 0)),
		"decides app 6000m -; log 4000m - (LowerBound) · resizes web-1 to app 6000m - of - -; log 4000m - of - - · Resizing · 0/1 changing")
	rule("What is injected counts while a rollout has not made a pod yet",
		has(1000, func(w *world) {
			old := pod("web-1", beside("app", 1000), beside("injected", 1500))
			old.Current = false
			w.situation.Pods = []workload.Pod{old}
		}, wants(6000), largestNode(4000, 0)),
		"decides app 2500m - (LowerBound) · RolloutInProgress: 1 of 1 pods have an older template, and keep their size until they are replaced · 0/1")
	rule("A template may ask for more, since a new pod may bring a new node", has(1000, rollout, wants(6000), largestNode(4000, 0)),
		"decides app 6000m - (LowerBound) · holds app 1000m - of - - cpu=true memory=false · RollingOut · 0/1 changing")
}
