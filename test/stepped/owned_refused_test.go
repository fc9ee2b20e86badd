// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// quotaOfDeployments lets the namespace have so many Deployments, and plays the quota's controller, which counts them.
func (w *fixture) quotaOfDeployments(most, used string) {
	w.Helper()
	list := func(n string) corev1.ResourceList {
		return corev1.ResourceList{"count/deployments.apps": resource.MustParse(n)}
	}
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "team"}}
	if _, err := controllerutil.CreateOrUpdate(w.t.Context(), w.Client, q, func() error {
		q.Spec.Hard = list(most)
		return nil
	}); err != nil {
		w.Fatal(err)
	}
	q.Status = corev1.ResourceQuotaStatus{Hard: list(most), Used: list(used)}
	must.Succeed(w, w.Client.Status().Update(w.t.Context(), q))
}

func TestAForeignDeploymentIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		// make creates a Deployment with that name.
		make  func(w *fixture, name string)
		whose string
		// free makes the name available.
		free func(w *fixture, name string)
	}{
		"uncontrolled": {
			make:  func(w *fixture, name string) { w.deploy(name) },
			whose: "has no controller",
			free:  func(w *fixture, name string) { w.Remove(testkit.Deployment(w.Namespace, name)) },
		},
		"by-a-stranger": {
			make: func(w *fixture, name string) {
				boss := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "boss"}}
				w.Add(boss)
				w.deploy(name, func(d *appsv1.Deployment) {
					d.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(boss, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
				})
			},
			whose: "is controlled by ConfigMap boss",
			free: func(w *fixture, _ string) {
				w.Remove(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "boss"}})
			},
		},
		"by-another": {
			make:  func(w *fixture, name string) { w.Own("first", named(name)) },
			whose: "is controlled by ScaledDeployment first",
			free:  func(w *fixture, _ string) { w.edit("first", named("")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			tc.make(w, name)
			before, mark := w.Deployment(name), w.mark()
			// The template differs, so that a takeover would be visible.
			w.Add(w.NewOwner(name, world.Scaled("InPlace"), func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.Containers[0].Image = "example.com/mine:1" }))
			what := fmt.Sprintf("Deployment %s already exists and %s", name, tc.whose)
			w.OwnerReports(name, "Stalled", "True", "NotControlled", what)
			w.OwnerReports(name, "Ready", "False", "NotControlled", what)
			w.OwnerReports(name, "Reconciling", "False", "OperatingNormally")
			owner := w.Owner(name)

			// Every event triggers a reconcile, and its result stays the same.
			w.Patch(owner, `{"spec":{"replicas":4}}`)
			w.Settle()
			w.OwnerReports(name, "Stalled", "True", "NotControlled", what)
			if n := w.notesOf(owner.UID, "Refused"); len(n) != 1 || !strings.HasPrefix(n[0], "NotControlled: "+what) {
				t.Errorf("events: %q", n)
			}
			assert.Equal(t, "the Deployment", before, w.Deployment(name))
			for _, write := range w.writes(mark) {
				if write.Name == name && !strings.HasPrefix(write.Resource, "scaleddeployments") {
					t.Errorf("written: %s", write)
				}
			}
			if got := w.Owner(name).Status; got.Replicas != 0 {
				t.Errorf("%d pods of the foreign Deployment are counted", got.Replicas)
			}

			tc.free(w, name)
			w.OwnerReports(name, "Stalled", "False", "OperatingNormally")
			d := w.Settled(name)
			if got := d.Spec.Template.Spec.Containers[0].Image; got != "example.com/mine:1" || *d.Spec.Replicas != 4 {
				t.Errorf("the Deployment runs %s, %d times", got, *d.Spec.Replicas)
			}
			w.Reports(name, "TargetFound", "True", "DeploymentFound")
		})
	}
}

func TestAForeignScalerIsLeftAlone(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.Scale("web", world.InMode("Recommend"))
	before := w.Scaler("web")
	w.Add(w.NewOwner("web", world.Scaled("InPlace")))
	w.OwnerReports("web", "Stalled", "True", "NotControlled", "VerticalScaler web already exists and has no controller")
	w.runs("web") // the Deployment is created all the same
	owner := w.Owner("web")
	w.Noted(owner.UID, "Refused", "VerticalScaler web")
	if now := w.Scaler("web"); now.Generation != before.Generation || len(now.OwnerReferences)+len(now.Labels)+len(now.Annotations) > 0 {
		t.Errorf("the scaler was changed: %+v", now)
	}
	// Without scaling, no scaler is needed.
	w.Patch(owner, `{"spec":{"scaling":null}}`)
	w.Settled("web")
	if now := w.Scaler("web"); now.DeletionTimestamp != nil {
		t.Error("the scaler was deleted")
	}
	w.edit("web", world.Scaled("InPlace"))
	w.OwnerReports("web", "Stalled", "True", "NotControlled", "VerticalScaler web")
	w.Remove(testkit.Scaler(w.Namespace, "web", ""))
	w.Settled("web")
	w.OwnerReports("web", "Stalled", "False", "OperatingNormally")
	if now := w.Scaler("web"); !metav1.IsControlledBy(now, owner) {
		t.Errorf("the scaler is controlled by %v", now.OwnerReferences)
	}
}
