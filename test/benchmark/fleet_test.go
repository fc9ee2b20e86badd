// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// A fleet has many equal Deployments: each of podsPerDeployment pods with containersPerPod containers,
// and with a scaler. Their objects are as large as those of a typical chart.
const (
	podsPerDeployment = 3
	containersPerPod  = 2
	perNamespace      = 100
)

// created is when everything in the fleet was created.
var created = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

func nameOf(i int) string      { return fmt.Sprintf("web-%06d", i) }
func namespaceOf(i int) string { return fmt.Sprintf("team-%04d", i/perNamespace) }

// keyOf is the key of a scaler and of its Deployment.
func keyOf(i int) types.NamespacedName {
	return types.NamespacedName{Namespace: namespaceOf(i), Name: nameOf(i)}
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
	for i := range containersPerPod {
		c := corev1.Container{
			Name: containerName(i), Image: "registry.example.com/shop/web:1.2.3", Command: []string{"/web"}, Args: []string{"--verbose"},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")},
			},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready"}}},
			VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web"}},
		}
		for j := range 10 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", j), Value: "a value of some length"})
		}
		spec.Containers = append(spec.Containers, c)
	}
	return spec
}

func containerName(i int) string { return []string{"app", "proxy"}[i] }

func deploymentOf(i int) client.Object {
	labels := map[string]string{"app.kubernetes.io/name": nameOf(i)}
	return &appsv1.Deployment{
		ObjectMeta: metaOf(namespaceOf(i), nameOf(i), nameOf(i)),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(podsPerDeployment)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: 1, Replicas: podsPerDeployment, UpdatedReplicas: podsPerDeployment, ReadyReplicas: podsPerDeployment, AvailableReplicas: podsPerDeployment,
			Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"}},
		},
	}
}

const templateHash = "5d4f8c"

func replicaSetOf(i int) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: metaOf(namespaceOf(i), nameOf(i)+"-"+templateHash, nameOf(i))}
	set.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = templateHash
	set.Annotations = map[string]string{"deployment.kubernetes.io/revision": "1"}
	set.OwnerReferences = controlledBy("apps/v1", "Deployment", metaOf(namespaceOf(i), nameOf(i), ""))
	return set
}

// podOf is the i-th pod of the fleet.
func podOf(i int) client.Object {
	set := replicaSetOf(i / podsPerDeployment)
	return podIn(namespaceOf(i/podsPerDeployment), podNameOf(i/podsPerDeployment, i%podsPerDeployment), set.ObjectMeta)
}

// podNameOf is the name of the j-th pod of Deployment i.
func podNameOf(i, j int) string { return fmt.Sprintf("%s-%s-%05d", nameOf(i), templateHash, j) }

// foreignPodOf is the i-th pod that no scaler names.
func foreignPodOf(i int) client.Object {
	namespace, name := fmt.Sprintf("other-%04d", i/perNamespace), fmt.Sprintf("job-%06d-%s", i, templateHash)
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

func scalerOf(i int) client.Object {
	return &v1beta1.VerticalScaler{
		ObjectMeta: metaOf(namespaceOf(i), nameOf(i), nameOf(i)),
		Spec: v1beta1.VerticalScalerSpec{
			DeploymentName: nameOf(i),
			Scaling:        v1beta1.Scaling{UpdatePolicy: v1beta1.UpdatePolicy{UpdateMode: v1beta1.UpdateModeInPlace, Fallback: v1beta1.FallbackWait}},
		},
		Status: v1beta1.VerticalScalerStatus{ObservedGeneration: -1},
	}
}

// hpaOf is an HPA of a Deployment that no scaler names, in the first namespace.
func hpaOf(i int) client.Object {
	name := fmt.Sprintf("other-%06d", i)
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metaOf(namespaceOf(0), name, name),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			MinReplicas:    ptr.To(int32(1)), MaxReplicas: 10,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(int32(80))},
			}}},
		},
	}
}

// steadyUsage is a source of usage: what all containers of the fleet use leads to about what they
// request. It remembers no samples. Each round is a minute later than the one before.
type steadyUsage struct {
	scalers int
	start   time.Time
	round   atomic.Int64
}

// List implements collect.Source.
func (u *steadyUsage) List(_ context.Context, namespace string, _ time.Time) (samples []usage.Sample, refused []usage.Refused, err error) {
	var n int
	if _, err := fmt.Sscanf(namespace, "team-%d", &n); err != nil {
		return nil, nil, fmt.Errorf("no usage in namespace %s: %w", namespace, err)
	}
	for i := n * perNamespace; i < min(u.scalers, (n+1)*perNamespace); i++ {
		for j := range podsPerDeployment {
			for c := range containersPerPod {
				samples = append(samples, usage.Sample{
					Namespace: namespace, Pod: podNameOf(i, j), Container: containerName(c),
					Time: u.start.Add(time.Duration(u.round.Load()) * time.Minute), Window: 30 * time.Second, CPUMillis: 210, MemoryBytes: 390 << 20,
				})
			}
		}
	}
	return samples, nil, nil
}
