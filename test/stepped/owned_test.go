// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

const (
	ownerLabel   = "autoscaling.verticalscaler.io/scaled-deployment"
	appliedStamp = "autoscaling.verticalscaler.io/applied"
)

func named(deployment string) func(*v1beta1.ScaledDeployment) {
	return func(o *v1beta1.ScaledDeployment) { o.Spec.DeploymentName = deployment }
}

// edit changes a ScaledDeployment as its user does.
func (w *fixture) edit(name string, f func(*v1beta1.ScaledDeployment)) {
	w.Helper()
	o := w.Owner(name)
	before := o.DeepCopy()
	f(o)
	must.Succeed(w, w.Client.Patch(w.t.Context(), o, client.MergeFrom(before)))
}

// notesOf are the notes of the events about an object with that reason.
func (w *fixture) notesOf(uid types.UID, reason string) (notes []string) {
	for _, e := range w.Events(uid) {
		if e.Reason == reason {
			notes = append(notes, e.Note)
		}
	}
	return notes
}

// asksFor fails unless the first container of the Deployment's template has these requests.
func (w *fixture) asksFor(d *appsv1.Deployment, cpu, memory string) {
	w.Helper()
	r := d.Spec.Template.Spec.Containers[0].Resources.Requests
	if r.Cpu().String() != cpu || r.Memory().String() != memory {
		w.Errorf("the template of Deployment %s asks for %s and %s, not %s and %s", d.Name, r.Cpu(), r.Memory(), cpu, memory)
	}
}

// inBothModes runs a test for pods that are resized in place, and for a template that a scaler takes over.
func inBothModes(t *testing.T, f func(t *testing.T, w *fixture, mode v1beta1.UpdateMode)) {
	t.Helper()
	for _, mode := range []v1beta1.UpdateMode{"InPlace", "Rollout"} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.Uses("web", "app", 300, 240)
			w.Own("web", world.Scaled(mode))
			w.Sized("web")
			f(t, w, mode)
		})
	}
}

func TestDriftIsReverted(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	tests := map[string]struct {
		drift string // a merge patch of the Deployment
		// quiet: the spec does not change, so there is no event.
		quiet bool
	}{
		"replicas":      {drift: `{"spec":{"replicas":7}}`},
		"no-replicas":   {drift: `{"spec":{"replicas":null}}`},
		"image":         {drift: `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/other:2"}]}}}}`},
		"env":           {drift: `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/app:1","env":[{"name":"LEVEL","value":"debug"}]}]}}}}`},
		"no-env":        {drift: `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/app:1"}]}}}}`},
		"requests":      {drift: `{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"example.com/app:1","resources":{"requests":{"cpu":"1m"}}}]}}}}`},
		"pod-labels":    {drift: `{"spec":{"template":{"metadata":{"labels":{"tier":"back"}}}}}`},
		"grace":         {drift: `{"spec":{"template":{"spec":{"terminationGracePeriodSeconds":9}}}}`},
		"tolerations":   {drift: `{"spec":{"template":{"spec":{"tolerations":[{"key":"a","operator":"Exists"},{"key":"b","operator":"Exists"}]}}}}`},
		"label":         {drift: `{"metadata":{"labels":{"` + ownerLabel + `":"other"}}}`, quiet: true},
		"no-label":      {drift: `{"metadata":{"labels":null}}`, quiet: true},
		"annotation":    {drift: `{"metadata":{"annotations":{"` + appliedStamp + `":"0"}}}`, quiet: true},
		"no-annotation": {drift: `{"metadata":{"annotations":{"` + appliedStamp + `":null}}}`, quiet: true},
	}
	for name := range tests {
		w.Add(w.NewOwner(name, func(o *v1beta1.ScaledDeployment) {
			template := &o.Spec.Template
			template.Labels["tier"] = "front"
			template.Spec.TerminationGracePeriodSeconds = ptr.To(int64(5))
			template.Spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}}
			template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LEVEL", Value: "info"}, {Name: "ZONE", Value: "a"}}
		}))
	}
	w.Settle()
	before := map[string]*appsv1.Deployment{}
	for name, tc := range tests {
		before[name] = w.Settled(name)
		w.Patch(testkit.Deployment(w.Namespace, name), "%s", tc.drift)
	}
	w.Settle()
	for name, tc := range tests {
		before, now := before[name], w.Settled(name)
		if now.Labels[ownerLabel] != name || now.Annotations[appliedStamp] != before.Annotations[appliedStamp] {
			t.Errorf("%s: labels %v, annotations %v", name, now.Labels, now.Annotations)
		}
		assert.Equal(t, "the Deployment "+name, before.Spec, now.Spec)
		notes := w.notesOf(w.Owner(name).UID, "Updated")
		if want := []string{"Updated Deployment " + name}; tc.quiet && len(notes) > 0 || !tc.quiet && !slices.Equal(notes, want) {
			t.Errorf("%s: events: %q", name, notes)
		}
	}
}

// The owner does not manage fields that it does not set.
func TestWhatOthersAddStays(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.Own("web")
	w.Patch(testkit.Deployment(w.Namespace, "web"), `{"metadata":{"labels":{"team":"shop"},"annotations":{"note":"x"}},"spec":{
		"minReadySeconds":1,"revisionHistoryLimit":3,"strategy":{"rollingUpdate":{"maxSurge":2}},
		"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"2026-03-01T12:00:00Z"}}}}}`)
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Replicas = ptr.To(int32(2)) })
	d := w.Settled("web")
	if d.Labels["team"] != "shop" || d.Annotations["note"] != "x" || d.Spec.MinReadySeconds != 1 || *d.Spec.RevisionHistoryLimit != 3 ||
		d.Spec.Strategy.RollingUpdate.MaxSurge.IntValue() != 2 || d.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
		t.Errorf("the Deployment is %+v, %+v", d.ObjectMeta, d.Spec)
	}
}

func TestTheScalerIsKeptAsSpecified(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, w *fixture, _ v1beta1.UpdateMode) {
		t.Helper()
		owner := w.Owner("web")
		// Changed by a user.
		w.Patch(testkit.Scaler(w.Namespace, "web", ""), `{"metadata":{"labels":null},"spec":{"deploymentName":"other","updatePolicy":{"cooldownSeconds":77}}}`)
		w.Settle()
		if s := w.Scaler("web"); s.Labels[ownerLabel] != "web" || s.Spec.DeploymentName != "web" || *s.Spec.UpdatePolicy.CooldownSeconds != 0 {
			t.Errorf("the scaler is %+v, labelled %v", s.Spec, s.Labels)
		}
		w.Noted(owner.UID, "Updated", "Updated VerticalScaler web")
		w.OwnerReports("web", "Sized", "True", "OperatingNormally")

		// Changed by its owner.
		w.edit("web", func(o *v1beta1.ScaledDeployment) {
			o.Spec.Scaling.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
				ContainerName: "*", MinAllowed: &v1beta1.ResourceBounds{CPU: ptr.To(resource.MustParse("500m"))},
			}}}
		})
		w.Until(func() string {
			if got := w.Sized("web"); got.Cpu().String() != "500m" {
				return "cpu is " + got.Cpu().String()
			}
			return ""
		})

		// Deleted.
		before := w.Scaler("web")
		w.Remove(testkit.Scaler(w.Namespace, "web", ""))
		w.Settled("web")
		if now := w.Scaler("web"); now.UID == before.UID {
			t.Error("the scaler is not recreated")
		}
		w.OwnerReports("web", "Sized", "True", "OperatingNormally")
	})
}

func TestScalingIsRemovedCleanly(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, w *fixture, mode v1beta1.UpdateMode) {
		t.Helper()
		owner := w.Owner("web")
		if held := w.Scaler("web").Status.OriginalResources != nil; held != (mode == "Rollout") {
			t.Errorf("the scaler has taken over the template: %t", held)
		}
		// The user changes the template's resources after a scaler has taken them over.
		w.edit("web", func(o *v1beta1.ScaledDeployment) {
			o.Spec.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("150m")
		})
		w.Settled("web")
		w.Sized("web")
		if mode == "Rollout" {
			if got := w.Deployment("web").Spec.Template.Spec.Containers[0].Resources.Requests.Cpu(); got.Cmp(resource.MustParse("330m")) < 0 {
				t.Errorf("the template asks for %s", got)
			}
		}

		w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Scaling = nil })
		w.Gone(testkit.Scaler(w.Namespace, "web", ""))
		w.Noted(owner.UID, "Deleted", "Deleted VerticalScaler web")
		d := w.Settled("web")
		for _, entry := range d.ManagedFields {
			if entry.Manager == "verticalscaler" {
				t.Errorf("verticalscaler still manages %s", entry.FieldsV1.GetRawBytes())
			}
		}
		w.asksFor(d, "150m", "128Mi")
		if limits := d.Spec.Template.Spec.Containers[0].Resources.Limits; limits.Cpu().String() != "200m" || limits.Memory().String() != "256Mi" {
			t.Errorf("the template's limits are %v", limits)
		}
		if c := meta.FindStatusCondition(w.Owner("web").Status.Conditions, "Sized"); c != nil {
			t.Errorf("there is still a condition Sized: %+v", c)
		}
		// From now on, the owner manages the template's resources.
		w.edit("web", func(o *v1beta1.ScaledDeployment) {
			o.Spec.Template.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("160m")
		})
		w.asksFor(w.Settled("web"), "160m", "128Mi")
	})
}

// Containers are added and removed after a scaler has taken over the template.
func TestTemplatesChangeAfterAScalerTookOverResources(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.Uses("web", "app", 300, 240)
	w.Uses("web", "side", 200, 200)
	w.Own("web", world.Scaled("Rollout"))
	w.Sized("web")
	w.edit("web", func(o *v1beta1.ScaledDeployment) {
		// In front, so that the index of every container changes.
		o.Spec.Template.Spec.Containers = append([]corev1.Container{testkit.Container("side")}, o.Spec.Template.Spec.Containers...)
		o.Spec.Template.Spec.InitContainers = []corev1.Container{testkit.Container("init")}
	})
	w.Until(func() string {
		s := w.Scaler("web")
		if s.Status.OriginalResources == nil || len(s.Status.OriginalResources.Containers) != 2 {
			return fmt.Sprintf("held: %+v", s.Status.OriginalResources)
		}
		return ""
	})
	w.Sized("web")
	d := w.Settled("web")
	for i, name := range []string{"side", "app"} {
		if got := d.Spec.Template.Spec.Containers[i].Name; got != name {
			t.Errorf("container %d is %s", i, got)
		}
	}
	w.Between("cpu of app", *d.Spec.Template.Spec.Containers[1].Resources.Requests.Cpu(), "330m", "380m")
	w.edit("web", func(o *v1beta1.ScaledDeployment) {
		o.Spec.Template.Spec.Containers = o.Spec.Template.Spec.Containers[:1] // "app" is removed
		o.Spec.Template.Spec.InitContainers = nil
	})
	if got := w.Settled("web").Spec.Template.Spec; len(got.Containers) != 1 || got.Containers[0].Name != "side" || len(got.InitContainers) > 0 {
		t.Errorf("the template is %+v", got)
	}
	w.edit("web", func(o *v1beta1.ScaledDeployment) { o.Spec.Scaling = nil })
	w.Gone(testkit.Scaler(w.Namespace, "web", ""))
	w.asksFor(w.Settled("web"), "100m", "128Mi")
}
