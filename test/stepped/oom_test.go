// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

func TestAnOOMKillWhileTheOperatorWasAwayCounts(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.Scale("web") // without any usage: a kill is enough evidence
	w.Reports("web", "Applied", "False", "Learning")
	w.Stop()
	mark := w.mark()
	w.Kill(&w.Pods("web")[0], "app")
	w.Minutes(10)
	w.Start()
	requests := w.Sized("web")
	if got := requests.Memory().String(); got != "512Mi" {
		t.Errorf("memory is %s", got)
	}
	savedFirst(t, w.writes(mark))
}

func TestAnEditTriesAgainWhatDidNotHelp(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.Uses("web", "app", 100, 100)
	w.Scale("web")
	w.Minutes(5)
	for range 4 { // at any size
		for _, pod := range w.Pods("web")[:2] {
			w.Kill(&pod, "app")
		}
		w.Minutes(10)
	}
	w.Reports("web", "Applied", "True", "RaiseDidNotHelp")
	w.Minutes(30)
	w.Reports("web", "Applied", "True", "RaiseDidNotHelp")
	w.Patch(w.Scaler("web"), `{"spec":{"updatePolicy":{"tolerancePercent":11}}}`)
	w.Minutes(1)
	if c := w.Condition("web", "Applied"); c.ObservedGeneration != 2 || c.Reason == "RaiseDidNotHelp" {
		t.Errorf("after an edit: %+v", c)
	}
}

// One of three pods is OOM-killed at any size, as by an input that it cannot handle. It raises the others once, and is raised alone and
// named after that, also where nothing bounds a raise.
func TestAPodThatIsKilledAtAnySizeRaisesTheOthersOnce(t *testing.T) {
	t.Parallel()
	unbounded := func(c *operatorconfig.Operator) { c.Ceilings.RaiseFactor = 0 }
	withoutMemory := func(d *appsv1.Deployment) {
		r := &d.Spec.Template.Spec.Containers[0].Resources
		delete(r.Requests, corev1.ResourceMemory)
		delete(r.Limits, corev1.ResourceMemory)
	}
	for name, tc := range map[string]struct {
		configure func(*operatorconfig.Operator)
		template  func(*appsv1.Deployment)
	}{
		"with the raise limit":      {func(*operatorconfig.Operator) {}, func(*appsv1.Deployment) {}},
		"with raiseFactor 0":        {unbounded, func(*appsv1.Deployment) {}},
		"a template without memory": {func(*operatorconfig.Operator) {}, withoutMemory},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t, tc.configure)
			w.deploy("web", tc.template)
			w.Uses("web", "app", 90, 100)
			w.Scale("web")
			w.Minutes(5)
			poison := w.Pods("web")[0].Name
			for range 6 {
				for _, pod := range w.Pods("web") {
					if pod.Name == poison {
						w.Kill(&pod, "app")
					}
				}
				w.Minutes(3)
			}
			w.Reports("web", "Applied", "False", "OutlierPod", poison)
			for _, pod := range w.Pods("web") {
				if memory := world.Actual(&pod, "app").Requests.Memory(); (memory.Cmp(resource.MustParse("512Mi")) > 0) != (pod.Name == poison) {
					t.Errorf("pod %s has %s", pod.Name, memory)
				}
			}
		})
	}
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
