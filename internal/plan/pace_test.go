// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// decidedCPU is a decision of 200m ten minutes ago, which the pods have.
func decidedCPU() func(*world) {
	return func(w *world) {
		pods(pod("web-1", large()))(w)
		policyOfApp(func(p *plan.ContainerPolicy) { p.Memory = false })(w)
		decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(200, 0) })(w)
	}
}

func cpuOf(target, lower, upper int64) func(*world) {
	return recommends(rec(amounts(target, 0), amounts(lower, 0), amounts(upper, 0)))
}

func policy(change func(*plan.Policy)) func(*world) {
	return func(w *world) { change(&w.policy) }
}

func windows(specs ...window.Spec) func(*world) {
	return func(w *world) {
		for _, spec := range specs {
			parsed, err := window.Parse(spec)
			if err != nil {
				panic(err)
			}
			w.policy.Windows = append(w.policy.Windows, parsed)
		}
	}
}

// nightly is closed at noon, and opens in fourteen hours.
func nightly(directions ...window.Direction) window.Spec {
	return window.Spec{Schedule: "0 2 * * *", Duration: time.Hour, Directions: directions}
}

// daily is open at noon.
func daily(directions ...window.Direction) window.Spec {
	return window.Spec{Schedule: "30 11 * * *", Duration: time.Hour, Directions: directions}
}

func TestTolerance(t *testing.T) {
	rule := rulesOf(t)
	rule("Without a tolerance, all are", given(decidedCPU(), policy(func(p *plan.Policy) { p.Tolerance = 0 }), cpuOf(201, 200, 300)),
		"decides app 201m - (ScaleUp) · resizes web-1 to app 201m 256Mi of 402m 512Mi · Resizing · 0/1 changing")
}

func TestCooldownByDirection(t *testing.T) {
	hour := policy(func(p *plan.Policy) { p.ScaleDown.Cooldown = ptr.To(time.Hour) })
	rule := rulesOf(t)
	rule("What is lowered waits for its own cooldown", given(decidedCPU(), hour, cpuOf(100, 80, 150)),
		"keeps app 200m - · InCooldown: All pods have the decided size. The next change (ScaleDown) waits until 1h0m0s after the last change · 1/1 applied, again in 50m0s")
	rule("What is raised does not wait for that", given(decidedCPU(), hour, cpuOf(300, 150, 400)),
		"decides app 300m - (ScaleUp) · resizes web-1 to app 300m 256Mi of 600m 512Mi · Resizing · 0/1 changing")
	rule("A raise does not take along what still has to wait", given(atSize(), decidedBefore(), hour, recommends(rec(amounts(100, 400), amounts(80, 256), amounts(150, 500)))),
		"decides app 200m 400Mi (ScaleUp) · resizes web-1 to app 200m 400Mi of 400m 800Mi · Resizing · 0/2 changing")
	rule("0 is a cooldown of its own",
		given(decidedCPU(), policy(func(p *plan.Policy) { p.Cooldown, p.ScaleUp.Cooldown = time.Hour, ptr.To(time.Duration(0)) }), cpuOf(300, 150, 400)),
		"decides app 300m - (ScaleUp) · resizes web-1 to app 300m 256Mi of 600m 512Mi · Resizing · 0/1 changing")
	rule("Both are told where they differ, and the sooner one is waited for",
		given(atSize(), decidedBefore(), policy(func(p *plan.Policy) {
			p.ScaleUp.Cooldown, p.ScaleDown.Cooldown = ptr.To(30*time.Minute), ptr.To(time.Hour)
		}), recommends(rec(amounts(100, 400), amounts(80, 256), amounts(150, 500)))),
		"keeps app 200m 256Mi · InCooldown: All pods have the decided size. The next change (ScaleDown) waits until 1h0m0s after the last change; (ScaleUp) waits until 30m0s after the last change · 2/2 applied, again in 20m0s")
}

func TestRaiseOnly(t *testing.T) {
	raiseOnly := policy(func(p *plan.Policy) { p.ScaleDown.LeavesMemory = true })
	less := recommends(rec(amounts(50, 100), amounts(40, 64), amounts(90, 120)))
	original := func(memory int64) func(*world) {
		return template(sized("app", amounts(100, memory), amounts(200, 2*memory)))
	}
	rule := rulesOf(t)
	rule("Memory that is raise-only stays, and CPU follows", given(raiseOnly, pods(pod("web-1", small()), pod("web-2", small())), less),
		"decides app 50m - (ScaleDown) · resizes web-1 to app 50m 128Mi of 100m 256Mi · Resizing · 0/2 changing")
	rule("It is said why memory stays", given(raiseOnly, atSize(), decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 256) }), pods(pod("web-1", sized("app", amounts(50, 256), amounts(100, 512)))), less),
		"keeps app 50m 256Mi · Applied: All pods have the decided size. app memory: 256Mi stays beside a target of 100Mi, because scaleDown.controlledResources does not include memory · 1/1 applied")
	rule("It is raised as before", given(raiseOnly, atSize(), decidedBefore(), recommends(rec(amounts(200, 400), amounts(150, 300), amounts(250, 500)))),
		"decides app 200m 400Mi (LowerBound) · resizes web-1 to app 200m 400Mi of 400m 800Mi · Resizing · 0/2 changing")
	rule("maxAllowed lowers it, and no further",
		given(raiseOnly, atSize(), decidedBefore(), policyOfApp(func(p *plan.ContainerPolicy) { p.CPU, p.MaxAllowed.MemoryBytes = false, 192*mebi }), less),
		"decides app - 192Mi (Bounds) · resizes web-1 to app 200m 192Mi of 400m 384Mi · Resizing · 0/2 changing")
	rule("The template's request is a floor, too: each pod of a new revision starts with it",
		given(raiseOnly, original(300), atSize(), decidedBefore(), recommends(rec(amounts(200, 100), amounts(150, 64), amounts(250, 120)))),
		"decides app 200m 300Mi (Bounds) · resizes web-1 to app 200m 300Mi of 400m 600Mi · Resizing · 0/2 changing")
	killed := func(w *world) {
		small := pod("web-1", sized("app", amounts(200, 512), amounts(400, 1024)))
		small.Kills = []workload.OOMKill{{Container: "app", At: noon.Add(-2 * time.Hour), HitBytes: 512 * mebi}}
		w.situation.Pods = []workload.Pod{small, pod("web-2", large()), pod("web-3", large())}
	}
	rule("What one pod got after an OOM kill ends with the next decision", given(killed, decidedBefore(recently)),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 2/3 changing")
	rule("But not if memory is raise-only", given(raiseOnly, killed, decidedBefore(recently), policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed.MemoryBytes = 1024 * mebi })),
		"keeps app 200m 256Mi · OutlierPod: pod web-1: container app was OOM-killed at a size that is enough for the other pods, and has more memory than they · 2/3")
}

func TestHeapsSetByHand(t *testing.T) {
	heap := func(bytes int64, flag string) func(*world) {
		return deployment(func(d *workload.Deployment) { d.Heaps = map[string]workload.Heap{"app": {Bytes: bytes, Flag: flag}} })
	}
	flag := heap(192*mebi, "-Xmx192m in env JAVA_TOOL_OPTIONS")
	onlyMemory := policyOfApp(func(p *plan.ContainerPolicy) { p.CPU = false })
	less := recommends(rec(amounts(0, 100), amounts(0, 64), amounts(0, 120)))
	has := func(memory int64) func(*world) {
		return func(w *world) {
			c := sized("app", amounts(200, memory), amounts(400, 512))
			template(c)(w)
			pods(pod("web-1", c))(w)
		}
	}
	rule := rulesOf(t)
	rule("Memory is not lowered below the heap", given(onlyMemory, has(256), flag, less),
		"decides app - 192Mi (ScaleDown) · resizes web-1 to app 200m 192Mi of 400m 384Mi · Resizing · 0/1 changing")
	rule("The flag is named", given(onlyMemory, has(192), flag, less),
		"no decision · WithinBounds: app memory: 192Mi stays beside a target of 100Mi; at least 192Mi: -Xmx192m in env JAVA_TOOL_OPTIONS · 1/1 applied")
	rule("A heap that is larger than the request raises nothing", given(onlyMemory, has(150), flag, less),
		"no decision · WithinBounds: app memory: 150Mi stays beside a target of 100Mi; at least 150Mi: -Xmx192m in env JAVA_TOOL_OPTIONS · 1/1 applied")
	rule("What was lowered below the heap before is raised to it", given(onlyMemory, has(256), flag, less, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(0, 100) })),
		"decides app - 192Mi (Bounds) · resizes web-1 to app 200m 192Mi of 400m 384Mi · Resizing · 0/1 changing")
	rule("maxAllowed has the last word", given(onlyMemory, has(192), flag, less, policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed.MemoryBytes = 128 * mebi })),
		"decides app - 128Mi (Bounds) · resizes web-1 to app 200m 128Mi of 400m 357913942 · Resizing · 0/1 changing")
	headroom := policyOfApp(func(p *plan.ContainerPolicy) { p.LimitPolicy.HeadroomMemory = ptr.To[int64](10) })
	rule("Headroom lowers a limit", given(onlyMemory, has(100), less, headroom),
		"decides app - 100Mi (Bounds) · resizes web-1 to app 200m 100Mi of 400m 110Mi · Resizing · 0/1 changing")
	rule("But not below the heap", given(onlyMemory, has(100), heap(500*mebi, "-Xmx500m in args"), less, headroom),
		"no decision · WithinTolerance · 1/1 applied")
	rule("A share of the limit is only named", given(onlyMemory, has(256), heap(0, "-XX:MaxRAMPercentage=75 in args"), func(w *world) {
		r := rec(amounts(0, 256), amounts(0, 200), amounts(0, 400))
		r.Reasons = []recommend.Reason{{Resource: "memory", Code: recommend.UsageFollowsLimit, Value: 256 * mebi}}
		w.situation.Recommendations = []recommend.Container{r}
	}),
		"no decision · UsageFollowsLimit: app memory: usage grows with the limit (-XX:MaxRAMPercentage=75 in args), so 256Mi is not raised for now · 0/1")
}

func TestStepLimit(t *testing.T) {
	raise := policy(func(p *plan.Policy) { p.ScaleUp.MaxStepPercent = 25 })
	lower := policy(func(p *plan.Policy) { p.ScaleDown.MaxStepPercent = 10 })
	rule := rulesOf(t)
	rule("A raise goes as far as its step", given(decidedCPU(), raise, cpuOf(400, 150, 500)),
		"decides app 250m - (ScaleUp) · resizes web-1 to app 250m 256Mi of 500m 512Mi · Resizing · 0/1 changing")
	rule("What is lowered goes as far as its step, in amounts that people can read",
		given(atSize(), decidedBefore(), lower, recommends(rec(amounts(50, 100), amounts(40, 64), amounts(90, 120)))),
		"decides app 180m 231Mi (ScaleDown) · resizes web-1 to app 180m 231Mi of 360m 462Mi · Resizing · 0/2 changing")
	rule("Where usage asks for more, the step reaches the lower bound", given(decidedCPU(), raise, cpuOf(400, 350, 500)),
		"decides app 350m - (LowerBound) · resizes web-1 to app 350m 256Mi of 700m 512Mi · Resizing · 0/1 changing")
	rule("And goes on from there only after the cooldown",
		given(decidedCPU(), raise, pods(pod("web-1", sized("app", amounts(350, 256), amounts(700, 512)))), decidedBefore(recently, func(d *plan.Decision) { d.Requests["app"] = amounts(350, 0) }), cpuOf(400, 350, 500)),
		"keeps app 350m - · InCooldown: All pods have the decided size. The next change (ScaleUp) waits until 5m0s after the last change · 1/1 applied, again in 4m0s")
	rule("An OOM kill goes all the way",
		given(raise, pods(pod("web-1", large())), decidedBefore(recently), recommends(withOOMFloor(700, rec(amounts(200, 1024), amounts(150, 800), amounts(300, 2048))))),
		"decides app 200m 1024Mi (OOMKill) · resizes web-1 to app 200m 1024Mi of 400m 2048Mi · Resizing · 0/1 changing")
	rule("Where nothing is requested, there is nothing that a step is a share of",
		given(raise, policyOfApp(func(p *plan.ContainerPolicy) { p.Memory = false }), template(sized("app", amounts(0, 128), amounts(0, 0))), pods(pod("web-1", sized("app", amounts(0, 128), amounts(0, 0)))), cpuOf(400, 150, 500)),
		"decides app 400m - (ScaleUp) · resizes web-1 to app 400m 128Mi of - - · Resizing · 0/1 changing")
}

func TestWindows(t *testing.T) {
	rule := rulesOf(t)
	rule("A direction that no window names does not wait", given(decidedCPU(), windows(nightly("ScaleDown")), cpuOf(300, 150, 400)),
		"decides app 300m - (ScaleUp) · resizes web-1 to app 300m 256Mi of 600m 512Mi · Resizing · 0/1 changing")
	rule("An open window of one direction does not take along the other",
		given(atSize(), decidedBefore(), windows(nightly("ScaleDown"), daily("ScaleUp")), recommends(rec(amounts(100, 400), amounts(80, 256), amounts(150, 500)))),
		"decides app 200m 400Mi (ScaleUp) · resizes web-1 to app 200m 400Mi of 400m 800Mi · Resizing · 0/2 changing")
	rule("What bounds demanded takes along nothing that may wait",
		guaranteed(2000, orRollout, windows(nightly("ScaleUp")), recommends(), func(w *world) { w.policy.Mode = "InPlace" }, decidedBefore(func(d *plan.Decision) {
			d.Requests["app"], d.Reason = amounts(62, 0), plan.DecidedBounds
		})),
		"keeps app 62m - · resizes web-1 to app 62m 128Mi of 62m 128Mi · Resizing · 0/1 changing")
	rule("The longer of cooldown and window is waited for",
		given(decidedCPU(), windows(nightly("ScaleDown")), policy(func(p *plan.Policy) { p.ScaleDown.Cooldown = ptr.To(24 * time.Hour) }), cpuOf(100, 80, 150)),
		"keeps app 200m - · InCooldown: All pods have the decided size. The next change (ScaleDown) waits until 24h0m0s after the last change · 1/1 applied, again in 23h50m0s")
	rule("Which the cooldown is if the window opens as it ends",
		given(decidedCPU(), windows(nightly("ScaleDown")), policy(func(p *plan.Policy) { p.ScaleDown.Cooldown = ptr.To(14*time.Hour + 10*time.Minute) }), cpuOf(100, 80, 150)),
		"keeps app 200m - · InCooldown: All pods have the decided size. The next change (ScaleDown) waits until 14h10m0s after the last change · 1/1 applied, again in 14h0m0s")
	rule("And the window, if it opens later",
		given(decidedCPU(), windows(nightly("ScaleDown")), policy(func(p *plan.Policy) { p.ScaleDown.Cooldown = ptr.To(14 * time.Hour) }), cpuOf(100, 80, 150)),
		"keeps app 200m - · OutsideWindow: All pods have the decided size. The next change (ScaleDown) waits for the next of updatePolicy.windows · 1/1 applied, again in 14h0m0s")
	rule("A new pod gets the decided size at any time",
		given(decidedCPU(), windows(nightly("ScaleUp", "ScaleDown")), pods(pod("web-1", large()), pod("web-2", small())), cpuOf(200, 150, 400)),
		"keeps app 200m - · resizes web-2 to app 200m 128Mi of 400m 256Mi · Resizing · 1/2 changing")
	rule("A rollout that was decided in a window does not begin after it", given(rollout, appTakenOver(), decidedBefore(), windows(nightly("ScaleUp"))),
		"keeps app 200m 256Mi · OutsideWindow: Waiting for the next of updatePolicy.windows to roll out the decided size · 0/2, again in 14h0m0s")
	rule("Unless what led to it cannot wait", given(rollout, appTakenOver(), decidedBefore(func(d *plan.Decision) { d.Reason = "LowerBound" }), windows(nightly("ScaleUp"))),
		"keeps app 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("A rollout waits for windows of the directions that it changes", given(rollout, appTakenOver(), decidedBefore(), windows(nightly("ScaleDown"))),
		"keeps app 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("A window that is not understood is for a person to put right",
		given(decidedCPU(), policy(func(p *plan.Policy) { p.InvalidWindow = "updatePolicy.windows[0] never opens: x" }), cpuOf(200, 150, 400)),
		"keeps app 200m - · InvalidWindow: updatePolicy.windows[0] never opens: x · 1/1 applied stalled")
	rule("And holds up nothing that another window allows",
		given(decidedCPU(), policy(func(p *plan.Policy) { p.InvalidWindow = "bad" }), windows(daily("ScaleUp")), cpuOf(300, 150, 400)),
		"decides app 300m - (ScaleUp) · resizes web-1 to app 300m 256Mi of 600m 512Mi · Resizing · 0/1 changing")
}

func TestLimits(t *testing.T) {
	headroom := func(cpu, memory int64) func(*plan.ContainerPolicy) {
		return func(p *plan.ContainerPolicy) {
			p.LimitPolicy.HeadroomCPU, p.LimitPolicy.HeadroomMemory = &cpu, &memory
		}
	}
	most := func(cpu, memory int64) func(*plan.ContainerPolicy) {
		return func(p *plan.ContainerPolicy) { p.LimitPolicy.MaxAllowed = amounts(cpu, memory) }
	}
	least := func(cpu, memory int64) func(*plan.ContainerPolicy) {
		return func(p *plan.ContainerPolicy) { p.LimitPolicy.MinAllowed = amounts(cpu, memory) }
	}
	rule := rulesOf(t)
	rule("One resource may have headroom, and the other its proportion", given(policyOfApp(func(p *plan.ContainerPolicy) { h := int64(25); p.LimitPolicy.HeadroomMemory = &h })),
		"decides app 200m 256Mi (LowerBound) · resizes web-1 to app 200m 256Mi of 400m 320Mi · Resizing · 0/2 changing")
	rule("No headroom at all keeps the pod Burstable by the least bit", given(policyOfApp(headroom(0, 0))),
		"decides app 200m 256Mi (LowerBound) · resizes web-1 to app 199m 256Mi of 200m 256Mi · Resizing · 0/2 changing")
	rule("A Guaranteed pod is told what its policy asks for",
		given(policyOfApp(headroom(10, 10)), template(sized("app", amounts(100, 128), amounts(100, 128))), pods(pod("web-1", sized("app", amounts(100, 128), amounts(100, 128))))),
		"decides app 200m 256Mi (LowerBound) · QoSChange: pod web-1: its QoS class would change from Guaranteed to Burstable, which cannot be done in place: use controlledValues RequestsAndLimits with limits.headroomPercent 0, or Rollout as the updateMode or fallback. The fallback is Wait: these pods stay unchanged · 0/1 stalled")
	rule("Above a limit nothing is requested", given(policyOfApp(most(150, 200))),
		"decides app 150m 200Mi (LowerBound) · resizes web-1 to app 149m 200Mi of 150m 200Mi · Resizing · 0/2 changing")
	rule("Where there is no limit, none is added, and none caps the request",
		given(policyOfApp(func(p *plan.ContainerPolicy) { most(150, 200)(p); headroom(10, 10)(p); least(100, 100)(p) }), template(sized("app", amounts(100, 128), amounts(0, 0))), pods(pod("web-1", sized("app", amounts(100, 128), amounts(0, 0))))),
		"decides app 200m 256Mi (LowerBound) · resizes web-1 to app 200m 256Mi of - - · Resizing · 0/1 changing")
	rule("A LimitRange goes before that, to the byte",
		given(policyOfApp(least(1000, 1024)), bounds(workload.Bounds{ContainerMax: amounts(900, 1000), ContainerRatio: workload.Ratios{Memory: 3000}})),
		"decides app 200m 256Mi (LowerBound) · resizes web-1 to app 200m 256Mi of 900m 768Mi · Resizing · 0/2 changing")
	rule("A LimitRange's least goes before the most of limits", given(policyOfApp(most(150, 0)), bounds(workload.Bounds{ContainerMin: amounts(180, 0)})),
		"decides app 180m 256Mi (Bounds) · resizes web-1 to app 180m 256Mi of 180m 512Mi · Resizing · 0/2 changing")
	rule("A limit that is not as its policy says is put right, though its request stays",
		given(policyOfApp(most(150, 0)), cpuOf(100, 90, 120), policyOfApp(func(p *plan.ContainerPolicy) { p.Memory = false })),
		"decides app 100m - (Bounds) · resizes web-1 to app 100m 128Mi of 150m 256Mi · Resizing · 0/2 changing")
	rule("Likewise in a template",
		given(rollout, appTakenOver(), policyOfApp(headroom(50, 100)), policyOfApp(func(p *plan.ContainerPolicy) { p.Memory = false }), cpuOf(100, 90, 120)),
		"decides app 100m - (Bounds) · then rewrites app 100m 128Mi of 150m 256Mi · RollingOut · 0/2 changing")
	rule("Once it is, nothing is left to do",
		given(policyOfApp(most(150, 0)), policyOfApp(func(p *plan.ContainerPolicy) { p.Memory = false }), cpuOf(100, 90, 120), pods(pod("web-1", sized("app", amounts(100, 128), amounts(150, 256))))),
		"no decision · WithinTolerance · 1/1 applied")
}

func quotas(quotas ...workload.Quota) func(*world) {
	return func(w *world) { w.situation.Quotas = quotas }
}

func quota(key string, hard, used int64) workload.Quota {
	return workload.Quota{Name: "team", Key: key, Hard: hard, Used: used}
}

func TestQuotas(t *testing.T) {
	written := decidedBefore()
	rule := rulesOf(t)
	rule("Where the CPU does not fit, the memory is resized alone", given(quotas(quota("requests.cpu", 209, 200))),
		"decides app 200m 256Mi (LowerBound) · resizes web-1 to app 100m 256Mi of 200m 512Mi · Resizing · 0/2 changing, again in 1m0s")
	rule("Who is over a quota may shrink",
		given(quotas(quota("requests.cpu", 100, 400), quota("requests.memory", 1, 400*mebi)), atSize(), decidedBefore(), recommends(rec(amounts(50, 100), amounts(40, 64), amounts(90, 120)))),
		"decides app 50m 100Mi (ScaleDown) · resizes web-1 to app 50m 100Mi of 100m 200Mi · Resizing · 0/2 changing")
	rule("A pod that grows blocks none that shrinks",
		given(quotas(quota("requests.cpu", 400, 400), quota("memory", 1, 1)), decidedBefore(), pods(pod("web-1", small()), pod("web-2", sized("app", amounts(300, 384), amounts(600, 768))))),
		"keeps app 200m 256Mi · resizes web-2 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing, again in 1m0s")
	rule("A container that grows blocks none that shrinks",
		given(quotas(quota("requests.cpu", 400, 400)), template(container("app"), container("log")), func(w *world) { w.policy.Containers["log"] = w.policy.Containers["app"] }, decidedBefore(func(d *plan.Decision) { d.Requests["log"] = amounts(500, 128) }), pods(pod("web-1", sized("app", amounts(300, 256), amounts(600, 512)), sized("log", amounts(100, 128), amounts(200, 256))))),
		"keeps app 200m 256Mi; log 500m 128Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi; log 200m 128Mi of 400m 256Mi · Resizing · 0/1 changing, again in 1m0s")
	killed := func(w *world) { w.situation.Recommendations[0].OOMFloor = 250 * mebi }
	one := pods(pod("web-1", small()))
	rule("A raise gets the part that fits", given(decidedBefore(), one, quotas(quota("requests.cpu", 260, 200), quota("limits.memory", 600*mebi, 456*mebi))), "keeps app 200m 256Mi · resizes web-1 to app 160m 200Mi of 320m 400Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("It leaves room for the first new pod of a rollout", given(decidedBefore(), one, quotas(quota("requests.cpu", 360, 200), quota("requests.memory", 1000*mebi, 640*mebi))), "keeps app 200m 256Mi · resizes web-1 to app 160m 232Mi of 320m 464Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("Of the template's size, where the decided one does not fit anyway", given(decidedBefore(), one, quotas(quota("requests.cpu", 350, 200))), "keeps app 200m 256Mi · resizes web-1 to app 150m 256Mi of 300m 512Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("An OOM kill does not wait for that", given(decidedBefore(func(d *plan.Decision) { d.Reason = plan.DecidedOOMKill }), one, killed, quotas(quota("requests.memory", 800*mebi, 640*mebi))), "keeps app 200m 256Mi · resizes web-1 to app 100m 256Mi of 200m 512Mi · Resizing · 0/1 changing")
	rule("It gets what there is, however little", given(decidedBefore(func(d *plan.Decision) { d.Reason = plan.DecidedOOMKill }), one, killed, quotas(quota("requests.memory", 648*mebi, 640*mebi))), "keeps app 200m 256Mi · resizes web-1 to app 100m 136Mi of 200m 272Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("No room is left for a rollout that removes a pod first", given(decidedBefore(), one, quotas(quota("requests.cpu", 300, 200)), func(w *world) { w.situation.Deployment.Unavailable = 1 }), "keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("Nor for one that would not fit before either", given(decidedBefore(), one, quotas(quota("requests.memory", 700*mebi, 600*mebi))), "keeps app 200m 256Mi · resizes web-1 to app 200m 228Mi of 400m 456Mi · Resizing · 0/1 changing, again in 1m0s")
	rolling := deployment(func(d *workload.Deployment) { d.Replicas, d.UpdatedReplicas, d.RollingOut = 4, 1, true })
	rule("During a rollout, room is left for the pods that are still to be created", given(decidedBefore(), one, rolling, quotas(quota("requests.memory", 1000*mebi, 900*mebi))), "keeps app 200m 256Mi · resizes web-1 to app 200m 128Mi of 400m 256Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("And for another one: an old pod that goes may be smaller", given(decidedBefore(), one, rolling, quotas(quota("requests.memory", 1500*mebi, 900*mebi))), "keeps app 200m 256Mi · resizes web-1 to app 200m 216Mi of 400m 432Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("And is used where there is enough", given(decidedBefore(), one, rolling, quotas(quota("requests.memory", 2000*mebi, 900*mebi))), "keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("A kill is answered also then", given(decidedBefore(func(d *plan.Decision) { d.Reason = plan.DecidedOOMKill }), one, rolling, killed, quotas(quota("requests.memory", 1000*mebi, 900*mebi))), "keeps app 200m 256Mi · resizes web-1 to app 100m 228Mi of 200m 456Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("It is said what is missing", given(decidedBefore(), pods(pod("web-1", sized("app", amounts(160, 256), amounts(320, 512)))), quotas(quota("requests.cpu", 460, 260))), "keeps app 200m 256Mi · QuotaExceeded: pod web-1: ResourceQuota team allows 460m of requests.cpu, of which 260m are used, and 40m more are needed, and 200m for new pods of a rollout · 0/1 stalled, again in 1m0s")
	rule("What is counted under other names is not ours", given(quotas(quota("pods", 2, 2), quota("requests.storage", 1, 1))),
		"decides app 200m 256Mi (LowerBound) · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing")
	rule("A rollout needs room for one new pod", given(rollout, appTakenOver(), written, quotas(quota("requests.cpu", 399, 200))),
		"keeps app 200m 256Mi · QuotaExceeded: ResourceQuota team allows 399m of requests.cpu, of which 200m are used, and 200m more are needed for the first new pod of a rollout · 0/2 stalled, again in 1m0s")
	rule("What old pods leave that may go first is there for it",
		given(rollout, appTakenOver(), written, quotas(quota("requests.cpu", 300, 200)), deployment(func(d *workload.Deployment) { d.Unavailable = 1 })),
		"keeps app 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("With Recreate that is all of them",
		given(rollout, appTakenOver(), written, quotas(quota("requests.cpu", 200, 200)), deployment(func(d *workload.Deployment) { d.Unavailable = 2 })),
		"keeps app 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi · RollingOut · 0/2 changing")
	rule("A limit that new pods get by default counts",
		given(rollout, appTakenOver(), written, template(sized("app", amounts(100, 128), amounts(200, 0))), bounds(workload.Bounds{ContainerDefault: amounts(0, 300)}), quotas(quota("limits.memory", 600*mebi, 301*mebi))),
		"keeps app 200m 256Mi · QuotaExceeded: ResourceQuota team allows 600Mi of limits.memory, of which 301Mi are used, and 300Mi more are needed for the first new pod of a rollout · 0/2 stalled, again in 1m0s")
}
