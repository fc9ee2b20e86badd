// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// component is rendered to dist/new-pods.yaml.
const component = "config/new-pods"

// newPods sizes new pods: it installs the policy and the rights, which all tests share.
func newPods(t *testing.T) *fixture {
	t.Helper()
	for _, object := range env.Rendered(t, filepath.Join(testkit.Root(), component)) {
		grantTo(t, object, testkit.System, testkit.ServiceAccount)
	}
	return newFixture(t)
}

// grantTo applies an object of the component, with its rights granted to a service account.
func grantTo(t *testing.T, object *unstructured.Unstructured, namespace, account string) {
	t.Helper()
	if object.GetKind() == "ClusterRoleBinding" {
		subject := map[string]any{"kind": rbacv1.ServiceAccountKind, "namespace": namespace, "name": account}
		if err := unstructured.SetNestedSlice(object.Object, []any{subject}, "subjects"); err != nil {
			t.Fatal(err)
		}
	}
	config := client.ApplyConfigurationFromUnstructured(object.DeepCopy())
	if err := env.Client.Apply(t.Context(), config, client.FieldOwner("test"), client.ForceOwnership); err != nil {
		t.Fatal(err)
	}
}

// bindings returns the bindings of this namespace's scalers.
func (w *fixture) bindings() (names []string) {
	w.Helper()
	var list admissionv1.MutatingAdmissionPolicyBindingList
	if err := env.Client.List(w.Context(), &list, client.MatchingLabels(admission.Labels())); err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		if scaler, ours := admission.ScalerOf(&list.Items[i]); ours && scaler.Namespace == w.namespace {
			names = append(names, scaler.Name)
		}
	}
	return names
}

// hasBindings waits until exactly these scalers of the namespace have a binding.
func (w *fixture) hasBindings(names ...string) {
	w.Helper()
	w.eventually(func() string {
		if got := w.bindings(); fmt.Sprint(got) != fmt.Sprint(names) {
			return fmt.Sprintf("there are bindings of %q, not of %q", got, names)
		}
		return ""
	})
}

func TestInitialSizesOnlyNewPods(t *testing.T) {
	t.Parallel()
	w := newPods(t)
	before := w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web", inMode("Initial"))
	w.says("web", "Applied", "False", "NewPodsOnly")
	w.says("web", "Ready", "True", "OperatingNormally")
	w.hasBindings("web")

	// The API server observes the binding with a delay.
	w.eventually(func() string {
		pod := w.pods("web")[0]
		w.remove(&pod)
		w.gone(&pod)
		w.runs("web")
		for _, pod := range w.pods("web") {
			if resourcesOf(pod, "app").Requests.Cpu().String() != "100m" {
				return ""
			}
		}
		return "no new pod has another size"
	})
	w.patch(testkit.Deployment(w.namespace, "web"), `{"spec":{"replicas":5}}`)
	w.runs("web")
	w.change("web", "kubectl", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "example.com/app:2" })
	w.runs("web")
	requests := w.sized("web")
	w.between("cpu", *requests.Cpu(), "330m", "380m")
	for _, pod := range w.pods("web") {
		limit := resourcesOf(pod, "app").Limits.Cpu()
		want := requests.Cpu().DeepCopy()
		want.Add(*requests.Cpu())
		if pod.Generation != 1 || limit.Cmp(want) != 0 {
			t.Errorf("pod %s has generation %d and a limit of %s", pod.Name, pod.Generation, limit)
		}
	}
	if n := restarts(w.pods("web")); len(n) > 0 {
		t.Errorf("restarts: %v", n)
	}
	d := w.deployment("web")
	if len(d.Spec.Template.Spec.Containers[0].Resources.Requests) != 2 || d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().String() != "100m" {
		t.Errorf("the template has %+v", d.Spec.Template.Spec.Containers[0].Resources)
	}
	writes := w.writes(w.began)
	w.tell("new pods", writes)
	if n := total(count(writes, "pods/resize")) + total(count(writes, "deployments")) + total(count(writes, "pods")); n > 0 {
		t.Errorf("%d writes of pods and Deployments", n)
	}

	// Without the mode, new pods have the resources of the template.
	w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"updatePolicy":{"updateMode":"Recommend"}}}`)
	w.hasBindings()
	w.eventually(func() string {
		if s := w.scaler("web"); s.Status.NewPods != nil {
			return fmt.Sprintf("the status still has %+v", s.Status.NewPods)
		}
		return ""
	})
	if after := w.deployment("web"); after.UID != before.UID {
		t.Error("the Deployment is another one")
	}
}

func TestNewPodsKeepTheirSizeWhileTheScalerIsSuspended(t *testing.T) {
	t.Parallel()
	w := newPods(t)
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web", inMode("Initial"))
	w.eventually(func() string {
		if s := w.scaler("web"); s.Status.NewPods == nil || len(s.Status.NewPods.Containers) != 1 {
			return fmt.Sprintf("new pods are sized by %+v", s.Status.NewPods)
		}
		return ""
	})
	before := w.scaler("web").Status.NewPods
	w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"suspend":true}}`)
	w.says("web", "Applied", "False", "Suspended")
	if after := w.scaler("web").Status.NewPods; !equality.Semantic.DeepEqual(before, after) {
		t.Errorf("new pods get %+v, and got %+v", after, before)
	}
	w.patch(testkit.Scaler(w.namespace, "web", "web"), `{"spec":{"suspend":false}}`)
	w.says("web", "Applied", "False", "NewPodsOnly")
}

func TestBindingsGoWithTheirScalers(t *testing.T) {
	t.Parallel()
	w := newPods(t)
	for _, name := range []string{"first", "second", "third"} {
		w.deploy(name, func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To(int32(1)) })
		w.uses(name, "app", 300, 240)
		w.scale(name, inMode("Initial"))
	}
	w.hasBindings("first", "second", "third")

	w.remove(testkit.Scaler(w.namespace, "first", "first"))
	w.hasBindings("second", "third")

	// The binding of a scaler that is deleted while no operator runs stays.
	w.operator.Stop(t)
	w.remove(testkit.Scaler(w.namespace, "second", "second"))
	w.gone(testkit.Scaler(w.namespace, "second", "second"))
	w.hasBindings("second", "third")
	w.start()
	w.hasBindings("third")

	// The operator reverts changes of a binding, after a restart at the latest.
	binding := admission.Binding(w.key("third"), &metav1.LabelSelector{})
	w.patch(binding, `{"spec":{"matchResources":{"objectSelector":{"matchLabels":{"app":"other"}}}}}`)
	w.restart()
	w.eventually(func() string {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(binding), binding); err != nil {
			return err.Error()
		}
		if labels := binding.Spec.MatchResources.ObjectSelector.MatchLabels; labels["app"] != "third" {
			return fmt.Sprintf("it selects %v", labels)
		}
		return ""
	})
}

// This test runs alone: its operator watches all namespaces, and would remove the bindings
// that other tests leave.
func TestInitialWithAndWithoutItsRights(t *testing.T) {
	if err := env.Client.Create(t.Context(), admission.Policy()); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	i := allNamespaces(t)
	i.apply(everything)
	usage := &podUsage{Usage: testkit.NewUsage()}
	w := i.place(env.Namespace(t), usage)
	t.Cleanup(func() { i.cleanUp(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}) })
	w.deploy("web")
	w.uses("web", "app", 300, 240)
	w.scale("web", inMode("Initial"))
	account, _ := i.run(usage)
	w.says("web", "Applied", "False", "Forbidden", "dist/new-pods.yaml", "mutatingadmissionpolicies")
	w.says("web", "Ready", "False", "Forbidden")
	if got := w.bindings(); len(got) > 0 {
		t.Errorf("bindings of %v", got)
	}
	if s := w.scaler("web"); s.Status.NewPods == nil || len(s.Status.NewPods.Containers) > 0 {
		t.Errorf("new pods are sized by %+v", s.Status.NewPods)
	}
	before := len(account.Forbidden())
	if before == 0 {
		t.Error("nothing was forbidden")
	}

	for _, object := range env.Rendered(t, filepath.Join(testkit.Root(), component)) {
		if !strings.HasPrefix(object.GetKind(), "ClusterRole") {
			continue
		}
		i.rename(object.Object)
		grantTo(t, object, i.system, testkit.ServiceAccount)
		t.Cleanup(func() { i.cleanUp(object) })
	}
	w.annotate(testkit.Deployment(w.namespace, "web"), "test", "reconcile")
	w.patch(testkit.Deployment(w.namespace, "web"), `{"spec":{"replicas":4}}`)
	w.says("web", "Applied", "False", "NewPodsOnly")
	w.hasBindings("web")
	w.remove(testkit.Scaler(w.namespace, "web", "web"))
	w.hasBindings()
	if got := account.Forbidden(); len(got) != before {
		t.Errorf("forbidden with all rights: %v", got)
	}
}
