// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// This file converts between the status and the values that recommend and plan use. A
// function named after a value reads it from the status; API… writes it. Any client may have
// written the status: a value that cannot be read counts as absent.

// Amounts reads amounts.
func Amounts(a v1beta1.Amounts) (out quantity.Amounts) {
	if a.CPU != nil {
		out.CPUMillis, _ = quantity.CPUMillis(*a.CPU)
	}
	if a.Memory != nil {
		out.MemoryBytes, _ = quantity.MemoryBytes(*a.Memory)
	}
	return out
}

// APIAmounts leaves out amounts of 0.
func APIAmounts(a quantity.Amounts) (out v1beta1.Amounts) {
	if a.CPUMillis > 0 {
		out.CPU = ptr.To(quantity.CPU(a.CPUMillis))
	}
	if a.MemoryBytes > 0 {
		out.Memory = ptr.To(quantity.Memory(a.MemoryBytes))
	}
	return out
}

// APIRecommendation is nil without recommendations.
func APIRecommendation(recs []recommend.Container) *v1beta1.Recommendation {
	if len(recs) == 0 {
		return nil
	}
	out := &v1beta1.Recommendation{ContainerRecommendations: make([]v1beta1.ContainerRecommendation, 0, len(recs))}
	for _, rec := range recs {
		container := v1beta1.ContainerRecommendation{
			ContainerName:   rec.Name,
			Target:          APIAmounts(rec.Target),
			LowerBound:      APIAmounts(rec.LowerBound),
			UpperBound:      APIAmounts(rec.UpperBound),
			UncappedTarget:  APIAmounts(rec.Uncapped),
			ObservedSeconds: int64(rec.Observed / time.Second),
		}
		container.Reasons = slices.Grow(container.Reasons, len(rec.Reasons))
		for _, reason := range rec.Reasons {
			container.Reasons = append(container.Reasons, v1beta1.RecommendationReason{
				Resource: v1beta1.ControlledResource(reason.Resource),
				Code:     reason.Code,
				Value:    formatOf(reason.Resource)(reason.Value),
				Margin:   recommend.FormatMargin(reason.PerMille),
			})
		}
		out.ContainerRecommendations = append(out.ContainerRecommendations, container)
	}
	return out
}

// formatOf turns amounts of a resource into quantities.
func formatOf(of string) func(int64) resource.Quantity {
	if of == recommend.CPU {
		return quantity.CPU
	}
	return quantity.Memory
}

// PublishedRecommendation is the published recommendation for a container, or nil.
func PublishedRecommendation(published *v1beta1.Recommendation, container string) *recommend.Container {
	if published == nil {
		return nil
	}
	for _, c := range published.ContainerRecommendations {
		if c.ContainerName != container {
			continue
		}
		rec := &recommend.Container{
			Name:       c.ContainerName,
			Target:     Amounts(c.Target),
			LowerBound: Amounts(c.LowerBound),
			UpperBound: Amounts(c.UpperBound),
			Uncapped:   Amounts(c.UncappedTarget),
			Observed:   time.Duration(min(max(c.ObservedSeconds, 0), maxObservedSeconds)) * time.Second,
		}
		rec.Reasons = slices.Grow(rec.Reasons, len(c.Reasons))
		for _, reason := range c.Reasons {
			rec.Reasons = append(rec.Reasons, reasonOf(reason))
		}
		return rec
	}
	return nil
}

// maxObservedSeconds is ten years. No history is longer.
const maxObservedSeconds = 10 * 365 * 24 * 3600

// reasonOf reads one step of a recommendation.
func reasonOf(reason v1beta1.RecommendationReason) recommend.Reason {
	return recommend.Reason{
		Resource: string(reason.Resource), Code: reason.Code,
		PerMille: recommend.ParseMargin(reason.Margin), Value: amountOf(reason.Resource, reason.Value),
	}
}

// amountOf is an amount of a resource; 0 if it cannot be read.
func amountOf(of v1beta1.ControlledResource, q resource.Quantity) (v int64) {
	if of == v1beta1.ControlledCPU {
		v, _ = quantity.CPUMillis(q)
	} else {
		v, _ = quantity.MemoryBytes(q)
	}
	return v
}

// Decision reads a decision, or nil.
func Decision(d *v1beta1.Decision) *model.Decision {
	if d == nil || len(d.Containers) == 0 {
		return nil
	}
	out := &model.Decision{
		Time:              d.Time.Time,
		Reason:            d.Reason,
		AppliedToTemplate: d.AppliedToTemplate,
		Reverts:           int(d.Reverts),
		LastRevert:        timeOf(d.LastRevertTime),
		ContestedBy:       d.ContestedBy,
		Requests:          requests(d.Containers),
		Verification:      verification(d.Verification),
	}
	for _, c := range d.Containers {
		if c.MemoryRaiseTime != nil {
			if out.MemoryRaised == nil {
				out.MemoryRaised = map[string]time.Time{}
			}
			out.MemoryRaised[c.ContainerName] = c.MemoryRaiseTime.Time
		}
	}
	return out
}

func requests(list []v1beta1.ContainerDecision) map[string]quantity.Amounts {
	out := map[string]quantity.Amounts{}
	for _, c := range list {
		if a := Amounts(c.Requests); a != (quantity.Amounts{}) {
			out[c.ContainerName] = a
		}
	}
	return out
}

func apiRequests(requests map[string]quantity.Amounts) (out []v1beta1.ContainerDecision) {
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		out = append(out, v1beta1.ContainerDecision{ContainerName: name, Requests: APIAmounts(requests[name])})
	}
	return out
}

func verification(t *v1beta1.Verification) *model.Verification {
	if t == nil || len(t.LastGood) == 0 {
		return nil
	}
	return &model.Verification{
		Began: t.StartTime.Time, Good: requests(t.LastGood), UnhealthyPods: t.UnhealthyPods,
		ObservedSince: timeOf(t.ObservedSince), FirstPodsVerified: timeOf(t.FirstPodsVerifiedTime),
	}
}

func apiVerification(t *model.Verification) *v1beta1.Verification {
	if t == nil {
		return nil
	}
	return &v1beta1.Verification{
		StartTime: metav1.NewTime(t.Began.Truncate(time.Second)), LastGood: apiRequests(t.Good), UnhealthyPods: t.UnhealthyPods,
		ObservedSince: apiTime(t.ObservedSince), FirstPodsVerifiedTime: apiTime(t.FirstPodsVerified),
	}
}

// RevertedChanges reads the changes that were reverted, without unreadable ones.
func RevertedChanges(list []v1beta1.RevertedChange) (out []model.RevertedChange) {
	for _, f := range list {
		failed := model.RevertedChange{
			Container: f.ContainerName, Resource: string(f.Resource), Value: amountOf(f.Resource, f.Value), Good: amountOf(f.Resource, f.LastGood), At: f.Time.Time,
			Observed: time.Duration(min(max(f.ObservedSeconds, 0), maxObservedSeconds)) * time.Second, Evidence: f.Message,
		}
		if failed.Value > 0 && failed.Good > 0 {
			out = append(out, failed)
		}
	}
	return out
}

// APIRevertedChanges is nil without changes.
func APIRevertedChanges(list []model.RevertedChange) (out []v1beta1.RevertedChange) {
	for _, f := range list {
		format := formatOf(f.Resource)
		out = append(out, v1beta1.RevertedChange{
			ContainerName: f.Container, Resource: v1beta1.ControlledResource(f.Resource), Value: format(f.Value), LastGood: format(f.Good),
			Time: metav1.NewTime(f.At.Truncate(time.Second)), ObservedSeconds: int64(f.Observed / time.Second), Message: conditions.Truncated(f.Evidence),
		})
	}
	return out
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

func apiTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t.Truncate(time.Second)}
}

// APIDecision is nil without a decision.
func APIDecision(d *model.Decision) *v1beta1.Decision {
	if d == nil {
		return nil
	}
	out := &v1beta1.Decision{
		Time:              metav1.NewTime(d.Time.Truncate(time.Second)),
		Reason:            d.Reason,
		AppliedToTemplate: d.AppliedToTemplate,
		Reverts:           int32(d.Reverts),
		LastRevertTime:    apiTime(d.LastRevert),
		ContestedBy:       d.ContestedBy,
		Containers:        apiRequests(d.Requests),
		Verification:      apiVerification(d.Verification),
	}
	for i, c := range out.Containers {
		out.Containers[i].MemoryRaiseTime = apiTime(d.MemoryRaised[c.ContainerName])
	}
	return out
}

// NewPods reads the sizes that the API server gives new pods, and their known effect.
func NewPods(a *v1beta1.NewPods) (out model.NewPods) {
	if a == nil {
		return out
	}
	for _, c := range a.Containers {
		out.Sizes = append(out.Sizes, model.Size{
			Container: c.ContainerName, Resources: workload.Resources{Requests: Amounts(c.Requests), Limits: Amounts(c.Limits)},
		})
		if start := (workload.Resources{Requests: Amounts(c.StartupRequests), Limits: Amounts(c.StartupLimits)}); start != (workload.Resources{}) {
			out.Starts = append(out.Starts, model.Size{Container: c.ContainerName, Resources: start})
		}
	}
	out.IneffectiveOnPod, out.ReplicaSet, out.Failure = a.IneffectiveOnPod, a.ReplicaSetUID, a.FailureMessage
	out.FailedAt, out.EffectiveSince = timeOf(a.FailureTime), timeOf(a.EffectiveSince)
	return out
}

// APINewPods is nil without sizes.
func APINewPods(n model.NewPods) *v1beta1.NewPods {
	out := &v1beta1.NewPods{IneffectiveOnPod: n.IneffectiveOnPod, ReplicaSetUID: n.ReplicaSet, FailureTime: apiTime(n.FailedAt), FailureMessage: conditions.OneLine(n.Failure)}
	if !n.EffectiveSince.IsZero() {
		out.EffectiveSince = &metav1.Time{Time: n.EffectiveSince}
	}
	for _, size := range n.Sizes {
		c := v1beta1.NewPodContainer{ContainerName: size.Container, Requests: APIAmounts(size.Requests), Limits: APIAmounts(size.Limits)}
		for _, start := range n.Starts {
			if start.Container == size.Container {
				c.StartupRequests, c.StartupLimits = APIAmounts(start.Requests), APIAmounts(start.Limits)
			}
		}
		out.Containers = append(out.Containers, c)
	}
	if meansTheSame(out, &v1beta1.NewPods{}) {
		return nil
	}
	slices.SortFunc(out.Containers, func(a, b v1beta1.NewPodContainer) int { return cmp.Compare(a.ContainerName, b.ContainerName) })
	return out
}

// maxOriginals is the API's limit of containers in status.originalResources.
const maxOriginals = 64

// Originals are the values taken over from the Deployment with that UID.
func Originals(h *v1beta1.OriginalResources, uid types.UID) (out []model.Original) {
	if h == nil || h.UID != uid {
		return nil
	}
	for _, c := range h.Containers {
		out = append(out, model.Original{
			Container: c.ContainerName,
			CPU:       c.Requests.CPU != nil,
			Memory:    c.Requests.Memory != nil,
			Resources: workload.Resources{Requests: Amounts(c.Requests), Limits: Amounts(c.Limits)},
		})
	}
	return out
}

// Original are the resources of a container of the pod template before any of them were taken over.
func Original(c workload.Container, originals []model.Original) workload.Resources {
	out := c.Resources
	for _, o := range originals {
		for _, r := range model.Resources {
			if o.Container == c.Name && o.Has(r) {
				r.Copy(&out, o.Resources)
			}
		}
	}
	return out
}

// APIOriginals merges original values with those that were recorded before. Containers that are not
// in the template any more may return with our values in them. They are dropped only without room.
func APIOriginals(before []model.Original, added []model.Original, deployment workload.Deployment) *v1beta1.OriginalResources {
	merged := map[string]model.Original{}
	for _, list := range [][]model.Original{before, added} {
		for _, h := range list {
			merged[h.Container] = h
		}
	}
	if len(merged) > maxOriginals {
		maps.DeleteFunc(merged, func(name string, _ model.Original) bool {
			_, ok := deployment.Container(name)
			return !ok
		})
	}
	out := &v1beta1.OriginalResources{DeploymentName: deployment.Name, UID: deployment.UID}
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		h := merged[name]
		out.Containers = append(out.Containers, v1beta1.OriginalContainerResources{
			ContainerName: name,
			Requests:      originalAmounts(h, h.Requests),
			Limits:        originalAmounts(h, h.Limits),
		})
	}
	return out
}

// originalAmounts has a value for each resource taken over, 0 for one that was not set.
func originalAmounts(h model.Original, a quantity.Amounts) (out v1beta1.Amounts) {
	if h.CPU {
		out.CPU = ptr.To(quantity.CPU(a.CPUMillis))
	}
	if h.Memory {
		out.Memory = ptr.To(quantity.Memory(a.MemoryBytes))
	}
	return out
}
