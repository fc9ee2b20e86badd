// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// shareInScaler shares equal values among cached scalers, or within one: a sixth of the memory. Cached objects
// are never modified, and a read returns a deep copy. Decoded slices have room for twice their items.
func shareInScaler(vs *v1beta1.VerticalScaler) {
	status := &vs.Status
	status.Conditions, status.History = slices.Clone(status.Conditions), slices.Clone(status.History)
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.Type, c.Reason, c.Message, c.Status = shared(c.Type), shared(c.Reason), shared(c.Message), shared(c.Status)
	}
	var amounts quantities
	if status.Recommendation != nil {
		status.Recommendation.ContainerRecommendations = slices.Clone(status.Recommendation.ContainerRecommendations)
		for i := range status.Recommendation.ContainerRecommendations {
			c := &status.Recommendation.ContainerRecommendations[i]
			c.ContainerName = shared(c.ContainerName)
			amounts.share(&c.Target, &c.LowerBound, &c.UpperBound, &c.UncappedTarget)
			c.Reasons = slices.Clone(c.Reasons)
			for j := range c.Reasons {
				r := &c.Reasons[j]
				r.Resource, r.Code, r.Margin = shared(r.Resource), shared(r.Code), shared(r.Margin)
			}
		}
	}
	if status.Decision != nil {
		status.Decision.Reason = shared(status.Decision.Reason)
		status.Decision.Containers = slices.Clone(status.Decision.Containers)
		for i := range status.Decision.Containers {
			c := &status.Decision.Containers[i]
			c.ContainerName = shared(c.ContainerName)
			amounts.share(&c.Requests)
		}
	}
}

// quantities are the quantities that were seen in one object.
type quantities []*resource.Quantity

// share replaces pointers to equal quantities by the same pointer.
func (q *quantities) share(amounts ...*v1beta1.Amounts) {
	for _, a := range amounts {
		q.shareOne(&a.CPU)
		q.shareOne(&a.Memory)
	}
}

func (q *quantities) shareOne(amount **resource.Quantity) {
	if *amount == nil {
		return
	}
	for _, known := range *q {
		if *known == **amount { // the same digits and format, not only the same value
			*amount = known
			return
		}
	}
	*q = append(*q, *amount)
}
