// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backfill

import (
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
)

const mebi = 1 << 20

var (
	noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	web  = types.NamespacedName{Namespace: "shop", Name: "web"}
)

func TestAHistoryIsFilledOnce(t *testing.T) {
	w := newFillerFixture(t)
	w.round()
	w.expectAsked(0) // its first pass has not loaded its history yet
	w.load()
	w.round()
	w.expectAsked(1)
	w.expectObserved(24 * time.Hour)
	w.expectWoken(1)
	w.round()
	w.expectAsked(1)
}

// Samples collected during a query of Prometheus count once, whether its answer has them or not,
// and facts known only to the live history are kept.
func TestLiveSamplesCountOnce(t *testing.T) {
	w := newFillerFixture(t)
	w.load()
	w.feed(-time.Hour, 5000) // a peak that Prometheus has missed
	kill := noon.Add(-time.Minute)
	w.filler.Histories.With(web, func(b history.Histories) { b.Container("app").RecordOOM(kill, 8000*mebi, w.filler.Histories.Params) })
	w.during = func() {
		w.feed(-time.Minute, 100) // which Prometheus has as well
		w.feed(time.Minute, 100)  // which it has not
	}
	w.round()
	w.expectObserved(24*time.Hour + time.Minute)
	w.filler.Histories.With(web, func(b history.Histories) {
		c := b.Container("app")
		if c.Peak() != 5000*mebi || !c.NewestKill().Equal(kill) || c.OOMFloor(w.filler.Histories.Params) < 9500*mebi {
			t.Errorf("the peak is %d MiB, the floor of the kill at %s %d MiB", c.Peak()/mebi, c.NewestKill(), c.OOMFloor(w.filler.Histories.Params)/mebi)
		}
	})
}

func TestAFailureIsReportedAndTriedAgain(t *testing.T) {
	w := newFillerFixture(t)
	w.load()
	w.err = &prometheus.Error{Words: "the server cannot be reached", Unavailable: true, Err: errors.New("dial")}
	w.round()
	if got := w.filler.ProblemOf(web); got != "Prometheus: the server cannot be reached" {
		t.Errorf("the problem is %q", got)
	}
	w.expectWoken(1)
	w.feed(0, 100)
	w.expectObserved(0)
	w.round()
	w.expectAsked(1) // not at once
	w.clock.Step(20 * time.Second)
	w.round()
	w.expectAsked(2)
	w.expectWoken(1) // nothing is new
	w.clock.Step(20 * time.Second)
	w.round()
	w.expectAsked(2) // each pause is longer
	w.clock.Step(time.Minute)
	w.err = nil
	w.round()
	w.expectAsked(3)
	w.expectWoken(2)
	if got := w.filler.ProblemOf(web); got != "" {
		t.Errorf("the problem is still %q", got)
	}
}

func TestWhatKnowsEnoughIsLeftAlone(t *testing.T) {
	w := newFillerFixture(t)
	w.load()
	for minute := range 4*24*60 + 1 {
		w.feed(time.Duration(minute-6*24*60)*time.Minute, 100)
	}
	w.round()
	w.expectAsked(0)
}

// A scaler that is retargeted while Prometheus answers does not get the usage of its
// former Deployment.
func TestARetargetedScalerIsNotFilledWithTheFormer(t *testing.T) {
	w := newFillerFixture(t)
	w.load()
	w.during = func() {
		w.scaler.Spec.DeploymentName = "api"
		w.load()
	}
	w.round()
	w.filler.Histories.With(web, func(b history.Histories) {
		if len(b) > 0 {
			t.Errorf("it has the history of %d containers", len(b))
		}
	})
}

// fillerFixture is a scaler of a Deployment that Prometheus knows a day of.
type fillerFixture struct {
	*testing.T
	clock  *clocktesting.FakeClock
	filler *Filler
	scaler *v1beta1.VerticalScaler
	wake   chan event.GenericEvent
	asked  int
	err    error
	during func()
}

func newFillerFixture(t *testing.T) *fillerFixture {
	t.Helper()
	w := &fillerFixture{T: t, clock: clocktesting.NewFakeClock(noon), wake: make(chan event.GenericEvent, 100)}
	w.scaler = &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: "web"},
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "app"}}
	c := fake.NewClientBuilder().WithScheme(objects.Scheme()).WithObjects(w.scaler, deployment).Build()
	w.filler = &Filler{
		Cached: c, Source: w, Histories: &checkpoint.Store{Client: c, Params: history.DefaultParams()},
		Lookback: 8 * 24 * time.Hour, Clock: w.clock, Wake: w.wake,
	}
	return w
}

// Range implements Source: a day at 100 MiB.
func (w *fillerFixture) Range(_ context.Context, target prometheus.Target, from, to time.Time, each func(prometheus.Chunk)) error {
	w.asked++
	if target.Namespace != "shop" || target.Deployment != "web" || to.Sub(from) != w.filler.Lookback {
		w.Errorf("asked about %+v from %s to %s", target, from, to)
	}
	for hour := -24; hour < 0; hour++ {
		var chunk prometheus.Chunk
		for minute := range 60 {
			at := to.Add(time.Duration(hour*60+minute) * time.Minute)
			chunk.Samples = append(chunk.Samples, usage.Sample{Namespace: "shop", Pod: "web-1", Container: "app", Time: at, CPUMillis: 100, MemoryBytes: 100 * mebi})
		}
		each(chunk)
	}
	each(prometheus.Chunk{Samples: []usage.Sample{{Namespace: "shop", Pod: "web-1", Container: "app", Time: to, CPUMillis: 100, MemoryBytes: 100 * mebi}}})
	if w.during != nil {
		w.during()
	}
	return w.err
}

// round looks once, and makes the attempts that are due.
func (w *fillerFixture) round() {
	w.Helper()
	var begun []func()
	w.filler.look(w.Context(), func(scaler *v1beta1.VerticalScaler, s *state) bool {
		begun = append(begun, func() { w.filler.fill(w.Context(), scaler.DeepCopy(), s) })
		return true
	})
	for _, attempt := range begun {
		attempt()
	}
}

func (w *fillerFixture) load() {
	w.Helper()
	must.Succeed(w, w.filler.Histories.Load(w.Context(), w.scaler, noon))
}

func (w *fillerFixture) feed(after time.Duration, memoryMebi int64) {
	w.Helper()
	sample := usage.Sample{Namespace: "shop", Pod: "web-1", Container: "app", Time: noon.Add(after), CPUMillis: 100, MemoryBytes: memoryMebi * mebi}
	if !w.filler.Histories.Feed(w.scaler, []usage.Sample{sample}, func(history.Histories) {}) {
		w.Fatal("the history is not loaded")
	}
}

func (w *fillerFixture) expectAsked(n int) {
	w.Helper()
	if w.asked != n {
		w.Errorf("Prometheus was asked %d times, want %d", w.asked, n)
	}
}

func (w *fillerFixture) expectWoken(n int) {
	w.Helper()
	if len(w.wake) != n {
		w.Errorf("woken %d times, want %d", len(w.wake), n)
	}
}

func (w *fillerFixture) expectObserved(want time.Duration) {
	w.Helper()
	w.filler.Histories.With(web, func(b history.Histories) {
		if got := b.Container("app").Observed(); got != want {
			w.Errorf("observed %s, want %s", got, want)
		}
	})
}
