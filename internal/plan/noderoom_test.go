// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// onNode puts all pods on a node with so much room, in millicores and MiB.
func onNode(cpu, memory int64) func(*world) {
	return func(w *world) {
		for i := range w.situation.Pods {
			w.situation.Pods[i].Node = "node"
		}
		w.situation.Room = map[string]quantity.Amounts{"node": amounts(cpu, memory)}
	}
}

func TestARaiseAsksForWhatItsNodeHasRoomFor(t *testing.T) {
	one := pods(pod("web-1", small())) // is to be raised by 100m and 128Mi
	at := func(cpu, memory int64) workload.Container {
		return sized("app", amounts(cpu, memory), amounts(2*cpu, 2*memory))
	}
	rule := rulesOf(t)
	rule("All of it", given(decidedBefore(recently), one, onNode(100, 128)),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("The part that fits, and its limit", given(decidedBefore(recently), one, onNode(60, 500)),
		"keeps app 200m 256Mi · resizes web-1 to app 160m 256Mi of 320m 512Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("Of memory, whole MiB", given(decidedBefore(recently), one, onNode(60, 100), func(w *world) { w.situation.Room["node"] = quantity.Amounts{CPUMillis: 60, MemoryBytes: 100<<20 + 5} }),
		"keeps app 200m 256Mi · resizes web-1 to app 160m 228Mi of 320m 456Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("Memory alone", given(decidedBefore(recently), one, onNode(0, 500)),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 256Mi of 200m 512Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("Nothing where less than a tenth of it fits", given(decidedBefore(recently), one, onNode(9, 12)),
		"keeps app 200m 256Mi · Deferred: pod web-1: container app has 100m of 200m of cpu; its node has no more; pod web-1: container app has 128Mi of 256Mi of memory; its node has no more · 0/1, again in 1m0s")
	rule("Nothing on a node that is overcommitted: its kubelet grants nothing", given(decidedBefore(recently), one, onNode(500, -1)),
		"keeps app 200m 256Mi · Deferred: pod web-1: container app has 100m of 200m of cpu; its node has no more; pod web-1: container app has 128Mi of 256Mi of memory; its node has no more · 0/1, again in 1m0s")
	rule("It stays there when the room is gone", given(decidedBefore(recently), pods(pod("web-1", at(160, 256))), onNode(-300, -300)),
		"keeps app 200m 256Mi · Deferred: pod web-1: container app has 160m of 200m of cpu; its node has no more · 0/1, again in 1m0s")
	rule("What is lowered needs no room", given(decidedBefore(recently, func(d *plan.Decision) { d.Requests["app"] = amounts(80, 100) }), one, onNode(-300, -300),
		recommends(rec(amounts(80, 100), amounts(70, 90), amounts(90, 110)))),
		"keeps app 80m 100Mi · resizes web-1 to app 80m 100Mi of 160m 200Mi · Resizing · 0/1 changing")
	rule("What an init container leaves needs no room", given(decidedBefore(recently), pods(with(pod("web-1", small()), func(p *workload.Pod) {
		p.Others = []workload.Container{sized("init", amounts(200, 256), quantity.Amounts{})}
	})), onNode(0, 0)),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("A node that is not known bounds nothing", given(decidedBefore(recently), one, onNode(0, 0), func(w *world) { w.situation.Room = map[string]quantity.Amounts{"other": {}} }),
		"keeps app 200m 256Mi · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 0/1 changing")
	rule("The other pods do not wait for the rest", given(decidedBefore(recently), pods(pod("web-1", at(160, 256)), pod("web-2", small())), func(w *world) {
		onNode(0, 0)(w)
		w.situation.Pods[1].Node = "elsewhere"
	}),
		"keeps app 200m 256Mi · resizes web-2 to app 200m 256Mi of 400m 512Mi · Resizing · 0/2 changing, again in 1m0s")
	rule("After an OOM kill, the memory that fits, and then the CPU",
		given(decidedBefore(recently, func(d *plan.Decision) { d.Reason = plan.DecidedOOMKill }), one, onNode(60, 100)),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 228Mi of 200m 456Mi · Resizing · 0/1 changing, again in 1m0s")
}

func TestTheFallbackFollowsANodeWithoutRoom(t *testing.T) {
	resizedAgo := func(ago time.Duration) func(*world) {
		return func(w *world) {
			w.situation.Pods = []workload.Pod{with(pod("web-1", small()), func(p *workload.Pod) { p.Resized = noon.Add(-ago) })}
		}
	}
	long := func(d *plan.Decision) { d.Time = noon.Add(-time.Hour) }
	rule := rulesOf(t)
	rule("Not within the grace after the last resize", given(orRollout, decidedBefore(long), resizedAgo(9*time.Minute), onNode(0, 500), onNode(0, 0)),
		"keeps app 200m 256Mi · Deferred: pod web-1: container app has 100m of 200m of cpu; its node has no more; pod web-1: container app has 128Mi of 256Mi of memory; its node has no more · 0/1, again in 1m0s")
	rule("After it", given(orRollout, appTakenOver(), decidedBefore(long), resizedAgo(10*time.Minute), onNode(0, 0)),
		"keeps app 200m 256Mi, written · rewrites app 200m 256Mi of 400m 512Mi · RollingOut. Requires pod replacement: pod web-1: container app has 100m of 200m of cpu; its node has no more; pod web-1: container app has 128Mi of 256Mi of memory; its node has no more · 0/1 changing")
}

// A raise that two pods ask for at once is Deferred for one of them, and counts for the scheduler.
func TestADeferredRaiseOnAnOvercommittedNodeIsWithdrawnAtOnce(t *testing.T) {
	rule := rulesOf(t)
	says := workload.Resize{Deferred: true, Since: noon}
	rule("To what is applied", given(decidedBefore(recently), pods(requested("web-1", says)), onNode(-40, 300)),
		"keeps app 200m 256Mi · resizes web-1 to app 100m 128Mi of 200m 256Mi · Resizing: A resize that a node does not grant is withdrawn · 0/1 changing, again in 10m0s")
	rule("Then it asks for the part that fits", given(decidedBefore(recently), pods(pod("web-1", small())), onNode(60, 428)),
		"keeps app 200m 256Mi · resizes web-1 to app 160m 256Mi of 320m 512Mi · Resizing · 0/1 changing, again in 1m0s")
	rule("Not one that fits: its kubelet grants it soon", given(decidedBefore(recently), pods(requested("web-1", says)), onNode(0, 300)),
		"keeps app 200m 256Mi · Deferred: pod web-1: its node has no room for the new size yet · 0/1, again in 10m0s")
	if p := given(decidedBefore(recently), pods(requested("web-1", says)), onNode(-40, 300)).next(noon); as[plan.Resize](p).Withdraws != nil {
		t.Error("the size is not asked for again for a while, although the room bounds it")
	}
}
