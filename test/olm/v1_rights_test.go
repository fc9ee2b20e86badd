// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm && olmv1

package olm

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// access is one verb on one resource, in all namespaces if namespace is empty, and on all objects if name is empty.
type access struct{ namespace, group, resource, verb, name string }

func (a access) String() string {
	return strings.Join(strings.Fields(a.verb+" "+strings.TrimSuffix(a.resource+"."+a.group, ".")+" "+a.name+" "+a.namespace), " ")
}

// installerRights compares the rights of dist/olm-v1.yaml with those that OLM has used as the service account. Each right has been
// used, or is one of the operator's, which nobody may grant without having it.
func installerRights(t *testing.T, began time.Time, others ...bundle) {
	t.Helper()
	shipped, err := os.ReadFile(filepath.Join(root(), "dist", "olm-v1.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	first := released(t)
	if diff := cmp.Diff(strings.TrimSpace(string(shipped)), rightsFor(t, first)); diff != "" {
		t.Fatalf("dist/olm-v1.yaml is not for this bundle: run make olm-v1 (-have +want):\n%s", diff)
	}
	used := map[access]bool{
		// Checked by the admission plugin OwnerReferencesPermissionEnforcement while OLM creates objects.
		{group: "olm.operatorframework.io", resource: "clusterextensions/finalizers", verb: "update", name: extensionName}: true,
	}
	user := "system:serviceaccount:" + v1Namespace + ":" + installerName
	var refused []string
	all := requestsOf(t, user, began, time.Time{})
	for _, r := range all {
		if r.code == http.StatusForbidden {
			refused = append(refused, r.String())
			continue
		}
		// The rights of both roles: those in the whole cluster, and those in the namespace.
		for _, namespace := range []string{"", r.namespace} {
			for _, name := range []string{"", r.name} {
				used[access{namespace, r.group, r.resource, r.verb, name}] = true
			}
		}
	}
	if len(refused) > 0 {
		t.Errorf("OLM lacks rights:\n%s", strings.Join(slices.Compact(refused), "\n"))
	}
	granted := map[access]bool{}
	for _, o := range render(t, first) {
		if isRole(o) {
			maps.Copy(granted, accesses(t, o))
		}
	}
	n := 0
	for _, o := range decoded(t, string(shipped)) {
		if !isRole(o) {
			continue
		}
		for a := range accesses(t, o) {
			n++
			if !used[a] && !granted[a] {
				t.Errorf("OLM has a right that it does not use: %s", a)
			}
		}
	}
	t.Logf("of %d rights, %d are the operator's; OLM has used the others in %d requests", n, len(granted), len(all))
	for _, b := range others { // their rights are like those of the first
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: installerName + ".v" + b.version}}
		if err := env.Client.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	operatorRights(t, first, granted)
}

func isRole(o unstructured.Unstructured) bool {
	return o.GetKind() == "Role" || o.GetKind() == "ClusterRole"
}

// accesses are the rights in a role.
func accesses(t *testing.T, role unstructured.Unstructured) map[access]bool {
	t.Helper()
	out := map[access]bool{}
	var content rbacv1.ClusterRole // a Role has the same rules
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(role.Object, &content); err != nil {
		t.Fatal(err)
	}
	for _, rule := range content.Rules {
		maps.Copy(out, accessesOf(rule, role.GetNamespace()))
	}
	return out
}

func accessesOf(rule rbacv1.PolicyRule, namespace string) map[access]bool {
	out := map[access]bool{}
	names := rule.ResourceNames
	if len(names) == 0 {
		names = []string{""}
	}
	for _, verb := range rule.Verbs {
		for _, path := range rule.NonResourceURLs {
			out[access{resource: path, verb: verb}] = true
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, name := range names {
					out[access{namespace, group, resource, verb, name}] = true
				}
			}
		}
	}
	return out
}

// operatorRights shows that the operator's rights are necessary for OLM: without any one rule of dist/olm-v1.yaml that has one of
// them, the API server does not let the service account create the operator's roles.
func operatorRights(t *testing.T, b bundle, granted map[access]bool) {
	t.Helper()
	config := rest.CopyConfig(env.Config)
	config.QPS = -1
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + v1Namespace + ":" + installerName, Groups: []string{"system:serviceaccounts", "system:authenticated"},
	}
	installer, err := client.New(config, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	// refusal is why the service account may not create the operator's roles.
	refusal := func() error {
		for _, o := range render(t, b) {
			if o.GetKind() != "ClusterRole" {
				continue
			}
			o.SetName("try-" + o.GetName())
			if err := installer.Create(t.Context(), &o, client.DryRunAll); err != nil {
				return err
			}
		}
		return nil
	}
	allow(t, b)
	eventually(t, func() string { return said(refusal()) })
	role := &rbacv1.ClusterRole{}
	if err := env.Client.Get(t.Context(), key("", installerName+".v"+b.version), role); err != nil {
		t.Fatal(err)
	}
	rules, n := role.Rules, 0
	for i, rule := range rules {
		one := accessesOf(rule, "")
		maps.DeleteFunc(one, func(a access, _ bool) bool { return !granted[a] })
		if len(one) == 0 {
			continue // OLM's own
		}
		n++
		role.Rules = slices.Delete(slices.Clone(rules), i, i+1)
		if err := env.Client.Update(t.Context(), role); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			if err := refusal(); !apierrors.IsForbidden(err) {
				return fmt.Sprintf("without the rule %v, the operator's roles can be created: %v", rule, err)
			}
			return ""
		})
	}
	t.Logf("without any one of %d rules, the operator's roles cannot be created", n)
}
