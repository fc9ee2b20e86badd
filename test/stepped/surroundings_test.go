// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package stepped

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

func TestADeferredResizeIsNotRequestedAgain(t *testing.T) {
	t.Parallel()
	for answer, reason := range map[world.Answer]string{world.Deferred: "Deferred", world.Infeasible: "Infeasible"} {
		asked := map[world.Answer]int{world.Deferred: 1, world.Infeasible: 3}[answer] // the others wait for what is deferred
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			w := newServed(t)
			w.deploy("web")
			held := w.Pods("web")[0]
			w.Kubelet.Script("web", w.Kubelet.Ordinal(&held), answer)
			w.Uses("web", "app", 300, 240)
			w.scale("web")
			w.Says("web", "Applied", "False", reason, held.Name, "room")
			stalled := map[world.Answer]string{world.Deferred: "False", world.Infeasible: "True"}[answer]
			if got := w.Condition("web", "Stalled").Status; string(got) != stalled {
				t.Errorf("Stalled is %s", got)
			}
			if answer == world.Infeasible {
				w.atSize("web", "330m", held.Name)
			}
			w.Minutes(5) // less than a resize may be pending
			if n := count(w.Writes(), "pods/resize"); len(n) != asked || total(n) != asked {
				t.Errorf("resizes by pod: %v", n)
			}
			w.Kubelet.Script("web", w.Kubelet.Ordinal(&held), world.Actuates)
			w.Sized("web")
			w.Says("web", "Ready", "True", "OperatingNormally")
			if n := count(w.Writes(), "pods/resize"); total(n) != 3 {
				t.Errorf("resizes by pod: %v", n)
			}
		})
	}
}

// atSize lets minutes pass until the kubelet reports at least that much CPU for the pods of an app, except those named.
func (w *fixture) atSize(app, cpu string, but ...string) {
	w.Helper()
	w.eventually(func() string {
		for _, pod := range w.Pods(app) {
			if got := world.Actual(&pod, "app").Requests.Cpu(); !slices.Contains(but, pod.Name) && got.Cmp(resource.MustParse(cpu)) < 0 {
				return "pod " + pod.Name + " has " + got.String()
			}
		}
		return ""
	})
}

func TestARequestAboveTheNodeIsReportedAndBlocksNoOtherPod(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	nodes := []string{w.node("small", "1"), w.node("large", "8")}
	w.Kubelet.Place = func(pod *corev1.Pod) string { return nodes[w.Kubelet.Ordinal(pod)%len(nodes)] }
	w.deploy("web", func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](2) })
	w.Uses("web", "app", 2000, 240)
	w.deploy("other")
	w.Uses("other", "app", 300, 240)
	small := ""
	for _, pod := range w.Pods("web") {
		if pod.Spec.NodeName == nodes[0] {
			small = pod.Name
		}
	}
	w.scale("web")
	w.scale("other")
	w.Says("web", "Applied", "False", "NodeCapacity", small)
	w.Says("web", "Stalled", "True", "NodeCapacity")
	w.Says("web", "Ready", "False", "NodeCapacity")
	w.atSize("web", "2200m", small)
	w.Sized("other")
	w.Minutes(5) // less than the resync period
	// The complete resize was rejected, the resize of memory was not.
	n := count(w.Writes(), "pods/resize")
	if n[small] != 2 {
		t.Errorf("pod %s was resized %d times, want once completely and once for memory", small, n[small])
	}
	for _, pod := range w.Pods("web") {
		requests, decided := pod.Spec.Containers[0].Resources.Requests, w.Scaler("web").Status.Decision.Containers[0].Requests
		if pod.Name == small && (requests.Cpu().String() != "100m" || !requests.Memory().Equal(*decided.Memory)) {
			t.Errorf("pod %s has %v, not its own CPU and the decided memory of %v", small, requests, decided)
		}
	}
	w.Noted(w.Scaler("web").UID, "Blocked", "NodeCapacity")

	// The user's remedy takes effect at once.
	w.Patch(w.Scaler("web"), `{"spec":{"resourcePolicy":{"containerPolicies":[{"containerName":"*","maxAllowed":{"cpu":"500m"}}]}}}`)
	requests := w.Sized("web")
	if got := requests.Cpu().String(); got != "500m" {
		t.Errorf("cpu is %s", got)
	}
}

// node creates a node and returns its name.
func (w *fixture) node(name, cpu string) string {
	w.Helper()
	room := corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("16Gi"), "pods": resource.MustParse("110")}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-" + w.Namespace, Labels: map[string]string{corev1.LabelOSStable: "linux"}},
		Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
	}
	w.Create(node)
	return node.Name
}

func TestAQuotaIsRespectedAndUsedWhenRaised(t *testing.T) {
	t.Parallel()
	w := newServed(t) // its resync period is too long to help
	w.quota("660m")
	w.deploy("web") // its pods count with 360m: 20m are for each sidecar
	w.Uses("web", "app", 300, 240)
	w.scale("web") // one pod of three fits: about 345m, 100m and 100m
	w.Says("web", "Applied", "False", "QuotaExceeded", "team", "660m of requests.cpu", "are used")
	w.Says("web", "Stalled", "True", "QuotaExceeded")

	// Their memory is not affected by the quota.
	w.eventually(func() string {
		for _, pod := range w.Pods("web") {
			if now := world.Actual(&pod, "app").Requests.Memory(); now.Cmp(resource.MustParse("276Mi")) < 0 {
				return "pod " + pod.Name + " has " + now.String() + " of memory"
			}
		}
		return ""
	})
	w.Minutes(20)
	w.noneRefused()
	grown := 0
	for _, pod := range w.Pods("web") {
		if world.Actual(&pod, "app").Requests.Cpu().String() != "100m" {
			grown++
		}
	}
	if grown != 1 {
		t.Errorf("%d pods have grown: the quota has room for one", grown)
	}

	w.quota("2")
	w.Sized("web")
	w.Says("web", "Ready", "True", "OperatingNormally")
}

// quota creates the quota "team" of CPU requests, or changes it. The API server counts what is added by itself.
func (w *fixture) quota(cpu string) {
	w.Helper()
	hard := corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse(cpu)}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "team"}}
	if _, err := controllerutil.CreateOrUpdate(w.t.Context(), env.Client, quota, func() error { quota.Spec.Hard = hard; return nil }); err != nil {
		w.Fatal(err)
	}
	quota.Status.Hard = hard
	if quota.Status.Used == nil {
		quota.Status.Used = corev1.ResourceList{corev1.ResourceRequestsCPU: resource.MustParse("0")}
	}
	if err := env.Client.Status().Update(w.t.Context(), quota); err != nil {
		w.Fatal(err)
	}
	w.enforced("limited: requests.cpu=" + cpu)
}

// enforced waits until the API server, which reads quotas and LimitRanges from a cache, refuses an enormous pod with these
// words.
func (w *fixture) enforced(words string) {
	w.Helper()
	enormous := testkit.Container("app")
	enormous.Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100"), "memory": resource.MustParse("100Gi")}
	enormous.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("300"), "memory": resource.MustParse("300Gi")}
	testkit.Eventually(w.t, time.Minute, func() string {
		err := env.Client.Create(w.t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "enormous"}, Spec: corev1.PodSpec{Containers: []corev1.Container{enormous}},
		}, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), words) {
			return fmt.Sprintf("an enormous pod is answered with %v, without %q", err, words)
		}
		return ""
	})
}

// noneRefused fails the test for each resize that was refused.
func (w *fixture) noneRefused() {
	w.Helper()
	for _, write := range w.Writes() {
		if write.Resource == "pods/resize" && write.Err != nil {
			w.Errorf("refused: %s", write)
		}
	}
}

func TestARolloutThatExceedsAQuotaDoesNotBegin(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.quota("560m")
	before := w.deploy("web") // three pods, none of which may stop before the first new one is ready
	w.Uses("web", "app", 300, 240)
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRollout })
	w.Says("web", "Applied", "False", "QuotaExceeded", "team", "560m of requests.cpu", "first new pod")
	w.Minutes(20)
	if now := w.Deployment("web"); now.Generation != before.Generation {
		t.Errorf("the template was written: generation %d, was %d", now.Generation, before.Generation)
	}
	w.quota("2")
	w.Says("web", "Applied", "True", "Applied")
	w.runs("web")
}

// A LimitRange of pods counts native sidecars, those of the template and injected ones. With the strategy
// Recreate, a rollout whose pods it refuses would leave no pod at all.
func TestARolloutThatALimitRangeWouldRefuseForItsSidecarDoesNotBegin(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	bounds := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "bounds"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypePod, Max: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}},
	}
	w.create(bounds)
	w.enforced("maximum cpu usage per Pod is 1,")
	before := w.deploy("web", func(d *appsv1.Deployment) {
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
		sidecar := testkit.Container("sidecar")
		sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		sidecar.Resources.Requests["cpu"], sidecar.Resources.Limits["cpu"] = resource.MustParse("500m"), resource.MustParse("500m")
		d.Spec.Template.Spec.InitContainers = []corev1.Container{sidecar}
	})
	w.Uses("web", "app", 350, 240)
	w.scale("web", func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.UpdateMode = v1beta1.UpdateModeRollout })
	w.Says("web", "Applied", "False", "LimitRange", "bounds", "a pod at most 1000m of cpu")
	w.Minutes(20)
	if now := w.Deployment("web"); now.Generation != before.Generation || now.Status.AvailableReplicas != 3 {
		t.Errorf("the template was written (generation %d, was %d), and %d of 3 pods are available", now.Generation, before.Generation, now.Status.AvailableReplicas)
	}
	w.Patch(bounds, `{"spec":{"limits":[{"type":"Pod","max":{"cpu":"3"}}]}}`)
	w.enforced("maximum cpu usage per Pod is 3,")
	w.Says("web", "Applied", "True", "Applied")
	w.runs("web")
}

func TestLimitsGetTheirHeadroom(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.create(&corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "bounds"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, MaxLimitRequestRatio: corev1.ResourceList{"cpu": resource.MustParse("2.5")},
		}}},
	})
	w.enforced("ratio per Container is 2")
	w.deploy("web")
	w.Uses("web", "app", 200, 240)
	w.scale("web", func(s *v1beta1.VerticalScaler) {
		s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
			ContainerName: "*",
			Limits: &v1beta1.LimitPolicy{
				HeadroomPercent: &v1beta1.ResourcePercents{CPU: ptr.To[int32](400), Memory: ptr.To[int32](25)},
				MaxAllowed:      &v1beta1.ResourceBounds{Memory: ptr.To(resource.MustParse("400Mi"))},
			},
		}}}
	})
	w.Sized("web")
	w.eventually(func() string {
		for _, pod := range w.Pods("web") {
			r := world.Actual(&pod, "app")
			cpu, memory := r.Requests.Cpu().MilliValue(), r.Requests.Memory().Value()
			wantMemory := min((memory*125+99)/100, 400<<20) // 25 % above the request, and no more than 400Mi
			if r.Limits.Cpu().MilliValue() != cpu*5/2 || r.Limits.Memory().Value() != wantMemory {
				return fmt.Sprintf("pod %s has %s of %s and %s of %s", pod.Name, r.Requests.Cpu(), r.Limits.Cpu(), r.Requests.Memory(), r.Limits.Memory())
			}
		}
		return ""
	})
	w.noneRefused()
}

func TestChangesWaitForTheirWindow(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	w.deploy("web")
	w.Uses("web", "app", 92, 90) // slightly above the request with its margin, so not urgent
	far := w.Clock.Now().UTC().Add(12 * time.Hour)
	w.scale("web", func(s *v1beta1.VerticalScaler) {
		s.Spec.RecommendationPolicy = &v1beta1.RecommendationPolicy{SafetyMarginPercent: ptr.To[int32](15)}
		s.Spec.UpdatePolicy.CooldownSeconds = ptr.To[int32](0)
		s.Spec.UpdatePolicy.TolerancePercent = ptr.To[int32](0)
		s.Spec.UpdatePolicy.Windows = []v1beta1.UpdateWindow{{
			Schedule: fmt.Sprintf("0 %d * * *", far.Hour()), TimeZone: "UTC", DurationMinutes: 60,
		}}
	})
	w.Says("web", "Applied", "False", "OutsideWindow", "updatePolicy.windows")
	w.Says("web", "Ready", "True", "OperatingNormally")
	w.Minutes(20)
	if n := count(w.Writes(), "pods/resize"); total(n) != 0 {
		t.Errorf("resizes by pod outside of the window: %v", n)
	}
	w.Patch(w.Scaler("web"), `{"spec":{"updatePolicy":{"windows":[{"schedule":"* * * * *","durationMinutes":10}]}}}`)
	w.Sized("web")
	w.Says("web", "Applied", "True", "Applied")

	// The operator reports an error that the schema cannot detect. It does not delay urgent changes.
	w.Patch(w.Scaler("web"), `{"spec":{"updatePolicy":{"windows":[{"schedule":"0 0 30 2 *","durationMinutes":10}]}}}`)
	w.Says("web", "Stalled", "True", "InvalidWindow", "windows[0]", "no year has")
	w.Uses("web", "app", 600, 240)
	w.atSize("web", "600m")
}

func TestSizesFitALimitRangeBeforeTheyAreRequested(t *testing.T) {
	t.Parallel()
	limits := func(w *fixture, cpu, memory string) {
		w.Helper()
		w.create(&corev1.LimitRange{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "bounds"},
			Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
				Type: corev1.LimitTypeContainer,
				Max:  corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)},
			}}},
		})
		w.enforced("maximum cpu usage per Container is " + cpu)
	}
	fits := func(w *fixture, cpu, memory string) {
		w.Helper()
		w.eventually(func() string {
			for _, pod := range w.Pods("web") {
				r := world.Actual(&pod, "app")
				if r.Limits.Cpu().String() != cpu || r.Limits.Memory().Cmp(resource.MustParse(memory)) > 0 {
					return "pod " + pod.Name + " has limits of " + r.Limits.Cpu().String() + " and " + r.Limits.Memory().String()
				}
			}
			return ""
		})
		w.noneRefused()
	}
	t.Run("which exists before", func(t *testing.T) {
		t.Parallel()
		w := newServed(t)
		limits(w, "500m", "512Mi")
		w.deploy("web")
		w.Uses("web", "app", 300, 200)
		w.scale("web")
		w.Sized("web")
		fits(w, "500m", "512Mi")
	})
	t.Run("which is created later", func(t *testing.T) {
		t.Parallel()
		w := newServed(t)
		w.deploy("web")
		w.Uses("web", "app", 300, 200)
		w.scale("web")
		w.Sized("web")
		limits(w, "300m", "1Gi")
		fits(w, "300m", "1Gi")
	})
	t.Run("which is below the recommendation", func(t *testing.T) {
		t.Parallel()
		w := newServed(t)
		limits(w, "250m", "1Gi")
		w.deploy("web")
		w.Uses("web", "app", 600, 200)
		w.scale("web")
		fits(w, "250m", "1Gi")
		w.Sized("web")
	})
	t.Run("which would make requests equal to limits, and so the pods Guaranteed", func(t *testing.T) {
		t.Parallel()
		w := newServed(t)
		limits(w, "500m", "512Mi")
		w.deploy("web", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory] = resource.MustParse("512Mi")
		})
		w.Uses("web", "app", 700, 480)
		w.scale("web")
		fits(w, "500m", "512Mi")
		w.Says("web", "Applied", "True", "Applied")
		for _, pod := range w.Pods("web") {
			now := world.Actual(&pod, "app").Requests
			w.Between("cpu", *now.Cpu(), "490m", "500m")
			w.Between("memory", *now.Memory(), "500Mi", "512Mi")
			if pod.Status.QOSClass != corev1.PodQOSBurstable {
				t.Errorf("pod %s is %s", pod.Name, pod.Status.QOSClass)
			}
		}
	})
}
