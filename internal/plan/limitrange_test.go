// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/rand/v2"
	"testing"
	"time"

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

// The whole that the API server would refuse becomes the most that fits.
func TestSumsBoundARaise(t *testing.T) {
	a, b := sized("a", amounts(100, 200), amounts(200, 300)), sized("b", amounts(100, 300), amounts(200, 300))
	lowered := sized("a", amounts(100, 171), amounts(200, 300))
	wants := func(name string, memory, floor int64) recommend.Container {
		r := rec(amounts(100, memory), amounts(90, memory), amounts(110, memory))
		r.Name, r.OOMFloor, r.Uncapped = name, floor*mebi, amounts(100, memory)
		return r
	}
	both := func(a, b workload.Container) func(*world) {
		return func(w *world) {
			template(sized("a", amounts(100, 200), amounts(200, 300)), sized("b", amounts(100, 300), amounts(200, 300)))(w)
			pods(pod("web-1", a, b))(w)
		}
	}
	rises := func(w *world) {
		w.policy.Containers = map[string]plan.ContainerPolicy{}
		for _, name := range []string{"a", "b"} {
			w.policy.Containers[name] = plan.ContainerPolicy{Memory: true, Limits: plan.LimitsRise}
		}
	}
	most := bounds(workload.Bounds{PodMax: amounts(0, 700)})
	rule := rulesOf(t)
	rule("A killed container gets what the other leaves", given(both(lowered, b), rises, most, recommends(wants("a", 513, 513), wants("b", 300, 0))), "decides a - 266Mi (OOMKill) · resizes web-1 to a 100m 266Mi of 200m 399Mi · Resizing · 0/1 changing")
	rule("Also below its template", given(both(lowered, sized("b", amounts(100, 300), amounts(200, 400))), rises, most, recommends(wants("a", 513, 513), wants("b", 300, 0))), "decides a - 200Mi (OOMKill) · resizes web-1 to a 100m 200Mi of 200m 300Mi · Resizing · 0/1 changing")
	rule("One that was not killed leaves the template's to the other", given(both(lowered, b), rises, most, recommends(wants("a", 171, 0), wants("b", 600, 0))), "decides b - 400Mi (LowerBound) · resizes web-1 to b 100m 400Mi of 200m 400Mi · Resizing · 0/1 changing")
	rule("Killed ones come first", given(both(a, b), rises, most, recommends(wants("a", 400, 0), wants("b", 400, 400))), "decides b - 400Mi (OOMKill) · resizes web-1 to b 100m 400Mi of 200m 400Mi · Resizing · 0/1 changing")
	rule("All of it where it fits", given(both(lowered, b), rises, bounds(workload.Bounds{PodMax: amounts(0, 1100)}), recommends(wants("a", 513, 513), wants("b", 300, 0))), "decides a - 513Mi (OOMKill) · resizes web-1 to a 100m 513Mi of 200m 806879232 · Resizing · 0/1 changing")
	rule("Then it is said what stands in the way", given(both(sized("a", amounts(100, 266), amounts(200, 399)), b), rises, most, recommends(wants("a", 513, 513), wants("b", 300, 0))), "no decision · LimitRange: a memory: 513Mi is recommended or required by minAllowed, but LimitRange limits allows all containers of a pod together 700Mi of memory, limits included · 0/1")
	tiny := sized("a", amounts(100, 100), amounts(200, 100))
	rule("The other one gets the least that a LimitRange asks for", given(both(tiny, b), template(tiny, b), rises, bounds(workload.Bounds{PodMax: amounts(0, 700), ContainerMin: amounts(0, 180)}), recommends(wants("a", 100, 0), wants("b", 600, 600))), "decides a - 180Mi; b - 520Mi (OOMKill) · resizes web-1 to a 100m 180Mi of 200m 180Mi; b 100m 520Mi of 200m 520Mi · Resizing · 0/1 changing")
	rule("An old pod of a rollout bounds nothing", given(both(lowered, b), rises, most, rollingOut, recommends(wants("a", 171, 0), wants("b", 600, 0)), func(w *world) {
		w.situation.Pods = append(w.situation.Pods, ofOldTemplate(pod("web-2", lowered, b, sized("proxy", amounts(10, 20), amounts(20, 60)))))
	}), "decides b - 400Mi (LowerBound) · resizes web-1 to b 100m 400Mi of 200m 400Mi · Resizing · 0/2 changing")
	rule("In a rollout", given(rollout, both(a, b), rises, most, recommends(wants("a", 513, 513), wants("b", 300, 0))), "decides a - 266Mi (OOMKill) · holds a - 200Mi of - 300Mi cpu=false memory=true · RollingOut · 0/1 changing")
}

// However usage and kills follow each other: a container that was killed is not left below its template, which fits.
func TestAKilledContainerHasItsTemplateBack(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		w := given()
		var made []workload.Container
		w.policy.Containers = map[string]plan.ContainerPolicy{}
		sum := int64(0)
		for _, name := range []string{"a", "b", "c"}[:2+r.IntN(2)] {
			request := 64 + r.Int64N(400)
			limit := request * (100 + r.Int64N(100)) / 100
			made = append(made, sized(name, amounts(100, request), amounts(200, limit)))
			w.policy.Containers[name] = plan.ContainerPolicy{Memory: true, Limits: []plan.LimitRule{plan.LimitsRise, plan.LimitsFollow}[seed%2]}
			sum += limit
		}
		template(made...)(&w)
		pods(pod("web-1", made...))(&w)
		w.situation.Bounds = workload.Bounds{Name: "limits", PodMax: amounts(0, sum*(100+r.Int64N(50))/100)}
		now := noon
		for range 12 {
			now = now.Add(time.Hour)
			w.situation.Recommendations = nil
			killed := made[r.IntN(len(made))].Name
			was, _ := w.situation.Deployment.Container(killed)
			for _, c := range w.situation.Pods[0].Containers {
				usage, floor := 16+r.Int64N(600), int64(0)
				if c.Name == killed {
					usage = max(c.Requests.MemoryBytes, was.Requests.MemoryBytes)/mebi + r.Int64N(300)
					floor = usage * mebi
				}
				of := rec(amounts(100, usage), amounts(90, usage*9/10), amounts(110, usage*11/10))
				of.Name, of.OOMFloor, of.Uncapped = c.Name, floor, amounts(100, usage)
				w.situation.Recommendations = append(w.situation.Recommendations, of)
			}
			for range 8 {
				now = now.Add(time.Minute)
				w.carryOut(t, r, w.next(now))
			}
			has, _ := w.situation.Pods[0].Container(killed)
			if has.Requests.MemoryBytes < was.Requests.MemoryBytes || has.Limits.MemoryBytes < was.Limits.MemoryBytes {
				t.Fatalf("seed %d: container %s was killed, and has %s, and its template %s: %s", seed, killed, sayResources(has.Resources), sayResources(was.Resources), say(w.next(now)))
			}
		}
	}
}
