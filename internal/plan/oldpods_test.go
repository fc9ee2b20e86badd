// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// ofOldTemplate is the pod with an older template.
func ofOldTemplate(p workload.Pod) workload.Pod {
	return with(p, func(p *workload.Pod) { p.Current = false })
}

var (
	pausedRollout = deployment(func(d *workload.Deployment) { d.RollingOut, d.Paused = true, true })
	stuckRollout  = deployment(func(d *workload.Deployment) { d.RollingOut, d.Stuck = true, true })
)

// killedAt reports whether an OOM kill needs this much memory, in MiB.
func killedAt(floor int64) func(*world) {
	return func(w *world) {
		rec := recommended("app")
		rec.OOMFloor = floor * mebi
		w.situation.Recommendations = append(w.situation.Recommendations[:0:0], rec)
	}
}

// canary is one new pod that has the decided size, and nine old pods that have half of it.
func canary(w *world) {
	w.situation.Deployment.Replicas = 10
	w.situation.Pods = []workload.Pod{pod("web-new", large())}
	for i := range 9 {
		w.situation.Pods = append(w.situation.Pods, ofOldTemplate(pod(fmt.Sprintf("web-old-%d", i), small())))
	}
}

func TestOldPodsWhileARolloutIsPausedOrStuck(t *testing.T) {
	oom := decidedBefore(func(d *plan.Decision) { d.Reason = "OOMKill" })
	old := func(name string, says workload.Resize) workload.Pod {
		return ofOldTemplate(with(pod(name, large()), func(p *workload.Pod) {
			p.Resize, p.Resized = says, noon.Add(-time.Minute)
			p.Actual = p.Actual.With("app", small().Resources)
		}))
	}
	rule := rulesOf(t)
	rule("After an OOM kill, the old pods of a paused rollout are resized", given(canary, oom, pausedRollout, killedAt(250)),
		"keeps app 200m 256Mi · resizes web-old-0 to app 100m 256Mi of 200m 512Mi · Resizing · 1/10 changing")
	rule("All is well once the old pods have the size, too",
		given(decidedBefore(), pausedRollout, pods(pod("web-1", large()), ofOldTemplate(pod("web-2", large())), ofOldTemplate(pod("web-3", large())))),
		"keeps app 200m 256Mi · Applied · 3/3 applied")
	rule("What the kubelet of an old pod says is reported",
		given(decidedBefore(), stuckRollout, pods(pod("web-1", large()), with(old("web-2", workload.Resize{}), refusedByNode))),
		"keeps app 200m 256Mi · Infeasible: pod web-2: no room. The fallback is Wait: these pods stay unchanged · 1/2 stalled")
	rule("A lost status makes no old pod small",
		given(pausedRollout, pods(pod("web-1", small()), ofOldTemplate(pod("web-2", large()))), recommends(rec(amounts(100, 128), amounts(80, 100), amounts(300, 384)))),
		"decides app 200m 256Mi (Adopted) · resizes web-1 to app 200m 256Mi of 400m 512Mi · Resizing · 1/2 changing")
}

func TestOldPodsOfAProgressingRollout(t *testing.T) {
	rule := rulesOf(t)
	rule("are counted as long as there is no new pod", given(decidedBefore(), rollingOut, pods(ofOldTemplate(pod("web-1", small())), ofOldTemplate(pod("web-2", large())))),
		"keeps app 200m 256Mi · RolloutInProgress: 1 of 2 pods have an older template, and keep their size until they are replaced · 1/2")
	rule("get the memory that an OOM kill needs, and nothing else", given(canary, decidedBefore(), rollingOut, killedAt(250)),
		"keeps app 200m 256Mi · resizes web-old-0 to app 100m 256Mi of 200m 512Mi · Resizing · 1/10 changing")
	rule("do not need a new pod for what they cannot have",
		given(orRollout, appTakenOver(), decidedBefore(func(d *plan.Decision) { d.Reason = "OOMKill" }), rollingOut, killedAt(250), pods(pod("web-1", large()), ofOldTemplate(with(infeasible("web-2"), func(p *workload.Pod) { p.Containers[0].Requests.MemoryBytes = 251 * mebi })))),
		"keeps app 200m 256Mi · RolloutInProgress: 1 of 2 pods have an older template, and keep their size until they are replaced · 1/2")
	rule("say which quota has no room after an OOM kill",
		given(decidedBefore(), rollingOut, killedAt(250), pods(pod("web-1", large()), ofOldTemplate(pod("web-2", small()))), func(w *world) {
			w.situation.Quotas = []workload.Quota{{Name: "team", Key: "requests.memory", Hard: 384 * mebi, Used: 384 * mebi}}
		}),
		"keeps app 200m 256Mi · QuotaExceeded: pod web-2: ResourceQuota team allows 384Mi of requests.memory, of which 384Mi are used, and 128Mi more are needed · 1/2 stalled, again in 1m0s")
	rule("count without a decision", given(rollingOut, pods(pod("web-1", large()), ofOldTemplate(pod("web-2", small())))),
		"no decision · RolloutInProgress: 1 of 2 pods have an older template, and keep their size until they are replaced · 1/2")
}

// TestOldPodsUndone: who undoes the resize of an old pod contests it like any other.
func TestOldPodsUndone(t *testing.T) {
	for _, of := range []func(*world){pausedRollout, stuckRollout} {
		w := given(canary, decidedBefore(func(d *plan.Decision) { d.Reverts, d.LastRevert = 1, noon.Add(-time.Hour) }), of)
		w.situation.Undone = map[types.UID]bool{"uid-web-old-3": true}
		if p := w.next(noon); p.Decision.Reverts != 2 || p.Contest == nil || len(p.Contest.Pods["web-old-3"]) == 0 {
			t.Errorf("reverted %d times, contested: %+v", p.Decision.Reverts, p.Contest)
		}
	}
}

// TestOldPodsAreVerifiedAmongThemselves: a template can be the cause of failures, so pods are compared
// with pods of the same template.
func TestOldPodsAreVerifiedAmongThemselves(t *testing.T) {
	lowered := decidedBefore(verifying, func(d *plan.Decision) {
		d.Requests["app"], d.Verification.Good["app"] = amounts(100, 128), amounts(200, 256)
	})
	resized := func(p workload.Pod) workload.Pod {
		return with(p, func(p *workload.Pod) { p.Resized = noon.Add(-2 * time.Minute) })
	}
	crashing := func(p workload.Pod) workload.Pod {
		return with(p, func(p *workload.Pod) { p.BackingOff = []string{"app"} })
	}
	for name, tc := range map[string]struct {
		pods     []workload.Pod
		reverted bool
	}{
		"new pods that crash do not hide what a lower request does to old ones": {
			pods: []workload.Pod{
				crashing(pod("new-1", large())), crashing(pod("new-2", large())), crashing(pod("new-3", large())),
				crashing(resized(ofOldTemplate(pod("old-1", small())))), ofOldTemplate(pod("old-2", large())), ofOldTemplate(pod("old-3", large())), ofOldTemplate(pod("old-4", large())),
			},
			reverted: true,
		},
		"new pods that crash, lowered or not, do so because of their template": {
			pods: []workload.Pod{
				crashing(pod("new-1", large())), crashing(pod("new-2", large())), crashing(resized(pod("new-3", small()))),
				ofOldTemplate(pod("old-1", large())), ofOldTemplate(pod("old-2", large())), ofOldTemplate(pod("old-3", large())), ofOldTemplate(pod("old-4", large())), ofOldTemplate(pod("old-5", large())),
				ofOldTemplate(pod("old-6", large())), ofOldTemplate(pod("old-7", large())), ofOldTemplate(pod("old-8", large())), ofOldTemplate(pod("old-9", large())),
			},
		},
	} {
		for _, of := range []func(*world){pausedRollout, stuckRollout} {
			t.Run(name, func(t *testing.T) {
				w := given(watching, lowered, of, recommends(halved()), pods(tc.pods...))
				p := w.next(noon)
				if got := p.Reverted != ""; got != tc.reverted {
					t.Errorf("reverted %t: %s\n%s", got, p.Reverted, say(p))
				}
			})
		}
	}
}

// lacksQuota has a rollout whose first new pod a quota of memory refuses. The old pods have twice the template's size.
func lacksQuota(used int64) func(*world) {
	return func(w *world) {
		d := &w.situation.Deployment
		d.RollingOut, d.CreateFailure = true, "exceeded quota: team"
		w.situation.Quotas = []workload.Quota{{Name: "team", Key: "requests.memory", Hard: 600 * mebi, Used: used * mebi}}
		w.situation.Pods = []workload.Pod{ofOldTemplate(pod("web-1", large())), ofOldTemplate(pod("web-2", large()))}
	}
}

func TestOldPodsGiveARolloutTheRoomOfAQuota(t *testing.T) {
	lower := func(cpu, memory int64) func(*world) {
		rec := recommended("app")
		rec.LowerBound = amounts(cpu, memory)
		return recommends(rec)
	}
	justResized := func(w *world) { w.situation.Pods[0].Resized = noon.Add(-30 * time.Second) }
	ofLimits := func(w *world) { w.situation.Quotas[0].Key = "limits.memory" }
	withLog := func(w *world) {
		template(small(), container("log"))(w)
		w.situation.Pods[0].Containers = append(w.situation.Pods[0].Containers, sized("log", amounts(200, 256), amounts(400, 512)))
		w.situation.Pods[0].Actual = w.situation.Pods[0].Actual.With("log", w.situation.Pods[0].Containers[1].Resources)
		w.policy.Containers["log"], w.situation.Decision.Requests["log"] = w.policy.Containers["app"], w.situation.Decision.Requests["app"]
		w.situation.Recommendations = append(w.situation.Recommendations, w.situation.Recommendations[0])
		w.situation.Recommendations[1].Name = "log"
	}
	for name, tc := range map[string]struct {
		given []func(*world)
		want  string // the resize, if any
	}{
		"as much as it lacks":                    {[]func(*world){lacksQuota(512), lower(100, 100)}, "web-1 to app 200m 216Mi of 400m 432Mi"},
		"as much as usage allows":                {[]func(*world){lacksQuota(512), lower(100, 240)}, "web-1 to app 200m 240Mi of 400m 480Mi"},
		"as much as the template asks for":       {[]func(*world){lacksQuota(512), lower(100, 100), template(sized("app", amounts(100, 240), amounts(200, 480)))}, "web-1 to app 200m 240Mi of 400m 480Mi"},
		"as much as it lacks, of two containers": {[]func(*world){lacksQuota(400), lower(100, 100), withLog}, "web-1 to app 200m 200Mi of 400m 400Mi; log 200m 256Mi of 400m 512Mi"},
		"nothing for a quota of limits":          {[]func(*world){lacksQuota(512), lower(100, 100), ofLimits}, ""},
		"nothing below an OOM kill":              {[]func(*world){lacksQuota(512), lower(100, 100), killedAt(256)}, ""},
		"nothing if the quota has room":          {[]func(*world){lacksQuota(400), lower(100, 100)}, ""},
		"nothing while the quota may not notice": {[]func(*world){lacksQuota(512), lower(100, 100), justResized}, ""},
		"nothing while usage is missing":         {[]func(*world){lacksQuota(512), lower(100, 100), lackingUsage}, ""},
		"nothing without a rollout":              {[]func(*world){lacksQuota(512), lower(100, 100), deployment(func(d *workload.Deployment) { d.RollingOut = false })}, ""},
		"nothing if something else is refused":   {[]func(*world){lacksQuota(512), lower(100, 100), deployment(func(d *workload.Deployment) { d.CreateFailure = "denied" })}, ""},
		"also in a rollout that is stuck":        {[]func(*world){lacksQuota(512), lower(100, 100), deployment(func(d *workload.Deployment) { d.Stuck = true })}, "web-1 to app 200m 216Mi of 400m 432Mi"},
	} {
		t.Run(name, func(t *testing.T) {
			w := given(append([]func(*world){template(small()), decidedBefore()}, tc.given...)...)
			got := say(w.next(noon))
			if isResized := strings.Contains(got, "resizes"); tc.want == "" && isResized || !strings.Contains(got, tc.want) {
				t.Errorf("want %q: %s", tc.want, got)
			}
		})
	}
}
