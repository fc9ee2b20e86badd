// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// The fleet is many equal Deployments, each of Pods pods with Containers containers, and with a scaler. They are as large as
// those of a typical chart.
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

// Name is the name of Deployment i and of its scaler.
func Name(i int) string { return fmt.Sprintf("web-%06d", i) }

// Namespace is the namespace of Deployment i.
func Namespace(i int) string { return fmt.Sprintf("team-%04d", i/PerNamespace) }

// metaOf are the metadata of an object, as a user sends it.
func metaOf(i int, name string) metav1.ObjectMeta {
	app := Name(i)
	return metav1.ObjectMeta{
		Namespace: Namespace(i), Name: name,
		Labels: map[string]string{"app.kubernetes.io/name": app, "app.kubernetes.io/instance": app, "app.kubernetes.io/managed-by": "Helm"},
	}
}

// controlledBy makes an owner the controller of an object.
func controlledBy(object, owner client.Object, apiVersion, kind string) {
	object.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: apiVersion, Kind: kind, Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
	}})
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

// Deployment is the i-th Deployment, with the status that it is up to date.
func Deployment(i int) *appsv1.Deployment {
	labels := map[string]string{"app.kubernetes.io/name": Name(i)}
	return &appsv1.Deployment{
		ObjectMeta: metaOf(i, Name(i)),
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

// templateHash is the suffix of the names of all ReplicaSets.
const templateHash = "5d4f8c"

// ReplicaSet is the ReplicaSet of Deployment i, which exists.
func ReplicaSet(i int, of *appsv1.Deployment) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{
		ObjectMeta: metaOf(i, Name(i)+"-"+templateHash),
		Spec:       appsv1.ReplicaSetSpec{Selector: of.Spec.Selector, Template: *of.Spec.Template.DeepCopy()},
	}
	set.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = templateHash
	set.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
	set.Spec.Template.Labels = set.Labels
	controlledBy(set, of, "apps/v1", "Deployment")
	return set
}

// PodName is the name of the j-th pod of Deployment i.
func PodName(i, j int) string { return fmt.Sprintf("%s-%s-%05d", Name(i), templateHash, j) }

// DeploymentOf is the number of the Deployment of a pod of the fleet, by the pod's name.
func DeploymentOf(pod string) (i int, ok bool) {
	var j int
	_, err := fmt.Sscanf(pod, "web-%06d-"+templateHash+"-%05d", &i, &j)
	return i, err == nil
}

// Pod is the j-th pod of Deployment i, whose ReplicaSet exists.
func Pod(i, j int, of *appsv1.ReplicaSet) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metaOf(i, PodName(i, j)), Spec: podSpec()}
	p.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = templateHash
	controlledBy(p, of, "apps/v1", "ReplicaSet")
	return p
}

// Scaler is the scaler of Deployment i.
func Scaler(i int) *v1beta1.VerticalScaler {
	return &v1beta1.VerticalScaler{
		ObjectMeta: metaOf(i, Name(i)),
		Spec: v1beta1.VerticalScalerSpec{
			DeploymentName: Name(i),
			Scaling:        v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{UpdateMode: v1beta1.UpdateModeInPlace, Fallback: v1beta1.FallbackWait}},
		},
	}
}
