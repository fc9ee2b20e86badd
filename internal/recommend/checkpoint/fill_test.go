// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// A round in which a container is silent in one pod is evidence for more of that container only,
// while its history is filled with past usage and after.
func TestASilentRoundIsNoObservedTime(t *testing.T) {
	for name, tc := range map[string]struct {
		silent map[string]bool
		want   map[string]time.Duration
	}{
		"all are heard": {want: map[string]time.Duration{"app": 3 * time.Minute, "side": 3 * time.Minute}},
		"one is silent": {silent: map[string]bool{"app": true}, want: map[string]time.Duration{"app": 0, "side": 3 * time.Minute}},
		"another is so": {silent: map[string]bool{"side": true}, want: map[string]time.Duration{"app": 3 * time.Minute, "side": 0}},
		"both are":      {silent: map[string]bool{"app": true, "side": true}, want: map[string]time.Duration{"app": 0, "side": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStoreFixture(t)
			w.load()
			if w.store.StartFilling(w.scaler, 24*time.Hour) != Ready {
				t.Fatal("the history is not ready to be filled")
			}
			past := history.Histories{}
			for minute := range 61 {
				for _, container := range []string{"app", "side"} {
					past.Add(usage.Sample{Container: container, Time: noon.Add(time.Duration(minute-60) * time.Minute), CPUMillis: 200, MemoryBytes: 400 * mebi}, params)
				}
			}
			for minute := 1; minute <= 3; minute++ {
				var round []usage.Sample
				for _, container := range []string{"app", "side"} {
					round = append(round, usage.Sample{Container: container, RaisesOnly: tc.silent[container], Time: noon.Add(time.Duration(minute) * time.Minute), CPUMillis: 200, MemoryBytes: 500 * mebi})
				}
				if !w.store.Feed(w.scaler, round, func(history.Histories) {}) {
					t.Fatal("no history is loaded")
				}
			}
			expect := func(before time.Duration) {
				t.Helper()
				w.with(func(histories history.Histories) {
					for container, want := range tc.want {
						if got := histories[container]; got.Observed() != max(0, before+want) || got.Peak() != 500*mebi {
							t.Errorf("%s of %s are observed, want %s; the peak is %d", got.Observed(), container, before+want, got.Peak())
						}
					}
				})
			}
			expect(-time.Minute) // the first sample adds no time
			if filled := w.store.Fill(w.scaler, past, noon); filled != 2 {
				t.Fatalf("%d containers are filled", filled)
			}
			expect(time.Hour)
		})
	}
}

// A memory peak known only to the live history does not count as CPU usage.
func TestMemoryOfTheLiveHistoryLowersNoCPU(t *testing.T) {
	live, past := &history.Container{}, &history.Container{}
	for minute := range 61 {
		past.Add(usage.Sample{Pod: "web-1", Window: time.Minute, Time: noon.Add(time.Duration(minute) * time.Minute), CPUMillis: 1000, MemoryBytes: 400 * mebi}, params)
	}
	live.Add(usage.Sample{Pod: "web-1", Window: time.Minute, Time: noon, CPUMillis: 1000, MemoryBytes: 500 * mebi}, params)
	before := past.CPU()
	keepMemory(live, past, params)
	if got := past.CPU(); got != before || past.Peak() != 500*mebi {
		t.Errorf("CPU %+v, peak %d; want %+v, 500Mi", got, past.Peak(), before)
	}
}

// Usage counts for the scaler and the Deployment whose history is loaded.
func TestAnotherScalersUsageIsNotFed(t *testing.T) {
	w := newStoreFixture(t)
	w.load()
	for name, change := range map[string]func(){
		"retargeted": func() { w.scaler.Spec.DeploymentName = "other" },
		"recreated":  func() { w.scaler.UID = "scaler-2" },
	} {
		before := w.scaler.DeepCopy()
		change()
		if w.store.Feed(w.scaler, nil, func(history.Histories) {}) {
			t.Errorf("%s: the former history is fed", name)
		}
		w.scaler = before
	}
}
