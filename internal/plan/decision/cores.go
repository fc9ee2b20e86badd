// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"slices"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A kubelet with the static CPU manager gives exclusive CPUs to the containers of Guaranteed pods
// that request whole CPUs. A new pod with a fraction would lose them without a word, so requests of
// such containers stay whole. In place, the kubelet refuses such a resize by itself (Infeasible).

// core is one whole CPU, in millicores.
const core = 1000

// HasWholeCores reports whether the container requests whole CPUs in a Guaranteed pod, in the template as
// the user wrote it, and still may once its request has changed.
func HasWholeCores(s model.Situation, policy model.Policy, c workload.Container) bool {
	limit, p := Written(s, c).Limits.CPUMillis, policy.Containers[c.Name]
	switch {
	case limit == 0, limit%core != 0, p.Limits == model.LimitsStay:
		return false
	case max(p.LimitPolicy.MinAllowed.CPUMillis, p.LimitPolicy.MaxAllowed.CPUMillis, ptr.Deref(p.LimitPolicy.HeadroomCPU, 0)) > 0:
		return false // the limit does not stay equal to its request
	}
	return isGuaranteed(s)
}

// LosesWholeCores reports whether a new pod of the template may have exclusive CPUs for the container, and would not
// with that request. Requests that are decided for running pods alone are not rounded up.
func LosesWholeCores(s model.Situation, policy model.Policy, c workload.Container, cpuMillis int64) bool {
	return cpuMillis%core != 0 && HasWholeCores(s, policy, c)
}

// isGuaranteed reports whether the template, as the user wrote it, makes Guaranteed pods.
func isGuaranteed(s model.Situation) bool {
	template := slices.Clone(s.Deployment.Containers)
	for i, c := range template {
		template[i].Resources = Written(s, c)
	}
	return workload.AreGuaranteed(template, s.Pods)
}

// wholeCores is the range of whole CPUs within the range; the range itself if it has none, or if only that would lower the current
// request.
func (s span) wholeCores(current int64) span {
	whole := span{roundUpToCore(s.least), s.most / core * core}
	if whole.most < max(whole.least, core) || whole.most < current && current <= s.most {
		return s
	}
	return whole
}

func roundUpToCore(millis int64) int64 { return (millis + core - 1) / core * core }
