// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

// up raises the pods in place. One kubelet is late.
func up() Scenario {
	return Scenario{
		Name: "up",
		Setup: func(u *User) {
			u.Script(web, 1, Late)
			u.deployAll(small, web)
		},
		Act:  func(u *User) { u.Create(u.scaler(web, web, v1beta1.UpdateModeInPlace, large)) },
		Done: func(u *User) string { return u.isApplied(web, web, large) },
	}
}

// down lowers the pods in place: first one of them, and the others once it is verified.
func down() Scenario {
	return Scenario{
		Name: "down",
		Setup: func(u *User) {
			u.Silence(NoPod)
			u.deployAll(large, web)
		},
		Act: func(u *User) {
			s := u.scaler(web, web, v1beta1.UpdateModeInPlace, small)
			s.Spec.UpdatePolicy.VerificationSeconds = ptr.To[int32](1)
			u.Create(s)
		},
		Done: func(u *User) string { return u.isApplied(web, web, small) },
	}
}

// silentRounds is for how many rounds of usage a pod is silent: longer than the monitor takes to call it silent.
const silentRounds = 6

// silent lowers the pods in place because of their usage, once that of the last pod is known. Nothing may be lowered before.
func silent() Scenario {
	return Scenario{
		Name: "silent",
		Setup: func(u *User) {
			u.Silence(LastPod)
			u.deployAll(large, web)
		},
		Act: func(u *User) {
			s := u.scaler(web, web, v1beta1.UpdateModeInPlace, small)
			for i := range s.Spec.ResourcePolicy.ContainerPolicies { // usage is below the minimum
				s.Spec.ResourcePolicy.ContainerPolicies[i].MaxAllowed = nil
			}
			u.Create(s)
			u.AwaitUsage(silentRounds)
			if wrong := u.podsAre(web, func(pod podSizes) string { return pod.asks(large) }); wrong != "" {
				u.Fatalf("while a pod is silent, %s", wrong)
			}
			u.Silence(NoPod)
		},
		Done: func(u *User) string { return u.isApplied(web, web, small) },
	}
}

// deferred raises the pods in place. One node has no room at first.
func deferred() Scenario {
	return Scenario{
		Name: "deferred",
		Setup: func(u *User) {
			u.Script(web, 0, Deferred)
			u.deployAll(small, web)
		},
		Act: func(u *User) {
			u.Create(u.scaler(web, web, v1beta1.UpdateModeInPlace, large))
			u.Await("a deferred resize", func() string {
				return u.says(web, v1beta1.ConditionApplied, metav1.ConditionFalse, v1beta1.ReasonDeferred)
			})
			u.Script(web, 0, Actuates)
		},
		Done: func(u *User) string { return u.isApplied(web, web, large) },
	}
}

// failing has a kubelet that can never actuate a resize. The other pods are raised.
func failing() Scenario {
	return Scenario{
		Name: "failing",
		Setup: func(u *User) {
			u.Script(web, 2, Fails)
			u.deployAll(small, web)
		},
		Act: func(u *User) { u.Create(u.scaler(web, web, v1beta1.UpdateModeInPlace, large)) },
		Done: func(u *User) string {
			return firstOf(
				u.says(web, v1beta1.ConditionApplied, metav1.ConditionFalse, v1beta1.ReasonResizeError),
				u.says(web, v1beta1.ConditionRecommendationProvided, metav1.ConditionTrue, v1beta1.ReasonEnoughHistory),
				u.podsAre(web, func(pod podSizes) string { return pod.asks(large) }),
			)
		},
	}
}

// replaced raises the pods in place while a user deletes one and adds another.
func replaced() Scenario {
	return Scenario{
		Name: "replaced",
		Setup: func(u *User) {
			u.Script(web, 0, Late)
			u.deployAll(small, web)
		},
		Act: func(u *User) {
			u.Create(u.scaler(web, web, v1beta1.UpdateModeInPlace, large))
			u.Await("a first decision", func() string {
				if u.podsHave(web, large) == "" {
					return "" // The decision may be lost by now, and not needed anymore.
				}
				return u.hasDecision(web)
			})
			pods := u.podsInOrder(web)
			u.Remove(&pods[len(pods)-1])
			u.Patch(u.deployment(web, small), `{"spec":{"replicas":%d}}`, replicas+1)
		},
		Done: func(u *User) string { return u.isApplied(web, web, large) },
	}
}

// oom raises the memory of all pods after one of them was OOM-killed, as far as the user's maximum allows.
func oom() Scenario {
	raised := small
	raised.zetaMemory = "400Mi" // twice the limit would be 512Mi
	return Scenario{
		Name:   "oom",
		Config: func(c *operatorconfig.Operator) { c.Recommendation.MemoryWindow.Duration = time.Hour },
		Setup:  func(u *User) { u.deployAll(small, web) },
		Act: func(u *User) {
			s := u.scaler(web, web, v1beta1.UpdateModeInPlace, small)
			for i := range s.Spec.ResourcePolicy.ContainerPolicies {
				if policy := &s.Spec.ResourcePolicy.ContainerPolicies[i]; policy.ContainerName == "zeta" {
					policy.MaxAllowed = pinned("zeta", raised.zetaCPU, raised.zetaMemory).MaxAllowed
				}
			}
			u.Create(s)
			u.Await("a first recommendation", func() string {
				return u.says(web, v1beta1.ConditionRecommendationProvided, metav1.ConditionTrue, v1beta1.ReasonEnoughHistory)
			})
			u.Kill(&u.podsInOrder(web)[1], "zeta")
		},
		Done: func(u *User) string { return u.isApplied(web, web, raised) },
	}
}

// fallback rolls the Deployment out, since a node will never have room for one of the pods.
func fallback() Scenario {
	return Scenario{
		Name: "fallback",
		Setup: func(u *User) {
			u.Script(web, 0, Infeasible)
			u.deployAll(small, web)
		},
		Act: func(u *User) {
			s := u.scaler(web, web, v1beta1.UpdateModeInPlace, large)
			s.Spec.UpdatePolicy.Fallback = v1beta1.FallbackRollout
			u.Create(s)
		},
		Done: func(u *User) string { return firstOf(u.isApplied(web, web, large), u.templateIs(web, large)) },
	}
}
