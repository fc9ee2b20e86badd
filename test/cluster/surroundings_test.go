// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
)

const resizeAnnotation = "kwok.verticalscaler.io/resize"

func TestADeferredResizeIsNotRequestedAgain(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	for verdict, reason := range map[string]string{"deferred": "Deferred", "infeasible": "Infeasible"} {
		asked := map[string]int{"deferred": 1, "infeasible": 3}[verdict] // the others wait for what is deferred
		t.Run(verdict, func(t *testing.T) {
			t.Parallel()
			w := newFixture(t)
			w.deploy("web")
			held := w.pods("web")[0]
			w.annotate(&held, resizeAnnotation, verdict)
			w.uses("web", "app", 300, 240)
			w.scale("web")
			w.says("web", "Applied", "False", reason, held.Name, "room")
			stalled := map[string]string{"deferred": "False", "infeasible": "True"}[verdict]
			w.eventually(func() string {
				if c := w.condition("web", "Stalled"); string(c.Status) != stalled {
					return "Stalled is " + string(c.Status)
				}
				return ""
			})
			if verdict == "infeasible" {
				w.atSize("web", "330m", held.Name)
			}
			w.rounds(20)
			if n := count(w.writes(w.began), "pods/resize"); len(n) != asked || total(n) != asked {
				t.Errorf("resizes by pod: %v", n)
			}
			w.annotate(&held, resizeAnnotation, "")
			w.sized("web")
			w.says("web", "Ready", "True", "OperatingNormally")
			if n := count(w.writes(w.began), "pods/resize"); total(n) != 3 {
				t.Errorf("resizes by pod: %v", n)
			}
		})
	}
}

// atSize waits until the kubelet reports at least that much CPU for the pods, except those
// named.
func (w *fixture) atSize(name, cpu string, but ...string) {
	w.Helper()
	w.eventually(func() string {
		for _, pod := range w.pods(name) {
			excepted := false
			for _, b := range but {
				excepted = excepted || b == pod.Name
			}
			if got := actual(pod, "app").Requests.Cpu(); !excepted && got.Cmp(resource.MustParse(cpu)) < 0 {
				return "pod " + pod.Name + " has " + got.String()
			}
		}
		return ""
	})
}

func TestARequestAboveTheNodeIsReportedAndBlocksNoOtherPod(t *testing.T) {
	t.Parallel()
	env.NeedKwok(t)
	w := newFixture(t)
	w.node("small-"+w.namespace, "1")
	w.node("large-"+w.namespace, "8")
	w.deploy("web", func(d *appsv1.Deployment) {
		d.Spec.Replicas = ptr.To(int32(2))
		spec := &d.Spec.Template.Spec
		spec.NodeSelector = map[string]string{"test": w.namespace}
		spec.Tolerations = []corev1.Toleration{{Key: "test", Operator: corev1.TolerationOpExists}}
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: d.Spec.Selector,
		}}
	})
	w.uses("web", "app", 2000, 240)
	w.deploy("other")
	w.uses("other", "app", 300, 240)
	small := ""
	for _, pod := range w.pods("web") {
		if strings.HasPrefix(pod.Spec.NodeName, "small-") {
			small = pod.Name
		}
	}
	w.scale("web")
	w.scale("other")
	w.says("web", "Applied", "False", "NodeCapacity", small)
	w.says("web", "Stalled", "True", "NodeCapacity")
	w.says("web", "Ready", "False", "NodeCapacity")
	w.atSize("web", "2200m", small)
	w.sized("other")
	w.rounds(20)
	// The complete resize was rejected, the resize of memory was not.
	n := count(w.writes(w.began), "pods/resize")
	if n[small] != 2 {
		t.Errorf("pod %s was resized %d times, want once completely and once for memory", small, n[small])
	}
	for _, pod := range w.pods("web") {
		requests, decided := pod.Spec.Containers[0].Resources.Requests, w.scaler("web").Status.Decision.Containers[0].Requests
		if pod.Name == small && (requests.Cpu().String() != "100m" || !requests.Memory().Equal(*decided.Memory)) {
			t.Errorf("pod %s has %v, not its own CPU and the decided memory of %v", small, requests, decided)
		}
	}
	w.noted(w.scaler("web").UID, "Blocked", "NodeCapacity")

	// The user's remedy takes effect at once.
	w.patch(w.scaler("web"), `{"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"*","maxAllowed":{"cpu":"500m"}}]}}}`)
	requests := w.sized("web")
	if got := requests.Cpu().String(); got != "500m" {
		t.Errorf("cpu is %s", got)
	}
}

// node creates a node for the test, simulated by kwok, and waits until the scheduler may use it.
func (w *fixture) node(name, cpu string) {
	w.Helper()
	room := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			Labels:      map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", "test": w.namespace},
		},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: "test", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
	w.create(node)
	w.Cleanup(func() {
		if err := env.Client.Delete(context.Background(), node); err != nil {
			w.Logf("deleting node %s: %v", name, err)
		}
	})
	w.eventually(func() string {
		var now corev1.Node
		if err := env.Client.Get(w.Context(), client.ObjectKeyFromObject(node), &now); err != nil {
			return err.Error()
		}
		for _, taint := range now.Spec.Taints {
			if taint.Key != "test" {
				return "node " + name + " has the taint " + taint.Key
			}
		}
		return ""
	})
}

func TestAQuotaIsRespectedAndUsedWhenRaised(t *testing.T) {
	t.Parallel()
	w := newFixture(t) // its resync period is too long to help
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "team"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": resource.MustParse("660m")}},
	}
	w.create(quota)
	w.deploy("web")
	w.counts(quota, "requests.cpu", "360m") // with 20m for each sidecar
	w.uses("web", "app", 300, 240)
	w.scale("web") // one pod of three fits: about 345m, 100m and 100m
	w.says("web", "Applied", "False", "QuotaExceeded", "team", "660m of requests.cpu", "are used")
	w.says("web", "Stalled", "True", "QuotaExceeded")

	// Their memory is not affected by the quota.
	w.eventually(func() string {
		for _, pod := range w.pods("web") {
			if now := actual(pod, "app").Requests.Memory(); now.Cmp(resource.MustParse("276Mi")) < 0 {
				return "pod " + pod.Name + " has " + now.String() + " of memory"
			}
		}
		return ""
	})
	w.rounds(60)
	var refused []string
	for _, write := range w.writes(w.began) {
		if write.Resource == "pods/resize" && write.Code == 403 {
			refused = append(refused, fmt.Sprint(write))
		}
	}
	if len(refused) > 1 { // Watches lag: the use of the quota may be seen late, once.
		t.Errorf("requested and rejected: %s", refused)
	}
	grown := 0
	for _, pod := range w.pods("web") {
		if actual(pod, "app").Requests.Cpu().String() != "100m" {
			grown++
		}
	}
	if grown != 1 {
		t.Errorf("%d pods have grown: the quota has room for one", grown)
	}

	w.patch(quota, `{"spec":{"hard":{"requests.cpu":"2"}}}`)
	w.sized("web")
	w.says("web", "Ready", "True", "OperatingNormally")
}

// counts waits until the quota reports that usage.
func (w *fixture) counts(quota *corev1.ResourceQuota, key corev1.ResourceName, want string) {
	w.Helper()
	w.eventually(func() string {
		if err := env.Client.Get(w.Context(), w.key(quota.Name), quota); err != nil {
			return err.Error()
		}
		if used := quota.Status.Used[key]; used.String() != want {
			return "the quota counts " + used.String()
		}
		return ""
	})
}

func TestARolloutThatExceedsAQuotaDoesNotBegin(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "team"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests.cpu": resource.MustParse("560m")}},
	}
	w.create(quota)
	before := w.deploy("web") // three pods, none of which may stop before the first new one is ready
	w.counts(quota, "requests.cpu", "360m")
	w.uses("web", "app", 300, 240)
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRollout })
	w.says("web", "Applied", "False", "QuotaExceeded", "team", "560m of requests.cpu", "first new pod")
	w.rounds(20)
	if now := w.deployment("web"); now.Generation != before.Generation {
		t.Errorf("the template was written: generation %d, was %d", now.Generation, before.Generation)
	}
	w.patch(quota, `{"spec":{"hard":{"requests.cpu":"2"}}}`)
	w.says("web", "Applied", "True", "Applied")
	w.runs("web")
}

// A LimitRange of pods counts native sidecars, those of the template and injected ones. With the strategy
// Recreate, a rollout whose pods it refuses would leave no pod at all.
func TestARolloutThatALimitRangeWouldRefuseForItsSidecarDoesNotBegin(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	bounds := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "bounds"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypePod, Max: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}},
	}
	w.create(bounds)
	before := w.deploy("web", func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		sidecar := testkit.Container("sidecar")
		sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		sidecar.Resources.Requests["cpu"], sidecar.Resources.Limits["cpu"] = resource.MustParse("500m"), resource.MustParse("500m")
		d.Spec.Template.Spec.InitContainers = []corev1.Container{sidecar}
	})
	w.uses("web", "app", 350, 240)
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRollout })
	w.says("web", "Applied", "False", "LimitRange", "bounds", "a pod at most 1000m of cpu")
	w.rounds(20)
	if now := w.deployment("web"); now.Generation != before.Generation || now.Status.AvailableReplicas != 3 {
		t.Errorf("the template was written (generation %d, was %d), and %d of 3 pods are available", now.Generation, before.Generation, now.Status.AvailableReplicas)
	}
	w.patch(bounds, `{"spec":{"limits":[{"type":"Pod","max":{"cpu":"3"}}]}}`)
	w.says("web", "Applied", "True", "Applied")
	w.runs("web")
}

func TestLimitsGetTheirHeadroom(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.create(&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "bounds"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: corev1.ResourceList{"cpu": resource.MustParse("2.5")},
		}}},
	})
	w.deploy("web")
	w.uses("web", "app", 200, 240)
	w.scale("web", func(s *v1beta1.VerticalScaler) {
		s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
			ContainerName: "*",
			Limits: &v1beta1.LimitPolicy{
				HeadroomPercent: &v1beta1.ResourcePercents{CPU: ptr.To[int32](400), Memory: ptr.To[int32](25)},
				MaxAllowed:      &v1beta1.ResourceBounds{Memory: ptr.To(resource.MustParse("400Mi"))},
			},
		}}}
	})
	w.sized("web")
	w.eventually(func() string {
		for _, pod := range w.pods("web") {
			r := actual(pod, "app")
			cpu, memory := r.Requests.Cpu().MilliValue(), r.Requests.Memory().Value()
			wantMemory := min((memory*125+99)/100, 400*mebi) // 25 % above the request, and no more than 400Mi
			if r.Limits.Cpu().MilliValue() != cpu*5/2 || r.Limits.Memory().Value() != wantMemory {
				return fmt.Sprintf("pod %s has %s of %s and %s of %s", pod.Name, r.Requests.Cpu(), r.Limits.Cpu(), r.Requests.Memory(), r.Limits.Memory())
			}
		}
		return ""
	})
	for _, write := range w.writes(w.began) {
		if write.Resource == "pods/resize" && write.Code >= 400 && write.Code != 409 {
			t.Errorf("refused: %s", write)
		}
	}
}

func TestChangesWaitForTheirWindow(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	w.uses("web", "app", 92, 90) // slightly above the request with its margin, so not urgent
	far := time.Now().UTC().Add(12 * time.Hour)
	w.scale("web", func(s *v1beta1.VerticalScaler) {
		s.Spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{SafetyMarginPercent: ptr.To[int32](15)}
		s.Spec.UpdatePolicy.CooldownSeconds = ptr.To[int32](0)
		s.Spec.UpdatePolicy.TolerancePercent = ptr.To[int32](0)
		s.Spec.UpdatePolicy.Windows = []v1beta1.UpdateWindow{{
			Schedule: fmt.Sprintf("0 %d * * *", far.Hour()), TimeZone: "UTC", DurationMinutes: 60,
		}}
	})
	w.says("web", "Applied", "False", "OutsideWindow", "updatePolicy.windows")
	w.says("web", "Ready", "True", "OperatingNormally")
	w.rounds(20)
	if n := count(w.writes(w.began), "pods/resize"); total(n) != 0 {
		t.Errorf("resizes by pod outside of the window: %v", n)
	}
	w.patch(w.scaler("web"), `{"spec":{"updatePolicy":{"windows":[{"schedule":"* * * * *","durationMinutes":10}]}}}`)
	w.sized("web")
	w.says("web", "Applied", "True", "Applied")

	// The operator reports an error that the schema cannot detect. It does not delay urgent changes.
	w.patch(w.scaler("web"), `{"spec":{"updatePolicy":{"windows":[{"schedule":"0 0 30 2 *","durationMinutes":10}]}}}`)
	w.says("web", "Stalled", "True", "InvalidWindow", "windows[0]", "no year has")
	w.uses("web", "app", 600, 240)
	w.atSize("web", "600m")
}

func TestSizesFitALimitRangeBeforeTheyAreRequested(t *testing.T) {
	t.Parallel()
	limits := func(w *fixture, cpu, memory string) *corev1.LimitRange {
		return &corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "bounds"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer,
				Max:  corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)},
			}}},
		}
	}
	fits := func(w *fixture, cpu, memory string) {
		w.Helper()
		w.eventually(func() string {
			for _, pod := range w.pods("web") {
				r := actual(pod, "app")
				if r.Limits.Cpu().String() != cpu || r.Limits.Memory().Cmp(resource.MustParse(memory)) > 0 {
					return "pod " + pod.Name + " has limits of " + r.Limits.Cpu().String() + " and " + r.Limits.Memory().String()
				}
			}
			return ""
		})
		for _, write := range w.writes(w.began) {
			if write.Resource == "pods/resize" && write.Code >= 400 && write.Code != 409 {
				w.Errorf("refused: %s", write)
			}
		}
	}
	t.Run("which exists before", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.create(limits(w, "500m", "512Mi"))
		w.deploy("web")
		w.uses("web", "app", 300, 200)
		w.scale("web")
		w.sized("web")
		fits(w, "500m", "512Mi")
	})
	t.Run("which is created later", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.deploy("web")
		w.uses("web", "app", 300, 200)
		w.scale("web")
		w.sized("web")
		w.create(limits(w, "300m", "1Gi"))
		fits(w, "300m", "1Gi")
	})
	t.Run("which is below the recommendation", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.create(limits(w, "250m", "1Gi"))
		w.deploy("web")
		w.uses("web", "app", 600, 200)
		w.scale("web")
		fits(w, "250m", "1Gi")
		w.sized("web")
	})
	t.Run("which would make requests equal to limits, and so the pods Guaranteed", func(t *testing.T) {
		t.Parallel()
		w := newFixture(t)
		w.create(limits(w, "500m", "512Mi"))
		w.deploy("web", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("512Mi")
		})
		w.uses("web", "app", 700, 480)
		w.scale("web")
		fits(w, "500m", "512Mi")
		w.says("web", "Applied", "True", "Applied")
		for _, pod := range w.pods("web") {
			now := actual(pod, "app").Requests
			w.between("cpu", *now.Cpu(), "490m", "500m")
			w.between("memory", *now.Memory(), "500Mi", "512Mi")
			if pod.Status.QOSClass != corev1.PodQOSBurstable {
				t.Errorf("pod %s is %s", pod.Name, pod.Status.QOSClass)
			}
		}
	})
}

func TestAnHPAKeepsItsResource(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.deploy("web")
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "load"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    ptr.To(int32(3)), MaxReplicas: 5,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name: "cpu", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To(int32(80))},
			}}},
		},
	}
	w.create(hpa)
	w.uses("web", "app", 300, 240)
	w.scale("web")
	w.says("web", "Applied", "True", "HPAConflict", "load", "cpu")
	w.eventually(func() string {
		for _, pod := range w.pods("web") {
			now := actual(pod, "app").Requests
			if now.Cpu().String() != "100m" {
				t.Fatalf("pod %s has %s of cpu", pod.Name, now.Cpu())
			}
			if now.Memory().Cmp(resource.MustParse("276Mi")) < 0 {
				return "pod " + pod.Name + " has " + now.Memory().String()
			}
		}
		return ""
	})
	w.says("web", "Ready", "True", "OperatingNormally")
	w.remove(hpa)
	requests := w.sized("web")
	w.between("cpu", *requests.Cpu(), "330m", "380m")
}
