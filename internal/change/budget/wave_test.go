// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// The waves below are simulated: the clock is a variable, and only the budget is real. All scalers
// of a fleet want to resize their three pods at once. Eight workers reconcile them, each
// reconcile takes as long, and asks the budget after a third of it. The collector of usage queues
// every scaler of the wave each 30 s, and a resized pod queues its scaler. Meanwhile containers of
// other scalers are OOM-killed: six a minute all over the cluster, and thirty a minute in one
// namespace. The queue serves OOM kills and those whom the budget has requeued first.

const (
	waveWorkers   = 8
	wavePods      = 3
	waveTime      = 10 * time.Minute
	waveCollector = 30 * time.Second
)

func TestAWaveUsesItsSlots(t *testing.T) {
	for _, c := range []struct{ scalers, rate int }{{1000, 20}, {1000, 200}, {5000, 20}, {5000, 100}, {50000, 20}, {50000, 200}} {
		if testing.Short() && c.scalers > 5000 {
			continue
		}
		wave := newWave(c.scalers, c.rate)
		wave.run(waveTime)
		t.Logf("%d scalers, %d reconciles a second: %d of %d slots are used, %d OOM kills wait for %s, of 100 one waits for %s",
			c.scalers, c.rate, wave.made, wave.possible(), len(wave.waits), wave.answered(0.5), wave.answered(0.99))
		if share := float64(wave.made) / float64(wave.possible()); share < 0.9 {
			t.Errorf("%d scalers, %d reconciles a second: %.1f %% of the slots are used", c.scalers, c.rate, 100*share)
		}
		if p99 := wave.answered(0.99); p99 > time.Second {
			t.Errorf("%d scalers, %d reconciles a second: of 100 OOM kills, one waits for %s", c.scalers, c.rate, p99)
		}
	}
}

// wave is a simulated operator.
type wave struct {
	*Budget
	*rand.Rand
	rate int

	now     time.Time
	events  events
	queues  [queues][]types.NamespacedName
	queued  map[types.NamespacedName]int // the queue it is in
	working map[types.NamespacedName]bool
	again   map[types.NamespacedName]int // came while working, for this queue
	idle    int
	due     time.Time // of the next call of Next

	wants  map[types.NamespacedName]Want
	left   map[types.NamespacedName]int // changes
	fleet  []types.NamespacedName
	killed map[types.NamespacedName]time.Time // without an answer
	quiet  map[types.NamespacedName]bool      // killed, and in no noisy namespace
	asked  int                                // for a change
	made   int                                // without those of the reserve
	waits  []time.Duration                    // of OOM kills
}

// The queues, by what queues a scaler.
const (
	urgent    = iota // an OOM kill, or the budget
	podChange        // a pod of it
	collector        // the collector of usage
	queues           // how many there are
)

func newWave(scalers, rate int) *wave {
	w := &wave{
		Budget: New(Limits{Changes: 300, PerNamespace: 60, PodPercent: 5, Window: time.Minute}), Rand: rand.New(rand.NewPCG(uint64(scalers), uint64(rate))),
		rate: rate, now: noon, idle: waveWorkers,
		queued: map[types.NamespacedName]int{}, working: map[types.NamespacedName]bool{}, again: map[types.NamespacedName]int{},
		wants: map[types.NamespacedName]Want{}, left: map[types.NamespacedName]int{},
		killed: map[types.NamespacedName]time.Time{}, quiet: map[types.NamespacedName]bool{},
	}
	for i := range scalers {
		key := named(fmt.Sprint("n", i%max(20, scalers/100)), fmt.Sprint(i))
		w.fleet = append(w.fleet, key)
		w.wants[key], w.left[key] = Want{Class(w.IntN(4)), w.ExpFloat64()}, wavePods
		w.SetPods(key, wavePods)
	}
	w.collect()
	for minute := range int(waveTime.Minutes()) {
		for range 6 {
			w.kill(minute, fmt.Sprint("n", w.IntN(20)), true)
		}
		for range 30 {
			w.kill(minute, "noisy", false)
		}
	}
	return w
}

// collect queues all scalers that the wave still has to change.
func (w *wave) collect() {
	for _, key := range w.fleet {
		if w.left[key] > 0 {
			w.queue(key, collector)
		}
	}
	w.in(waveCollector, w.collect)
}

// kill lets a container be OOM-killed within that minute. The wave has resized its scaler before.
func (w *wave) kill(minute int, namespace string, quiet bool) {
	key := named(namespace, fmt.Sprint("killed-", len(w.wants)))
	w.wants[key], w.left[key] = Want{Emergency, 1}, wavePods
	w.quiet[key] = quiet
	w.in(time.Duration(minute)*time.Minute+time.Duration(w.Int64N(int64(time.Minute))), func() {
		w.killed[key] = w.now
		w.queue(key, urgent)
	})
}

func (w *wave) run(long time.Duration) {
	end := w.now.Add(long)
	for len(w.events) > 0 && w.events[0].at.Before(end) {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.do()
		w.wakeUp()
		w.work()
	}
}

// wakeUp does what the source of the controller does.
func (w *wave) wakeUp() {
	select {
	case <-w.Changed():
	default:
		if w.due.IsZero() || w.now.Before(w.due) {
			return
		}
	}
	requeue, at := w.Next(w.now)
	for _, key := range requeue {
		w.queue(key, urgent)
	}
	if w.due = at; !at.IsZero() {
		w.in(at.Sub(w.now), func() {})
	}
}

func (w *wave) queue(key types.NamespacedName, class int) {
	if w.working[key] {
		if before, ok := w.again[key]; !ok || class < before {
			w.again[key] = class
		}
		return
	}
	if before, ok := w.queued[key]; ok && before <= class {
		return
	}
	w.queued[key] = class // It stays in the other queue, and is not found there.
	w.queues[class] = append(w.queues[class], key)
}

func (w *wave) work() {
	for class := 0; class < len(w.queues) && w.idle > 0; {
		if len(w.queues[class]) == 0 {
			class++
			continue
		}
		key := w.queues[class][0]
		w.queues[class] = w.queues[class][1:]
		if in, ok := w.queued[key]; !ok || in != class {
			continue
		}
		delete(w.queued, key)
		w.reconcile(key)
	}
}

func (w *wave) reconcile(key types.NamespacedName) {
	w.idle--
	w.working[key] = true
	takes := waveWorkers * time.Second / time.Duration(w.rate)
	granted := false
	w.in(takes/3, func() {
		if w.left[key] == 0 {
			w.Leave(key)
			return
		}
		w.asked++
		if granted, _ = w.Ask(w.now, key, w.wants[key]); granted {
			w.left[key]--
			if w.changing[key][0] == common {
				w.made++
			}
			w.answer(key)
		}
	})
	w.in(takes, func() {
		w.idle++
		delete(w.working, key)
		if granted {
			w.Done(w.now, key)
			w.in(50*time.Millisecond, func() { w.queue(key, podChange) })
		}
		if class, ok := w.again[key]; ok {
			delete(w.again, key)
			w.queue(key, class)
		}
	})
}

// answer notes how long a container has waited that was OOM-killed.
func (w *wave) answer(key types.NamespacedName) {
	if at, ok := w.killed[key]; ok && w.quiet[key] {
		w.waits = append(w.waits, w.now.Sub(at))
	}
	delete(w.killed, key)
}

// possible is how many changes could be made at most: as many as there are slots, and not more
// than reconciles that asked for one.
func (w *wave) possible() int { return min(w.Limit()*int(waveTime.Minutes()), w.asked) }

// answered is how long OOM kills wait: that part of them not longer. One without an answer waits
// until now.
func (w *wave) answered(part float64) time.Duration {
	waits := slices.Clone(w.waits)
	for key, at := range w.killed {
		if w.quiet[key] {
			waits = append(waits, w.now.Sub(at))
		}
	}
	slices.Sort(waits)
	return waits[int(part*float64(len(waits)-1))].Round(time.Millisecond)
}

type event struct {
	at time.Time
	do func()
}

func (w *wave) in(after time.Duration, do func()) {
	heap.Push(&w.events, event{w.now.Add(after), do})
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}
