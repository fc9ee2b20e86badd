// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// The commands of docs/olm.md that are used more than once.
const (
	deletePolicies = "kubectl delete clusterscalingpolicies,scalingpolicies --all --all-namespaces"
	deleteCRDs     = "kubectl delete customresourcedefinition clusterscalingpolicies.autoscaling.verticalscaler.io scalingpolicies.autoscaling.verticalscaler.io scaleddeployments.autoscaling.verticalscaler.io verticalscalers.autoscaling.verticalscaler.io verticalscalercheckpoints.autoscaling.verticalscaler.io newpodsizes.autoscaling.verticalscaler.io"
	getOwners      = "kubectl get scaleddeployments --all-namespaces"
)

// uninstall removes the operator in the documented order.
func uninstall(t *testing.T) {
	const at = "uninstall"
	namespaced(t, at, nil)
	for _, name := range []string{"web", "ledger", "books"} {
		deploy(t, at, name, 2)
	}
	i := &installation{namespace: "uninstall-system", bundle: released(t)}
	i.install(t)
	scale(t, at, "web", v1beta1.UpdateModeInPlace)
	scale(t, at, "ledger", v1beta1.UpdateModeRollout)
	scale(t, at, "books", v1beta1.UpdateModeRollout)
	ownedIn(t, at, "orders", v1beta1.UpdateModeRollout)
	space(t, at).Settled("orders")
	for _, name := range []string{"web", "ledger", "books", "orders"} {
		sized(t, at, name, "300m")
	}
	space(t, at).Settled("orders")

	// First, the policies are deleted. Without one, that changes nothing.
	kept := fingerprint(t, at)
	i.run(t, deletePolicies)
	// Then, the owned objects of a ScaledDeployment are released, once the CRDs are old enough for that.
	env.AwaitGarbageCollector(t, soon, testkit.Scaler("", "", "probe"))
	i.run(t, "kubectl delete scaleddeployments --all --all-namespaces --cascade=orphan")
	if left := env.Remains(t, space(t, at).NewOwner("orders")); left != "" {
		t.Error(left)
	}
	for _, o := range []client.Object{space(t, at).Deployment("orders"), space(t, at).Scaler("orders")} {
		if len(o.GetOwnerReferences()) > 0 || o.GetDeletionTimestamp() != nil {
			t.Errorf("%T orders still has an owner, or is being deleted: %+v", o, o.GetOwnerReferences())
		}
	}
	assert.Equal(t, "workloads after the deletion of a ScaledDeployment alone", kept, fingerprint(t, at))
	t.Log("the Deployment and the scaler of a ScaledDeployment are kept when it is deleted with orphan propagation")

	// A scaler with original values is deleted first, or switched to Recommend.
	i.run(t, `kubectl patch verticalscaler NAME -n NAMESPACE --type=merge -p '{"spec":{"updatePolicy":{"updateMode":"Recommend"}}}'`, "NAMESPACE", at, "NAME", "books")
	eventually(t, func() string {
		if s := space(t, at).Scaler("books"); s.Status.OriginalResources != nil || len(s.Finalizers) > 0 {
			return fmt.Sprintf("the scaler that was switched off still holds %v, with the finalizers %v", s.Status.OriginalResources, s.Finalizers)
		}
		return ""
	})
	if cpu := space(t, at).Deployment("books").Spec.Template.Spec.Containers[0].Resources.Requests.Cpu(); cpu.String() != "100m" {
		t.Errorf("the template of books requests %s CPU, not the 100m that were there before", cpu)
	}
	i.run(t, `kubectl get verticalscalers -A -o jsonpath='{range .items[?(@.status.originalResources)]}{.metadata.namespace} {.metadata.name}{"\n"}{end}' | xargs -r -L1 kubectl delete verticalscaler -n`)
	for _, name := range []string{"ledger", "orders"} {
		restored(t, at, name)
		eventually(t, func() string { return space(t, at).IsRunning(name) })
	}
	eventually(t, func() string { return space(t, at).IsRunning("books") })
	i.isAllowed(t)

	before := fingerprint(t, at)
	i.unsubscribe(t)
	t.Log("Subscription and ClusterServiceVersion deleted; no operator process runs, its rights are deleted")
	left := space(t, at).Scaler("web")
	if left.DeletionTimestamp != nil || left.Status.Recommendation == nil {
		t.Errorf("the scaler has not survived its operator: %+v", left)
	}
	i.run(t, withdraw)
	if out := i.run(t, getOwners); out != "No resources found" {
		t.Errorf("there are ScaledDeployments left: %s", out)
	}
	listed(t.Context(), t)
	i.run(t, "kubectl annotate crd scaleddeployments.autoscaling.verticalscaler.io autoscaling.verticalscaler.io/allow-deletion=true")
	i.run(t, deleteCRDs)
	eventually(t, func() string {
		for _, name := range allCRDs {
			o := object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name)
			if err := env.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("CRD %s: %v", name, err)
			}
		}
		return ""
	})
	assert.Equal(t, "workloads after the uninstallation", before, fingerprint(t, at))
	t.Log("the CRDs are deleted with all scalers; workloads are unchanged")
	i.run(t, "kubectl delete clusterrole verticalscaler-viewer verticalscaler-editor verticalscaler-resizer verticalscaler-metrics-reader")
	i.run(t, "kubectl delete priorityclass verticalscaler-operator")
	assert.Equal(t, "what is left is not what docs/olm.md says", []string{"Lease " + leaseName, "OperatorGroup group"}, leftovers(t, i.namespace))
	i.run(t, "kubectl delete namespace verticalscaler-system")
}

// leftovers are the objects that a user may want to delete after the operator, without
// those that Kubernetes creates in every namespace.
func leftovers(t *testing.T, namespace string) (out []string) {
	t.Helper()
	for _, kind := range [][2]string{
		{"v1", "ConfigMap"},
		{"v1", "Service"},
		{"v1", "ServiceAccount"},
		{"v1", "Secret"},
		{"coordination.k8s.io/v1", "Lease"},
		{"rbac.authorization.k8s.io/v1", "Role"},
		{"rbac.authorization.k8s.io/v1", "RoleBinding"},
		{"networking.k8s.io/v1", "NetworkPolicy"},
		{"operators.coreos.com/v1", "OperatorGroup"},
		{"operators.coreos.com/v2", "OperatorCondition"},
		{"operators.coreos.com/v1alpha1", "InstallPlan"},
	} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind[0])
		list.SetKind(kind[1] + "List")
		must.Succeed(t, env.Client.List(t.Context(), list, client.InNamespace(namespace)))
		for _, o := range list.Items {
			if o.GetName() != "kube-root-ca.crt" && o.GetName() != "default" {
				out = append(out, kind[1]+" "+o.GetName())
			}
		}
	}
	for _, kind := range [][2]string{{"rbac.authorization.k8s.io/v1", "ClusterRole"}, {"scheduling.k8s.io/v1", "PriorityClass"}} {
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(kind[0])
		list.SetKind(kind[1] + "List")
		must.Succeed(t, env.Client.List(t.Context(), list))
		for _, o := range list.Items {
			if strings.Contains(o.GetName(), "verticalscaler") {
				out = append(out, kind[1]+" "+o.GetName())
			}
		}
	}
	slices.Sort(out)
	return out
}
