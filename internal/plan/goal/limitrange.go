// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package goal

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// OutOfBounds reports which rule of a LimitRange a pod breaks. The sizes are already set on its
// containers. The API server checks all containers. But a webhook may complete those of new pods, so only those with a size
// are checked in a template; the others count for the sum.
func OutOfBounds(pod workload.Footprint, sizes []model.Size, bounds workload.Bounds) (o model.Obstacle) {
	isChecked := func(c workload.Container) bool {
		return !pod.IsTemplate || indexOf(sizes, c.Name) >= 0
	}
	containers := slices.SortedFunc(slices.Values(slices.Concat(pod.Running, pod.Init)), func(a, b workload.Container) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range model.Resources {
		for _, c := range containers {
			if what := brokenByContainer(c.Resources, r, bounds); what != "" && isChecked(c) {
				return model.Stall(v1beta1.ReasonLimitRange, "LimitRange %s allows container %s %s", bounds.Name, c.Name, what)
			}
		}
		if what := brokenByPod(pod, r, bounds); what != "" {
			return model.Stall(v1beta1.ReasonLimitRange, "LimitRange %s allows a pod %s", bounds.Name, what)
		}
	}
	return o
}

func brokenByContainer(c workload.Resources, r model.Resource, bounds workload.Bounds) string {
	request, limit := r.Request(c), r.Limit(c)
	least, most, ratio := r.Of(bounds.ContainerMin), r.Of(bounds.ContainerMax), r.Ratio(bounds.ContainerRatio)
	switch {
	case request == 0:
		return "" // none, or one that we do not know
	case request < least:
		return fmt.Sprintf("no less than %s of %s", r.Format(least), r.String())
	case isAbove(limit, most):
		return fmt.Sprintf("at most %s of %s, and its limit is %s", r.Format(most), r.String(), r.Format(limit))
	case isAbove(request, most):
		return fmt.Sprintf("at most %s of %s", r.Format(most), r.String())
	case isAbove(request, limit):
		return fmt.Sprintf("at most %s of %s, which is its default limit", r.Format(limit), r.String())
	case row.Exceeds(model.BoundOf(limit), request, ratio):
		return fmt.Sprintf("a limit of at most %g times its request of %s", float64(ratio)/1000, r.String())
	}
	return ""
}

func isAbove(v, most int64) bool { return v > model.BoundOf(most) }

// brokenByPod applies the API server's rules to the pod's sum. A value that is not set counts for
// nothing, but a pod without any request or limit breaks a bound on it. The sum includes init containers.
func brokenByPod(pod workload.Footprint, r model.Resource, bounds workload.Bounds) string {
	sum := pod.Sum()
	requests, limits := r.Request(sum), r.Limit(sum)
	least, most, ratio := r.Of(bounds.PodMin), r.Of(bounds.PodMax), r.Ratio(bounds.PodRatio)
	leastRequest := least
	lacksRequest := slices.ContainsFunc(slices.Concat(pod.Running, pod.Init), func(c workload.Container) bool { return r.Request(c.Resources) == 0 })
	if pod.IsTemplate && r.Request(pod.PodLevel) == 0 && lacksRequest {
		leastRequest, ratio = 0, 0 // a LimitRange or a webhook may give new pods more
	}
	switch {
	case requests < leastRequest:
		return fmt.Sprintf("no less than %s of %s", r.Format(least), r.String())
	case model.IsBelow(limits, least):
		return fmt.Sprintf("a limit of no less than %s of %s", r.Format(least), r.String())
	case isAbove(max(requests, limits), most):
		return fmt.Sprintf("at most %s of %s", r.Format(most), r.String())
	case isAbove(model.BoundOf(limits), most):
		return fmt.Sprintf("at most %s of %s, and this one has no limit", r.Format(most), r.String())
	case row.Exceeds(model.BoundOf(limits), requests, ratio):
		return fmt.Sprintf("a limit of at most %g times its request of %s", float64(ratio)/1000, r.String())
	}
	return ""
}

// LimitRanger sets defaults on each resize too, in all containers of the pod, also in those that the resize does not name. A
// pod that is older than its LimitRange would get limits for good: a resize cannot remove them again. So such a pod is not
// resized. It is not replaced for that either: the next pod would have the same limits from its start.

// LimitRangeObstacle reports that the LimitRanges of the namespace refuse a resize of the pod, or would add to it.
func (p Pod) LimitRangeObstacle(sizes Changes) model.Obstacle {
	if !sizes.Differ() {
		return model.Obstacle{} // no resize is sent
	}
	after := sizes.Resized(p.Pod)
	o := cmp.Or(p.addedByLimitRange(after), OutOfBounds(after, sizes.Sizes(), p.Bounds))
	for _, c := range after.Running {
		limit, most := p.Bounds.Defaulted(c).Limits.MemoryBytes, p.Bounds.ContainerMax.MemoryBytes
		if need := p.Rows.Find(c.Name).KnownMemory; o.Exists() && min(model.BoundOf(limit), model.BoundOf(most)) < need {
			o.Message += fmt.Sprintf("; container %s is known to need %s of memory", c.Name, model.Memory.Format(need))
		}
	}
	return o
}

// addedByLimitRange reports the defaults that LimitRanger would add to the containers of a resized pod.
func (g Goals) addedByLimitRange(after workload.Footprint) model.Obstacle {
	var added, lines []string
	template := g.Deployment.Footprint()
	for _, c := range slices.Concat(after.Running, after.Init) {
		full, place := g.Bounds.Defaulted(c), "where it is injected"
		if _, ok := template.Container(c.Name); ok {
			place = "in the Deployment"
		}
		for _, r := range model.Resources {
			for _, part := range []struct {
				name      string
				has, gets int64
			}{{"request", r.Request(c.Resources), r.Request(full)}, {"limit", r.Limit(c.Resources), r.Limit(full)}} {
				if part.has != part.gets {
					added = append(added, fmt.Sprintf("a %s %s of %s to container %s", r, part.name, r.Format(part.gets), c.Name))
					lines = append(lines, fmt.Sprintf("resources.%ss.%s of container %s %s", part.name, r, c.Name, place))
				}
			}
		}
	}
	if len(added) == 0 {
		return model.Obstacle{}
	}
	return model.Stall(v1beta1.ReasonLimitRange, "LimitRange %s would add %s when the pod is resized: set %s",
		g.Bounds.DefaultName, model.Listed(added, ", "), model.Listed(lines, ", "))
}
