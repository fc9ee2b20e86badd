// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"
	_ "unsafe" // for the seam below

	"github.com/google/go-cmp/cmp"
	"github.com/operator-framework/api/crds"
	operatorsv2 "github.com/operator-framework/api/pkg/operators/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/provision"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/upgradeable"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

const csv = "verticalscaler-operator.v0.1.0"

// readNamespace is operator-lib's way to read the file that tells a pod's namespace. A
// test has no such file, and operator-lib no other seam.
//
//go:linkname readNamespace github.com/operator-framework/operator-lib/conditions.readNamespace
var readNamespace func() (string, error)

// underOLM makes the OperatorCondition that OLM would, and gives the client of a
// service account that has the rights that OLM grants.
func underOLM(t *testing.T, namespace string) client.Client {
	t.Helper()
	if _, err := envtest.InstallCRDs(env.Config, envtest.CRDInstallOptions{
		CRDs: []*apiextensionsv1.CustomResourceDefinition{crds.OperatorCondition()},
	}); err != nil {
		t.Fatal(err)
	}
	t.Setenv(upgradeable.ConditionNameEnv, csv)
	t.Setenv(provision.NamespaceEnv, namespace)
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
	out, err := client.New(c, client.Options{Scheme: upgradeable.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// upgradeableIs is what the OperatorCondition says: status, reason and message; empty
// if the condition is not there.
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
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// The Condition works with the rights that OLM grants, in a pod and outside of one.
func TestTheConditionOfOLM(t *testing.T) {
	inPod := readNamespace
	t.Cleanup(func() { readNamespace = inPod })
	for name, pod := range map[string]bool{"in a pod, through operator-lib": true, "outside of a pod": false} {
		t.Run(name, func(t *testing.T) {
			namespace := env.Namespace(t)
			granted := underOLM(t, namespace)
			told := namespace
			readNamespace = inPod
			if pod {
				readNamespace = func() (string, error) { return namespace, nil }
				told = "elsewhere"
			}
			condition, err := upgradeable.Open(granted, told)
			if err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(t, soon, func() string { // the authorizer learns of the role
				c, err := condition.Get(t.Context())
				if c != nil {
					t.Fatalf("a condition that is not there is %v", c)
				}
				if err != nil {
					return err.Error()
				}
				return ""
			})
			if err := condition.Set(t.Context(), metav1.ConditionFalse, "StepUnderWay", "a step"); err != nil {
				t.Fatal(err)
			}
			if got, want := upgradeableIs(t, namespace), "False StepUnderWay: a step"; got != want {
				t.Errorf("the condition is %q, want %q", got, want)
			}
			c, err := condition.Get(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c == nil || c.Status != metav1.ConditionFalse || c.LastTransitionTime.IsZero() {
				t.Errorf("it reads %v", c)
			}
			// Somebody else's writes are no reason to fail.
			done := make(chan struct{})
			go func() {
				defer close(done)
				for i := range 20 {
					override(t, namespace, fmt.Sprint("override ", i))
				}
			}()
			for i := range 20 {
				if err := condition.Set(t.Context(), metav1.ConditionTrue, "NoStepUnderWay", fmt.Sprint("message ", i)); err != nil && !apierrors.IsConflict(err) {
					t.Error(err)
				}
			}
			<-done
			if err := condition.Set(t.Context(), metav1.ConditionTrue, "NoStepUnderWay", "none"); err != nil {
				t.Fatal(err)
			}
			if got, want := upgradeableIs(t, namespace), "True NoStepUnderWay: none"; got != want {
				t.Errorf("the condition is %q, want %q", got, want)
			}
		})
	}
}

// override writes to the same object as an administrator does.
func override(t *testing.T, namespace, message string) {
	t.Helper()
	var object operatorsv2.OperatorCondition
	if err := admin(t).Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: csv}, &object); err != nil {
		t.Error(err)
		return
	}
	object.Spec.Overrides = []metav1.Condition{{
		Type: "Upgradeable", Status: metav1.ConditionTrue, Reason: "Mine", Message: message, LastTransitionTime: metav1.Now(),
	}}
	if err := admin(t).Update(t.Context(), &object); err != nil && !apierrors.IsConflict(err) {
		t.Error(err)
	}
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

	reconciling := func(status metav1.ConditionStatus) {
		writeStatus(t, namespace, "web", func(s *v1beta1.VerticalScalerStatus) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: "Reconciling", Status: status, Reason: "Resizing", Message: "A test says so"})
		})
	}
	becomes := func(want string) {
		t.Helper()
		testkit.Eventually(t, soon, func() string {
			if got := upgradeableIs(t, namespace); got != want {
				return fmt.Sprintf("OLM is told %q, not %q", got, want)
			}
			return ""
		})
	}
	held := "False StepUnderWay: a step is under way, of scaler " + namespace + "/web"

	reconciling(metav1.ConditionTrue)
	becomes(held)
	mark := env.Mark()
	createScaler(t, namespace, "api", "api") // something happens, but no step
	sees(t, namespace, "api", absent)
	began := time.Now()
	reconciling(metav1.ConditionFalse)
	becomes("True NoStepUnderWay: No step is under way")
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("it let through after %s: steps that follow each other would be told apart", took)
	}
	if diff := cmp.Diff([]string{"update operatorconditions " + csv}, conditionWrites(t, operator, mark)); diff != "" {
		t.Errorf("writes of one hold's end (-want +got):\n%s", diff)
	}

	// An operator that is gone holds nothing, and the next one holds again.
	reconciling(metav1.ConditionTrue)
	becomes(held)
	operator.Stop(t)
	becomes("True OperatorStopped: The operator has stopped; a step survives that")
	operator = start()
	becomes(held)

	// A crash leaves the condition as it was.
	operator.Stop(t)
	reconciling(metav1.ConditionFalse)
	condition, err := upgradeable.Open(admin(t), namespace)
	if err != nil {
		t.Fatal(err)
	}
	if err := condition.Set(t.Context(), metav1.ConditionFalse, "StepUnderWay", "left behind"); err != nil {
		t.Fatal(err)
	}
	operator = start()
	becomes("True NoStepUnderWay: No step is under way")

	// And if there is nothing to say, nothing is written.
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
