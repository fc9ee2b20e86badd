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
	// generation is the Deployment's, 0 until it is created; it moves with any
	// change of its spec.
	generation int64
	// replicaSets is their number: a second one would be a rollout.
	replicaSets int
	// pods are the sample's, by name.
	pods []pod
	// usage is what metrics.k8s.io says, by pod.
	usage map[string]usage.Sample
	// events are those on the scaler, the oldest first.
	events []event
	// audit is what the operator has asked the API server so far.
	audit audit
	// wrote is when the operator last wrote anything but its lease, since the demo
	// began.
	wrote time.Duration
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
	if s.scaler != nil {
		if c := meta.FindStatusCondition(s.scaler.Status.Conditions, kind); c != nil {
			return *c
		}
	}
	return metav1.Condition{}
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
