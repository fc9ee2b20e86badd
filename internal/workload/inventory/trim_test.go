// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Trimming must only remove fields that are not read. So every field of an object gets a random
// value, from words that have a meaning somewhere, and reading the trimmed object must return
// the same as reading the whole. A new reader of a trimmed field fails here.
func TestTrimKeepsWhatIsRead(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 1))

		var deployment appsv1.Deployment
		fill(r, reflect.ValueOf(&deployment).Elem())
		if diff := cmp.Diff(workload.ReadDeployment(&deployment), workload.ReadDeployment(trimmed(t, deployment.DeepCopy()))); diff != "" {
			t.Fatalf("seed %d: reading a Deployment (-whole +trimmed):\n%s", seed, diff)
		}

		var node corev1.Node
		fill(r, reflect.ValueOf(&node).Elem())
		if diff := cmp.Diff(workload.ReadNode(&node), workload.ReadNode(trimmed(t, node.DeepCopy()))); diff != "" {
			t.Fatalf("seed %d: reading a node (-whole +trimmed):\n%s", seed, diff)
		}

		var limits corev1.LimitRange
		fill(r, reflect.ValueOf(&limits).Elem())
		if diff := cmp.Diff(workload.ReadLimitRanges([]corev1.LimitRange{limits}), workload.ReadLimitRanges([]corev1.LimitRange{*trimmed(t, limits.DeepCopy())})); diff != "" {
			t.Fatalf("seed %d: reading a LimitRange (-whole +trimmed):\n%s", seed, diff)
		}
		var quota corev1.ResourceQuota
		fill(r, reflect.ValueOf(&quota).Elem())
		readQuota, _ := workload.ReadQuotas([]corev1.ResourceQuota{quota})
		readTrimmed, _ := workload.ReadQuotas([]corev1.ResourceQuota{*trimmed(t, quota.DeepCopy())})
		if diff := cmp.Diff(readQuota, readTrimmed); diff != "" {
			t.Fatalf("seed %d: reading a ResourceQuota (-whole +trimmed):\n%s", seed, diff)
		}
		var hpa autoscalingv2.HorizontalPodAutoscaler
		fill(r, reflect.ValueOf(&hpa).Elem())
		target := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: hpa.Spec.ScaleTargetRef.Name}}
		if diff := cmp.Diff(workload.ReadHPAs([]autoscalingv2.HorizontalPodAutoscaler{hpa}, target), workload.ReadHPAs([]autoscalingv2.HorizontalPodAutoscaler{*trimmed(t, hpa.DeepCopy())}, target)); diff != "" {
			t.Fatalf("seed %d: reading an HPA (-whole +trimmed):\n%s", seed, diff)
		}
	}
}

func TestTrimRemovesWhatIsNotRead(t *testing.T) {
	d := trimmed(t, richDeployment(1))
	got, err := yaml.Marshal(d)
	must.Succeed(t, err)
	for _, secret := range []string{"managedFields", "annotations", "image", "env", "volume", "probe", "command", "affinity", "conditions", "password"} {
		if strings.Contains(strings.ToLower(string(got)), strings.ToLower(secret)) {
			t.Errorf("a trimmed Deployment still has %s:\n%s", secret, got)
		}
	}
}

func TestTrimPassesATombstone(t *testing.T) {
	tombstone := cache.DeletedFinalStateUnknown{Key: "shop/web", Obj: &appsv1.Deployment{}}
	if got, err := Trim(tombstone); err != nil || got != any(tombstone) {
		t.Errorf("Trim() = %v, %v", got, err)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // finishes the first one's sweep
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// richDeployment is a Deployment as a typical chart creates it.
func richDeployment(containers int) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "4e8b9a52-7f1c-4a77-9d0b-1f0e8e7a4d11", ResourceVersion: "123456", Generation: 7,
			Labels:      map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "shop", "helm.sh/chart": "web-1.2.3"},
			Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat(`{"spec":{}}`, 200), "deployment.kubernetes.io/revision": "7"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "helm", Operation: "Apply", FieldsV1: ownedFields(150)},
				{Manager: "kube-controller-manager", Operation: "Update", Subresource: "status", FieldsV1: ownedFields(60)},
			},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(3)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": "web"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app.kubernetes.io/name": "web"}, Annotations: map[string]string{"checksum/config": strings.Repeat("a", 64)}},
				Spec:       richPodSpec(containers),
			},
		},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: 7, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3,
			Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable", Message: "Deployment has minimum availability."},
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable", Message: `ReplicaSet "web-5d4f8c" has successfully progressed.`},
			},
		},
	}
	return d
}

func ownedFields(n int) *metav1.FieldsV1 {
	return metav1.NewFieldsV1(`{"f:spec":{` + strings.Repeat(`"f:field":{},`, n) + `"f:last":{}}}`)
}

func richPodSpec(containers int) corev1.PodSpec {
	spec := corev1.PodSpec{
		ServiceAccountName: "web",
		Affinity:           &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{}},
		Volumes:            []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}}},
	}
	for i := range containers {
		c := corev1.Container{
			Name: fmt.Sprintf("app-%d", i), Image: "registry.example.com/shop/web:1.2.3", Command: []string{"/web"}, Args: []string{"--verbose"},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "memory": resource.MustParse("512Mi")},
				Limits:   corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
			},
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready"}}},
			VolumeMounts:   []corev1.VolumeMount{{Name: "config", MountPath: "/etc/web"}},
		}
		for j := range 20 {
			c.Env = append(c.Env, corev1.EnvVar{Name: fmt.Sprintf("PASSWORD_%d", j), Value: "a value of some length"})
		}
		spec.Containers = append(spec.Containers, c)
	}
	return spec
}

func richPod() *corev1.Pod {
	d := richDeployment(1)
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "4e8b9a52-7f1c-4a77-9d0b-1f0e8e7a4d12", ResourceVersion: "123456", Generation: 1,
			Labels: map[string]string{"app.kubernetes.io/name": "web", "pod-template-hash": "5d4f8c"}, Annotations: d.Spec.Template.Annotations,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d4f8c", UID: "4e8b9a52-7f1c-4a77-9d0b-1f0e8e7a4d13", Controller: ptr.To(true)}},
			ManagedFields:   d.ManagedFields,
		},
		Spec: d.Spec.Template.Spec,
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: ptr.To(metav1.NewTime(time.Unix(1_700_000_000, 0))),
			PodIP: "10.0.0.1", HostIP: "10.1.0.1",
		},
	}
	for _, condition := range []corev1.PodConditionType{corev1.PodReady, corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady} {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue})
	}
	for _, c := range p.Spec.Containers {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Ready: true, Image: c.Image, ImageID: c.Image + "@sha256:" + strings.Repeat("a", 64), ContainerID: "containerd://" + strings.Repeat("b", 64),
			Resources: c.Resources.DeepCopy(), AllocatedResources: c.Resources.Requests,
		})
	}
	return p
}

func trimmed[T any](t *testing.T, obj T) T {
	t.Helper()
	out, err := Trim(obj)
	must.Succeed(t, err)
	return out.(T)
}

// randomPod belongs to a Deployment in half of the cases, which random values alone would
// never reach.
func randomPod(r *rand.Rand) (pod corev1.Pod) {
	fill(r, reflect.ValueOf(&pod).Elem())
	if r.IntN(2) == 0 {
		pod.Labels = map[string]string{"app": "web", "pod-template-hash": "5d4f8c"}
		pod.OwnerReferences = []metav1.OwnerReference{*ownedBySet("web-5d4f8c")}
	}
	return pod
}

// words are the values of strings: those that some reader looks for.
var words = []string{
	"-Xmx1g", "GOMEMLIMIT", "512MiB", "--max-old-space-size=64",
	"app", "sidecar", "web", "cpu", "memory", "Running", "Pending", "True", "False", "PodResizePending", "PodResizeInProgress", "Ready", "Deferred", "Infeasible", "Error",
	"OOMKilled", "RestartContainer", "NotRequired", "Burstable", "ReplicaSet", "Deployment", "web-5d4f8c", "5d4f8c", "Container", "Pod", "Resource", "ContainerResource",
	"Utilization", "resize", "pod-template-hash", "deployment.kubernetes.io/revision", "7", "Always", "CrashLoopBackOff", "ProgressDeadlineExceeded",
}

// wordsOf are the words of enum types.
var wordsOf = map[reflect.Type][]string{
	reflect.TypeFor[corev1.PodConditionType](): {"PodResizePending", "PodResizeInProgress", "Ready"},
	reflect.TypeFor[corev1.ConditionStatus]():  {"True", "True", "False"},
	reflect.TypeFor[corev1.PodPhase]():         {"Running", "Pending"},

	reflect.TypeFor[appsv1.DeploymentConditionType](): {"Progressing", "Available", "ReplicaFailure"},
}

// fill sets every field of a value to a random value, recursively.
func fill(r *rand.Rand, v reflect.Value) {
	switch v.Addr().Interface().(type) {
	case *resource.Quantity:
		v.Set(reflect.ValueOf(*resource.NewMilliQuantity(r.Int64N(5000), resource.DecimalSI)))
		return
	case *metav1.Time:
		v.Set(reflect.ValueOf(metav1.NewTime(time.Unix(1_700_000_000+r.Int64N(1000), 0))))
		return
	case *metav1.FieldsV1, *apiruntime.RawExtension:
		return
	}
	switch v.Kind() {
	case reflect.String:
		known := words
		if few := wordsOf[v.Type()]; few != nil {
			known = few
		}
		v.SetString(known[r.IntN(len(known))])
	case reflect.Bool:
		v.SetBool(r.IntN(3) > 0)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(r.Int64N(3))
	case reflect.Pointer:
		if r.IntN(5) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(r, v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), r.IntN(3), 2))
		for i := range v.Len() {
			fill(r, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range r.IntN(4) {
			key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(r, key)
			fill(r, value)
			v.SetMapIndex(key, value)
		}
	}
}
