// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/objects"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const mebi = 1 << 20

var (
	tomorrow = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	noon     = time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)
	params   = history.DefaultParams()
	key      = types.NamespacedName{Namespace: "shop", Name: "web"}
)

func TestWhatIsWorthSaving(t *testing.T) {
	// An hour was saved, with one container that needs 310m and 640Mi.
	cases := map[string]struct {
		then  func(w *storeFixture)
		recs  []recommend.Container
		write bool
		// isUnknown is true if only the process that has saved before knows that it is new.
		isUnknown bool
	}{
		"nothing new is not saved again": {
			recs: recs("app", 310, 640*mebi),
		},
		"time alone is not saved": {
			then: func(w *storeFixture) { w.feed("app", 61, 119) },
			recs: recs("app", 310, 640*mebi),
		},
		"twice the time is not saved before the evidence in the status is updated": {
			then: func(w *storeFixture) { w.feed("app", 61, 120) },
			recs: based(recs("app", 310, 640*mebi), time.Hour),
		},
		"evidence that is updated in the status is saved": {
			then:  func(w *storeFixture) { w.feed("app", 61, 120) },
			recs:  based(recs("app", 310, 640*mebi), 2*time.Hour),
			write: true,
		},
		"another target of CPU is saved": {
			recs:  recs("app", 311, 640*mebi),
			write: true, isUnknown: true,
		},
		"another target of memory is saved": {
			recs:  recs("app", 310, 641*mebi),
			write: true, isUnknown: true,
		},
		"other bounds and reasons are not saved": {
			recs: []recommend.Container{{
				Name: "app", Target: quantity.Amounts{CPUMillis: 310, MemoryBytes: 640 * mebi},
				LowerBound: quantity.Amounts{CPUMillis: 1}, UpperBound: quantity.Amounts{CPUMillis: 9999}, Observed: 99 * time.Hour,
				Reasons: []recommend.Reason{{Resource: "cpu", Code: "NotLowered", Value: 1}},
			}},
		},
		"an OOM kill is saved, although no number has moved": {
			then:  func(w *storeFixture) { w.kill("app", 61) },
			recs:  recs("app", 310, 640*mebi),
			write: true,
		},
		"what starts need is saved": {
			then: func(w *storeFixture) {
				w.with(func(histories history.Histories) {
					histories.Add(usage.Sample{Container: "app", Time: noon.Add(61 * time.Minute), CPUMillis: 300, Starting: true, LimitFactor: 1, CPULimitMillis: 300}, params)
				})
			},
			recs:  recs("app", 310, 640*mebi),
			write: true,
		},
		"a new container is saved": {
			then:  func(w *storeFixture) { w.feed("sidecar", 61, 62) },
			recs:  append(recs("app", 310, 640*mebi), recs("sidecar", 10, 16*mebi)...),
			write: true,
		},
		"no recommendation is not saved": {
			then: func(w *storeFixture) { w.feed("app", 61, 200) },
		},
	}
	for name, tc := range cases {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after a restart: %t", name, restarts), func(t *testing.T) {
				w := newStoreFixture(t)
				w.load()
				w.feed("app", 0, 60)
				w.feed("unmanaged", 0, 60) // has a history, but its policy asks for no recommendation
				w.save(based(recs("app", 310, 640*mebi), time.Hour))
				w.expect("create")
				if restarts {
					w.reload()
				}
				if tc.then != nil {
					tc.then(w)
				}
				w.save(tc.recs)
				if tc.write && (!restarts || !tc.isUnknown) {
					w.expect("update")
				} else {
					w.expect()
				}
				w.save(tc.recs)
				w.expect() // never the same twice

				// The same after a restart: the saved evidence counts in full.
				w.reload()
				w.save(tc.recs)
				w.expect()
			})
		}
	}
}

// After a lost history, the status reports more evidence than there is. New evidence is saved at the scaler's own
// doublings.
func TestALostHistoryIsSavedMoreAndMoreRarely(t *testing.T) {
	w := newStoreFixture(t)
	w.load()
	published := based(recs("app", 310, 640*mebi), 8*24*time.Hour)
	var at []int
	for minute := range 8 * 24 * 60 {
		w.feed("app", minute, minute)
		if minute < 2 {
			continue // no recommendation yet
		}
		w.save(published)
		if len(w.took()) > 0 {
			at = append(at, minute)
		}
	}
	first := int(math.Ceil(256 * math.Exp2(scaler.Share(w.scaler.UID))))
	want := []int{2, 5, first} // 5: the first interval of CPU usage is complete
	for next := 2 * first; next < 8*24*60; next *= 2 {
		want = append(want, next)
	}
	assert.Equal(t, "saved in minute", want, at, cmp.Comparer(func(a, b int) bool { return max(a-b, b-a) < 64 }))
}

// A kill may come before any sample: then there is no observed time to double.
func TestAKillWithoutUsageIsSavedOnce(t *testing.T) {
	w := newStoreFixture(t)
	w.load()
	w.kill("app", 0)
	w.save(recs("app", 0, 120*mebi))
	w.expect("create")
	w.save(recs("app", 0, 120*mebi))
	w.expect()

	w.reload()
	w.save(recs("app", 0, 120*mebi))
	w.expect()
	w.feed("app", 1, 3)
	w.save(based(recs("app", 0, 120*mebi), 2*time.Minute))
	w.expect("update")
}

func TestWhatWasSavedIsLoaded(t *testing.T) {
	w := newStoreFixture(t)
	w.load()
	w.feed("app", 0, 300)
	w.kill("app", 100)
	w.feed("sidecar", 0, 10)
	w.save(append(recs("app", 310, 640*mebi), recs("sidecar", 10, 16*mebi)...))
	want := w.histories()

	w.restart()
	if w.store.With(key, func(history.Histories) {}) {
		t.Error("With() found a history before it was loaded")
	}
	w.load()
	w.expectHistories(want)
	object := w.live()
	if got, want := object.Spec.SaveTime.UTC(), tomorrow; !got.Equal(want) {
		t.Errorf("saveTime is %v, want %v", got, want)
	}
	wantOwners := []metav1.OwnerReference{{
		APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "VerticalScaler", Name: "web", UID: "scaler-1", Controller: ptr.To(true),
	}}
	assert.Equal(t, "owners", wantOwners, object.OwnerReferences)
}

func TestItIsReadOnlyOnce(t *testing.T) {
	w := newStoreFixture(t)
	for range 3 {
		w.load()
	}
	if w.reads != 1 {
		t.Errorf("the checkpoint was read %d times", w.reads)
	}
}

// A profile changes the evaluation of usage, not the observed usage.
func TestAnotherProfileKeepsTheHistory(t *testing.T) {
	w := newSavedFixture(t)
	want := w.histories()
	for _, profile := range []v1beta1.RecommendationProfile{"Frugal", "Safe", ""} {
		w.scaler.Spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{Profile: profile}
		w.scaler.Generation++
		w.load()
		w.reload()
		assert.Equal(t, fmt.Sprintf("loaded with the profile %q", profile), want, w.histories())
	}
}

// The checkpoint of a deleted scaler goes with it, but not at once. Until then a new scaler of that name finds it, and
// must not rely on it.
func TestAnotherScalerOrTargetStartsOver(t *testing.T) {
	for name, change := range map[string]func(*v1beta1.VerticalScaler){
		"retargeted": func(vs *v1beta1.VerticalScaler) { vs.Spec.DeploymentName = "api" },
		"recreated":  func(vs *v1beta1.VerticalScaler) { vs.UID = "scaler-2" },
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, after a restart: %t", name, restarts), func(t *testing.T) {
				w := newSavedFixture(t)
				w.expect("create")
				change(w.scaler)
				if restarts {
					w.restart()
				}
				w.load()
				if got := w.histories(); len(got) != 0 {
					t.Errorf("it has the former history: %v", got)
				}
				w.feed("app", 0, 3)
				w.save(recs("app", 310, 640*mebi)) // the very same numbers, by chance
				w.expect("update")
				if got := w.live(); got.Spec.DeploymentName != w.scaler.Spec.DeploymentName || got.OwnerReferences[0].UID != w.scaler.UID {
					t.Errorf("the checkpoint is about %q, and goes with %q", got.Spec.DeploymentName, got.OwnerReferences[0].UID)
				}
				w.expectStored(w.histories())
			})
		}
	}
}

// A part of a checkpoint that is damaged, or that a newer version of the operator has saved, is kept through all later saves.
// Once it can be read, it counts again.
func TestAnUnreadableContainerIsKept(t *testing.T) {
	for name, spoil := range map[string]func(*v1beta1.ContainerCheckpoint){
		"for its data":       func(c *v1beta1.ContainerCheckpoint) { c.Data = []byte("nonsense") },
		"for its end":        func(c *v1beta1.ContainerCheckpoint) { c.Data = c.Data[:len(c.Data)-1] },
		"of a newer version": func(c *v1beta1.ContainerCheckpoint) { c.Version, c.Data[0] = history.Version+1, history.Version+1 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newStoreFixture(t)
			w.load()
			w.feed("app", 0, 60)
			w.feed("bad", 0, 60)
			w.feed("last", 0, 60)
			all := slices.Concat(recs("app", 310, 640*mebi), recs("bad", 10, 16*mebi), recs("last", 20, 32*mebi))
			w.save(all)
			want := w.histories()
			delete(want, "bad")

			object := w.live()
			good := slices.Clone(object.Spec.Containers[1].Data)
			spoil(&object.Spec.Containers[1])
			spoiled := object.Spec.Containers[1]
			must.Succeed(t, w.server.Update(t.Context(), object))
			part := func() *v1beta1.ContainerCheckpoint {
				object = w.live()
				return &object.Spec.Containers[slices.IndexFunc(object.Spec.Containers, func(c v1beta1.ContainerCheckpoint) bool { return c.ContainerName == "bad" })]
			}
			w.took()
			w.expectStored(want)
			w.kill("app", 61)
			w.save(slices.Concat(recs("app", 400, 700*mebi), recs("last", 20, 32*mebi)))
			assert.Equal(t, "before anything is learned", spoiled, *part())
			for i := range 2 {
				w.feed("bad", 61, 64)
				w.kill("app", 62+60*i)
				w.save(all)
				w.reload()
				if got := w.histories()["bad"]; got == nil || !bytes.Equal(part().Unreadable, spoiled.Data) {
					t.Errorf("%d bytes are kept, want %d; learned %t", len(part().Unreadable), len(spoiled.Data), got != nil)
				}
			}
			part().Unreadable = good
			must.Succeed(t, w.server.Update(t.Context(), object))
			w.reload()
			w.with(func(h history.Histories) {
				if got := h["bad"].Observed(); got != time.Hour {
					t.Errorf("%s are observed once it can be read, want an hour", got)
				}
			})
			w.save(all)
			if part().Unreadable != nil {
				t.Error("it is kept beside what it has become")
			}
		})
	}
}

// The clock of the next process is ahead or behind, or one of a node was. No saved history is lost, and learning continues
// at once.
func TestAnotherClockCostsNoHistory(t *testing.T) {
	days := 8 * 24 * 60
	saved := noon.Add(time.Duration(days) * time.Minute)
	sampled := func(c *history.Container, at time.Time) {
		c.Add(usage.Sample{Container: "app", Time: at, CPUMillis: 200, MemoryBytes: 400 * mebi}, params)
	}
	killed := func(c *history.Container, at time.Time) { c.RecordOOM(at, 4000*mebi, params) }
	counted := func(c *history.Container, at time.Time) {
		for pod := range 4 { // all until then are counted together
			c.RecordKill(history.Kill{At: at, HitBytes: 4000 * mebi, Pod: fmt.Sprint(pod)}, at, params)
		}
	}
	for name, last := range map[string]func(*history.Container, time.Time){"sample": sampled, "kill": killed, "counted kills": counted} {
		for _, ahead := range []time.Duration{0, 55 * time.Second, 365 * 24 * time.Hour} {
			for _, behind := range []time.Duration{-10 * time.Minute, 0, 30 * time.Second, 10 * time.Minute} {
				t.Run(fmt.Sprintf("%s %s ahead, then a clock %s behind", name, ahead, behind), func(t *testing.T) {
					w := newStoreFixture(t)
					w.load()
					w.feed("app", 0, days)
					w.with(func(h history.Histories) { last(h["app"], saved.Add(ahead)) })
					w.save(recs("app", 310, 640*mebi))
					var before, after history.Container
					w.with(func(h history.Histories) { before = *h["app"].Clone() })
					w.restart()
					now := saved.Add(15*time.Second - behind)
					must.Succeed(t, w.store.Load(t.Context(), w.scaler, now))
					w.with(func(h history.Histories) {
						c := h["app"]
						if c == nil || c.Observed() != before.Observed() || c.OOMFloor(params) != before.OOMFloor(params) {
							t.Fatalf("loaded %+v", c)
						}
						for i := range 3 {
							sampled(c, now.Add(time.Duration(i+1)*time.Minute))
						}
						if got := c.Observed() - before.Observed(); got < 2*time.Minute {
							t.Errorf("in three minutes, %s are observed", got)
						}
						if !c.RecordKill(history.Kill{At: now.Add(2 * time.Minute), HitBytes: 5000 * mebi, Pod: "next"}, now.Add(3*time.Minute), params) {
							t.Error("the next OOM kill does not count")
						}
						after = *c.Clone()
					})
					must.Succeed(t, w.store.Save(t.Context(), w.scaler, based(recs("app", 320, 640*mebi), after.Observed()), now.Add(3*time.Minute)))
					got, err := history.Decode(w.live().Spec.Containers[0].Data)
					if err != nil || got.Observed() != after.Observed() {
						t.Errorf("%s are saved: %v", got.Observed(), err)
					}
				})
			}
		}
	}
}

func TestSomebodyElseWrites(t *testing.T) {
	cases := map[string]struct {
		meanwhile func(w *storeFixture)
		want      []string
	}{
		"labelled meanwhile, it is overwritten": {
			meanwhile: func(w *storeFixture) {
				object := w.live()
				object.Labels = map[string]string{"team": "shop"}
				must.Succeed(w.t, w.server.Update(w.t.Context(), object))
			},
			want: []string{"update: conflict", "update"},
		},
		"deleted meanwhile, it is created again": {
			meanwhile: func(w *storeFixture) { must.Succeed(w.t, w.server.Delete(w.t.Context(), w.live())) },
			want:      []string{"update: not found", "create"},
		},
		"deleted and made by another, it is overwritten": {
			meanwhile: func(w *storeFixture) {
				must.Succeed(w.t, w.server.Delete(w.t.Context(), w.live()))
				another := &v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
				must.Succeed(w.t, w.server.Create(w.t.Context(), another))
				another.Spec.DeploymentName = "api"
				must.Succeed(w.t, w.server.Update(w.t.Context(), another))
			},
			want: []string{"update: conflict", "update"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newSavedFixture(t)
			tc.meanwhile(w)
			w.took()

			w.save(recs("app", 400, 640*mebi))
			w.expect(tc.want...)
			want := w.histories()
			w.expectStored(want)
		})
	}
	t.Run("made meanwhile, it is overwritten", func(t *testing.T) {
		w := newStoreFixture(t)
		w.load()
		w.feed("app", 0, 60)
		must.Succeed(t, w.server.Create(t.Context(), &v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}))
		w.took()
		w.save(recs("app", 310, 640*mebi))
		w.expect("create: already exists", "update")
	})
}

// A save of another process cannot be read. The histories in memory are kept and saved.
func TestAnUnreadableSaveCostsNoHistory(t *testing.T) {
	w := newSavedFixture(t)
	want := w.histories()
	object := w.live()
	object.Spec.Containers[0].Data = []byte("garbage")
	must.Succeed(t, w.server.Update(t.Context(), object))
	w.isOvertaken(recs("app", 400, 640*mebi))
	w.load()
	w.save(recs("app", 400, 640*mebi))
	w.expectStored(want)
}

// other is another process of the operator, which begins with the stored history.
func (w *storeFixture) other() *storeFixture {
	other := &storeFixture{t: w.t, scaler: w.scaler, server: w.server}
	other.restart()
	other.load()
	other.save(recs("app", 310, 640*mebi)) // which it has read
	return other
}

// usedUp is a sample of much memory.
func (w *storeFixture) usedUp(memoryMiB int64, minute int) {
	w.t.Helper()
	w.with(func(histories history.Histories) {
		histories.Add(usage.Sample{Container: "app", Time: noon.Add(time.Duration(minute) * time.Minute), CPUMillis: 200, MemoryBytes: memoryMiB * mebi}, params)
	})
}

// peaks are the peak of memory and the floor of the OOM kills, in MiB.
func (w *storeFixture) peaks() (peak, floor int64) {
	w.t.Helper()
	w.with(func(histories history.Histories) {
		peak, floor = histories["app"].Peak()/mebi, histories["app"].OOMFloor(params)/mebi
	})
	return peak, floor
}

// A paused leader continues with its old state. It must load the save of the next one.
func TestASaveOfAnotherProcessIsNotOverwritten(t *testing.T) {
	a := newSavedFixture(t)
	b := a.other()
	b.usedUp(2048, 61)
	b.save(recs("app", 310, 2356*mebi))
	saved := b.live()

	a.usedUp(410, 62)
	a.took()
	for range 2 {
		if err := a.store.Save(t.Context(), a.scaler, recs("app", 400, 640*mebi), tomorrow); err == nil {
			t.Fatal("Save() = nil over the save of another process")
		}
	}
	a.expect("update: conflict")
	assert.Equal(t, "the save of the other process was changed", saved, a.live())
	if a.store.With(key, func(history.Histories) {}) {
		t.Error("the old history is still there")
	}
	a.load()
	if peak, _ := a.peaks(); peak < 2048 {
		t.Errorf("the peak of the other process is forgotten: %d MiB, want 2048", peak)
	}
	a.save(recs("app", 400, 2356*mebi)) // which it has read
	a.took()
	a.save(recs("app", 500, 2356*mebi))
	a.expect("update")
}

// The overtaken process may be the leader: a late write of the last leader came between. Its memory
// peaks and kills are not lost.
func TestPeaksAndKillsSurviveTheSaveOfAnotherProcess(t *testing.T) {
	a := newSavedFixture(t)
	b := a.other()
	b.usedUp(600, 61)
	b.save(recs("app", 310, 700*mebi))

	a.usedUp(2048, 61)
	a.kill("app", 62)
	_, floor := a.peaks()
	a.isOvertaken(recs("app", 310, 2356*mebi))
	a.load()
	if peak, kept := a.peaks(); peak < 2048 || kept != floor {
		t.Errorf("peak %d MiB, floor %d MiB; want 2048 and %d", peak, kept, floor)
	}

	// It has no history of a scaler with a new target.
	b.usedUp(610, 63)
	b.took()
	b.load()
	a.usedUp(3000, 64)
	a.save(recs("app", 310, 3500*mebi))
	b.isOvertaken(recs("app", 310, 800*mebi))
	b.scaler = b.scaler.DeepCopy()
	b.scaler.Spec.DeploymentName = "api"
	b.load()
	if got := b.histories(); len(got) != 0 {
		t.Errorf("a retargeted scaler begins with %d containers", len(got))
	}
}

// A process whose cache is old knows another target than the scaler has. The stored checkpoint is newer
// than its history, whether read before or met in a conflict.
func TestAnOldCacheOverwritesNoCheckpointOfTheNewTarget(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(vs *v1beta1.VerticalScaler)
		loadsIt bool
		want    []string
	}{
		"retargeted, met in a conflict":   {change: func(vs *v1beta1.VerticalScaler) { vs.Spec.DeploymentName = "api" }, want: []string{"update: conflict"}},
		"recreated, met in a conflict":    {change: func(vs *v1beta1.VerticalScaler) { vs.UID = "scaler-2" }, want: []string{"update: conflict"}},
		"retargeted, read when it starts": {change: func(vs *v1beta1.VerticalScaler) { vs.Spec.DeploymentName = "api" }, loadsIt: true},
	} {
		t.Run(name, func(t *testing.T) {
			a := newSavedFixture(t)

			b := &storeFixture{t: t, scaler: a.scaler.DeepCopy(), server: a.server}
			tc.change(b.scaler)
			must.Succeed(t, b.server.Create(t.Context(), b.scaler.DeepCopy()))
			b.reload()
			b.feed("app", 0, 90)
			b.save(recs("app", 200, 500*mebi))
			saved := b.live()

			if tc.loadsIt {
				a.reload()
				a.feed("app", 61, 70)
			}
			a.store.Live = a.server
			a.took()
			a.isOvertaken(recs("app", 400, 640*mebi))
			a.expect(tc.want...)
			assert.Equal(t, "the newer checkpoint was changed", saved, a.live())

			a.scaler = b.scaler // The cache has caught up.
			a.load()
			assert.Equal(t, "what it knows then", b.histories(), a.histories())
		})
	}
	t.Run("the target is confirmed, and the old checkpoint is overwritten", func(t *testing.T) {
		a := newSavedFixture(t)
		a.scaler.Spec.DeploymentName = "api"
		must.Succeed(t, a.server.Create(t.Context(), a.scaler.DeepCopy()))
		a.store.Live = a.server
		a.load()
		a.feed("app", 61, 90)
		a.took()
		a.save(recs("app", 200, 500*mebi))
		a.expect("update")
	})
}

// While the reply to every second write is lost, each save succeeds at the third attempt, or at the fifth if new samples
// are worth saving, too. No usage is lost: samples between two attempts count, and so do kills and the past.
func TestLostRepliesToSavesCostNothing(t *testing.T) {
	for parity := range 2 {
		want, w := newStoreFixture(t), newStoreFixture(t)
		w.loses = func(n int) bool { return n%2 == parity }
		for minute := 0; minute < 200; minute += 2 {
			for _, each := range []*storeFixture{want, w} {
				each.load()
				each.feed("app", minute, minute)
				switch minute {
				case 60:
					each.kill("app", minute)
				case 100:
					each.fill(weekly)
				}
				attempts := 1
				for ; each.store.Save(t.Context(), each.scaler, recs("app", int64(300+minute), 640*mebi), tomorrow) != nil; attempts++ {
					if attempts == 5 {
						t.Fatalf("minute %d: nothing can be decided: %v", minute, each.took())
					}
					if attempts == 1 {
						each.feed("app", minute+1, minute+1)
					}
					each.load()
				}
				if attempts == 1 {
					each.feed("app", minute+1, minute+1)
				}
			}
		}
		assert.Equal(t, "what is known", want.histories(), w.histories())
	}
}

func TestAFailedLoadIsTriedAgain(t *testing.T) {
	broken := errors.New("connection refused")
	w := newSavedFixture(t)
	want := w.histories()

	w.restart()
	w.failReads = broken
	if err := w.store.Load(t.Context(), w.scaler, tomorrow); !errors.Is(err, broken) {
		t.Fatalf("Load() = %v, want %v", err, broken)
	}
	if w.store.With(key, func(history.Histories) {}) {
		t.Error("With() found a history that could not be read: usage would go into one that is dropped")
	}
	if err := w.store.Save(t.Context(), w.scaler, recs("app", 1, mebi), noon); err == nil {
		t.Error("a history that was never read was saved over the one that is there")
	}
	w.failReads = nil
	w.load()
	w.expectHistories(want)
}

func TestOnlyWhatWasLoadedIsSaved(t *testing.T) {
	w := newStoreFixture(t)
	if err := w.store.Save(t.Context(), w.scaler, recs("app", 310, 640*mebi), noon); err == nil {
		t.Error("Save() before Load() = nil")
	}
	w.load()
	w.feed("app", 0, 60)
	w.scaler.UID = "scaler-2"
	if err := w.store.Save(t.Context(), w.scaler, recs("app", 310, 640*mebi), noon); err == nil {
		t.Error("Save() of another scaler's history = nil")
	}
	w.expect()
}

func TestForget(t *testing.T) {
	w := newStoreFixture(t)
	w.load()
	w.feed("app", 0, 60)
	if got := w.store.Len(); got != 1 {
		t.Errorf("Len() = %d, want 1", got)
	}
	w.store.Forget(key)
	w.store.Forget(key)
	if got := w.store.Len(); got != 0 {
		t.Errorf("Len() = %d after Forget, want 0", got)
	}
	if w.store.With(key, func(history.Histories) {}) {
		t.Error("With() found a forgotten history")
	}
}

// The collector feeds while the controller loads, saves and forgets.
func TestUseByManyAtOnce(t *testing.T) {
	w := newStoreFixture(t)
	var all sync.WaitGroup
	for worker := range 4 {
		vs := w.scaler.DeepCopy()
		vs.Name = fmt.Sprintf("web-%d", worker%2)
		vs.UID = types.UID(vs.Name)
		all.Go(func() {
			for minute := range 50 {
				if err := w.store.Load(t.Context(), vs, tomorrow); err != nil {
					t.Error(err)
				}
				w.store.With(client.ObjectKeyFromObject(vs), func(histories history.Histories) {
					histories.Add(usage.Sample{Container: "app", Time: noon.Add(time.Duration(minute) * time.Minute), CPUMillis: 1}, params)
				})
				// May find that another worker has forgotten it.
				_ = w.store.Save(t.Context(), vs, recs("app", int64(minute), mebi), noon)
				if minute%20 == 19 {
					w.store.Forget(client.ObjectKeyFromObject(vs))
				}
				w.store.Len()
			}
		})
	}
	all.Wait()
}

// storeFixture is an API server and an operator with one scaler.
type storeFixture struct {
	t      *testing.T
	server client.Client
	store  *Store
	scaler *v1beta1.VerticalScaler

	mu        sync.Mutex
	writes    []string // since they were last taken
	reads     int
	failReads error
	loses     func(n int) bool // reports whether the reply to the n-th write is lost; nil for never
	sent      int              // writes so far
}

func newStoreFixture(t *testing.T) *storeFixture {
	t.Helper()
	w := &storeFixture{t: t, scaler: &v1beta1.VerticalScaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "scaler-1"},
		Spec:       v1beta1.VerticalScalerSpec{DeploymentName: "web"},
	}}
	name := func(o client.Object) []string { return []string{o.GetName()} }
	w.server = fake.NewClientBuilder().WithScheme(objects.Scheme()).WithIndex(&v1beta1.VerticalScaler{}, metav1.ObjectNameField, name).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			w.mu.Lock()
			w.reads++
			w.mu.Unlock()
			if w.failReads != nil {
				return w.failReads
			}
			if _, ok := obj.(*v1beta1.VerticalScaler); ok {
				return apierrors.NewForbidden(v1beta1.GroupVersion.WithResource("verticalscalers").GroupResource(), key.Name, errors.New("the operator may only list and watch"))
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return w.wrote("create", func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return w.wrote("update", func() error { return c.Update(ctx, obj, opts...) })
		},
	}).Build()
	w.restart()
	return w
}

// newSavedFixture has saved an hour of usage, with one container that needs 310m and 640Mi.
func newSavedFixture(t *testing.T) *storeFixture {
	t.Helper()
	w := newStoreFixture(t)
	w.load()
	w.feed("app", 0, 60)
	w.save(recs("app", 310, 640*mebi))
	return w
}

// wrote makes a write, and remembers it.
func (w *storeFixture) wrote(verb string, write func() error) error {
	err := write()
	if w.sent++; w.loses != nil && w.loses(w.sent) {
		return errors.New("connection reset by peer")
	}
	if err != nil {
		verb += ": " + map[metav1.StatusReason]string{
			metav1.StatusReasonConflict: "conflict", metav1.StatusReasonNotFound: "not found", metav1.StatusReasonAlreadyExists: "already exists",
		}[apierrors.ReasonForError(err)]
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes = append(w.writes, verb)
	return err
}

// restart clears the operator's memory.
func (w *storeFixture) restart() { w.store = &Store{Client: w.server, Params: params} }

// reload is another process, in a year.
func (w *storeFixture) reload() {
	w.t.Helper()
	w.restart()
	must.Succeed(w.t, w.store.Load(w.t.Context(), w.scaler, noon.AddDate(1, 0, 0)))
}

func (w *storeFixture) load() {
	w.t.Helper()
	must.Succeed(w.t, w.store.Load(w.t.Context(), w.scaler, tomorrow))
}

func (w *storeFixture) save(recommendations []recommend.Container) {
	w.t.Helper()
	must.Succeed(w.t, w.store.Save(w.t.Context(), w.scaler, recommendations, tomorrow))
}

// isOvertaken tries to save over the save of another process.
func (w *storeFixture) isOvertaken(recommendations []recommend.Container) {
	w.t.Helper()
	if err := w.store.Save(w.t.Context(), w.scaler, recommendations, tomorrow); !errors.Is(err, ErrOvertaken) {
		w.t.Fatalf("Save() = %v, want %v", err, ErrOvertaken)
	}
}

// feed adds a sample a minute, from and to being minutes after noon.
func (w *storeFixture) feed(container string, from, to int) {
	w.t.Helper()
	w.with(func(histories history.Histories) {
		for minute := from; minute <= to; minute++ {
			histories.Add(usage.Sample{
				Container: container, Time: noon.Add(time.Duration(minute) * time.Minute), CPUMillis: 200, MemoryBytes: 400 * mebi,
			}, params)
		}
	})
}

// fill fills the history of the container app with the given minutes before noon.
func (w *storeFixture) fill(minutes int) {
	w.t.Helper()
	if w.store.StartFilling(w.scaler, time.Duration(minutes)*time.Minute) != Ready {
		w.t.Fatal("the history is not filled")
	}
	past := history.Histories{}
	for minute := range minutes {
		past.Add(usage.Sample{Container: "app", Time: noon.Add(time.Duration(minute-minutes) * time.Minute), CPUMillis: 200, MemoryBytes: 400 * mebi}, params)
	}
	if w.store.Fill(w.scaler, past, noon) != 1 {
		w.t.Fatal("nothing is filled")
	}
}

func (w *storeFixture) kill(container string, minute int) {
	w.t.Helper()
	w.with(func(histories history.Histories) {
		if !histories.Container(container).RecordOOM(noon.Add(time.Duration(minute)*time.Minute), 100*mebi, params) {
			w.t.Fatal("the kill did not count")
		}
	})
}

func (w *storeFixture) with(f func(history.Histories)) {
	w.t.Helper()
	if !w.store.With(client.ObjectKeyFromObject(w.scaler), f) {
		w.t.Fatal("no history is loaded")
	}
}

// histories is the history in memory, as it would be saved, by container.
func (w *storeFixture) histories() map[string][]byte {
	w.t.Helper()
	out := map[string][]byte{}
	w.with(func(histories history.Histories) {
		for name, c := range histories {
			out[name] = c.Closed(w.store.ParamsOf(w.scaler)).Encode()
		}
	})
	return out
}

// expectStored restarts the operator, and compares the histories that it reads.
func (w *storeFixture) expectStored(want map[string][]byte) {
	w.t.Helper()
	w.reload()
	w.expectHistories(want)
}

func (w *storeFixture) expectHistories(want map[string][]byte) {
	w.t.Helper()
	assert.Equal(w.t, "loaded", want, w.histories())
}

func (w *storeFixture) live() *v1beta1.VerticalScalerCheckpoint {
	w.t.Helper()
	var object v1beta1.VerticalScalerCheckpoint
	must.Succeed(w.t, w.server.Get(w.t.Context(), key, &object))
	return &object
}

// took takes the writes since it was last called.
func (w *storeFixture) took() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	writes := w.writes
	w.writes = nil
	return writes
}

func (w *storeFixture) expect(want ...string) {
	w.t.Helper()
	assert.Equal(w.t, "writes", want, w.took())
}

func recs(container string, cpuMillis, memoryBytes int64) []recommend.Container {
	return []recommend.Container{{Name: container, Target: quantity.Amounts{CPUMillis: cpuMillis, MemoryBytes: memoryBytes}}}
}

// based are the recommendations with that much evidence.
func based(recs []recommend.Container, evidence time.Duration) []recommend.Container {
	for i := range recs {
		recs[i].Observed = evidence
	}
	return recs
}

// A proxy may never answer. The usage of all namespaces is collected in one round, which must not wait
// for it.
func TestUsageIsAddedWhileASaveHangs(t *testing.T) {
	w := newStoreFixture(t)
	w.load()
	w.feed("app", 0, 60)
	slow := hangingClient{w.server, make(chan struct{}), make(chan struct{})}
	w.store.Client = slow
	saved := make(chan error)
	go func() { saved <- w.store.Save(t.Context(), w.scaler, recs("app", 310, 640*mebi), noon) }()
	<-slow.asked
	w.usedUp(900, 61) // does not return while the store is locked
	close(slow.answer)
	must.Succeed(t, <-saved)
	if peak, _ := w.peaks(); peak != 900 {
		t.Errorf("the peak is %d MiB, want the 900 that were used during the save", peak)
	}
}

// hangingClient does not answer the creation of an object until it may.
type hangingClient struct {
	client.Client
	asked, answer chan struct{}
}

func (c hangingClient) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	close(c.asked)
	<-c.answer
	return c.Client.Create(ctx, obj, opts...)
}
