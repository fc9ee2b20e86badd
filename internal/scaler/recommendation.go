// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
)

// Recommendations are those for the named containers, in that order. published is the
// recommendation in the status, which they follow on.
func Recommendations(
	spec *v1beta1.VerticalScalerSpec, containers []string, histories history.Histories, published *v1beta1.Recommendation, params recommend.Params,
) (recs []recommend.Container) {
	for _, name := range containers {
		policy := RecommendPolicy(spec, name)
		container := histories.Container(name)
		if container == nil || (!policy.CPU && !policy.Memory) {
			continue
		}
		if rec, ok := recommend.For(name, container, policy, PublishedRecommendation(published, name), params); ok {
			recs = append(recs, rec)
		}
	}
	return recs
}

// IsRecommendationOutdated reports whether the history leads to another recommendation than
// the one in the scaler's status.
func IsRecommendationOutdated(s *v1beta1.VerticalScaler, containers []string, histories history.Histories, params recommend.Params) bool {
	recs := Recommendations(&s.Spec, containers, histories, s.Status.Recommendation, params)
	return !equalIfSet(APIRecommendation(recs), s.Status.Recommendation, equalRecommendation)
}
