// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// A new owner with the name of a deleted one waits until the garbage collector has deleted what the old one had.
func TestAnOwnerIsDeletedAndRecreatedAtOnce(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, w *fixture, mode v1beta1.UpdateMode) {
		t.Helper()
		before := w.owner("web")
		w.Remove(w.newOwner("web"))
		controllers := w.Controllers
		w.Controllers = nil // the garbage collector is late
		w.create(w.newOwner("web", scaled(mode)))
		w.ownerSays("web", "Stalled", "True", "NotControlled", "is controlled by ScaledDeployment web")
		w.Controllers = controllers
		d := w.settled("web")
		if s := w.Scaler("web"); s.OwnerReferences[0].UID == before.UID || d.OwnerReferences[0].UID == before.UID {
			t.Errorf("owned by %v and %v", d.OwnerReferences, s.OwnerReferences)
		}
		w.Sized("web")
	})
}
