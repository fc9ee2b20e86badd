// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scalingpolicy serves ScalingPolicies and ClusterScalingPolicies: it creates, changes and deletes
// their VerticalScalers, promotes them, and says in the status of each policy what it does.
//
// Two controllers share this work. That of members (member.go) has a request for each Deployment: it decides
// which policy sizes the Deployment, and makes its scaler what that policy wants. So an event of a Deployment, a
// namespace, a scaler or a policy becomes requests for the Deployments that it concerns, and each of them
// costs the same however large the fleet is. That of policies (policy.go) has a request for each policy: it
// counts all members, promotes scalers, and writes the status once. It runs at most once a second.
//
// The pure package fleet decides; this package does the I/O.
package scalingpolicy

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// Reconciler serves policies.
type Reconciler struct {
	// Client writes.
	Client client.Client
	// Cached has all policies, scalers and namespaces that are served, also those of other replicas.
	Cached cache.Cache
	// Live reads from the API server.
	Live client.Reader
	// Fleet knows all Deployments that are served.
	Fleet *inventory.Fleet
	// Freeze is the switch that stops all changes; nil for none.
	Freeze *freeze.Switch
	// Recorder records events.
	Recorder events.EventRecorder
	// Clock is the time; the real one if unset.
	Clock clock.PassiveClock
	// ResyncPeriod is how often a policy is reconciled without any event.
	ResyncPeriod time.Duration
	// Workers is how many Deployments are reconciled at once.
	Workers int
	// OwnNamespace is the namespace of the operator; empty if it is not known.
	OwnNamespace string
	// Release is the operator's own.
	Release release.Release
	// Namespaces are those that the operator watches; none means all.
	Namespaces []string
	// ServesCluster is true if ClusterScalingPolicies are served. Without it, namespaces are not read.
	ServesCluster bool
	// Rights reports which rights to serve policies are missing.
	Rights Rights

	parsed   parsedPolicies
	rejected rejections
	promoted recentPromotions
	written  *ownwrites.Memory
	conflict queue.Conflicts
	// gone has the UIDs of policies that do not exist anymore.
	gone sync.Map
	// writtenAt is when the status of a policy, by name, was last written.
	writtenAt sync.Map
	// changedMembers and changedPolicies are the queues of both controllers.
	changedMembers, changedPolicies outlet
}

// Rights are those that only policies need.
type Rights interface {
	// Missing lists the rights that the operator lacked when it started; empty if it has them all.
	Missing() string
	// Recheck asks the API server again, and restarts the manager if all missing rights have been granted.
	Recheck(ctx context.Context) error
}

// rejectedRetry is when to retry what the API server has rejected. No event tells that it would accept it now.
const rejectedRetry = time.Minute

// rightsRetry is how often missing rights are asked for, while there is a policy.
const rightsRetry = 15 * time.Second

// policies are the policies that are served, by what can be done with them.
type policies struct {
	// valid are those that select Deployments.
	valid []*fleet.Policy
	// byUID are all of them. A policy whose selectors cannot be parsed, or that is being deleted, is nil.
	byUID map[types.UID]*fleet.Policy
	// keys are those of all of them.
	keys []types.NamespacedName
}

// of is the policy that controls a scaler. exists is false if there is no such policy; a policy that must be
// left to itself is nil.
func (p policies) of(s *v1beta1.VerticalScaler) (policy *fleet.Policy, exists bool) {
	policy, exists = p.byUID[metav1.GetControllerOfNoCopy(s).UID]
	return policy, exists
}

// covering are the policies that can select Deployments of a namespace.
func (p policies) covering(namespace string) (out []*fleet.Policy) {
	for _, policy := range p.valid {
		if policy.Covers(namespace) {
			out = append(out, policy)
		}
	}
	return out
}

// policies reads all policies.
func (r *Reconciler) policies(ctx context.Context) (policies, error) {
	out := policies{byUID: map[types.UID]*fleet.Policy{}}
	var some v1beta1.ScalingPolicyList
	if err := r.Cached.List(ctx, &some, client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing ScalingPolicies: %w", err)
	}
	for i := range some.Items {
		out.add(&some.Items[i], func() (*fleet.Policy, error) { return r.parsed.of(&some.Items[i], r.OwnNamespace) })
	}
	if !r.ServesCluster {
		return out, nil
	}
	var all v1beta1.ClusterScalingPolicyList
	if err := r.Cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing ClusterScalingPolicies: %w", err)
	}
	for i := range all.Items {
		out.add(&all.Items[i], func() (*fleet.Policy, error) { return r.parsed.of(&all.Items[i], r.OwnNamespace) })
	}
	return out, nil
}

func (p *policies) add(object client.Object, parse func() (*fleet.Policy, error)) {
	p.byUID[object.GetUID()] = nil
	p.keys = append(p.keys, client.ObjectKeyFromObject(object))
	if object.GetDeletionTimestamp() != nil {
		return
	}
	if policy, err := parse(); err == nil { // The status of the policy reports the error.
		p.byUID[object.GetUID()] = policy
		p.valid = append(p.valid, policy)
	}
}

// namespace reads what policies see of a namespace. Namespaces that may not be read have no labels.
func (r *Reconciler) namespace(ctx context.Context, name string) (*fleet.Namespace, error) {
	out := &fleet.Namespace{Name: name}
	if !r.ServesCluster {
		return out, nil
	}
	var ns corev1.Namespace
	if err := r.Cached.Get(ctx, types.NamespacedName{Name: name}, &ns, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			out.Terminating = true // or it is still to come, which is an event
			return out, nil
		}
		return nil, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	read(out, &ns)
	return out, nil
}

func read(out *fleet.Namespace, ns *corev1.Namespace) {
	out.Labels, out.Excluded, out.Terminating = ns.Labels, fleet.IsExcluded(ns.Annotations), ns.DeletionTimestamp != nil
}

// parsedPolicies remembers parsed selectors until their policy changes. The zero value is ready for concurrent use.
type parsedPolicies struct {
	mu    sync.Mutex
	known map[types.UID]parsed
}

type parsed struct {
	version string
	policy  *fleet.Policy
	err     error
}

func (p *parsedPolicies) of(object client.Object, ownNamespace string) (*fleet.Policy, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last, ok := p.known[object.GetUID()]; ok && last.version == object.GetResourceVersion() {
		return last.policy, last.err
	}
	now := parsed{version: object.GetResourceVersion()}
	switch o := object.(type) {
	case *v1beta1.ScalingPolicy:
		now.policy, now.err = fleet.Read(o)
	case *v1beta1.ClusterScalingPolicy:
		now.policy, now.err = fleet.ReadCluster(o, ownNamespace)
	}
	if p.known == nil {
		p.known = map[types.UID]parsed{}
	}
	p.known[object.GetUID()] = now
	return now.policy, now.err
}

// keep forgets all policies but these.
func (p *parsedPolicies) keep(policies map[types.UID]*fleet.Policy) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.known, func(uid types.UID, _ parsed) bool {
		_, exists := policies[uid]
		return !exists
	})
}

// rejections remembers why the API server has rejected the scaler of a Deployment. The zero value is ready for
// concurrent use.
type rejections struct {
	mu   sync.Mutex
	last map[types.NamespacedName]string
}

// set notes the message of a rejection; empty for none. It reports whether that is new.
func (r *rejections) set(deployment types.NamespacedName, message string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.last[deployment]
	if r.last == nil {
		r.last = map[types.NamespacedName]string{}
	}
	if message == "" {
		delete(r.last, deployment)
	} else {
		r.last[deployment] = message
	}
	return before != message
}

func (r *rejections) get(deployment types.NamespacedName) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[deployment]
}

// recentPromotions remembers promotions that the cache may not have yet, so that none is counted too late. The
// zero value is ready for use by one reconcile at a time of each policy.
type recentPromotions struct {
	mu sync.Mutex
	at map[types.NamespacedName]time.Time
}

func (p *recentPromotions) add(scaler types.NamespacedName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = map[types.NamespacedName]time.Time{}
	}
	p.at[scaler] = now
}

// of is when a scaler was promoted that the cache has as not promoted; zero if it was not.
func (p *recentPromotions) of(scaler types.NamespacedName, now time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.at[scaler]
	if ok && now.Sub(at) > ownwrites.StaleFor {
		delete(p.at, scaler)
		return time.Time{}
	}
	return at
}

func (p *recentPromotions) forget(scaler types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.at, scaler)
}
