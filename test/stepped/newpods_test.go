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

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// A policy that is asked when pods are created, and not when they are resized, keeps no pod of ours from being created.
func TestPodsThatAPolicyRefusesStartAsInTheTemplate(t *testing.T) {
	t.Parallel()
	w := newServed(t)
	d := w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Scale("web", sizingNewPods)
	w.Sized("web")
	w.hasSizesOf("web")
	w.untilNewPods(d, areSized)
	w.deny("", "pods", `object.spec.containers.all(c, quantity(string(c.resources.requests['cpu'])).compareTo(quantity('200m')) <= 0)`, "at most 200m", admissionregistrationv1.Create)
	w.untilNewPods(d, func(_ *corev1.Pod, err error) string {
		if err == nil || !strings.Contains(err.Error(), "at most 200m") {
			return fmt.Sprintf("a large pod is not refused: %v", err)
		}
		return ""
	})
	w.Patch(testkit.Deployment(w.Namespace, "web"), `{"spec":{"replicas":5}}`)
	w.Await("pods are missing", func() string {
		if c := w.Condition("web", "Ready"); c.Status != "False" || c.Reason != "ReplicaFailure" || !strings.Contains(c.Message, "Pods are missing") {
			return fmt.Sprintf("Ready is %s %s: %s", c.Status, c.Reason, c.Message)
		}
		return ""
	})
	w.Reports("web", "NewPodsSized", "False", "ReplicaFailure", "at most 200m")
	w.hasSizesOf()
	w.runs("web")
	w.Sized("web")
	w.Reports("web", "Ready", "True", "OperatingNormally")
	w.Reports("web", "NewPodsSized", "False", "ReplicaFailure", "at most 200m")

	// A day later, new pods get their size again.
	w.Remove(&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "keep-" + w.Namespace}})
	w.Pass(24 * time.Hour)
	w.Reports("web", "NewPodsSized", "True", "Applied")
	w.hasSizesOf("web")
	w.untilNewPods(d, areSized)
	w.Patch(testkit.Deployment(w.Namespace, "web"), `{"spec":{"replicas":6}}`)
	w.runs("web")
	asCreated := 0
	for _, pod := range w.Pods("web") {
		if pod.Generation == 1 && areSized(&pod, nil) == "" {
			asCreated++
		}
	}
	if asCreated != 1 {
		t.Errorf("%d pods were created with another size, not 1", asCreated)
	}
}

// The request that a new pod was created with for its start is lowered in place once the pod has started. Its limit stays.
func TestANewPodIsCreatedWithItsStartupBoost(t *testing.T) {
	t.Parallel()
	w := newFixtureOn(t, world.NewAPI(admission.Policy(), admission.Binding()), "shop", nil)
	w.deploy("web")
	w.Uses("web", "app", 300, 240)
	w.Minutes(11) // usage while a pod starts does not count
	w.Scale("web", sizingNewPods, func(s *v1beta1.VerticalScaler) {
		boost := &v1beta1.StartupBoost{CPU: &v1beta1.CPUStartupBoost{Type: v1beta1.BoostFactor, Factor: ptr.To[int32](2), DurationSeconds: ptr.To[int32](600)}}
		s.Spec.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{ContainerName: v1beta1.AnyContainer, StartupBoost: boost}}}
	})
	size := w.Sized("web")
	w.Minutes(1)
	before := w.Pods("web")
	boosted := 2 * size.Cpu().MilliValue()
	has := func(cpu int64, generation int64) func() string {
		return func() string {
			for _, pod := range w.Pods("web") {
				isOld := slices.ContainsFunc(before, func(old corev1.Pod) bool { return old.UID == pod.UID })
				if asked := world.Asked(&pod, "app"); !isOld && (asked.Requests.Cpu().MilliValue() != cpu || asked.Limits.Cpu().MilliValue() != 2*boosted || pod.Generation != generation) {
					return fmt.Sprintf("the new pod has %v in generation %d", asked, pod.Generation)
				}
			}
			return ""
		}
	}
	w.Patch(testkit.Deployment(w.Namespace, "web"), `{"spec":{"replicas":4}}`)
	w.runs("web")
	w.Reports("web", "Applied", "True", "Boosted")
	w.Await("it has its boost", has(boosted, 1))
	w.Pass(11 * time.Minute)
	w.Await("the boost has ended", has(size.Cpu().MilliValue(), 2))
}
