// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package predicates decides which updates trigger a reconcile.
package predicates

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Updates passes all creations and deletions, and the updates that matter.
func Updates[T client.Object](matters func(before, after T) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(T)
		after, ok2 := e.ObjectNew.(T)
		return ok && ok2 && matters(before, after)
	}}
}

// OfSpec passes changes of the spec of objects that have no generation.
func OfSpec[T client.Object](spec func(T) any) predicate.Predicate {
	return Updates(func(before, after T) bool { return !equality.Semantic.DeepEqual(spec(before), spec(after)) })
}

// HPASpec passes changes of the spec of an HPA. HPAs have no generation before Kubernetes 1.37.
var HPASpec = OfSpec(func(o *autoscalingv2.HorizontalPodAutoscaler) any { return o.Spec })
