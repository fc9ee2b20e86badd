// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A kubelet with the static CPU manager gives exclusive CPUs to the containers of Guaranteed pods
// that request whole CPUs. A new pod with a fraction would lose them without a word, so requests of
// such containers stay whole. In place, the kubelet refuses such a resize by itself (Infeasible).

// core is one whole CPU, in millicores.
const core = 1000

// hasWholeCores reports whether the container requests whole CPUs in a Guaranteed pod, in the template as
// the user wrote it, and whether new pods may get its next size.
func hasWholeCores(s model.Situation, policy model.Policy, c workload.Container, r model.Resource) bool {
	if r.IsMemory() || policy.InPlace() && !policy.MayReplace() {
		return false
	}
	return isWhole(s, policy, c, r)
}

func isWhole(s model.Situation, policy model.Policy, c workload.Container, r model.Resource) bool {
	limit := r.Limit(Written(s, c))
	return limit > 0 && limit%core == 0 && keepsLimitsEqual(policy.Containers[c.Name], r) && isGuaranteed(s)
}

// LosesWholeCores reports whether a new pod of the template may have exclusive CPUs for the container, and would not
// with that request. Requests that are decided for running pods alone are not rounded up.
func LosesWholeCores(s model.Situation, policy model.Policy, c workload.Container, cpuMillis int64) bool {
	return cpuMillis%core != 0 && isWhole(s, policy, c, model.CPU)
}

// keepsLimitsEqual reports whether a limit that equals its request still does after the request has changed.
func keepsLimitsEqual(p model.ContainerPolicy, r model.Resource) bool {
	headroom := r.Headroom(p.LimitPolicy)
	hasBounds := max(r.Of(p.LimitPolicy.MinAllowed), r.Of(p.LimitPolicy.MaxAllowed)) > 0
	return p.Limits && !hasBounds && (headroom == nil || *headroom == 0)
}

// isGuaranteed reports whether the template's containers make Guaranteed pods. Init containers and what is
// injected into pods only show in the pods.
func isGuaranteed(s model.Situation) bool {
	template := slices.Clone(s.Deployment.Containers)
	for i, c := range template {
		template[i].Resources = Written(s, c)
	}
	if workload.QoSOf(template) != corev1.PodQOSGuaranteed {
		return false
	}
	return !slices.ContainsFunc(s.Pods, func(pod workload.Pod) bool {
		return pod.Current && pod.QoS != "" && pod.QoS != corev1.PodQOSGuaranteed
	})
}

// inWholeCores is the move to the next whole CPU, or to the most that is allowed. A step limit of less
// than one CPU does not keep a request from being lowered by one. If less than one is allowed, or less
// than the request has, the move is as it was.
func (q request) inWholeCores(m move) move {
	if m.why == "" || !q.isWhole {
		return m
	}
	to := roundUpToCore(m.to)
	if most := q.allowed.fit(to); most < to {
		to = most / core * core
	}
	if to == 0 || to < m.from && m.from < m.to {
		return m
	}
	if to >= m.from && m.to < m.from {
		to = min(m.from, max(roundUpToCore(q.target), roundUpToCore(m.from)-core))
	}
	if m.to = to; to == m.from {
		m.why = ""
	}
	return m
}

func roundUpToCore(millis int64) int64 { return (millis + core - 1) / core * core }

// whyWhole is why a request stays whole; empty if that is not the reason.
func (q request) whyWhole() string {
	if !q.isWhole || q.isClose(q.target) {
		return ""
	}
	current, target, whole := q.resource.Format(q.current), q.resource.Format(q.target), roundUpToCore(q.target)
	switch {
	case q.target > q.current:
		return fmt.Sprintf("%s stays, because the container has whole CPUs, and its bounds do not allow the %s that %s is rounded up to", current, q.resource.Format(whole), target)
	case whole >= q.current:
		return fmt.Sprintf("%s stays, because the container has whole CPUs, and %s is rounded up to them", current, target)
	}
	return ""
}
