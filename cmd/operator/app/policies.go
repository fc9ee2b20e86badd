// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/scalingpolicy"
)

var (
	// clusterPolicyRights are part of the role "manager-cluster" in config/rbac.
	clusterPolicyRights = watching(v1beta1.GroupVersion.Group, "clusterscalingpolicies")
	// policyRights and namespaceRights are those of the component "policies" in config/components.
	policyRights = []right{
		{"create", v1beta1.GroupVersion.Group, "verticalscalers"},
		{"update", v1beta1.GroupVersion.Group, "verticalscalers"},
		{"delete", v1beta1.GroupVersion.Group, "verticalscalers"},
	}
	namespaceRights = watching("", "namespaces")
)

// servesClusterPolicies reports whether ClusterScalingPolicies are read. They are cluster-scoped, so an operator that
// is limited to some namespaces does not read them.
func (s Scope) servesClusterPolicies() bool {
	return len(s.Namespaces) == 0 && !s.ClusterPoliciesForbidden
}

// missingForPolicies lists the rights that only policies need and that the operator lacks; empty if it has
// them all.
func (check accessCheck) missingForPolicies(ctx context.Context, s Scope) (string, error) {
	if len(s.Namespaces) == 0 {
		return check.missing(ctx, metav1.NamespaceAll, slices.Concat(namespaceRights, policyRights))
	}
	namespaces, _ := s.readable()
	var parts []string
	for _, namespace := range namespaces {
		missing, err := check.missing(ctx, namespace, policyRights)
		if err != nil {
			return "", err
		}
		if missing != "" {
			parts = append(parts, missing+" in namespace "+namespace)
		}
	}
	return strings.Join(parts, "; "), nil
}

// policyAccess implements scalingpolicy.Rights.
type policyAccess struct {
	check   accessCheck // nil if the manager was set up by Setup
	scope   Scope
	granted func() // restarts the manager
}

// Missing implements scalingpolicy.Rights.
func (a policyAccess) Missing() string { return a.scope.PoliciesForbidden }

// Recheck implements scalingpolicy.Rights.
func (a policyAccess) Recheck(ctx context.Context) error {
	if a.check == nil {
		return nil // The manager is not ours to restart.
	}
	missing, err := a.check.missingForPolicies(ctx, a.scope)
	if err == nil && missing == "" {
		log.FromContext(ctx).Info("Restarting the manager because the operator has been granted the rights for policies")
		a.granted()
	}
	return err
}

// addPolicies adds the controllers of policies.
func (a *assembly) addPolicies(ctx context.Context) error {
	policies := &scalingpolicy.Reconciler{
		Client:        a.mgr.GetClient(),
		Cached:        a.mgr.GetCache(),
		Live:          a.mgr.GetAPIReader(),
		Fleet:         a.cached.Fleet,
		Freeze:        a.freeze,
		Recorder:      a.mgr.GetEventRecorder(scalingpolicy.Name),
		Clock:         a.clock,
		ResyncPeriod:  a.config.ResyncPeriod.Duration,
		Workers:       a.config.Workers.VerticalScalers,
		OwnNamespace:  a.namespace,
		Release:       a.release(),
		ServesCluster: a.scope.servesClusterPolicies(),
		Rights:        policyAccess{a.check, a.scope, a.restart},
	}
	if err := policies.SetupWithManager(ctx, a.mgr); err != nil {
		return fmt.Errorf("setting up the controllers of policies: %w", err)
	}
	return nil
}
