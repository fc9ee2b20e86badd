// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// situations are such that together they make the plan say everything that it can say.
// If you add a reason, or another place that gives one, add a line. A test fails without it.
var situations = map[string]func() world{
	"terminating":             func() world { return given(deployment(func(d *workload.Deployment) { d.Terminating = true })) },
	"off":                     func() world { return given(func(w *world) { w.policy.Mode = "Recommend" }) },
	"paused by an annotation": func() world { return given(func(w *world) { w.policy.Paused = "The annotation is set" }) },
	"suspended":               func() world { return given(func(w *world) { w.policy.Suspended = true }) },
	"nothing managed of what is taken over": func() world {
		return given(rollout, appTakenOver(), policyOfApp(func(p *plan.ContainerPolicy) { *p = plan.ContainerPolicy{} }))
	},
	"nothing managed":   func() world { return given(policyOfApp(func(p *plan.ContainerPolicy) { *p = plan.ContainerPolicy{} })) },
	"no recommendation": func() world { return given(recommends()) },
	"an HPA": func() world {
		return given(func(w *world) { w.situation.Scaled = workload.Scaled{CPU: "web", Memory: "web"} })
	},
	"unreadable": func() world {
		return given(template(workload.Container{Name: "app", Unreadable: true}), recommends())
	},
	"close enough": func() world {
		return given(recommends(rec(amounts(105, 130), amounts(100, 128), amounts(300, 384))))
	},
	"within bounds": func() world {
		return given(recommends(rec(amounts(50, 64), amounts(10, 64), amounts(300, 384))))
	},
	"whole CPUs": func() world {
		return guaranteed(2000, needs(1300), takenOver(), func(w *world) { w.situation.Decision = nil })
	},
	"in cooldown": func() world {
		return given(decidedBefore(recently), recommends(rec(amounts(250, 300), amounts(150, 192), amounts(300, 384))), atSize())
	},
	"a VPA": func() world {
		return given(func(w *world) { w.situation.Sized = map[string]workload.Scaled{"app": {CPU: "web", Memory: "web"}} })
	},
	"a window for later": func() world {
		return given(decidedBefore(), atSize(), recommends(rec(amounts(250, 300), amounts(150, 192), amounts(300, 384))), windows(nightly("ScaleUp")))
	},
	"a window that is none": func() world {
		return given(decidedBefore(), atSize(), policy(func(p *plan.Policy) { p.InvalidWindow = "it never opens" }))
	},
	"a quota": func() world {
		return given(decidedBefore(), quotas(workload.Quota{Name: "team", Key: "requests.cpu", Hard: 100, Used: 100},
			workload.Quota{Name: "team", Key: "requests.memory", Hard: 1, Used: 1}))
	},
	"contested pods": func() world {
		return given(decidedBefore(func(d *plan.Decision) { d.Reverts = 2 }))
	},

	"a memory limit that is kept": func() world {
		return given(decidedBefore(func(d *plan.Decision) {
			d.Requests["app"], d.RetainedLimits = amounts(100, 64), map[string]int64{"app": 256 * mebi}
		}), recommends(), pods(pod("web-1", sized("app", amounts(100, 64), amounts(200, 256)))))
	},

	"new pods only":    func() world { return given(initial, decidedBefore()) },
	"all pods are new": func() world { return given(initial, decidedBefore(), atSize()) },
	"pod-level resources of template, for new pods": func() world {
		return given(initial, decidedBefore(), podLevel)
	},
	"pod-level resources of template": func() world { return given(rollout, decidedBefore(), podLevel) },

	"usage is missing": func() world {
		return given(decidedBefore(), lackingUsage, pods(pod("web-1", double())))
	},
	"no pods":  func() world { return given(decidedBefore(), pods()) },
	"a resize": func() world { return given(decidedBefore()) },
	"a resize under way": func() world {
		return given(decidedBefore(recently), pods(unsettled(workload.Resize{InProgress: true})))
	},
	"a resize that is watched": func() world {
		return given(decidedBefore(verifying), watching, pods(halfSized("web-1"), pod("web-2", small())), recommends(halved()))
	},
	"lowering while another is watched": func() world {
		return given(decidedBefore(verifying), watching, recommends(rec(amounts(20, 30), amounts(10, 20), amounts(30, 40))), pods(halfSized("web-1"), halfSized("web-2")))
	},
	"a change that failed": func() world {
		return given(decidedBefore(), watching, recommends(halved()), atSize(), func(w *world) {
			w.situation.RevertedChanges = []plan.RevertedChange{
				{Container: "app", Resource: "cpu", Value: 60, Good: 200, At: noon, Evidence: "pod web-1: container app exited"},
				{Container: "app", Resource: "memory", Value: 70 * mebi, Good: 256 * mebi, At: noon, Evidence: "pod web-1: container app exited"},
			}
		})
	},
	"a boost": func() world {
		return given(decidedBefore(), boosts(), pods(starting(time.Minute, pod("web-1", double()))))
	},
	"an eviction": func() world { return given(orRecreate, decidedBefore(), toEvict) },
	"an eviction before it is asked what new pods get": func() world {
		return given(orRecreate, decidedBefore(), toEvict, admission(func(a *plan.NewPods) { *a = plan.NewPods{} }))
	},
	"an eviction without effect": func() world {
		return given(orRecreate, decidedBefore(), toEvict, admission(func(a *plan.NewPods) { a.IneffectiveOnPod = "web-0" }))
	},
	"an eviction of too few": func() world {
		return given(orRecreate, decidedBefore(), toEvict, policy(func(p *plan.Policy) { p.MinReplicas = 3 }))
	},
	"an eviction, paused":        func() world { return given(orRecreate, decidedBefore(), toEvict, pausedToo) },
	"a window for the eviction":  func() world { return given(orRecreate, decidedBefore(), toEvict, windows(nightly("ScaleUp"))) },
	"an eviction after the last": func() world { return given(orRecreate, decidedBefore(), pods(infeasible("web-1"))) },
	"an eviction while not all are available": func() world {
		return given(orRecreate, decidedBefore(), pods(infeasible("web-1"), notReady(infeasible("web-2"))))
	},
	"an eviction while another one is rolled out": func() world {
		return given(orRecreate, decidedBefore(), pods(infeasible("web-1"), with(infeasible("web-2"), func(p *workload.Pod) { p.Current = false })))
	},
	"an eviction that is watched": func() world {
		return given(orRecreate, decidedBefore(verifying), watching, recommends(halved()), pods(made(halfSized("web-1")), with(halfSized("web-2"), func(p *workload.Pod) {
			p.Resize, p.Actual["app"] = workload.Resize{Infeasible: true}, small().Resources
		})), (*world).effective)
	},
	"old pods while they are replaced": func() world { return given(canary, decidedBefore(), rollingOut) },
	"a ceiling": func() world {
		return given(decidedBefore(), atSize(), mostPerContainer(200, 256), recommends(rec(amounts(900, 256), amounts(900, 256), amounts(900, 256))))
	},
	"all resized": func() world { return given(decidedBefore(), atSize()) },
	"infeasible":  func() world { return given(decidedBefore(), pods(unsettled(workload.Resize{Infeasible: true}))) },
	"deferred":    func() world { return given(decidedBefore(), pods(unsettled(workload.Resize{Deferred: true}))) },
	"withdrawn": func() world {
		return given(decidedBefore(), pods(unsettled(workload.Resize{Deferred: true, Since: noon.Add(-time.Hour)})))
	},
	"failed": func() world { return given(decidedBefore(), pods(unsettled(workload.Resize{Failed: true}))) },
	"stuck":  func() world { return given(decidedBefore(), pods(unsettled(workload.Resize{}))) },
	"a restart": func() world {
		c := small()
		c.RestartOnCPU, c.RestartOnMemory = true, true
		return given(decidedBefore(), pods(pod("web-1", c)))
	},
	"pod-level resources": func() world {
		return given(decidedBefore(), policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = false }), pods(withPodLevel(pod("web-1", sized("app", amounts(100, 256), amounts(0, 0))), amounts(100, 256), amounts(150, 512))))
	},
	"pod-level resources that are Guaranteed": func() world {
		return given(decidedBefore(), policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = false }), pods(withPodLevel(pod("web-1", sized("app", amounts(300, 384), amounts(0, 0))), amounts(300, 384), amounts(300, 384))))
	},
	"an old kubelet": func() world {
		return given(decidedBefore(), pods(with(pod("web-1", small()), func(p *workload.Pod) { p.Actual = nil })))
	},
	"another QoS class": func() world {
		c := sized("app", amounts(0, 0), amounts(0, 0))
		return given(decidedBefore(), template(c), pods(pod("web-1", c)))
	},
	"a LimitRange for pods": func() world { return given(decidedBefore(), bounds(workload.Bounds{PodMax: amounts(1000, 400)})) },

	"a rewrite":       func() world { return given(rollout, decidedBefore(), appTakenOver()) },
	"a rollout of it": func() world { return given(rollout, decidedBefore(), appTakenOver(), template(large()), rollingOut) },
	"a rollout of it, paused": func() world {
		return given(rollout, decidedBefore(), appTakenOver(), template(large()), rollingOut, pausedToo)
	},
	"rolled out":      func() world { return given(rollout, decidedBefore(), appTakenOver(), template(large()), atSize()) },
	"paused":          func() world { return given(rollout, decidedBefore(), appTakenOver(), pausedToo) },
	"another rollout": func() world { return given(rollout, decidedBefore(), appTakenOver(), rollingOut) },
	"contested": func() world {
		return given(rollout, decidedBefore(func(d *plan.Decision) { d.AppliedToTemplate, d.Reverts = true, 2 }), appTakenOver())
	},
	"a window for the rollout": func() world {
		return given(rollout, appTakenOver(), decidedBefore(func(d *plan.Decision) { d.Reason = "ScaleUp" }), windows(nightly("ScaleUp")))
	},
	"a LimitRange for pods of template": func() world {
		return given(rollout, decidedBefore(), bounds(workload.Bounds{PodMax: amounts(1000, 400)}))
	},
	"pods that the API server refuses": func() world {
		return given(sizesNewPods, decidedBefore(), atSize(), hadProved("", large()), deployment(func(d *workload.Deployment) { d.CreateFailure = "no" }))
	},
	"a new pod that is to be lowered": func() world {
		return given(decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 64) }), recommends(halved()), pods(starting(time.Minute, pod("web-1", small()))))
	},
	"no node for new pods": func() world { return given(sizesNewPods, decidedBefore(), atSize(), largestNode(150, 1024)) },
	"a new pod without a node": func() world {
		return given(sizesNewPods, decidedBefore(), pods(pod("web-1", large()), withoutNode("web-2", large())))
	},
	"a pod without a node is set back": func() world {
		return given(sizesNewPods, decidedBefore(), pods(with(withoutNode("web-1", large()), tooLong)))
	},
	"one pod of many is killed": func() world {
		killed := pod("web-1", container("app"))
		killed.Kills = []workload.OOMKill{{Container: "app", At: noon.Add(-time.Minute)}}
		killed.Containers[0].Requests.MemoryBytes, killed.Containers[0].Limits.MemoryBytes = 256*mebi, 512*mebi
		killed.Actual["app"] = killed.Containers[0].Resources
		return given(pods(killed, pod("web-2", container("app")), pod("web-3", container("app"))), recommends(rec(amounts(100, 128), amounts(100, 128), amounts(100, 128))),
			decidedBefore(func(d *plan.Decision) { d.Requests["app"], d.Time = amounts(100, 128), noon.Add(-time.Hour) }), func(w *world) { w.situation.Ceilings.RaiseFactor = 8 })
	},
	"killed at any size": func() world { return given(recommends(endedClimb("RaiseDidNotHelp", 128))) },
	"a pod that is not Ready with less": func() world {
		return given(decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 64) }), recommends(halved()), pods(unreadyFor(time.Minute)))
	},
	"usage that grows with it": func() world { return given(recommends(endedClimb("UsageFollowsLimit", 128))) },
	"more than without maxAllowed": func() world {
		c := sized("app", amounts(100, 4096), amounts(100, 4096))
		return given(template(sized("app", amounts(100, 512), amounts(100, 512))), pods(pod("web-1", c)), recommends(rec(amounts(100, 9000), amounts(100, 9000), amounts(100, 9000))),
			decidedBefore(func(d *plan.Decision) { d.Requests["app"] = c.Requests }), func(w *world) { w.situation.Ceilings.RaiseFactor = 8 })
	},
	"more containers than a scaler manages": func() world { return given(manyContainers(66, 64)) },
	"unreadable and taken over": func() world {
		other, unreadable := container("side"), small()
		unreadable.Unreadable = true
		return given(rollout, appTakenOver(), template(unreadable, other), func(w *world) {
			w.policy.Containers["side"] = w.policy.Containers["app"]
			w.situation.Decision = decision()
			w.situation.Decision.Requests["side"] = amounts(200, 256)
		}, recommends(recommended("side")))
	},
}

// endedClimb is a recommendation after raises that did not help.
func endedClimb(code string, memory int64) recommend.Container {
	out := rec(amounts(100, memory), amounts(100, memory), amounts(100, memory))
	out.Reasons = append(out.Reasons, recommend.Reason{Resource: "memory", Code: code, Value: memory * mebi})
	return out
}

func toEvict(w *world) { w.situation.Pods = []workload.Pod{infeasible("web-1"), infeasible("web-2")} }

func podLevel(w *world) { w.situation.Deployment.PodLevelResources = true }

func rollingOut(w *world) { w.situation.Deployment.RollingOut = true }

func pausedToo(w *world) { w.situation.Deployment.Paused = true }

// unsettled is a pod whose resize was asked for, and what its kubelet says.
func unsettled(says workload.Resize) workload.Pod {
	return with(pod("web-1", large()), func(p *workload.Pod) {
		p.Resize, p.Actual["app"] = says, small().Resources
	})
}

// Each situation has a reason that is explained to users.
func TestEveryReasonIsGiven(t *testing.T) {
	for name, situation := range situations {
		w := situation()
		if problem := unexplained(w.next(noon)); problem != "" {
			t.Errorf("%s: %s", name, problem)
		}
	}
}

// FuzzEverySilenceHasAReason: whatever the situation, a plan without a step says why, with
// a reason that is explained to people. The seed makes the situation.
func FuzzEverySilenceHasAReason(f *testing.F) {
	for seed := range uint64(1000) {
		f.Add(seed)
	}
	refusals := []string{"NodeCapacity", "QuotaExceeded", "LimitRange", "Forbidden", "Rejected", "NamespaceTerminating", "QoSChange", "Unsupported"}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		some := func(p float64) bool { return r.Float64() < p }
		w := randomWorld(r)
		s := &w.situation
		s.Deployment.Terminating, s.Deployment.RollingOut, s.Deployment.Paused = some(0.05), some(0.3), some(0.2)
		if some(0.1) {
			w.policy.Mode = "Recommend"
		}
		w.policy.Suspended = some(0.1)
		if s.Decision != nil { // a status can be edited, or restored from a backup
			s.Decision.AppliedToTemplate, s.Decision.Reverts = some(0.5), r.IntN(3)
			s.Decision.Reason = []string{plan.DecidedScaleUp, plan.DecidedOOMKill, plan.DecidedReverted, "unknown"}[r.IntN(4)]
			switch r.IntN(6) {
			case 0:
				s.Decision.Requests = nil
			case 1:
				s.Decision.Requests = map[string]quantity.Amounts{"gone": amounts(200, 256)}
			case 2:
				w.policy.VerificationPeriod = time.Minute
				s.Decision.Verification = &plan.Verification{Began: noon.Add(-time.Hour), Good: map[string]quantity.Amounts{"app": amounts(100, 128)}}
			}
		}
		if some(0.1) {
			s.Originals = append(s.Originals, plan.Original{Container: []string{"app", "gone"}[r.IntN(2)], CPU: some(0.5), Memory: some(0.5), Resources: small().Resources})
		}
		for _, c := range s.Deployment.Containers {
			if some(0.3) {
				s.Originals = append(s.Originals, plan.Original{Container: c.Name, CPU: some(0.5), Memory: some(0.5), Resources: c.Resources})
			}
		}
		for i := range s.Pods {
			pod := &s.Pods[i]
			pod.PodLevelResources = some(0.05)
			if some(0.1) {
				pod.Actual = nil
			}
			pod.Resize.Failed, pod.Resize.InProgress = some(0.1), some(0.2)
		}
		if p := w.next(noon); is[plan.Resize](p) && some(0.5) { // and all that may come of it is refused
			s.RejectedResizes = map[types.UID][]plan.RejectedResize{}
			for range 3 * len(s.Pods) {
				next := w.next(noon)
				if !is[plan.Resize](next) {
					break
				}
				s.RejectedResizes[as[plan.Resize](next).UID] = append(s.RejectedResizes[as[plan.Resize](next).UID],
					plan.RejectedResize{Sizes: as[plan.Resize](next).Sizes, Reason: refusals[r.IntN(len(refusals))], Message: "The API server said no"})
			}
		}
		for _, at := range []time.Time{noon, noon.Add(time.Hour)} {
			if problem := unexplained(w.next(at)); problem != "" {
				t.Errorf("seed %d: %s", seed, problem)
			}
		}
	})
}

// unexplained says what is wrong with a plan's reason; empty for nothing.
func unexplained(p plan.Plan) string {
	_, known := explain.ReasonFor(p.Verdict.Reason)
	switch {
	case p.Verdict.Reason == "":
		return "there is no reason"
	case !known:
		return "the reason " + p.Verdict.Reason + " is not explained in internal/explain"
	case p.Decision == nil && strings.Contains(p.Verdict.Message, "decided size"):
		return "nothing is decided, but the message is: " + p.Verdict.Message
	case strings.TrimSpace(p.Verdict.Message) == "":
		return "the reason " + p.Verdict.Reason + " has no message"
	}
	return ""
}
