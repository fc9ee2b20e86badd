// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Scope is how much of the cluster the operator sees.
type Scope struct {
	// Namespaces are those that the operator was told to watch, sorted. None means
	// all.
	Namespaces []string
	// Unreadable says, by namespace, which rights are missing there. Such a namespace
	// is not watched until they are given: an informer that may not list blocks the
	// caches, and with them all other namespaces. The key "" stands for all
	// namespaces.
	Unreadable map[string]string
	// NodesForbidden says that the nodes could be read by the scope, but not by the
	// rights.
	NodesForbidden bool
	// MetricsForbidden says which rights are missing to find out who may read
	// /metrics; empty for none.
	MetricsForbidden string
}

// readable are the namespaces to watch, none meaning all; ok is false if there is
// nothing to watch at all.
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

// readsNodes says whether nodes are read. They belong to no namespace, and so are out
// of reach of an operator that watches some namespaces only.
func (s Scope) readsNodes() bool { return len(s.Namespaces) == 0 && !s.NodesForbidden }

// unreadable lists the namespaces that cannot be watched, and why, for the log and
// the readiness check.
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

// String is the right as the log tells it: "list deployments.apps".
func (r right) String() string {
	if r.group == "" {
		return r.verb + " " + r.resource
	}
	return r.verb + " " + r.resource + "." + r.group
}

// cachedRights are what the caches need in each namespace. They are a part of the role
// "manager" in config/rbac.
func cachedRights() (rights []right) {
	for _, r := range []right{
		{"", "autoscaling.verticalscaler.io", "verticalscalers"},
		{"", "autoscaling.verticalscaler.io", "scaleddeployments"},
		{"", "apps", "deployments"},
		{"", "apps", "replicasets"},
		{"", "", "pods"},
		{"", "", "limitranges"},
		{"", "", "resourcequotas"},
		{"", "autoscaling", "horizontalpodautoscalers"},
	} {
		rights = append(rights, right{"list", r.group, r.resource}, right{"watch", r.group, r.resource})
	}
	return rights
}

var (
	nodeRights    = []right{{"list", "", "nodes"}, {"watch", "", "nodes"}}
	metricsRights = []right{
		{"create", "authentication.k8s.io", "tokenreviews"},
		{"create", "authorization.k8s.io", "subjectaccessreviews"},
	}
)

// allows tells whether we have a right in a namespace, "" being all of them.
type allows func(ctx context.Context, namespace string, r right) (bool, error)

// reviewed asks the API server. Everybody may ask about themselves, unless the
// built-in role system:basic-user was taken away.
func reviewed(reviews authorizationclient.SelfSubjectAccessReviewInterface) allows {
	return func(ctx context.Context, namespace string, r right) (bool, error) {
		answer, err := reviews.Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: namespace, Verb: r.verb, Group: r.group, Resource: r.resource,
			}},
		}, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return true, nil // we may not ask, so we try
		}
		if err != nil {
			return false, fmt.Errorf("asking whether we may %s in namespace %q: %w", r, namespace, err)
		}
		return answer.Status.Allowed, nil
	}
}

// reviewsAtOnce is how many rights are asked for at once.
const reviewsAtOnce = 8

// missing lists those of the rights that we lack, in their order.
func (a allows) missing(ctx context.Context, namespace string, rights []right) (string, error) {
	var (
		granted = make([]bool, len(rights))
		errs    = make([]error, len(rights))
		asked   sync.WaitGroup
		free    = make(chan struct{}, reviewsAtOnce)
	)
	for i, r := range rights {
		free <- struct{}{}
		asked.Go(func() {
			defer func() { <-free }()
			granted[i], errs[i] = a(ctx, namespace, r)
		})
	}
	asked.Wait()
	var lacking []string
	for i, r := range rights {
		if errs[i] != nil {
			return "", errs[i]
		}
		if !granted[i] {
			lacking = append(lacking, r.String())
		}
	}
	return strings.Join(lacking, ", "), nil
}

// look finds out how much of the cluster our rights let us see.
func (a allows) look(ctx context.Context, namespaces []string, asksForTokens bool) (Scope, error) {
	s := Scope{Namespaces: namespaces}
	watched := namespaces
	if len(watched) == 0 {
		watched = []string{metav1.NamespaceAll}
		missing, err := a.missing(ctx, metav1.NamespaceAll, nodeRights)
		if err != nil {
			return s, err
		}
		s.NodesForbidden = missing != ""
	}
	for _, namespace := range watched {
		missing, err := a.missing(ctx, namespace, cachedRights())
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
	if asksForTokens {
		var err error
		if s.MetricsForbidden, err = a.missing(ctx, metav1.NamespaceAll, metricsRights); err != nil {
			return s, err
		}
	}
	return s, nil
}

// lacks says whether anything could be had that the rights do not give.
func (s Scope) lacks() bool {
	return len(s.Unreadable) > 0 || s.NodesForbidden || s.MetricsForbidden != ""
}

// improved says whether something can be had now that could not when the scope was
// found. It stops asking about each at the first right that is missing.
func (a allows) improved(ctx context.Context, s Scope) (bool, error) {
	wanted := map[string][][]right{}
	for namespace := range s.Unreadable {
		wanted[namespace] = append(wanted[namespace], cachedRights())
	}
	if s.NodesForbidden {
		wanted[metav1.NamespaceAll] = append(wanted[metav1.NamespaceAll], nodeRights)
	}
	if s.MetricsForbidden != "" {
		wanted[metav1.NamespaceAll] = append(wanted[metav1.NamespaceAll], metricsRights)
	}
	for namespace, sets := range wanted {
		for _, rights := range sets {
			all, err := a.all(ctx, namespace, rights)
			if all || err != nil {
				return all, err
			}
		}
	}
	return false, nil
}

// all says whether we have every one of the rights.
func (a allows) all(ctx context.Context, namespace string, rights []right) (bool, error) {
	for _, r := range rights {
		if allowed, err := a(ctx, namespace, r); !allowed || err != nil {
			return false, err
		}
	}
	return true, nil
}

// log tells once what the operator will watch, and what it will go without.
func (s Scope) log(to logr.Logger) {
	watched := "all"
	if len(s.Namespaces) > 0 {
		watched = strings.Join(s.Namespaces, ", ")
	}
	to.Info("Watching namespaces", "namespaces", watched)
	if len(s.Unreadable) > 0 {
		to.Info("Some namespaces cannot be watched until the operator is given the rights", "missing", s.unreadable())
	}
	if s.NodesForbidden {
		to.Info("Nodes are not read, since the operator may not list and watch them")
	}
	if s.MetricsForbidden != "" {
		to.Info("Clients cannot read /metrics: the operator lacks the right to check their tokens", "missing", s.MetricsForbidden)
	}
}

// lookAgain is how often missing rights are asked for again.
const lookAgain = 15 * time.Second

// watchman looks from time to time whether there are more rights.
type watchman struct {
	may      allows
	scope    Scope
	clock    clock.WithTicker
	improved func() // called once there is
}

// NeedLeaderElection says that every replica looks: each has a cache of its own.
func (*watchman) NeedLeaderElection() bool { return false }

// Start looks until the context ends.
func (w *watchman) Start(ctx context.Context) error {
	ticker := w.clock.NewTicker(lookAgain)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
		improved, err := w.may.improved(ctx, w.scope)
		if err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Cannot ask for our rights")
		}
		if improved {
			log.FromContext(ctx).Info("Restarting the manager: the operator has been granted more rights")
			w.improved()
			return nil
		}
	}
}
