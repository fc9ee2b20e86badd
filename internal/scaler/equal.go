// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaler

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// EqualStatus reports whether two statuses mean the same. An empty list is the same as none.
//
// Each reconcile compares, so it is written out: reflection takes twenty times as long. Any client may
// have written one of the two, so quantities are compared without converting them: a forged exponent
// costs no time.
func EqualStatus(a, b v1beta1.VerticalScalerStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration &&
		maps.Equal(a.Annotations, b.Annotations) &&
		equalIfSet(a.Target, b.Target, equal) &&
		equalIfSet(a.Summary, b.Summary, equalSummary) &&
		equalIfSet(a.Recommendation, b.Recommendation, equalRecommendation) &&
		equalIfSet(a.Decision, b.Decision, equalDecision) &&
		slices.EqualFunc(a.RevertedChanges, b.RevertedChanges, equalRevertedChange) &&
		equalIfSet(a.OriginalResources, b.OriginalResources, equalOriginals) &&
		equalIfSet(a.NewPods, b.NewPods, equalNewPods) &&
		slices.EqualFunc(a.Conditions, b.Conditions, equalCondition) &&
		slices.EqualFunc(a.History, b.History, func(a, b v1beta1.HistoryEntry) bool {
			return equalTime(a.Time, b.Time) && a.Message == b.Message
		})
}

func equal[T comparable](a, b T) bool { return a == b }

// equalIfSet compares what two pointers point to.
func equalIfSet[T any](a, b *T, equal func(a, b T) bool) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a == b || equal(*a, *b)
}

func equalTime(a, b metav1.Time) bool { return a.Time.Equal(b.Time) }

func equalSummary(a, b v1beta1.Summary) bool {
	return a.CPU == b.CPU && a.Memory == b.Memory && a.Pods == b.Pods && a.Reason == b.Reason && equalIfSet(a.ReasonTime, b.ReasonTime, equalTime)
}

func equalAmounts(a, b v1beta1.Amounts) bool {
	return equalQuantity(a.CPU, b.CPU) && equalQuantity(a.Memory, b.Memory)
}

func equalQuantity(a, b *resource.Quantity) bool { return equalIfSet(a, b, quantity.Equal) }

func equalCondition(a, b metav1.Condition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.ObservedGeneration == b.ObservedGeneration &&
		equalTime(a.LastTransitionTime, b.LastTransitionTime) && a.Reason == b.Reason && a.Message == b.Message
}

func equalRecommendation(a, b v1beta1.Recommendation) bool {
	return slices.EqualFunc(a.ContainerRecommendations, b.ContainerRecommendations, func(a, b v1beta1.ContainerRecommendation) bool {
		return a.ContainerName == b.ContainerName && a.ObservedSeconds == b.ObservedSeconds &&
			equalAmounts(a.Target, b.Target) && equalAmounts(a.LowerBound, b.LowerBound) &&
			equalAmounts(a.UpperBound, b.UpperBound) && equalAmounts(a.UncappedTarget, b.UncappedTarget) &&
			slices.EqualFunc(a.Reasons, b.Reasons, func(a, b v1beta1.RecommendationReason) bool {
				return a.Resource == b.Resource && a.Code == b.Code && a.Margin == b.Margin && quantity.Equal(a.Value, b.Value)
			})
	})
}

func equalDecision(a, b v1beta1.Decision) bool {
	return equalTime(a.Time, b.Time) && a.Reason == b.Reason &&
		slices.EqualFunc(a.Containers, b.Containers, equalContainerDecision) &&
		a.AppliedToTemplate == b.AppliedToTemplate && a.Reverts == b.Reverts &&
		equalIfSet(a.LastRevertTime, b.LastRevertTime, equalTime) &&
		slices.Equal(a.ContestedBy, b.ContestedBy) &&
		equalIfSet(a.Verification, b.Verification, equalVerification)
}

func equalContainerDecision(a, b v1beta1.ContainerDecision) bool {
	return a.ContainerName == b.ContainerName && equalAmounts(a.Requests, b.Requests) &&
		equalQuantity(a.RetainedMemoryLimit, b.RetainedMemoryLimit)
}

func equalVerification(a, b v1beta1.Verification) bool {
	return equalTime(a.StartTime, b.StartTime) &&
		slices.EqualFunc(a.LastGood, b.LastGood, equalContainerDecision) &&
		slices.Equal(a.UnhealthyPods, b.UnhealthyPods) &&
		equalIfSet(a.ObservedSince, b.ObservedSince, equalTime) &&
		equalIfSet(a.FirstPodsVerifiedTime, b.FirstPodsVerifiedTime, equalTime)
}

func equalRevertedChange(a, b v1beta1.RevertedChange) bool {
	return a.ContainerName == b.ContainerName && a.Resource == b.Resource &&
		quantity.Equal(a.Value, b.Value) && quantity.Equal(a.LastGood, b.LastGood) &&
		equalTime(a.Time, b.Time) && a.ObservedSeconds == b.ObservedSeconds && a.Message == b.Message
}

func equalOriginals(a, b v1beta1.OriginalResources) bool {
	return a.DeploymentName == b.DeploymentName && a.UID == b.UID &&
		slices.EqualFunc(a.Containers, b.Containers, func(a, b v1beta1.OriginalContainerResources) bool {
			return a.ContainerName == b.ContainerName && equalAmounts(a.Requests, b.Requests) && equalAmounts(a.Limits, b.Limits)
		})
}

func equalNewPods(a, b v1beta1.NewPods) bool {
	return equalIfSet(a.EffectiveSince, b.EffectiveSince, equalTime) && a.IneffectiveOnPod == b.IneffectiveOnPod &&
		a.ReplicaSetUID == b.ReplicaSetUID && equalIfSet(a.FailureTime, b.FailureTime, equalTime) && a.FailureMessage == b.FailureMessage &&
		slices.EqualFunc(a.Containers, b.Containers, func(a, b v1beta1.NewPodContainer) bool {
			return a.ContainerName == b.ContainerName && equalAmounts(a.Requests, b.Requests) && equalAmounts(a.Limits, b.Limits)
		})
}
