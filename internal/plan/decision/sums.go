// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A LimitRange of the type Pod bounds the sums of a pod's requests and limits, and the API server refuses a pod or a resize
// beyond them as a whole. So the sums bound each raise before it is decided. A container gets the most that fits, first those
// that were OOM-killed. Each raise leaves room for the template's requests of the other containers: one of them may be killed
// next, and a limit that was raised is not lowered for it. Nothing is lowered because of a sum.

// withinSums lowers the ceilings of requests to the part of the sums that a LimitRange leaves.
func (e *evaluation) withinSums(r model.Resource, requests []request) {
	most := r.Of(e.Bounds.PodMax)
	if most == 0 {
		return
	}
	has, wants, template := make([]int64, len(requests)), make([]int64, len(requests)), make([]int64, len(requests))
	for i, q := range requests {
		has[i] = q.granted
		if q.IsManaged {
			has[i] = max(q.granted, r.Of(e.Bounds.ContainerMin))
		}
		wants[i] = max(has[i], min(q.largestOutcome(), q.ceiling))
		template[i] = max(has[i], q.container.WrittenRequest(r))
	}
	pods := slices.DeleteFunc(e.sized(), func(pod workload.Footprint) bool { return !fits(pod, r, requests, has, most) }) // the others cannot be resized
	allFit := func(amounts []int64) bool {
		return !slices.ContainsFunc(pods, func(pod workload.Footprint) bool { return !fits(pod, r, requests, amounts, most) })
	}
	templateFits := allFit(template)
	besides := func(amounts []int64) []int64 { // with room for the template's requests
		out := slices.Clone(amounts)
		for i := range out {
			if templateFits {
				out[i] = max(out[i], template[i])
			}
		}
		return out
	}
	if allFit(besides(wants)) {
		return
	}
	given := slices.Clone(has)
	for _, i := range urgentFirst(requests) {
		beside := besides(given)
		q := &requests[i]
		more := sort.Search(int(wants[i]-has[i]), func(more int) bool {
			beside[i] = has[i] + int64(more) + 1
			return !allFit(beside)
		})
		if given[i] += int64(more); given[i] < wants[i] {
			given[i] = max(has[i], given[i]/q.grain(given[i])*q.grain(given[i]))
			q.ceiling, q.sum = given[i], fmt.Sprintf("LimitRange %s allows all containers of a pod together %s of %s, limits included", e.Bounds.Name, r.Format(most), r)
		}
	}
}

// sized are the pods that a decision sizes: those that run, and the next one.
func (e *evaluation) sized() []workload.Footprint {
	out := []workload.Footprint{e.NewPod().With(e.Bounds.Defaulted)}
	for _, pod := range e.Pods {
		if e.policy.InPlace() && e.IsActive(e.policy, pod) {
			out = append(out, pod.Footprint())
		}
	}
	return out
}

// fits reports whether a pod with these requests has sums within the most.
func fits(pod workload.Footprint, r model.Resource, requests []request, amounts []int64, most int64) bool {
	sum := pod.With(func(c workload.Container) workload.Resources {
		i := slices.IndexFunc(requests, func(q request) bool { return q.container.Name == c.Name && q.IsManaged })
		if i < 0 || r.Request(c.Resources) == amounts[i] {
			return c.Resources
		}
		return requests[i].container.Resize(c.Resources, r.Alone(amounts[i]))
	}).Sum()
	return max(r.Request(sum), r.Limit(sum)) <= most
}

// urgentFirst is the order in which containers get room: OOM-killed ones first, then by name.
func urgentFirst(requests []request) []int {
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := requests[i], requests[j]
		return cmp.Or(cmp.Compare(a.urgency(), b.urgency()), cmp.Compare(a.container.Name, b.container.Name))
	})
	return order
}

func (q request) urgency() int {
	if q.isKilled() {
		return 0
	}
	return 1
}

// isKilled reports whether pods have less than an OOM kill has shown to be necessary.
func (q request) isKilled() bool { return q.granted < q.oomFloor() }
