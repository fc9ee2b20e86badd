// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// revisions counts the pods of each template, by pod-template-hash.
func (w *fixture) revisions(name string) map[string]int {
	w.Helper()
	out := map[string]int{}
	for _, pod := range w.pods(name) {
		if pod.Status.Phase == corev1.PodRunning {
			out[pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]]++
		}
	}
	return out
}

// runsMixed waits until so many pods of the old template run, and so many of others.
func (w *fixture) runsMixed(name string, old string, oldPods, newPods int) {
	w.Helper()
	w.eventually(func() string {
		all := w.revisions(name)
		n := 0
		for hash, pods := range all {
			if hash != old {
				n += pods
			}
		}
		if all[old] != oldPods || n != newPods {
			return fmt.Sprintf("pods by template: %v; want %d of %s and %d others", all, oldPods, old, newPods)
		}
		return ""
	})
}

// uneven is a rollout by one new pod at a time, of five replicas of two containers.
func uneven(d *appsv1.Deployment) {
	twoContainers(d)
	d.Spec.Replicas = ptr.To(int32(5))
	d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(1)), MaxUnavailable: ptr.To(intstr.FromInt32(0))}
}

// killedAndRaised has a pod of the old template OOM-killed. It waits until all running pods have the
// memory that follows from it, in place.
func (w *fixture) killedAndRaised(old string, pods int) {
	w.Helper()
	mark := env.Mark()
	var victim corev1.Pod
	for _, pod := range w.pods("web") {
		if pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == old {
			victim = pod // the last of them
		}
	}
	w.patch(&victim, `{"metadata":{"annotations":{%q:"old",%q:"app"}}}`, oomAnnotation, "kwok.verticalscaler.io/oom-container")
	w.eventually(func() string {
		for _, pod := range w.pods("web") {
			got := actual(pod, "app").Requests.Memory().String()
			if pod.Status.Phase == corev1.PodRunning && got != "512Mi" { // twice the limit of 256Mi, on the first day
				return fmt.Sprintf("pod %s has %s of memory", pod.Name, got)
			}
		}
		if got := w.scaler("web").Status.Summary; got == nil || !strings.HasPrefix(got.Pods, fmt.Sprintf("%d/%d", pods, pods)) {
			return fmt.Sprintf("the summary is %+v", got)
		}
		return ""
	})
	if n := restarts(w.pods("web")); len(n) != 1 || n[victim.Name+"/app"] != 1 {
		w.Errorf("restarts: %v", n)
	}
	resized := count(accepted(w.writes(mark)), "pods/resize")
	if len(resized) != pods || total(resized) != pods {
		w.Errorf("resizes by pod: %v", resized)
	}
	if n := count(w.writes(mark), "deployments"); total(n) > 0 {
		w.Errorf("writes of Deployments: %v", n)
	}
}

// beforeRollout is a Deployment of uneven pods within their bounds, and its only revision.
func beforeRollout(t *testing.T) (w *fixture, revision string) {
	t.Helper()
	w = newFixture(t, resync(300*time.Millisecond))
	w.deploy("web", uneven)
	w.uses("web", "app", 50, 64)
	w.uses("web", "agent", 50, 64)
	w.scale("web")
	w.says("web", "Applied", "True", "WithinBounds")
	return w, slices.Collect(maps.Keys(w.revisions("web")))[0]
}

func TestAnOOMKillRaisesOldPodsOfAPausedRollout(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w, old := beforeRollout(t)

	// A canary: one new pod, which is not available for an hour, so that the rollout goes no further
	// before the user pauses it.
	w.change("web", "kubectl", func(d *appsv1.Deployment) {
		d.Spec.Template.Labels["canary"] = "yes"
		d.Spec.MinReadySeconds, d.Spec.ProgressDeadlineSeconds = 3600, ptr.To(int32(7200))
	})
	w.runsMixed("web", old, 5, 1)
	w.says("web", "Applied", "False", "RolloutInProgress", "5 of 6 pods have an older template")
	w.change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Paused = true })
	w.says("web", "Applied", "True", "WithinBounds")

	w.killedAndRaised(old, 6)
	w.says("web", "Applied", "True", "Applied", "5 of 6 pods have an older template, because the Deployment is paused")
	w.says("web", "Stalled", "False", "OperatingNormally")
	w.runsMixed("web", old, 5, 1)

	w.restart()
	w.rounds(10)
	w.says("web", "Applied", "True", "Applied", "5 of 6 pods")
}

func TestAnOOMKillRaisesOldPodsOfAStuckRollout(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w, old := beforeRollout(t)
	w.change("web", "kubectl", func(d *appsv1.Deployment) {
		d.Spec.ProgressDeadlineSeconds = ptr.To(int32(2))
		d.Spec.Template.Spec.NodeSelector = map[string]string{"is": "nowhere"}
	})
	w.eventually(func() string {
		for _, c := range w.deployment("web").Status.Conditions {
			if c.Reason == "ProgressDeadlineExceeded" {
				return ""
			}
		}
		return "the rollout has not exceeded its deadline"
	})
	w.killedAndRaised(old, 5)
	w.says("web", "Applied", "True", "Applied", "5 of 5 pods have an older template, because the rollout exceeded its progress deadline")
	if pods := w.pods("web"); len(pods) != 6 {
		t.Errorf("%d pods: none may be evicted", len(pods))
	}

	// They stay, so that they get whatever is decided, too, and not only memory after a kill.
	w.uses("web", "app", 300, 64)
	w.eventually(func() string {
		for _, pod := range w.pods("web") {
			got := actual(pod, "app").Requests.Cpu()
			if pod.Status.Phase == corev1.PodRunning && got.MilliValue() < 300 {
				return fmt.Sprintf("pod %s has %s of CPU", pod.Name, got)
			}
		}
		return ""
	})

	// The user corrects the template: the rollout goes on, and the new pods get the size, too.
	w.change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Spec.NodeSelector = nil })
	requests := w.sized("web")
	if got := requests.Memory().String(); got != "512Mi" {
		t.Errorf("memory is %s", got)
	}
	w.remove(testkit.Scaler(w.namespace, "web", "web"))
}
