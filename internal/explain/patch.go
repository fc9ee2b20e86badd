// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ErrNothingToPatch is the error for a scaler without a decision or a recommendation.
var ErrNothingToPatch = errors.New("there is no recommendation yet")

// Patch is a strategic merge patch of the Deployment: the decided requests in its pod template, or else the recommended ones. A
// limit follows only if it is below its request, or if the pods shall be Guaranteed.
func (x Explanation) Patch(isGuaranteed bool) (string, error) {
	lists := map[string][]any{}
	for _, c := range x.Containers {
		requests, limits := map[string]string{}, map[string]string{}
		for _, r := range c.Resources {
			amount := r.Target
			if r.Decided != nil {
				amount = r.Decided
			}
			if amount == nil {
				continue
			}
			requests[r.Resource] = amount.String()
			isAboveLimit := r.Template != nil && r.Template.Limit != nil && amount.Value() > r.Template.Limit.Value()
			if isGuaranteed || isAboveLimit {
				limits[r.Resource] = amount.String()
			}
		}
		if len(requests) == 0 {
			continue
		}
		resources := map[string]any{"requests": requests}
		if len(limits) > 0 {
			resources["limits"] = limits
		}
		list := "containers"
		if slices.ContainsFunc(x.sidecars, func(s corev1.Container) bool { return s.Name == c.Name }) {
			list = "initContainers"
		}
		lists[list] = append(lists[list], map[string]any{"name": c.Name, "resources": resources})
	}
	if len(lists) == 0 {
		return "", ErrNothingToPatch
	}
	text, err := yaml.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": lists}}})
	return fmt.Sprintf("# kubectl patch deployment %s -n %s --patch-file FILE\n%s", x.Deployment, x.Namespace, text), err
}
