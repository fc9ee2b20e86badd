// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Rights that no role in the bundle may grant, to the operator or to users.
var rightsRules = []Rule{
	{"rights", noPowerfulRights},
	{"rights for policies", noRightsForPolicies},
	{"roles for people", rolesForPeople},
}

// grant is an RBAC rule and its source.
type grant struct {
	where    string
	operator bool // granted to the operator, in the namespaces that it watches
	forUsers bool // in a role that is not bound to the operator
	rule     rbacv1.PolicyRule
}

func grants(b *Bundle) (out []grant, problems []string) {
	strategy := b.CSV.Spec.InstallStrategy.StrategySpec
	for _, p := range strategy.Permissions {
		for _, r := range p.Rules {
			out = append(out, grant{where: "permissions of " + p.ServiceAccountName, operator: true, rule: r})
		}
	}
	for _, p := range strategy.ClusterPermissions {
		for _, r := range p.Rules {
			out = append(out, grant{where: "clusterPermissions of " + p.ServiceAccountName, rule: r})
		}
	}
	for _, o := range b.Objects {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		role, err := roleOf(o)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		for _, r := range role.Rules {
			out = append(out, grant{where: o.GetKind() + " " + o.GetName(), forUsers: true, rule: r})
		}
	}
	return out, problems
}

func roleOf(o *unstructured.Unstructured) (role rbacv1.ClusterRole, err error) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
		return role, fmt.Errorf("reading %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return role, nil
}

// tooPowerful are rights that are equivalent to many others. An empty list of verbs means
// any verb.
var tooPowerful = []struct {
	group, resource string
	verbs           []string
}{
	{"", "secrets", nil},
	{"", "pods", []string{"create", "update", "patch", "delete", "deletecollection"}},
	{"", "pods/exec", nil},
	{"", "pods/attach", nil},
	{"", "pods/portforward", nil},
	{"", "pods/ephemeralcontainers", nil},
	{"", "pods/eviction", nil},
	{"", "pods/resize", nil},
	{"", "serviceaccounts", nil},
	{"", "serviceaccounts/token", nil},
	{"", "nodes", []string{"create", "update", "patch", "delete", "deletecollection"}},
	{"", "nodes/proxy", nil},
	{"", "namespaces", []string{"create", "update", "patch", "delete", "deletecollection"}},
	{"apiextensions.k8s.io", "customresourcedefinitions", nil},
	{"rbac.authorization.k8s.io", "roles", nil},
	{"rbac.authorization.k8s.io", "rolebindings", nil},
	{"rbac.authorization.k8s.io", "clusterroles", nil},
	{"rbac.authorization.k8s.io", "clusterrolebindings", nil},
	{"certificates.k8s.io", "certificatesigningrequests", nil},
	{"apps", "deployments", []string{"create", "update", "delete", "deletecollection"}},
	{"apps", "replicasets", []string{"create", "update", "patch", "delete", "deletecollection"}},
	// They size Deployments in all namespaces, and are for cluster administrators.
	{group, "clusterscalingpolicies", []string{"create", "update", "patch", "delete", "deletecollection"}},
}

// group is that of our kinds.
const group = "autoscaling.verticalscaler.io"

// neededByTheOperator are powerful rights that the operator needs, and that no role for
// users has, except resizer. It resizes pods, and creates and deletes the Deployments of
// ScaledDeployments.
var neededByTheOperator = map[string]bool{"create deployments": true, "delete deployments": true, "patch pods/resize": true}

// resizer is the role for users whose scalers may resize running pods. It grants nothing
// else, so that it says something to be bound to it.
const resizer = "verticalscaler-resizer"

func noPowerfulRights(b *Bundle) (out []string) {
	all, out := grants(b)
	for _, g := range all {
		for _, list := range [][]string{g.rule.Verbs, g.rule.APIGroups, g.rule.Resources, g.rule.NonResourceURLs} {
			if slices.Contains(list, "*") {
				out = append(out, fmt.Sprintf("%s: %v grants everything with *", g.where, g.rule))
			}
		}
		for _, verb := range []string{"escalate", "bind", "impersonate"} {
			if slices.Contains(g.rule.Verbs, verb) {
				out = append(out, fmt.Sprintf("%s: the verb %s grants the rights of others", g.where, verb))
			}
		}
		for _, verb := range g.rule.Verbs {
			out = append(out, g.tooPowerful(verb)...)
		}
	}
	return out
}

// tooPowerful returns the resources on which the grant allows the verb and should not.
func (g grant) tooPowerful(verb string) (out []string) {
	for _, p := range tooPowerful {
		granted := slices.Contains(g.rule.APIGroups, p.group) && slices.Contains(g.rule.Resources, p.resource)
		right := verb + " " + p.resource
		isNeeded := g.operator && neededByTheOperator[right] || g.where == "ClusterRole "+resizer && right == "patch pods/resize"
		if granted && !isNeeded && (len(p.verbs) == 0 || slices.Contains(p.verbs, verb)) {
			out = append(out, fmt.Sprintf("%s: %s %s is too powerful", g.where, verb, p.resource))
		}
	}
	return out
}

// noRightsForPolicies rejects the rights with which policies create scalers, as far as ScaledDeployments do not need them,
// too. An administrator grants them with dist/policies.yaml.
func noRightsForPolicies(b *Bundle) (out []string) {
	all, _ := grants(b) // the rule "rights" reports what cannot be read
	for _, g := range all {
		if g.forUsers {
			continue
		}
		for _, r := range []struct{ verb, group, resource string }{
			{"update", group, "verticalscalers"}, {"list", "", "namespaces"}, {"watch", "", "namespaces"},
		} {
			if slices.Contains(g.rule.Verbs, r.verb) && slices.Contains(g.rule.APIGroups, r.group) && slices.Contains(g.rule.Resources, r.resource) {
				out = append(out, fmt.Sprintf("%s: %s %s is for policies, and granted by dist/policies.yaml", g.where, r.verb, r.resource))
			}
		}
	}
	return out
}

// rolesForPeople requires a role to read and one to write, for every kind of the API for
// users, and one to have scalers resize running pods. Only administrators write ClusterScalingPolicies.
func rolesForPeople(b *Bundle) (out []string) {
	kinds := []string{"verticalscalers", "scaleddeployments", "scalingpolicies"}
	for name, rule := range map[string]rbacv1.PolicyRule{
		"verticalscaler-viewer": {Verbs: []string{"get", "list", "watch"}, Resources: append([]string{"clusterscalingpolicies"}, kinds...)},
		"verticalscaler-editor": {Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}, Resources: kinds},
		resizer:                 {Verbs: []string{"patch"}, Resources: []string{"pods/resize"}},
	} {
		i := slices.IndexFunc(b.Objects, func(o *unstructured.Unstructured) bool {
			return o.GetKind() == "ClusterRole" && o.GetName() == name
		})
		if i < 0 {
			out = append(out, fmt.Sprintf("there is no ClusterRole %s", name))
			continue
		}
		role, err := roleOf(b.Objects[i])
		if err != nil {
			out = append(out, err.Error())
			continue
		}
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				if !slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
					return slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, verb)
				}) {
					out = append(out, fmt.Sprintf("ClusterRole %s does not grant %s %s", name, verb, resource))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
