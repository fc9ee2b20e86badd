// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// container is the one container that the sample's pods have.
const container = "app"

// state is all that is known at one moment.
type state struct {
	// at is the time since the demo began.
	at time.Duration
	// scaler is nil until it is created.
	scaler *v1beta1.VerticalScaler
	// owner is the ScaledDeployment that is shown, if there is one.
	owner *v1beta1.ScaledDeployment
	// deployments are all that the namespace has, by name.
	deployments []deployment
	// replicaSets is their number: a second one would be a rollout.
	replicaSets int
	// atOnce is the most that a ScaledDeployment has had at the same time since the last
	// look, by every single change.
	atOnce int
	// pods are the sample's, by name.
	pods []pod
	// usage is what metrics.k8s.io says, by pod.
	usage map[string]usage.Sample
	// events are those on the scaler and the ScaledDeployment, the oldest first.
	events []event
	// audit is what the operator has asked the API server so far.
	audit audit
	// wrote is when the operator last wrote anything but its lease, since the demo
	// began.
	wrote time.Duration
}

// deployment is a Deployment.
type deployment struct {
	name string
	uid  types.UID
	// generation moves with any change of its spec.
	generation int64
	replicas   int32
	image      string
	// controller is the UID of what controls it.
	controller types.UID
	// deleting says that it only waits for its pods to go.
	deleting bool
	// touched says that the controller of ScaledDeployments has written to it.
	touched bool
}

// pod is a pod, as the operator reads it, and what it has gone through.
type pod struct {
	workload.Pod
	ready    bool
	restarts int32
}

// event is an event recorded by the operator.
type event struct {
	uid    types.UID
	at     time.Duration // since the demo began
	reason string
	note   string
}

// asked are the container's resources as the pod's spec has them.
func (p pod) asked() workload.Resources {
	c, _ := p.Container(container)
	return c.Resources
}

// inForce are the container's resources as the kubelet reports them.
func (p pod) inForce() workload.Resources { return p.Actual[container] }

// condition is a condition of the scaler; its zero value if there is none.
func (s state) condition(kind string) metav1.Condition {
	return find(s.conditions(), kind)
}

func find(conditions []metav1.Condition, kind string) metav1.Condition {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// mine are the sample's Deployments: there should be one at most.
func (s state) mine() (out []deployment) {
	for _, d := range s.deployments {
		if s.owner == nil && d.name == name || s.owner != nil && d.controller == s.owner.UID {
			out = append(out, d)
		}
	}
	return out
}

// target is the sample's Deployment; its zero value if there is none.
func (s state) target() deployment {
	if mine := s.mine(); len(mine) > 0 {
		return mine[0]
	}
	return deployment{}
}

// conditions are the scaler's, and said those of the ScaledDeployment.
func (s state) conditions() []metav1.Condition {
	if s.scaler == nil {
		return nil
	}
	return s.scaler.Status.Conditions
}

func (s state) said() []metav1.Condition {
	if s.owner == nil {
		return nil
	}
	return s.owner.Status.Conditions
}

// isApplied says whether the operator says that nothing is left to be done.
func (s state) isApplied() bool {
	return s.condition(v1beta1.ConditionApplied).Status == metav1.ConditionTrue
}

// recommendation is the container's, and whether there is one.
func (s state) recommendation() (r v1beta1.ContainerRecommendation, ok bool) {
	if s.scaler == nil || s.scaler.Status.Recommendation == nil {
		return r, false
	}
	for _, r := range s.scaler.Status.Recommendation.ContainerRecommendations {
		if r.ContainerName == container {
			return r, true
		}
	}
	return r, false
}

// highest is the highest usage of the pods, and whether any is known.
func (s state) highest() (most quantity.Amounts, ok bool) {
	for _, sample := range s.usage {
		most.CPUMillis = max(most.CPUMillis, sample.CPUMillis)
		most.MemoryBytes = max(most.MemoryBytes, sample.MemoryBytes)
	}
	return most, len(s.usage) > 0
}

// least are the least resources that a pod has in force.
func (s state) least() (least workload.Resources) {
	for i, p := range s.pods {
		r := p.inForce()
		if i == 0 {
			least = r
			continue
		}
		least.Requests = lower(least.Requests, r.Requests)
		least.Limits = lower(least.Limits, r.Limits)
	}
	return least
}

func lower(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: min(a.CPUMillis, b.CPUMillis), MemoryBytes: min(a.MemoryBytes, b.MemoryBytes)}
}

// uids are the pods', sorted.
func (s state) uids() (uids []string) {
	for _, p := range s.pods {
		uids = append(uids, string(p.UID))
	}
	sort.Strings(uids)
	return uids
}

// restarts are those of all pods.
func (s state) restarts() (n int32) {
	for _, p := range s.pods {
		n += p.restarts
	}
	return n
}
