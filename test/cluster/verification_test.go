// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// One of three pods is lowered first. When it is OOM-killed with the lower memory, the
// operator reverts the change and does not try it again. A restart of the operator does not
// change that.
func TestALoweredPodThatIsKilledGetsBackItsOldSize(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	testkit.Tidy(t, "with a short history, the size of uneven pods may move again before it is lowered", testkit.UnevenUsage)
	w := newFixture(t, quick)
	w.deploy("web")
	w.uses("web", "app", 400, 240)
	w.scale("web")
	w.sized("web")
	w.rounds(20) // the first size may move again, and what lowers it is verified, too
	high := w.sized("web")
	w.patch(testkit.Scaler(w.namespace, "web", ""), `{"spec":{"updatePolicy":{"verificationSeconds":3600}}}`)
	lowered := func() (names []string) {
		for _, pod := range w.pods("web") {
			now := actual(pod, "app").Requests
			if now.Cpu().Cmp(*high.Cpu()) < 0 || now.Memory().Cmp(*high.Memory()) < 0 {
				names = append(names, pod.Name)
			}
		}
		return names
	}

	w.uses("web", "app", 50, 100)
	w.says("web", "Applied", "False", "Verifying")
	w.rounds(20)
	w.restart()
	w.rounds(20)
	var first []string
	w.eventually(func() string { // a fall that was taken back is verified from its beginning
		if first = lowered(); len(first) != 1 {
			return fmt.Sprintf("%v are lowered first, want one pod", first)
		}
		return ""
	})
	for _, pod := range w.pods("web") {
		if pod.Name == first[0] {
			w.annotate(&pod, oomAnnotation, "low")
		}
	}
	// What was not lowered with it may be lowered later.
	w.eventually(func() string {
		s := w.scaler("web").Status
		for _, reverted := range s.RevertedChanges {
			name := corev1.ResourceName(reverted.Resource)
			for _, pod := range w.pods("web") {
				if now := actual(pod, "app").Requests[name]; now.Cmp((*high)[name]) < 0 {
					return fmt.Sprintf("pod %s still has %s of %s, decided %+v", pod.Name, now.String(), name, s.Decision)
				}
			}
		}
		if len(s.RevertedChanges) == 0 {
			return "nothing is reverted"
		}
		return ""
	})
	w.noted(w.scaler("web").UID, "Reverted", first[0], "was OOM-killed")
	w.restart()
	w.rounds(40)
	for _, failed := range w.scaler("web").Status.RevertedChanges {
		for _, pod := range w.pods("web") {
			now := actual(pod, "app").Requests[corev1.ResourceName(failed.Resource)]
			if now.Cmp(failed.Value) <= 0 {
				t.Errorf("pod %s has %s of %s again, which failed: %s", pod.Name, now.String(), failed.Resource, failed.Message)
			}
		}
	}
	w.tell("lowered, killed and reverted", w.writes(w.began))
}
