// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/adoption"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// surveyor reads what the preview of a policy needs.
type surveyor struct {
	client  client.Client
	policy  client.Object
	cluster *kube.Cluster

	// existing is the policy with that name; nil if there is none.
	existing client.Object
	others   []client.Object
	missing  []string

	operators    explain.Operators
	operatorsErr error
}

// errPoliciesNotServed is the error for an operator that is too old, or not installed.
var errPoliciesNotServed = errors.New("the API server does not serve ScalingPolicies: is the operator installed, in a version that has them?")

// findExisting reads the policies that the user may read.
func (s *surveyor) findExisting(ctx context.Context) error {
	isCluster := s.policy.GetNamespace() == ""
	namespaced, err := kube.Objects(ctx, s.client, &v1beta1.ScalingPolicyList{}, client.InNamespace(s.policy.GetNamespace()))
	switch {
	case apierrors.IsNotFound(err):
		return errPoliciesNotServed
	case err != nil && !isCluster:
		return fmt.Errorf("listing ScalingPolicies: %w", err)
	case err != nil:
		s.missing = append(s.missing, fmt.Sprintf("ScalingPolicies, which come before a ClusterScalingPolicy: %v", err))
	}
	cluster, err := kube.Objects(ctx, s.client, &v1beta1.ClusterScalingPolicyList{})
	switch {
	case apierrors.IsNotFound(err) && isCluster:
		return errPoliciesNotServed
	case err != nil && isCluster:
		return fmt.Errorf("listing ClusterScalingPolicies: %w", err)
	} // A ScalingPolicy comes before all of them.
	for _, p := range append(namespaced, cluster...) {
		if p.GetNamespace() == s.policy.GetNamespace() && p.GetName() == s.policy.GetName() {
			s.existing = p
			continue
		}
		s.others = append(s.others, p)
	}
	return nil
}

// toWrite is what is sent to the API server.
func (s *surveyor) toWrite() client.Object {
	if s.existing != nil {
		return withSpecOf(s.existing, s.policy)
	}
	return policyCopy(s.policy)
}

// world reads what the policy may select. stored is the policy as the API server would store it.
func (s *surveyor) world(ctx context.Context, stored client.Object) (w adoption.World, err error) {
	own := s.cluster.OperatorNamespace()
	s.operators, s.operatorsErr = s.cluster.Operators(ctx, s.client, s.policy.GetNamespace())
	if operator, ok := s.operators.For(s.policy.GetNamespace()); ok {
		own = operator.Namespace
	}
	w = adoption.World{Described: kube.Described(stored), Exists: s.existing != nil, IsSame: s.existing != nil && isSame(s.existing, stored)}
	if w.Policy, err = parsed(stored, own); err != nil {
		return w, err
	}
	for _, other := range s.others {
		// One that cannot be parsed selects nothing.
		if p, err := parsed(other, own); err == nil {
			w.Others = append(w.Others, p)
		}
	}
	if w.Namespaces, err = s.namespaces(ctx); err != nil {
		return w, err
	}
	if w.Deployments, err = s.deployments(ctx); err != nil {
		return w, err
	}
	if w.Scalers, err = kube.Scalers(ctx, s.client, client.InNamespace(s.policy.GetNamespace())); err != nil {
		return w, err
	}
	w.Missing = s.missing
	return w, nil
}

func (s *surveyor) namespaces(ctx context.Context) (map[string]*fleet.Namespace, error) {
	out := map[string]*fleet.Namespace{}
	add := func(n *corev1.Namespace) {
		out[n.Name] = &fleet.Namespace{Name: n.Name, Labels: n.Labels, Excluded: fleet.IsExcluded(n.Annotations), Terminating: n.DeletionTimestamp != nil}
	}
	if name := s.policy.GetNamespace(); name != "" {
		var n corev1.Namespace
		if err := s.client.Get(ctx, client.ObjectKey{Name: name}, &n); err != nil {
			// An operator that watches some namespaces only does not read it, either.
			s.missing = append(s.missing, fmt.Sprintf("Whether an annotation excludes namespace %s: %v", name, err))
			return out, nil
		}
		add(&n)
		return out, nil
	}
	err := kube.List(ctx, s.client, func(page *corev1.NamespaceList) {
		for i := range page.Items {
			add(&page.Items[i])
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	return out, nil
}

func (s *surveyor) deployments(ctx context.Context) (all []*fleet.Deployment, err error) {
	err = kube.List(ctx, s.client, func(page *appsv1.DeploymentList) {
		for i := range page.Items {
			all = append(all, inventory.ReadForFleet(&page.Items[i]))
		}
	}, client.InNamespace(s.policy.GetNamespace()))
	if err != nil {
		return nil, fmt.Errorf("listing Deployments: %w", err)
	}
	return all, nil
}

// operatorAccount is the service account of the operator.
const operatorAccount = "verticalscaler-operator"

// doubts say why the policy may do nothing.
func (s *surveyor) doubts(ctx context.Context) (out []string) {
	now := s.cluster.Now()
	operator, isKnown := s.operators.For(s.policy.GetNamespace())
	switch {
	case s.operatorsErr != nil:
		out = append(out, fmt.Sprintf("whether the operator runs is not known: %v", s.operatorsErr))
	case !isKnown:
		out = append(out, "nothing happens until an operator runs: no lease is found")
	case operator.IsSilent(now):
		out = append(out, "nothing happens until the operator runs: "+operator.Report(now))
	}
	if isKnown && s.isForbidden(ctx, operator.Namespace) {
		out = append(out, fmt.Sprintf("the operator in namespace %s lacks the rights that policies need: %s", operator.Namespace, release.Release{Version: cli.Version, Namespace: operator.Namespace}.Install(release.Policies)))
	}
	if s.existing != nil {
		if c := meta.FindStatusCondition(kube.Described(s.existing).Status.Conditions, v1beta1.ConditionReady); c != nil && c.Status != "True" && !slices.Contains(out, c.Message) {
			out = append(out, fmt.Sprintf("the policy that exists is not Ready (%s): %s", c.Reason, explain.Printable(c.Message)))
		}
	}
	return out
}

// isForbidden reports whether the operator is known to lack a right that policies need. Most users may not ask.
func (s *surveyor) isForbidden(ctx context.Context, operatorNamespace string) bool {
	rights := []authorizationv1.ResourceAttributes{{
		Namespace: s.policy.GetNamespace(), Verb: "create", Group: v1beta1.GroupVersion.Group, Version: v1beta1.GroupVersion.Version, Resource: "verticalscalers",
	}}
	if s.policy.GetNamespace() == "" {
		rights = append(rights, authorizationv1.ResourceAttributes{Verb: "list", Version: "v1", Resource: "namespaces"})
	}
	for _, right := range rights {
		review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &right, User: "system:serviceaccount:" + operatorNamespace + ":" + operatorAccount,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + operatorNamespace, "system:authenticated"},
		}}
		if err := s.client.Create(ctx, &review); err == nil && !review.Status.Allowed {
			return true
		}
	}
	return false
}
