// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// MaxNameLength is the length of the longest name of a scaler, in characters.
const MaxNameLength = 63

// Namespace is a policy's view of a namespace.
type Namespace struct {
	Name string
	// Labels are its labels. They may not be modified.
	Labels map[string]string
	// Excluded is true if an annotation excludes the namespace from all policies.
	Excluded bool
	// Terminating is true if the namespace is being deleted.
	Terminating bool
}

// Deployment is a policy's view of a Deployment.
type Deployment struct {
	Namespace, Name string
	// Labels are its labels. They may not be modified.
	Labels map[string]string
	// Excluded is true if an annotation excludes the Deployment from all policies.
	Excluded bool
	// IsOwned is true if a ScaledDeployment controls the Deployment.
	IsOwned bool
	// TooLarge is true if it is too large to be stored. It has no labels and requests then.
	TooLarge bool
	// Replicas is the number of pods that it has, without those that a rollout adds for a while.
	Replicas int32
	// Requests are the requests of its pod template, by container.
	Requests map[string]quantity.Amounts
}

// Key is its namespace and name.
func (d *Deployment) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
}

// IsExcluded reports whether annotations exclude an object from all policies.
func IsExcluded(annotations map[string]string) bool {
	return scaler.IsSet(annotations, v1beta1.ExcludeAnnotation)
}

// IsDetached reports whether the annotations of a scaler detach it from its policy.
func IsDetached(annotations map[string]string) bool {
	return scaler.IsSet(annotations, v1beta1.DetachedAnnotation)
}

// View has the common fields of a ScalingPolicy and a ClusterScalingPolicy. It points into the object.
type View struct {
	// Kind is v1beta1.ScalingPolicyKind or v1beta1.ClusterScalingPolicyKind.
	Kind   string
	Object metav1.Object
	Rules  *v1beta1.PolicyRules
	Status *v1beta1.ScalingPolicyStatus
	// Excluded are the Deployments that the policy excludes, or nil.
	Excluded *v1beta1.DeploymentExclusions
	// Cluster is the spec of a ClusterScalingPolicy; nil for a ScalingPolicy.
	Cluster *v1beta1.ClusterScalingPolicySpec
}

// ViewOf is the view of a policy. It panics for any other object.
func ViewOf(policy metav1.Object) View {
	switch p := policy.(type) {
	case *v1beta1.ScalingPolicy:
		return View{Kind: v1beta1.ScalingPolicyKind, Object: p, Rules: &p.Spec.PolicyRules, Status: &p.Status, Excluded: p.Spec.Exclude}
	case *v1beta1.ClusterScalingPolicy:
		out := View{Kind: v1beta1.ClusterScalingPolicyKind, Object: p, Rules: &p.Spec.PolicyRules, Status: &p.Status, Cluster: &p.Spec}
		if p.Spec.Exclude != nil {
			out.Excluded = &p.Spec.Exclude.DeploymentExclusions
		}
		return out
	}
	panic(fmt.Sprintf("%T is not a policy", policy)) // a mistake of this program
}

// Policy is a policy with parsed selectors. Its object may not be modified.
type Policy struct {
	View

	namespaces            labels.Selector // nil for the policy's own namespace
	deployments, excluded labels.Selector
	excludedNames         sets.Set[string]
	excludedSpaces        sets.Set[string]
	// ownNamespace is the namespace of the operator, which belongs to the system.
	ownNamespace string
}

// Read parses the selectors of a policy. ownNamespace is the namespace of the operator, if known. The error names a
// selector that cannot be parsed.
func Read(policy metav1.Object, ownNamespace string) (p *Policy, err error) {
	p = &Policy{View: ViewOf(policy), deployments: labels.Everything(), excluded: labels.Nothing(), ownNamespace: ownNamespace}
	if p.Cluster != nil {
		if p.namespaces, err = parse(&p.Cluster.NamespaceSelector, "spec.namespaceSelector"); err != nil {
			return nil, err
		}
		if p.Cluster.Exclude != nil {
			p.excludedSpaces = sets.New(p.Cluster.Exclude.Namespaces...)
		}
	}
	if p.Rules.DeploymentSelector != nil {
		if p.deployments, err = parse(p.Rules.DeploymentSelector, "spec.deploymentSelector"); err != nil {
			return nil, err
		}
	}
	if p.Excluded == nil {
		return p, nil
	}
	p.excludedNames = sets.New(p.Excluded.Deployments...)
	if p.Excluded.DeploymentSelector != nil {
		if p.excluded, err = parse(p.Excluded.DeploymentSelector, "spec.exclude.deploymentSelector"); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// parse converts a selector. An empty one selects nothing: the schema rejects it.
func parse(selector *metav1.LabelSelector, field string) (labels.Selector, error) {
	if len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 0 {
		return labels.Nothing(), nil
	}
	out, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return out, nil
}

// Key is the namespace and the name of the policy. The namespace of a ClusterScalingPolicy is empty.
func (p *Policy) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Object.GetNamespace(), Name: p.Object.GetName()}
}

// String describes the policy: "ScalingPolicy shop/web", "ClusterScalingPolicy fleet".
func (p *Policy) String() string {
	return p.Kind + " " + strings.TrimPrefix(p.Key().String(), string(types.Separator))
}

// IsPaused reports whether an annotation stops the policy from changing scalers.
func (p *Policy) IsPaused() bool {
	return scaler.IsSet(p.Object.GetAnnotations(), v1beta1.PausedAnnotation)
}

// Promotes reports whether scalers of the policy begin in another update mode than they end in.
func (p *Policy) Promotes() bool {
	return p.Rules.Rollout.Start != p.Rules.Template.UpdatePolicy.UpdateMode
}

// Covers reports whether Deployments of the namespace can be selected.
func (p *Policy) Covers(namespace string) bool {
	return p.Cluster != nil || p.Object.GetNamespace() == namespace
}

// Match reports whether the selectors of the policy match a Deployment, and the reason if it is excluded
// nevertheless.
func (p *Policy) Match(d *Deployment, namespace *Namespace) (matches bool, skipped string) {
	if !p.Covers(d.Namespace) || !d.TooLarge && !p.deployments.Matches(labels.Set(d.Labels)) ||
		p.namespaces != nil && !p.namespaces.Matches(labels.Set(namespace.Labels)) {
		return false, ""
	}
	switch {
	case p.Cluster != nil && p.Cluster.SystemNamespaces != v1beta1.SystemNamespacesInclude && p.isSystem(d.Namespace):
		return true, v1beta1.ReasonSystemNamespace
	case d.Excluded, namespace.Excluded, p.excludedSpaces.Has(d.Namespace), p.excludedNames.Has(d.Name), p.excluded.Matches(labels.Set(d.Labels)):
		return true, v1beta1.ReasonExcluded
	case d.IsOwned:
		return true, v1beta1.ReasonScaledDeployment
	case d.TooLarge:
		return true, v1beta1.ReasonTooLarge
	case len(d.Name) > MaxNameLength:
		return true, v1beta1.ReasonNameTooLong
	}
	return true, ""
}

// isSystem reports whether a namespace belongs to the cluster itself.
func (p *Policy) isSystem(namespace string) bool {
	return strings.HasPrefix(namespace, "kube-") || strings.HasPrefix(namespace, "openshift-") || namespace == "openshift" ||
		namespace == p.ownNamespace
}

// Choose returns the policy that sizes a Deployment; nil if none does.
func Choose(policies []*Policy, d *Deployment, namespace *Namespace) (chosen *Policy) {
	for _, p := range policies {
		if matches, skipped := p.Match(d, namespace); matches && skipped == "" && (chosen == nil || Compare(p, chosen) < 0) {
			chosen = p
		}
	}
	return chosen
}

// MaxPolicies is the largest number of ScalingPolicies of a namespace that select Deployments.
const MaxPolicies = 64

// OldestFirst orders the ScalingPolicies of a namespace. Those behind MaxPolicies select nothing.
func OldestFirst(policies []*v1beta1.ScalingPolicy) {
	slices.SortFunc(policies, func(a, b *v1beta1.ScalingPolicy) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// Compare is below 0 if a comes before b when both select a Deployment.
func Compare(a, b *Policy) int {
	return cmp.Or(
		cmp.Compare(rank(a), rank(b)),
		-cmp.Compare(a.Rules.Priority, b.Rules.Priority),
		a.Object.GetCreationTimestamp().Compare(b.Object.GetCreationTimestamp().Time),
		cmp.Compare(a.Object.GetName(), b.Object.GetName()),
	)
}

func rank(p *Policy) int {
	return slices.Index([]string{v1beta1.ScalingPolicyKind, v1beta1.ClusterScalingPolicyKind}, p.Kind)
}
