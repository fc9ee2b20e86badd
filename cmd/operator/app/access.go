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
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/presence"
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

// Scope is the part of the cluster that the operator sees.
type Scope struct {
	// Namespaces are the namespaces that the operator is configured to watch, sorted. Empty
	// means all.
	Namespaces []string
	// Lacks are the features that the operator does without, because it lacks rights.
	Lacks []Lack
}

// Lack is a feature whose rights are missing.
type Lack struct {
	Feature Feature
	// Namespace lacks the rights; empty means all namespaces.
	Namespace string
	// Missing lists the rights.
	Missing string
}

// Feature is a part of the operator that needs some rights.
type Feature string

// The features, as the log names them.
const (
	// Watching needs rights in each namespace. The operator does not watch a namespace without them: an informer
	// without the right to list blocks the caches of all namespaces.
	Watching Feature = "scalers and workloads"
	// Nodes and ClusterPolicies are cluster-scoped, so an operator that is limited to some namespaces does not read them.
	Nodes           Feature = "nodes"
	ClusterPolicies Feature = "ClusterScalingPolicies"
	// Policies need PolicyNamespaces and PolicyScalers. Their rights belong to an optional component.
	PolicyNamespaces Feature = "namespaces for policies"
	PolicyScalers    Feature = "scalers of policies"
	// Metrics is the authorization of requests for /metrics, which are all rejected without it.
	Metrics Feature = "metrics"
	// Evictions make Recreate the fallback of scalers that name none. Their rights belong to an optional component.
	Evictions Feature = "fallback Recreate by default"
)

// missing lists the rights that are missing for a feature, if any.
func (s Scope) missing(feature Feature, namespace string) string {
	for _, l := range s.Lacks {
		if l.Feature == feature && l.Namespace == namespace {
			return l.Missing
		}
	}
	return ""
}

// readable returns the namespaces to watch; none means all. ok is false if none can be watched.
func (s Scope) readable() (namespaces []string, ok bool) {
	if len(s.Namespaces) == 0 {
		return nil, s.missing(Watching, metav1.NamespaceAll) == ""
	}
	for _, namespace := range s.Namespaces {
		if s.missing(Watching, namespace) == "" {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces, len(namespaces) > 0
}

// servesCluster reports whether the operator has a cluster-scoped feature.
func (s Scope) servesCluster(feature Feature) bool {
	return len(s.Namespaces) == 0 && s.missing(feature, metav1.NamespaceAll) == ""
}

// fallback is the default fallback of scalers. An operator that is limited to some namespaces does not read nodes.
func (s Scope) fallback() v1beta1.Fallback {
	if s.servesCluster(Evictions) {
		return v1beta1.FallbackRecreate
	}
	return v1beta1.FallbackWait
}

// policiesForbidden lists the rights that are missing for policies, in the watched namespaces.
func (s Scope) policiesForbidden() string {
	var parts []string
	for _, l := range s.Lacks {
		switch {
		case !l.isForPolicies() || s.missing(Watching, l.Namespace) != "":
		case l.Namespace != metav1.NamespaceAll:
			parts = append(parts, l.Missing+" in namespace "+l.Namespace)
		default:
			parts = append(parts, l.Missing)
		}
	}
	return strings.Join(parts, "; ")
}

func (l Lack) isForPolicies() bool {
	return l.Feature == PolicyNamespaces || l.Feature == PolicyScalers
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

// rightsFor lists the rights of each feature. The roles "manager" and "manager-cluster" in config/rbac grant those of
// Watching, Nodes and ClusterPolicies; the component "policies" grants the rest.
var rightsFor = map[Feature][]right{
	Watching: slices.Concat(
		watching(v1beta1.GroupVersion.Group, "verticalscalers", "scaleddeployments", "scalingpolicies", "newpodsizes"),
		watching("apps", "deployments", "replicasets"),
		watching("", "pods", "limitranges", "resourcequotas"),
		watching("autoscaling", "horizontalpodautoscalers"),
	),
	Nodes:            watching("", "nodes"),
	ClusterPolicies:  watching(v1beta1.GroupVersion.Group, "clusterscalingpolicies"),
	PolicyNamespaces: watching("", "namespaces"),
	PolicyScalers: {
		{"create", v1beta1.GroupVersion.Group, "verticalscalers"},
		{"update", v1beta1.GroupVersion.Group, "verticalscalers"},
		{"delete", v1beta1.GroupVersion.Group, "verticalscalers"},
	},
	Evictions: {{"create", "", "pods/eviction"}, {"get", "metrics.k8s.io", "nodes"}},
	Metrics: {
		{"create", "authentication.k8s.io", "tokenreviews"},
		{"create", "authorization.k8s.io", "subjectaccessreviews"},
	},
}

// accessCheck reports whether the operator has a right in a namespace; "" stands for all
// namespaces.
type accessCheck func(ctx context.Context, namespace string, r right) (bool, error)

// checkWithReview asks the API server. The built-in role system:basic-user allows every user to ask about their own rights.
func checkWithReview(restConfig *rest.Config) (accessCheck, error) {
	api, err := authorizationclient.NewForConfig(restConfig)
	if err != nil {
		return nil, fmt.Errorf("creating a client for access reviews: %w", err)
	}
	return func(ctx context.Context, namespace string, r right) (bool, error) {
		resource, subresource, _ := strings.Cut(r.resource, "/")
		answer, err := api.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: r.verb, Group: r.group, Resource: resource, Subresource: subresource,
			}},
		}, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return true, nil // without the right to ask, assume that it is granted
		}
		if err != nil {
			return false, fmt.Errorf("asking whether we may %s in namespace %q: %w", r, namespace, err)
		}
		return answer.Status.Allowed, nil
	}, nil
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

// FindScope asks the API server which part of the cluster the operator can read.
func FindScope(ctx context.Context, restConfig *rest.Config, c config.Operator, namespaces ...string) (Scope, error) {
	check, err := checkWithReview(restConfig)
	if err != nil {
		return Scope{}, err
	}
	return check.findScope(ctx, c, namespaces)
}

func (check accessCheck) findScope(ctx context.Context, c config.Operator, namespaces []string) (Scope, error) {
	var features []Lack
	watched := namespaces
	if len(watched) == 0 {
		watched = []string{metav1.NamespaceAll}
		features = []Lack{{Feature: Nodes}, {Feature: ClusterPolicies}, {Feature: PolicyNamespaces}, {Feature: Evictions}}
	}
	for _, namespace := range watched {
		features = append(features, Lack{Feature: Watching, Namespace: namespace}, Lack{Feature: PolicyScalers, Namespace: namespace})
	}
	if c.Metrics.Secure && c.Metrics.BindAddress != "0" {
		features = append(features, Lack{Feature: Metrics})
	}
	s := Scope{Namespaces: namespaces}
	for _, f := range features {
		var err error
		if f.Missing, err = check.missing(ctx, f.Namespace, rightsFor[f.Feature]); err != nil {
			return s, err
		}
		if f.Missing != "" {
			s.Lacks = append(s.Lacks, f)
		}
	}
	return s, nil
}

// log reports the watched namespaces and the missing features.
func (s Scope) log(to logr.Logger) {
	watched := "all"
	if len(s.Namespaces) > 0 {
		watched = strings.Join(s.Namespaces, ", ")
	}
	to.Info("Watching namespaces", "namespaces", watched)
	to.Info("Scalers that name no fallback have this one", "fallback", s.fallback())
	for _, l := range s.Lacks {
		if !l.isForPolicies() { // Each policy reports this.
			to.Info("A feature is disabled because the operator lacks rights", "feature", l.Feature, "namespace", l.Namespace, "missing", l.Missing)
		}
	}
}

const (
	// accessCheckInterval is the time between two looks for missing rights. Users wait for that if they apply a file of ours.
	accessCheckInterval = 15 * time.Second
	// unwatchedCheckInterval is the time after which the API server is asked although no binding has changed: the rights may have
	// come with a binding of another name.
	unwatchedCheckInterval = 10 * time.Minute
)

// optionalBindings are the ClusterRoleBindings of recreate.yaml and policies.yaml, which may be applied at any time.
var optionalBindings = []string{"verticalscaler-manager-policies", "verticalscaler-manager-recreate"}

// addAccessChecker adds the check for more rights, if some are missing.
func (a *assembly) addAccessChecker(context.Context) error {
	if a.check == nil || len(a.scope.Lacks) == 0 {
		return nil
	}
	w := &accessChecker{check: a.check, scope: a.scope, clock: a.clock, hasPolicies: a.hasPolicies, restart: a.restart}
	if len(a.scope.Namespaces) == 0 {
		api, err := a.metadata()
		if err != nil {
			return err
		}
		bindings, err := presence.New(api, a.clock, []schema.GroupVersionResource{rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings")}, optionalBindings...)
		if err != nil {
			return fmt.Errorf("watching ClusterRoleBindings: %w", err)
		}
		w.bindings = bindings
	}
	if err := a.mgr.Add(w); err != nil {
		return fmt.Errorf("adding the access checker: %w", err)
	}
	return nil
}

// hasPolicies reports whether there is a policy, as far as the cache knows.
func (a *assembly) hasPolicies(ctx context.Context) bool {
	lists := []client.ObjectList{&v1beta1.ScalingPolicyList{}}
	if a.scope.servesCluster(ClusterPolicies) {
		lists = append(lists, &v1beta1.ClusterScalingPolicyList{})
	}
	return slices.ContainsFunc(lists, func(list client.ObjectList) bool {
		return a.mgr.GetCache().List(ctx, list, client.Limit(1), client.UnsafeDisableDeepCopy) == nil && meta.LenList(list) > 0
	})
}

// changes are a presence.Watch.
type changes interface {
	Start(ctx context.Context) error
	Works() bool
	TakeChange() bool
}

// accessChecker checks whether the operator has been granted more rights: when a binding has changed, and otherwise seldom.
type accessChecker struct {
	check    accessCheck
	scope    Scope
	clock    clock.WithTicker
	bindings changes // nil if the operator is limited to some namespaces
	// hasPolicies reports whether there is a policy. Without any, and without bindings, the rights for policies do not matter.
	hasPolicies func(context.Context) bool
	restart     func() // called once when there are more rights

	asked    time.Time // the last time at which the API server was asked
	askUntil time.Time // it is asked often until then: a new right may take a moment, and a request may fail
}

// NeedLeaderElection returns false: every replica checks, because each has its own caches.
func (*accessChecker) NeedLeaderElection() bool { return false }

// Start checks until the context ends.
func (w *accessChecker) Start(ctx context.Context) error {
	w.asked = w.clock.Now() // the scope was found just now
	if w.bindings != nil {
		if err := w.bindings.Start(ctx); err != nil {
			return fmt.Errorf("watching ClusterRoleBindings: %w", err)
		}
	}
	every(ctx, w.clock, accessCheckInterval, func() bool {
		if !w.isDue() {
			return false
		}
		improved, err := w.improved(ctx)
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Checking the operator's rights failed")
		}
		if improved {
			log.FromContext(ctx).Info("Restarting the manager because the operator has been granted more rights")
			w.restart()
		}
		return improved
	})
	return nil
}

// isDue reports whether it is time to ask the API server.
func (w *accessChecker) isDue() bool {
	now := w.clock.Now()
	if w.isWatched() {
		if w.bindings.TakeChange() {
			w.askUntil = now.Add(time.Minute)
		}
		if now.After(w.askUntil) && now.Sub(w.asked) < unwatchedCheckInterval {
			return false
		}
	}
	w.asked = now
	return true
}

// isWatched reports whether bindings tell when the operator may have got more rights. Without those to watch workloads, nothing
// works, and no time is lost.
func (w *accessChecker) isWatched() bool {
	return w.bindings != nil && w.bindings.Works() && w.scope.missing(Watching, metav1.NamespaceAll) == ""
}

// improved reports whether the operator has got the rights for a feature that it does without.
func (w *accessChecker) improved(ctx context.Context) (bool, error) {
	for _, l := range w.scope.Lacks {
		if l.isForPolicies() && !w.isWatched() && !w.hasPolicies(ctx) {
			continue
		}
		missing, err := w.check.missing(ctx, l.Namespace, rightsFor[l.Feature])
		if missing == "" || err != nil {
			return err == nil, err
		}
	}
	return false, nil
}
