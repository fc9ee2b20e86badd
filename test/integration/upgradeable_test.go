// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/crds"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/upgradeable"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

const csv = "verticalscaler-operator.v0.1.0"

// underOLM creates the OperatorCondition that OLM would create, and returns the client of a
// service account that has the rights that OLM grants.
func underOLM(t *testing.T, namespace string) client.Client {
	t.Helper()
	if _, err := envtest.InstallCRDs(env.Config, envtest.CRDInstallOptions{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{crds.OperatorCondition()},
	}); err != nil {
		t.Fatal(err)
	}
	t.Setenv(upgradeable.ConditionNameEnv, csv)
	t.Setenv(app.NamespaceEnv, namespace)
	if err := admin(t).Create(t.Context(), &operatorsv2.OperatorCondition{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: csv}}); err != nil {
		t.Fatal(err)
	}
	create(t, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: csv}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"operators.coreos.com"}, Resources: []string{"operatorconditions"}, ResourceNames: []string{csv},
		Verbs: []string{"get", "update", "patch"},
	}}})
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: csv},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "Role", Name: csv},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "operator"}},
	})
	c := rest.CopyConfig(env.Config)
	c.Impersonate.UserName = "system:serviceaccount:" + namespace + ":operator"
	return clientOf(t, c)
}

func admin(t *testing.T) client.Client {
	t.Helper()
	return clientOf(t, env.Config)
}

func clientOf(t *testing.T, c *rest.Config) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := operatorsv2.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	out, err := client.New(c, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// upgradeableIs returns the status and the reason of the condition, or "" if it is absent.
func upgradeableIs(t *testing.T, namespace string) string {
	t.Helper()
	var object operatorsv2.OperatorCondition
	if err := admin(t).Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: csv}, &object); err != nil {
		t.Fatal(err)
	}
	c := meta.FindStatusCondition(object.Spec.Conditions, "Upgradeable")
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s", c.Status, c.Reason)
}

func TestUpgradesWaitForAStep(t *testing.T) {
	namespace := env.Namespace(t)
	underOLM(t, namespace)
	start := func() *testkit.Operator {
		return env.StartOperator(t, testkit.OperatorConfig(), testkit.NewUsage(), namespace)
	}
	operator := start()
	createScaler(t, namespace, "web", "web")
	sees(t, namespace, "web", absent)
	if got := upgradeableIs(t, namespace); got != "" {
		t.Errorf("nothing is under way, and OLM is told %q", got)
	}

	const allowed = "True NoStepInProgress"

	blocks(t, namespace, "web")
	mark := env.Mark()
	createScaler(t, namespace, "api", "api") // something happens, but no step
	sees(t, namespace, "api", absent)
	changing(t, namespace, "web", metav1.ConditionFalse)
	becomes(t, namespace, allowed)
	if diff := cmp.Diff([]string{"update operatorconditions " + csv}, conditionWrites(t, operator, mark)); diff != "" {
		t.Errorf("writes at the end of a step (-want +got):\n%s", diff)
	}

	// An operator that stops allows upgrades, and the next one blocks them again.
	blocks(t, namespace, "web")
	operator.Stop(t)
	becomes(t, namespace, "True OperatorStopped")
	operator = start()
	blocks(t, namespace, "web")

	// A crash leaves the condition as it was.
	operator.Stop(t)
	changing(t, namespace, "web", metav1.ConditionFalse)
	var left operatorsv2.OperatorCondition
	if err := admin(t).Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: csv}, &left); err != nil {
		t.Fatal(err)
	}
	meta.SetStatusCondition(&left.Spec.Conditions, metav1.Condition{Type: "Upgradeable", Status: metav1.ConditionFalse, Reason: "StepInProgress", Message: "left behind"})
	if err := admin(t).Update(t.Context(), &left); err != nil {
		t.Fatal(err)
	}
	operator = start()
	becomes(t, namespace, allowed)

	// If nothing has changed, nothing is written.
	operator.Stop(t)
	mark = env.Mark()
	operator = start()
	createScaler(t, namespace, "job", "job")
	sees(t, namespace, "job", absent)
	operator.Stop(t)
	if got := conditionWrites(t, operator, mark); got != nil {
		t.Errorf("written although nothing has changed: %q", got)
	}
}

// changing writes into the status of a scaler whether a step is in progress.
func changing(t *testing.T, namespace, name string, status metav1.ConditionStatus) {
	t.Helper()
	writeStatus(t, namespace, name, func(s *v1beta1.VerticalScalerStatus) {
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: "Changing", Status: status, Reason: "Resizing", Message: "A test says so"})
	})
}

// blocks writes into the statuses of scalers that a step is in progress, until OLM is told so in the namespace. A reconcile
// that has begun before may write a status without it.
func blocks(t *testing.T, told, name string, others ...string) {
	t.Helper()
	testkit.Eventually(t, busy, func() string {
		for _, namespace := range append(others, told) {
			if !meta.IsStatusConditionTrue(scaler(t, namespace, name).Status.Conditions, "Changing") {
				changing(t, namespace, name, metav1.ConditionTrue)
			}
		}
		if is := upgradeableIs(t, told); is != "False StepInProgress" {
			return "OLM is told " + is
		}
		return ""
	})
}

// becomes waits for what OLM is told. The operator repeats a write that failed after a minute.
func becomes(t *testing.T, namespace, want string) {
	t.Helper()
	testkit.Eventually(t, busy, func() string {
		if got := upgradeableIs(t, namespace); got != want {
			return fmt.Sprintf("OLM is told %q, not %q", got, want)
		}
		return ""
	})
}

func conditionWrites(t *testing.T, operator *testkit.Operator, mark testkit.AuditMark) []string {
	t.Helper()
	writes, err := env.WritesSince(mark, operator.Agent)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, w := range writes {
		if w.Resource == "operatorconditions" {
			out = append(out, fmt.Sprintf("%s %s %s", w.Verb, w.Resource, w.Name))
		}
	}
	return out
}
