// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// shapes are amounts as users write them; empty for none. An amount of 256m of memory is a quarter of a byte.
var shapes = []string{"", "0", "256m", "0.1", "1", "1e3", "100Mi", "1e9", "1Pi"}

// A container with any pair of a request and a limit, for both resources, ends with what usage needs, and in place in its QoS
// class. No limit is raised further than without maxAllowed. The result does not depend on earlier decisions.
func TestAnyAmountsOfATemplate(t *testing.T) {
	var pairs [][2]string
	n := 0
	for _, request := range shapes {
		for _, limit := range shapes {
			pairs = append(pairs, [2]string{request, limit})
		}
	}
	for _, cpu := range pairs {
		for _, memory := range pairs {
			for i, follows := range []bool{true, false, true, false} {
				mode := []v1beta1.UpdateMode{"InPlace", "Rollout"}[i/2]
				if n++; mode == "Rollout" && n%stride() != 0 {
					continue
				}
				r := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
				for name, pair := range map[corev1.ResourceName][2]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
					put(r.Requests, name, pair[0])
					put(r.Limits, name, pair[1])
				}
				if isAccepted(r, corev1.ResourceCPU) && isAccepted(r, corev1.ResourceMemory) {
					checkAmounts(t, fmt.Sprintf("%s, cpu %q memory %q, limits follow: %t", mode, cpu, memory, follows), r, mode, follows)
				}
			}
		}
	}
}

// isAccepted reports whether the API server accepts the amounts of a resource.
func isAccepted(r corev1.ResourceRequirements, name corev1.ResourceName) bool {
	request, limit := r.Requests[name], r.Limits[name]
	_, isLimited := r.Limits[name]
	return !isLimited || request.Cmp(limit) <= 0
}

// put adds an amount. Of CPU, mebibytes are thousandths.
func put(list corev1.ResourceList, name corev1.ResourceName, text string) {
	if text == "" {
		return
	}
	if cpu, ok := map[string]string{"100Mi": "100m", "1e9": "8", "1Pi": "10000", "256m": "256u"}[text]; ok && name == corev1.ResourceCPU {
		text = cpu
	}
	list[name] = resource.MustParse(text)
}

func checkAmounts(t *testing.T, what string, r corev1.ResourceRequirements, mode v1beta1.UpdateMode, follows bool) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Fatal(what)
		}
	}()
	const usedCPU, usedMemory = 80, 120 * mebi
	low := rec(amounts(90, 140), amounts(80, 120), amounts(100, 160))
	high := rec(amounts(900, 1400), amounts(800, 1200), amounts(1000, 1600))
	fresh := newAmounts(r, mode, follows)
	before := qosByTheAPI(fresh.pod)
	fresh.decide(t, low)
	turned := newAmounts(r, mode, follows)
	turned.decide(t, low)
	turned.decide(t, high)
	turned.decide(t, low)
	for _, a := range []*amountsWorld{fresh, turned} {
		c := a.pod.Spec.Containers[0].Resources
		if after := qosByTheAPI(a.pod); mode == "InPlace" && after != before { // new pods may have another class
			t.Errorf("the QoS class was %s, and is %s: %v", before, after, c)
		}
		if limit, ok := c.Limits[corev1.ResourceCPU]; follows && ok && !limit.IsZero() && limit.MilliValue() < usedCPU {
			t.Errorf("the CPU limit is %s", &limit)
		}
		if limit, ok := c.Limits[corev1.ResourceMemory]; follows && ok && !limit.IsZero() && limit.Value() < usedMemory {
			t.Errorf("the memory limit is %s", &limit)
		}
	}
	for name, least := range map[corev1.ResourceName]float64{corev1.ResourceCPU: 1, corev1.ResourceMemory: 1 << 30} {
		request, isSet := r.Requests[name]
		user, limit, now := r.Limits[name], turned.pod.Spec.Containers[0].Resources.Limits[name], turned.pod.Spec.Containers[0].Resources.Requests[name]
		if most := max(least, leash*max(request.AsApproximateFloat64(), user.AsApproximateFloat64())); limit.AsApproximateFloat64() > most {
			t.Errorf("beside a request of %s, the %s limit of %s becomes %s", &request, name, &user, &limit)
		}
		isNothing := isSet && (request.IsZero() || request.MilliValue() <= 1 || name == corev1.ResourceMemory && request.Value() <= 1)
		if follows && isNothing && turned.last.Verdict.State.IsApplied() && !user.IsZero() && limit.Cmp(user) != 0 && !isNext(name, limit, now) {
			t.Errorf("beside a request of %s, the %s limit of %s becomes %s", &request, name, &user, &limit)
		}
	}
	if a, b := fresh.last, turned.last; a.Verdict.State.IsApplied() && b.Verdict.State.IsApplied() {
		freshly, later := fresh.pod.Spec.Containers[0].Resources, turned.pod.Spec.Containers[0].Resources
		if got, want := sayList(later), sayList(freshly); got != want && a.Decision != nil && b.Decision != nil && a.Decision.Requests["app"] == b.Decision.Requests["app"] {
			t.Errorf("a pod has %s, and would get %s now", got, want)
		}
	}
}

// isNext reports whether a limit is the request, or the smallest amount above it, which keeps a pod Burstable.
func isNext(name corev1.ResourceName, limit, request resource.Quantity) bool {
	if name == corev1.ResourceMemory {
		return limit.Value()-request.Value() <= 1
	}
	return limit.MilliValue()-request.MilliValue() <= 1
}

func sayList(r corev1.ResourceRequirements) string {
	return fmt.Sprint(r.Requests.Cpu(), r.Requests.Memory(), r.Limits.Cpu(), r.Limits.Memory())
}

// amountsWorld is a Deployment with a pod, as the API server stores them.
type amountsWorld struct {
	world
	deployment *appsv1.Deployment
	pod        *corev1.Pod
	now        time.Time
	last       plan.Plan
}

func newAmounts(r corev1.ResourceRequirements, mode v1beta1.UpdateMode, follows bool) *amountsWorld {
	rule := plan.LimitsStay
	if follows {
		rule = plan.LimitsFollow
	}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: *r.DeepCopy()}}}
	a := &amountsWorld{deployment: &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Template: corev1.PodTemplateSpec{Spec: spec}}}, now: noon}
	a.deployment.Status = appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
	a.pod = &corev1.Pod{Spec: *spec.DeepCopy(), Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	a.pod.Name, a.pod.UID = "web-1", "uid-1"
	a.defaultRequests()
	a.world = given(policyOfApp(func(p *plan.ContainerPolicy) { p.Limits = rule }), pods())
	a.situation.Ceilings.RaiseFactor, a.policy.Mode = leash, mode
	return a
}

// defaultRequests gives the pod the requests that the API server gives it.
func (a *amountsWorld) defaultRequests() {
	r := a.pod.Spec.Containers[0].Resources
	for name, limit := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = limit
		}
	}
}

// decide follows a recommendation for hours, until nothing changes anymore.
func (a *amountsWorld) decide(t *testing.T, r recommend.Container) {
	t.Helper()
	a.situation.Recommendations = []recommend.Container{r}
	for range 20 {
		a.now = a.now.Add(time.Hour)
		a.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Resources: a.pod.Spec.Containers[0].Resources.DeepCopy()}}
		a.pod.Status.QOSClass = qosByTheAPI(a.pod)
		a.pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		a.situation.Deployment, a.situation.Pods = workload.ReadDeployment(a.deployment), []workload.Pod{workload.ReadPod(a.pod, true)}
		a.last = a.next(a.now)
		a.situation.Decision, a.situation.RevertedChanges = a.last.Decision, a.last.RevertedChanges
		switch step := a.last.Step.(type) {
		case plan.Resize:
			putSize(&a.pod.Spec.Containers[0].Resources, step.Sizes[0].Resources)
		case plan.TakeOver:
			a.situation.Originals = step.Originals
		case plan.Rewrite:
			template := &a.deployment.Spec.Template.Spec.Containers[0].Resources
			putSize(template, step.Sizes[0].Resources)
			a.pod.Spec.Containers[0].Resources = *template.DeepCopy()
			a.defaultRequests()
		case nil:
			if a.last.Verdict.RequeueAfter == 0 {
				return
			}
		}
	}
	t.Errorf("it never comes to an end: %s %s", a.last.Verdict.Reason, a.last.Verdict.Message)
}

// putSize puts the amounts that a size sets into a container.
func putSize(into *corev1.ResourceRequirements, size workload.Resources) {
	for list, of := range map[*corev1.ResourceList]quantity.Amounts{&into.Requests: size.Requests, &into.Limits: size.Limits} {
		for name, v := range map[corev1.ResourceName]resource.Quantity{corev1.ResourceCPU: quantity.CPU(of.CPUMillis), corev1.ResourceMemory: quantity.Memory(of.MemoryBytes)} {
			if !v.IsZero() {
				(*list)[name] = v
			}
		}
	}
}

// qosByTheAPI is the QoS class of a pod with one container, by the API server's rule: an amount of 0 counts as none.
func qosByTheAPI(pod *corev1.Pod) corev1.PodQOSClass {
	r, set, equal := pod.Spec.Containers[0].Resources, 0, 0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		request, limit := r.Requests[name], r.Limits[name]
		if !request.IsZero() || !limit.IsZero() {
			set++
		}
		if !limit.IsZero() && request.Cmp(limit) == 0 {
			equal++
		}
	}
	switch {
	case set == 0:
		return corev1.PodQOSBestEffort
	case equal == 2:
		return corev1.PodQOSGuaranteed
	}
	return corev1.PodQOSBurstable
}
