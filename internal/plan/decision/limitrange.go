// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// OutOfBounds reports which rule of a LimitRange a pod breaks. The sizes are already set on its
// containers. The API server checks all containers. But a webhook may complete those of new pods, so only those with a size
// are checked in a template; the others count for the sum.
func OutOfBounds(pod workload.Footprint, sizes []model.Size, bounds workload.Bounds) model.Obstacle {
	if message := brokenRule(pod, sizes, bounds); message != "" {
		return model.Obstacle{Reason: v1beta1.ReasonLimitRange, Message: message, Stalled: true}
	}
	return model.Obstacle{}
}

func brokenRule(pod workload.Footprint, sizes []model.Size, bounds workload.Bounds) string {
	isChecked := func(c workload.Container) bool {
		return !pod.IsTemplate || slices.ContainsFunc(sizes, func(size model.Size) bool { return size.Container == c.Name })
	}
	containers := slices.SortedFunc(slices.Values(slices.Concat(pod.Running, pod.Init)), func(a, b workload.Container) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range model.Resources {
		for _, c := range containers {
			if what := brokenByContainer(c.Resources, r, bounds); what != "" && isChecked(c) {
				return fmt.Sprintf("LimitRange %s allows container %s %s", bounds.Name, c.Name, what)
			}
		}
		if what := brokenByPod(pod, r, bounds); what != "" {
			return fmt.Sprintf("LimitRange %s allows a pod %s", bounds.Name, what)
		}
	}
	return ""
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
	case exceeds(limit, request, ratio):
		return fmt.Sprintf("a limit of at most %g times its request of %s", float64(ratio)/1000, r.String())
	}
	return ""
}

// isAbove reports whether an amount is above a bound that is set.
func isAbove(v, most int64) bool { return v > unlimited(most) }

// brokenByPod applies the API server's rules to the pod's sum: a value that is not set counts for nothing,
// but a pod without any request or limit breaks a bound on it. The sum includes init containers.
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
	case isAbove(cmp.Or(limits, math.MaxInt64), most):
		return fmt.Sprintf("at most %s of %s, and this one has no limit", r.Format(most), r.String())
	case exceeds(cmp.Or(limits, math.MaxInt64), requests, ratio):
		return fmt.Sprintf("a limit of at most %g times its request of %s", float64(ratio)/1000, r.String())
	}
	return ""
}

// KnownMemory is the memory that a container has used, or was OOM-killed with; 0 if nothing is known.
func KnownMemory(s model.Situation, container string) int64 {
	rec, _ := s.Recommendation(container)
	return knownNeed(rec)
}
