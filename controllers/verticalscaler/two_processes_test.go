// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// another is another process of the operator, on the same API server and with its own clock.
func (p *plant) another() *plant {
	other := &plant{t: p.t, server: p.server, key: p.key, clock: clocktesting.NewFakePassiveClock(p.clock.Now())}
	other.restart()
	return other
}

// observe adds minutes of usage of one pod.
func (p *plant) observe(minutes int, cpuMillis, memoryMiB int64) {
	p.t.Helper()
	p.Histories.With(p.key, func(histories history.Histories) {
		for range minutes {
			at := p.clock.Now()
			histories.Add(usage.Sample{Container: "app", Pod: "checkout-1-a", Time: at, CPUMillis: cpuMillis, MemoryBytes: memoryMiB * mebi}, p.Params.History)
			p.clock.SetTime(at.Add(time.Minute))
		}
	})
}

// A leader that was paused goes on with an old history, while the next one has seen a peak and has
// saved it. The first thing that it learns from is what was saved.
func TestAPausedProcessLearnsBeforeItWrites(t *testing.T) {
	a := newPlant(t, 80) // of 100m
	a.mustReconcile()
	b := a.another()
	b.mustReconcile()
	b.observe(10, 80, 2048)
	vs := b.mustReconcile()
	wants := vs.Status.Recommendation.ContainerRecommendations[0].Target.Memory.Value()
	if wants < 2048*mebi {
		t.Fatalf("the next leader recommends %d MiB, want 2048 or more", wants/mebi)
	}
	version := vs.ResourceVersion

	a.observe(30, 400, 100) // enough CPU to save it, and to change something
	before := len(a.resized)
	vs, result, err := a.reconcile()
	if err != nil || result.RequeueAfter > time.Second {
		t.Errorf("Reconcile() = %+v, %v, want a retry soon", result, err)
	}
	if now := vs.ResourceVersion; now != version || len(a.resized) > before {
		t.Errorf("it wrote before it learned: status %t, resized %v", now != version, a.resized[before:])
	}
	vs = a.mustReconcile()
	if got := vs.Status.Recommendation.ContainerRecommendations[0].Target.Memory.Value(); got < wants {
		t.Errorf("it recommends %d MiB after it has learned, want %d or more", got/mebi, wants/mebi)
	}
	if d := vs.Status.Decision; d == nil || d.Containers[0].Requests.Memory == nil || d.Containers[0].Requests.Memory.Value() < 2048*mebi {
		t.Errorf("decided %+v, want the peak of memory to fit", d)
	}
}
