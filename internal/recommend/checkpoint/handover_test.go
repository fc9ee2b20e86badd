// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
)

func everyNamespace(string) bool { return true }

// observed is what the checkpoint of the container app knows.
func (w *world) observed() time.Duration {
	w.t.Helper()
	for _, c := range w.live().Spec.Containers {
		if c.ContainerName == "app" {
			decoded, err := history.Decode(c.Data)
			if err != nil {
				w.t.Fatal(err)
			}
			return decoded.Observed()
		}
	}
	return 0
}

func TestAHandOverSavesWhatACrashLoses(t *testing.T) {
	for name, tc := range map[string]struct {
		learn  func(w *world)
		leaves func(namespace string) bool
		want   []string
	}{
		"time":              {func(w *world) { w.feed("app", 61, 100) }, everyNamespace, []string{"update"}},
		"an OOM kill":       {func(w *world) { w.kill("app", 61) }, everyNamespace, []string{"update"}},
		"another container": {func(w *world) { w.feed("sidecar", 61, 62) }, everyNamespace, []string{"update"}},
		"another profile": {func(w *world) {
			w.feed("app", 61, 100)
			w.scaler.Spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{Profile: "Safe"}
		}, everyNamespace, []string{"update"}},
		"nothing new":                 {func(*world) {}, everyNamespace, nil},
		"in a namespace that remains": {func(w *world) { w.feed("app", 61, 100) }, func(namespace string) bool { return namespace != "shop" }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.load()
			w.feed("app", 0, 60)
			w.save(recs("app", 310, 640*mebi))
			w.expect("create")
			tc.learn(w)
			for _, want := range [][]string{tc.want, nil} { // never the same twice
				n, err := w.store.HandOver(t.Context(), tc.leaves, tomorrow)
				if err != nil || n != len(want) {
					t.Errorf("HandOver() = %d, %v; want %d", n, err, len(want))
				}
				w.expect(want...)
			}
		})
	}
}

// A scaler without a recommendation has no checkpoint yet.
func TestAHandOverSavesAYoungHistory(t *testing.T) {
	w := newWorld(t)
	w.load()
	w.feed("app", 0, 2)
	if n, err := w.store.HandOver(t.Context(), everyNamespace, tomorrow); err != nil || n != 1 {
		t.Fatalf("HandOver() = %d, %v; want 1", n, err)
	}
	w.expect("create")
	next := w.other()
	next.store.With(key, func(h history.Histories) {
		if got := h["app"].Observed(); got != w.observed() || got == 0 {
			t.Errorf("the next process knows %s of usage, and %s was saved", got, w.observed())
		}
	})
}

// The old owner is late: the new one has saved already.
func TestAHandOverOverwritesNoSaveOfTheNextProcess(t *testing.T) {
	a := newWorld(t)
	a.load()
	a.feed("app", 0, 60)
	a.save(recs("app", 310, 640*mebi))
	b := a.other()
	b.feed("app", 61, 600)
	b.save(recs("app", 400, 640*mebi))
	a.expect("create", "update") // They share the server.
	saved := b.live()
	a.feed("app", 61, 62)
	a.took()
	if n, err := a.store.HandOver(t.Context(), everyNamespace, tomorrow); err != nil || n != 0 {
		t.Errorf("HandOver() = %d, %v; want nothing", n, err)
	}
	if diff := cmp.Diff(saved, a.live()); diff != "" {
		t.Errorf("the save of the next process was changed (-want +got):\n%s", diff)
	}
}

func TestAHandOverTellsWhatWasLost(t *testing.T) {
	w := newWorld(t)
	w.load()
	w.feed("app", 0, 60)
	w.fail = errors.New("no connection")
	if n, err := w.store.HandOver(t.Context(), everyNamespace, tomorrow); !errors.Is(err, w.fail) || n != 0 {
		t.Errorf("HandOver() = %d, %v; want %v", n, err, w.fail)
	}
}
