// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// upgrade lets OLM replace the operator by its next version while a step is in progress.
// OLM waits for the step. Afterwards, no state of the operator is lost, and no workload has
// changed.
func upgrade(t *testing.T) {
	counted(t)
	const at = "upgrade"
	namespaced(t, at, nil)
	deploy(t, at, "web", 2)
	deploy(t, at, "ledger", 2)
	// The pods of this Deployment are scheduled when the test allows it, so that the test
	// controls how long a rollout takes.
	deploy(t, at, "api", 2, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "verticalscaler.io/wait"}}
	})
	first := released(t)
	second := first.next(t)
	i := &installation{namespace: "upgrade-system", bundle: first}
	old := i.install(t)

	scale(t, at, "web", v1beta1.UpdateModeInPlace)
	scale(t, at, "ledger", v1beta1.UpdateModeRollout)
	ownedIn(t, at, "orders", v1beta1.UpdateModeRollout)
	available(t, at, "orders")
	sized(t, at, "orders", "300m")
	sized(t, at, "web", "300m")
	sized(t, at, "ledger", "300m")
	eventually(t, func() string {
		letIn(t, at, "api")
		return isRunning(deployment(t, at, "api"))
	})
	// A step that ends between two looks of the operator leaves no condition, and OLM may upgrade.
	eventually(t, func() string {
		if c := i.upgradeable(t, first); c.Status == metav1.ConditionFalse {
			return fmt.Sprintf("the condition Upgradeable is %+v, although no step is in progress", c)
		}
		return ""
	})
	scale(t, at, "api", v1beta1.UpdateModeRollout)
	i.holds(t, first, at, "api")
	t.Logf("a step is in progress, and the operator says: %s", i.upgradeable(t, first).Message)
	i.configure(t, i.configuration(t)+"# Ours.\n")

	workloadsBefore := fingerprint(t, at)
	web, ledger, orders, learned := scaler(t, at, "web"), scaler(t, at, "ledger"), scaler(t, at, "orders"), checkpoint(t, at, "web")
	began := time.Now()
	store.update(t, first, second)
	i.isHeld(t, second)
	t.Logf("OLM delays the upgrade: after %s %s is %s", elapsed(began), second.csv, i.phase(t, second.csv))
	if now := i.leads(t); now != old {
		t.Fatalf("the operator is %+v, not %+v, although the upgrade is delayed", now, old)
	}
	if diff := cmp.Diff(workloadsBefore, fingerprint(t, at)); diff != "" {
		t.Errorf("a delayed upgrade changes workloads (-before +after):\n%s", diff)
	}

	finishStep(t, at, "api")
	opened := time.Now()
	workloadsBefore = fingerprint(t, at)
	api := scaler(t, at, "api")
	i.bundle = second
	i.succeeds(t)
	t.Logf("the step is done, and OLM has upgraded %s later", elapsed(opened))
	eventually(t, func() string {
		if phase := i.phase(t, first.csv); !strings.HasPrefix(phase, "not there") {
			return fmt.Sprintf("%s is %s", first.csv, phase)
		}
		if now := node.operator(i.namespace); now == nil || now == old {
			return "the new operator does not run alone"
		}
		return i.mayWork(t, at)
	})
	i.leads(t)
	i.swapped = window{opened, time.Now()}
	i.hasField(t)

	eventually(t, func() string { return i.hasLookedAt(t, at, "web", "ledger", "orders", "api") })
	for _, before := range []*v1beta1.VerticalScaler{web, ledger, orders, api} {
		isKept(t, before)
	}
	if now := checkpoint(t, at, "web"); now.UID != learned.UID || len(now.Spec.Containers) != len(learned.Spec.Containers) {
		t.Errorf("the checkpoint is another one after the upgrade: %+v, before %+v", now, learned)
	}
	if diff := cmp.Diff(workloadsBefore, fingerprint(t, at)); diff != "" {
		t.Errorf("the upgrade changes workloads (-before +after):\n%s", diff)
	}
	t.Log("claims, recommendations, decisions, original values and histories are as before; no workload was touched")

	allowMore(t, at, "web")
	annotatePods(t, at, "web", usesCPU, "420m")
	sized(t, at, "web", "390m")
	after := scaler(t, at, "web").Status.History
	if len(after) <= len(web.Status.History) {
		t.Errorf("the new operator's change is not on top of the old history: %v", after)
	}
	isKept(t, ledger)
	isKept(t, api)
	revertsDrift(t, at, "orders")
	t.Log("the new operator continues where the old one stopped")
	if strings.Contains(i.configuration(t), "# Ours.") {
		t.Error("the upgrade has left the configuration alone; docs/olm.md says that it is replaced")
	}
	i.isAllowed(t)

	// A user who cannot wait overrides the condition.
	allowMore(t, at, "api")
	annotatePods(t, at, "api", usesCPU, "420m")
	i.holds(t, second, at, "api")
	third := second.next(t)
	store.update(t, first, second, third)
	i.isHeld(t, third)
	i.run(t, `kubectl patch operatorcondition verticalscaler-operator.v0.1.0 -n verticalscaler-system --type=merge -p '{"spec":{"overrides":[{"type":"Upgradeable","status":"True","reason":"UpgradeNow","message":"We do not wait for the step"}]}}'`,
		"verticalscaler-operator.v0.1.0", second.csv)
	i.bundle = third
	i.succeeds(t)
	t.Log("an administrator can have the upgrade at once")
}

// holds waits until a pod of the Deployment waits to be scheduled, and the operator of that
// bundle reports to OLM that a step is in progress.
func (i *installation) holds(t *testing.T, b bundle, namespace, name string) {
	t.Helper()
	eventually(t, func() string {
		if !slices.ContainsFunc(pods(t, namespace, name), isGated) {
			return "the Deployment does not roll out: " + sayConditions(scaler(t, namespace, name))
		}
		return notUpgradeable(i.upgradeable(t, b), metav1.ConditionFalse)
	})
}

func isGated(pod corev1.Pod) bool { return len(pod.Spec.SchedulingGates) > 0 }

// letIn allows the Deployment's pods to be scheduled.
func letIn(t *testing.T, namespace, name string) {
	t.Helper()
	for _, pod := range pods(t, namespace, name) {
		if isGated(pod) {
			patch(t, &pod, `{"spec":{"schedulingGates":null}}`)
		}
	}
}

// isHeld waits until OLM reports that the operator's condition blocks the upgrade to b.
func (i *installation) isHeld(t *testing.T, b bundle) {
	t.Helper()
	eventually(t, func() string {
		phase := i.phase(t, b.csv)
		if strings.HasPrefix(phase, "Pending (OperatorConditionNotUpgradeable:") {
			return ""
		}
		if !strings.HasPrefix(phase, "not there") && !strings.HasPrefix(phase, "new") && !strings.HasPrefix(phase, "Pending") {
			t.Fatalf("%s is %s although a step is under way", b.csv, phase)
		}
		return fmt.Sprintf("%s is %s", b.csv, phase)
	})
}

// configuration reads the operator's configuration.
func (i *installation) configuration(t *testing.T) string {
	t.Helper()
	var m corev1.ConfigMap
	if err := env.Client.Get(t.Context(), key(i.namespace, configName), &m); err != nil {
		t.Fatal(err)
	}
	return m.Data["config.yaml"]
}

// configure replaces the configuration, as an administrator does. The operator reads it
// when it starts.
func (i *installation) configure(t *testing.T, content string) {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: configName}}
	patch(t, m, `{"data":{"config.yaml":%q}}`, content)
}

// mayWork reports which rights the operator lacks.
func (i *installation) mayWork(t *testing.T, namespace string) string {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: i.user(), Groups: []string{"system:serviceaccounts", "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: "update", Group: v1beta1.GroupVersion.Group, Resource: "verticalscalers", Subresource: "status",
		},
	}}
	if err := env.Client.Create(t.Context(), review); err != nil {
		return err.Error()
	}
	if !review.Status.Allowed {
		return "the operator may not write statuses"
	}
	return ""
}

// hasLookedAt reports which scalers the current operator has not reconciled yet. In its
// first reconcile, it reads the checkpoint.
func (i *installation) hasLookedAt(t *testing.T, namespace string, names ...string) string {
	t.Helper()
	pod := node.operator(i.namespace)
	if pod == nil {
		return "the new operator is not ready"
	}
	all := i.requests(t)
	for _, name := range names {
		if !slices.ContainsFunc(all, func(r request) bool {
			return r.at.After(pod.started) && r.verb == "get" && r.resource == "verticalscalercheckpoints" && r.namespace == namespace && r.name == name && r.code == http.StatusOK
		}) {
			return "the new operator has not looked at scaler " + name
		}
	}
	return ""
}

func checkpoint(t *testing.T, namespace, name string) *v1beta1.VerticalScalerCheckpoint {
	t.Helper()
	var c v1beta1.VerticalScalerCheckpoint
	if err := env.Client.Get(t.Context(), key(namespace, name), &c); err != nil {
		t.Fatal(err)
	}
	return &c
}

// isKept fails the test if the scaler has lost or changed state that an upgrade must
// preserve.
func isKept(t *testing.T, before *v1beta1.VerticalScaler) {
	t.Helper()
	after := scaler(t, before.Namespace, before.Name)
	if diff := cmp.Diff(kept(before), kept(after)); diff != "" {
		t.Errorf("scaler %s has lost something by the upgrade (-before +after):\n%s", before.Name, diff)
	}
}

// kept is the state of a scaler that an upgrade must preserve.
func kept(s *v1beta1.VerticalScaler) map[string]any {
	return map[string]any{
		"uid":        s.UID,
		"finalizers": s.Finalizers,
		"claim":      s.Status.Annotations,
		"target":     s.Status.Target,
		"sizes":      targets(s),
		"decision":   s.Status.Decision,
		"held":       s.Status.OriginalResources,
		"history":    s.Status.History,
		"summary":    s.Status.Summary,
	}
}

// targets are the scaler's recommended targets. The evidence may have grown.
func targets(s *v1beta1.VerticalScaler) map[string]v1beta1.Amounts {
	out := map[string]v1beta1.Amounts{}
	if s.Status.Recommendation != nil {
		for _, c := range s.Status.Recommendation.ContainerRecommendations {
			out[c.ContainerName] = c.Target
		}
	}
	return out
}

// finishStep lets the rollout of the Deployment complete.
func finishStep(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, func() string {
		letIn(t, namespace, name)
		s := scaler(t, namespace, name)
		if !meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionApplied) || !meta.IsStatusConditionFalse(s.Status.Conditions, v1beta1.ConditionReconciling) {
			return sayConditions(s)
		}
		return ""
	})
	sized(t, namespace, name, "300m")
}

// upgradeable is the condition with that name.
func (i *installation) upgradeable(t *testing.T, b bundle) metav1.Condition {
	t.Helper()
	return i.condition(t, b, "Upgradeable")
}

// condition is the condition of that type that the operator has set, once OLM has seen it.
func (i *installation) condition(t *testing.T, b bundle, kind string) metav1.Condition {
	t.Helper()
	o := object("operators.coreos.com/v2", "OperatorCondition", i.namespace, b.csv)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		t.Fatal(err)
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		c, ok := c.(map[string]any)
		if !ok || c["type"] != kind {
			continue
		}
		var out metav1.Condition
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(c, &out); err != nil {
			t.Fatal(err)
		}
		if out.ObservedGeneration == o.GetGeneration() {
			return out
		}
	}
	return metav1.Condition{}
}

func notUpgradeable(got metav1.Condition, want metav1.ConditionStatus) string {
	if got.Status == want && got.Reason != "" {
		return ""
	}
	return fmt.Sprintf("the condition Upgradeable is %+v, not %s", got, want)
}

// hasField fails the test unless the CRD is that of the next version.
func (i *installation) hasField(t *testing.T) {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	u := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", scalersCRD)
	if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, crd); err != nil {
		t.Fatal(err)
	}
	if _, ok := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties[nextField]; !ok {
		t.Errorf("the CRD lacks the field %s of the next version", nextField)
	}
}
