// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package upgradeable

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// at is a time of that day.
func at(t *testing.T, clock string) time.Time {
	t.Helper()
	out, err := time.Parse("15:04:05", clock)
	if err != nil {
		t.Fatal(err)
	}
	return time.Date(2026, 6, 1, out.Hour(), out.Minute(), out.Second(), 0, time.UTC)
}

// look is one verdict: at a time, over steps named by their scaler and the time at
// which they began.
type look struct {
	at    string
	steps map[string]string
	// want is what is said, and then when to look again; "-" for never.
	want, next string
}

func TestVerdict(t *testing.T) {
	const (
		absent   = "Upgradeable=True : "
		quiet    = "Upgradeable=True NoStepUnderWay: No step is under way"
		web      = "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/web"
		survives = "Upgrades have been held for long enough, and a step survives one: "
	)
	for name, looks := range map[string][]look{
		"nothing was ever under way": {
			{"12:00:00", nil, absent, "-"},
		},
		"a step holds at once, and lets through once it has been quiet for 5 seconds": {
			{"12:00:00", map[string]string{"web": "11:59:59"}, web, "12:09:59"},
			{"12:00:30", nil, web, "12:00:35"},
			{"12:00:34", nil, web, "12:00:35"},
			{"12:00:35", nil, quiet, "-"},
			{"12:00:36", map[string]string{"web": "12:00:36"}, web, "12:10:36"},
		},
		"steps that follow each other are one hold": {
			{"12:00:00", map[string]string{"web": "12:00:00"}, web, "12:10:00"},
			{"12:00:10", nil, web, "12:00:15"},
			{"12:00:14", map[string]string{"web": "12:00:14"}, web, "12:10:14"},
			{"12:00:20", nil, web, "12:00:25"},
			{"12:00:25", nil, quiet, "-"},
		},
		"several are counted, and the one that began first is named": {
			{
				"12:00:00",
				map[string]string{"web": "11:58:00", "api": "11:59:00", "job": "11:58:00"},
				"Upgradeable=False StepUnderWay: 3 steps are under way, the first of scaler shop/job", "12:09:00",
			},
		},
		"the words change once a minute at most": {
			{"12:00:00", map[string]string{"web": "12:00:00"}, web, "12:10:00"},
			{"12:00:10", map[string]string{"web": "12:00:00", "api": "12:00:10"}, web, "12:01:00"},
			{
				"12:01:00",
				map[string]string{"web": "12:00:00", "api": "12:00:10"},
				"Upgradeable=False StepUnderWay: 2 steps are under way, the first of scaler shop/web", "12:10:10",
			},
		},
		"a step that takes hours holds for ten minutes": {
			{"12:00:00", map[string]string{"web": "12:00:00"}, web, "12:10:00"},
			{"12:09:59", map[string]string{"web": "12:00:00"}, web, "12:10:00"},
			{"12:10:00", map[string]string{"web": "12:00:00"}, "Upgradeable=True HeldLongEnough: " + survives + "a step is under way", "-"},
			{"14:00:00", map[string]string{"web": "12:00:00"}, "Upgradeable=True HeldLongEnough: " + survives + "a step is under way", "-"},
			{"14:00:01", nil, quiet, "-"},
		},
		"beside a step that takes hours, another one holds": {
			{"12:00:00", map[string]string{"web": "10:00:00"}, absent, "-"},
			{
				"12:01:00",
				map[string]string{"web": "10:00:00", "api": "12:01:00"},
				"Upgradeable=False StepUnderWay: a step is under way, of scaler shop/api", "12:11:00",
			},
			{"12:02:00", map[string]string{"web": "10:00:00"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/api", "12:02:05"},
			{"12:02:05", map[string]string{"web": "10:00:00"}, "Upgradeable=True HeldLongEnough: " + survives + "a step is under way", "-"},
		},
		"where there is always a step, half an hour is enough, and then ten minutes are open": {
			{"12:00:00", map[string]string{"a": "12:00:00"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/a", "12:10:00"},
			{"12:09:00", map[string]string{"b": "12:09:00"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/b", "12:19:00"},
			{"12:18:00", map[string]string{"c": "12:18:00"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/c", "12:28:00"},
			{"12:27:00", map[string]string{"d": "12:27:00"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/d", "12:30:00"},
			{"12:30:00", map[string]string{"d": "12:27:00"}, "Upgradeable=True HeldLongEnough: " + survives + "a step is under way, of scaler shop/d", "12:40:00"},
			{"12:39:59", map[string]string{"e": "12:39:59"}, "Upgradeable=True HeldLongEnough: " + survives + "a step is under way, of scaler shop/d", "12:40:00"},
			{"12:40:00", map[string]string{"e": "12:39:59"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/e", "12:49:59"},
		},
		"an opening of seconds does not start the half hour anew": {
			{"12:00:00", map[string]string{"a": "12:00:00"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/a", "12:10:00"},
			{"12:09:00", nil, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/a", "12:09:05"},
			{"12:09:05", nil, quiet, "-"},
			{"12:09:06", map[string]string{"b": "12:09:06"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/b", "12:19:06"},
			{"12:19:00", map[string]string{"c": "12:19:00"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/c", "12:29:00"},
			{"12:28:00", map[string]string{"d": "12:28:00"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/d", "12:30:00"},
			{"12:30:00", nil, quiet, "-"},
			{"12:30:01", map[string]string{"e": "12:30:01"}, "Upgradeable=True HeldLongEnough: " + survives + "a step is under way, of scaler shop/e", "12:40:01"},
			{"12:30:10", nil, "Upgradeable=True HeldLongEnough: " + survives + "a step is under way, of scaler shop/e", "12:40:01"},
			{"12:40:01", nil, quiet, "-"},
		},
		"a minute of opening does": {
			{"12:00:00", map[string]string{"a": "12:00:00"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/a", "12:10:00"},
			{"12:09:00", nil, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/a", "12:09:05"},
			{"12:09:05", nil, quiet, "-"},
			{"12:28:00", map[string]string{"b": "12:28:00"}, "Upgradeable=False StepUnderWay: a step is under way, of scaler shop/b", "12:38:00"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m memory
			for _, l := range looks {
				var steps []step
				for scaler, since := range l.steps {
					steps = append(steps, step{scaler: types.NamespacedName{Namespace: "shop", Name: scaler}, since: at(t, since)})
				}
				var next time.Time
				m, next = verdict(m, steps, at(t, l.at))
				if got := tell(m.said); got != l.want {
					t.Errorf("at %s it says\n%s, want\n%s", l.at, got, l.want)
				}
				again := "-"
				if !next.IsZero() {
					again = next.Format("15:04:05")
				}
				if again != l.next {
					t.Errorf("at %s it wants to look again at %s, want %s", l.at, again, l.next)
				}
			}
		})
	}
}

func tell(a answer) string {
	status := "True"
	if a.held {
		status = "False"
	}
	return fmt.Sprintf("Upgradeable=%s %s: %s", status, a.reason, a.message)
}

// What the verdicts promise, over days of steps at random.
func TestVerdictPromises(t *testing.T) {
	for seed := range uint64(300) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			w := &walk{t: t, chance: rand.New(rand.NewPCG(seed, 1)), now: noon, steps: map[int]time.Time{}}
			for range 400 {
				w.step()
				if t.Failed() {
					return
				}
			}
		})
	}
}

// walk is a life of steps, of which each moment is checked.
type walk struct {
	t      *testing.T
	chance *rand.Rand
	now    time.Time
	steps  map[int]time.Time // when each began
	serial int
	m      memory
	next   time.Time

	rowBegan, opened, forced, quietAt, worded time.Time
}

// step lets time pass, up to the time at which the gate wants to look again, and
// something happen.
func (w *walk) step() {
	pause := time.Duration(w.chance.IntN([]int{3, 60, 600, 7200}[w.chance.IntN(4)])) * time.Second
	then := w.now.Add(pause)
	for !w.next.IsZero() && !w.next.After(then) {
		w.now = w.next
		w.look()
	}
	w.now = then
	switch w.chance.IntN(3) {
	case 0, 1:
		w.serial++
		// Some were under way long before they are seen.
		w.steps[w.serial] = w.now.Add(-time.Duration(w.chance.IntN(3)) * time.Duration(w.chance.IntN(500)) * time.Second)
	default:
		for k := 1; k <= w.serial; k++ { // in the same order each time
			if w.chance.IntN(2) == 0 {
				delete(w.steps, k)
			}
		}
	}
	w.look()
}

func (w *walk) look() {
	w.t.Helper()
	var steps []step
	fresh := false
	for k, since := range w.steps {
		steps = append(steps, step{scaler: types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("s", k)}, since: since})
		fresh = fresh || w.now.Sub(since) < 10*time.Minute
	}
	before := w.m
	w.m, w.next = verdict(w.m, steps, w.now)
	held := w.m.said.held

	if twice, again := verdict(w.m, steps, w.now); twice != w.m || again != w.next {
		w.t.Errorf("%s: a second look says %+v, after %+v", w.now, twice, w.m)
	}
	if !w.next.IsZero() && !w.next.After(w.now) {
		w.t.Errorf("%s: it wants to look again at %s", w.now, w.next)
	}
	if held && w.next.IsZero() {
		w.t.Errorf("%s: it holds, and would never look again by itself", w.now)
	}

	// A step holds for ten minutes, and quiet for five seconds ends a hold.
	if fresh {
		w.quietAt = time.Time{}
	} else if w.quietAt.IsZero() {
		w.quietAt = w.now
	}
	if held && !fresh && w.now.Sub(w.quietAt) >= 5*time.Second {
		w.t.Errorf("%s: it holds although nothing has held it since %s", w.now, w.quietAt)
	}

	// Thirty minutes in a row at most, and openings of less than a minute do not count.
	switch {
	case held && !before.said.held:
		if w.opened.IsZero() || w.now.Sub(w.opened) >= time.Minute {
			w.rowBegan = w.now
		}
		if !w.forced.IsZero() && w.now.Sub(w.forced) < 10*time.Minute {
			w.t.Errorf("%s: it holds again, but only since %s it must not", w.now, w.forced)
		}
	case !held && before.said.held:
		w.opened = w.now
	}
	if held && w.now.Sub(w.rowBegan) >= 30*time.Minute {
		w.t.Errorf("%s: it holds since %s", w.now, w.rowBegan)
	}
	if !held && w.m.openUntil != before.openUntil {
		w.forced = w.now
		if w.now.Sub(w.rowBegan) < 30*time.Minute {
			w.t.Errorf("%s: it has had enough, but the row began at %s", w.now, w.rowBegan)
		}
	}

	// While a fresh step is under way, it is open only because it has held for long.
	if fresh && !held && (w.forced.IsZero() || w.now.Sub(w.forced) >= 10*time.Minute) {
		w.t.Errorf("%s: it lets through although a step is under way", w.now)
	}

	// Words alone change once a minute at most.
	if w.m.said != before.said {
		if w.m.said.held == before.said.held && w.m.said.reason == before.said.reason && w.now.Sub(w.worded) < time.Minute {
			w.t.Errorf("%s: new words after %s", w.now, w.now.Sub(w.worded))
		}
		w.worded = w.now
	}
	if w.m.said != (answer{}) && (w.m.said.reason == "" || w.m.said.message == "") {
		w.t.Errorf("%s: it says %q", w.now, tell(w.m.said))
	}
}
