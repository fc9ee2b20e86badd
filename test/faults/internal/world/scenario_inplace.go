// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
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
		Setup: func(w *World) error {
			w.Script(web, 1, Late)
			return w.deploy(small, web)
		},
		Act:  func(w *World) error { return w.create(w.scaler(web, web, v1beta1.UpdateModeInPlace, large)) },
		Done: func(w *World) string { return w.isApplied(web, web, large) },
	}
}

// down lowers the pods in place: first one of them, and the others once it is verified.
func down() Scenario {
	return Scenario{
		Name: "down",
		Setup: func(w *World) error {
			w.AlwaysHeard()
			return w.deploy(large, web)
		},
		Act: func(w *World) error {
			s := w.scaler(web, web, v1beta1.UpdateModeInPlace, small)
			s.Spec.UpdatePolicy.VerificationSeconds = ptr.To[int32](1)
			return w.create(s)
		},
		Done: func(w *World) string { return w.isApplied(web, web, small) },
	}
}

// silentRounds is for how many rounds of usage a pod is silent: longer than the monitor takes
// to call it silent.
const silentRounds = 6

// silent lowers the pods in place because of their usage, once that of the last pod is known.
// Nothing may be lowered before.
func silent() Scenario {
	return Scenario{
		Name: "silent",
		Setup: func(w *World) error {
			w.Mute()
			return w.deploy(large, web)
		},
		Act: func(w *World) error {
			s := w.scaler(web, web, v1beta1.UpdateModeInPlace, small)
			for i := range s.Spec.ResourcePolicy.ContainerPolicies { // usage is below the minimum
				s.Spec.ResourcePolicy.ContainerPolicies[i].MaxAllowed = nil
			}
			if err := w.create(s); err != nil {
				return err
			}
			until := w.source.rounds() + silentRounds
			if err := w.Wait(w.ctx, "rounds of usage with a silent pod", func(w *World) string {
				if n := w.source.rounds(); n < until {
					return fmt.Sprintf("%d rounds of usage, of %d", n, until)
				}
				return ""
			}); err != nil {
				return err
			}
			if wrong := w.podsAre(web, func(pod podSizes) string { return pod.asks(large) }); wrong != "" {
				return fmt.Errorf("while a pod is silent, %s", wrong)
			}
			w.AlwaysHeard()
			return nil
		},
		Done: func(w *World) string { return w.isApplied(web, web, small) },
	}
}

// deferred raises the pods in place. One node has no room at first.
func deferred() Scenario {
	return Scenario{
		Name: "deferred",
		Setup: func(w *World) error {
			w.Script(web, 0, Deferred)
			return w.deploy(small, web)
		},
		Act: func(w *World) error {
			if err := w.create(w.scaler(web, web, v1beta1.UpdateModeInPlace, large)); err != nil {
				return err
			}
			if err := w.Wait(w.ctx, "a deferred resize", func(w *World) string {
				return w.says(web, v1beta1.ConditionApplied, metav1.ConditionFalse, v1beta1.ReasonDeferred)
			}); err != nil {
				return err
			}
			w.Script(web, 0, Actuates)
			return nil
		},
		Done: func(w *World) string { return w.isApplied(web, web, large) },
	}
}

// failing has a kubelet that can never actuate a resize. The other pods are raised.
func failing() Scenario {
	return Scenario{
		Name: "failing",
		Setup: func(w *World) error {
			w.Script(web, 2, Fails)
			return w.deploy(small, web)
		},
		Act: func(w *World) error { return w.create(w.scaler(web, web, v1beta1.UpdateModeInPlace, large)) },
		Done: func(w *World) string {
			return firstOf(
				w.says(web, v1beta1.ConditionApplied, metav1.ConditionFalse, v1beta1.ReasonResizeError),
				w.says(web, v1beta1.ConditionRecommendationProvided, metav1.ConditionTrue, v1beta1.ReasonEnoughHistory),
				w.podsAre(web, func(pod podSizes) string { return pod.asks(large) }),
			)
		},
	}
}

// replaced raises the pods in place while a user deletes one and adds another.
func replaced() Scenario {
	return Scenario{
		Name: "replaced",
		Setup: func(w *World) error {
			w.Script(web, 0, Late)
			return w.deploy(small, web)
		},
		Act: func(w *World) error {
			if err := w.create(w.scaler(web, web, v1beta1.UpdateModeInPlace, large)); err != nil {
				return err
			}
			if err := w.Wait(w.ctx, "a first decision", func(w *World) string {
				if w.podsHave(web, large) == "" {
					return "" // The decision may be lost by now, and not needed anymore.
				}
				return w.hasDecision(web)
			}); err != nil {
				return err
			}
			pods, err := w.podsOf(web)
			if err != nil {
				return err
			}
			if err := w.remove(&pods[len(pods)-1]); err != nil {
				return err
			}
			return w.patch(w.deployment(web, small), `{"spec":{"replicas":%d}}`, replicas+1)
		},
		Done: func(w *World) string { return w.isApplied(web, web, large) },
	}
}

// oom raises the memory of all pods after one of them was OOM-killed, as far as the
// user's maximum allows.
func oom() Scenario {
	raised := small
	raised.zetaMemory = "400Mi" // twice the limit would be 512Mi
	return Scenario{
		Name:   "oom",
		Config: func(c *operatorconfig.Operator) { c.Recommendation.MemoryWindow.Duration = time.Hour },
		Setup:  func(w *World) error { return w.deploy(small, web) },
		Act: func(w *World) error {
			s := w.scaler(web, web, v1beta1.UpdateModeInPlace, small)
			for i := range s.Spec.ResourcePolicy.ContainerPolicies {
				if policy := &s.Spec.ResourcePolicy.ContainerPolicies[i]; policy.ContainerName == "zeta" {
					policy.MaxAllowed = pinned("zeta", raised.zetaCPU, raised.zetaMemory).MaxAllowed
				}
			}
			if err := w.create(s); err != nil {
				return err
			}
			if err := w.Wait(w.ctx, "a first recommendation", func(w *World) string {
				return w.says(web, v1beta1.ConditionRecommendationProvided, metav1.ConditionTrue, v1beta1.ReasonEnoughHistory)
			}); err != nil {
				return err
			}
			pods, err := w.podsOf(web)
			if err != nil {
				return err
			}
			w.Kill(&pods[1], "zeta")
			return nil
		},
		Done: func(w *World) string { return w.isApplied(web, web, raised) },
	}
}

// fallback rolls the Deployment out, since a node will never have room for one of the pods.
func fallback() Scenario {
	return Scenario{
		Name: "fallback",
		Setup: func(w *World) error {
			w.Script(web, 0, Infeasible)
			return w.deploy(small, web)
		},
		Act: func(w *World) error {
			s := w.scaler(web, web, v1beta1.UpdateModeInPlace, large)
			s.Spec.UpdatePolicy.Fallback = v1beta1.FallbackRollout
			return w.create(s)
		},
		Done: func(w *World) string {
			return firstOf(w.isApplied(web, web, large), w.templateIs(web, large))
		},
	}
}
