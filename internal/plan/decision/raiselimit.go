// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// leastRaiseLimit is what any container may be raised to: little enough for any node.
var leastRaiseLimit = quantity.Amounts{CPUMillis: 1000, MemoryBytes: 1 << 30}

// RaiseLimit is the most that a request or a limit of a container is raised to if its policy has no
// maxAllowed; 0 for any. It bounds amounts with a wrong unit, usage that follows the size, and hostile usage:
//
//	RaiseFactor * what the user has set, but at least 1 CPU and 1Gi, minAllowed, and the least of a LimitRange
//
// What the user has set is the larger one of request and limit in the template, before it was rewritten, or else the
// default of a LimitRange. Without either, there is nothing to compare with, and only the ceilings bound a request.
func RaiseLimit(s model.Situation, policy model.Policy, c workload.Container, r model.Resource) int64 {
	p, factor := policy.Containers[c.Name], s.Ceilings.RaiseFactor
	base := userSize(s, c, r)
	switch {
	case base == 0, factor == 0, r.Of(p.MaxAllowed) > 0:
		return 0
	}
	return min(r.Most(), max(mulDiv(base, factor, 1, true), r.Of(leastRaiseLimit), r.Of(p.MinAllowed), r.Of(s.Bounds.ContainerMin)))
}

// userSize is the larger one of the request and the limit that the user has set, or else the default of a
// LimitRange; 0 for none.
func userSize(s model.Situation, c workload.Container, r model.Resource) int64 {
	written := Written(s, c)
	return cmp.Or(max(r.Request(written), r.Limit(written)), r.Of(s.Bounds.ContainerDefault))
}

// MostRaised is the most that a request may be raised to, by its policy and by what bounds any request; 0 if nothing says.
func MostRaised(s model.Situation, policy model.Policy, c workload.Container, r model.Resource) int64 {
	most := cmp.Or(r.Of(policy.Containers[c.Name].MaxAllowed), RaiseLimit(s, policy, c, r))
	if most == 0 {
		return 0
	}
	return min(most, unlimited(r.Of(s.Ceilings.Container)), unlimited(MostPerPod(s, policy, r)))
}
