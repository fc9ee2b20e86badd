// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/controllers/scalingpolicy"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

var (
	// clusterPolicyRights are part of the role "manager-cluster" in config/rbac.
	clusterPolicyRights = []right{
		{"list", "autoscaling.verticalscaler.io", "clusterscalingpolicies"},
		{"watch", "autoscaling.verticalscaler.io", "clusterscalingpolicies"},
	}
	// policyRights and namespaceRights are those of the component "policies" in config/components.
	policyRights = []right{
		{"create", "autoscaling.verticalscaler.io", "verticalscalers"},
		{"update", "autoscaling.verticalscaler.io", "verticalscalers"},
		{"delete", "autoscaling.verticalscaler.io", "verticalscalers"},
	}
	namespaceRights = []right{{"list", "", "namespaces"}, {"watch", "", "namespaces"}}
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
		return check.missing(ctx, metav1.NamespaceAll, append(namespaceRights, policyRights...))
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
func addPolicies(
	ctx context.Context, mgr ctrl.Manager, c config.Operator, deployments *inventory.Fleet, now clock.PassiveClock, rights policyAccess, frozen *freeze.Switch,
) error {
	scope := rights.scope
	namespaces, _ := scope.readable()
	policies := &scalingpolicy.Reconciler{
		Client:        mgr.GetClient(),
		Cached:        mgr.GetCache(),
		Live:          mgr.GetAPIReader(),
		Fleet:         deployments,
		Freeze:        frozen,
		Recorder:      mgr.GetEventRecorder(scalingpolicy.Name),
		Metrics:       &metrics.Policies{},
		Clock:         now,
		ResyncPeriod:  c.ResyncPeriod.Duration,
		Workers:       c.Workers.VerticalScalers,
		OwnNamespace:  os.Getenv(NamespaceEnv),
		Release:       releaseOf(c),
		Namespaces:    namespaces,
		ServesCluster: scope.servesClusterPolicies(),
		Rights:        rights,
	}
	if err := policies.SetupWithManager(ctx, mgr); err != nil {
		return fmt.Errorf("setting up the controllers of policies: %w", err)
	}
	if err := mgr.Add(policies.Metrics); err != nil {
		return fmt.Errorf("adding the metrics of policies: %w", err)
	}
	return nil
}
