// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// published are the Deployments of this namespace whose sizes the API server is told, by their names.
func (w *fixture) published() (names []string) {
	w.Helper()
	for _, text := range w.sizeTexts() {
		for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
			name := admission.DeploymentOf(line)
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// sizeTexts are the texts of the NewPodSizes in the namespace.
func (w *fixture) sizeTexts() (texts []string) {
	w.Helper()
	var list v1beta1.NewPodSizesList
	must.Succeed(w, env.Client.List(w.Context(), &list, client.InNamespace(w.Namespace)))
	for _, o := range list.Items {
		texts = append(texts, o.Spec.Deployments)
	}
	return texts
}

// untilNewPods waits until the API server, which learns of sizes and policies with a delay, answers a request for a pod of the
// Deployment as expected.
func (w *fixture) untilNewPods(d *appsv1.Deployment, wrong func(pod *corev1.Pod, err error) string) {
	w.Helper()
	pod := w.Pods(d.Name)[0]
	testkit.Eventually(w.t, 2*time.Minute, func() string {
		probe := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe", Labels: pod.Labels, OwnerReferences: pod.OwnerReferences}, Spec: *d.Spec.Template.Spec.DeepCopy()}
		return wrong(probe, env.Client.Create(w.Context(), probe, client.DryRunAll))
	})
}

// areSized expects a pod to have another size than its Deployment, which requests 100m.
func areSized(pod *corev1.Pod, err error) string {
	if err != nil {
		return err.Error()
	}
	if world.Asked(pod, "app").Requests.Cpu().String() == "100m" {
		return "a new pod has the size of the template"
	}
	return ""
}

// hasSizesOf lets time pass until the API server is told the sizes of exactly these Deployments.
func (w *fixture) hasSizesOf(names ...string) {
	w.Helper()
	w.Until(func() string {
		if got := w.published(); fmt.Sprint(got) != fmt.Sprint(names) {
			return fmt.Sprintf("the API server is told the sizes of %q, not of %q", got, names)
		}
		return ""
	})
}

func sizingNewPods(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.NewPods = v1beta1.NewPodsSized }

// deny installs a policy for the namespace that denies what does not fulfill the expression.
func (w *fixture) deny(group, resource, expression, message string, operations ...admissionregistrationv1.OperationType) {
	w.Helper()
	name := "keep-" + w.Namespace
	policy := &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: operations,
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
				}}},
			},
			Validations: []admissionregistrationv1.Validation{{Expression: expression, Message: message}},
		},
	}
	binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		},
	}
	for _, object := range []client.Object{policy, binding} {
		w.Add(object)
		w.Cleanup(func() { must.Succeed(w, client.IgnoreNotFound(env.Client.Delete(context.Background(), object))) })
	}
}

// This test runs alone: it removes the policy, which other tests need.
func TestInitialWithAndWithoutItsPolicy(t *testing.T) {
	for _, object := range env.Rendered(t, filepath.Join(testkit.Root(), "config", "new-pods")) {
		must.Succeed(t, client.IgnoreNotFound(env.Client.Delete(t.Context(), object)))
	}
	install := func() error { return env.InstallComponents(context.Background(), "new-pods") }
	t.Cleanup(func() { must.Succeed(t, install()) })
	w := newServed(t)
	for _, name := range []string{"web", "api"} {
		w.deploy(name)
		w.Uses(name, "app", 300, 240)
	}
	w.Scale("web", world.InMode("Initial"))
	w.Scale("api", sizingNewPods)
	w.Reports("web", "Applied", "False", "AdmissionUnavailable", "kubectl apply --server-side -f https://", "new-pods.yaml")
	w.Reports("web", "Ready", "False", "AdmissionUnavailable")
	w.Reports("web", "NewPodsSized", "False", "AdmissionUnavailable")
	// The default mode resizes running pods all the same.
	w.Reports("api", "Applied", "True", "Applied")
	w.Reports("api", "Ready", "True", "OperatingNormally")
	w.Reports("api", "NewPodsSized", "False", "AdmissionUnavailable", "start as in the pod template", "new-pods.yaml")
	if got := w.published(); len(got) > 0 {
		t.Errorf("the API server is told the sizes of %v", got)
	}

	must.Succeed(t, install())
	w.Pass(30 * time.Second) // The operator looks again.
	w.Reports("web", "Applied", "False", "NewPodsOnly")
	w.Reports("api", "NewPodsSized", "True", "Applied")
	w.hasSizesOf("api", "web")
	w.Remove(testkit.Scaler(w.Namespace, "web", "web"))
	w.hasSizesOf("api")
	for _, write := range w.Writes() {
		if write.Code == http.StatusForbidden {
			t.Errorf("forbidden: %s", write)
		}
	}
}
