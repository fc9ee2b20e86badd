// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package upgradeable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	testclock "k8s.io/utils/clock/testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// recorder is a condition that counts what is asked of it, and fails when told.
type recorder struct {
	recorded *metav1.Condition
	asked    []string
	err      error
	// arrives says that a request which fails has had its effect.
	arrives bool
	now     func() time.Time
}

func (r *recorder) Get(context.Context) (*metav1.Condition, error) {
	r.asked = append(r.asked, "get")
	if r.err != nil {
		return nil, r.err
	}
	return r.recorded, nil
}

func (r *recorder) Set(ctx context.Context, status metav1.ConditionStatus, reason, message string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.err == nil || r.arrives {
		r.recorded = &metav1.Condition{
			Type: "Upgradeable", Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(r.now()),
		}
	}
	if r.err != nil {
		r.asked = append(r.asked, fmt.Sprintf("failed: %s %s", status, reason))
		return r.err
	}
	r.asked = append(r.asked, fmt.Sprintf("%s %s", status, reason))
	return nil
}

// took returns what has been asked since it was last called.
func (r *recorder) took() []string {
	out := r.asked
	r.asked = nil
	return slices.Clip(out)
}

type gateTest struct {
	*testing.T
	clock     *testclock.FakeClock
	condition *recorder
	run       *run
}

func newGateTest(t *testing.T, recorded *metav1.Condition) *gateTest {
	t.Helper()
	clock := testclock.NewFakeClock(noon)
	condition := &recorder{recorded: recorded, now: clock.Now}
	return &gateTest{T: t, clock: clock, condition: condition, run: &run{
		Gate:   &Gate{Condition: condition, Clock: clock},
		watch:  &watch{clock: clock, steps: map[types.NamespacedName]seen{}, changed: make(chan struct{}, 1)},
		logger: logr.Discard(),
	}}
}

// asks makes a round and says what must be asked of the API server in it.
func (g *gateTest) asks(want ...string) time.Time {
	g.Helper()
	next := g.run.round(g.Context())
	if diff := cmp.Diff(want, g.condition.took()); diff != "" {
		g.Errorf("asked of the API server at %s (-want +got):\n%s", g.clock.Now().Format(time.TimeOnly), diff)
	}
	return next
}

func reconciling(name string, status metav1.ConditionStatus, since time.Time) *v1beta1.VerticalScaler {
	return &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Status: v1beta1.VerticalScalerStatus{Conditions: []metav1.Condition{
			{Type: "Ready", Status: metav1.ConditionTrue},
			{Type: "Reconciling", Status: status, LastTransitionTime: metav1.NewTime(since)},
		}},
	}
}

func TestGateWritesOnlyWhatIsNew(t *testing.T) {
	g := newGateTest(t, nil)
	g.asks("get") // a condition that is not there says what it should
	g.asks()
	web := reconciling("web", metav1.ConditionTrue, noon)
	g.run.watch.OnAdd(web, false)
	g.asks("False StepUnderWay")
	g.run.watch.OnUpdate(web, web)
	g.asks()
	g.run.watch.OnUpdate(web, reconciling("web", metav1.ConditionFalse, noon))
	if next := g.asks(); next != noon.Add(5*time.Second) {
		t.Errorf("it wants to come again at %s", next)
	}
	g.clock.Step(5 * time.Second)
	g.asks("True NoStepUnderWay")
	g.asks()
}

func TestGateAtTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		recorded *metav1.Condition
		stepping bool
		want     []string
		// then is asked five seconds later.
		then []string
	}{
		"not there, and nothing under way":     {want: []string{"get"}},
		"not there, and a step under way":      {stepping: true, want: []string{"get", "False StepUnderWay"}},
		"True, and nothing under way":          {recorded: &metav1.Condition{Status: "True", Reason: "NoStepUnderWay"}, want: []string{"get"}},
		"True, and a step under way":           {recorded: &metav1.Condition{Status: "True", Reason: "NoStepUnderWay"}, stepping: true, want: []string{"get", "False StepUnderWay"}},
		"False, left behind by a crash":        {recorded: &metav1.Condition{Status: "False", Reason: "StepUnderWay"}, want: []string{"get"}, then: []string{"True NoStepUnderWay"}},
		"False, and a step is still under way": {recorded: &metav1.Condition{Status: "False", Reason: "StepUnderWay", Message: "a step is under way, of scaler shop/web"}, stepping: true, want: []string{"get"}},
		"stopped, and started again":           {recorded: &metav1.Condition{Status: "True", Reason: "OperatorStopped"}, want: []string{"get", "True NoStepUnderWay"}},
		"stopped, and a step is under way":     {recorded: &metav1.Condition{Status: "True", Reason: "OperatorStopped", LastTransitionTime: metav1.NewTime(noon)}, stepping: true, want: []string{"get", "False StepUnderWay"}},
		"held long enough, just before":        {recorded: &metav1.Condition{Status: "True", Reason: "HeldLongEnough"}, stepping: true, want: []string{"get"}},
		"of a time that has not come":          {recorded: &metav1.Condition{Status: "False", Reason: "StepUnderWay", LastTransitionTime: metav1.NewTime(noon.Add(time.Hour))}, want: []string{"get"}, then: []string{"True NoStepUnderWay"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.recorded != nil && tc.recorded.LastTransitionTime.IsZero() {
				tc.recorded.LastTransitionTime = metav1.NewTime(noon.Add(-time.Minute))
			}
			g := newGateTest(t, tc.recorded)
			if tc.stepping {
				g.run.watch.OnAdd(reconciling("web", metav1.ConditionTrue, noon.Add(-time.Minute)), true)
			}
			g.asks(tc.want...)
			g.clock.Step(5 * time.Second)
			g.asks(tc.then...)
		})
	}
}

// A crash loop must not start the half hour anew each time.
func TestAHoldGoesOnAfterARestart(t *testing.T) {
	g := newGateTest(t, &metav1.Condition{
		Status: "False", Reason: "StepUnderWay", Message: "a step is under way, of scaler shop/web",
		LastTransitionTime: metav1.NewTime(noon.Add(-29 * time.Minute)),
	})
	g.run.watch.OnAdd(reconciling("web", metav1.ConditionTrue, noon), true)
	if next := g.asks("get"); next != noon.Add(time.Minute) {
		t.Errorf("it wants to come again at %s", next)
	}
	g.clock.Step(time.Minute)
	g.asks("True HeldLongEnough")
}

func TestGateTriesAgain(t *testing.T) {
	t.Run("reading, with longer and longer pauses", func(t *testing.T) {
		g := newGateTest(t, nil)
		g.condition.err = errors.New("no")
		for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300} {
			if next := g.asks("get"); next.Sub(g.clock.Now()) != pause*time.Second {
				t.Errorf("the pause is %s, want %ds", next.Sub(g.clock.Now()), pause)
			}
			g.asks() // it was woken, but the pause is not over
			g.clock.Step(pause * time.Second)
		}
		g.condition.err = nil
		g.asks("get")
	})
	t.Run("writing, what is right by then", func(t *testing.T) {
		g := newGateTest(t, nil)
		g.asks("get")
		g.condition.err = errors.New("no")
		g.run.watch.OnAdd(reconciling("web", metav1.ConditionTrue, noon), false)
		if next := g.asks("failed: False StepUnderWay"); next != noon.Add(time.Second) {
			t.Errorf("it wants to come again at %s", next)
		}
		g.asks()
		g.clock.Step(time.Second)
		g.condition.err = nil
		g.asks("False StepUnderWay")
	})
	t.Run("a write that has failed may have arrived", func(t *testing.T) {
		g := newGateTest(t, &metav1.Condition{
			Status: "True", Reason: "NoStepUnderWay", Message: "No step is under way", LastTransitionTime: metav1.NewTime(noon),
		})
		g.asks("get")
		g.condition.err, g.condition.arrives = errors.New("timed out"), true
		g.run.watch.OnAdd(reconciling("web", metav1.ConditionTrue, noon), false)
		g.asks("failed: False StepUnderWay")
		g.run.watch.OnDelete(reconciling("web", metav1.ConditionTrue, noon))
		g.clock.Step(time.Second)
		g.asks("failed: False StepUnderWay")
		g.condition.err = nil
		g.clock.Step(5 * time.Second)
		g.asks("True NoStepUnderWay")
		g.asks()
	})
}

func TestAtTheEndUpgradesAreLetThrough(t *testing.T) {
	g := newGateTest(t, nil)
	g.asks("get")
	g.run.letGo(t.Context())
	if asked := g.condition.took(); asked != nil {
		t.Errorf("asked at the end, although nothing was held: %q", asked)
	}
	g.run.watch.OnAdd(reconciling("web", metav1.ConditionTrue, noon), false)
	g.asks("False StepUnderWay")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g.run.letGo(ended)
	if diff := cmp.Diff([]string{"True OperatorStopped"}, g.condition.took()); diff != "" {
		t.Errorf("asked at the end (-want +got):\n%s", diff)
	}
}

func TestWatch(t *testing.T) {
	clock := testclock.NewFakeClock(noon)
	w := &watch{clock: clock, steps: map[types.NamespacedName]seen{}, changed: make(chan struct{}, 1)}
	woken := func() bool {
		select {
		case <-w.changed:
			return true
		default:
			return false
		}
	}
	for _, tc := range []struct {
		what  string
		do    func()
		woken bool
		want  []step
	}{
		{"a scaler at rest", func() { w.OnAdd(reconciling("web", "False", noon), true) }, false, []step{}},
		{"a scaler without a status", func() { w.OnAdd(&v1beta1.VerticalScaler{}, true) }, false, []step{}},
		{"a step", func() { w.OnUpdate(nil, reconciling("web", "True", noon.Add(-time.Second))) }, true, []step{stepOf("web", noon.Add(-time.Second))}},
		{"the same again", func() { w.OnUpdate(nil, reconciling("web", "True", noon.Add(-time.Second))) }, false, []step{stepOf("web", noon.Add(-time.Second))}},
		{"its end", func() { w.OnUpdate(nil, reconciling("web", "False", noon)) }, true, []step{}},
		{"a step from the future counts from now", func() { w.OnAdd(reconciling("web", "True", noon.Add(time.Hour)), false) }, true, []step{stepOf("web", noon)}},
		{"and does so later", func() {
			clock.Step(time.Minute)
			w.OnUpdate(nil, reconciling("web", "True", noon.Add(time.Hour)))
		}, false, []step{stepOf("web", noon)}},
		{"another step, of which the beginning was missed", func() { w.OnUpdate(nil, reconciling("web", "True", noon.Add(time.Second))) }, true, []step{stepOf("web", noon.Add(time.Second))}},
		{"its scaler is deleted", func() {
			w.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "shop/web", Obj: reconciling("web", "True", noon)})
		}, true, []step{}},
		{"so is one at rest", func() { w.OnDelete(reconciling("api", "False", noon)) }, false, []step{}},
	} {
		tc.do()
		if got := woken(); got != tc.woken {
			t.Errorf("%s: woken: %t", tc.what, got)
		}
		if diff := cmp.Diff(tc.want, w.snapshot(), cmp.AllowUnexported(step{})); diff != "" {
			t.Errorf("%s: steps (-want +got):\n%s", tc.what, diff)
		}
	}
}

func stepOf(name string, since time.Time) step {
	return step{scaler: types.NamespacedName{Namespace: "shop", Name: name}, since: since}
}

func TestOpenWithoutOLM(t *testing.T) {
	t.Setenv(ConditionNameEnv, "")
	if _, err := Open(nil, "ops"); !errors.Is(err, ErrNoCondition) {
		t.Errorf("Open() = %v, want %v", err, ErrNoCondition)
	}
	// Nobody has said in which namespace it is.
	t.Setenv(ConditionNameEnv, "verticalscaler-operator.v0.1.0")
	if _, err := Open(nil, ""); err == nil || errors.Is(err, ErrNoCondition) {
		t.Errorf("Open() = %v, want it to miss the namespace", err)
	}
}
