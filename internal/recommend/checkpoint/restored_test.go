// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// restoredAs is the scaler after a backup was restored.
func (w *storeFixture) restoredAs(value string) {
	w.t.Helper()
	w.scaler = w.scaler.DeepCopy()
	w.scaler.Annotations = map[string]string{v1beta1.RestoredAnnotation: value}
}

// inMemory is the observed time of a container.
func (w *storeFixture) inMemory(container string) (observed time.Duration) {
	w.t.Helper()
	w.with(func(histories history.Histories) { observed = histories.Container(container).Observed() })
	return observed
}

// A restored checkpoint is loaded while the operator runs. Memory that it has seen itself is kept, and so are
// containers that the backup does not have.
func TestARestoredCheckpointIsLoaded(t *testing.T) {
	a := newSavedFixture(t)
	backup := a.live().Spec

	// Another cluster: little usage, an OOM kill, and a new container.
	b := newStoreFixture(t)
	b.load()
	b.feed("app", 0, 3)
	b.feed("sidecar", 0, 3)
	b.usedUp(2048, 4)
	b.kill("app", 5)
	_, floor := b.peaks()
	b.save(append(recs("app", 100, 640*mebi), recs("sidecar", 10, 16*mebi)...))
	live := b.live()
	live.Spec = backup
	must.Succeed(t, b.server.Update(t.Context(), live))
	b.took()

	b.load()
	if got := b.inMemory("app"); got >= time.Hour {
		t.Fatalf("it was loaded before the annotation was set: %s", got)
	}
	b.restoredAs("a")
	b.load()
	if got := b.inMemory("app"); got < 59*time.Minute {
		t.Errorf("%s were observed", got)
	}
	if peak, kept := b.peaks(); peak < 2048 || kept != floor {
		t.Errorf("peak %d MiB, floor %d MiB; want 2048 and %d", peak, kept, floor)
	}
	if b.inMemory("sidecar") == 0 {
		t.Error("the sidecar was forgotten")
	}

	// It is loaded once: later usage stays, also when the annotation is removed.
	b.feed("app", 61, 90)
	b.load()
	b.scaler = b.scaler.DeepCopy()
	b.scaler.Annotations = nil
	b.load()
	if got := b.inMemory("app"); got < 80*time.Minute {
		t.Errorf("only %s were observed", got)
	}
	b.save(recs("app", 320, 640*mebi))
	b.expect("update")
}

// An annotation alone discards no history.
func TestWithoutACheckpointNothingIsForgotten(t *testing.T) {
	w := newStoreFixture(t)
	w.load()
	w.feed("app", 0, 60)
	w.restoredAs("a")
	w.load()
	if got := w.inMemory("app"); got < 59*time.Minute {
		t.Errorf("%s were observed", got)
	}
}

// A copy without an owner, as a backup tool restores it, is taken over, and is collected with its new scaler.
func TestACopyWithoutAnOwnerIsTakenOver(t *testing.T) {
	a := newSavedFixture(t)
	saved := a.live().Spec

	b := newStoreFixture(t)
	must.Succeed(t, b.server.Create(t.Context(), &v1beta1.VerticalScalerCheckpoint{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.scaler.Namespace, Name: b.scaler.Name}, Spec: saved,
	}))
	b.took()
	b.load()
	if got := b.inMemory("app"); got < 59*time.Minute {
		t.Errorf("%s were observed", got)
	}
	b.save(recs("app", 310, 640*mebi))
	b.expect("update")
	if owner := metav1.GetControllerOf(b.live()); owner == nil || owner.UID != b.scaler.UID {
		t.Errorf("the owner is %v", owner)
	}
	b.save(recs("app", 310, 640*mebi))
	b.expect()
}
