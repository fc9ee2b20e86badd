// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policies reports admission policies that are missing or of another version.
//
// A bundle for OLM cannot contain the policies, so an administrator can forget them. The operator
// has no right on policies, not even to read them. Instead it sends the API server dry runs that a
// policy rejects. If the API server accepts one, the policy is missing. The rejection has the version
// of the policy. Nothing is stored in either case.
//
// Other users' requests show the other policies. "kubectl vscaler check" compares them all.
//
// A request rejected for another reason does not show whether a policy exists: rights may be
// missing, and then the policy has no requests to limit.
package policies

import (
	"context"
	"regexp"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/upgradeable"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
)

// The reasons of the condition.
const (
	ReasonInstalled = "PoliciesInstalled"
	ReasonMissing   = "PoliciesMissing"
	ReasonOutdated  = "PoliciesOutdated"
)

const (
	// ConditionType is the type of the condition in the OperatorCondition.
	ConditionType = "AdmissionPoliciesInstalled"

	// Name is the name of the objects that are asked for.
	Name = "verticalscaler-policy-check"

	// interval is the time between two checks while policies are missing, and rarely the time while they are installed. Each
	// check costs two dry runs.
	interval = 10 * time.Minute
	rarely   = time.Hour
)

var missing = metrics.NewGauge(metrics.Metric{
	Name:      "verticalscaler_admission_policy_missing",
	Help:      "1 if the API server would do what the admission policy refuses, or the policy is not that of the operator's version, 0 if it is. Absent while this is not known.",
	Labels:    []string{"policy"},
	Stability: metrics.Beta,
})

// Setup adds the check to the manager. The namespace is the operator's own; without it,
// nothing is checked.
func Setup(mgr ctrl.Manager, namespace string, own release.Release) error {
	if namespace == "" {
		mgr.GetLogger().V(1).Info("The admission policies are not checked: the operator's namespace is unknown")
		return nil
	}
	check := &Check{Client: mgr.GetClient(), Namespace: namespace, Release: own, Clock: clock.RealClock{}}
	condition, err := upgradeable.Find(mgr, namespace)
	if err != nil {
		return err
	}
	if condition != nil {
		check.Condition = condition
	}
	return mgr.Add(check)
}

// Setter sets a condition, unless it is up to date.
type Setter interface {
	Set(ctx context.Context, c metav1.Condition) error
}

// Check checks the policies. It runs on the leader.
type Check struct {
	// Client creates objects, as dry runs.
	Client client.Client
	// Condition reports the result; nil to report none.
	Condition Setter
	// Namespace is the operator's own.
	Namespace string
	// Release is the operator's own.
	Release release.Release
	Clock   clock.Clock

	// reported is the condition of the last report.
	reported metav1.Condition
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (c *Check) NeedLeaderElection() bool { return true }

// Start checks at once and then from time to time, until the context ends.
func (c *Check) Start(ctx context.Context) error {
	ctx = log.IntoContext(ctx, log.FromContext(ctx).WithName("policies"))
	for {
		c.Round(ctx)
		until := interval
		if c.reported.Status == metav1.ConditionTrue {
			until = rarely
		}
		timer := c.Clock.NewTimer(until)
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// Round checks the policies once, and reports the result if it has changed.
func (c *Check) Round(ctx context.Context) {
	var lacks, old []string
	isKnown := false
	for _, p := range probes(c.Namespace) {
		switch err := c.Client.Create(ctx, p.object, client.DryRunAll); {
		case err == nil:
			isKnown, lacks = true, append(lacks, p.policy)
			missing.WithLabelValues(p.policy).Set(1)
		case isRefusal(err, p.policy):
			isKnown = true
			found := versionIn(err)
			if c.Release.Has(found) {
				missing.WithLabelValues(p.policy).Set(0)
				continue
			}
			old = append(old, p.policy+" ("+found+")")
			missing.WithLabelValues(p.policy).Set(1)
		default:
			missing.DeleteLabelValues(p.policy)
		}
	}
	if isKnown {
		c.report(ctx, c.conditionOf(strings.Join(lacks, ", "), strings.Join(old, ", ")))
	}
}

// conditionOf is the condition about policies that are missing, or not of the operator's version.
func (c *Check) conditionOf(lacks, old string) metav1.Condition {
	install := c.Release.Install(release.AdmissionPolicies)
	switch {
	case lacks != "":
		return metav1.Condition{
			Type: ConditionType, Status: metav1.ConditionFalse, Reason: ReasonMissing,
			Message: "Admission policies are missing: " + lacks + ". Without them, the operator's token is worth more than the operator needs. To install them: " + install,
		}
	case old != "":
		return metav1.Condition{
			Type: ConditionType, Status: metav1.ConditionFalse, Reason: ReasonOutdated,
			Message: "Admission policies are not those of the operator's version, " + c.Release.Version + ": " + old + ". To upgrade them: " + install,
		}
	}
	return metav1.Condition{
		Type: ConditionType, Status: metav1.ConditionTrue, Reason: ReasonInstalled,
		Message: "The admission policies that the operator can ask for have its version. To compare all of them: kubectl vscaler check",
	}
}

// report logs and reports a condition, unless that has been done.
func (c *Check) report(ctx context.Context, now metav1.Condition) {
	if c.reported == now {
		return
	}
	logger := log.FromContext(ctx)
	if c.Condition != nil {
		if err := c.Condition.Set(ctx, now); err != nil {
			logger.Error(err, "Cannot report whether the admission policies are installed", "retryAfter", interval.String())
			return
		}
	}
	if now.Status == metav1.ConditionFalse || c.reported.Type != "" {
		logger.Info("The state of the admission policies has changed", "reason", now.Reason, "message", now.Message)
	}
	c.reported = now
}

// isRefusal reports whether a policy has refused a request.
func isRefusal(err error, policy string) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy") && strings.Contains(err.Error(), policy)
}

var version = regexp.MustCompile(`\(policies (v[^)\s]+)\)`)

// versionIn is the version of the policy that has refused a request.
func versionIn(err error) string {
	if found := version.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return "unknown"
}

// probe is a request that only a policy refuses.
type probe struct {
	policy string // part of its name
	object client.Object
}

// probes are a lease and a Deployment in the operator's own namespace. Every operator may
// create leases there, and those with ScaledDeployments may create Deployments.
func probes(namespace string) []probe {
	named := metav1.ObjectMeta{Namespace: namespace, Name: Name}
	labels := map[string]string{"app": Name}
	return []probe{
		{"operator-objects", &coordinationv1.Lease{ObjectMeta: named}},
		{"operator-deployments", &appsv1.Deployment{ObjectMeta: named, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "none", Image: "none"}}},
			},
		}}},
	}
}
