// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

const oomAnnotation = "kwok.verticalscaler.io/oom"

func TestAnOOMKillOfOnePodRaisesAllOfThem(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t, resync(300*time.Millisecond))
	w.deploy("web")
	w.uses("web", "app", 50, 64)
	w.scale("web")
	w.says("web", "Applied", "True", "WithinBounds")
	mark := env.Mark()
	victim := w.pods("web")[1]
	w.annotate(&victim, oomAnnotation, "once")

	raised := func() {
		t.Helper()
		requests := w.sized("web")
		if got := requests.Memory().String(); got != "512Mi" { // twice the limit of 256Mi, on the first day
			t.Errorf("memory is %s", got)
		}
		pods := w.pods("web")
		for _, pod := range pods {
			if got := actual(pod, "app").Limits.Memory().String(); got != "1Gi" {
				t.Errorf("pod %s has a memory limit of %s", pod.Name, got)
			}
			if got := actual(pod, "app").Requests.Cpu().String(); got != "100m" {
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
	if s := w.scaler("web"); s.Status.Decision.Reason != "OOMKill" {
		t.Errorf("decided for %s", s.Status.Decision.Reason)
	}
	savedFirst(t, w.writes(mark))
	w.tell("an OOM kill", w.writes(mark))

	w.rounds(20)
	raised()
	w.restart()
	w.rounds(20)
	raised()
}

func TestAnOOMKillWhileTheOperatorWasAwayCounts(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t)
	w.deploy("web")
	w.scale("web") // without any usage: a kill is enough evidence
	w.says("web", "Applied", "False", "NoRecommendation")
	w.operator.Stop(t)
	mark := env.Mark()
	victim := w.pods("web")[0]
	w.annotate(&victim, oomAnnotation, "away")
	w.eventually(func() string {
		if n := restarts(w.pods("web")); n[victim.Name+"/app"] != 1 {
			return "the container has not been killed and restarted"
		}
		return ""
	})
	w.start()
	requests := w.sized("web")
	if got := requests.Memory().String(); got != "512Mi" {
		t.Errorf("memory is %s", got)
	}
	savedFirst(t, w.writes(mark))
}

// savedFirst fails unless the kill was recorded before anything was changed.
func savedFirst(t *testing.T, writes []testkit.Write) {
	t.Helper()
	for _, write := range writes {
		switch {
		case write.Resource == "verticalscalercheckpoints" && write.Code < 300:
			return
		case write.Resource == "pods/resize":
			t.Errorf("%s comes before the checkpoint", write)
			return
		}
	}
	t.Error("no checkpoint was written")
}

func TestAnOOMKillRaisesTheFloorOfOneContainerOnly(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t)
	w.deploy("web", twoContainers)
	w.scale("web")
	w.says("web", "Applied", "False", "NoRecommendation")
	victim := w.pods("web")[0]
	w.patch(&victim, `{"metadata":{"annotations":{%q:"one",%q:"agent"}}}`, oomAnnotation, "kwok.verticalscaler.io/oom-container")
	w.sized("web")
	for _, pod := range w.pods("web") {
		app, agent := actual(pod, "app").Requests, actual(pod, "agent").Requests
		if app.Memory().String() != "128Mi" || agent.Memory().String() != "512Mi" {
			t.Errorf("pod %s has %s and %s of memory", pod.Name, app.Memory(), agent.Memory())
		}
	}
}
