// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// templateSidecar gives the template a native sidecar. Without pods that have it, the next ones do.
func templateSidecar(c workload.Container) func(*world) {
	c.IsSidecar = true
	return deployment(func(d *workload.Deployment) { d.Containers = append([]workload.Container{c}, d.Containers...) })
}

// templateInit gives the template an init container that ends, after the sidecars.
func templateInit(c workload.Container) func(*world) {
	c.SidecarsBefore = 1
	return deployment(func(d *workload.Deployment) { d.Others = append(d.Others, c) })
}

// Everything that the API server and the scheduler count of a pod bounds what its containers get.
func TestTheWholePodCounts(t *testing.T) {
	proxy := sized("proxy", amounts(500, 64), amounts(500, 64))
	withProxy := pods(withSidecar(pod("web-1", small()), proxy), withSidecar(pod("web-2", small()), proxy))
	rule := rulesOf(t)
	rule("No template whose init container is too large beside the sidecar",
		given(rollout, decidedBefore(), appTakenOver(), templateSidecar(proxy), templateInit(sized("init", amounts(450, 1), amounts(450, 1))), bounds(workload.Bounds{PodMax: amounts(949, 0)})),
		"keeps app 200m 256Mi · LimitRange: LimitRange limits allows a pod at most 949m of cpu · 0/2 stalled")
	rule("A limit on some containers only must not be below the least",
		given(decidedBefore(), pods(withSidecar(pod("web-1", small()), sized("proxy", amounts(500, 64), quantity.Amounts{}))), bounds(workload.Bounds{PodMin: amounts(500, 0)})),
		"keeps app 200m 256Mi · LimitRange: pod web-1: LimitRange limits allows a pod a limit of no less than 500m of cpu · 0/1 stalled")
	rule("The ratio of a pod bounds its sums", given(decidedBefore(), pods(withSidecar(pod("web-1", small()), proxy)), bounds(workload.Bounds{PodRatio: workload.Ratios{CPU: 1285}})),
		"keeps app 200m 256Mi · LimitRange: pod web-1: LimitRange limits allows a pod a limit of at most 1.285 times its request of cpu · 0/1 stalled")
	rule("The first new pod of a rollout brings its sidecar", given(rollout, decidedBefore(), appTakenOver(), templateSidecar(proxy), quotas(quota("requests.cpu", 1899, 1200))),
		"keeps app 200m 256Mi · QuotaExceeded: ResourceQuota team allows 1899m of requests.cpu, of which 1200m are used, and 700m more are needed for the first new pod of a rollout · 0/2 stalled, again in 1m0s")
	rule("An injected one too, with its limit", given(rollout, decidedBefore(), appTakenOver(), withProxy, quotas(quota("limits.cpu", 2299, 1400))),
		"keeps app 200m 256Mi · QuotaExceeded: ResourceQuota team allows 2299m of limits.cpu, of which 1400m are used, and 900m more are needed for the first new pod of a rollout · 0/2 stalled, again in 1m0s")
	rule("A pod that has ended frees no quota",
		given(rollout, decidedBefore(), appTakenOver(), quotas(quota("requests.cpu", 299, 200)), deployment(func(d *workload.Deployment) { d.Unavailable = 1 }), pods(pod("web-1", small()), pod("web-2", small()), with(pod("evicted", sized("app", amounts(4000, 128), quantity.Amounts{})), func(p *workload.Pod) { p.Running, p.Ended = false, true }))),
		"keeps app 200m 256Mi · QuotaExceeded: ResourceQuota team allows 299m of requests.cpu, of which 200m are used, and 100m more are needed for the first new pod of a rollout · 0/2 stalled, again in 1m0s")
	for _, key := range []string{"requests.cpu", "limits.cpu"} {
		rule("What has not shrunk yet leaves no room in "+key+", because it may shrink at any time",
			given(decidedBefore(), quotas(quota(key, 500, 500)), pods(with(pod("web-1", small()), func(p *workload.Pod) {
				p.Actual = workload.Reported{}.With("app", resources(amounts(500, 128), amounts(1000, 256)))
			}))),
			"keeps app 200m 256Mi · resizes web-1 to app 100m 256Mi of 200m 512Mi · Resizing · 0/1 changing, again in 1m0s")
	}
	rule("What its kubelet can never grant is not counted, so less of it needs room, too",
		given(decidedBefore(recently), quotas(quota("limits.cpu", 250, 200)), pods(with(pod("web-1", sized("app", amounts(300, 256), amounts(600, 512))), func(p *workload.Pod) {
			p.Resize.Infeasible, p.Resize.Since, p.Actual = true, noon, workload.Reported{}.With("app", resources(amounts(100, 256), amounts(200, 512)))
		}))),
		"keeps app 200m 256Mi · Infeasible: pod web-1: its node can never hold the new size; pod web-1: ResourceQuota team allows 250m of limits.cpu, of which 200m are used, and 200m more are needed. The fallback is Wait: these pods stay unchanged · 0/1 stalled, again in 1m0s")
	rule("A boost leaves the node to the sidecar", given(decidedBefore(), boosts(), largestNode(750, 0), pods(starting(0, withSidecar(pod("web-1", small()), proxy)))),
		"keeps app 200m 256Mi · resizes web-1 to app 250m 256Mi of 500m 512Mi · Resizing · 0/1 changing, again in 11m1s")
}
