// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// OutOfBounds says which rule of a LimitRange the containers break. The sizes are already
// set on the containers. Containers without a size are not checked, but count for the sum.
func OutOfBounds(containers []workload.Container, sizes []model.Size, bounds workload.Bounds) model.Obstacle {
	if message := brokenRule(containers, sizes, bounds); message != "" {
		return model.Obstacle{Reason: v1beta1.ReasonLimitRange, Message: message, Stalled: true}
	}
	return model.Obstacle{}
}

func brokenRule(containers []workload.Container, sizes []model.Size, bounds workload.Bounds) string {
	sizes = slices.SortedFunc(slices.Values(sizes), func(a, b model.Size) int { return cmp.Compare(a.Container, b.Container) })
	for _, r := range model.Resources {
		for _, size := range sizes {
			c, _ := workload.Pod{Containers: containers}.Container(size.Container)
			if what := brokenByContainer(c.Resources, r, bounds); what != "" {
				return fmt.Sprintf("LimitRange %s allows a container %s", bounds.Name, what)
			}
		}
		if what := brokenByPod(containers, r, bounds); what != "" {
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
		return fmt.Sprintf("no less than %s of %s", r.Format(least), r.Name)
	case isAbove(max(request, limit), most):
		return fmt.Sprintf("at most %s of %s", r.Format(most), r.Name)
	case isAbove(request, limit):
		return fmt.Sprintf("at most %s of %s, which is its default limit", r.Format(limit), r.Name)
	case min(ratio, limit) > 0 && exceeds(limit, request, ratio):
		return fmt.Sprintf("a limit of at most %g times its request of %s", float64(ratio)/1000, r.Name)
	}
	return ""
}

// isAbove says that an amount is above a bound that is set.
func isAbove(v, most int64) bool { return most > 0 && v > most }

// brokenByPod sums as the API server does: a value that is not set counts for nothing, but
// a pod without any limit breaks a bound on it. A request that a template does not set may
// be filled in.
func brokenByPod(containers []workload.Container, r model.Resource, bounds workload.Bounds) string {
	var requests, limits int64
	isComplete := true
	for _, c := range containers {
		if r.Request(c.Resources) == 0 {
			isComplete = false
		}
		requests += r.Request(c.Resources)
		limits += r.Limit(c.Resources)
	}
	switch least, most := r.Of(bounds.PodMin), r.Of(bounds.PodMax); {
	case isComplete && requests < least:
		return fmt.Sprintf("no less than %s of %s", r.Format(least), r.Name)
	case isAbove(max(requests, limits), most):
		return fmt.Sprintf("at most %s of %s", r.Format(most), r.Name)
	case most > 0 && limits == 0:
		return fmt.Sprintf("at most %s of %s, and this one has no limit", r.Format(most), r.Name)
	}
	return ""
}
