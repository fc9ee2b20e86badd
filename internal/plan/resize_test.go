// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestWhichPodIsResized(t *testing.T) {
	// web-1 has been asked for and waits for its kubelet.
	waiting := func(name string, says workload.Resize) workload.Pod {
		return with(pod(name, large()), func(p *workload.Pod) {
			p.Resize = says
			p.Actual = p.Actual.With("app", small().Resources)
		})
	}
	killed := func(d *plan.Decision) { d.Reason = plan.DecidedOOMKill }
	memoryAlone := sized("app", amounts(100, 256), amounts(200, 512))
	eight := func(flying int) func(*world) {
		return func(w *world) {
			w.situation.Pods = nil
			for i := range 8 {
				p := pod(fmt.Sprintf("web-%d", i), small())
				if i < flying {
					p = waiting(p.Name, workload.Resize{InProgress: true})
				}
				w.situation.Pods = append(w.situation.Pods, p)
			}
		}
	}
	rule := rulesOf(t)
	rule("A quarter of many pods may be under way", given(decidedBefore(recently), eight(1)),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/8 changing, again in 9m0s")
	rule("More than a quarter may not", given(decidedBefore(recently), eight(2)), "keeps app 200m 256Mi · Resizing · 0/8 changing, again in 9m0s")
	rule("A Deferred pod counts as under way", given(decidedBefore(recently), pods(waiting("web-1", workload.Resize{Deferred: true}), pod("web-2", small()))),
		"keeps app 200m 256Mi · Deferred: pod web-1: its node has no room for the new size yet · 0/2, again in 9m0s")
	rule("Pods that wait for another size come first, so that there are no more of them",
		given(decidedBefore(recently), func(w *world) {
			eight(0)(w)
			for _, i := range []int{5, 6} {
				w.situation.Pods[i] = with(pod(w.situation.Pods[i].Name, sized("app", amounts(150, 200), amounts(300, 400))), func(p *workload.Pod) {
					p.Resize, p.Actual = workload.Resize{Deferred: true}, p.Actual.With("app", small().Resources)
				})
			}
		}),
		"keeps app 200m 256Mi · resizes web-5 to app 200m 256Mi of 400m 512Mi · Resizing · 0/8 changing")
	rule("A Deferred pod does not hold up what follows an OOM kill",
		given(decidedBefore(recently, killed), pods(with(waiting("web-1", workload.Resize{Deferred: true}), func(p *workload.Pod) { p.Containers[0] = memoryAlone }), pod("web-2", small()))),
		"keeps app 200m 256Mi · resizes web-2 to app 100m 256Mi of 200m 512Mi · Resizing · 0/2 changing, again in 9m0s")
	rule("After an OOM kill, CPU waits until the memory is applied, because the node may have no room for it",
		given(decidedBefore(recently, killed), pods(pod("web-1", memoryAlone), pod("web-2", memoryAlone))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing")
	rule("It does not wait if there was no room for the memory alone",
		given(decidedBefore(recently, killed), pods(pod("web-1", small())), rejected(memoryAlone.Resources, "Deferred", "No room")),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 128Mi of 400m 256Mi · Resizing · 0/1 changing")
	rule("A Deferred pod does not hold up one that gives something back",
		given(decidedBefore(recently), pods(waiting("web-1", workload.Resize{Deferred: true}), pod("web-2", sized("app", amounts(300, 256), amounts(600, 512))))),
		"keeps app 200m 256Mi · resizes web-2 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing, again in 9m0s")
	outlier := func(c workload.Container, kill workload.OOMKill, change ...func(*workload.Pod)) func(*world) {
		return func(w *world) {
			kill.Container, kill.At, w.situation.Ceilings.RaiseFactor = "app", noon.Add(-2*time.Minute), 8
			w.situation.Pods = []workload.Pod{with(pod("web-1", c), append(change, func(p *workload.Pod) { p.Kills = []workload.OOMKill{kill} })...), pod("web-2", large()), pod("web-3", large())}
		}
	}
	rule("One pod of three that is killed at the decided size gets more", given(decidedBefore(), outlier(large(), workload.OOMKill{HitBytes: 512 * mebi})),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 512Mi of 400m 1024Mi · Resizing · 2/3 changing")
	rule("Also where nothing bounds a raise",
		given(decidedBefore(), outlier(large(), workload.OOMKill{HitBytes: 512 * mebi}), func(w *world) { w.situation.Ceilings.RaiseFactor = 0 }),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 512Mi of 400m 1024Mi · Resizing · 2/3 changing")
	capped := sized("app", amounts(200, 256), amounts(400, 400))
	rule("As far as the policy allows its limit",
		given(decidedBefore(), outlier(capped, workload.OOMKill{HitBytes: 400 * mebi}),
			func(w *world) { w.situation.Pods[1], w.situation.Pods[2] = pod("web-2", capped), pod("web-3", capped) },
			policyOfApp(func(p *plan.ContainerPolicy) { p.LimitPolicy.MaxAllowed = amounts(0, 400) })),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 400Mi of 400m 400Mi · Resizing · 2/3 changing")
	hasZero, gotMore := sized("app", quantity.Amounts{CPUMillis: 200, MemoryBytes: 1}, amounts(200, 300)), sized("app", amounts(200, 512), amounts(200, 512))
	gotMore.Requests.MemoryBytes-- // which keeps its QoS class
	rule("And keeps that, a byte below its limit",
		given(decidedBefore(), template(hasZero), outlier(gotMore, workload.OOMKill{}, func(p *workload.Pod) { p.QoS = corev1.PodQOSBurstable }), func(w *world) {
			has := sized("app", amounts(200, 256), amounts(200, 300))
			w.situation.Pods[1], w.situation.Pods[2] = pod("web-2", has), pod("web-3", has)
		}),
		"keeps app 200m 256Mi · OutlierPod: pod web-1: container app was OOM-killed at a size that is enough for the other pods, and has more memory than they · 2/3")
	rule("Without the steps of minAllowed that are to come",
		given(decidedBefore(func(d *plan.Decision) { d.Reason, d.Time = plan.DecidedBounds, noon.Add(-3*time.Minute) }), outlier(large(), workload.OOMKill{HitBytes: 512 * mebi}),
			policyOfApp(func(p *plan.ContainerPolicy) { p.MinAllowed = amounts(0, 3072) })),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 512Mi of 400m 1024Mi · Resizing · 2/3 changing")
	rule("And is named", given(decidedBefore(), outlier(sized("app", amounts(200, 512), amounts(400, 1024)), workload.OOMKill{}, wasResized)),
		"keeps app 200m 256Mi · OutlierPod: pod web-1: container app was OOM-killed at a size that is enough for the other pods, and has more memory than they · 2/3")
	rule("A pod that starts is lowered once it is Ready",
		given(decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 64) }), recommends(halved()), pods(starting(time.Minute, pod("web-1", small())))),
		"keeps app 50m 64Mi · PodsUnavailable: pod web-1: is lowered once it is Ready · 0/1")
	rule("A pod that has just started has time to report",
		given(decidedBefore(), pods(with(waiting("web-1", workload.Resize{}), func(p *workload.Pod) { p.Started = noon.Add(-time.Minute) }))),
		"keeps app 200m 256Mi · Resizing · 0/1 changing, again in 9m0s")
	rule("What kubelets say is told with the worst first",
		given(decidedBefore(recently), pods(waiting("web-1", workload.Resize{Deferred: true}), with(waiting("web-2", workload.Resize{}), refusedByNode), waiting("web-3", workload.Resize{InProgress: true, Failed: true}), waiting("web-4", workload.Resize{Deferred: true}))),
		"keeps app 200m 256Mi · Infeasible: pod web-2: no room; pod web-1, pod web-4: its node has no room for the new size yet; pod web-3: the kubelet could not actuate the resize and tries again. The fallback is Wait: these pods stay unchanged · 0/4 stalled, again in 9m0s")
	never := waiting("web-1", workload.Resize{Infeasible: true, Message: "containers with swap"})
	rule("A kubelet that never grants both resources is asked for one of them at once", given(decidedBefore(recently), pods(never)),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 128Mi of 200m 256Mi · Resizing: A resize that a node does not grant is withdrawn · 0/1 changing")
	withdrawn := func(sizes ...workload.Resources) func(*world) {
		return func(w *world) {
			for _, size := range sizes {
				refused := plan.RejectedResize{Sizes: []plan.Size{{Container: "app", Resources: size}}, Reason: "Infeasible", Message: "containers with swap"}
				w.reject("uid-web-1", refused)
			}
		}
	}
	rule("For its memory", given(decidedBefore(recently), pods(pod("web-1", small())), withdrawn(large().Resources)),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 256Mi of 200m 512Mi · Resizing · 0/1 changing")
	rule("Then, as soon as that is refused as well, for its CPU", given(decidedBefore(recently), pods(pod("web-1", small())), withdrawn(large().Resources, resources(amounts(100, 256), amounts(200, 512)))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 128Mi of 400m 256Mi · Resizing · 0/1 changing")
	rule("And memory alone that is refused", given(decidedBefore(recently), pods(with(pod("web-1", memoryAlone), func(p *workload.Pod) {
		p.Resize = workload.Resize{Infeasible: true, Message: "containers with swap"}
		p.Actual = p.Actual.With("app", small().Resources)
	})), withdrawn(large().Resources)), "keeps app 200m 256Mi · resizes web-1 to app 100m 128Mi of 200m 256Mi · Resizing: A resize that a node does not grant is withdrawn · 0/1 changing")
	rule("An Infeasible pod is tried again when the target changes",
		given(decidedBefore(), pods(with(pod("web-1", sized("app", amounts(900, 900), amounts(1800, 1800))), func(p *workload.Pod) {
			p.Resize = workload.Resize{Infeasible: true}
			p.Actual = p.Actual.With("app", small().Resources)
		}))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("Pods that end, wait or have an older template are left alone",
		given(decidedBefore(), pods(with(pod("web-1", small()), func(p *workload.Pod) { p.Terminating = true }), with(pod("web-2", small()), func(p *workload.Pod) { p.Running = false }), with(pod("web-3", small()), func(p *workload.Pod) { p.Current = false }))),
		"keeps app 200m 256Mi · RolloutInProgress: 1 of 1 pods have an older template, and keep their size until they are replaced · 0/1")
	rule("A container that the template does not have is left alone", given(decidedBefore(), pods(pod("web-1", container("proxy"), small()))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("Small differences of CPU in what the kubelet reports do not matter",
		given(decidedBefore(), pods(with(pod("web-1", large()), func(p *workload.Pod) {
			p.Actual = p.Actual.With("app", resources(amounts(199, 256), amounts(400, 512)))
		}))),
		"keeps app 200m 256Mi · Applied · 1/1 applied")
}

// A resize that the kubelet does not grant is withdrawn, and is not repeated for a while.
func TestWhatIsWithdrawn(t *testing.T) {
	long := func(d *plan.Decision) { d.Time = noon.Add(-time.Hour) }
	// pending is a pod that was asked for large, and what its kubelet has said for a while.
	pending := func(name string, says workload.Resize) workload.Pod {
		says.Since = noon.Add(-11 * time.Minute)
		return with(pod(name, large()), func(p *workload.Pod) { p.Resize, p.Actual = says, p.Actual.With("app", small().Resources) })
	}
	withdrawn := rejected(large().Resources, "Deferred", "No room")
	memoryAlone := sized("app", amounts(100, 256), amounts(200, 512))
	rule := rulesOf(t)
	rule("A Deferred one after the grace", given(decidedBefore(long), pods(pending("web-1", workload.Resize{Deferred: true}))),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 128Mi of 200m 256Mi · Resizing: A resize that a node does not grant is withdrawn · 0/1 changing")
	rule("Not one that may still be granted",
		given(decidedBefore(long), pods(with(pending("web-1", workload.Resize{Deferred: true}), func(p *workload.Pod) { p.Resize.Since = noon.Add(-9 * time.Minute) }))),
		"keeps app 200m 256Mi · Deferred: pod web-1: its node has no room for the new size yet · 0/1, again in 1m0s")
	rule("Not one whose kubelet does not report what is applied",
		given(decidedBefore(long), pods(with(pending("web-1", workload.Resize{Deferred: true}), func(p *workload.Pod) { p.Actual = nil }))),
		"keeps app 200m 256Mi · Deferred: pod web-1: its node has no room for the new size yet. The fallback is Wait: these pods stay unchanged · 0/1")
	rule("To what is applied, whatever was decided before",
		given(decidedBefore(long), pods(with(pending("web-1", workload.Resize{Deferred: true}), func(p *workload.Pod) {
			p.Actual = p.Actual.With("app", resources(amounts(150, 200), amounts(300, 400)))
		}))),
		"keeps app 200m 256Mi · resizes web-1 to app 150m 200Mi of 300m 400Mi · Resizing: A resize that a node does not grant is withdrawn · 0/1 changing")
	rule("No limit is removed, because its kubelet reports none",
		given(decidedBefore(long), pods(with(pending("web-1", workload.Resize{Deferred: true}), func(p *workload.Pod) { p.Actual = p.Actual.With("app", resources(amounts(100, 128), amounts(0, 512))) }))),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 128Mi of 400m 512Mi · Resizing: A resize that a node does not grant is withdrawn · 0/1 changing")
	rule("Also while usage is missing: the pod has nothing of it",
		given(decidedBefore(long), pods(pending("web-1", workload.Resize{Deferred: true})), func(w *world) { w.situation.MissingUsage = "pod web-2" }),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 128Mi of 200m 256Mi · Resizing: A resize that a node does not grant is withdrawn · 0/1 changing")
	rule("What is applied of it stays", given(decidedBefore(long), pods(pod("web-1", memoryAlone)), withdrawn),
		"keeps app 200m 256Mi · Deferred: pod web-1: No room. The fallback is Wait: these pods stay unchanged · 0/1")
	rule("Pods that have not been asked come first",
		given(decidedBefore(long), pods(pod("web-1", small()), pod("web-2", small())), withdrawn),
		"keeps app 200m 256Mi · resizes web-2 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing")
	rule("More is not asked for either",
		given(decidedBefore(long, func(d *plan.Decision) { d.Requests["app"] = amounts(230, 256) }), recommends(rec(amounts(230, 256), amounts(200, 200), amounts(300, 300))), pods(pod("web-1", memoryAlone)), withdrawn),
		"keeps app 230m 256Mi · Deferred: pod web-1: No room. The fallback is Wait: these pods stay unchanged · 0/1")
	rule("Less is",
		given(decidedBefore(long, func(d *plan.Decision) { d.Requests["app"] = amounts(150, 256) }), recommends(rec(amounts(150, 256), amounts(100, 200), amounts(200, 300))), pods(pod("web-1", memoryAlone)), withdrawn),
		"keeps app 150m 256Mi · resizes web-1 to app 150m 256Mi of 300m 512Mi · Resizing · 0/1 changing")
	rule("The fallback follows, and does not wait for what other nodes put off",
		given(decidedBefore(recently), orRollout, appTakenOver(), pods(pod("web-1", small()), with(pending("web-2", workload.Resize{Deferred: true}), func(p *workload.Pod) { p.Resize.Since = noon }), pod("web-3", small())), withdrawn),
		"keeps app 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi · RollingOut. Requires pod replacement: pod web-1: No room · 0/3 changing")
}

func TestWhatCannotBeDoneInPlace(t *testing.T) {
	refused := func(to workload.Resources) func(*world) {
		return rejected(to, "NodeCapacity", "node didn't have enough allocatable resources")
	}
	whole := refused(large().Resources)
	memoryAlone, cpuAlone := refused(resources(amounts(100, 256), amounts(200, 512))), refused(resources(amounts(200, 128), amounts(400, 256)))
	requestsOnly := policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = plan.LimitsStay })
	guaranteed := sized("app", amounts(100, 128), amounts(100, 128))
	rule := rulesOf(t)
	rule("A Burstable pod that is so by a hair is done", given(decidedBefore(), requestsOnly, pods(pod("web-1", sized("app", amounts(199, 256), amounts(200, 256))))),
		"keeps app 200m 256Mi · Applied · 1/1 applied")
	rule("The other container keeps the pod Burstable", given(decidedBefore(), requestsOnly, template(small(), container("log")), pods(pod("web-1", small(), container("log")))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 200m 256Mi · Resizing · 0/1 changing")
	rule("The class that the API server has given counts, not the one of our own making",
		given(decidedBefore(), template(guaranteed), pods(with(pod("web-1", guaranteed), func(p *workload.Pod) { p.QoS = corev1.PodQOSBurstable }))),
		"keeps app 200m 256Mi · resizes web-1 to app 199m 256Mi of 200m 256Mi · Resizing · 0/1 changing")
	rule("A node that reports no applied resources cannot resize", given(decidedBefore(), pods(with(pod("web-1", small()), func(p *workload.Pod) { p.Actual = nil }))),
		"keeps app 200m 256Mi · Unsupported: pod web-1: its node has not reported the applied resources, which a resize in place requires. The fallback is Wait: these pods stay unchanged · 0/1")
	rule("Where memory has followed alone, the pod is still not at its size",
		given(decidedBefore(), pods(pod("web-1", sized("app", amounts(100, 256), amounts(200, 512)))), whole),
		"keeps app 200m 256Mi · NodeCapacity: pod web-1: node didn't have enough allocatable resources. The fallback is Wait: these pods stay unchanged · 0/1 stalled")
	rule("Where memory was refused as well, CPU is asked for alone", given(decidedBefore(), pods(pod("web-1", small())), whole, memoryAlone),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 128Mi of 400m 256Mi · Resizing · 0/1 changing")
	rule("What was refused is not asked for again", given(decidedBefore(), pods(pod("web-1", small())), whole, memoryAlone, cpuAlone),
		"keeps app 200m 256Mi · NodeCapacity: pod web-1: node didn't have enough allocatable resources. The fallback is Wait: these pods stay unchanged · 0/1 stalled")
	rule("Another size is requested even after a refusal",
		given(decidedBefore(), pods(pod("web-1", small())), refused(resources(amounts(900, 900), amounts(900, 900)))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("The LimitRange of a pod bounds the sum",
		given(decidedBefore(), template(small(), container("log")), pods(pod("web-1", small(), container("log"))), bounds(workload.Bounds{PodMax: amounts(599, 0)})),
		"decides app 199m 256Mi (Bounds) · resizes web-1 to app 199m 256Mi of 398m 512Mi · Resizing · 0/1 changing")
	rule("A pod without limits breaks any bound on them",
		given(decidedBefore(), template(sized("app", amounts(100, 128), amounts(0, 0))), pods(pod("web-1", sized("app", amounts(100, 128), amounts(0, 0)))), bounds(workload.Bounds{PodMax: amounts(0, 9999)})),
		"keeps app 200m 256Mi · LimitRange: pod web-1: LimitRange limits allows a pod at most 9999Mi of memory, and this one has no limit · 0/1 stalled")
	rule("A limit follows up to what the LimitRange allows", given(decidedBefore(), pods(pod("web-1", small())), bounds(workload.Bounds{ContainerMax: amounts(250, 300)})),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 250m 300Mi · Resizing · 0/1 changing")
	rule("A request is not lowered below the ratio to a limit that stays",
		given(requestsOnly, pods(pod("web-1", small())), bounds(workload.Bounds{ContainerRatio: workload.Ratios{CPU: 3000}}), recommends(rec(amounts(10, 128), amounts(5, 100), amounts(20, 200)))),
		"decides app 67m - (ScaleDown) · resizes web-1 to app 67m 128Mi of 200m 256Mi · Resizing · 0/1 changing")
}

// A memory limit below what the container is known to use kills it.
func TestAMemoryLimitIsNotLoweredBelowWhatIsUsed(t *testing.T) {
	capped := func(w *world) {
		r := rec(amounts(100, 128), amounts(100, 128), amounts(100, 128))
		r.Uncapped = amounts(100, 460)
		r.Reasons = []recommend.Reason{{Resource: "memory", Code: "Peak", Value: 400 * mebi}, {Resource: "memory", Code: "MaxAllowed", Value: 128 * mebi}}
		w.situation.Recommendations = []recommend.Container{r}
		w.situation.Decision = decision()
		w.situation.Decision.Requests["app"] = amounts(100, 128)
		w.policy.Containers["app"] = plan.ContainerPolicy{CPU: true, Memory: true, Limits: plan.LimitsFollow, MaxAllowed: amounts(1000, 128)}
	}
	double := sized("app", amounts(100, 256), amounts(200, 512))
	guaranteed := sized("app", amounts(100, 512), amounts(100, 512))
	rule := rulesOf(t)
	rule("A limit in proportion to a capped request would be too low", given(capped, template(double), pods(pod("web-1", double))),
		"keeps app 100m 128Mi · resizes web-1 to app 100m 128Mi of 200m 512Mi · Resizing · 0/1 changing")
	rule("A limit that is lower already is lowered no further, nor raised", given(capped, template(double), pods(pod("web-1", sized("app", amounts(100, 128), amounts(200, 300))))),
		"keeps app 100m 128Mi · Applied · 1/1 applied")
	rule("A Guaranteed pod cannot have a limit above its request", given(capped, template(guaranteed), pods(pod("web-1", guaranteed))),
		"keeps app 100m 128Mi · QoSChange: pod web-1: container app is known to need more memory than is allowed, and its limit is not lowered below that: raise maxAllowed · 0/1 stalled")
	rule("A LimitRange below what is used wants what would kill", given(capped, template(double), pods(pod("web-1", double)), bounds(workload.Bounds{ContainerMax: amounts(0, 300)})),
		"keeps app 100m 128Mi · LimitRange: pod web-1: LimitRange limits allows container app at most 300Mi of memory, and its limit is 512Mi; container app is known to need 400Mi of memory · 0/1 stalled")
}

func TestPodsThatSomebodyElseResizes(t *testing.T) {
	reverted := func(n int, by ...string) func(*world) {
		return decidedBefore(func(d *plan.Decision) { d.Reverts, d.LastRevert, d.ContestedBy = n, noon.Add(-time.Minute), by })
	}
	undone := func(w *world) { w.situation.Undone = map[types.UID]bool{"uid-web-2": true} }
	has := func(partly bool, names ...string) func(*world) {
		return func(w *world) { w.situation.Writers = &plan.Writers{Names: names, Partly: partly} }
	}
	const contested = "Another controller keeps changing the resources of the pods: stop it, then edit the scaler to try again"
	const updater = "updater (Update, resize)"
	rule := rulesOf(t)
	rule("A first time is undone", given(decidedBefore(), undone),
		"keeps app 200m 256Mi, reverted 1 times · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing")
	rule("A second time is the end of it", given(reverted(1), undone, pods(pod("web-1", large()), pod("web-2", small()))),
		`keeps app 200m 256Mi, reverted 2 times
			Contested: `+contested+`
			1/2 stalled`)
	rule("A second time is the end of it, also of a later decision", given(reverted(1), undone, recommends(rec(amounts(400, 256), amounts(300, 200), amounts(500, 400)))),
		`decides app 400m 256Mi (LowerBound), reverted 2 times
			Contested: `+contested+`
			0/2 stalled`)
	rule("They are named", given(reverted(2), has(false, updater)),
		"keeps app 200m 256Mi, reverted 2 times by updater (Update, resize) · Contested: updater (Update, resize) keeps changing the resources of the pods: stop it, then edit the scaler to try again · 0/2 stalled")
	rule("Once they have no pod any more it is tried again", given(reverted(2, updater), has(false)),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing")
	rule("Not all pods are known to be free", given(reverted(2, updater), has(true)),
		"keeps app 200m 256Mi, reverted 2 times by updater (Update, resize) · Contested: updater (Update, resize) keeps changing the resources of the pods: stop it, then edit the scaler to try again · 0/2 stalled")
	rule("Once the scaler is edited it is tried again", given(reverted(2, updater), undone, func(w *world) { w.policy.Edited = true }),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing")
	rule("A change of what is not managed undoes nothing",
		given(decidedBefore(), undone, policyOfApp(func(p *plan.ContainerPolicy) { p.CPU = false }), pods(pod("web-2", sized("app", amounts(300, 256), amounts(600, 512))))),
		"keeps app - 256Mi · Applied · 1/1 applied")
	rule("What a VPA has changed since it came undoes nothing",
		given(decidedBefore(), undone, pods(pod("web-2", small())), func(w *world) {
			w.situation.Sized = map[string]workload.Scaled{"app": {CPU: "old", Memory: "old"}}
		}),
		"no decision · VPAConflict: app cpu, app memory: not managed, because VerticalPodAutoscaler old sizes it · 0/1")
	rule("A pod that goes does not count", given(decidedBefore(), undone, pods(pod("web-1", large()), with(pod("web-2", small()), func(p *workload.Pod) { p.Terminating = true }))),
		"keeps app 200m 256Mi · Applied · 1/1 applied")
	rule("Pods that have the decided size are not contested", given(reverted(2, updater), atSize()),
		"keeps app 200m 256Mi, reverted 2 times by updater (Update, resize) · Applied · 2/2 applied")
}

func TestOfWhatIsContestedTheAPIServerIsAsked(t *testing.T) {
	contested := func(d *plan.Decision) { d.Reverts = 2 }
	inPlace := given(decidedBefore(contested), pods(pod("web-1", large()), pod("web-2", small()))).next(noon).Contest
	want := &plan.Contest{Pods: map[string][]plan.Size{"web-2": {{Container: "app", Resources: large().Resources}}}}
	assert.Equal(t, "in place", want, inPlace)
	want.Template = []plan.Size{{Container: "app", Resources: large().Resources}}
	orElse := given(orRollout, appTakenOver(), decidedBefore(contested), pods(pod("web-1", large()), pod("web-2", small()))).next(noon).Contest
	assert.Equal(t, "in place, or else by rollout", want, orElse)
	want.Pods = nil
	assert.Equal(t, "rollout", want, given(rollout, appTakenOver(), decidedBefore(contested)).next(noon).Contest)
	if c := given(decidedBefore()).next(noon).Contest; c != nil {
		t.Errorf("asked for what is not contested: %+v", c)
	}
}

// oneKilled is a pod with an OOM kill that was resized two minutes ago, beside large siblings.
func oneKilled(siblings int, c workload.Container, kill workload.OOMKill) func(*world) {
	first := with(pod("web-1", c), func(p *workload.Pod) {
		kill.Container, p.Resized = "app", noon.Add(-2*time.Minute)
		p.Kills = []workload.OOMKill{kill}
	})
	all := []workload.Pod{first, pod("web-2", large()), pod("web-3", large())}
	return pods(all[:1+siblings]...)
}

func TestAnOutlierIsOneOfAtLeastThreePods(t *testing.T) {
	kill := workload.OOMKill{At: noon.Add(-time.Minute), HitBytes: 512 * mebi}
	rule := rulesOf(t)
	rule("Two pods have none", given(decidedBefore(), oneKilled(1, large(), kill)),
		"keeps app 200m 256Mi · Applied · 2/2 applied")
	rule("Three pods have one", given(decidedBefore(), oneKilled(2, large(), kill)),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 512Mi of 400m 1024Mi · Resizing · 2/3 changing")
}

// By the clock of its node, a kill may be on the wrong side of a resize or a decision.
func TestTheClockOfANodeMayDifferByHalfAMinute(t *testing.T) {
	raised := sized("app", amounts(200, 512), amounts(400, 1024))
	resized, decided := noon.Add(-2*time.Minute), noon.Add(-10*time.Minute)
	hit := func(at time.Time, limit int64) workload.OOMKill {
		return workload.OOMKill{At: at, HitBytes: limit * mebi}
	}
	neverResized := func(w *world) { w.situation.Pods[0].Resized = time.Time{} }
	rule := rulesOf(t)
	rule("A kill 30 s after the resize may have caused it", given(decidedBefore(), oneKilled(2, raised, hit(resized.Add(30*time.Second), 1024))),
		"keeps app 200m 256Mi · OutlierPod: pod web-1: container app was OOM-killed at a size that is enough for the other pods, and has more memory than they · 2/3")
	rule("A later kill doubles the memory again", given(decidedBefore(), oneKilled(2, raised, hit(resized.Add(31*time.Second), 1024))),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 1024Mi of 400m 2048Mi · Resizing · 2/3 changing")
	rule("A kill 30 s before the decision may be after it", given(decidedBefore(), oneKilled(2, large(), hit(decided.Add(-30*time.Second), 512)), neverResized),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 512Mi of 400m 1024Mi · Resizing · 2/3 changing")
	rule("An earlier kill is part of the decision", given(decidedBefore(), oneKilled(2, large(), hit(decided.Add(-31*time.Second), 512)), neverResized),
		"keeps app 200m 256Mi · Applied · 3/3 applied")
}
