// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
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

// wholeCores is the range of whole CPUs within the range, or the range itself if it has none.
func (s span) wholeCores() span {
	whole := span{roundUpToCore(s.least), s.most / core * core}
	if whole.most < max(whole.least, core) {
		return s
	}
	return whole
}

func roundUpToCore(millis int64) int64 { return (millis + core - 1) / core * core }
