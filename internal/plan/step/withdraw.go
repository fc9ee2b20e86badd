// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A resize that its kubelet does not grant is withdrawn after a while: the pod declares again
// what it has. Until then the scheduler counts what the pod declares, and no other pod gets that
// room; a ResourceQuota counts it for longer. The size is asked for again later, and a part of
// it at once: see admissible.

// withoutPending is the sizes with what the kubelet reports as applied, in place of what it has
// not granted. ok is false if the pod cannot declare that: then the resize stays as it is.
//
// Nothing that a container has is taken from it. The step carries the version of the pod whose
// status was read, so that a resize that was granted in the meantime is not undone.
func (p planner) withoutPending(pod workload.Pod, sizes []model.Size) (out []model.Size, ok bool) {
	out = slices.Clone(sizes)
	for i, size := range sizes {
		actual, isReported := pod.Actual[size.Container]
		if !isReported {
			return nil, false
		}
		for _, r := range model.Resources {
			if r.IsApplied(actual, size.Resources) {
				continue
			}
			request, limit := applied(r.Request(size.Resources), r.Request(actual)), applied(r.Limit(size.Resources), r.Limit(actual))
			if r.Request(size.Resources) == r.Limit(size.Resources) && limit > r.Limit(size.Resources) {
				request = limit // or the QoS class would change
			}
			r.Put(&out[i].Resources, request, limit)
		}
	}
	out = keepBurstable(pod, out)
	return out, p.isPossibleChange(pod, out)
}

// applied is the applied amount. No request or limit is added or removed.
func applied(declared, actual int64) int64 {
	if min(declared, actual) == 0 {
		return declared
	}
	return actual
}

// isPending reports whether the reason is that of a kubelet that does not grant a resize.
func isPending(reason string) bool {
	return slices.Contains([]string{v1beta1.ReasonDeferred, v1beta1.ReasonInfeasible}, reason)
}

// asksFor reports whether the sizes ask for no less than others, for any container.
func asksFor(sizes, others []model.Size) bool {
	return slices.EqualFunc(sizes, others, func(size, other model.Size) bool {
		asksNoLess := !slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool { return r.Request(size.Resources) < r.Request(other.Resources) })
		return size.Container == other.Container && asksNoLess
	})
}
