// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
)

func TestRightsAreCompared(t *testing.T) {
	const record = `
- {group: apps, resource: deployments, scope: Namespaced, verbs: [list, watch]}
- {group: "", resource: nodes, scope: Cluster, verbs: [list]}
`
	rule := func(group, resource string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
	}
	deployments, nodes := rule("apps", "deployments", "list", "watch"), rule("", "nodes", "list")
	for name, tc := range map[string]struct {
		namespaces, cluster []rbacv1.PolicyRule
		want                []string
	}{
		"equal":                   {namespaces: []rbacv1.PolicyRule{deployments}, cluster: []rbacv1.PolicyRule{nodes}},
		"equal, in several rules": {namespaces: []rbacv1.PolicyRule{rule("apps", "deployments", "watch"), rule("apps", "deployments", "list")}, cluster: []rbacv1.PolicyRule{nodes}},
		"an unused verb": {
			namespaces: []rbacv1.PolicyRule{rule("apps", "deployments", "list", "watch", "get")}, cluster: []rbacv1.PolicyRule{nodes},
			want: []string{"permissions[0].rules[0] grants get deployments.apps (Namespaced), which the operator never uses"},
		},
		"an unused rule": {
			namespaces: []rbacv1.PolicyRule{deployments, rule("", "secrets", "get")}, cluster: []rbacv1.PolicyRule{nodes},
			want: []string{"permissions[0].rules[1] grants get secrets (Namespaced), which the operator never uses"},
		},
		"a missing verb": {
			namespaces: []rbacv1.PolicyRule{rule("apps", "deployments", "list")}, cluster: []rbacv1.PolicyRule{nodes},
			want: []string{"the operator uses watch deployments.apps (Namespaced), which no rule grants"},
		},
		"cluster-wide instead of in namespaces": {
			cluster: []rbacv1.PolicyRule{deployments, nodes},
			want: []string{
				"clusterPermissions[0].rules[0] grants list deployments.apps (Cluster), which the operator never uses",
				"clusterPermissions[0].rules[0] grants watch deployments.apps (Cluster), which the operator never uses",
				"the operator uses list deployments.apps (Namespaced), which no rule grants",
				"the operator uses watch deployments.apps (Namespaced), which no rule grants",
			},
		},
		"a wildcard verb": {
			namespaces: []rbacv1.PolicyRule{deployments}, cluster: []rbacv1.PolicyRule{rule("", "nodes", "*")},
			want: []string{
				"clusterPermissions[0].rules[0] grants * nodes (Cluster), which the operator never uses",
				"the operator uses list nodes (Cluster), which no rule grants",
			},
		},
		"a path": {
			namespaces: []rbacv1.PolicyRule{deployments}, cluster: []rbacv1.PolicyRule{nodes, {NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
			want: []string{"clusterPermissions[0].rules[1] grants the paths [/metrics], which the operator never asks for"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			csv := &operatorsv1alpha1.ClusterServiceVersion{}
			strategy := &csv.Spec.InstallStrategy.StrategySpec
			strategy.Permissions = []operatorsv1alpha1.StrategyDeploymentPermissions{{Rules: tc.namespaces}}
			strategy.ClusterPermissions = []operatorsv1alpha1.StrategyDeploymentPermissions{{Rules: tc.cluster}}
			used, err := readUsed([]byte(record))
			if err != nil {
				t.Fatal(err)
			}
			granted, problems := grantedBy(csv)
			if diff := cmp.Diff(tc.want, append(problems, compareRights(granted, used)...)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnIncompleteRecordIsRejected(t *testing.T) {
	for name, tc := range map[string]struct{ record, want string }{
		"empty":         {"[]", "is empty"},
		"no verbs":      {"- {group: apps, resource: deployments, scope: Namespaced}", "incomplete"},
		"another scope": {"- {group: apps, resource: deployments, scope: Universe, verbs: [get]}", "incomplete"},
		"no list":       {"group: apps", "reading the record"},
		"unknown key":   {"- {apiGroup: apps, resource: deployments, scope: Namespaced, verbs: [get]}", "unknown field"},
		"twice":         {"- {group: apps, resource: deployments, scope: Namespaced, verbs: [get, get]}", "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readUsed([]byte(tc.record))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("readUsed() = %v, want an error with %q", err, tc.want)
			}
		})
	}
}
