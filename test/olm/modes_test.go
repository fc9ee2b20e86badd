// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
)

// The namespaces of the workloads. Each scenario has its own Deployments in them.
const (
	shop = "shop"
	blog = "blog"
	lab  = "lab"
	// own is the operator's namespace when it is installed for its own namespace.
	own = "own"
)

// made reports whether the workloads exist.
var made bool

// workloads creates the Deployments of all install mode scenarios once: metrics-server
// needs half a minute for the usage of a new pod, whatever the number of pods.
func workloads(t *testing.T) {
	t.Helper()
	if made {
		return
	}
	made = true
	for _, namespace := range []string{shop, blog, lab} {
		namespaced(t, namespace, nil)
		for _, scenario := range []string{"all", "own", "single", "multi"} {
			deploy(t, namespace, scenario, 1)
		}
	}
	namespaced(t, own, nil)
	deploy(t, own, "own", 1)
	deploy(t, shop, "ledger", 2)
}

// allNamespaces installs the operator for the whole cluster, and checks all that OLM has created. The operator resizes pods, rolls
// out, restores a template, and keeps what a ScaledDeployment owns.
func allNamespaces(t *testing.T) {
	workloads(t)
	i := &installation{namespace: "verticalscaler-system", bundle: released(t)}
	i.install(t)
	i.isComplete(t)

	for _, namespace := range []string{shop, blog} {
		scale(t, namespace, "all", v1beta1.UpdateModeInPlace)
	}
	scale(t, shop, "ledger", v1beta1.UpdateModeRollout)
	ownedIn(t, shop, "orders", v1beta1.UpdateModeRecommend)
	available(t, shop, "orders")
	revertsDrift(t, shop, "orders")
	for _, namespace := range []string{shop, blog} {
		sized(t, namespace, "all", "300m")
		if c := meta.FindStatusCondition(scaler(t, namespace, "all").Status.Conditions, v1beta1.ConditionClusterAccess); c != nil {
			t.Errorf("scaler %s/all has the condition ClusterAccess %s: %s", namespace, c.Status, c.Message)
		}
	}
	sized(t, shop, "ledger", "300m")
	if err := env.Client.Delete(t.Context(), scaler(t, shop, "ledger")); err != nil {
		t.Fatal(err)
	}
	restored(t, shop, "ledger")
	if err := env.Client.Delete(t.Context(), owner(t, shop, "orders")); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() string { return missing(t, shop, "orders", &appsv1.Deployment{}) })
	i.isAllowed(t)
}

// restored waits until a deleted scaler no longer exists and the Deployment's template has
// its original values.
func restored(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, func() string {
		err := env.Client.Get(t.Context(), key(namespace, name), &v1beta1.VerticalScaler{})
		if !apierrors.IsNotFound(err) {
			return fmt.Sprintf("scaler %s/%s is still there: %v", namespace, name, err)
		}
		return ""
	})
	if cpu := deployment(t, namespace, name).Spec.Template.Spec.Containers[0].Resources.Requests.Cpu(); cpu.String() != "100m" {
		t.Errorf("the template of %s/%s requests %s CPU, not the 100m that were there before", namespace, name, cpu)
	}
}

// isComplete checks what OLM has created from the bundle.
func (i *installation) isComplete(t *testing.T) {
	t.Helper()
	mustExist := []client.Object{
		object("v1", "ServiceAccount", i.namespace, operatorName),
		object("apps/v1", "Deployment", i.namespace, operatorName),
		object("v1", "ConfigMap", i.namespace, configName),
		object("v1", "Service", i.namespace, "verticalscaler-metrics"),
		object("operators.coreos.com/v2", "OperatorCondition", i.namespace, i.bundle.csv),
		object("rbac.authorization.k8s.io/v1", "Role", i.namespace, i.bundle.csv), // of the OperatorCondition
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "verticalscaler-viewer"),
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "verticalscaler-editor"),
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "verticalscaler-resizer"),
		object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "verticalscaler-metrics-reader"),
	}
	for _, name := range allCRDs {
		mustExist = append(mustExist, object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name))
	}
	for _, o := range mustExist {
		if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Errorf("OLM has not made %s %s: %v", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), err)
		}
	}
	if rights := i.rights(t); len(rights) < 2 {
		t.Errorf("OLM has bound the service account to no role: %v", rights)
	} else {
		t.Logf("OLM has created %d objects and %s", len(mustExist), strings.Join(rights, ", "))
	}
	template := deployment(t, i.namespace, operatorName).Spec.Template
	if _, ok := template.Annotations["olm.targetNamespaces"]; !ok {
		t.Error("the pod template has no annotation olm.targetNamespaces")
	}
	if !slices.ContainsFunc(template.Spec.Containers[0].Env, func(v corev1.EnvVar) bool {
		return v.Name == "OPERATOR_CONDITION_NAME" && v.Value == i.bundle.csv
	}) {
		t.Errorf("the container has no OPERATOR_CONDITION_NAME with the value %s", i.bundle.csv)
	}
}

func lists(apiVersion, kind string) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion(apiVersion)
	l.SetKind(kind + "List")
	return l
}

// withinOnly installs the operator for some namespaces. It must act in these and in no
// others.
func withinOnly(t *testing.T, name, namespace string, targets ...string) {
	t.Helper()
	workloads(t)
	i := &installation{namespace: namespace, bundle: released(t), targets: targets}
	i.install(t)
	others := []string{shop, blog, lab}
	for _, in := range targets {
		scale(t, in, name, v1beta1.UpdateModeInPlace)
		others = slices.DeleteFunc(others, func(other string) bool { return other == in })
	}
	for _, in := range others {
		scale(t, in, name, v1beta1.UpdateModeInPlace)
		ownedIn(t, in, name+"-owned", v1beta1.UpdateModeRecommend)
	}
	for _, in := range targets {
		sized(t, in, name, "300m")
		t.Logf("pods in %s are resized in place", in)
		c := meta.FindStatusCondition(scaler(t, in, name).Status.Conditions, v1beta1.ConditionClusterAccess)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "NamespacedInstall" || c.Message == "" {
			t.Errorf("the condition ClusterAccess of scaler %s/%s is %+v", in, name, c)
		}
	}
	for _, in := range others {
		if s := scaler(t, in, name); s.Status.ObservedGeneration != -1 || len(s.Status.Annotations) > 0 || len(s.Status.Conditions) > 0 {
			t.Errorf("scaler %s/%s, where the operator has no business, has the status %+v", in, name, s.Status)
		}
		if o := owner(t, in, name+"-owned"); o.Status.ObservedGeneration != -1 || missing(t, in, o.Name, &appsv1.Deployment{}) != "" {
			t.Errorf("ScaledDeployment %s/%s, where the operator has no business, has the status %+v", in, o.Name, o.Status)
		}
		for _, pod := range pods(t, in, name) {
			if pod.Generation != 1 {
				t.Errorf("pod %s/%s, where the operator has no business, was changed", in, pod.Name)
			}
		}
	}
	i.isAllowed(t)
	i.stays(t, targets)
}

// stays fails the test for each request outside of the operator's namespaces, except
// cluster-scoped token and access reviews, and the question whether new pods are sized.
func (i *installation) stays(t *testing.T, targets []string) {
	t.Helper()
	allowed := append([]string{i.namespace}, targets...)
	var strange []string
	for _, r := range i.requests(t) {
		asksForPolicy := r.group == "admissionregistration.k8s.io" && r.verb == "get" && r.name == admission.PolicyName
		if asksForPolicy || r.group == "authentication.k8s.io" || r.group == "authorization.k8s.io" || slices.Contains(allowed, r.namespace) {
			continue
		}
		strange = append(strange, r.String())
	}
	if len(strange) > 0 {
		slices.Sort(strange)
		t.Errorf("the operator of %v has sent requests outside of them:\n%s", targets, strings.Join(slices.Compact(strange), "\n"))
	}
}

// patch sends a merge patch.
func patch(t *testing.T, obj client.Object, format string, args ...any) {
	t.Helper()
	if err := env.Client.Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, format, args...))); err != nil {
		t.Fatal(err)
	}
}
