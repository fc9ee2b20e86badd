// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// pods returns a round of samples of two ReplicaSets, of three pods and of one.
func pods() (out []usage.Sample) {
	for _, pod := range []string{"web-1-b", "api-1-z", "web-1-a", "web-1-c"} {
		out = append(out, usage.Sample{Pod: pod, Container: "app", CPUMillis: 1000, MemoryBytes: 1000, Time: time.Unix(1000, 0)})
	}
	return out
}

func TestReplicasAreUneven(t *testing.T) {
	got := map[string][2]int64{}
	for _, s := range (World{SpreadPercent: 10}).disarrange(pods(), 1) {
		got[s.Pod] = [2]int64{s.CPUMillis, s.MemoryBytes}
	}
	want := map[string][2]int64{"web-1-a": {900, 1000}, "web-1-b": {1000, 900}, "web-1-c": {1100, 800}, "api-1-z": {1000, 1000}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CPU and memory by pod (-want +got):\n%s", diff)
	}
}

func TestEachPodIsSilentInItsTurn(t *testing.T) {
	const every = 5
	silent := map[string]int{}
	for round := range 3 * every {
		heard := (World{SilentEvery: every}).disarrange(pods(), round)
		for _, s := range pods() {
			if !slices.ContainsFunc(heard, func(h usage.Sample) bool { return h.Pod == s.Pod }) {
				silent[s.Pod]++
			}
		}
		if len(heard) < len(pods())-2 {
			t.Errorf("round %d has %d of %d pods", round, len(heard), len(pods()))
		}
	}
	if diff := cmp.Diff(map[string]int{"web-1-a": 1, "web-1-b": 1, "web-1-c": 1, "api-1-z": 3}, silent); diff != "" {
		t.Errorf("silent rounds by pod (-want +got):\n%s", diff)
	}
}

func TestClocksAreAheadAndBehind(t *testing.T) {
	skews := map[time.Duration]int{}
	for i := range 300 {
		sample := usage.Sample{Pod: fmt.Sprintf("web-1-%d", i), Time: time.Unix(1000, 0)}
		skews[(World{ClockAhead: time.Second, ClockBehind: time.Minute}).disarrange([]usage.Sample{sample}, 1)[0].Time.Sub(sample.Time)]++
	}
	if len(skews) != 3 || skews[0] < 60 || skews[time.Second] < 60 || skews[-time.Minute] < 60 {
		t.Errorf("300 pods by the skew of their clocks: %v", skews)
	}
}

func TestATidyWorldChangesNothing(t *testing.T) {
	for round := range 100 {
		if diff := cmp.Diff(pods(), (World{}).disarrange(pods(), round)); diff != "" {
			t.Fatalf("round %d (-want +got):\n%s", round, diff)
		}
	}
}

func TestATestOptsOutForItsSubtests(t *testing.T) {
	e := &Env{world: Untidy}
	Tidy(t, "it tests opting out", SilentPods, UnevenUsage, Storms)
	want := Untidy
	want.SilentEvery, want.SpreadPercent, want.StormPause = 0, 0, 0
	for test, want := range map[string]World{t.Name(): want, t.Name() + "/sub": want, t.Name() + "Not": Untidy, "Test": Untidy} {
		if got := e.worldOf(test); got != want {
			t.Errorf("the world of %s is %+v, want %+v", test, got, want)
		}
	}
	if got := Untidy.without([]Aspect{UnevenUsage, SilentPods, Sidecars, SkewedClocks, LaggingCaches, Storms}); got != (World{}) {
		t.Errorf("the world without all aspects is %+v", got)
	}
}

func TestADelayedBodyIsReadLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		body := newDelayedBody(from, time.Minute)
		began := time.Now()
		go func() {
			for _, part := range []string{"one", "two"} {
				_, _ = to.Write([]byte(part)) // fails if the body is closed
				time.Sleep(time.Second)
			}
			_ = to.Close() // which always succeeds
		}()
		content, err := io.ReadAll(body)
		if string(content) != "onetwo" || err != nil {
			t.Errorf("read %q, %v", content, err)
		}
		if took := time.Since(began); took != time.Minute+2*time.Second {
			t.Errorf("the end was read after %s", took)
		}
	})
}

func TestADelayedBodyIsClosedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := newDelayedBody(io.NopCloser(strings.NewReader("content")), time.Hour)
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			if err := body.Close(); err != nil {
				t.Error(err)
			}
		}()
		if _, err := io.ReadAll(body); err == nil || time.Since(began) != time.Second {
			t.Errorf("reading ended with %v after %s", err, time.Since(began))
		}
		if err := body.Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
	})
}
