// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"cmp"
	"hash/fnv"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Recommendations are the recommendations for the containers of a Deployment, in its order. published is the
// previous recommendation, in the scaler's status or in the one to write.
func Recommendations(
	s *v1beta1.VerticalScaler, deployment workload.Deployment, pods []workload.Pod, histories history.Histories, published *v1beta1.Recommendation, params recommend.Params,
) (recs []recommend.Container) {
	for _, container := range deployment.Containers {
		name := container.Name
		policy := RecommendPolicy(&s.Spec, name)
		policy.Phase, policy.Requests = Share(s.UID), requestsOf(container, pods, s.Status.Decision)
		limit := container.Resources.Limits.CPUMillis
		policy.LimitsCPU = limit > 0 && limit <= cmp.Or(container.Resources.Requests.CPUMillis, limit)
		learned := histories.Container(name)
		if learned == nil || (!policy.CPU && !policy.Memory) {
			continue
		}
		if rec, ok := recommend.For(name, learned, policy, PublishedRecommendation(published, name), params); ok {
			recs = append(recs, rec)
		}
	}
	return recs
}

// IsRecommendationOutdated reports whether the history leads to another recommendation than
// the one in the scaler's status.
func IsRecommendationOutdated(s *v1beta1.VerticalScaler, deployment workload.Deployment, pods []workload.Pod, histories history.Histories, params recommend.Params) bool {
	recs := Recommendations(s, deployment, pods, histories, s.Status.Recommendation, params)
	now := APIRecommendation(recs)
	return !meansTheSame(&now, &s.Status.Recommendation)
}

// requestsOf are the requests of a container that the plan compares with its recommendation: the decided
// ones, or else the pods', or else the template's.
func requestsOf(container workload.Container, pods []workload.Pod, decision *v1beta1.Decision) (out []quantity.Amounts) {
	add := func(amounts quantity.Amounts) {
		if amounts != (quantity.Amounts{}) && !slices.Contains(out, amounts) {
			out = append(out, amounts)
		}
	}
	decided := decidedRequests(decision, container.Name)
	add(decided)
	for _, pod := range pods {
		c, _ := pod.Container(container.Name)
		undecided := c.Requests
		if decided.CPUMillis > 0 {
			undecided.CPUMillis = 0
		}
		if decided.MemoryBytes > 0 {
			undecided.MemoryBytes = 0
		}
		add(undecided)
	}
	if len(out) == 0 {
		add(container.Requests)
	}
	return out
}

// decidedRequests are the decided requests of a container.
func decidedRequests(decision *v1beta1.Decision, container string) quantity.Amounts {
	if decision != nil {
		for _, c := range decision.Containers {
			if c.ContainerName == container {
				return Amounts(c.Requests)
			}
		}
	}
	return quantity.Amounts{}
}

// Share is the place of an object among all: a number from 0 to less than 1, by its UID. It spreads periodic work
// over time. It is 0 without a UID.
func Share(uid types.UID) float64 {
	if uid == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	return float64(h.Sum32()) / (1 << 32)
}
