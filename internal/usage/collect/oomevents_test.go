// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// TestOOMEventsAreKillsOfPods: a worker of gunicorn is killed, and the container continues.
func TestOOMEventsAreKillsOfPods(t *testing.T) {
	w := newCollectorFixture(t)
	counts, asked := map[string]int{}, 0
	var failure error
	w.collector.OOMEvents = func(_ context.Context, _ time.Time, each func(usage.Container, int)) error {
		asked++
		for pod, kills := range counts {
			each(usage.Container{Namespace: "shop", Pod: pod, Name: "app"}, kills)
		}
		return failure
	}
	started := noon.Add(-3 * time.Hour)
	resized, restarted := time.Time{}, false
	app := workload.Container{Name: "app", Resources: workload.Resources{Requests: quantity.Amounts{MemoryBytes: 64 * mebi}, Limits: quantity.Amounts{MemoryBytes: 128 * mebi}}}
	kills := func(namespace, name string) (out []workload.OOMKill) {
		pods := []workload.Pod{{
			Name: name, UID: "uid", Resized: resized, Containers: []workload.Container{app, {Name: "log"}},
			Runs: []workload.Run{{Container: "app", Since: started, Restarted: restarted}, {Container: "log", Since: started}},
		}}
		w.collector.AddOOMEvents(namespace, pods)
		for _, kill := range pods[0].Kills {
			if kill.Termination >= 0 {
				t.Errorf("a kill of the container: %+v", kill)
			}
			kill.Termination = 0
			out = append(out, kill)
		}
		return out
	}
	expect := func(what string, got []workload.OOMKill, want ...workload.OOMKill) {
		t.Helper()
		assert.Equal(t, what, want, got)
	}
	at := func(at time.Time, hitMiB int64) workload.OOMKill {
		return workload.OOMKill{Container: "app", At: at, HitBytes: hitMiB * mebi}
	}

	counts["web-1"] = 2
	w.rounds(4) // of 30 s
	if asked != 1 {
		t.Errorf("asked %d times in two minutes", asked)
	}
	expect("from the first answer on", kills("shop", "web-1"), at(started, 128))
	expect("another pod", kills("shop", "web-2"))
	expect("a pod of that name elsewhere", kills("bank", "web-1"))
	resized = noon.Add(-time.Hour)
	expect("resized since it started", kills("shop", "web-1"), at(started, 0))

	counts["web-1"], counts["web-2"] = 3, 1
	second := w.clock.Now()
	w.rounds(4)
	expect("one more", kills("shop", "web-1"), at(second, 128))
	expect("the first one", kills("shop", "web-2"), at(second, 128))
	resized = second.Add(-4 * time.Minute)
	expect("resized when Prometheus may not have had the kill yet", kills("shop", "web-1"), at(second, 0))
	restarted, started = true, second.Add(-4*time.Minute)
	expect("a kill that may have ended the container before", kills("shop", "web-1"))
	restarted, resized, started = false, time.Time{}, noon.Add(-3*time.Hour)

	failure, counts["web-1"] = errors.New("it is down"), 4
	w.rounds(4)
	expect("while Prometheus is down", kills("shop", "web-1"), at(second, 128))
	failure, counts = nil, map[string]int{"web-2": 1}
	w.rounds(4)
	expect("a container that is gone", kills("shop", "web-1"))
	expect("no kill since", kills("shop", "web-2"), at(second, 128))
}

// TestAnOOMEventTriggersItsScaler, and lower usage after it does not lower memory.
func TestAnOOMEventTriggersItsScaler(t *testing.T) {
	w := newCollectorFixture(t)
	w.deployment("shop", "web", "web-1")
	w.container("shop", "web", "app")
	vs := w.scaler("shop", "web", "web")
	count := 0
	w.collector.OOMEvents = func(_ context.Context, _ time.Time, each func(usage.Container, int)) error {
		if count > 0 {
			each(usage.Container{Namespace: "shop", Pod: "web-1", Name: "app"}, count)
		}
		return nil
	}
	limits := quantity.Amounts{MemoryBytes: 256 * mebi}
	pod := workload.Pod{
		Name: "web-1", UID: "web-1", Running: true, Runs: []workload.Run{{Container: "app", Since: noon.Add(-time.Hour)}},
		Containers: []workload.Container{{Name: "app", Resources: workload.Resources{Requests: limits, Limits: limits}}},
	}
	w.collector.Pods = &storedPods{collectorFixture: w, pods: map[string][]workload.Pod{}}
	lacks := func() (lacks bool) {
		w.collector.Histories.With(client.ObjectKeyFromObject(vs), func(histories history.Histories) {
			pods := []workload.Pod{pod}
			w.collector.AddOOMEvents("shop", pods)
			if lacks = lacksKill(histories, pods); lacks {
				kill := pods[0].Kills[0]
				histories.Container("app").RecordKill(history.Kill{At: kill.At, HitBytes: kill.HitBytes, Pod: "web-1", Termination: kill.Termination}, w.clock.Now(), history.DefaultParams())
			}
		})
		return lacks
	}
	use := func(minutes int, memoryMiB int64) {
		w.collector.Histories.With(client.ObjectKeyFromObject(vs), func(histories history.Histories) {
			for range minutes {
				w.clock.Step(time.Minute)
				histories.Add(usage.Sample{Pod: "web-1", Container: "app", Time: w.clock.Now(), Window: time.Minute, CPUMillis: 100, MemoryBytes: memoryMiB * mebi}, history.DefaultParams())
			}
		})
	}
	use(48*60, 180)
	w.round()
	if lacks() {
		t.Error("without a kill")
	}
	count = 1
	w.clock.Step(oomEventsPeriod)
	w.round()
	if !lacks() || lacks() {
		t.Error("the kill does not count once")
	}
	use(20*24*60, 70)
	w.collector.Histories.With(client.ObjectKeyFromObject(vs), func(histories history.Histories) {
		rec, _ := recommend.For("app", histories.Container("app"), recommend.Policy{Memory: true}, nil, recommend.DefaultParams())
		if rec.Target.MemoryBytes < 256*mebi {
			t.Errorf("20 days after a process was killed at 256 MiB, the target is %d MiB", rec.Target.MemoryBytes/mebi)
		}
	})
}
