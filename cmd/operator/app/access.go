// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Namespaces parses WATCH_NAMESPACE: names separated by commas. It returns them sorted and
// without duplicates; none means all. An invalid name is an error.
func Namespaces(watch string) ([]string, error) {
	var out []string
	for _, name := range strings.Split(watch, ",") {
		if name = strings.TrimSpace(name); name == "" {
			continue
		}
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return nil, fmt.Errorf("%s: %q is not a valid namespace name: %s", WatchNamespaceEnv, name, strings.Join(wrong, "; "))
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Scope is how much of the cluster the operator sees.
type Scope struct {
	// Namespaces are the namespaces that the operator is configured to watch, sorted. Empty
	// means all.
	Namespaces []string
	// Unreadable maps each namespace that the operator cannot read to the missing rights.
	// The operator does not watch such a namespace until it gets the rights: an informer
	// without the right to list blocks the caches of all namespaces. The key "" stands for
	// all namespaces.
	Unreadable map[string]string
	// NodesForbidden is true if the operator watches all namespaces, but has no right to
	// read nodes.
	NodesForbidden bool
	// ClusterPoliciesForbidden is true if the operator watches all namespaces, but has no right to
	// read ClusterScalingPolicies.
	ClusterPoliciesForbidden bool
	// PoliciesForbidden lists the rights that the operator lacks to serve policies; empty if it has them. They belong to
	// an optional component.
	PoliciesForbidden string
	// MetricsForbidden lists the rights that the operator lacks to authorize requests for
	// /metrics; empty if it has them.
	MetricsForbidden string
}

// readable returns the namespaces to watch; none means all. ok is false if there is nothing
// to watch.
func (s Scope) readable() (namespaces []string, ok bool) {
	if len(s.Namespaces) == 0 {
		return nil, len(s.Unreadable) == 0
	}
	for _, namespace := range s.Namespaces {
		if _, missing := s.Unreadable[namespace]; !missing {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces, len(namespaces) > 0
}

// readsNodes reports whether the operator reads nodes. Nodes are cluster-scoped, so an
// operator that is limited to some namespaces does not read them.
func (s Scope) readsNodes() bool { return len(s.Namespaces) == 0 && !s.NodesForbidden }

// unreadable describes the namespaces that cannot be watched, and the missing rights. The
// log and the readiness check report it.
func (s Scope) unreadable() string {
	var parts []string
	for namespace, missing := range s.Unreadable {
		where := "namespace " + namespace
		if namespace == metav1.NamespaceAll {
			where = "all namespaces"
		}
		parts = append(parts, fmt.Sprintf("%s: may not %s", where, missing))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// right is one verb on one resource.
type right struct{ verb, group, resource string }

// String formats the right for the log: "list deployments.apps".
func (r right) String() string {
	if r.group == "" {
		return r.verb + " " + r.resource
	}
	return r.verb + " " + r.resource + "." + r.group
}

// watching are the rights that a cache of each resource needs.
func watching(group string, resources ...string) (rights []right) {
	for _, resource := range resources {
		rights = append(rights, right{"list", group, resource}, right{"watch", group, resource})
	}
	return rights
}

var (
	// cachedRights are the rights that the caches need in each namespace. They are part of the
	// role "manager" in config/rbac.
	cachedRights = slices.Concat(
		watching(v1beta1.GroupVersion.Group, "verticalscalers", "scaleddeployments", "scalingpolicies", "newpodsizes"),
		watching("apps", "deployments", "replicasets"),
		watching("", "pods", "limitranges", "resourcequotas"),
		watching("autoscaling", "horizontalpodautoscalers"),
	)
	nodeRights    = watching("", "nodes")
	metricsRights = []right{
		{"create", "authentication.k8s.io", "tokenreviews"},
		{"create", "authorization.k8s.io", "subjectaccessreviews"},
	}
)

// accessCheck reports whether the operator has a right in a namespace; "" stands for all
// namespaces.
type accessCheck func(ctx context.Context, namespace string, r right) (bool, error)

// checkWithReview asks the API server. The built-in role system:basic-user accessCheck every
// user to ask about their own rights.
func checkWithReview(reviews authorizationclient.SelfSubjectAccessReviewInterface) accessCheck {
	return func(ctx context.Context, namespace string, r right) (bool, error) {
		answer, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: r.verb, Group: r.group, Resource: r.resource,
			}},
		}, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return true, nil // without the right to ask, assume that it is granted
		}
		if err != nil {
			return false, fmt.Errorf("asking whether we may %s in namespace %q: %w", r, namespace, err)
		}
		return answer.Status.Allowed, nil
	}
}

// reviewsAtOnce limits the number of concurrent access reviews.
const reviewsAtOnce = 8

// missing lists the rights that the operator lacks, in their order.
func (check accessCheck) missing(ctx context.Context, namespace string, rights []right) (string, error) {
	granted := make([]bool, len(rights))
	var reviews errgroup.Group
	reviews.SetLimit(reviewsAtOnce)
	for i, r := range rights {
		reviews.Go(func() (err error) {
			granted[i], err = check(ctx, namespace, r)
			return err
		})
	}
	if err := reviews.Wait(); err != nil {
		return "", err
	}
	var lacking []string
	for i, r := range rights {
		if !granted[i] {
			lacking = append(lacking, r.String())
		}
	}
	return strings.Join(lacking, ", "), nil
}

// findScope finds out how much of the cluster the operator can read.
func (check accessCheck) findScope(ctx context.Context, namespaces []string, asksForTokens bool) (Scope, error) {
	s := Scope{Namespaces: namespaces}
	watched := namespaces
	if len(watched) == 0 {
		watched = []string{metav1.NamespaceAll}
		missing, err := check.missing(ctx, metav1.NamespaceAll, nodeRights)
		if err != nil {
			return s, err
		}
		s.NodesForbidden = missing != ""
		if missing, err = check.missing(ctx, metav1.NamespaceAll, clusterPolicyRights); err != nil {
			return s, err
		}
		s.ClusterPoliciesForbidden = missing != ""
	}
	for _, namespace := range watched {
		missing, err := check.missing(ctx, namespace, cachedRights)
		if err != nil {
			return s, err
		}
		if missing != "" {
			if s.Unreadable == nil {
				s.Unreadable = map[string]string{}
			}
			s.Unreadable[namespace] = missing
		}
	}
	var err error
	if s.PoliciesForbidden, err = check.missingForPolicies(ctx, s); err != nil {
		return s, err
	}
	if asksForTokens {
		if s.MetricsForbidden, err = check.missing(ctx, metav1.NamespaceAll, metricsRights); err != nil {
			return s, err
		}
	}
	return s, nil
}

// lacking lists the sets of rights that would widen the scope, by namespace.
func (s Scope) lacking() map[string][][]right {
	out := map[string][][]right{}
	for namespace := range s.Unreadable {
		out[namespace] = append(out[namespace], cachedRights)
	}
	if s.NodesForbidden {
		out[metav1.NamespaceAll] = append(out[metav1.NamespaceAll], nodeRights)
	}
	if s.ClusterPoliciesForbidden {
		out[metav1.NamespaceAll] = append(out[metav1.NamespaceAll], clusterPolicyRights)
	}
	if s.MetricsForbidden != "" {
		out[metav1.NamespaceAll] = append(out[metav1.NamespaceAll], metricsRights)
	}
	return out
}

// improved reports whether the operator has got a set of rights that it lacked when the scope was
// found.
func (check accessCheck) improved(ctx context.Context, s Scope) (bool, error) {
	for namespace, sets := range s.lacking() {
		for _, rights := range sets {
			missing, err := check.missing(ctx, namespace, rights)
			if missing == "" || err != nil {
				return err == nil, err
			}
		}
	}
	return false, nil
}

// log reports what the operator watches, and which features it does without.
func (s Scope) log(to logr.Logger) {
	watched := "all"
	if len(s.Namespaces) > 0 {
		watched = strings.Join(s.Namespaces, ", ")
	}
	to.Info("Watching namespaces", "namespaces", watched)
	if len(s.Unreadable) > 0 {
		to.Info("Some namespaces are not watched because the operator lacks rights", "missing", s.unreadable())
	}
	if s.NodesForbidden {
		to.Info("Nodes are not read because the operator lacks the right to list and watch them")
	}
	if s.ClusterPoliciesForbidden {
		to.Info("ClusterScalingPolicies are not read because the operator lacks the right to list and watch them")
	}
	if s.MetricsForbidden != "" {
		to.Info("All requests for /metrics are rejected because the operator lacks the rights to authorize them", "missing", s.MetricsForbidden)
	}
}

// accessCheckInterval is the time between two checks for missing rights.
const accessCheckInterval = 15 * time.Second

// addAccessChecker adds the check for more rights, if there are rights that would widen the scope.
func (a *assembly) addAccessChecker(context.Context) error {
	if a.check == nil || len(a.scope.lacking()) == 0 {
		return nil
	}
	if err := a.mgr.Add(&accessChecker{check: a.check, scope: a.scope, clock: a.clock, improved: a.restart}); err != nil {
		return fmt.Errorf("adding the access checker: %w", err)
	}
	return nil
}

// accessChecker periodically checks whether the operator has been granted more rights.
type accessChecker struct {
	check    accessCheck
	scope    Scope
	clock    clock.WithTicker
	improved func() // called once when it has
}

// NeedLeaderElection returns false: every replica checks, because each has its own caches.
func (*accessChecker) NeedLeaderElection() bool { return false }

// Start checks until the context ends.
func (w *accessChecker) Start(ctx context.Context) error {
	ticker := w.clock.NewTicker(accessCheckInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		improved, err := w.check.improved(ctx, w.scope)
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Checking the operator's rights failed")
		}
		if improved {
			log.FromContext(ctx).Info("Restarting the manager because the operator has been granted more rights")
			w.improved()
			return nil
		}
	}
}
