// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A LimitRange of the type Pod bounds the sums of a pod's requests and limits, and the API server refuses a pod or a resize
// beyond them as a whole. So the sums bound each raise before it is decided. A container gets the most that fits, first those
// that were OOM-killed. Each raise leaves room for the template's requests of the other containers: one of them may be killed
// next, and a limit that was raised is not lowered for it. Nothing is lowered because of a sum. A pod-level limit that stays bounds the
// sum of requests in the same way.

// withinSums lowers the ceilings of requests to the part of the sums that a LimitRange leaves.
func (e *evaluation) withinSums(r model.Resource, requests []request) {
	bound := e.sumBound(r)
	if bound == "" {
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
	pods := slices.DeleteFunc(e.sized(), func(pod workload.Footprint) bool { return !e.fits(pod, r, requests, has) }) // the others cannot be resized
	allFit := func(amounts []int64) bool {
		return !slices.ContainsFunc(pods, func(pod workload.Footprint) bool { return !e.fits(pod, r, requests, amounts) })
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
			q.ceiling, q.sum = given[i], bound
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

// sumBound describes the bound of a pod's sums, if any.
func (e *evaluation) sumBound(r model.Resource) string {
	if most := r.Of(e.Bounds.PodMax); most > 0 {
		return fmt.Sprintf("LimitRange %s allows all containers of a pod together %s of %s, limits included", e.Bounds.Name, r.Format(most), r)
	}
	for _, pod := range e.sized() {
		if limit := e.podLevelLimit(pod, r); limit < model.Any {
			return fmt.Sprintf("the pod-level limit of %s stays at %s with controlledValues RequestsOnly", r, r.Format(limit))
		}
	}
	return ""
}

// podLevelLimit is the pod-level limit of a pod if it stays, whatever its containers request; Any for none.
func (e *evaluation) podLevelLimit(pod workload.Footprint, r model.Resource) int64 {
	if r.Request(pod.PodLevel) == 0 || slices.ContainsFunc(e.rows.Containers, func(c row.Container) bool { return c.Policy.Limits != model.LimitsStay }) {
		return model.Any
	}
	return model.BoundOf(r.Limit(pod.PodLevel))
}

// fits reports whether the sums of a pod with these requests are within their bounds.
func (e *evaluation) fits(pod workload.Footprint, r model.Resource, requests []request, amounts []int64) bool {
	after := pod.With(func(c workload.Container) workload.Resources {
		i := slices.IndexFunc(requests, func(q request) bool { return q.container.Name == c.Name && q.IsManaged })
		if i < 0 || r.Request(c.Resources) == amounts[i] {
			return c.Resources
		}
		var asked quantity.Amounts
		r.Set(&asked, amounts[i])
		return requests[i].container.Resize(c.Resources, asked)
	})
	sum := after.Sum()
	if max(r.Request(sum), r.Limit(sum)) > model.BoundOf(r.Of(e.Bounds.PodMax)) {
		return false
	}
	limit, podLevel := e.podLevelLimit(pod, r), r.Request(pod.PodLevel)
	pod.PodLevel, after.PodLevel = workload.Resources{}, workload.Resources{}
	beyond := max(0, podLevel-r.Request(pod.Sum())) // what the pod-level request has beyond the containers stays
	return r.Request(after.Sum())+beyond <= limit
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
