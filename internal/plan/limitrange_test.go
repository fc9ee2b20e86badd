// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// LimitRanger adds defaults to the containers of older pods when they are resized.
func TestAResizeAddsNothing(t *testing.T) {
	unlimited := sized("app", amounts(100, 128), amounts(0, 0))
	onlyCPU := sized("app", amounts(100, 128), amounts(200, 0))
	defaults := func(request, limit int64) func(*world) {
		return bounds(workload.Bounds{ContainerDefault: amounts(0, limit), ContainerDefaultRequest: amounts(0, request)})
	}
	older := func(containers ...workload.Container) func(*world) {
		return func(w *world) {
			template(containers...)(w)
			pods(pod("web-1", containers...))(w)
		}
	}
	const limitOfApp = "resources.limits.memory of container app in the Deployment"
	rule := rulesOf(t)
	rule("A default limit", given(decidedBefore(), older(unlimited), defaults(64, 512)),
		"keeps app 200m 256Mi · LimitRange: pod web-1: LimitRange limits would add a memory limit of 512Mi to container app when the pod is resized: set "+limitOfApp+" · 0/1 stalled")
	rule("Also for a resize of CPU alone", given(decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) }), older(onlyCPU), recommends(), defaults(64, 512)),
		"keeps app 200m - · LimitRange: pod web-1: LimitRange limits would add a memory limit of 512Mi to container app when the pod is resized: set "+limitOfApp+" · 0/1 stalled")
	rule("A default limit below the request, which would be refused", given(decidedBefore(), older(unlimited), defaults(64, 128)),
		"keeps app 200m 256Mi · LimitRange: pod web-1: LimitRange limits would add a memory limit of 128Mi to container app when the pod is resized: set "+limitOfApp+" · 0/1 stalled")
	rule("A maximum below known usage, which is the default limit too",
		given(decidedBefore(), older(sized("app", amounts(100, 342), amounts(0, 0))), recommends(func() recommend.Container {
			r := rec(amounts(200, 342), amounts(150, 192), amounts(300, 384))
			r.Reasons = []recommend.Reason{{Resource: "memory", Code: "Peak", Value: 300 * mebi}}
			return r
		}()), bounds(workload.Bounds{ContainerMax: amounts(0, 256), ContainerDefault: amounts(0, 256), ContainerDefaultRequest: amounts(0, 256)})),
		"keeps app 200m 256Mi · LimitRange: pod web-1: LimitRange limits would add a memory limit of 256Mi to container app when the pod is resized: set "+limitOfApp+"; container app is known to need 300Mi of memory · 0/1 stalled")
	rule("Containers that are not sized get defaults too",
		given(decidedBefore(), template(small()), pods(pod("web-1", small(), sized("proxy", amounts(10, 0), amounts(0, 256)))), bounds(workload.Bounds{ContainerDefault: amounts(500, 0), ContainerDefaultRequest: amounts(50, 64)})),
		"keeps app 200m 256Mi · LimitRange: pod web-1: LimitRange limits would add a cpu limit of 500m to container proxy, a memory request of 256Mi to container proxy when the pod is resized: "+
			"set resources.limits.cpu of container proxy where it is injected, resources.requests.memory of container proxy where it is injected · 0/1 stalled")
	rule("Init containers do", given(decidedBefore(), templateInit(sized("init", amounts(10, 16), amounts(0, 32))), pods(with(pod("web-1", small()), func(p *workload.Pod) {
		p.Others = []workload.Container{sized("init", amounts(10, 16), amounts(0, 32))}
	})), bounds(workload.Bounds{ContainerDefault: amounts(500, 0)})),
		"keeps app 200m 256Mi · LimitRange: pod web-1: LimitRange limits would add a cpu limit of 500m to container init when the pod is resized: set resources.limits.cpu of container init in the Deployment · 0/1 stalled")
	rule("No pod is replaced for that: the next one would have the limit too", given(decidedBefore(), orRollout, older(unlimited), defaults(64, 512)),
		"keeps app 200m 256Mi · LimitRange: pod web-1: LimitRange limits would add a memory limit of 512Mi to container app when the pod is resized: set "+limitOfApp+" · 0/1 stalled")
	rule("A pod with its decided size is left alone", given(decidedBefore(), older(sized("app", amounts(200, 256), amounts(0, 0))), defaults(64, 512)),
		"keeps app 200m 256Mi · Applied · 1/1 applied")
	rule("A container with all requests and limits gets nothing", given(decidedBefore(), older(small()), defaults(64, 512)),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("A default request for what is decided anyway adds nothing", given(decidedBefore(), older(sized("app", amounts(100, 0), amounts(0, 0))), bounds(workload.Bounds{ContainerDefaultRequest: amounts(0, 64)})),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of - - · Resizing · 0/1 changing")
	rule("A limit above a later maximum, of a container that is not sized",
		given(decidedBefore(), template(small()), pods(pod("web-1", small(), sized("proxy", amounts(10, 16), amounts(10, 600)))), bounds(workload.Bounds{ContainerMax: amounts(0, 512), ContainerDefault: amounts(0, 512)})),
		"keeps app 200m 256Mi · LimitRange: pod web-1: LimitRange limits allows container proxy at most 512Mi of memory, and its limit is 600Mi · 0/1 stalled")
}
