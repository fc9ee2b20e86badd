// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
)

// QoSOf is the quality of service class that Kubernetes gives to a pod with these containers. It
// is Guaranteed if every container has CPU and memory limits and equal requests, BestEffort if
// none has any, and Burstable otherwise.
func QoSOf(containers ...[]Container) corev1.PodQOSClass {
	guaranteed, bestEffort := true, true
	for _, list := range containers {
		for _, c := range list {
			if c.Resources != (Resources{}) {
				bestEffort = false
			}
			if c.Limits.CPUMillis == 0 || c.Limits.MemoryBytes == 0 || c.Requests.Or(c.Limits) != c.Limits {
				guaranteed = false
			}
		}
	}
	switch {
	case bestEffort:
		return corev1.PodQOSBestEffort
	case guaranteed:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}

// AreGuaranteed reports whether the pods of a template are Guaranteed. Init containers and injected containers only show in the
// pods.
func AreGuaranteed(template []Container, pods []Pod) bool {
	for _, pod := range pods {
		if pod.Current && cmp.Or(pod.QoS, corev1.PodQOSGuaranteed) != corev1.PodQOSGuaranteed {
			return false
		}
	}
	return QoSOf(template) == corev1.PodQOSGuaranteed
}
