// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
)

// A resize that its kubelet does not grant is withdrawn after a while: the pod declares again what it has. Until then the
// scheduler counts what the pod declares, and no other pod gets that room; a ResourceQuota counts it for longer. The size is
// asked for again later, and a part of it at once: see admissible.

// withoutPending is the sizes with what the kubelet reports as applied, in place of what it has
// not granted. ok is false if the pod cannot declare that: then the resize stays as it is.
//
// Nothing that a container has is taken from it. The step carries the version of the pod whose
// status was read, so that a resize that was granted in the meantime is not undone.
func (s Standing) withoutPending() (out goal.Changes, ok bool) {
	out = slices.Clone(s.Sizes)
	isGuaranteed := !s.PodLevelResources && goal.QoSOf(s.Pod.Pod) == corev1.PodQOSGuaranteed
	for i, c := range s.Sizes {
		if !c.IsReported {
			return nil, false
		}
		for _, r := range model.Resources {
			if r.IsApplied(c.Actual, c.Size) {
				continue
			}
			request, limit := applied(r.Request(c.Size), r.Request(c.Actual)), applied(r.Limit(c.Size), r.Limit(c.Actual))
			if isGuaranteed {
				request = limit // or the QoS class would change
			}
			r.Put(&out[i].Size, request, limit)
		}
	}
	out = out.KeepingBurstable(s.Pod.Pod)
	return out, s.IsPossibleChange(out)
}

// applied is the applied amount. No request or limit is added or removed.
func applied(declared, actual int64) int64 {
	if min(declared, actual) == 0 {
		return declared
	}
	return actual
}
