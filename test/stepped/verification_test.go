// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// One of three pods is lowered first. When it is OOM-killed with the lower memory, the operator reverts the change and
// does not try it again. A restart of the operator does not change that.
func TestALoweredPodThatIsKilledGetsBackItsOldSize(t *testing.T) {
	t.Parallel()
	w := newFixture(t, world.Quick)
	w.Usage.Even = true // with a short history, the size of uneven pods may move again before it is lowered
	w.deploy("web")
	w.Uses("web", "app", 400, 240)
	w.Scale("web")
	w.Minutes(20) // the first size may move again, and what lowers it is verified, too
	high := w.Sized("web")
	w.Patch(testkit.Scaler(w.Namespace, "web", ""), `{"spec":{"updatePolicy":{"verificationSeconds":3600}}}`)
	lowered := func() (pods []corev1.Pod) {
		for _, pod := range w.Pods("web") {
			now := world.Actual(&pod, "app").Requests
			if now.Cpu().Cmp(*high.Cpu()) < 0 || now.Memory().Cmp(*high.Memory()) < 0 {
				pods = append(pods, pod)
			}
		}
		return pods
	}

	w.Uses("web", "app", 50, 100)
	w.Reports("web", "Applied", "False", "Verifying")
	w.Minutes(20)
	w.Restart()
	w.Minutes(20)
	first := lowered()
	if len(first) != 1 {
		t.Fatalf("%d pods are lowered first, want one", len(first))
	}
	w.Kill(&first[0], "app")
	w.Minutes(1)
	reverted := w.Scaler("web").Status.RevertedChanges
	if len(reverted) == 0 {
		t.Fatal("nothing is reverted")
	}
	w.Noted(w.Scaler("web").UID, "Reverted", first[0].Name, "was OOM-killed")
	// Only reverted resources are checked: others may be lowered later.
	stays := func() {
		t.Helper()
		for _, failed := range w.Scaler("web").Status.RevertedChanges {
			kind := corev1.ResourceName(failed.Resource)
			for _, pod := range w.Pods("web") {
				if now := world.Actual(&pod, "app").Requests[kind]; now.Cmp(high[kind]) < 0 {
					t.Errorf("pod %s has %s of %s, although less than before has failed: %s", pod.Name, now.String(), kind, failed.Message)
				}
			}
		}
	}
	stays()
	w.Restart()
	w.Minutes(40)
	stays()
}
