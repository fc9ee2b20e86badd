// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scalingpolicy serves ScalingPolicies and ClusterScalingPolicies: it creates, changes and deletes
// their VerticalScalers, promotes them, and reports this in the status of each policy.
//
// Two controllers share this work. The one of members (member.go) has a request for each Deployment: it decides
// which policy sizes the Deployment, and creates or updates its scaler. An event of a Deployment, a namespace, a
// scaler or a policy becomes requests for the affected Deployments. Each costs the same in a fleet of any size.
// The one of policies (policy.go) has a request for each ClusterScalingPolicy, and one for all ScalingPolicies of a
// namespace: it counts all members, promotes scalers, and writes each status once. It runs at most once a second.
//
// The pure package fleet decides; this package does the I/O.
package scalingpolicy

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
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
	// Deployments knows all Deployments that are served.
	Deployments *inventory.Deployments
	// Freeze is the switch that stops all changes, or nil.
	Freeze *freeze.Switch
	// Recorder records events.
	Recorder events.EventRecorder
	// Clock is the time.
	Clock clock.PassiveClock
	// ResyncPeriod is the time between reconciles of a policy without an event.
	ResyncPeriod time.Duration
	// Workers is the number of Deployments that are reconciled at once.
	Workers int
	// OwnNamespace is the namespace of the operator, if known.
	OwnNamespace string
	// Release is the operator's own.
	Release release.Release
	// ServesCluster is true if ClusterScalingPolicies are served. Without it, namespaces are not read.
	ServesCluster bool
	// Forbidden lists the rights that the operator lacks to serve policies. The manager restarts when they have been
	// granted.
	Forbidden string

	// rejected has why the API server has rejected the scaler of a Deployment, by its key.
	rejected sync.Map
	// promoted and written have the last promotions of scalers, and the last statuses of policies.
	promoted, written ownwrites.Memory
	conflict          queue.Conflicts
	// writtenAt is the time of the last status write, by name of the policy.
	writtenAt sync.Map
	// parsed has the last version of each policy: a parsed, by name of the policy.
	parsed sync.Map
	// known has the names of a namespace's ScalingPolicies at the last reconcile: []types.NamespacedName.
	known sync.Map
	// lookUpPolicies triggers the policies that are found; nil before their controller starts.
	lookUpPolicies atomic.Pointer[func(queue.Find)]
}

// rejectedRetry is the time until a rejected write is retried. No event announces that it would be accepted.
const rejectedRetry = time.Minute

// policies are the served policies, by state.
type policies struct {
	// valid are the policies that select Deployments, by namespace. Those of the cluster have none.
	valid map[string][]*fleet.Policy
	// byUID are all of them. A policy that selects nothing is nil: its selectors cannot be parsed, it is being deleted, or
	// too many older ones are in its namespace.
	byUID map[types.UID]*fleet.Policy
	// keys are the keys of all policies.
	keys []types.NamespacedName
	// surplus are the policies with too many older ones in their namespace.
	surplus sets.Set[types.UID]
}

// of is the policy that controls a scaler. exists is false if there is no such policy; policy is nil if it
// must be left alone.
func (p policies) of(s *v1beta1.VerticalScaler) (policy *fleet.Policy, exists bool) {
	policy, exists = p.byUID[metav1.GetControllerOfNoCopy(s).UID]
	return policy, exists
}

// choose returns the policy that sizes a Deployment; nil if none does. Those of its namespace come first.
func (p policies) choose(d *fleet.Deployment, namespace *fleet.Namespace) *fleet.Policy {
	return cmp.Or(fleet.Choose(p.valid[d.Namespace], d, namespace), fleet.Choose(p.valid[metav1.NamespaceNone], d, namespace))
}

// policies reads the policies that can select Deployments of a namespace, or all if it is empty.
func (r *Reconciler) policies(ctx context.Context, namespace string) (policies, error) {
	out := policies{valid: map[string][]*fleet.Policy{}, byUID: map[types.UID]*fleet.Policy{}, surplus: sets.New[types.UID]()}
	var some v1beta1.ScalingPolicyList
	if err := r.Cached.List(ctx, &some, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing ScalingPolicies: %w", err)
	}
	byNamespace := map[string][]*v1beta1.ScalingPolicy{}
	for i := range some.Items {
		p := &some.Items[i]
		byNamespace[p.Namespace] = append(byNamespace[p.Namespace], p)
	}
	for _, all := range byNamespace {
		fleet.OldestFirst(all)
		for i, p := range all {
			r.add(&out, p, i >= fleet.MaxPolicies)
		}
	}
	if !r.ServesCluster {
		return out, nil
	}
	var all v1beta1.ClusterScalingPolicyList
	if err := r.Cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing ClusterScalingPolicies: %w", err)
	}
	for i := range all.Items {
		r.add(&out, &all.Items[i], false)
	}
	return out, nil
}

func (r *Reconciler) add(to *policies, object client.Object, isSurplus bool) {
	to.byUID[object.GetUID()] = nil
	to.keys = append(to.keys, client.ObjectKeyFromObject(object))
	if isSurplus {
		to.surplus.Insert(object.GetUID())
	}
	if isSurplus || object.GetDeletionTimestamp() != nil {
		return
	}
	if policy, err := r.parse(object); err == nil { // The status of the policy reports the error.
		to.byUID[object.GetUID()] = policy
		to.valid[object.GetNamespace()] = append(to.valid[object.GetNamespace()], policy)
	}
}

// parsed is the result of parse for a version of a policy.
type parsed struct {
	version string
	policy  *fleet.Policy
	err     error
}

// parse parses each version of a policy once.
func (r *Reconciler) parse(object client.Object) (*fleet.Policy, error) {
	key := client.ObjectKeyFromObject(object)
	found, _ := r.parsed.Load(key)
	last, _ := found.(parsed)
	if version := string(object.GetUID()) + "/" + object.GetResourceVersion(); last.version != version {
		own, _ := object.DeepCopyObject().(client.Object) // not the list that it may be part of
		policy, err := fleet.Read(own, r.OwnNamespace)
		last = parsed{version, policy, err}
		r.parsed.Store(key, last)
	}
	return last.policy, last.err
}

// namespace reads the policies' view of a namespace. Namespaces that may not be read have no labels.
func (r *Reconciler) namespace(ctx context.Context, name string) (*fleet.Namespace, error) {
	out := &fleet.Namespace{Name: name}
	if !r.ServesCluster {
		return out, nil
	}
	ns := namespaceMetadata()
	if err := r.Cached.Get(ctx, types.NamespacedName{Name: name}, ns, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			out.Terminating = true // or it is still to come, which is an event
			return out, nil
		}
		return nil, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	out.Labels, out.Excluded, out.Terminating = ns.Labels, fleet.IsExcluded(ns.Annotations), ns.DeletionTimestamp != nil
	return out, nil
}

// rejection is the reason for which the API server rejected the scaler of a Deployment, if it did.
func (r *Reconciler) rejection(deployment types.NamespacedName) string {
	last, _ := r.rejected.Load(deployment)
	message, _ := last.(string)
	return message
}
