// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scorecard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	operatorsv1alpha1 "github.com/operator-framework/api/pkg/operators/v1alpha1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/test/olm"
)

// rbacUsedIsGranted compares the rights in the bundle with the rights that the operator has
// used. Both differences are errors: a missing right will be needed in an incident, and an
// unused right only helps an attacker.
func rbacUsedIsGranted(_ context.Context, s Setting, log *Log) (problems []string, err error) {
	csv, err := readCSV(s.Bundle)
	if err != nil {
		return nil, err
	}
	used, err := readUsed(olm.RBACUsed)
	if err != nil {
		return nil, err
	}
	granted, problems := grantedBy(csv)
	problems = append(problems, compareRights(granted, used)...)
	log.say("%d rights are granted, %d are used", len(granted), len(used))
	return problems, nil
}

// The scopes of rights. OLM grants namespaced rights of the bundle in the namespaces that
// the operator watches and in its own; the rest is granted in the whole cluster.
const (
	namespaced  = "Namespaced"
	clusterWide = "Cluster"
)

// Used is an entry of the record of what the operator uses.
type Used struct {
	// Group and Resource are as in a rule of RBAC: "" is the core group, and
	// subresources are written "pods/resize".
	Group    string `json:"group"`
	Resource string `json:"resource"`
	// Scope is Namespaced for requests in namespaces that the operator watches or runs in,
	// and Cluster for cluster-scoped requests.
	Scope string `json:"scope"`
	// Verbs are those that were used.
	Verbs []string `json:"verbs"`
}

// right is one verb for one resource.
type right struct{ scope, group, resource, verb string }

func (r right) String() string {
	group := "." + r.group
	if r.group == "" {
		group = ""
	}
	return fmt.Sprintf("%s %s%s (%s)", r.verb, r.resource, group, r.scope)
}

func (r right) compare(other right) int {
	return cmp.Or(
		cmp.Compare(r.scope, other.scope), cmp.Compare(r.group, other.group),
		cmp.Compare(r.resource, other.resource), cmp.Compare(r.verb, other.verb),
	)
}

// readUsed reads the record. An empty record or a duplicate entry is an error.
func readUsed(record []byte) (map[right]bool, error) {
	var entries []Used
	if err := yaml.UnmarshalStrict(record, &entries); err != nil {
		return nil, fmt.Errorf("reading the record of used rights: %w", err)
	}
	used := map[right]bool{}
	for i, e := range entries {
		if e.Resource == "" || len(e.Verbs) == 0 || (e.Scope != namespaced && e.Scope != clusterWide) {
			return nil, fmt.Errorf("entry %d of the record of used rights is incomplete: %+v", i, e)
		}
		for _, verb := range e.Verbs {
			r := right{e.Scope, e.Group, e.Resource, verb}
			if used[r] {
				return nil, fmt.Errorf("the record of used rights has %s twice", r)
			}
			used[r] = true
		}
	}
	if len(used) == 0 {
		return nil, errors.New("the record of used rights is empty")
	}
	return used, nil
}

// grantedBy lists the rights in a bundle, each with the rules that grant it. A rule that is
// not for resources is a problem.
func grantedBy(csv *operatorsv1alpha1.ClusterServiceVersion) (granted map[right][]string, problems []string) {
	granted = map[right][]string{}
	strategy := csv.Spec.InstallStrategy.StrategySpec
	for _, in := range []struct {
		field, scope string
		permissions  []operatorsv1alpha1.StrategyDeploymentPermissions
	}{
		{"permissions", namespaced, strategy.Permissions},
		{"clusterPermissions", clusterWide, strategy.ClusterPermissions},
	} {
		for i, p := range in.permissions {
			for j, rule := range p.Rules {
				name := fmt.Sprintf("%s[%d].rules[%d]", in.field, i, j)
				if len(rule.NonResourceURLs) > 0 {
					problems = append(problems, fmt.Sprintf("%s grants the paths %v, which the operator never asks for", name, rule.NonResourceURLs))
				}
				for _, r := range rightsOf(rule, in.scope) {
					granted[r] = append(granted[r], name)
				}
			}
		}
	}
	return granted, problems
}

// rightsOf lists the rights that a rule grants on resources.
func rightsOf(rule rbacv1.PolicyRule, scope string) (rights []right) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				rights = append(rights, right{scope, group, resource, verb})
			}
		}
	}
	return rights
}

// compareRights returns the rights that are granted and not used, and those that are used
// and not granted.
func compareRights(granted map[right][]string, used map[right]bool) (problems []string) {
	for _, r := range slices.SortedFunc(maps.Keys(granted), right.compare) {
		if !used[r] {
			problems = append(problems, fmt.Sprintf("%s grants %s, which the operator never uses", strings.Join(granted[r], " and "), r))
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(used), right.compare) {
		if len(granted[r]) == 0 {
			problems = append(problems, fmt.Sprintf("the operator uses %s, which no rule grants", r))
		}
	}
	return problems
}
