// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rollback says how a spec changes so that the operator returns requests to earlier values,
// and does not make the same change again.
//
// A request that was lowered gets a minAllowed, and one that was raised gets a maxAllowed. All else
// goes on: after a rollback of lower requests, usage and OOM kills still raise them. If the operator
// has taken over values of the pod template, the original ones return with updateMode Recommend.
//
// The package is pure: values in, values out.
package rollback

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// To is the state to return to.
type To string

const (
	// Previous are the requests before the last decision.
	Previous To = "previous"
	// Original are the requests of the pod template, or those that it had before the operator took
	// them over.
	Original To = "original"
)

// Annotation is on an object whose spec a rollback has changed. Its value tells how to undo that.
const Annotation = "autoscaling.verticalscaler.io/rolled-back"

// Change is a request that returns to an earlier value.
type Change struct {
	Container string
	Resource  v1beta1.ControlledResource
	// From and To are amounts: millicores or bytes. Both are above 0.
	From, To int64
}

// String is such as "app cpu 121m->500m (minAllowed)".
func (c Change) String() string {
	format, bound := quantity.FormatCPU, "minAllowed"
	if c.Resource == v1beta1.ControlledMemory {
		format = quantity.FormatMemory
	}
	if c.To < c.From {
		bound = "maxAllowed"
	}
	return fmt.Sprintf("%s %s %s->%s (%s)", c.Container, c.Resource, format(c.From), format(c.To), bound)
}

// Plan is a rollback.
type Plan struct {
	// Changes are the requests that return to earlier values; none if RestoresTemplate.
	Changes []Change
	// RestoresTemplate is true if the operator restores the original values of the pod template.
	RestoresTemplate bool
	// Kept are the requests that stay as they are, and why.
	Kept []string
	// Spec is the part of the spec that a rollback sets.
	Spec Spec
}

// Spec is the part of a spec that a rollback changes.
type Spec struct {
	UpdateMode     v1beta1.UpdateMode      `json:"updateMode,omitempty"`
	ResourcePolicy *v1beta1.ResourcePolicy `json:"resourcePolicy,omitempty"`
}

// SpecOf is that part of a spec.
func SpecOf(s v1beta1.Scaling) Spec { return Spec{s.UpdatePolicy.UpdateMode, s.ResourcePolicy} }

// IsEqual reports whether two specs mean the same. The API server sets defaults, which count as not set.
func (s Spec) IsEqual(other Spec) bool {
	return equality.Semantic.DeepEqual(s.defaulted(), other.defaulted())
}

func (s Spec) defaulted() Spec {
	s.UpdateMode = cmp.Or(s.UpdateMode, v1beta1.UpdateModeInPlace)
	s.ResourcePolicy = s.ResourcePolicy.DeepCopy()
	if s.ResourcePolicy == nil {
		return s
	}
	for i := range s.ResourcePolicy.ContainerPolicies {
		p := &s.ResourcePolicy.ContainerPolicies[i]
		p.Mode = cmp.Or(p.Mode, v1beta1.ContainerModeAuto)
		p.ControlledValues = cmp.Or(p.ControlledValues, v1beta1.RequestsAndLimitRaises)
	}
	return s
}

// Of plans a rollback of a scaler. deployment is nil if it does not exist or cannot be read, and
// needed only for the original requests. An error says why there is nothing to roll back.
func Of(s *v1beta1.VerticalScaler, deployment *workload.Deployment, to To) (Plan, error) {
	plan := Plan{Spec: SpecOf(s.Spec.Scaling)}
	switch {
	case s.Status.Decision == nil:
		return plan, errors.New("the operator has decided nothing for it")
	case to == Original && s.Status.OriginalResources != nil:
		plan.RestoresTemplate = true
		plan.Spec.UpdateMode = v1beta1.UpdateModeRecommend
		return plan, nil
	case to == Original && deployment == nil:
		return plan, errors.New("its Deployment, which has the original requests, is not known")
	}
	var err error
	if to == Original {
		plan.Changes, plan.Kept = toOriginal(s, *deployment)
	} else {
		plan.Changes, plan.Kept, err = toPrevious(s)
	}
	if err != nil {
		return plan, err
	}
	plan.Changes = slices.DeleteFunc(plan.Changes, func(c Change) bool {
		isManaged := scaler.Controls(s.Spec.ResourcePolicy.For(c.Container), c.Resource)
		if !isManaged {
			plan.Kept = append(plan.Kept, fmt.Sprintf("%s %s: it is not managed any more", c.Container, c.Resource))
		}
		return !isManaged
	})
	for _, c := range plan.Changes {
		plan.Spec.ResourcePolicy = bounded(plan.Spec.ResourcePolicy, c)
	}
	if len(plan.Changes) == 0 && len(plan.Kept) == 0 {
		return plan, fmt.Errorf("it has the %s requests", to)
	}
	return plan, nil
}

// toOriginal are the decided requests that differ from those of the pod template.
func toOriginal(s *v1beta1.VerticalScaler, deployment workload.Deployment) (changes []Change, kept []string) {
	for _, decided := range s.Status.Decision.Containers {
		i := slices.IndexFunc(deployment.Containers, func(c workload.Container) bool { return c.Name == decided.ContainerName })
		if i < 0 {
			continue
		}
		template, requests := deployment.Containers[i], scaler.Amounts(decided.Requests)
		for _, r := range model.Resources {
			now, original := r.Of(requests), r.Of(template.Requests.Or(template.Limits)) // as the API server does for pods
			switch {
			case now == 0 || now == original:
			case original == 0:
				kept = append(kept, fmt.Sprintf("%s %s: the pod template has no request, and a running pod cannot lose one", template.Name, r))
			default:
				changes = append(changes, Change{template.Name, v1beta1.ControlledResource(r.String()), now, original})
			}
		}
	}
	return changes, kept
}

// decisionReverted is the reason of a decision that the operator has reverted itself.
const decisionReverted = "Reverted"

// toPrevious are the requests that the last decision has changed.
func toPrevious(s *v1beta1.VerticalScaler) (changes []Change, kept []string, err error) {
	if len(s.Status.History) == 0 {
		return nil, nil, errors.New("its history is empty")
	}
	message := s.Status.History[0].Message
	reason, text, _ := strings.Cut(message, ": ")
	if reason == decisionReverted {
		return nil, nil, errors.New("the operator has reverted the last change itself: " + message)
	}
	for _, m := range parsed(text) {
		if m.From == 0 {
			kept = append(kept, fmt.Sprintf("%s %s: there was no request before, and a running pod cannot lose one", m.Container, m.Resource))
			continue
		}
		m.From, m.To = m.To, m.From
		changes = append(changes, m)
	}
	if len(changes) == 0 && len(kept) == 0 {
		return nil, nil, fmt.Errorf("the last change cannot be read: %q", message)
	}
	return changes, kept, nil
}

// none is the word of the history for a request that was not set.
const none = "none"

// The history has "app cpu 500m->310m, memory 512Mi->640Mi; log memory none->80Mi", with remarks in
// parentheses.
var (
	ofContainer = regexp.MustCompile(`^([a-z0-9-]+) ((?:cpu|memory) .*)$`)
	ofResource  = regexp.MustCompile(`^(cpu|memory) (none|[0-9.]+[a-zA-Z]*)->([0-9.]+[a-zA-Z]*)(?: \(.*)?$`)
)

// parsed reads the changes of one decision. It leaves out what cannot be read.
func parsed(text string) (changes []Change) {
	for part := range strings.SplitSeq(text, "; ") {
		m := ofContainer.FindStringSubmatch(part)
		if m == nil {
			return changes // such as the evidence at the end
		}
		for word := range strings.SplitSeq(m[2], ", ") {
			amounts := ofResource.FindStringSubmatch(word)
			if amounts == nil {
				continue
			}
			c := Change{Container: m[1], Resource: v1beta1.ControlledResource(amounts[1])}
			c.From, c.To = amountOf(c.Resource, amounts[2]), amountOf(c.Resource, amounts[3])
			isRead := c.To > 0 && (c.From > 0 || amounts[2] == none)
			if isRead && c.From != c.To {
				changes = append(changes, c)
			}
		}
	}
	return changes
}

// amountOf reads an amount; 0 for none, or one that cannot be read.
func amountOf(r v1beta1.ControlledResource, text string) int64 {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0
	}
	read := quantity.CPUMillis
	if r == v1beta1.ControlledMemory {
		read = quantity.MemoryBytes
	}
	amount, err := read(q)
	if err != nil {
		return 0
	}
	return amount
}

// bounded is the policy with a bound that demands the change. The other bound moves only if it
// excludes it.
func bounded(policy *v1beta1.ResourcePolicy, c Change) *v1beta1.ResourcePolicy {
	one := policy.For(c.Container)
	one = *one.DeepCopy()
	one.ContainerName = c.Container
	least, most := scaler.Bounds(one.MinAllowed), scaler.Bounds(one.MaxAllowed)
	lower, upper := &least.CPUMillis, &most.CPUMillis
	if c.Resource == v1beta1.ControlledMemory {
		lower, upper = &least.MemoryBytes, &most.MemoryBytes
	}
	if c.To > c.From {
		*lower = c.To
		if *upper > 0 {
			*upper = max(*upper, c.To)
		}
	} else {
		*upper = c.To
		*lower = min(*lower, c.To)
	}
	one.MinAllowed, one.MaxAllowed = scaler.BoundsOf(least), scaler.BoundsOf(most)
	if policy == nil {
		policy = &v1beta1.ResourcePolicy{}
	}
	out := policy.DeepCopy()
	if i := slices.IndexFunc(out.ContainerPolicies, func(p v1beta1.ContainerPolicy) bool { return p.ContainerName == c.Container }); i >= 0 {
		out.ContainerPolicies[i] = one
	} else {
		out.ContainerPolicies = append(out.ContainerPolicies, one)
	}
	return out
}

// Record is the value of the annotation.
type Record struct {
	To     To   `json:"to"`
	Before Spec `json:"before"`
	After  Spec `json:"after"`
}

// RecordOf reads the annotation. ok is false if there is none, if it cannot be read, or if the spec
// is no longer what the rollback has made of it.
func RecordOf(annotations map[string]string, now v1beta1.Scaling) (record Record, ok bool) {
	if err := json.Unmarshal([]byte(annotations[Annotation]), &record); err != nil {
		return Record{}, false
	}
	return record, record.After.IsEqual(SpecOf(now))
}

// Patch is a JSON merge patch that sets the spec of an object, and the annotation; nil removes it. The
// API server refuses it if the object has changed. isOwner says that the object is a ScaledDeployment.
func Patch(resourceVersion string, isOwner bool, spec Spec, record *Record) ([]byte, error) {
	var value any
	if record != nil {
		text, err := json.Marshal(record)
		if err != nil {
			return nil, fmt.Errorf("encoding the annotation: %w", err)
		}
		value = string(text)
	}
	var scaling any = map[string]any{
		"resourcePolicy": spec.ResourcePolicy, // null if there is none
		"updatePolicy":   map[string]any{"updateMode": cmp.Or(spec.UpdateMode, v1beta1.UpdateModeInPlace)},
	}
	if isOwner {
		scaling = map[string]any{"scaling": scaling}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": resourceVersion, "annotations": map[string]any{Annotation: value}},
		"spec":     scaling,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the patch: %w", err)
	}
	return patch, nil
}
