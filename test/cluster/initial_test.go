// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// newPods sizes new pods: it installs the policy, which all tests share.
func newPods(t *testing.T) *fixture {
	t.Helper()
	must.Succeed(t, env.InstallComponents(t.Context(), "new-pods"))
	return newFixture(t)
}

// published are the Deployments of this namespace whose sizes the API server is told, by their names.
func (w *fixture) published() (names []string) {
	w.Helper()
	var list v1beta1.NewPodSizesList
	must.Succeed(w, env.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)))
	for i := range list.Items {
		for line := range strings.SplitSeq(strings.Trim(list.Items[i].Spec.Deployments, "\n"), "\n") {
			name := admission.DeploymentOf(line)
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// hasSizesOf waits until the API server is told the sizes of exactly these Deployments.
func (w *fixture) hasSizesOf(names ...string) {
	w.Helper()
	w.eventually(func() string {
		if got := w.published(); fmt.Sprint(got) != fmt.Sprint(names) {
			return fmt.Sprintf("the API server is told the sizes of %q, not of %q", got, names)
		}
		return ""
	})
}

// The default mode sizes running pods in place and new ones when they are created. With the operator away, they still get
// their last size.
func TestInPlaceSizesNewPods(t *testing.T) {
	t.Parallel()
	w := newPods(t)
	w.deploy("web", withProxy)
	w.uses("web", "app", 300, 240)
	w.uses("web", "proxy", 200, 100)
	w.Scale("web", sizingNewPods)
	w.hasSizesOf("web")
	w.Reports("web", "Applied", "True", "Applied")
	w.Reports("web", "NewPodsSized", "True", "Applied")
	asCreated := func(what string) {
		t.Helper()
		for _, pod := range w.Pods("web") {
			if pod.Generation != 1 {
				t.Errorf("%s: pod %s was resized after it was created", what, pod.Name)
			}
			w.Between(what+", app", *world.Asked(&pod, "app").Requests.Cpu(), "320m", "390m")
			w.Between(what+", proxy", *world.Asked(&pod, "proxy").Requests.Cpu(), "210m", "280m")
		}
	}
	w.untilNewPodsAreSized("web")
	w.change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/app:2" })
	w.runs("web")
	asCreated("after a rollout")

	w.operator.Stop(t)
	w.change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/app:3" })
	w.runs("web")
	asCreated("without the operator")
	w.start()
	w.Reports("web", "Applied", "True", "Applied")
	mark := env.Mark()
	w.rounds(20)
	if writes := w.writes(mark); len(writes) > 2 {
		t.Errorf("the operator does not become idle: %v", writes)
	}

	w.Patch(testkit.Scaler(w.Namespace, "web", "web"), `{"spec":{"updatePolicy":{"newPods":"AsTemplate"}}}`)
	w.hasSizesOf()
	w.eventually(func() string {
		if s := w.Scaler("web"); s.Status.NewPods != nil || meta.FindStatusCondition(s.Status.Conditions, "NewPodsSized") != nil {
			return fmt.Sprintf("the status still has %+v", s.Status)
		}
		return ""
	})
}

// The node has room for a pod with the template's requests, but not with the decided ones. The new pod is unschedulable,
// and the rollout is stuck until the operator reduces the pod's requests.
func TestARolloutWithoutRoomEnds(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newPods(t)
	w.node("only-"+w.Namespace, "4")
	w.deploy("web", withProxy, func(d *appsv1.Deployment) {
		spec := &d.Spec.Template.Spec
		spec.NodeSelector = map[string]string{"test": w.Namespace}
		spec.Tolerations = []corev1.Toleration{{Key: "test", Operator: corev1.TolerationOpExists}}
	})
	w.uses("web", "app", 300, 240)
	w.uses("web", "proxy", 200, 100)
	w.Scale("web", sizingNewPods)
	w.Reports("web", "NewPodsSized", "True", "Applied")
	w.Sized("web")
	w.untilNewPodsAreSized("web")
	w.Sized("web")
	w.fillUpTo("only-"+w.Namespace, "300m")
	decided := world.Asked(&w.Pods("web")[0], "app").Requests.Cpu()

	w.change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/app:2" })
	var waiting corev1.Pod
	w.eventually(func() string {
		for _, pod := range w.Pods("web") {
			if slices.ContainsFunc(pod.Status.Conditions, workload.IsUnschedulable) {
				waiting = pod
				return ""
			}
		}
		return "all pods have a node"
	})
	if got := world.Asked(&waiting, "app").Requests.Cpu(); got.Cmp(*decided) != 0 {
		t.Fatalf("the new pod requests %s, and %s were decided", got, decided)
	}
	w.Reports("web", "NewPodsSized", "False", "NodeCapacity", "finds no node")
	w.hasSizesOf() // so that later pods start as in the template
	if pod := w.pod(waiting.Name); pod.Generation != waiting.Generation {
		t.Errorf("the pod was changed at once: %+v", pod.Spec)
	}
	w.backdate(waiting.Name, 6*time.Minute, workload.IsUnschedulable)
	w.runs("web")
	if first := w.pod(waiting.Name); first.UID != waiting.UID {
		t.Error("the pod that waited was replaced")
	}
	w.noted(w.Deployment("web").UID, "SetBack", waiting.Name)

	// Where there is room later, they get their size in place.
	w.Remove(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "filler"}})
	w.Sized("web")
}

// With the operator gone, the garbage collector deletes the sizes of new pods after their scalers. A Deployment that is created again
// starts as in its template.
func TestSizesOfNewPodsEndWithoutTheOperator(t *testing.T) {
	t.Parallel()
	w := newPods(t)
	d := w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.Scale("web", sizingNewPods)
	w.hasSizesOf("web")
	w.untilNewPodsAreSized("web")
	w.operator.Stop(t)
	w.Remove(w.Scaler("web"))
	w.Remove(d)
	w.gone(d)
	w.hasSizesOf()
	w.deploy("web")
	w.untilNewPodsHave("web", func(cpu string) bool { return cpu == "100m" })
}

// untilNewPodsAreSized waits until new pods have another CPU request than the template's.
func (w *fixture) untilNewPodsAreSized(name string) {
	w.Helper()
	w.untilNewPodsHave(name, func(cpu string) bool { return cpu != "100m" })
}

// untilNewPodsHave deletes pods until a replacement is created with such a CPU request. The condition NewPodsSized is about the status;
// the API server learns of the sizes within seconds.
func (w *fixture) untilNewPodsHave(name string, isRight func(cpu string) bool) {
	w.Helper()
	w.eventually(func() string {
		pod := w.Pods(name)[0]
		w.Remove(&pod)
		w.gone(&pod)
		w.runs(name)
		for _, pod := range w.Pods(name) {
			if pod.Generation == 1 && isRight(world.Asked(&pod, "app").Requests.Cpu().String()) {
				return ""
			}
		}
		return "no new pod has such a size"
	})
}

func sizingNewPods(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.NewPods = v1beta1.NewPodsSized }
