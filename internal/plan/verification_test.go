// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const watchedFor = 2 * time.Minute

// wasteful is a Deployment of so many small pods that need half of what they have, and are
// watched after a change.
func wasteful(n int, changes ...func(*world)) *world {
	w := given(recommends(halved()), func(w *world) {
		w.policy.VerificationPeriod = watchedFor
		w.situation.Pods = nil
		for i := range n {
			w.situation.Pods = append(w.situation.Pods, pod(fmt.Sprintf("web-%02d", i), small()))
		}
	})
	for _, change := range changes {
		change(&w)
	}
	return &w
}

func halved() recommend.Container {
	r := rec(amounts(50, 64), amounts(40, 50), amounts(60, 80))
	r.Observed = time.Hour
	return r
}

// pass plans once and carries out the plan. If the status is lost, the operator was killed after it had done so.
func (w *world) pass(now time.Time, lost bool) plan.Plan {
	p := w.next(now)
	s := &w.situation
	if step := as[plan.Resize](p); step != nil {
		pod, _ := s.Pod(step.UID)
		w.change1(pod.Name, func(pod *workload.Pod) {
			pod.Resized, pod.Containers = now, withSizes(pod.Containers, step.Sizes)
			caughtUp(pod)
		})
	}
	if step := as[plan.Rewrite](p); step != nil {
		s.Deployment.Containers = withSizes(s.Deployment.Containers, step.Sizes)
	}
	if !lost {
		s.Decision, s.RevertedChanges = p.Decision, p.RevertedChanges
	}
	return p
}

// lowered names the pods that are not as large as they were.
func (w *world) lowered() (names []string) {
	for _, pod := range w.situation.Pods {
		if c, _ := pod.Container("app"); c.Requests.CPUMillis < 100 || c.Requests.MemoryBytes < 128*mebi {
			names = append(names, pod.Name)
		}
	}
	return names
}

func (w *world) change1(name string, change func(*workload.Pod)) {
	w.situation.Pods = slices.Clone(w.situation.Pods)
	for i := range w.situation.Pods {
		if w.situation.Pods[i].Name == name {
			w.situation.Pods[i] = with(w.situation.Pods[i], change)
		}
	}
}

func ended(at time.Time) func(*workload.Pod) {
	return func(p *workload.Pod) { p.Exits = []workload.Exit{{Container: "app", At: at}} }
}

func killed(at time.Time) func(*workload.Pod) {
	return func(p *workload.Pod) { p.Exits = []workload.Exit{{Container: "app", At: at, OOMKilled: true}} }
}

func unready(since time.Time) func(*workload.Pod) {
	return func(p *workload.Pod) { p.Unready = since }
}

// settle passes until nothing is left to do at that time.
func (w *world) settle(t *testing.T, now time.Time) (last plan.Plan) {
	t.Helper()
	for range 200 {
		last = w.pass(now, false)
		if !is[plan.Resize](last) && !is[plan.Rewrite](last) && !is[plan.TakeOver](last) && !is[plan.Record](last) {
			return last
		}
	}
	t.Fatalf("no rest: %s", say(last))
	return last
}

// A few pods are lowered first, and the others once these have been well for long enough.
// The status changes with each of these steps, and not in between.
func TestWhatIsLoweredIsTriedFirst(t *testing.T) {
	for _, tc := range []struct{ pods, first int }{{1, 1}, {2, 1}, {3, 1}, {7, 1}, {8, 2}, {40, 10}} {
		t.Run(fmt.Sprint(tc.pods), func(t *testing.T) {
			w := wasteful(tc.pods)
			if first := w.pass(noon, false); !is[plan.Record](first) {
				t.Fatalf("a pod is lowered before its good size is recorded: %s", say(first))
			}
			p := w.settle(t, noon)
			if n := len(w.lowered()); n != tc.first {
				t.Fatalf("%d pods are lowered first, want %d", n, tc.first)
			}
			if want := map[bool]string{true: "Verifying", false: "Applied"}[tc.pods > 1]; p.Verdict.Reason != want || p.Verdict.RequeueAfter != watchedFor {
				t.Errorf("after the first: %s in %s", say(p), p.Verdict.RequeueAfter)
			}
			for _, after := range []time.Duration{time.Second, time.Minute, watchedFor - time.Second} {
				before := w.situation
				if p := w.pass(noon.Add(after), false); p.Verdict.RequeueAfter != watchedFor-after {
					t.Errorf("after %s: look again in %s", after, p.Verdict.RequeueAfter)
				}
				assert.Equal(t, fmt.Sprintf("the status after %s", after), before.Decision, w.situation.Decision)
			}
			later := noon.Add(watchedFor)
			w.settle(t, later)
			if n := len(w.lowered()); n != tc.pods {
				t.Errorf("%d pods are lowered in the end", n)
			}
			p = w.settle(t, later.Add(watchedFor))
			if w.situation.Decision.Verification != nil || !p.Verdict.State.IsApplied() || p.Verdict.Reason != "Applied" {
				t.Errorf("in the end: %s, %+v", say(p), w.situation.Decision.Verification)
			}
		})
	}
}

// A raise helps and does not wait.
func TestARaiseIsNotTried(t *testing.T) {
	w := wasteful(8, recommends(recommended("app")))
	w.settle(t, noon)
	if w.situation.Decision.Verification != nil {
		t.Errorf("a raise is verified: %+v", w.situation.Decision.Verification)
	}
	for _, pod := range w.situation.Pods {
		if c, _ := pod.Container("app"); c.Requests != amounts(200, 256) {
			t.Errorf("%s has %+v", pod.Name, c.Requests)
		}
	}
}

// Without a verification period, no change is verified.
func TestWithoutAPeriodNothingIsVerified(t *testing.T) {
	w := wasteful(8, func(w *world) { w.policy.VerificationPeriod = 0 })
	w.settle(t, noon)
	if n := len(w.lowered()); n != 8 || w.situation.Decision.Verification != nil {
		t.Errorf("%d pods are lowered, verification %+v", n, w.situation.Decision.Verification)
	}
}

func TestVerdicts(t *testing.T) {
	at := noon.Add(40 * time.Second)
	now := noon.Add(time.Minute + 30*time.Second)
	first := []int{0}
	some := func(from, to int) (out []int) {
		for i := from; i < to; i++ {
			out = append(out, i)
		}
		return out
	}
	for name, tc := range map[string]struct {
		pods   int
		before map[int]func(*workload.Pod) // what pods were like when it was decided
		ill    []int
		how    func(*workload.Pod)
		back   bool
		saw    string
	}{
		"all is well":                             {pods: 4},
		"the first pod ended":                     {pods: 4, ill: first, how: ended(at), back: true, saw: "pod web-00: container app exited"},
		"it ends again and again":                 {pods: 4, ill: first, how: func(p *workload.Pod) { p.BackingOff = []string{"app"} }, back: true, saw: "pod web-00: container app crashes each time it is started"},
		"it has not been ready for half a minute": {pods: 4, ill: first, how: unready(at), back: true, saw: "pod web-00: is not ready"},
		"it is not ready for a moment":            {pods: 4, ill: first, how: unready(now.Add(-29 * time.Second))},
		"it has not been ready since before":      {pods: 4, ill: first, how: unready(noon.Add(-time.Minute))},
		"it ended before":                         {pods: 4, ill: first, how: ended(noon.Add(-time.Minute))},
		"it was killed":                           {pods: 4, ill: first, how: killed(at), back: true, saw: "pod web-00: container app was OOM-killed"},
		"it was killed, by a clock behind":        {pods: 4, ill: first, how: killed(noon.Add(-20 * time.Second)), back: true, saw: "pod web-00: container app was OOM-killed"},
		"it ended, by a clock behind":             {pods: 4, ill: first, how: ended(noon.Add(-20 * time.Second)), back: true, saw: "pod web-00: container app exited"},
		"it is not ready, by a clock behind":      {pods: 4, ill: first, how: unready(noon.Add(-20 * time.Second)), back: true, saw: "pod web-00: is not ready"},
		"all ended, by clocks behind":             {pods: 4, ill: some(0, 4), how: ended(noon.Add(-20 * time.Second))},
		"it was killed long before":               {pods: 4, ill: first, how: killed(noon.Add(-time.Minute))},
		"it was killed just before the decision":  {pods: 4, before: map[int]func(*workload.Pod){0: killed(noon.Add(-20 * time.Second))}},
		"another ended":                           {pods: 4, ill: []int{1}, how: ended(at)},
		"all ended":                               {pods: 4, ill: some(0, 4), how: ended(at)},
		"it and one of three others ended":        {pods: 4, ill: []int{0, 3}, how: ended(at)},
		"all were killed":                         {pods: 4, ill: some(0, 4), how: killed(at), back: true, saw: "pod web-00: container app was OOM-killed"},
		"the only pod ended":                      {pods: 1, ill: first, how: ended(at), back: true, saw: "pod web-00: container app exited"},
		"the only pod had ended before, too":      {pods: 1, before: map[int]func(*workload.Pod){0: ended(noon.Add(-time.Minute))}, ill: first, how: ended(at)},
		"the others crashed before, too": {pods: 4, before: map[int]func(*workload.Pod){
			1: ended(noon.Add(-time.Minute)), 2: ended(noon.Add(-time.Minute)), 3: ended(noon.Add(-time.Minute)),
		}, ill: first, how: ended(at)},
		"one of two ended, the changed": {pods: 2, ill: first, how: ended(at), back: true, saw: "pod web-00: container app exited"},
		"one of two ended, the other":   {pods: 2, ill: []int{1}, how: ended(at)},
		"one of ten first ones":         {pods: 40, ill: first, how: ended(at)},
		"two of ten first ones":         {pods: 40, ill: []int{0, 5}, how: ended(at), back: true, saw: "pod web-00: container app exited; pod web-05: container app exited"},
		"many of ten first ones":        {pods: 40, ill: some(0, 8), how: ended(at), back: true, saw: "pod web-00: container app exited; pod web-01: container app exited; pod web-02: container app exited; and 5 more"},
		"half of all":                   {pods: 40, ill: some(5, 25), how: ended(at)},
		"one that restarts when it is resized": {pods: 4, ill: first, how: func(p *workload.Pod) {
			ended(at)(p)
			p.Containers[0].RestartOnCPU = true
		}},
		"one that is going": {pods: 4, ill: first, how: func(p *workload.Pod) {
			ended(at)(p)
			p.Terminating = true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w, now := wasteful(tc.pods), now
			for i, change := range tc.before {
				w.change1(fmt.Sprintf("web-%02d", i), change)
			}
			w.settle(t, noon)
			for _, i := range tc.ill {
				w.change1(fmt.Sprintf("web-%02d", i), tc.how)
			}
			p := w.next(now)
			if got := p.Reverted != ""; got != tc.back || p.Reverted != tc.saw {
				t.Fatalf("reverted: %t %q, want %t %q", got, p.Reverted, tc.back, tc.saw)
			}
			if !tc.back {
				return
			}
			if !p.Decided || p.Decision.Reason != "Reverted" || p.Decision.Requests["app"] != amounts(100, 128) || p.Decision.Verification != nil {
				t.Errorf("%s", say(p))
			}
			w.settle(t, now)
			if names := w.lowered(); len(names) > 0 {
				t.Errorf("%v are still lowered", names)
			}
			// The evidence is the same for as long as nothing else is: it stays.
			for range 50 {
				now = now.Add(time.Hour)
				if p := w.settle(t, now); p.Decided || p.Verdict.Reason != "ChangeReverted" || !p.Verdict.State.IsApplied() {
					t.Fatalf("at %s: %s", now, say(p))
				}
			}
		})
	}
}

// The floor that a kill has set is above what was before, and is decided at once.
func TestTheFloorOfAKillIsNotFoughtAgainst(t *testing.T) {
	w := wasteful(4)
	w.settle(t, noon)
	now := noon.Add(time.Minute)
	w.change1("web-00", killed(now))
	recommends(withOOMFloor(160, rec(amounts(50, 200), amounts(40, 150), amounts(60, 220))))(w)
	w.settle(t, now)
	if got := w.situation.Decision; got.Reason != "OOMKill" || got.Requests["app"] != amounts(100, 200) || got.Verification != nil {
		t.Errorf("decided %+v", got)
	}
}

func TestWhatFailedIsTriedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*world)
		after  time.Duration
		again  bool
	}{
		"not soon":                       {after: 6 * 24 * time.Hour},
		"after a week":                   {after: 7 * 24 * time.Hour, again: true},
		"with a little more evidence":    {change: observed(110 * time.Minute), after: time.Hour},
		"with twice the evidence":        {change: observed(2 * time.Hour), after: time.Hour, again: true},
		"after an edit":                  {change: func(w *world) { w.policy.Edited = true }, after: time.Hour, again: true},
		"with less that is needed":       {change: recommends(rec(amounts(30, 40), amounts(20, 30), amounts(60, 80))), after: time.Hour},
		"with more, but less than it is": {change: recommends(rec(amounts(70, 90), amounts(60, 80), amounts(80, 100))), after: time.Hour, again: true},
		"where a bound asks for it":      {change: policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(80, 100) }), after: time.Hour, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := wasteful(4)
			w.settle(t, noon)
			now := noon.Add(time.Minute)
			w.change1("web-00", ended(now))
			w.settle(t, now)
			w.change1("web-00", func(p *workload.Pod) { p.Exits = nil })
			if len(w.situation.RevertedChanges) != 2 {
				t.Fatalf("remembered: %+v", w.situation.RevertedChanges)
			}
			if tc.change != nil {
				tc.change(w)
			}
			w.settle(t, now.Add(tc.after))
			if got := len(w.lowered()) > 0; got != tc.again {
				t.Errorf("lowered again: %t, want %t", got, tc.again)
			}
		})
	}
}

func observed(d time.Duration) func(*world) {
	return func(w *world) {
		again := halved()
		again.Observed = d
		recommends(again)(w)
	}
}

// Urgent changes do not wait for a verification, and roll back what is not verified.
func TestUrgentChangesDoNotWaitForAVerification(t *testing.T) {
	w := wasteful(4)
	w.settle(t, noon)
	recommends(rec(amounts(300, 64), amounts(200, 50), amounts(400, 80)))(w)
	w.settle(t, noon.Add(time.Second))
	for _, pod := range w.situation.Pods {
		want := amounts(300, 128)
		if pod.Name == "web-00" { // the first, whose memory is being verified
			want = amounts(300, 64)
		}
		if c, _ := pod.Container("app"); c.Requests != want {
			t.Errorf("%s has %s", pod.Name, sayResources(c.Resources))
		}
	}
	if v := w.situation.Decision.Verification; v == nil || v.Good["app"] != amounts(0, 128) {
		t.Errorf("the memory is verified by %+v", v)
	}
}

// A lowered value that is not verified yet is not requested again when the other resource is urgent.
func TestAnUrgentChangeLeavesTheOtherResource(t *testing.T) {
	w := wasteful(1)
	w.settle(t, noon)
	recommends(rec(amounts(80, 64), amounts(70, 50), amounts(90, 80)))(w)
	w.settle(t, noon.Add(time.Second))
	recommends(rec(amounts(80, 90), amounts(70, 80), amounts(90, 100)))(w)
	w.settle(t, noon.Add(2*time.Second))
	if got := w.situation.Decision.Requests["app"]; got != amounts(80, 90) {
		t.Errorf("decided are %+v", got)
	}
}

// A decision during a rollout that is verified does not begin its verification again.
func TestAVerificationContinuesWithTheNextDecision(t *testing.T) {
	w := wasteful(2, rollout, appTakenOver())
	w.change1("web-00", func(p *workload.Pod) { p.BackingOff = []string{"app"} })
	first := w.pass(noon, false).Decision.Verification
	recommends(rec(amounts(300, 64), amounts(200, 50), amounts(400, 80)))(w)
	last := w.next(noon.Add(10 * time.Second)).Decision
	if last.Requests["app"].CPUMillis != 300 || last.Verification == nil {
		t.Fatalf("the second decision is %+v", last)
	}
	if v := last.Verification; !v.Began.Equal(noon) || len(v.UnhealthyPods) != 1 || !slices.Equal(v.UnhealthyPods, first.UnhealthyPods) {
		t.Errorf("it is verified by %+v, and was by %+v", v, first)
	}
}

// Of a rollout, the new pods are compared with the old ones, and what the Deployment's
// controller says counts.
func TestVerdictsOnRollouts(t *testing.T) {
	at, now := noon.Add(time.Minute), noon.Add(3*time.Minute)
	old := func(name string) workload.Pod {
		return with(pod(name, small()), func(p *workload.Pod) { p.Current = false })
	}
	fresh := func(change func(*workload.Pod)) workload.Pod {
		c := small()
		c.Resources = resources(amounts(50, 64), amounts(100, 128))
		return with(pod("new-1", c), func(p *workload.Pod) {
			p.Started = noon.Add(time.Second)
			change(p)
		})
	}
	still := func(*workload.Pod) {}
	for name, tc := range map[string]struct {
		raise bool
		pods  []workload.Pod
		stuck bool
		back  bool
	}{
		"on its way":                   {pods: []workload.Pod{old("old-1"), old("old-2"), fresh(still)}},
		"the new one is not ready yet": {pods: []workload.Pod{old("old-1"), old("old-2"), fresh(unready(at))}},
		"the new one ended":            {pods: []workload.Pod{old("old-1"), old("old-2"), fresh(ended(at))}, back: true},
		"the new one was killed":       {pods: []workload.Pod{fresh(killed(at))}, back: true},
		"all ended":                    {pods: []workload.Pod{with(old("old-1"), ended(at)), with(old("old-2"), ended(at)), fresh(ended(at))}},
		"it is given up":               {pods: []workload.Pod{old("old-1"), old("old-2"), fresh(still)}, stuck: true, back: true},
		"a raise is given up":          {raise: true, pods: []workload.Pod{old("old-1"), old("old-2")}, stuck: true, back: true},
		"a raise, and the new ended":   {raise: true, pods: []workload.Pod{old("old-1"), old("old-2"), fresh(ended(at))}},
	} {
		t.Run(name, func(t *testing.T) {
			w, now := wasteful(2, rollout, appTakenOver()), now
			if tc.raise {
				recommends(rec(amounts(150, 200), amounts(90, 100), amounts(300, 400)))(w)
			}
			if p := w.pass(noon, false); !is[plan.Record](p) || p.Decision.Verification == nil {
				t.Fatalf("%s, %+v", say(p), p.Decision.Verification)
			}
			if p := w.pass(noon, false); !is[plan.Rewrite](p) {
				t.Fatalf("%s, %+v", say(p), p.Decision.Verification)
			}
			written := w.situation.Deployment.Containers[0].Resources
			w.situation.Deployment.RollingOut, w.situation.Deployment.Stuck = true, tc.stuck
			w.situation.Pods = tc.pods
			p := w.pass(now, false)
			if got := p.Reverted != ""; got != tc.back {
				t.Fatalf("reverted %q, want %t: %s", p.Reverted, tc.back, say(p))
			}
			if !tc.back {
				return
			}
			if p = w.pass(now, false); !is[plan.Rewrite](p) || w.situation.Deployment.Containers[0].Resources != small().Resources {
				t.Errorf("it waits for the rollout that is to blame: %s", say(p))
			}
			w.situation.Deployment.RollingOut, w.situation.Deployment.Stuck = false, false
			w.situation.Pods = []workload.Pod{old("old-1"), old("old-2")}
			for range 20 {
				now = now.Add(time.Hour)
				if p := w.settle(t, now); p.Decided || w.situation.Deployment.Containers[0].Resources == written {
					t.Fatalf("tried again at %s: %s", now, say(p))
				}
			}
		})
	}
}

// A rollout that has come to its end has been good after a while without trouble.
func TestARolloutThatIsWell(t *testing.T) {
	w := wasteful(2, rollout, appTakenOver())
	w.settle(t, noon)
	if p := w.settle(t, noon.Add(time.Second)); !p.Verdict.State.IsApplied() || p.Verdict.RequeueAfter != watchedFor-time.Second {
		t.Errorf("%s, again in %s", say(p), p.Verdict.RequeueAfter)
	}
	if w.settle(t, noon.Add(watchedFor)); w.situation.Decision.Verification != nil {
		t.Errorf("still being verified: %+v", w.situation.Decision.Verification)
	}
}

// FuzzVerification lets pods come to grief at random, and operators be killed between what they do and what
// they write. The verification ends, and the verdict is the same in any order of the pods. Planning twice is
// planning once, nothing is reverted where all pods suffer alike, and a reverted change is not tried again.
func FuzzVerification(f *testing.F) {
	for seed := 0; seed < 40; seed += stride() {
		f.Add(uint64(seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		w := wasteful(1+r.IntN(20), func(w *world) { w.policy.Cooldown = time.Duration(r.IntN(3)) * time.Minute })
		all := r.IntN(3) == 0 // whatever happens, happens to all
		now, backs, last := noon, 0, plan.Plan{}
		for i := range 200 {
			w.situation.Recommendations = slices.Clone(w.situation.Recommendations)
			if i < 100 && r.IntN(20) == 0 {
				how := []func(*workload.Pod){ended(now), unready(now), func(p *workload.Pod) { p.Unready, p.BackingOff = time.Time{}, nil }, func(p *workload.Pod) { p.BackingOff = []string{"app"} }}[r.IntN(4)]
				one := r.IntN(len(w.situation.Pods))
				for j, pod := range w.situation.Pods {
					if all || j == one {
						w.change1(pod.Name, how)
					}
				}
			}
			if i == 100 { // all get well
				for _, pod := range w.situation.Pods {
					w.change1(pod.Name, func(p *workload.Pod) { p.Unready, p.BackingOff = time.Time{}, nil })
				}
			}
			p := w.next(now)
			checkDeterminism(t, r, *w, p, now)
			lost := r.IntN(10) == 0
			last = w.pass(now, lost)
			if p.Reverted != "" && !lost {
				backs++
				if all && len(w.situation.Pods) > 1 {
					t.Fatalf("seed %d: reverted, and all suffered: %s", seed, p.Reverted)
				}
			}
			if again := w.next(now); !lost && !is[plan.Resize](last) && !is[plan.Record](last) {
				if diff := cmp.Diff(w.situation.Decision, again.Decision); diff != "" {
					t.Fatalf("seed %d: a pass that has nothing to do writes: %s", seed, diff)
				}
			}
			now = now.Add(time.Duration(r.IntN(90)) * time.Second)
		}
		if backs > 1 {
			t.Errorf("seed %d: reverted %d times", seed, backs)
		}
		if w.situation.Decision.Verification != nil || !last.Verdict.State.IsApplied() {
			t.Errorf("seed %d: no end: %s %+v", seed, say(last), w.situation.Decision.Verification)
		}
		if n := len(w.lowered()); backs > 0 && n > 0 || backs == 0 && n != len(w.situation.Pods) {
			t.Errorf("seed %d: %d pods are lowered of %d, reverted %d times", seed, n, len(w.situation.Pods), backs)
		}
	})
}

// A change that waits for a verification follows it, without any usage or event to trigger a reconcile.
func TestTheNextChangeFollowsAVerification(t *testing.T) {
	w := given(decidedBefore(verifying), watching, recommends(rec(amounts(20, 30), amounts(10, 20), amounts(30, 40))), pods(halfSized("web-1"), halfSized("web-2")))
	w.policy.Cooldown = 0
	for now, passes := noon, 0; ; passes++ {
		p := w.next(now)
		if p.Decided {
			if waited := now.Sub(noon); waited > watchedFor+time.Minute {
				t.Errorf("decided after %s", waited)
			}
			return
		}
		if p.Verdict.RequeueAfter == 0 || passes == 10 {
			t.Fatalf("after %d passes, at %s: nothing triggers a reconcile: %s", passes, now.Sub(noon), say(p))
		}
		w.situation.Decision = p.Decision
		now = now.Add(p.Verdict.RequeueAfter)
	}
}

// A pod that got a smaller size before it had a node has never run with another one. It may take its time to start.
func TestAPodThatWasSetBackIsNoRegression(t *testing.T) {
	for name, tc := range map[string]struct {
		scheduled time.Time
		want      bool
	}{
		"set back before it had a node": {noon, false}, // times have whole seconds
		"resized soon after":            {noon.Add(-time.Second), true},
		"resized while it ran":          {noon.Add(-time.Hour), true},
		"its time is unknown":           {time.Time{}, true},
	} {
		slow := with(halfSized("web-2"), func(p *workload.Pod) {
			p.Created, p.Scheduled, p.Started = noon.Add(-time.Hour), tc.scheduled, tc.scheduled.Add(20*time.Second) // the clock of its node is ahead
			p.Ready, p.Unready = false, noon.Add(5*time.Second)
		})
		w := given(watching, decidedBefore(verifying), recommends(halved()), pods(pod("web-1", small()), slow))
		if p := w.next(noon.Add(time.Minute)); (p.Reverted != "") != tc.want {
			t.Errorf("%s: reverted %q: %s", name, p.Reverted, say(p))
		}
	}
}

// watching is a policy that watches what was changed.
func watching(w *world) { w.policy.VerificationPeriod = watchedFor }

// verifying is a decision that has halved what was good, just now.
func verifying(d *plan.Decision) {
	d.Time, d.Reason = noon, "ScaleDown"
	d.Requests = map[string]quantity.Amounts{"app": amounts(50, 64)}
	d.Verification = &plan.Verification{Began: noon, Good: map[string]quantity.Amounts{"app": amounts(100, 128)}, ObservedSince: noon}
}

// halfSized is a pod that was halved just now.
func halfSized(name string) workload.Pod {
	c := small()
	c.Resources = resources(amounts(50, 64), amounts(100, 128))
	return with(pod(name, c), func(p *workload.Pod) { p.Resized = noon })
}

// revised is a Deployment that has run with half of its template's size, and now has so many Ready pods of a new revision.
func revised(n int, changes ...func(*world)) *world {
	w := wasteful(n, decidedBefore(func(d *plan.Decision) { d.Requests["app"] = amounts(50, 64) }), rollingOut)
	w.situation.Pods = append(w.situation.Pods, ofOldTemplate(pod("old", half())))
	for _, change := range changes {
		change(w)
	}
	return w
}

// The usage of an older revision is not proof that a new one needs no more: its first pods are verified after
// they are lowered.
func TestANewRevisionIsLoweredOnTrial(t *testing.T) {
	w := revised(4)
	ready := w.situation.Pods[3]
	w.change1(ready.Name, func(p *workload.Pod) { // it is starting, which is no sign of anything
		p.Ready, p.Unready, p.ReadyChanged = false, noon.Add(-2*time.Second), noon.Add(-2*time.Second)
		p.Runs = []workload.Run{{Container: "app", Since: noon.Add(-time.Second)}}
	})
	if p := w.pass(noon, false); !is[plan.Record](p) || p.Decided {
		t.Fatalf("the trial is not recorded first: %s", say(p))
	}
	if p := w.settle(t, noon); len(w.lowered()) != 2 || p.Verdict.Reason != "Verifying" { // the old pod and a new one
		t.Fatalf("%v are lowered first: %s", w.lowered(), say(p))
	}
	harmed := *w
	harmed.change1("web-00", ended(noon.Add(time.Second)))
	if p := harmed.settle(t, noon.Add(time.Minute)); harmed.situation.Decision.Reason != "Reverted" || len(harmed.lowered()) != 1 {
		t.Errorf("harm of the first is not reverted: %s", say(p))
	}
	w.situation.Pods[3] = ready
	later := noon.Add(watchedFor)
	if w.settle(t, later); len(w.lowered()) != 5 {
		t.Errorf("%v are lowered in the end", w.lowered())
	}
	again := *w // another revision, before the end of the verification
	again.situation.Pods = slices.Concat(revised(2).situation.Pods[:2], []workload.Pod{ofOldTemplate(pod("web-03", half()))})
	if again.settle(t, later); len(again.lowered()) != 2 {
		t.Errorf("of the next revision, %v are lowered first", again.lowered())
	}
	if w.settle(t, later.Add(watchedFor)); w.situation.Decision.Verification != nil {
		t.Errorf("the trial does not end: %+v", w.situation.Decision.Verification)
	}
	w.situation.Pods = append(w.situation.Pods, pod("web-08", small()), pod("web-09", small()))
	if w.settle(t, later.Add(watchedFor)); len(w.lowered()) != 7 {
		t.Errorf("pods of a tried revision wait: %v are lowered", w.lowered())
	}
}

func TestWhatIsNotOnTrial(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(*world)
		lowered int // beside the old pod
	}{
		"no pod of it is Ready": {func(w *world) {
			for i := range 4 {
				w.situation.Pods[i].Ready, w.situation.Pods[i].ReadyChanged = false, noon
			}
		}, 0},
		"one of it has run with less":       {func(w *world) { w.situation.Pods[3] = pod("web-03", half()) }, 4},
		"nothing is verified":               {func(w *world) { w.policy.VerificationPeriod = 0 }, 4},
		"more than maxAllowed":              {policyOfApp(func(p *plan.ContainerPolicy) { p.MaxAllowed = amounts(50, 64) }), 4},
		"the end of a startup boost":        {policyOfApp(func(p *plan.ContainerPolicy) { p.Memory, p.Boost = false, &plan.Boost{} }), 4},
		"the template requests no more":     {template(half()), 4},
		"old pods with less stay":           {deployment(func(d *workload.Deployment) { d.Paused = true }), 4},
		"the template is that of a Rollout": {rollout, 0},
	} {
		w := revised(4, tc.change)
		w.settle(t, noon)
		if got := len(w.lowered()) - 1; got != tc.lowered || w.situation.Decision.Verification != nil {
			t.Errorf("%s: %d pods are lowered, verifying %+v", name, got, w.situation.Decision.Verification)
		}
	}
}

// A pod that cannot be lowered verifies nothing, and the others do not wait for it.
func TestARefusedPodIsNotVerified(t *testing.T) {
	refused := func(w *world, pod string) {
		for _, size := range []workload.Resources{half().Resources, resources(amounts(100, 64), amounts(200, 128)), resources(amounts(50, 128), amounts(100, 256))} {
			w.reject(types.UID("uid-"+pod), plan.RejectedResize{Sizes: []plan.Size{{Container: "app", Resources: size}}, Reason: "Unsupported", Message: "pod resize is only supported on linux nodes"})
		}
	}
	for fallback, or := range map[string]func(*world){"Rollout": orRollout, "Recreate": orRecreate} {
		w := wasteful(2, or)
		now := noon
		for i, want := range []string{"web-00", "web-01", ""} {
			var p plan.Plan
			for range 5 {
				now = now.Add(time.Minute)
				p = w.next(now)
				w.situation.Decision, w.situation.NewPods = p.Decision, p.NewPods
				w.situation.NewPods.AskedSince, w.situation.NewPods.EffectiveSince = noon, noon
				if is[plan.Resize](p) || is[plan.Evict](p) || is[plan.TakeOver](p) {
					break
				}
			}
			step := as[plan.Resize](p)
			switch {
			case want == "" && !is[plan.TakeOver](p) && !is[plan.Evict](p):
				t.Fatalf("%s does not follow: %s", fallback, say(p))
			case want == "":
			case step == nil || step.Pod != want:
				t.Fatalf("%s, step %d: pod %s is not asked: %s", fallback, i, want, say(p))
			default:
				refused(w, want)
			}
		}
	}
}
