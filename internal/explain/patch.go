// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// ErrNothingToPatch is the error for a scaler without a decision or a recommendation.
var ErrNothingToPatch = errors.New("there is no recommendation yet")

// Patch is a strategic merge patch of the Deployment: the decided requests in its pod template, or else the recommended ones. A
// limit follows only if it is below its request, or for Guaranteed pods.
func (x Explanation) Patch(isGuaranteed bool) (string, error) {
	lists := map[string][]any{}
	for _, c := range x.Containers {
		resources := c.patch(isGuaranteed)
		if len(resources) == 0 {
			continue
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

// ResourcesYAML is the resources block of a container in Patch; empty without a recommendation.
func (c Container) ResourcesYAML(isGuaranteed bool) (string, error) {
	resources := c.patch(isGuaranteed)
	if len(resources) == 0 {
		return "", nil
	}
	text, err := yaml.Marshal(map[string]any{"resources": resources})
	return string(text), err
}

// patch has the requests of a container, and its limits as far as they change; empty without a recommendation.
func (c Container) patch(isGuaranteed bool) map[string]map[string]string {
	out := map[string]map[string]string{}
	set := func(list, resource string, amount Amount) {
		if out[list] == nil {
			out[list] = map[string]string{}
		}
		out[list][resource] = amount.String()
	}
	for _, r := range c.Resources {
		amount := cmp.Or(r.Decided, r.Target)
		if amount == nil {
			continue
		}
		set("requests", r.Resource, *amount)
		isAboveLimit := r.Template != nil && r.Template.Limit != nil && amount.Value() > r.Template.Limit.Value()
		if isGuaranteed || isAboveLimit {
			set("limits", r.Resource, *amount)
		}
	}
	return out
}
