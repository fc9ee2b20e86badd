// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

var aWeek = history.Goal{Time: 7 * 24 * time.Hour, MaxStarvedPercent: 3}

const weekly = 7 * 24 * 60 // minutes

// expects sets the recommendation, as a reconcile does.
func (w *storeFixture) expects(goal history.Goal) {
	w.t.Helper()
	w.with(func(histories history.Histories) {
		histories.Container("app").Expect(recs("app", 310, 640*mebi)[0].Target, goal)
	})
}

func (w *storeFixture) covered() (out history.Coverage) {
	w.t.Helper()
	w.with(func(histories history.Histories) { out = histories.Container("app").Coverage() })
	return out
}

// A scaler waits to be promoted. Its numbers never change, and it is reconciled each minute.
func TestCoverageIsSavedTenTimes(t *testing.T) {
	first := map[int]bool{}
	for i := range 20 {
		w := newStoreFixture(t)
		w.scaler.UID = types.UID(fmt.Sprintf("scaler-%d", i))
		w.load()
		published := recs("app", 310, 640*mebi)
		var writes []int
		for minute := range 2 * weekly {
			w.feed("app", minute, minute)
			if minute < 10 {
				continue
			}
			w.expects(aWeek)
			w.save(published)
			lost := w.covered().Time
			if len(w.took()) > 0 {
				writes = append(writes, minute)
			}
			if minute%(12*60) > 0 {
				continue
			}
			if saved := w.live().Spec.Containers[0].Coverage; saved != nil {
				lost -= decoded(t, w)
			}
			if lost > aWeek.Time/10+5*time.Minute && minute < weekly {
				t.Fatalf("%s: a crash after %d minutes loses %s", w.scaler.UID, minute, lost)
			}
		}
		if len(writes) < 11 || len(writes) > 13 { // and the first ones, of new numbers and of CPU
			t.Errorf("%s: written after %v minutes", w.scaler.UID, writes)
		}
		if last := slices.Max(writes); last < weekly || last > weekly+20 {
			t.Errorf("%s: last written after %d minutes, and a week are %d", w.scaler.UID, last, weekly)
		}
		first[writes[1]] = true
		w.reload()
		w.expects(aWeek)
		if !w.covered().Reaches(aWeek) {
			t.Errorf("%s: after a restart, %+v is covered", w.scaler.UID, w.covered())
		}
		w.save(published)
		w.expect() // memory equals the stored history
	}
	if len(first) < 10 {
		t.Errorf("20 scalers save for the second time in minutes %v", first)
	}
}

// decoded is the time that the checkpoint covers.
func decoded(t *testing.T, w *storeFixture) time.Duration {
	t.Helper()
	c := w.live().Spec.Containers[0]
	container, err := read(c, noon.AddDate(1, 0, 0))
	must.Succeed(t, err)
	return container.Coverage().Time
}

func TestABeginningAgainIsSaved(t *testing.T) {
	w := newStoreFixture(t)
	w.load()
	published := recs("app", 310, 640*mebi)
	w.feed("app", 0, 10)
	w.expects(aWeek)
	w.feed("app", 11, weekly/2)
	w.save(published)
	w.took()
	w.with(func(histories history.Histories) { // more than recommended, which maxAllowed limits
		histories.Add(usage.Sample{Container: "app", Time: noon.Add((weekly/2 + 1) * time.Minute), CPUMillis: 200, MemoryBytes: 641 * mebi}, params)
	})
	w.save(published)
	w.expect("update")
	w.reload()
	if got := w.covered(); got.Time != 0 || got.Shortfall != history.ShortOfMemory {
		t.Errorf("after a restart, %+v is covered", got)
	}
}

// A checkpoint of an operator without coverage, and unreadable coverage, keep the history.
func TestCoverageThatCannotBeReadCostsOnlyItself(t *testing.T) {
	for name, written := range map[string][]byte{"none": nil, "of a newer version": {2, 0, 0}, "of nothing": {1}} {
		w := newStoreFixture(t)
		w.load()
		w.feed("app", 0, 10)
		w.expects(aWeek)
		w.feed("app", 11, weekly/2)
		w.save(recs("app", 310, 640*mebi))
		object := w.live()
		object.Spec.Containers[0].Coverage = written
		must.Succeed(t, w.server.Update(t.Context(), object))
		w.reload()
		w.with(func(histories history.Histories) {
			if c := histories.Container("app"); c.Observed() < 80*time.Hour || c.Coverage() != (history.Coverage{}) {
				t.Errorf("%s: %s are observed, and %+v covered", name, c.Observed(), c.Coverage())
			}
		})
	}
}

// Past usage replaces the history. Records stay.
func TestFillingKeepsCoverage(t *testing.T) {
	w := newStoreFixture(t)
	w.load()
	w.feed("app", 0, 10)
	w.expects(aWeek)
	w.feed("app", 11, 100)
	before := w.covered()
	w.fill(weekly)
	if got := w.covered(); got != before || got.Time < time.Hour {
		t.Errorf("%+v became %+v", before, got)
	}
	w.feed("app", 101, 200)
	if got := w.covered().Time - before.Time; got < 90*time.Minute {
		t.Errorf("then %s more are covered", got)
	}
}
