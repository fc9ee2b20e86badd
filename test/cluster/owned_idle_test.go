// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

// The tests in this file count reconciles, so they run alone, like those of idle_test.go.

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

func TestReconcilesOfASettledOwnerWriteNothing(t *testing.T) {
	env.NeedAudit(t)
	testkit.Tidy(t, "it counts the reconciles and writes of the whole process, and the tenant causes some", testkit.Storms)
	testkit.Tidy(t, "what is learned about uneven pods is saved now and then", testkit.UnevenUsage)
	w := newFixture(t, brisk)
	names := []string{"plain", "inplace", "rollout", "refused", "named"}
	for _, name := range names {
		w.uses(name, "app", 300, 240)
		w.uses(name, "agent", 300, 240)
	}
	w.own("plain", richTemplate)
	w.own("named", named("other-name"), scaled("Recommend"))
	w.own("inplace", richTemplate, scaled("InPlace"))
	w.own("rollout", richTemplate, scaled("Rollout"))
	w.create(w.newOwner("refused", func(o *v1beta1.ScaledDeployment) { o.Spec.Template.Spec.RestartPolicy = "Never" }))
	w.ownerSays("refused", "Stalled", "True", "Rejected")
	for _, name := range []string{"inplace", "rollout"} {
		w.sized(name)
		w.settled(name)
		w.ownerSays(name, "Sized", "True", "OperatingNormally")
	}
	w.observed(idleEvidence)

	mark, evidence := env.Mark(), w.evidence()
	w.config.ResyncPeriod.Duration = 100 * time.Millisecond
	w.restart()
	before := reconcilesOf(t, "scaleddeployment")
	w.eventually(func() string {
		if reconcilesOf(t, "scaleddeployment") < before+20*len(names) {
			return "too few reconciles yet"
		}
		return ""
	})
	asked := 0
	var others []testkit.Write
	for _, write := range w.allWrites(mark) {
		// The operator retries a rejected request, and it is rejected again.
		if write.Name == "refused" && write.Resource == "deployments" && write.Code == 422 {
			asked++
			continue
		}
		others = append(others, write)
	}
	w.expectOnlyDue(others, evidence)
	if asked == 0 {
		t.Error("the rejected request is not retried")
	}
}

// quiet is for how many rounds no reconcile must begin before the last event is over. A conflict with a
// lagging cache is retried after up to 5 s, also if an event has reconciled the object before.
const quiet = 60

func TestAnOwnerIsReconciledOnEventsAlone(t *testing.T) {
	testkit.Tidy(t, "it counts the reconciles of the whole process, and the tenant causes some", testkit.Storms)
	w := newFixture(t) // its resync period is longer than any test
	w.uses("web", "app", 300, 240)
	owner := w.own("web", scaled("InPlace"))
	w.sized("web")
	w.settled("web")
	w.ownerSays("web", "Sized", "True", "OperatingNormally")
	for before := -1; before != reconcilesOf(t, "scaleddeployment"); {
		before = reconcilesOf(t, "scaleddeployment")
		w.rounds(quiet)
	}
	before := reconcilesOf(t, "scaleddeployment")
	w.rounds(20)
	if n := reconcilesOf(t, "scaleddeployment") - before; n > 0 {
		t.Errorf("%d reconciles while nothing happened", n)
	}
	for _, n := range []int32{5, 2} {
		w.patch(owner, `{"spec":{"replicas":%d}}`, n)
		w.settled("web")
	}
	w.remove(&w.pods("web")[0])
	w.runs("web")
	w.settled("web")
}

func TestARestartOverSettledOwnersWritesNothing(t *testing.T) {
	t.Parallel()
	env.NeedAudit(t)
	w := newFixture(t)
	w.uses("web", "app", 300, 240)
	w.own("web", richTemplate, scaled("Rollout"))
	w.own("plain")
	w.sized("web")
	w.settled("web")
	w.ownerSays("web", "Sized", "True", "OperatingNormally")
	deployment, owner := w.deployment("web"), w.owner("web")
	w.operator.Stop(t)
	mark := env.Mark()
	w.start()
	w.rounds(10)
	w.patch(w.newOwner("plain"), `{"spec":{"replicas":2}}`) // the owner follows this, so its operator works
	w.settled("plain")
	for _, write := range w.writes(mark) {
		if write.Name == "web" && write.Resource != "verticalscalercheckpoints" && !strings.HasPrefix(write.Resource, "verticalscalers") {
			t.Errorf("written: %s", write)
		}
	}
	now := w.deployment("web")
	if diff := cmp.Diff(deployment.Spec, now.Spec); diff != "" || now.Generation != deployment.Generation {
		t.Errorf("the Deployment (-before +now):\n%s", diff)
	}
	if diff := cmp.Diff(owner, w.owner("web")); diff != "" {
		t.Errorf("the owner (-before +now):\n%s", diff)
	}
}

// reconcilesOf is the number of reconciles of a controller in this process so far.
func reconcilesOf(t *testing.T, controller string) (n int) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "controller" && label.GetValue() == controller {
					n += int(metric.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}
