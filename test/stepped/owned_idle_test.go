// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// richTemplate sets fields that the API server would default, including fields in lists
// that server-side apply treats as one value. Its quantities are not in canonical form.
func richTemplate(o *v1beta1.ScaledDeployment) {
	template := &o.Spec.Template
	template.Annotations = map[string]string{"checksum/config": "0"}
	spec := &template.Spec
	spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To(int64(0)), SupplementalGroups: []int64{1, 2}, Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_local_port_range", Value: "1024 65535"}}}
	spec.TerminationGracePeriodSeconds = ptr.To(int64(0))
	spec.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"a", "b"}}}
	spec.Tolerations = []corev1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists}, {Key: "b", Value: "c", Effect: corev1.TaintEffectNoSchedule}}
	spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway}}
	spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
		Weight: 1, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: corev1.LabelHostname},
	}}}}
	spec.Volumes = []corev1.Volume{
		{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("0.5Gi"))}}},
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Items: []corev1.KeyToPath{{Key: "a", Path: "b"}}, Optional: ptr.To(true),
		}}},
		{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}},
		}}}},
	}
	app := &spec.Containers[0]
	app.Resources = corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("0.1"), "memory": resource.MustParse("0.128e9")},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse("1000m"), "memory": resource.MustParse("0.5Gi")},
	}
	app.Ports = []corev1.ContainerPort{{ContainerPort: 80}, {Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}}
	app.Env = []corev1.EnvVar{
		{Name: "EMPTY"},
		{Name: "NODE", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}}},
		{Name: "CPU", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}}},
		{Name: "KEY", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Key: "a", Optional: ptr.To(true)}}},
	}
	app.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Optional: ptr.To(true)}}}
	app.VolumeMounts = []corev1.VolumeMount{{Name: "empty", MountPath: "/empty"}, {Name: "config", MountPath: "/config", ReadOnly: true}}
	app.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}}
	app.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 80}}}
	app.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}, FailureThreshold: 1}
	app.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}, Privileged: ptr.To(false)}
	app.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	init := testkit.Container("init")
	init.Resources = corev1.ResourceRequirements{}
	spec.InitContainers = []corev1.Container{init}
	spec.Containers = append(spec.Containers, corev1.Container{Name: "agent", Image: "example.com/agent"})
}
