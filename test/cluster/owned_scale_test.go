// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// These tests change a ScaledDeployment or its pods by other means: kubectl, a
// HorizontalPodAutoscaler, a scaler, and a user with many edits.

// kubectl runs kubectl in the namespace and returns its output.
func (w *fixture) kubectl(arguments ...string) string {
	w.Helper()
	arguments = append([]string{"--kubeconfig", env.Kubeconfig(), "--namespace", w.namespace}, arguments...)
	out, err := exec.CommandContext(w.Context(), env.Kubectl(), arguments...).CombinedOutput()
	if err != nil {
		w.Fatalf("kubectl %s: %v: %s", strings.Join(arguments[4:], " "), err, out)
	}
	return string(out)
}

func TestKubectlScalesAndWaits(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.own("web", named("other"))
	w.kubectl("scale", "scaleddeployment/web", "--replicas=5")
	w.kubectl("wait", "sdeploy/web", "--for=jsonpath={.status.availableReplicas}=5", "--timeout="+soon.String())
	if d := w.settled("web"); *d.Spec.Replicas != 5 {
		t.Errorf("there are %d replicas", *d.Spec.Replicas)
	}
	w.kubectl("scale", "sdeploy/web", "--current-replicas=5", "--replicas=2")
	w.settled("web")
	w.kubectl("wait", "sdeploy/web", "--for=condition=Ready", "--timeout="+soon.String())
	got := strings.Fields(strings.Split(w.kubectl("get", "sdeploy", "web", "-o", "wide"), "\n")[1])
	if got = append(got[:5:5], got[6:]...); strings.Join(got, " ") != "web 2 2 2 True "+strings.Join(got[5:], " ") || !strings.Contains(strings.Join(got, " "), "other") {
		t.Errorf("kubectl get shows %q", got)
	}
	if got := w.kubectl("get", "--raw", fmt.Sprintf("/apis/autoscaling.verticalscaler.io/v1beta1/namespaces/%s/scaleddeployments/web/scale", w.namespace)); !strings.Contains(got, `"selector":"`+ownerLabel+`=web"`) || !strings.Contains(got, `"status":{"replicas":2`) {
		t.Errorf("the scale is %s", got)
	}
}

func hpaOn(w *fixture, name string, least, most int32, metric autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "autoscaling.verticalscaler.io/v1beta1", Kind: "ScaledDeployment", Name: name},
			MinReplicas:    ptr.To(least), MaxReplicas: most, Metrics: []autoscalingv2.MetricSpec{metric},
		},
	}
}

func utilization(of corev1.ResourceName) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: of, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(int32(80))},
	}}
}

// There are no metrics here, so the real HPA controller can only enforce its minimum and
// maximum.
func TestAnHPAScalesTheOwner(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.own("web")
	w.own("api")
	w.create(hpaOn(w, "web", 5, 8, utilization("cpu")))
	w.create(hpaOn(w, "api", 1, 2, utilization("cpu")))
	for name, want := range map[string]int32{"web": 5, "api": 2} {
		w.eventually(func() string {
			if n := *w.owner(name).Spec.Replicas; n != want {
				return fmt.Sprintf("%s has %d replicas, not %d", name, n, want)
			}
			return ""
		})
		if d := w.settled(name); *d.Spec.Replicas != want {
			t.Errorf("Deployment %s has %d replicas", name, *d.Spec.Replicas)
		}
		w.eventually(func() string {
			var hpa autoscalingv2.HorizontalPodAutoscaler
			if err := env.Client.Get(t.Context(), w.key(name), &hpa); err != nil || hpa.Status.CurrentReplicas != want {
				return fmt.Sprintf("the HPA sees %d replicas: %v", hpa.Status.CurrentReplicas, err)
			}
			return ""
		})
	}
}

// If the operator reverted the HPA's changes, pods would be killed and started at every
// check of the HPA.
func TestAnHPAOnTheDeploymentItselfWins(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.own("web")
	hpa := hpaOn(w, "web", 5, 8, utilization("cpu"))
	hpa.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	w.create(hpa)
	w.eventually(func() string {
		o := w.owner("web")
		if o.Status.AvailableReplicas != 5 {
			return fmt.Sprintf("there are %d pods", o.Status.AvailableReplicas)
		}
		c := meta.FindStatusCondition(o.Status.Conditions, "Ready")
		if c == nil || c.Status != "True" || !strings.Contains(c.Message, "HorizontalPodAutoscaler web") {
			return fmt.Sprintf("the owner says %+v", c)
		}
		return ""
	})
	mark := env.Mark()
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.Containers[0].Image = "registry.example/app:2" })
	w.eventually(func() string {
		if d := w.deployment("web"); d.Spec.Template.Spec.Containers[0].Image != "registry.example/app:2" || d.Status.UpdatedReplicas != 5 || d.Status.Replicas != 5 {
			return "the new image is not on all five pods"
		}
		return ""
	})
	if n := count(accepted(w.writes(mark)), "deployments"); total(n) != 1 {
		t.Errorf("writes of the Deployment for one new image: %v", n)
	}
	// Only the owner scales to zero and back: an HPA does neither.
	for _, n := range []int32{0, 3} {
		w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = &n })
		w.eventually(func() string {
			if got := *w.deployment("web").Spec.Replicas; got < n || (n == 0) != (got == 0) {
				return fmt.Sprintf("there are %d replicas, and the owner says %d", got, n)
			}
			return ""
		})
	}
	// The HPA now targets another object.
	w.patch(hpa, `{"spec":{"scaleTargetRef":{"name":"other"}}}`)
	w.eventually(func() string {
		if d := w.deployment("web"); *d.Spec.Replicas != 3 {
			return fmt.Sprintf("there are %d replicas, and no HPA", *d.Spec.Replicas)
		}
		return ""
	})
	w.settled("web")
}

func TestAnHPAOnTheOwnerKeepsItsResource(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.uses("web", "app", 300, 240)
	w.own("web", named("other"), scaled("InPlace"), func(o *v1beta1.ScaledDeployment) {
		o.Spec.Template.Spec.Containers[0].Resources.Limits = nil
	})
	w.sized("web")
	hpa := hpaOn(w, "web", 3, 5, utilization("cpu"))
	w.create(hpa)
	w.says("web", "Applied", "True", "HPAConflict", "web", "cpu")
	w.uses("web", "app", 600, 500)
	w.eventually(func() string {
		for _, pod := range w.pods("web") {
			now := actual(pod, "app").Requests
			if now.Cpu().Cmp(resource.MustParse("600m")) >= 0 {
				t.Fatalf("pod %s has %s of cpu", pod.Name, now.Cpu())
			}
			if now.Memory().Cmp(resource.MustParse("600Mi")) < 0 {
				return "pod " + pod.Name + " has " + now.Memory().String()
			}
		}
		return ""
	})
	w.remove(hpa)
	w.eventually(func() string {
		for _, pod := range w.pods("web") {
			if now := actual(pod, "app").Requests.Cpu(); now.Cmp(resource.MustParse("600m")) < 0 {
				return "pod " + pod.Name + " has " + now.String()
			}
		}
		return ""
	})
	w.ownerSays("web", "Sized", "True", "OperatingNormally")
}

func TestTheResourcesOfARunningScalerSurviveAHundredEdits(t *testing.T) {
	t.Parallel()
	env.NeedAudit(t)
	const edits = 100
	w := newFixture(t)
	for _, mode := range []v1beta1.UpdateMode{"InPlace", "Rollout"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w, name := w.in(t), strings.ToLower(string(mode))
			w.uses(name, "app", 300, 240)
			w.own(name, scaled(mode), func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = ptr.To(int32(1)) })
			w.sized(name)
			w.settled(name)
			w.ownerSays(name, "Sized", "True", "OperatingNormally")
			want := w.deployment(name).Spec.Template.Spec.Containers[0].Resources
			if taken := want.Requests.Cpu().Cmp(resource.MustParse("330m")) >= 0; taken != (mode == "Rollout") {
				t.Fatalf("the template asks for %v", want.Requests)
			}
			decision := w.scaler(name).Status.Decision
			mark := env.Mark()
			var seen atomic.Int32
			until := w.follow(func(event watch.Event, d *appsv1.Deployment) {
				if d.Name != name || event.Type != watch.Modified {
					return
				}
				seen.Add(1)
				if got := d.Spec.Template.Spec.Containers[0].Resources; got.Requests.Cpu().Cmp(*want.Requests.Cpu()) != 0 || got.Requests.Memory().Cmp(*want.Requests.Memory()) != 0 ||
					got.Limits.Cpu().Cmp(*want.Limits.Cpu()) != 0 || got.Limits.Memory().Cmp(*want.Limits.Memory()) != 0 {
					w.Errorf("edit %s: the template has %+v, not %+v", d.Spec.Template.Annotations["edit"], got, want)
				}
			})
			for i := range edits {
				w.edit(name, func(o *v1beta1.ScaledDeployment) {
					template := &o.Spec.Template
					template.Annotations = map[string]string{"edit": fmt.Sprint(i)}
					app := &template.Spec.Containers[0]
					switch i % 5 {
					case 0:
						app.Image = fmt.Sprintf("example.com/app:%d", i)
					case 1:
						app.Env = append(app.Env, corev1.EnvVar{Name: fmt.Sprintf("E%d", i), Value: "x"})
					case 2:
						app.Args = []string{fmt.Sprint(i)}
					case 3:
						app.Env = nil
					case 4:
						template.Labels["edit"] = fmt.Sprint(i)
					}
				})
				if i%10 == 0 { // some edits in quick succession, some one by one
					w.eventually(func() string {
						if got := w.deployment(name).Spec.Template.Annotations["edit"]; got != fmt.Sprint(i) {
							return fmt.Sprintf("the Deployment has edit %s, not %d", got, i)
						}
						return ""
					})
				}
			}
			until(func(_ watch.Event, d *appsv1.Deployment) bool {
				return d.Name == name && d.Spec.Template.Annotations["edit"] == fmt.Sprint(edits-1)
			})
			w.settled(name)
			w.sized(name)
			w.ownerSays(name, "Sized", "True", "OperatingNormally")

			s := w.scaler(name)
			if got := s.Status.Decision; got.Reverts != 0 || !got.Time.Equal(&decision.Time) {
				t.Errorf("the decision was %+v and is %+v", decision, got)
			}
			for _, c := range s.Status.Conditions {
				if c.Reason == "Contested" || c.Reason == "Conflict" {
					t.Errorf("%s is %s: %s", c.Type, c.Reason, c.Message)
				}
			}
			// At most one write for each edit: neither controller has reverted the other's writes.
			written := count(accepted(w.writes(mark)), "deployments")[name]
			t.Logf("%d edits, %d writes of the Deployment, %d changes of it", edits, written, seen.Load())
			if written > edits {
				t.Errorf("%d writes of the Deployment for %d edits", written, edits)
			}
			for _, entry := range w.deployment(name).ManagedFields {
				if fields := string(entry.FieldsV1.GetRawBytes()); entry.Manager == "scaleddeployment" && strings.Contains(fields, "f:requests") == (mode == "Rollout") {
					t.Errorf("scaleddeployment manages %s", fields)
				}
			}
		})
	}
}

// A rollout by a scaler is not a change of the owner's spec, so the operator emits no event
// about an update.
func TestATakenOverTemplateIsNoDrift(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.uses("web", "app", 300, 240)
	owner := w.own("web", scaled("Rollout"))
	w.sized("web")
	w.settled("web")
	w.ownerSays("web", "Sized", "True", "OperatingNormally")
	if n := len(w.sets("web")); n != 2 {
		t.Errorf("%d ReplicaSets: one rollout should leave two", n)
	}
	if n := w.eventsOf(owner.UID, "Updated"); len(n) > 0 {
		t.Errorf("events: %q", n)
	}
}
