// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
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

// allNamespaces installs the operator for the whole cluster, and the operator resizes pods, rolls
// out, restores a template, and keeps what a ScaledDeployment owns.
func allNamespaces(t *testing.T) {
	workloads(t)
	i := &installation{namespace: "verticalscaler-system", bundle: released(t)}
	i.install(t)

	for _, namespace := range []string{shop, blog} {
		scale(t, namespace, "all", v1beta1.UpdateModeInPlace)
	}
	scale(t, shop, "ledger", v1beta1.UpdateModeRollout)
	ownedIn(t, shop, "orders", v1beta1.UpdateModeRecommend)
	space(t, shop).Settled("orders")
	revertsDrift(t, shop, "orders")
	for _, namespace := range []string{shop, blog} {
		sized(t, namespace, "all", "300m")
		if c := meta.FindStatusCondition(space(t, namespace).Scaler("all").Status.Conditions, v1beta1.ConditionClusterAccess); c != nil {
			t.Errorf("scaler %s/all has the condition ClusterAccess %s: %s", namespace, c.Status, c.Message)
		}
	}
	sized(t, shop, "ledger", "300m")
	must.Succeed(t, env.Client.Delete(t.Context(), space(t, shop).Scaler("ledger")))
	restored(t, shop, "ledger")
	must.Succeed(t, env.Client.Delete(t.Context(), space(t, shop).Owner("orders")))
	eventually(t, func() string { return env.Remains(t, testkit.Deployment(shop, "orders")) })
	i.isAllowed(t)
}

// restored waits until a deleted scaler no longer exists and the Deployment's template has
// its original values.
func restored(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, func() string { return env.Remains(t, testkit.Scaler(namespace, name, "")) })
	if cpu := space(t, namespace).Deployment(name).Spec.Template.Spec.Containers[0].Resources.Requests.Cpu(); cpu.String() != "100m" {
		t.Errorf("the template of %s/%s requests %s CPU, not the 100m that were there before", namespace, name, cpu)
	}
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
		c := meta.FindStatusCondition(space(t, in).Scaler(name).Status.Conditions, v1beta1.ConditionClusterAccess)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != "NamespacedInstall" || c.Message == "" {
			t.Errorf("the condition ClusterAccess of scaler %s/%s is %+v", in, name, c)
		}
	}
	for _, in := range others {
		if s := space(t, in).Scaler(name); s.Status.ObservedGeneration != -1 || len(s.Status.Annotations) > 0 || len(s.Status.Conditions) > 0 {
			t.Errorf("scaler %s/%s, where the operator has no business, has the status %+v", in, name, s.Status)
		}
		if o := space(t, in).Owner(name + "-owned"); o.Status.ObservedGeneration != -1 || env.Remains(t, testkit.Deployment(in, o.Name)) != "" {
			t.Errorf("ScaledDeployment %s/%s, where the operator has no business, has the status %+v", in, o.Name, o.Status)
		}
		for _, pod := range space(t, in).Pods(name) {
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
		asksForPolicy := r.Group == "admissionregistration.k8s.io" && r.Verb == "get" && r.Name == admission.PolicyName
		if asksForPolicy || r.Group == "authentication.k8s.io" || r.Group == "authorization.k8s.io" || slices.Contains(allowed, r.Namespace) {
			continue
		}
		strange = append(strange, r.String())
	}
	if len(strange) > 0 {
		slices.Sort(strange)
		t.Errorf("the operator of %v has sent requests outside of them:\n%s", targets, strings.Join(slices.Compact(strange), "\n"))
	}
}
