// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// The garbage collector takes a checkpoint with its scaler, and a copy that still names its old owner. A copy without owner
// stays, the next scaler of that name takes it over, and it is collected with that one.
func TestACopyOfACheckpointIsTakenOver(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	env.AwaitGarbageCollector(t, soon, testkit.Scaler("", "", "probe"))
	checkpoint := &v1beta1.VerticalScalerCheckpoint{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web"}}
	stored := func(what string, is func(v1beta1.VerticalScalerCheckpoint) bool) *v1beta1.VerticalScalerCheckpoint {
		t.Helper()
		found := v1beta1.VerticalScalerCheckpoint{}
		w.eventually(func() string {
			if err := env.Client.Get(t.Context(), w.Key("web"), &found); err != nil {
				return err.Error()
			}
			if !is(found) {
				return fmt.Sprintf("%s: the owners are %v, with %d containers", what, found.OwnerReferences, len(found.Spec.Containers))
			}
			return ""
		})
		return &found
	}
	observed := func() int64 {
		if r := w.Scaler("web").Status.Recommendation; r != nil {
			return r.ContainerRecommendations[0].ObservedSeconds
		}
		return 0
	}
	recommend := func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRecommend }
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.Scale("web", recommend)
	w.rounds(30)
	w.uses("web", "app", 600, 480) // The first save waits for a change, or for five minutes of real time.
	saved := stored("saved", func(c v1beta1.VerticalScalerCheckpoint) bool { return len(c.Spec.Containers) > 0 })
	had := observed()

	w.Remove(testkit.Scaler(w.Namespace, "web", ""))
	w.gone(checkpoint)
	restore := func(owners []metav1.OwnerReference) {
		t.Helper()
		w.Add(&v1beta1.VerticalScalerCheckpoint{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web", OwnerReferences: owners}, Spec: saved.Spec,
		})
	}
	restore(saved.OwnerReferences)
	w.gone(checkpoint)

	restore(nil)
	w.Scale("web", recommend)
	now := w.Scaler("web")
	stored("taken over", func(c v1beta1.VerticalScalerCheckpoint) bool {
		owner := metav1.GetControllerOf(&c)
		return owner != nil && owner.UID == now.UID
	})
	if has := observed(); has < had/2 { // What the last save did not have was not in the copy.
		t.Errorf("it recommends from %d s of usage, and had %d before", has, had)
	}
	w.Remove(testkit.Scaler(w.Namespace, "web", ""))
	w.gone(checkpoint)
}
