// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet makes the objects of many equal Deployments: each of Pods pods with Containers containers, and
// with a scaler. They are as large as those of a typical chart. Benchmarks use it.
package fleet

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

const (
	// Pods is the number of pods of a Deployment.
	Pods = 3
	// Containers is the number of containers of a pod.
	Containers = 2
	// PerNamespace is the number of Deployments in a namespace.
	PerNamespace = 100
	// CPUMillis is the CPU that each container uses: about what leads to what it requests.
	CPUMillis = 210
	// MemoryBytes is the same for memory.
	MemoryBytes = 390 << 20
)

// created is when everything in the fleet was created.
var created = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// Name is the name of Deployment i and of its scaler.
func Name(i int) string { return fmt.Sprintf("web-%06d", i) }

// Namespace is the namespace of Deployment i.
func Namespace(i int) string { return fmt.Sprintf("team-%04d", i/PerNamespace) }

// Key is the key of a scaler and of its Deployment.
func Key(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: Namespace(i), Name: Name(i)}
}

// metaOf are the metadata of an object. Every object has strings of its own, as if it was decoded.
func metaOf(namespace, name, app string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID("uid-of-" + namespace + "-" + name), ResourceVersion: "1", Generation: 1, CreationTimestamp: created,
		Labels: map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "app.kubernetes.io/managed-by": "Helm"},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "helm", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &created, FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:spec":{` + strings.Repeat(`"f:field":{},`, 100) + `"f:last":{}}}`),
		}},
	}
}

func controlledBy(apiVersion, kind string, owner metav1.ObjectMeta) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner.Name, UID: owner.UID, Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}}
}

func podSpec() (spec corev1.PodSpec) {
	spec.ServiceAccountName, spec.SchedulerName, spec.RestartPolicy, spec.DNSPolicy = "web", "default-scheduler", corev1.RestartPolicyAlways, corev1.DNSClusterFirst
	spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "web"}}}},
		{Name: "kube-api-access", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}},
	}
	spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
	for i := range Containers {
		c := corev1.Container{
			Name: ContainerName(i), Image: "registry.example.com/shop/web:1.2.3", Command: []string{"/web"}, Args: []string{"--verbose"},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
			},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)}}},
			VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web"}},
		}
		for j := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", j), Value: "a value of some length"})
		}
		spec.Containers = append(spec.Containers, c)
	}
	return spec
}

// ContainerName is the name of the i-th container of a pod.
func ContainerName(i int) string { return []string{"app", "proxy"}[i] }

// Deployment is the i-th Deployment, with a status that says that it is up to date.
func Deployment(i int) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": Name(i)}
	return &appsv1.Deployment{
		ObjectMeta: metaOf(Namespace(i), Name(i), Name(i)),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(Pods)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: 1, Replicas: Pods, UpdatedReplicas: Pods, ReadyReplicas: Pods, AvailableReplicas: Pods,
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"}},
		},
	}
}

// templateHash is what the ReplicaSets are named after.
const templateHash = "5d4f8c"

// ReplicaSet is that of Deployment i.
func ReplicaSet(i int) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: metaOf(Namespace(i), Name(i)+"-"+templateHash, Name(i))}
	set.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = templateHash
	set.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
	set.OwnerReferences = controlledBy("apps/v1", "Deployment", metaOf(Namespace(i), Name(i), ""))
	return set
}

// Pod is the i-th pod of the fleet, which runs.
func Pod(i int) *corev1.Pod {
	set := ReplicaSet(i / Pods)
	return podIn(Namespace(i/Pods), PodName(i/Pods, i%Pods), set.ObjectMeta)
}

// PodName is the name of the j-th pod of Deployment i.
func PodName(i, j int) string { return fmt.Sprintf("%s-%s-%05d", Name(i), templateHash, j) }

// DeploymentOf is the number of the Deployment of a pod of the fleet, by the pod's name.
func DeploymentOf(pod string) (i int, ok bool) {
	var j int
	_, err := fmt.Sscanf(pod, "web-%06d-"+templateHash+"-%05d", &i, &j)
	return i, err == nil
}

// ForeignPod is the i-th pod that no scaler names.
func ForeignPod(i int) *corev1.Pod {
	namespace, name := fmt.Sprintf("other-%04d", i/PerNamespace), fmt.Sprintf("job-%06d-%s", i, templateHash)
	return podIn(namespace, name+"-00000", metaOf(namespace, name, name))
}

func podIn(namespace, name string, set metav1.ObjectMeta) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metaOf(namespace, name, set.Labels["app.kubernetes.io/name"]), Spec: podSpec()}
	p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = templateHash
	p.OwnerReferences = controlledBy("apps/v1", "ReplicaSet", set)
	p.Spec.NodeName = "node-1"
	p.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: &created, ObservedGeneration: 1, PodIP: "10.0.0.1", HostIP: "10.1.0.1",
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: created})
	}
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, Image: c.Image, ImageID: c.Image + "@sha256:" + strings.Repeat("a", 64), ContainerID: "containerd://" + strings.Repeat("b", 64),
			State:     corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: created}},
			Resources: c.Resources.DeepCopy(), AllocatedResources: c.Resources.Requests,
		})
	}
	return p
}

// Scaler is the scaler of Deployment i, which no operator has seen yet.
func Scaler(i int) *v1beta1.VerticalScaler {
	return &v1beta1.VerticalScaler{
		ObjectMeta: metaOf(Namespace(i), Name(i), Name(i)),
		Spec: v1beta1.VerticalScalerSpec{
			DeploymentName: Name(i),
			Scaling:        v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{UpdateMode: v1beta1.UpdateModeInPlace, Fallback: v1beta1.FallbackWait}},
		},
		Status: v1beta1.VerticalScalerStatus{ObservedGeneration: -1},
	}
}
