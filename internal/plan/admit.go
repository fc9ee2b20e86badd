// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// admit plans what new pods get. Those that run are left alone, whatever they have.
func (p Plan) admit(s Situation, policy Policy) Plan {
	p.Decision = p.Decision.unwritten()
	sizes, no := newPods(s, policy, *p.Decision)
	if no.reason != "" {
		p.Stalled = no.stalled
		if no.reason == v1beta1.ReasonQuotaExceeded {
			p.RequeueAfter = quotaRetry
		}
		return p.because(no.reason, no.message)
	}
	p.NewPods = sizes
	if p.PodsAtSize = podsAt(s, p.NewPods); p.PodsAtSize < p.Pods {
		return p.because(v1beta1.ReasonNewPodsOnly, "New pods get the decided size, and those that run stay as they are")
	}
	p.Applied = true
	return p.because(v1beta1.ReasonApplied, "All pods have the decided size, and new ones get it")
}

// newPods is what new pods get by a decision, and why they get nothing.
func newPods(s Situation, policy Policy, d Decision) (sizes []Size, no note) {
	if s.Deployment.PodLevelResources {
		return nil, note{reason: v1beta1.ReasonUnsupported, message: "The Deployment declares resources for its pods as a whole, which are not managed", stalled: true}
	}
	s.Decision = &d
	made := withDefaults(s.Deployment.Containers, s.Bounds)
	var whole []Size
	for i, c := range s.Deployment.Containers {
		if requests, ok := d.Requests[c.Name]; ok && !c.Unreadable {
			whole = append(whole, Size{Container: c.Name, Resources: cutFor(s, policy, c).sized(made[i].Resources, requests)})
		}
	}
	if message := outOfBounds(withSizes(made, whole), whole, s.Bounds); message != "" {
		return nil, note{reason: v1beta1.ReasonLimitRange, message: message, stalled: true}
	}
	if no := newPodOverQuota(s, made, whole); no.reason != "" {
		return nil, no
	}
	for _, size := range whole {
		sizes = append(sizes, Size{Container: size.Container, Resources: decidedOnly(size.Resources, d, size.Container)})
	}
	return sizes, note{}
}

// decidedOnly is what has been decided of a container's resources, and the limits with it.
func decidedOnly(all workload.Resources, d Decision, container string) (out workload.Resources) {
	for _, r := range resources {
		if d.request(container, r) > 0 {
			r.set(&out.Requests, r.of(all.Requests))
			r.set(&out.Limits, r.of(all.Limits))
		}
	}
	return out
}
