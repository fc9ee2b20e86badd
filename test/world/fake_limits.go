// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"
)

// The API server's defaulting of pods and its plugin LimitRanger, for cpu and memory, as in Kubernetes 1.37.1.

var sizedResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}

// setMissing copies the amounts that a list does not have.
func setMissing(list *corev1.ResourceList, from corev1.ResourceList) {
	for _, name := range sizedResources {
		amount, ok := from[name]
		if _, has := (*list)[name]; !ok || has {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = amount.DeepCopy()
	}
}

// completeLimitRange sets defaults that follow from others (SetDefaults_LimitRangeItem).
func completeLimitRange(ranges *corev1.LimitRange) {
	for i := range ranges.Spec.Limits {
		if item := &ranges.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
			setMissing(&item.Default, item.Max)
			setMissing(&item.DefaultRequest, item.Default)
			setMissing(&item.DefaultRequest, item.Min)
		}
	}
}

// allContainers are the containers and init containers of a pod.
func allContainers(pod *corev1.Pod) (out []*corev1.Container) {
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.InitContainers {
		out = append(out, &pod.Spec.InitContainers[i])
	}
	return out
}

// complete sets requests and limits that the containers of a pod do not declare, when it is created and when it is resized.
func (a *API) complete(pod *corev1.Pod) {
	containers := allContainers(pod)
	for _, c := range containers {
		setMissing(&c.Resources.Requests, c.Resources.Limits)
	}
	for item := range a.limitsOf(pod.Namespace) {
		for _, c := range containers {
			if item.Type == corev1.LimitTypeContainer {
				setMissing(&c.Resources.Limits, item.Default)
				setMissing(&c.Resources.Requests, item.DefaultRequest)
			}
		}
	}
}

// limitsOf are the items of the LimitRanges of a namespace.
func (a *API) limitsOf(namespace string) func(yield func(corev1.LimitRangeItem) bool) {
	return func(yield func(corev1.LimitRangeItem) bool) {
		for _, o := range a.objects[corev1.SchemeGroupVersion.WithKind("LimitRange").GroupKind()] {
			ranges, ok := o.(*corev1.LimitRange)
			if !ok || ranges.Namespace != namespace {
				continue
			}
			for _, item := range ranges.Spec.Limits {
				if !yield(item) {
					return
				}
			}
		}
	}
}

// checkLimitRanges checks that a pod keeps to the LimitRanges of its namespace.
func (a *API) checkLimitRanges(pod *corev1.Pod) error {
	var wrong []error
	for item := range a.limitsOf(pod.Namespace) {
		switch item.Type {
		case corev1.LimitTypeContainer:
			for _, c := range allContainers(pod) {
				wrong = append(wrong, brokenLimits(item, c.Resources.Requests, c.Resources.Limits)...)
			}
		case corev1.LimitTypePod:
			options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
			wrong = append(wrong, brokenLimits(item, resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options))...)
		}
	}
	if err := utilerrors.NewAggregate(wrong); err != nil {
		return apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, err)
	}
	return nil
}

// brokenLimits are the rules of an item that requests and limits break, in the words of the API server.
func brokenLimits(item corev1.LimitRangeItem, requests, limits corev1.ResourceList) (wrong []error) {
	for _, name := range sizedResources {
		request, hasRequest := requests[name]
		limit, hasLimit := limits[name]
		fail := func(rule string, bound resource.Quantity, why string) {
			wrong = append(wrong, fmt.Errorf("%s per %s is %s%s", fmt.Sprintf(rule, name), item.Type, bound.String(), why))
		}
		if least, ok := item.Min[name]; ok {
			switch {
			case !hasRequest:
				fail("minimum %s usage", least, ".  No request is specified")
			case request.Cmp(least) < 0:
				fail("minimum %s usage", least, ", but request is "+request.String())
			case hasLimit && limit.Cmp(least) < 0:
				fail("minimum %s usage", least, ", but limit is "+limit.String())
			}
		}
		if most, ok := item.Max[name]; ok {
			switch {
			case !hasLimit:
				fail("maximum %s usage", most, ".  No limit is specified")
			case limit.Cmp(most) > 0:
				fail("maximum %s usage", most, ", but limit is "+limit.String())
			case hasRequest && request.Cmp(most) > 0:
				fail("maximum %s usage", most, ", but request is "+request.String())
			}
		}
		if ratio, ok := item.MaxLimitRequestRatio[name]; ok {
			switch has := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); {
			case request.IsZero():
				fail("%s max limit to request ratio", ratio, ", but no request is specified or request is 0")
			case limit.IsZero():
				fail("%s max limit to request ratio", ratio, ", but no limit is specified or limit is 0")
			case has*1000 > float64(ratio.MilliValue()):
				fail("%s max limit to request ratio", ratio, fmt.Sprintf(", but provided ratio is %f", has))
			}
		}
	}
	return wrong
}
