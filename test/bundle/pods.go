// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// Requirements on the operator's own pods.
var podRules = []Rule{
	{"images", images},
	{"platforms", platforms},
	{"watched namespaces", watchedNamespaces},
	{"requests, limits and probes", requestsLimitsProbes},
	{"pod security", restricted},
}

func containersOf(spec corev1.PodSpec) []corev1.Container {
	return append(slices.Clone(spec.InitContainers), spec.Containers...)
}

// images requires that the related images, which a mirror copies, are exactly the images
// that are run or named.
func images(b *Bundle) (out []string) {
	related := map[string]bool{}
	for _, image := range b.CSV.Spec.RelatedImages {
		related[image.Image] = false
	}
	use := func(image, where string) {
		if _, ok := related[image]; !ok {
			out = append(out, fmt.Sprintf("%s is %s, which is not among the relatedImages", where, image))
			return
		}
		related[image] = true
	}
	use(b.CSV.Annotations["containerImage"], "annotation containerImage")
	for _, d := range b.deployments() {
		for _, c := range containersOf(d.Spec.Template.Spec) {
			use(c.Image, "the image of container "+c.Name)
			for _, e := range c.Env {
				if strings.HasPrefix(e.Name, "RELATED_IMAGE_") {
					use(e.Value, e.Name)
				}
			}
			if c.Image != b.CSV.Annotations["containerImage"] {
				out = append(out, fmt.Sprintf("container %s runs %s, containerImage is %s", c.Name, c.Image, b.CSV.Annotations["containerImage"]))
			}
		}
	}
	for _, image := range slices.Sorted(maps.Keys(related)) {
		if !related[image] {
			out = append(out, fmt.Sprintf("related image %s is not used", image))
		}
	}
	return out
}

// platforms requires the labels that catalogs filter by to match the platforms that the pods
// are scheduled on.
func platforms(b *Bundle) (out []string) {
	labelled := map[string][]string{}
	for key, value := range b.CSV.Labels {
		for _, kind := range []string{"arch", "os"} {
			if name, ok := strings.CutPrefix(key, "operatorframework.io/"+kind+"."); ok && value == "supported" {
				labelled["kubernetes.io/"+kind] = append(labelled["kubernetes.io/"+kind], name)
			}
		}
	}
	for _, d := range b.deployments() {
		required := requiredNodeLabels(d.Spec.Template.Spec)
		for _, key := range []string{"kubernetes.io/arch", "kubernetes.io/os"} {
			slices.Sort(labelled[key])
			slices.Sort(required[key])
			if len(labelled[key]) == 0 || !slices.Equal(labelled[key], required[key]) {
				out = append(out, fmt.Sprintf("the labels say %s %v, the pods are scheduled by %v", key, labelled[key], required[key]))
			}
		}
	}
	return out
}

// requiredNodeLabels are the values that the pod's node affinity requires, by label.
func requiredNodeLabels(spec corev1.PodSpec) map[string][]string {
	required := map[string][]string{}
	affinity := ptr.Deref(ptr.Deref(spec.Affinity, corev1.Affinity{}).NodeAffinity, corev1.NodeAffinity{})
	for _, term := range ptr.Deref(affinity.RequiredDuringSchedulingIgnoredDuringExecution, corev1.NodeSelector{}).NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Operator == corev1.NodeSelectorOpIn {
				required[e.Key] = append(required[e.Key], e.Values...)
			}
		}
	}
	return required
}

// watchedNamespaces requires that OLM sets the watched namespaces.
func watchedNamespaces(b *Bundle) (out []string) {
	for _, d := range b.deployments() {
		for _, c := range d.Spec.Template.Spec.Containers {
			i := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "WATCH_NAMESPACE" })
			if i < 0 || c.Env[i].Value != "" || c.Env[i].ValueFrom == nil || c.Env[i].ValueFrom.FieldRef == nil ||
				c.Env[i].ValueFrom.FieldRef.FieldPath != "metadata.annotations['olm.targetNamespaces']" {
				out = append(out, fmt.Sprintf("container %s does not get WATCH_NAMESPACE from OLM", c.Name))
			}
		}
	}
	return out
}

func requestsLimitsProbes(b *Bundle) (out []string) {
	for _, d := range b.deployments() {
		for _, c := range d.Spec.Template.Spec.Containers {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if _, ok := c.Resources.Requests[name]; !ok {
					out = append(out, fmt.Sprintf("container %s requests no %s", c.Name, name))
				}
				if _, ok := c.Resources.Limits[name]; !ok {
					out = append(out, fmt.Sprintf("container %s has no limit of %s", c.Name, name))
				}
			}
			if c.LivenessProbe == nil || c.ReadinessProbe == nil {
				out = append(out, fmt.Sprintf("container %s has not both a liveness and a readiness probe", c.Name))
			}
		}
	}
	return out
}

// restricted requires the restricted pod security standard, and a read-only file system.
func restricted(b *Bundle) (out []string) {
	for _, d := range b.deployments() {
		out = append(out, unrestrictedPod(d.Spec.Template.Spec)...)
		for _, c := range containersOf(d.Spec.Template.Spec) {
			out = append(out, unrestrictedContainer(c)...)
		}
	}
	return out
}

func unrestrictedPod(spec corev1.PodSpec) (out []string) {
	pod := ptr.Deref(spec.SecurityContext, corev1.PodSecurityContext{})
	if !ptr.Deref(pod.RunAsNonRoot, false) || ptr.Deref(pod.RunAsUser, 0) == 0 {
		out = append(out, "the pod may run as root")
	}
	if pod.SeccompProfile == nil || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		out = append(out, "the pod does not use the runtime's seccomp profile")
	}
	if spec.HostNetwork || spec.HostPID || spec.HostIPC {
		out = append(out, "the pod shares namespaces of its node")
	}
	for _, v := range spec.Volumes {
		if v.ConfigMap == nil && v.EmptyDir == nil && v.Projected == nil && v.Secret == nil && v.DownwardAPI == nil {
			out = append(out, fmt.Sprintf("volume %s is of a kind that is not allowed", v.Name))
		}
	}
	return out
}

func unrestrictedContainer(c corev1.Container) (out []string) {
	s := ptr.Deref(c.SecurityContext, corev1.SecurityContext{})
	if ptr.Deref(s.AllowPrivilegeEscalation, true) || ptr.Deref(s.Privileged, false) {
		out = append(out, fmt.Sprintf("container %s may gain privileges", c.Name))
	}
	if s.Capabilities == nil || !slices.Contains(s.Capabilities.Drop, "ALL") || len(s.Capabilities.Add) > 0 {
		out = append(out, fmt.Sprintf("container %s has capabilities", c.Name))
	}
	if !ptr.Deref(s.ReadOnlyRootFilesystem, false) {
		out = append(out, fmt.Sprintf("container %s can write to its file system", c.Name))
	}
	if !ptr.Deref(s.RunAsNonRoot, true) || ptr.Deref(s.RunAsUser, 1) == 0 {
		out = append(out, fmt.Sprintf("container %s may run as root", c.Name))
	}
	if slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.HostPort != 0 }) {
		out = append(out, fmt.Sprintf("container %s uses a port of its node", c.Name))
	}
	return out
}
