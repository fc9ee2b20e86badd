// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/cached"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// A settled scaler must cost the same however many HorizontalPodAutoscalers of other Deployments its
// namespace has, which the memory that it allocates shows without a clock.
func TestASettledScalerDoesNotPayForItsNeighbours(t *testing.T) {
	alone, crowded := newSettled(t, 0).allocated(), newSettled(t, 1000).allocated()
	if crowded > alone+alone/20 {
		t.Errorf("a reconcile allocates %d bytes beside 1,000 HorizontalPodAutoscalers, and %d without them", crowded, alone)
	}
}

// allocated is how many bytes a reconcile allocates.
func (p *plant) allocated() uint64 {
	const passes = 20
	var before, after runtime.MemStats
	p.pass() // the first one fills caches
	runtime.ReadMemStats(&before)
	for range passes {
		p.pass()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / passes
}

// BenchmarkNoOp is a reconcile that finds nothing to do, of a Deployment with 3 pods of 2 containers,
// without and beside HorizontalPodAutoscalers of other Deployments. It reads from the cache of
// controller-runtime, as the operator does.
func BenchmarkNoOp(b *testing.B) {
	for _, hpas := range []int{0, 1000} {
		b.Run(fmt.Sprintf("hpas=%d", hpas), func(b *testing.B) {
			settled := newSettled(b, hpas)
			b.ReportAllocs()
			began := bench.CPUTime(b)
			for b.Loop() {
				settled.pass()
			}
			b.ReportMetric(float64(bench.CPUTime(b)-began)/float64(b.N), "cpu-ns/op")
		})
	}
}

// pass reconciles once. A write fails it, because the client has no server.
func (p *plant) pass() {
	if _, err := p.Reconcile(p.t.Context(), reconcile.Request{NamespacedName: p.key}); err != nil {
		p.t.Fatal(err)
	}
}

// newSettled is a reconciler for which nothing is left to do. It reads from a real cache.
//
// The world is untidy: the containers differ, one was OOM-killed and restarted, one pod has an injected
// sidecar, an older ReplicaSet is left, and a LimitRange, a ResourceQuota and other Deployments are in
// the namespace.
func newSettled(tb testing.TB, hpas int) *plant {
	tb.Helper()
	p := &plant{t: tb, clock: clocktesting.NewFakePassiveClock(noon)}
	vs := checkout(withMode("InPlace"))
	vs.UID, vs.CreationTimestamp = "scaler-1", metav1.NewTime(noon.Add(-24*time.Hour))
	scaler.RecordClaim(&vs.Status, scaler.Claim(vs))
	p.key = client.ObjectKeyFromObject(vs)
	objects := append(settledObjects(hpas), vs)
	p.start(objects)
	p.Budget, p.Metrics, p.Usage = budget.New(budget.Limits{Changes: 300, PerNamespace: 60, Window: time.Minute}), &metrics.Scalers{Detail: metrics.Full}, allUsage{}
	p.order.Note(vs)
	tb.Cleanup(p.checkShared)
	p.learnSettled(vs)
	p.Ceilings = config.Default().Ceilings.Plan()
	p.settle(objects)
	return p
}

// allUsage finds no usage missing.
type allUsage struct{}

func (allUsage) ProblemsOf(types.NamespacedName) collect.Problems { return collect.Problems{} }

// settledObjects are a Deployment whose pods need more than they have, and its surroundings.
func settledObjects(hpas int) []client.Object {
	app, log := sizedContainer("app", resources("100m", "300Mi"), resources("200m", "600Mi")), sizedContainer("log", resources("5m", "64Mi"), nil)
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "checkout", UID: "deployment-1", Generation: 1},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "checkout"}}},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3},
	}
	deployment.Spec.Template.Spec.Containers = []corev1.Container{app, log}
	objects := []client.Object{
		deployment,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}, Status: corev1.NodeStatus{Allocatable: resources("16", "64Gi")}},
		&corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "bounds"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer, Max: resources("4", "8Gi"), Min: resources("5m", "16Mi"), Default: resources("500m", "512Mi"),
			}}},
		},
		&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "compute"},
			Status: corev1.ResourceQuotaStatus{
				Hard: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("40"), corev1.ResourceRequestsMemory: resource.MustParse("80Gi")},
				Used: corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("12"), corev1.ResourceRequestsMemory: resource.MustParse("31Gi")},
			},
		},
	}
	for revision := range 2 {
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("checkout-%d", revision), UID: types.UID(fmt.Sprintf("set-%d", revision)),
			Labels:          map[string]string{"app": "checkout"},
			Annotations:     map[string]string{"deployment.kubernetes.io/revision": fmt.Sprint(revision)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		}}
		objects = append(objects, set)
		if revision == 0 {
			continue // scaled to zero
		}
		for i, name := range []string{"checkout-1-a", "checkout-1-b", "checkout-1-c"} {
			objects = append(objects, settledPod(set, name, i, deployment.Spec.Template.Spec.Containers))
		}
	}
	for i := range hpas {
		objects = append(objects, &autoscalingv2.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("other-%d", i)},
			Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
				ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: fmt.Sprintf("other-%d", i)},
				MaxReplicas:    5,
				Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
					Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](80)},
				}}},
			},
		})
	}
	return objects
}

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

func sizedContainer(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

// settledPod is the i-th pod.
func settledPod(set *appsv1.ReplicaSet, name string, i int, containers []corev1.Container) *corev1.Pod {
	began := metav1.NewTime(noon.Add(-time.Duration(24+i) * time.Hour))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID(name), Generation: 1, CreationTimestamp: began,
			Labels:          map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: "1", "app": "checkout"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: corev1.PodSpec{Containers: containers, NodeName: fmt.Sprintf("node-%d", i)},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: corev1.PodQOSBurstable, StartTime: &began, ObservedGeneration: 1,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: began}},
		},
	}
	statusOf := func(c corev1.Container) corev1.ContainerStatus {
		return corev1.ContainerStatus{
			Name: c.Name, Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: began}},
			AllocatedResources: c.Resources.Requests, Resources: c.Resources.DeepCopy(),
		}
	}
	for _, c := range containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, statusOf(c))
	}
	if i == 1 { // one pod has a sidecar that the template does not have, and one was OOM-killed once
		proxy := sizedContainer("proxy", resources("10m", "32Mi"), resources("100m", "64Mi"))
		proxy.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		pod.Spec.InitContainers = []corev1.Container{proxy}
		pod.Status.InitContainerStatuses = []corev1.ContainerStatus{statusOf(proxy)}
	}
	if i == 2 {
		app := &pod.Status.ContainerStatuses[0]
		app.RestartCount = 1
		app.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.NewTime(noon.Add(-20 * time.Hour))}
	}
	return pod
}

// learnSettled adds two days of usage, of three pods that differ.
func (p *plant) learnSettled(vs *v1beta1.VerticalScaler) {
	p.t.Helper()
	if err := p.Histories.Load(p.t.Context(), vs, noon); err != nil {
		p.t.Fatal(err)
	}
	const minutes = 2 * 24 * 60
	p.Histories.With(p.key, func(histories history.Histories) {
		for minute := range minutes {
			at := noon.Add(time.Duration(minute-minutes) * time.Minute)
			for i, pod := range []string{"checkout-1-a", "checkout-1-b", "checkout-1-c"} {
				wave := int64((minute/60+8*i)%24) * 3
				histories.Add(usage.Sample{Container: "app", Pod: pod, Time: at, CPUMillis: 180 + wave, MemoryBytes: (380 + wave/2) * mebi}, p.Params.History)
				histories.Add(usage.Sample{Container: "log", Pod: pod, Time: at, CPUMillis: 5 + wave/9, MemoryBytes: (80 + wave/9) * mebi}, p.Params.History)
			}
		}
	})
}

// settle reconciles until nothing is written any more, and then reads from a real cache.
func (p *plant) settle(objects []client.Object) {
	p.t.Helper()
	p.actuates = true
	for version, resized := "", -1; resized < len(p.resized); {
		resized = len(p.resized)
		vs, _, err := p.reconcile()
		if err != nil {
			p.t.Fatal(err)
		}
		if vs.ResourceVersion != version {
			version, resized = vs.ResourceVersion, -1
		}
	}
	if len(p.resized) != 3 {
		p.t.Fatalf("resized %v, want each pod once", p.resized)
	}
	p.Client = p.cached(objects)
}

// cached is a client that reads from the cache of a manager, which holds what the server has, and that
// cannot write.
func (p *plant) cached(objects []client.Object) client.Client {
	p.t.Helper()
	for _, object := range objects {
		if err := p.server.Get(p.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
			p.t.Fatal(err)
		}
	}
	c := cached.Cache(p.t, p.server.Scheme(), inventory.Trim, func(c cache.Cache) (err error) {
		if p.Nodes, err = inventory.WatchNodes(p.t.Context(), c); err != nil {
			return err
		}
		return inventory.Index(p.t.Context(), c)
	}, objects...)
	p.Pods = c.Pods
	return cached.Client(p.t, p.server.Scheme(), c)
}
