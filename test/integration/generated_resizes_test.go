// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The plan predicts what the API server would reject, so that no request is sent for nothing. Here
// both judge the same random resizes of random pods under random LimitRanges. The resizes are always the
// same ones, so that a failure can be found again. Look for more with another seed:
//
//	VERTICALSCALER_TEST_SEED=N make test-integration ARGS='-run TestPredictedVerdicts'
//
// Most pods are created within the LimitRange. Some are older, and lack requests or limits: a resize would get them from the
// LimitRange.
func TestPredictedVerdictsOfResizes(t *testing.T) {
	const namespaces, older, pods, mostTries, resizes = 12, 4, 12, 1000, 4
	seed := uint64(1)
	if text := os.Getenv("VERTICALSCALER_TEST_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	must.Succeed(t, env.Node(t.Context(), testkit.NodeName))
	verdicts, judged := map[string]int{}, 0
	for n := range namespaces {
		r := rand.New(rand.NewPCG(seed, uint64(n)))
		namespace := env.Namespace(t)
		var running []*corev1.Pod
		old := rand.New(rand.NewPCG(seed, uint64(namespaces+n)))
		for len(running) < older {
			pod := randomPod(old, namespace, fmt.Sprintf("web-%d", len(running)))
			if err := env.Client.Create(t.Context(), pod); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			running = append(running, pod)
		}
		ranges := randomLimitRange(t, r, namespace)
		for tries := 0; len(running) < pods && tries < mostTries; tries++ { // hardly any pod may fit
			pod := randomPod(r, namespace, fmt.Sprintf("web-%d", len(running)))
			err := env.Client.Create(t.Context(), pod)
			switch {
			case err == nil:
				running = append(running, pod)
			case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
				t.Fatalf("seed %d: creating a pod within %+v: %v", seed, ranges.Spec.Limits, err)
			}
		}
		for _, pod := range running {
			for range resizes {
				resized := randomResize(r, pod)
				predicted := predictedVerdicts(pod, resized, ranges)
				answer := resized.DeepCopy()
				err := env.Client.SubResource("resize").Update(t.Context(), answer, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}})
				verdict := apierror.Of(err).Reason
				if err == nil && !equality.Semantic.DeepEqual(answer.Spec, resized.Spec) {
					verdict = addition
				}
				verdicts[verdict]++
				judged++
				isRight := predicted[verdict] || predicted[addition] && verdict != "" // one that adds may be refused for any reason
				if err != nil && verdict == "" || len(predicted) > 0 != (verdict != "") || verdict != "" && !isRight {
					t.Errorf("seed %d: predicted %v, the API server says %q: %v\n%s\nresized to\n%s\nwithin %+v", seed, predicted, verdict, err, shown(pod), shown(resized), ranges.Spec.Limits)
				}
			}
		}
	}
	t.Logf("seed %d: %d resizes, by verdict: %v", seed, judged, verdicts)
	for _, reason := range []string{"", addition, v1beta1.ReasonLimitRange, v1beta1.ReasonQoSChange} {
		if verdicts[reason] == 0 {
			t.Errorf("seed %d: no resize has the verdict %q", seed, reason)
		}
	}
}

// addition is the verdict on a resize that the API server adds to.
const addition = "adds"

// predictedVerdicts are the reasons for which the plan would not send the resize. The API server gives
// one of them.
func predictedVerdicts(pod, resized *corev1.Pod, ranges corev1.LimitRange) map[string]bool {
	before, after := workload.ReadPod(pod, true), workload.ReadPod(resized, true)
	predicted := map[string]bool{}
	if workload.QoSOf(before.Containers, before.Others) != workload.QoSOf(after.Containers, after.Others) {
		predicted[v1beta1.ReasonQoSChange] = true
	}
	var sizes []model.Size
	for _, c := range after.Containers {
		sizes = append(sizes, model.Size{Container: c.Name, Resources: c.Resources})
	}
	bounds := workload.ReadLimitRanges([]corev1.LimitRange{ranges})
	if goal.OutOfBounds(after.Footprint(), sizes, bounds).Exists() {
		predicted[v1beta1.ReasonLimitRange] = true
	}
	if f := after.Footprint(); !equality.Semantic.DeepEqual(f, f.With(bounds.Defaulted)) {
		predicted[addition] = true
	}
	return predicted
}

// randomPod has one to three containers, each with some of the requests and limits, and now and then
// native sidecars and other init containers in any order.
func randomPod(r *rand.Rand, namespace, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	guaranteed := r.IntN(4) == 0
	for i := range 1 + r.IntN(3) {
		c := corev1.Container{Name: fmt.Sprintf("c-%d", i), Image: "example.com/app:1", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{},
		}}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			amount := randomAmount(r, name)
			if guaranteed || r.IntN(5) > 0 {
				c.Resources.Requests[name] = amount
				if guaranteed {
					c.Resources.Limits[name] = amount
				} else if r.IntN(2) == 0 {
					c.Resources.Limits[name] = times(amount, 1+r.Int64N(3))
				}
			}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	for i := range max(0, r.IntN(6)-2) {
		c := corev1.Container{Name: fmt.Sprintf("init-%d", i), Image: "example.com/init:1", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{},
		}}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			// One without any would be refused: the LimitRange changes it from nil to empty, which the API
			// server takes for a resize that this node does not support.
			if guaranteed || name == corev1.ResourceCPU || r.IntN(3) > 0 {
				c.Resources.Requests[name] = randomAmount(r, name)
				c.Resources.Limits[name] = c.Resources.Requests[name]
			}
		}
		if r.IntN(2) == 0 {
			c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	pod.Spec.NodeName = testkit.NodeName
	return pod
}

// randomAmount is from 10m to 500m, or from 16Mi to 800Mi.
func randomAmount(r *rand.Rand, name corev1.ResourceName) resource.Quantity {
	step := 1 + r.Int64N(50)
	if name == corev1.ResourceCPU {
		return *resource.NewMilliQuantity(10*step, resource.DecimalSI)
	}
	return *resource.NewQuantity(16*step<<20, resource.BinarySI)
}

func times(q resource.Quantity, n int64) resource.Quantity {
	return *resource.NewMilliQuantity(n*q.MilliValue(), q.Format)
}

// randomResize changes some requests, and their limits by the same or another factor. It adds and
// removes none, and no limit is below its request, as in the plan's resizes.
func randomResize(r *rand.Rand, pod *corev1.Pod) *corev1.Pod {
	resized := pod.DeepCopy()
	for _, list := range [][]corev1.Container{resized.Spec.InitContainers, resized.Spec.Containers} {
		resizeSome(r, list)
	}
	return resized
}

func resizeSome(r *rand.Rand, containers []corev1.Container) {
	for i := range containers {
		if !workload.IsSidecar(&containers[i]) && strings.HasPrefix(containers[i].Name, "init-") {
			continue // no init container that ends is resized
		}
		resources := containers[i].Resources
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if _, ok := resources.Requests[name]; !ok || r.IntN(4) == 0 {
				continue
			}
			request := randomAmount(r, name)
			resources.Requests[name] = request
			if _, ok := resources.Limits[name]; ok {
				resources.Limits[name] = times(request, 1+r.Int64N(4)/2)
			}
		}
	}
}

// randomLimitRange creates bounds, and waits until the API server enforces them.
func randomLimitRange(t *testing.T, r *rand.Rand, namespace string) corev1.LimitRange {
	t.Helper()
	some := func(factor int64) corev1.ResourceList {
		list := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if r.IntN(3) == 0 {
				list[name] = times(randomAmount(r, name), factor)
			}
		}
		return list
	}
	limits := corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bounds"}}
	// Values that do not fit together are rejected: try again.
	for {
		container := corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, Min: some(1), Max: some(4), Default: some(3), MaxLimitRequestRatio: corev1.ResourceList{}}
		if r.IntN(3) == 0 {
			container.MaxLimitRequestRatio[corev1.ResourceCPU] = resource.MustParse([]string{"1", "1500m", "2"}[r.IntN(3)])
		}
		pod := corev1.LimitRangeItem{Type: corev1.LimitTypePod, Min: some(1), Max: some(5), MaxLimitRequestRatio: corev1.ResourceList{}}
		if r.IntN(3) == 0 {
			pod.MaxLimitRequestRatio[corev1.ResourceMemory] = resource.MustParse([]string{"1200m", "1500m", "2"}[r.IntN(3)])
		}
		limits.Spec.Limits = []corev1.LimitRangeItem{container, pod}
		limits.ResourceVersion = ""
		err := env.Client.Create(t.Context(), &limits)
		if err == nil {
			break
		}
		if !apierrors.IsInvalid(err) {
			t.Fatalf("creating a LimitRange: %v", err)
		}
	}
	// Another LimitRange marks that the first one is known: it is younger.
	mark := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mark"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypePersistentVolumeClaim, Max: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1")}},
	}}}
	env.Create(t, mark)
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "c"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(""),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2")}},
	}}
	testkit.Eventually(t, busy, func() string {
		if err := env.Client.Create(t.Context(), claim.DeepCopy(), client.DryRunAll); !apierrors.IsForbidden(err) {
			return fmt.Sprintf("the LimitRange is not enforced yet: %v", err)
		}
		return ""
	})
	return limits
}

// shown are the resources of the pod's containers.
func shown(pod *corev1.Pod) (out string) {
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		out += fmt.Sprintf("%s: requests %s %s, limits %s %s\n", c.Name, c.Resources.Requests.Cpu(), c.Resources.Requests.Memory(), c.Resources.Limits.Cpu(), c.Resources.Limits.Memory())
	}
	return out
}
