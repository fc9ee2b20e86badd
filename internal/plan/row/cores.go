// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package row

import (
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// A kubelet with the static CPU manager gives exclusive CPUs to the containers of Guaranteed pods
// that request whole CPUs. A new pod with a fraction would lose them without a word, so requests of
// such containers stay whole. In place, the kubelet refuses such a resize by itself (Infeasible).

// Core is one whole CPU, in millicores.
const Core = 1000

// keepsWholeCores reports whether a container of Guaranteed pods requests whole CPUs in the template as
// the user wrote it, and still may once its request has changed.
func (c *Container) keepsWholeCores() bool {
	limit, limits := c.Written.Limits.CPUMillis, c.Policy.LimitPolicy
	switch {
	case limit == 0, limit%Core != 0, c.Policy.Limits == model.LimitsStay:
		return false
	}
	return max(limits.MinAllowed.CPUMillis, limits.MaxAllowed.CPUMillis, ptr.Deref(limits.HeadroomCPU, 0)) == 0 // or it does not stay equal to its request
}

// RoundUpToCore is the next whole CPU.
func RoundUpToCore(millis int64) int64 { return (millis + Core - 1) / Core * Core }

// LosesWholeCores reports whether a new pod of the template may have exclusive CPUs for the container, and would not
// with that request. Requests that are decided for running pods alone are not rounded up.
func (c *Container) LosesWholeCores(cpuMillis int64) bool {
	return cpuMillis%Core != 0 && c.HasWholeCores
}
