// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// loop closes the loop between a container and its size: what the container uses depends on what it has, and what it
// gets on what it uses. History, recommendation and plan are the operator's; kubelets apply each resize at once.
type loop struct {
	kind    kind
	random  *rand.Rand
	history history.Container
	rec     *recommend.Container
	params  recommend.Params
	world   world
	pods    []*looped
	start   time.Time

	base, most     int64 // of memory, in bytes: the limit in the template, and the most that was decided
	killedAt       map[int64]bool
	lastKill       time.Time
	firstHit       int64 // the limit at the first kill
	now            time.Time
	pod            int           // whose CPU is used
	wake           time.Time     // when the plan changes by itself; zero for never
	capped         time.Duration // for how long CPU was capped
	seen           map[string]bool
	ends           map[string]bool // why climbs have ended
	cpu            int64           // the CPU limit in the template
	cpuSizes       map[int64]bool  // CPU limits that pods got
	siblings       int64           // the most memory that a pod other than the first one got
	need, demand   float64
	rises          time.Duration   // when the demand for CPU rises
	noise, highest float64         // of the CPU that a healthy container demands
	reads          float64         // the share of its limit that a throttled container is seen to use
	set            types.UID       // the ReplicaSet
	created        int             // how many pods were created
	failures       int             // how many creations and starts failed
	missing        []int           // for how many steps each pod has not been Ready
	took           []time.Duration // how long starts took, if they need CPU
}

// looped is the state of the container in one pod.
type looped struct {
	started   time.Time
	startedAt int64 // the memory limit when it started
	level     float64
	work      float64 // what its start has done, as a share of all
}

// kind is a kind of workload.
type kind struct {
	pods int
	// factor is the limit divided by the request.
	factor int64
	step   time.Duration
	steps  int
	// memory is the demand of the container, in bytes. More than its limit kills it.
	memory func(l *loop, i int, p *looped, limit int64, now time.Time) float64
	cpu    func(l *loop, limit int64) float64
	check  func(l *loop) string
	// deploys is how many times its memory the template has that a user deploys after 20 hours; 0 for no deployment.
	deploys int64
	// starts reports whether the container starts with a limit, and admits whether admission lets pods have it; nil for always.
	starts, admits func(l *loop, limit int64) bool
	// startTime is how long a start takes with all the CPU that it can use, startNeed; 0 for no time.
	startTime time.Duration
	// isReplaced is true if nodes are drained: each pod is replaced every six hours.
	isReplaced bool
	// aged is how old the history is at the start.
	aged time.Duration
}

const leash = 8

func steady(l *loop, _ int, _ *looped, _ int64, now time.Time) float64 {
	day := 1 + .1*math.Sin(now.Sub(l.start).Hours()/24*2*math.Pi)
	return l.need * day * (1 + .02*l.random.NormFloat64())
}

// little is less than half of what the template has.
func little(l *loop, i int, p *looped, limit int64, now time.Time) float64 {
	return .6 * steady(l, i, p, limit, now)
}

// cache fills what it has, and is reclaimed when that is full.
func cache(_ *loop, _ int, p *looped, limit int64, _ time.Time) float64 {
	p.level = min(p.level+20*mebi, 1<<40)
	return min(p.level, .98*float64(limit))
}

func idle(l *loop, _ int64) float64 { return 50 * (1 + .05*l.random.NormFloat64()) }

// throttled needs four to seven times its CPU from some moment on. Its usage is read as often as by default.
func throttled(noise float64, aged time.Duration) kind {
	return kind{pods: 2, factor: 1, step: 30 * time.Second, steps: 60, aged: aged, memory: steady, cpu: func(l *loop, limit int64) float64 {
		if l.now.Sub(l.start) < l.rises {
			return .8 * float64(l.cpu)
		}
		return math.Ceil(min(l.demand, float64(limit)*(l.reads+(.99-l.reads)*l.random.Float64()*noise)))
	}, check: func(l *loop) string {
		if each := l.capped / 2; each > 3*time.Minute {
			return fmt.Sprintf("CPU is capped for %s", each)
		}
		return ""
	}}
}

// ends checks that a climb has ended, or not, for a reason.
func ends(reason string) func(l *loop) string {
	return func(l *loop) string {
		if reason == "" && len(l.ends) > 0 || reason != "" && !l.ends[reason] {
			return fmt.Sprintf("climbs ended: %v", l.ends)
		}
		return ""
	}
}

func anyEnd(*loop) string { return "" }

// leads is 1 for the pod that leads, and little for the others.
func (l *loop) leads(i int, now time.Time) float64 {
	if int(now.Sub(l.start).Hours())%l.kind.pods == i {
		return 1
	}
	return .05
}

// isAlarmed reports whether a container was killed, reported, or got its former size back.
func (l *loop) isAlarmed() bool {
	return len(l.ends) > 0 || !l.lastKill.IsZero() || slices.ContainsFunc([]string{"Reverted", "OutlierPod", "RaiseLimit", "ReplicaFailure"},
		func(reason string) bool { return l.seen[reason] })
}

// isMet checks that a need is met in the end.
func isMet(l *loop) string {
	if left := l.start.Add(time.Duration(l.kind.steps) * l.kind.step).Sub(l.lastKill); left < 30*time.Hour && !l.lastKill.IsZero() {
		return fmt.Sprintf("the last kill is %s before the end", left)
	}
	return ends("")(l)
}

// needsTemplate reports whether a limit is about that of the template.
func needsTemplate(l *loop, limit int64) bool { return limit >= l.base-l.base/50 }

// failed checks how many creations and starts have failed, and that new pods can start in the end.
func (l *loop) failed(least, most int) string {
	if l.failures < least || l.failures > most || l.kind.starts != nil && !l.kind.starts(l, l.newPod()) {
		return fmt.Sprintf("%d pods failed, new ones get %d Mi, and the template has %d Mi", l.failures, l.newPod()/mebi, l.base/mebi)
	}
	return ends("")(l)
}

// newPod is the memory limit of the next pod.
func (l *loop) newPod() int64 {
	s := l.world.situation
	for _, size := range s.NewPods.Sizes {
		if limit := size.Limits.MemoryBytes; limit > 0 && s.NewPods.ReplicaSet == l.set {
			return limit
		}
	}
	return l.base
}

var kinds = map[string]kind{
	"healthy": {pods: 2, factor: 2, step: 2 * time.Minute, steps: 1000, memory: steady, cpu: idle, check: anyEnd},
	"healthy, with a limit as large as its request": {pods: 1, factor: 1, step: 2 * time.Minute, steps: 1000, memory: steady, cpu: idle, check: anyEnd},
	"healthy, with three times as much by day": {
		pods: 3, factor: 1, step: 2 * time.Minute, steps: 2160, cpu: idle, check: anyEnd, isReplaced: true,
		memory: func(l *loop, i int, p *looped, limit int64, now time.Time) float64 {
			return steady(l, i, p, limit, now) * (1 - .5*math.Cos(now.Sub(l.start).Hours()/24*2*math.Pi))
		},
	},
	"a heap sized at the start": {
		pods: 1, factor: 2, step: 2 * time.Minute, steps: 1000, cpu: idle, check: ends(recommend.UsageFollowsLimit),
		memory: func(l *loop, _ int, p *looped, limit int64, now time.Time) float64 {
			if now.Sub(p.started) > 3*time.Hour { // a rollout restart
				p.started, p.startedAt = now, limit
			}
			return .75 * float64(p.startedAt)
		},
	},
	"a heap that follows the limit": {
		pods: 1, factor: 2, step: 2 * time.Minute, steps: 1000, cpu: idle, check: ends(recommend.UsageFollowsLimit),
		memory: func(_ *loop, _ int, _ *looped, limit int64, _ time.Time) float64 { return .75 * float64(limit) },
	},
	"page cache, with a limit above its request": {pods: 1, factor: 2, step: 2 * time.Minute, steps: 1000, cpu: idle, check: anyEnd, memory: cache},
	"page cache": {
		pods: 1, factor: 1, step: 2 * time.Minute, steps: 1000, cpu: idle, check: ends(recommend.UsageFollowsLimit),
		memory: cache,
	},
	"a leak": {
		pods: 1, factor: 1, step: 2 * time.Minute, steps: 3000, cpu: idle, check: anyEnd,
		memory: func(l *loop, _ int, p *looped, _ int64, now time.Time) float64 {
			return l.need + 10*mebi*now.Sub(p.started).Minutes()
		},
	},
	"broken for good": {
		pods: 2, factor: 1, step: 2 * time.Minute, steps: 1000, cpu: idle, check: ends(recommend.RaiseDidNotHelp),
		memory: func(l *loop, i int, p *looped, _ int64, now time.Time) float64 {
			if now.Sub(l.start) > 20*time.Hour && now.Sub(p.started) > 5*time.Minute {
				return 1 << 50
			}
			return steady(l, i, p, 0, now)
		},
	},
	"a start that needs more": {
		pods: 2, factor: 1, step: 2 * time.Minute, steps: 1500, cpu: idle, check: isMet,
		memory: func(l *loop, i int, p *looped, _ int64, now time.Time) float64 {
			if now.Sub(p.started) < 3*time.Minute && !p.started.Equal(l.start) {
				return 5 * l.need
			}
			if now.Sub(l.start) > 10*time.Hour && p.started.Equal(l.start) { // a rollout restart
				p.started = now
			}
			return steady(l, i, p, 0, now)
		},
	},
	"a daily job": {
		pods: 1, factor: 1, step: 5 * time.Minute, steps: 8 * 288, cpu: idle, check: isMet,
		memory: func(l *loop, i int, p *looped, _ int64, now time.Time) float64 {
			if since := now.Sub(l.start); since > 24*time.Hour && since%(24*time.Hour) < 10*time.Minute {
				return 5 * l.need
			}
			return steady(l, i, p, 0, now)
		},
	},
	"a version that needs what its template adds": {
		pods: 2, factor: 1, step: 2 * time.Minute, steps: 1500, cpu: idle, deploys: 4,
		memory: func(l *loop, i int, p *looped, _ int64, now time.Time) float64 {
			if p.started.Equal(l.start) {
				return steady(l, i, p, 0, now)
			}
			return .88 * float64(l.base) * min(1, .2+now.Sub(p.started).Hours())
		},
		check: func(l *loop) string {
			if !l.lastKill.IsZero() {
				return fmt.Sprintf("a kill after %s", l.lastKill.Sub(l.start))
			}
			return ends("")(l)
		},
	},
	"one poison pod": {
		pods: 10, factor: 1, step: 2 * time.Minute, steps: 800, cpu: idle,
		memory: func(l *loop, i int, p *looped, _ int64, now time.Time) float64 {
			if i == 0 && now.Sub(l.start) > 20*time.Hour && now.Sub(p.started) > 5*time.Minute {
				return 1 << 50
			}
			return steady(l, i, p, 0, now)
		},
		check: func(l *loop) string {
			switch {
			case l.siblings > l.base*5/2:
				return fmt.Sprintf("siblings get %d Mi, and the template has %d Mi", l.siblings/mebi, l.base/mebi)
			case !l.seen["OutlierPod"]:
				return "the pod is not named"
			}
			return ends("")(l)
		},
	},
	"healthy, with noise up to its CPU limit": {
		pods: 2, factor: 1, step: time.Minute, steps: 3000, memory: steady, cpu: func(l *loop, limit int64) float64 {
			l.noise = .5*l.noise + .25*math.Sqrt(.75)*l.random.NormFloat64()
			demand := 120 * math.Exp(l.noise)
			l.highest = max(l.highest, demand)
			return min(demand, float64(limit))
		},
		check: func(l *loop) string {
			if most := slices.Max(slices.Collect(maps.Keys(l.cpuSizes))); float64(most) > 1.6*l.highest {
				return fmt.Sprintf("a limit of %dm, and the highest demand is %.0fm", most, l.highest)
			}
			return ends("")(l)
		},
	},
	"a heap that does not start with less": {
		pods: 2, factor: 1, step: 2 * time.Minute, steps: 1500, cpu: idle, memory: little, isReplaced: true, starts: needsTemplate,
		check: func(l *loop) string { return l.failed(1, 4) },
	},
	"an admission policy that refuses less": {
		pods: 2, factor: 1, step: 2 * time.Minute, steps: 1500, cpu: idle, memory: little, isReplaced: true, admits: needsTemplate,
		check: func(l *loop) string { return l.failed(1, 6) },
	},
	"a new version": {
		pods: 2, factor: 1, step: 2 * time.Minute, steps: 1500, cpu: idle, memory: little, deploys: 1, isReplaced: true,
		starts: func(l *loop, limit int64) bool { // the old version with less, and the new one, too, once it has run with that
			return l.set == "set-1" || needsTemplate(l, limit) || l.world.situation.NewPods.ReplicaSet == l.set
		},
		check: func(l *loop) string {
			if set := l.world.situation.NewPods.ReplicaSet; set != "set-2" || l.newPod() >= l.base {
				return fmt.Sprintf("new pods of %s get %d Mi, and the template has %d Mi", set, l.newPod()/mebi, l.base/mebi)
			}
			return l.failed(0, 0)
		},
	},
	"a new version that does not start with less": {
		pods: 2, factor: 1, step: 2 * time.Minute, steps: 1500, cpu: idle, memory: little, deploys: 1, isReplaced: true,
		starts: func(l *loop, limit int64) bool { return l.set == "set-1" || needsTemplate(l, limit) },
		check:  func(l *loop) string { return l.failed(1, 4) },
	},
	"a leader that moves each hour": {
		pods: 3, factor: 1, step: 2 * time.Minute, steps: 600,
		memory: func(l *loop, i int, p *looped, limit int64, now time.Time) float64 {
			return steady(l, i, p, limit, now) * l.leads(i, now)
		},
		cpu: func(l *loop, limit int64) float64 { return idle(l, limit) * 3 * l.leads(l.pod, l.now) },
		check: func(l *loop) string {
			if l.isAlarmed() || l.most > 3*int64(l.need) || slices.ContainsFunc(slices.Collect(maps.Keys(l.cpuSizes)), func(limit int64) bool { return limit < 150 }) {
				return fmt.Sprintf("up to %d Mi, of which a leader needs %.0f; CPU limits: %v; reasons: %v", l.most/mebi, l.need/mebi, l.cpuSizes, l.seen)
			}
			return ends("")(l)
		},
	},
	"a start that needs more CPU": {
		pods: 2, factor: 1, step: 30 * time.Second, steps: 1000, memory: steady, cpu: idle, isReplaced: true, startTime: 3 * time.Minute,
		check: func(l *loop) string {
			first := 2 * l.kind.pods
			if len(l.took) < 2*first || slices.Max(l.took[first:]) > l.kind.startTime+time.Minute {
				return fmt.Sprintf("starts took %s", l.took)
			}
			return ends("")(l)
		},
	},
	"throttled, noisy readings":  throttled(1, 0),
	"throttled, steady readings": throttled(0, 36*time.Hour),
	"a busy loop": {
		pods: 2, factor: 1, step: 2 * time.Minute, steps: 1000, memory: steady,
		cpu: func(l *loop, limit int64) float64 { return float64(limit) * (.95 + .05*l.random.Float64()) },
		check: func(l *loop) string {
			if len(l.cpuSizes) > 5 || !l.seen["RaiseLimit"] {
				return fmt.Sprintf("CPU limits: %v, reasons: %v", l.cpuSizes, l.seen)
			}
			return ends("")(l)
		},
	},
}

// TestClosedLoop runs containers of any behavior. Their sizes never exceed the leash, at most three raises do not help,
// each pod starts, and 99 % of the healthy ones are left alone.
func TestClosedLoop(t *testing.T) {
	workloads := 1000
	if testing.Short() {
		workloads = 5
	}
	for name, k := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alarms := 0
			for seed := range workloads {
				l := newLoop(k, uint64(seed))
				problem := l.run()
				if problem == "" {
					problem = k.check(l)
				}
				if problem != "" {
					t.Fatalf("seed %d: %s", seed, problem)
				}
				if l.isAlarmed() {
					alarms++
				}
			}
			if t.Logf("%d of %d are alarms", alarms, workloads); strings.HasPrefix(name, "healthy") && alarms*100 > workloads {
				t.Error("at most 1 % may be")
			}
		})
	}
}

func newLoop(k kind, seed uint64) *loop {
	r := rand.New(rand.NewPCG(seed, 31))
	l := &loop{kind: k, random: r, params: recommend.DefaultParams(), start: noon, killedAt: map[int64]bool{}, seen: map[string]bool{}, ends: map[string]bool{}}
	l.params.History.MaxGap = max(l.params.History.MaxGap, 3*k.step)
	request := int64(256+r.IntN(768)) * mebi
	cpu := int64(60 + r.IntN(60))
	l.need, l.demand = float64(request)*(.5+.3*r.Float64()), float64(cpu)*(4+3*r.Float64())
	l.rises, l.reads, l.now = time.Duration(5*60+r.IntN(10*60))*time.Second, .905+.085*r.Float64(), noon.Add(time.Hour)
	if k.cpu(l, 1<<20) < 200 {
		cpu = 200
	}
	l.base, l.cpu, l.cpuSizes = request*k.factor, cpu*k.factor, map[int64]bool{}
	c := workload.Container{Name: "app", Resources: workload.Resources{
		Requests: quantity.Amounts{CPUMillis: cpu, MemoryBytes: request}, Limits: quantity.Amounts{CPUMillis: cpu * k.factor, MemoryBytes: request * k.factor},
	}}
	l.pods, l.missing, l.set = make([]*looped, k.pods), make([]int, k.pods), "set-1"
	l.world = given(template(c), sizesNewPods, pods(make([]workload.Pod, k.pods)...), func(w *world) {
		w.situation.Ceilings = plan.Ceilings{RaiseFactor: leash, NodePercent: 75}
		w.situation.LargestNode = quantity.Amounts{CPUMillis: 64_000, MemoryBytes: 256 << 30}
		w.situation.Decision, w.situation.Recommendations = nil, nil
		w.policy.Cooldown, w.policy.VerificationPeriod = 5*time.Minute, 2*time.Minute
		w.policy.Containers = map[string]plan.ContainerPolicy{"app": {CPU: true, Memory: true, Limits: plan.LimitsFollow}}
	})
	for i := range l.pods {
		l.create(i, noon)
	}
	for at := l.start.Add(-k.aged); at.Before(l.start); at = at.Add(l.params.History.MaxGap) {
		l.history.Add(usage.Sample{
			Pod: "web-0", Container: "app", Time: at, CPUMillis: cpu * 8 / 10, MemoryBytes: int64(l.need), LimitFactor: float64(k.factor),
			CPULimitMillis: l.cpu, MemoryRequest: request, MemoryLimit: l.base,
		}, l.params.History)
	}
	return l
}

// run carries out the steps, and returns what breaks a promise about any workload.
func (l *loop) run() string {
	for i := range l.kind.steps {
		now := l.start.Add(time.Duration(i) * l.kind.step)
		if l.kind.deploys > 0 && now.Equal(l.start.Add(20*time.Hour)) {
			l.deploy(now)
		}
		for j, q := range l.world.situation.Pods {
			switch {
			case q.Ended, l.kind.isReplaced && (i+60*j)%180 == 179:
				l.create(j, now)
			case !q.Ready && l.kind.startTime == 0:
				l.begin(j, now)
			}
		}
		l.use(now)
		l.decide(now)
		switch most := max(leash*l.base, 1<<30); {
		case slices.Max(l.missing) > 3:
			return fmt.Sprintf("%s: pods are missing for %v steps, with %s", now.Sub(l.start), l.missing, saySizes(l.world.situation.NewPods.Sizes))
		case l.most > most:
			return fmt.Sprintf("%s: %d Mi, and %d Mi are the most", now.Sub(l.start), l.most/mebi, most/mebi)
		case len(l.cpuSizes) > 0 && slices.Max(slices.Collect(maps.Keys(l.cpuSizes))) > max(leash*l.cpu, 1000):
			return fmt.Sprintf("%s: CPU limits %v, and the template has %d", now.Sub(l.start), l.cpuSizes, l.cpu)
		case len(l.killedAt) > 3:
			return fmt.Sprintf("%s: kills at %v, above the template's %d", now.Sub(l.start), l.killedAt, l.base)
		}
	}
	return ""
}

// deploy replaces all pods by those of a new template.
func (l *loop) deploy(now time.Time) {
	d := &l.world.situation.Deployment
	c := d.Containers[0]
	c.Requests.MemoryBytes, c.Limits.MemoryBytes = c.Requests.MemoryBytes*l.kind.deploys, c.Limits.MemoryBytes*l.kind.deploys
	d.Containers = []workload.Container{c}
	l.base, l.set = l.base*l.kind.deploys, "set-2"
	for i := range l.pods {
		l.create(i, now)
	}
}

// create creates a pod with what the API server gives new pods, if admission lets it.
func (l *loop) create(i int, now time.Time) {
	s := &l.world.situation
	c := s.Deployment.Containers[0]
	for _, size := range s.NewPods.Sizes {
		if s.NewPods.ReplicaSet != l.set {
			size.Requests, size.Limits = larger(size.Requests, c.Requests), larger(size.Limits, c.Limits)
		}
		c.Resources = merged(c.Resources, size.Resources)
	}
	l.wake, l.created = now, l.created+1
	s.Deployment.CreateFailure = ""
	s.Pods[i] = with(pod(fmt.Sprintf("web-%d", l.created), c), func(p *workload.Pod) { p.Created, p.Started, p.ReplicaSet = now, now, l.set })
	l.pods[i] = &looped{started: now, startedAt: c.Limits.MemoryBytes}
	if l.kind.admits != nil && !l.kind.admits(l, c.Limits.MemoryBytes) {
		s.Deployment.CreateFailure, s.Pods[i].Ended, s.Pods[i].Running, s.Pods[i].Ready = "a policy refuses it", true, false, false
		l.failures, l.missing[i] = l.failures+1, l.missing[i]+1
		return
	}
	l.begin(i, now)
}

// begin starts the container of a pod. If it crashes, it starts again with the next step.
func (l *loop) begin(i int, now time.Time) {
	q := &l.world.situation.Pods[i]
	l.wake = now
	setRun(q, workload.Run{Container: "app", Since: now})
	if l.kind.starts == nil || l.kind.starts(l, q.Containers[0].Limits.MemoryBytes) {
		q.Ready, q.BackingOff, q.Unready, l.missing[i] = true, nil, time.Time{}, 0
		if l.kind.startTime > 0 {
			q.Ready, q.ReadyChanged = false, now
		}
		return
	}
	q.Ready, q.BackingOff, q.Unready, q.Exits = false, []string{"app"}, now, []workload.Exit{{Container: "app", At: now}}
	l.failures, l.missing[i] = l.failures+1, l.missing[i]+1
}

// startNeed is the CPU that a start can use: up to seven times what the template has, and far more than the container uses later.
func (l *loop) startNeed() float64 { return 1.7 * l.demand }

// startUp lets a pod start for a step, with the CPU that it has.
func (l *loop) startUp(i int, now time.Time) {
	q, p := &l.world.situation.Pods[i], l.pods[i]
	has := q.Containers[0].Resources
	used := min(l.startNeed(), float64(has.Limits.CPUMillis))
	p.work += used / l.startNeed() * float64(l.kind.step) / float64(l.kind.startTime)
	l.history.Add(usage.Sample{
		Pod: q.Name, Container: "app", Time: now, Window: 15 * time.Second, CPUMillis: int64(used), MemoryBytes: int64(l.need), Starting: true,
		LimitFactor: float64(l.kind.factor), CPULimitMillis: has.Limits.CPUMillis, MemoryRequest: has.Requests.MemoryBytes, MemoryLimit: has.Limits.MemoryBytes,
	}, l.params.History)
	if l.wake = now; p.work >= 1 {
		q.Ready, q.ReadyChanged, l.took = true, now, append(l.took, now.Sub(p.started))
	}
}

func larger(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: max(a.CPUMillis, b.CPUMillis), MemoryBytes: max(a.MemoryBytes, b.MemoryBytes)}
}

// use lets the containers run for a step, and tells the history.
func (l *loop) use(now time.Time) {
	s := &l.world.situation
	l.now = now
	for i, p := range l.pods {
		q := &s.Pods[i]
		if !q.Ready {
			if l.kind.startTime > 0 {
				l.startUp(i, now)
			}
			continue
		}
		has := q.Containers[0].Resources
		limit := has.Limits.MemoryBytes
		memory := l.kind.memory(l, i, p, limit, now)
		if memory > float64(limit) {
			memory = float64(limit)
			p.started, p.startedAt, p.level = now, limit, 0
			kill := workload.OOMKill{Container: "app", At: now, Termination: int32(now.Sub(l.start) / l.kind.step), HitBytes: limit}
			q.Kills, q.Exits = []workload.OOMKill{kill}, []workload.Exit{{Container: "app", At: now, OOMKilled: true}}
			if l.firstHit == 0 {
				l.firstHit = limit
			}
			if l.lastKill = now; limit > max(l.base, l.firstHit) {
				l.killedAt[limit/(32*mebi)] = true
			}
		}
		l.pod = i
		cpu := l.kind.cpu(l, has.Limits.CPUMillis)
		if cpu < .95*l.demand && cpu > .9*float64(has.Limits.CPUMillis) && l.demand > float64(has.Limits.CPUMillis) {
			l.capped += l.kind.step
		}
		l.history.Add(usage.Sample{
			Pod: q.Name, Container: "app", Time: now, Window: 15 * time.Second, CPUMillis: int64(cpu), MemoryBytes: int64(memory),
			LimitFactor: float64(l.kind.factor), CPULimitMillis: has.Limits.CPUMillis, MemoryRequest: has.Requests.MemoryBytes, MemoryLimit: limit,
		}, l.params.History)
	}
	for _, q := range s.Pods {
		for _, kill := range q.Kills {
			l.history.RecordKill(plan.KillOf(*s, l.world.policy, q, kill), now, l.params.History)
		}
	}
}

// decide recommends and carries out plans until there is nothing to do at that time.
func (l *loop) decide(now time.Time) {
	s := &l.world.situation
	plan.NoteTemplate(history.Histories{"app": &l.history}, *s)
	rec, ok := recommend.For("app", &l.history, recommend.Policy{CPU: true, Memory: true, LimitsCPU: l.kind.factor == 1}, l.rec, l.params)
	if !ok {
		return
	}
	isQuiet := l.rec != nil && rec.Target == l.rec.Target && rec.UpperBound == l.rec.UpperBound && rec.LowerBound == l.rec.LowerBound &&
		!l.lastKill.Equal(now) && (l.wake.IsZero() || now.Before(l.wake))
	l.rec, s.Recommendations = &rec, []recommend.Container{rec}
	if isQuiet {
		return
	}
	if _, why := rec.ClimbEnd(); why != "" {
		l.ends[why] = true
	}
	policy := l.world.policy
	policy.Containers = maps.Clone(policy.Containers)
	plan.NoteStarts(policy, *s, history.Histories{"app": &l.history})
	for range 3 * len(l.pods) {
		p := plan.Next(*s, policy, now)
		s.Decision, s.RevertedChanges, s.NewPods = p.Decision, p.RevertedChanges, p.NewPods
		if p.Reverted != "" {
			l.seen["Reverted"] = true
		}
		l.seen[p.Verdict.Reason], l.wake = true, time.Time{}
		if p.Verdict.RequeueAfter > 0 {
			l.wake = now.Add(p.Verdict.RequeueAfter)
		}
		step := as[plan.Resize](p)
		if step == nil {
			if !is[plan.Record](p) {
				return
			}
			continue
		}
		l.resize(step, now)
	}
}

func (l *loop) resize(step *plan.Resize, now time.Time) {
	s := &l.world.situation
	for i := range s.Pods {
		q := &s.Pods[i]
		if q.UID != step.UID || types.UID("") == step.UID {
			continue
		}
		q.Containers, q.Resized = withSizes(q.Containers, step.Sizes), now
		caughtUp(q)
		for j := range q.Kills {
			q.Kills[j].HitBytes = 0
		}
		size := q.Containers[0].Resources
		l.cpuSizes[size.Limits.CPUMillis] = true
		l.most = max(l.most, size.Requests.MemoryBytes, size.Limits.MemoryBytes)
		if i > 0 {
			l.siblings = max(l.siblings, size.Limits.MemoryBytes)
		}
	}
}

// TestWhatUsersHaveSetInARewrittenTemplate: the original values tell what a user has raised, and not what is written for it.
func TestWhatUsersHaveSetInARewrittenTemplate(t *testing.T) {
	histories := history.Histories{}
	for _, mib := range []int64{256, 1024} {
		plan.NoteTemplate(histories, given(template(large()), func(w *world) {
			w.situation.Originals = []plan.Original{{Container: "app", Memory: true, Resources: resources(amounts(0, mib), amounts(0, 2*mib))}}
		}).situation)
	}
	if got := histories["app"].TemplateFloor(); got != amounts(0, 1024) {
		t.Errorf("the floor is %v", got)
	}
}
