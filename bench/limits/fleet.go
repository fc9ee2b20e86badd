// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/bench/cluster"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/crdschema"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// podsPerNode is how many pods of the fleet a node has.
const podsPerNode = 30

// seed creates the fleet: that of package cluster, with all of its pods running.
func (s *session) seed() error {
	schema, err := crdschema.OfCRD(s.root, "autoscaling.verticalscaler.io_verticalscalers.yaml")
	if err != nil {
		return err
	}
	create := func(kind string, object client.Object) error {
		object.SetManagedFields([]metav1.ManagedFieldsEntry{managedBy("kubectl", object, "metadata", "spec")})
		_, err := s.api.create(s.api.resources[kind], object)
		return err
	}
	first := []struct {
		kind   string
		object client.Object
	}{
		{"/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.System}}},
		{"admissionregistration.k8s.io/mutatingadmissionpolicies", admission.Policy()},
		{"admissionregistration.k8s.io/mutatingadmissionpolicybindings", admission.Binding()},
	}
	for _, o := range first {
		if err := create(o.kind, o.object); err != nil {
			return err
		}
	}
	for n := range s.Scalers*s.Pods/podsPerNode + 1 {
		all := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("110")}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(n)}, Status: corev1.NodeStatus{Capacity: all, Allocatable: all}}
		if err := create("/nodes", node); err != nil {
			return err
		}
	}
	var podFields, specFields []metav1.ManagedFieldsEntry
	for i := range s.Scalers {
		if i%cluster.PerNamespace == 0 {
			if err := create("/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Namespace(i)}}); err != nil {
				return err
			}
		}
		d := cluster.Deployment(i)
		n := int32(s.Pods)
		d.Spec.Replicas, d.Status.Replicas, d.Status.UpdatedReplicas, d.Status.ReadyReplicas, d.Status.AvailableReplicas = &n, n, n, n, n
		if specFields == nil {
			specFields = []metav1.ManagedFieldsEntry{managedBy("helm", d, "metadata", "spec"), managedBy("kube-controller-manager", d, "status")}
		}
		d.ManagedFields = specFields
		if _, err := s.api.create(s.api.resources["apps/deployments"], d); err != nil {
			return err
		}
		set := cluster.ReplicaSet(i, d)
		set.Spec.Replicas, set.Status = &n, appsv1.ReplicaSetStatus{Replicas: n, ReadyReplicas: n, AvailableReplicas: n, ObservedGeneration: 1}
		set.ManagedFields = specFields
		if _, err := s.api.create(s.api.resources["apps/replicasets"], set); err != nil {
			return err
		}
		for j := range s.Pods {
			pod := cluster.Pod(i, j, set)
			pod.Spec = set.Spec.Template.Spec // shared in memory
			pod.Spec.NodeName = nodeName((i*s.Pods + j) / podsPerNode)
			pod.Status = running(pod)
			if podFields == nil {
				podFields = []metav1.ManagedFieldsEntry{managedBy("kube-controller-manager", pod, "metadata", "spec"), managedBy("kubelet", pod, "status")}
			}
			pod.ManagedFields = podFields
			if _, err := s.api.create(s.api.resources["/pods"], pod); err != nil {
				return err
			}
		}
		scaler := cluster.Scaler(i)
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(scaler)
		if err != nil {
			return err
		}
		schema.Default(content)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, scaler); err != nil {
			return err
		}
		if err := create("autoscaling.verticalscaler.io/verticalscalers", scaler); err != nil {
			return err
		}
	}
	return nil
}

func nodeName(n int) string { return fmt.Sprintf("node-%05d", n) }

// running is the status of a pod that has run for a day.
func running(pod *corev1.Pod) corev1.PodStatus {
	began := metav1.NewTime(time.Now().Add(-24 * time.Hour).Truncate(time.Second))
	status := corev1.PodStatus{
		Phase: corev1.PodRunning, StartTime: &began, QOSClass: corev1.PodQOSBurstable, ObservedGeneration: 1,
		PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}, HostIP: "10.1.0.1", HostIPs: []corev1.HostIP{{IP: "10.1.0.1"}},
	}
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, ObservedGeneration: 1, LastTransitionTime: began})
	}
	started := true
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "registry.example.com/shop/web@sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
			ContainerID: "containerd://486ea46224d1bb4fb680f34f7c9ad96a8f24ec88be73ea8e5a6c65260e9cb8a7",
			Ready:       true, Started: &started, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}},
			AllocatedResources: c.Resources.Requests, Resources: &c.Resources,
		})
	}
	return status
}

// resized sets the status that the kubelet reports after it has resized a pod.
func resized(object client.Object) {
	pod := object.(*corev1.Pod)
	pod.Status.ObservedGeneration = pod.Generation
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Spec.Containers[i].Resources
		pod.Status.ContainerStatuses[i].AllocatedResources, pod.Status.ContainerStatuses[i].Resources = c.Requests, c
	}
}

// killed sets the status that the kubelet reports after an OOM kill of the first container, which runs again.
func killed(object client.Object) {
	pod, now := object.(*corev1.Pod), metav1.NewTime(time.Now().Truncate(time.Second))
	c := &pod.Status.ContainerStatuses[0]
	c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
		ExitCode: 137, Reason: "OOMKilled", StartedAt: c.State.Running.StartedAt, FinishedAt: now, ContainerID: c.ContainerID,
	}
	c.RestartCount++
	c.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
}

// edited is a Deployment whose template a user has changed.
func edited(object client.Object) {
	d := object.(*appsv1.Deployment)
	d.Generation++
	d.Status.ObservedGeneration = d.Generation
	d.Spec.Template.Spec.Containers[0].Env[0].Value += ", and another one"
}

// managedBy is an entry of the managed fields, for these fields of an object.
func managedBy(manager string, object client.Object, names ...string) metav1.ManagedFieldsEntry {
	now := metav1.Now()
	all, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(object) // All kinds can be converted.
	owned := map[string]any{}
	for _, name := range names {
		if value, ok := all[name].(map[string]any); ok {
			owned["f:"+name] = fieldsOf(value)
		}
	}
	raw, _ := json.Marshal(owned)
	entry := metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: &metav1.FieldsV1{Raw: raw}}
	if names[0] == "status" {
		entry.Subresource = "status"
	}
	return entry
}

func fieldsOf(value map[string]any) map[string]any {
	out := map[string]any{}
	for name, field := range value {
		if name == "managedFields" {
			continue
		}
		of := map[string]any{}
		switch field := field.(type) {
		case map[string]any:
			of = fieldsOf(field)
		case []any:
			for _, item := range field {
				if item, ok := item.(map[string]any); ok {
					of[fmt.Sprintf(`k:{"name":"%v"}`, item["name"])] = fieldsOf(item)
				}
			}
		}
		out["f:"+name] = of
	}
	return out
}

// list is the usage of all pods of a namespace, or of all namespaces. CPU follows the hour by 5 %, and each pod differs from the
// next one by up to 5 %.
func (s *session) list(namespace string) ([]usage.Sample, error) {
	factor := s.factor()
	return cluster.UsageOf(namespace, s.Scalers, s.Pods, func(i, j int, of *usage.Sample) {
		scale, second := 1.0, of.Time.Unix()
		if !s.isSpared(i) {
			scale = factor
		}
		hour := 1 + 0.05*math.Sin(2*math.Pi*(float64(second%3600)/3600+float64(i%24)/24))
		differs := 0.95 + 0.1*float64((i+7*j+int(second/15))%11)/10
		of.CPUMillis, of.MemoryBytes = int64(cluster.CPUMillis*hour*scale*differs), int64(cluster.MemoryBytes*scale*(0.99+0.02*differs))
	}), nil
}
