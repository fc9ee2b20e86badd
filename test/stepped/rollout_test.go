// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// revision returns the revision of a Deployment's latest rollout.
const revision = "deployment.kubernetes.io/revision"

// ownsOnlyResources fails unless the operator owns only resources of the Deployment, and none
// of its containers.
func ownsOnlyResources(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	found := false
	for _, entry := range d.ManagedFields {
		if entry.Manager != "verticalscaler" {
			continue
		}
		if found || entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.Subresource != "" {
			t.Errorf("managed by %s %s %s", entry.Manager, entry.Operation, entry.Subresource)
		}
		found = true
		set := &fieldpath.Set{}
		must.Succeed(t, set.FromJSON(bytes.NewReader(entry.FieldsV1.GetRawBytes())))
		set.Iterate(func(path fieldpath.Path) {
			p := path.String()
			isResource := strings.HasPrefix(p, ".spec.template.spec.containers[name=") && strings.Contains(p, "].resources.")
			if !isResource {
				t.Errorf("the operator owns %s", p)
			}
		})
	}
	if !found {
		t.Error("no field is managed by verticalscaler")
	}
}

// restored waits until the Deployment has its original values, and the operator owns no
// field of it.
func (w *fixture) restored(before *appsv1.Deployment) {
	w.Helper()
	w.Until(func() string {
		now := w.Deployment(before.Name)
		for _, entry := range now.ManagedFields {
			if entry.Manager == "verticalscaler" {
				return fmt.Sprintf("verticalscaler still manages (%s) %s", entry.Operation, entry.FieldsV1.GetRawBytes())
			}
		}
		a, b := before.DeepCopy(), now.DeepCopy()
		delete(a.Annotations, revision)
		delete(b.Annotations, revision)
		if !equality.Semantic.DeepEqual(a.Spec, b.Spec) {
			return fmt.Sprintf("the spec was\n%+v\nand is\n%+v", a.Spec, b.Spec)
		}
		if !equality.Semantic.DeepEqual(a.Annotations, b.Annotations) || !equality.Semantic.DeepEqual(a.Labels, b.Labels) ||
			!equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) || !equality.Semantic.DeepEqual(a.Finalizers, b.Finalizers) {
			return fmt.Sprintf("the metadata was\n%+v\nand is\n%+v", a.ObjectMeta, b.ObjectMeta)
		}
		return ""
	})
}

// The user deploys other requests before any write of the operator, also while the right to rewrite the template is missing.
// When the scaler is deleted, these come back.
func TestRolloutGivesBackWhatTheUserHasDeployedLast(t *testing.T) {
	t.Parallel()
	deployed := func(w *fixture) {
		w.Change("web", "kubectl", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("110m"), "memory": resource.MustParse("140Mi")}
		})
	}
	for n := 1; n <= 12; n++ {
		t.Run(fmt.Sprintf("before write %d", n), func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.deploy("web")
			w.Uses("web", "app", 300, 240)
			i := 0
			w.Fault = func(_ world.Write, _ int, send func() error) error {
				if i++; i == n {
					deployed(w)
				}
				return send()
			}
			w.Scale("web", world.InMode("Rollout"))
			w.Sized("web")
			if i < n {
				deployed(w)
				w.Sized("web")
			}
			w.givesBack("web", "110m", "140Mi")
		})
	}
	t.Run("while the right is missing", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.deploy("web")
		w.Uses("web", "app", 300, 240)
		w.Fault = func(write world.Write, _ int, send func() error) error {
			if write.Resource == "deployments" {
				return world.Refuse(http.StatusForbidden)(write, send)
			}
			return send()
		}
		w.Scale("web", world.InMode("Rollout"))
		w.Until(func() string {
			if w.Scaler("web").Status.OriginalResources == nil {
				return "no original values are recorded"
			}
			return ""
		})
		deployed(w)
		w.Fault = nil
		w.Sized("web")
		w.givesBack("web", "110m", "140Mi")
	})
}

// "kubectl rollout undo" to the revision before the first rewrite has the user's values. The operator applies its sizes once
// more, lets a second undo stand, and still gives the user's values back.
func TestAnUndoToBeforeTheFirstRewriteLosesNothing(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.deploy("web").DeepCopy()
	requests := before.Spec.Template.Spec.Containers[0].Resources.Requests
	undo := func() {
		w.Change("web", "kubectl-rollout", func(d *appsv1.Deployment) { before.Spec.Template.DeepCopyInto(&d.Spec.Template) })
	}
	w.Uses("web", "app", 300, 240)
	w.Scale("web", world.InMode("Rollout"))
	w.Sized("web")
	undo()
	w.Sized("web")
	mark := w.mark()
	undo()
	w.Reports("web", "Applied", "False", "Contested", "kubectl-rollout")
	w.Minutes(10)
	if n := w.rewrites(mark); n > 0 {
		t.Errorf("%d rewrites after the second undo", n)
	}
	if got := w.Deployment("web").Spec.Template.Spec.Containers[0].Resources.Requests; !equality.Semantic.DeepEqual(got, requests) {
		t.Errorf("the template requests %+v after the second undo, want %+v", got, requests)
	}
	w.givesBack("web", requests.Cpu().String(), requests.Memory().String())
}

// rewrites counts the changes of the template that the API server accepted.
func (w *fixture) rewrites(since int) int {
	w.Helper()
	return total(count(accepted(w.writes(since)), "deployments"))
}

// givesBack deletes a scaler, and fails unless its Deployment then has these requests.
func (w *fixture) givesBack(name, cpu, memory string) {
	w.Helper()
	w.Remove(testkit.Scaler(w.Namespace, name, name))
	w.Gone(testkit.Scaler(w.Namespace, name, name))
	w.Until(func() string {
		r := w.Deployment(name).Spec.Template.Spec.Containers[0].Resources.Requests
		if r.Cpu().String() != cpu || r.Memory().String() != memory {
			return fmt.Sprintf("the template requests %+v", r)
		}
		return ""
	})
}

func TestRolloutGivesTheTemplateBack(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	before := w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Scale("web", world.InMode("Rollout"))
	w.Sized("web")
	ownsOnlyResources(t, w.runs("web"))
	w.Patch(testkit.Scaler(w.Namespace, "web", "web"), `{"spec":{"updatePolicy":{"updateMode":"Recommend"}}}`)
	w.restored(before)
	w.Reports("web", "Ready", "True", "RecommendOnly")
	if s := w.Scaler("web"); len(s.Finalizers) > 0 || s.Status.OriginalResources != nil {
		t.Errorf("finalizers %v, original resources %+v", s.Finalizers, s.Status.OriginalResources)
	}
}
