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

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// upgrade lets OLM replace the operator by its next version. No state of the operator is lost, and no workload changes.
func upgrade(t *testing.T) {
	const at = "upgrade"
	namespaced(t, at, nil)
	deploy(t, at, "web", 2)
	deploy(t, at, "ledger", 2)
	first := released(t)
	second := first.next(t)
	i := &installation{namespace: "upgrade-system", bundle: first}
	old := i.install(t)

	scale(t, at, "web", v1beta1.UpdateModeInPlace)
	scale(t, at, "ledger", v1beta1.UpdateModeRollout)
	ownedIn(t, at, "orders", v1beta1.UpdateModeRollout)
	space(t, at).Settled("orders")
	for _, name := range []string{"web", "ledger", "orders"} {
		sized(t, at, name, "300m")
	}
	// An administrator changes the configuration. The operator reads it when it starts.
	space(t, i.namespace).Patch(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: i.namespace, Name: configName}},
		`{"data":{"config.yaml":%q}}`, i.configuration(t)+"# Ours.\n")

	workloadsBefore := fingerprint(t, at)
	web, ledger, orders, learned := space(t, at).Scaler("web"), space(t, at).Scaler("ledger"), space(t, at).Scaler("orders"), checkpoint(t, at, "web")
	opened := time.Now()
	store.update(t, first, second)
	i.bundle = second
	i.succeeds(t)
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
	hasField(t)

	eventually(t, func() string { return i.hasLookedAt(t, at, "web", "ledger", "orders") })
	for _, before := range []*v1beta1.VerticalScaler{web, ledger, orders} {
		isKept(t, before)
	}
	if now := checkpoint(t, at, "web"); now.UID != learned.UID || len(now.Spec.Containers) != len(learned.Spec.Containers) {
		t.Errorf("the checkpoint is another one after the upgrade: %+v, before %+v", now, learned)
	}
	assert.Equal(t, "workloads after the upgrade", workloadsBefore, fingerprint(t, at))
	revertsDrift(t, at, "orders")
	if strings.Contains(i.configuration(t), "# Ours.") {
		t.Error("the upgrade has left the configuration alone; docs/olm.md says that it is replaced")
	}
	i.isAllowed(t)
}

// configuration reads the operator's configuration.
func (i *installation) configuration(t *testing.T) string {
	t.Helper()
	var m corev1.ConfigMap
	must.Succeed(t, env.Client.Get(t.Context(), key(i.namespace, configName), &m))
	return m.Data["config.yaml"]
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
		if !slices.ContainsFunc(all, func(r testkit.Write) bool {
			return r.Received.After(pod.started) && r.Verb == "get" && r.Resource == "verticalscalercheckpoints" && r.Namespace == namespace && r.Name == name && r.Code == http.StatusOK
		}) {
			return "the new operator has not looked at scaler " + name
		}
	}
	return ""
}

func checkpoint(t *testing.T, namespace, name string) *v1beta1.VerticalScalerCheckpoint {
	t.Helper()
	var c v1beta1.VerticalScalerCheckpoint
	must.Succeed(t, env.Client.Get(t.Context(), key(namespace, name), &c))
	return &c
}

// isKept fails the test if the scaler has lost or changed state that an upgrade must
// preserve.
func isKept(t *testing.T, before *v1beta1.VerticalScaler) {
	t.Helper()
	after := space(t, before.Namespace).Scaler(before.Name)
	assert.Equal(t, "after the upgrade, scaler "+before.Name, kept(before), kept(after))
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

// condition is the condition of that type that the operator has set, once OLM has seen it.
func (i *installation) condition(t *testing.T, b bundle, kind string) metav1.Condition {
	t.Helper()
	o := object("operators.coreos.com/v2", "OperatorCondition", i.namespace, b.csv)
	must.Succeed(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range conditions {
		c, ok := c.(map[string]any)
		if !ok || c["type"] != kind {
			continue
		}
		var out metav1.Condition
		must.Succeed(t, runtime.DefaultUnstructuredConverter.FromUnstructured(c, &out))
		if out.ObservedGeneration == o.GetGeneration() {
			return out
		}
	}
	return metav1.Condition{}
}

// hasField fails the test unless the next version of the CRD is installed.
func hasField(t *testing.T) {
	t.Helper()
	crd := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", scalersCRD)
	must.Succeed(t, env.Client.Get(t.Context(), client.ObjectKeyFromObject(crd), crd))
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if _, ok, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "status", "properties", nextField); !ok {
		t.Errorf("the CRD lacks the field %s of the next version", nextField)
	}
}
