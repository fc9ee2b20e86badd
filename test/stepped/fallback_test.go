// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

func orRollout(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = "Rollout" }

func TestTheFallbackRollsTheDeploymentOut(t *testing.T) {
	t.Parallel()
	// rolledOut waits until all pods are new and have the decided size.
	rolledOut := func(w *fixture, before *appsv1.Deployment) {
		w.Helper()
		w.eventually(func() string {
			if d := w.Deployment("web"); d.Generation == before.Generation {
				return "the template is as it was"
			}
			return ""
		})
		requests := w.Sized("web")
		w.Between("cpu", *requests.Cpu(), "330m", "380m")
		w.Between("memory", *requests.Memory(), "307Mi", "309Mi")
		d := w.runs("web")
		ownsOnlyResources(w.t, d)
		if sets := w.sets("web"); len(sets) != 2 {
			w.Errorf("%d ReplicaSets: one rollout should leave two", len(sets))
		}
		if n := count(accepted(w.Writes()), "deployments"); total(n) != 1 {
			w.Errorf("writes of Deployments: %v", n)
		}
		w.Says("web", "Ready", "True", "OperatingNormally")
	}
	for name, tc := range map[string]struct {
		change func(*appsv1.Deployment)
		qos    corev1.PodQOSClass
	}{
		"where a container restarts for its memory": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: "RestartContainer"}}
		}, corev1.PodQOSBurstable},
		"where pods are BestEffort": {func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
		}, corev1.PodQOSBurstable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			before := w.deploy("web", tc.change)
			w.Uses("web", "app", 300, 240)
			w.scale("web", orRollout)
			rolledOut(w, before)
			for _, pod := range w.Pods("web") {
				if pod.Status.QOSClass != tc.qos {
					t.Errorf("pod %s is %s", pod.Name, pod.Status.QOSClass)
				}
			}
			w.Patch(testkit.Scaler(w.Namespace, "web", "web"), `{"spec":{"updatePolicy":{"fallback":"Wait"}}}`)
			w.restored(before)
			w.runs("web")
		})
	}
	t.Run("where no resize can ever fit the node", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		before := w.deploy("web")
		w.Kubelet.Script("web", 0, world.Infeasible)
		w.Uses("web", "app", 300, 240)
		w.scale("web", orRollout)
		rolledOut(w, before)
		mark := w.mark()
		w.Minutes(20)
		if writes := w.writes(mark); len(count(writes, "deployments"))+len(count(writes, "pods/resize")) > 0 {
			t.Error("the Deployment is still being written")
		}

		// The original values are restored when the scaler is deleted.
		w.Remove(testkit.Scaler(w.Namespace, "web", "web"))
		w.Gone(testkit.Scaler(w.Namespace, "web", "web"))
		w.restored(before)
		w.runs("web")
	})
}

// The kubelet retries indefinitely, and does not change the time of its condition when
// consecutive resizes have the same problem.
func TestTheFallbackWaitsForADeferredResize(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.deploy("web")
	held := w.Pods("web")[0]
	w.Kubelet.Script("web", 0, world.Deferred)
	w.Uses("web", "app", 300, 240)
	w.scale("web", orRollout)
	w.Says("web", "Applied", "False", "Deferred", held.Name, "room")

	w.saidBefore(held.Name, time.Hour)
	w.Minutes(6)
	w.Says("web", "Applied", "False", "Deferred", held.Name)
	if n := count(w.Writes(), "deployments"); total(n) > 0 || w.Deployment("web").Generation != before.Generation {
		t.Fatalf("rolled out at once: %v", n)
	}

	w.Minutes(6)
	if d := w.Deployment("web"); d.Generation == before.Generation {
		t.Fatalf("the template is as it was: %s", w.Condition("web", "Applied").Message)
	}
	w.Sized("web")
	originals := w.Scaler("web").Status.OriginalResources
	if originals == nil || originals.Containers[0].Requests.CPU.String() != "100m" {
		t.Errorf("the original values are %+v", originals)
	}
}

// A pod that declares what its node does not have keeps others from being scheduled there. So the
// resize is withdrawn after the grace, and the other pods have their turn.
func TestADeferredResizeIsWithdrawn(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	held := w.Pods("web")[0]
	before := held.Spec.Containers[0].Resources.Requests.Cpu()
	w.Kubelet.Script("web", 0, world.Deferred)
	w.Uses("web", "app", 300, 240)
	w.scale("web")
	w.Says("web", "Applied", "False", "Deferred", held.Name, "room")
	declares := func() *resource.Quantity { return w.Pods("web")[0].Spec.Containers[0].Resources.Requests.Cpu() }
	if now := declares(); now.Cmp(*before) <= 0 {
		t.Fatalf("the pod declares %s, and %s was expected to be more", now, before)
	}
	w.Minutes(6)
	if n := count(w.Writes(), "pods/resize"); total(n) != 1 {
		t.Errorf("resizes by pod, while one is deferred: %v", n)
	}

	w.Minutes(6)
	for _, pod := range w.Pods("web")[1:] {
		if got := world.Actual(&pod, "app").Requests.Cpu(); got.Cmp(resource.MustParse("330m")) < 0 {
			t.Errorf("pod %s has %s of CPU", pod.Name, got)
		}
	}
	if now := declares(); now.Cmp(*before) != 0 {
		t.Errorf("pod %s declares %s of CPU, and has %s", held.Name, now, before)
	}
	w.Says("web", "Applied", "False", "Deferred", held.Name)
	asked := total(count(w.Writes(), "pods/resize"))
	w.Minutes(60) // It is asked for again after the grace, which then withdraws it.
	if n := count(w.Writes(), "pods/resize"); total(n)-asked > 2*6 {
		t.Errorf("resizes by pod: %v, %d an hour before", n, asked)
	}
}

// saidBefore moves the kubelet's condition about the resize into the past.
func (w *fixture) saidBefore(name string, age time.Duration) {
	w.Helper()
	var pod corev1.Pod
	if err := w.Client.Get(w.Context(), w.Key(name), &pod); err != nil {
		w.Fatal(err)
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			c.LastTransitionTime = metav1.NewTime(w.Clock.Now().Add(-age))
		}
	}
	if err := w.Client.Status().Update(w.Context(), &pod); err != nil {
		w.Fatal(err)
	}
}

// Where the API server refuses the resize, the fallback follows at once: no event tells that.
func TestTheFallbackFollowsARefusedResize(t *testing.T) {
	t.Parallel()
	const onSmallNode = "example.com/small-node"
	for reason, change := range map[string]func(*corev1.PodTemplateSpec){
		"Unsupported":  func(pod *corev1.PodTemplateSpec) { pod.Spec.OS = &corev1.PodOS{Name: corev1.Windows} },
		"NodeCapacity": func(pod *corev1.PodTemplateSpec) { pod.Annotations = map[string]string{onSmallNode: "yes"} },
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w := newServed(t)
			small, large := w.node("small", "250m"), w.node("large", "8")
			w.Kubelet.Place = func(pod *corev1.Pod) string {
				if pod.Annotations[onSmallNode] != "" && world.Asked(pod, "app").Requests.Cpu().MilliValue() <= 250 {
					return small
				}
				return large
			}
			waiting := w.deploy("waiting", func(d *appsv1.Deployment) { change(&d.Spec.Template) })
			w.Uses("waiting", "app", 300, 240)
			w.scale("waiting")
			w.Says("waiting", "Applied", "False", reason)
			if d := w.Deployment("waiting"); d.Generation != waiting.Generation {
				t.Errorf("with the fallback Wait, the template has %+v", d.Spec.Template.Spec.Containers)
			}

			before := w.deploy("web", func(d *appsv1.Deployment) { change(&d.Spec.Template) })
			w.Uses("web", "app", 300, 240)
			w.scale("web", orRollout)
			w.Says("web", "RecommendationProvided", "True", "EnoughHistory")
			w.Minutes(2) // less than the resync period
			if w.Deployment("web").Generation == before.Generation {
				t.Errorf("the template is as it was: %+v", w.Condition("web", "Applied"))
			}
			w.Sized("web")
		})
	}
}
