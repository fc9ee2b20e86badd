// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// VPA has the values of a VerticalPodAutoscaler that decisions need. Its API is not part of
// Kubernetes and may not be installed, so only the fields that are read are declared here.
type VPA struct {
	Namespace string
	Name      string
	// Target is the object whose pods it sizes.
	Target autoscalingv2.CrossVersionObjectReference
	// Off is true if it only recommends.
	Off bool
	// Containers has the changed resources of each container. AnyContainer applies to
	// containers that are not named.
	Containers map[string]VPAContainer
}

// VPAContainer has the resources of a container that a VerticalPodAutoscaler changes.
type VPAContainer struct{ CPU, Memory bool }

// VPASpec is the part of a VerticalPodAutoscaler's spec that is read, of version v1.
type VPASpec struct {
	TargetRef    *autoscalingv2.CrossVersionObjectReference `json:"targetRef"`
	UpdatePolicy *struct {
		UpdateMode *string `json:"updateMode"`
	} `json:"updatePolicy"`
	ResourcePolicy *struct {
		ContainerPolicies []struct {
			ContainerName       string                 `json:"containerName"`
			Mode                *string                `json:"mode"`
			ControlledResources *[]corev1.ResourceName `json:"controlledResources"`
		} `json:"containerPolicies"`
	} `json:"resourcePolicy"`
}

// vpaOff is the update mode and the container mode without changes. Any other mode, including
// future ones, makes changes.
const vpaOff = "Off"

// ReadVPA reads a VerticalPodAutoscaler. By default it changes CPU and memory of all containers.
func ReadVPA(namespace, name string, spec VPASpec) VPA {
	vpa := VPA{Namespace: namespace, Name: name, Containers: map[string]VPAContainer{v1beta1.AnyContainer: {CPU: true, Memory: true}}}
	if spec.TargetRef != nil {
		vpa.Target = *spec.TargetRef
	}
	if p := spec.UpdatePolicy; p != nil && p.UpdateMode != nil {
		vpa.Off = *p.UpdateMode == vpaOff
	}
	if spec.ResourcePolicy == nil {
		return vpa
	}
	for _, policy := range spec.ResourcePolicy.ContainerPolicies {
		c := VPAContainer{CPU: true, Memory: true}
		switch only := policy.ControlledResources; {
		case policy.Mode != nil && *policy.Mode == vpaOff:
			c = VPAContainer{}
		case only != nil:
			c.CPU, c.Memory = slices.Contains(*only, corev1.ResourceCPU), slices.Contains(*only, corev1.ResourceMemory)
		}
		vpa.Containers[policy.ContainerName] = c
	}
	return vpa
}

// SizedBy names, by container of the Deployment's template, the VerticalPodAutoscalers that size
// its pods, or those of the ScaledDeployment that controls it.
func SizedBy(vpas []VPA, deployment *appsv1.Deployment) map[string]Scaled {
	var out map[string]Scaled
	for _, vpa := range vpas {
		if vpa.Off || !scales(vpa.Target, deployment) {
			continue
		}
		for _, container := range LongRunning(&deployment.Spec.Template.Spec) {
			sized := vpa.addTo(out[container.Name], container.Name)
			if sized == (Scaled{}) {
				continue
			}
			if out == nil {
				out = map[string]Scaled{}
			}
			out[container.Name] = sized
		}
	}
	return out
}

// addTo adds the scaler's name for the resources of the container that it changes.
func (v VPA) addTo(sized Scaled, container string) Scaled {
	c, named := v.Containers[container]
	if !named {
		c = v.Containers[v1beta1.AnyContainer]
	}
	if c.CPU {
		sized.CPU = firstByName(sized.CPU, v.Name)
	}
	if c.Memory {
		sized.Memory = firstByName(sized.Memory, v.Name)
	}
	return sized
}
