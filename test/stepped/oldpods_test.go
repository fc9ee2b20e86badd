// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// revisions counts the running pods of each template, by pod-template-hash.
func (w *fixture) revisions(app string) map[string]int {
	w.Helper()
	out := map[string]int{}
	for _, pod := range w.Pods(app) {
		if pod.Status.Phase == corev1.PodRunning {
			out[pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]]++
		}
	}
	return out
}

// beforeRollout is a Deployment of five pods within their bounds, and its only revision.
func beforeRollout(t *testing.T) (w *fixture, revision string) {
	t.Helper()
	w = newFixture(t)
	w.deploy("web", twoContainers, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(5)) })
	w.Uses("web", "app", 50, 64)
	w.Uses("web", "agent", 50, 64)
	w.scale("web")
	w.Says("web", "Applied", "True", "WithinBounds")
	return w, slices.Collect(maps.Keys(w.revisions("web")))[0]
}

// killedAndRaised kills a pod of the old template. All running pods, so many, get the memory that follows from it, in
// place.
func (w *fixture) killedAndRaised(old string, pods int) {
	w.Helper()
	mark := w.mark()
	var victim corev1.Pod
	for _, pod := range w.Pods("web") {
		if pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey] == old {
			victim = pod // the last of them
		}
	}
	w.kill(&victim, "app")
	w.Settle()
	for _, pod := range w.Pods("web") {
		got := world.Actual(&pod, "app").Requests.Memory().String()
		if pod.Status.Phase == corev1.PodRunning && got != "512Mi" { // twice the limit of 256Mi, on the first day
			w.Errorf("pod %s has %s of memory", pod.Name, got)
		}
	}
	if got := w.Scaler("web").Status.Summary; got == nil || !strings.HasPrefix(got.Pods, fmt.Sprintf("%d/%d", pods, pods)) {
		w.Errorf("the summary is %+v", got)
	}
	if n := restarts(w.Pods("web")); len(n) != 1 || n[victim.Name+"/app"] != 1 {
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

func TestAnOOMKillRaisesOldPodsOfAPausedRollout(t *testing.T) {
	t.Parallel()
	w, old := beforeRollout(t)

	// A canary: one new pod, which is not ready, so that the rollout goes no further before the user pauses it.
	w.Kubelet.NotReady = func(pod *corev1.Pod) bool { return pod.Labels["canary"] != "" }
	w.Change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Labels["canary"] = "yes" })
	w.Settle()
	w.Says("web", "Applied", "False", "RolloutInProgress", "5 of 6 pods have an older template")
	w.Change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Paused = true })
	w.Settle()
	w.Says("web", "Applied", "True", "WithinBounds")

	w.killedAndRaised(old, 6)
	w.Says("web", "Applied", "True", "Applied", "5 of 6 pods have an older template, because the Deployment is paused")
	w.Says("web", "Stalled", "False", "OperatingNormally")
	if all := w.revisions("web"); all[old] != 5 || len(all) != 2 {
		t.Errorf("pods by template: %v", all)
	}

	mark := w.mark()
	w.Restart()
	w.Minutes(10)
	w.Says("web", "Applied", "True", "Applied", "5 of 6 pods")
	if n := count(w.writes(mark), "pods/resize"); total(n) > 0 {
		t.Errorf("resized again after a restart: %v", n)
	}
}
