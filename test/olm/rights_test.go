// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm

package olm

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// right is a verb on a resource: one right that a role grants or that a request uses.
type right struct{ group, resource, verb string }

func (r right) String() string {
	if r.group == "" {
		return r.verb + " " + r.resource
	}
	return r.verb + " " + r.resource + "." + r.group
}

// notOurs are rights that the bundle does not grant, with the component that grants them.
var notOurs = map[right]string{
	{"operators.coreos.com", "operatorconditions", "get"}:          "OLM, for the operator's own OperatorCondition",
	{"operators.coreos.com", "operatorconditions", "update"}:       "OLM, for the operator's own OperatorCondition",
	{"operators.coreos.com", "operatorconditions", "patch"}:        "OLM, for the operator's own OperatorCondition",
	{"authorization.k8s.io", "selfsubjectaccessreviews", "create"}: "Kubernetes, for everybody",
	{"authorization.k8s.io", "selfsubjectrulesreviews", "create"}:  "Kubernetes, for everybody",
	{v1beta1.GroupVersion.Group, "verticalscalers", "update"}:      "dist/policies.yaml, for the scalers of policies",
	{"", "pods/eviction", "create"}:                                "dist/recreate.yaml, for the fallback Recreate",
	{"", "namespaces", "list"}:                                     "dist/policies.yaml, for ClusterScalingPolicies",
	{"", "namespaces", "watch"}:                                    "dist/policies.yaml, for ClusterScalingPolicies",
}

// askedWithin are rights that the API server checks while it handles another request, so
// the audit log does not show their use. The values say which request. Without one of these
// rights, a scenario fails with a forbidden request.
var askedWithin = map[right]string{
	{"autoscaling.verticalscaler.io", "scaleddeployments/finalizers", "update"}: "the admission plugin OwnerReferencesPermissionEnforcement, of " +
		"creating an object that blocks its owner's deletion",
}

// rights compares the rights that all scenarios have used with the rights that the bundle
// grants. Both must be equal: a granted right that is never used is too much, and a used
// right that is not granted would be missing elsewhere. The golden file of used rights
// serves checks of the bundle without a cluster.
func rights(t *testing.T) {
	if passed < scenarios {
		t.Errorf("%d of %d scenarios have passed: what rights are needed is known when all have", passed, scenarios)
	}
	used := map[right]bool{}
	namespacedResources := map[right]bool{} // without a verb
	for _, i := range installations {
		for _, r := range i.requests(t) {
			if r.code == http.StatusForbidden || r.code == http.StatusUnauthorized {
				continue // each scenario has reported it
			}
			used[right{r.group, r.resource, r.verb}] = true
			if r.namespace != "" {
				// A kind that is watched in all namespaces here is watched in some namespaces elsewhere.
				namespacedResources[right{r.group, r.resource, ""}] = true
			}
		}
	}
	for r, who := range askedWithin {
		t.Logf("%s is required by %s", r, who)
		used[r] = true
		namespacedResources[right{r.group, r.resource, ""}] = true
	}
	granted := released(t).grants(t)
	for r := range granted {
		if !used[r] {
			t.Errorf("granted and never used: %s", r)
		}
	}
	for r := range used {
		switch {
		case notOurs[r] != "":
			delete(used, r)
		case !granted[r]:
			t.Errorf("used and not granted by the bundle: %s", r)
		}
	}
	t.Logf("%d rights are granted by the bundle, %d of what it can grant are used", len(granted), len(used))
	if *update && passed < scenarios {
		t.Fatal("the golden file is not rewritten")
	}
	compareGolden(t, used, namespacedResources)
}

// grants returns the rights in the ClusterServiceVersion.
func (b bundle) grants(t *testing.T) map[right]bool {
	t.Helper()
	csv := b.object(t, csvFile)
	out := map[right]bool{}
	for _, field := range []string{"permissions", "clusterPermissions"} {
		permissions, _, err := unstructured.NestedSlice(csv.Object, "spec", "install", "spec", field)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range permissions {
			var permission struct {
				Rules []rbacv1.PolicyRule `json:"rules"`
			}
			content, ok := p.(map[string]any)
			if !ok {
				t.Fatalf("%s holds a %T", field, p)
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &permission); err != nil {
				t.Fatal(err)
			}
			for _, rule := range permission.Rules {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							out[right{group, resource, verb}] = true
						}
					}
				}
			}
		}
	}
	return out
}

// compareGolden compares with, or writes, testdata/rbac-used.yaml.
func compareGolden(t *testing.T, used, namespacedResources map[right]bool) {
	t.Helper()
	type entry struct {
		scope string
		right // without a verb
	}
	verbs := map[entry][]string{}
	for r := range used {
		e := entry{"Cluster", right{r.group, r.resource, ""}}
		if namespacedResources[e.right] {
			e.scope = "Namespaced"
		}
		verbs[e] = append(verbs[e], r.verb)
	}
	entries := slices.SortedFunc(maps.Keys(verbs), func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.scope, b.scope), cmp.Compare(a.group, b.group), cmp.Compare(a.resource, b.resource))
	})
	var got strings.Builder
	got.WriteString(goldenHead)
	for _, e := range entries {
		slices.Sort(verbs[e])
		fmt.Fprintf(&got, "- group: %q\n  resource: %s\n  scope: %s\n  verbs: [%s]\n", e.group, e.resource, e.scope, strings.Join(verbs[e], ", "))
	}
	path := filepath.Join("testdata", "rbac-used.yaml")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("the rights used have changed; read the difference, then make test-olm ARGS=-update (-want +got):\n%s", diff)
	}
}

const goldenHead = `# The rights that the operator has used in the scenarios of test/olm: all that the bundle grants, and nothing else. What
# OLM grants (the operator's own OperatorCondition), Kubernetes (questions about oneself) and the further files of dist is left out.
# Namespaced is what happens in namespaces that the operator watches or runs in. Written by make test-olm ARGS=-update.
`
