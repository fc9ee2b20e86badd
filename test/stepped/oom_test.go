// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

func TestAnOOMKillOfOnePodRaisesAllOfThem(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.Uses("web", "app", 50, 64)
	w.scale("web")
	w.Says("web", "Applied", "True", "WithinBounds")
	mark := w.mark()
	victim := w.Pods("web")[1]
	w.kill(&victim, "app")
	w.Settle()

	raised := func() {
		t.Helper()
		pods := w.Pods("web")
		for _, pod := range pods {
			r := world.Actual(&pod, "app")
			if memory, limit := r.Requests.Memory().String(), r.Limits.Memory().String(); memory != "512Mi" || limit != "1Gi" { // twice the limit of 256Mi, on the first day
				t.Errorf("pod %s has a memory request of %s and a limit of %s", pod.Name, memory, limit)
			}
			if got := r.Requests.Cpu().String(); got != "100m" {
				t.Errorf("pod %s has a cpu request of %s", pod.Name, got)
			}
		}
		if n := restarts(pods); len(n) != 1 || n[victim.Name+"/app"] != 1 {
			t.Errorf("restarts: %v", n)
		}
		if n := count(accepted(w.writes(mark)), "pods/resize"); len(n) != 3 || total(n) != 3 {
			t.Errorf("resizes by pod: %v", n)
		}
	}
	raised()
	w.Says("web", "Applied", "True", "Applied")
	if s := w.Scaler("web"); s.Status.Decision.Reason != "OOMKill" {
		t.Errorf("decided for %s", s.Status.Decision.Reason)
	}
	savedFirst(t, w.writes(mark))

	w.Minutes(20)
	raised()
	w.Restart()
	w.Minutes(20)
	raised()
}

func TestAnOOMKillWhileTheOperatorWasAwayCounts(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.scale("web") // without any usage: a kill is enough evidence
	w.Says("web", "Applied", "False", "NoRecommendation")
	w.Stop()
	mark := w.mark()
	w.kill(&w.Pods("web")[0], "app")
	w.Minutes(10)
	w.Start()
	requests := w.Sized("web")
	if got := requests.Memory().String(); got != "512Mi" {
		t.Errorf("memory is %s", got)
	}
	savedFirst(t, w.writes(mark))
}

// savedFirst fails unless the kill was recorded before anything was changed.
func savedFirst(t *testing.T, writes []world.Write) {
	t.Helper()
	for _, write := range accepted(writes) {
		switch write.Resource {
		case "verticalscalercheckpoints":
			return
		case "pods/resize":
			t.Errorf("%s comes before the checkpoint", write)
			return
		}
	}
	t.Error("no checkpoint was written")
}
