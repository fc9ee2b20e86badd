// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

// sizing is a scenario in which a new scaler brings the Deployment web from one size to another.
type sizing struct {
	name string
	from size
	// to is the size of the scaler's bounds, and end that of the pods at the end if it differs.
	to, end size
	mode    v1beta1.UpdateMode
	// answers are what the kubelets do with resizes, by the ordinal of the pod.
	answers map[int]Answer
	config  func(*operatorconfig.Operator)
	// before runs before the Deployment is created, and change changes the scaler.
	before func(u *User)
	change func(s *v1beta1.VerticalScaler)
	// then is what happens once the scaler exists.
	then func(u *User)
	// template is the size of the template at the end, if that matters.
	template size
	// done describes what lacks for another end than the usual one.
	done func(u *User) string
}

// scenario is the sizing as a scenario.
func (s sizing) scenario() Scenario {
	return Scenario{
		Name:   s.name,
		Config: s.config,
		Setup: func(u *User) {
			for ordinal, answer := range s.answers {
				u.Script(web, ordinal, answer)
			}
			if s.before != nil {
				s.before(u)
			}
			u.deployAll(s.from, web)
		},
		Act: func(u *User) {
			scaler := u.scaler(web, web, s.mode, s.to)
			if s.change != nil {
				s.change(scaler)
			}
			u.Create(scaler)
			if s.then != nil {
				s.then(u)
			}
		},
		Done: func(u *User) string {
			if s.done != nil {
				return s.done(u)
			}
			end := s.to
			if s.end != (size{}) {
				end = s.end
			}
			if lacks := u.isApplied(web, web, end); lacks != "" || s.template == (size{}) {
				return lacks
			}
			return u.templateIs(web, s.template)
		},
	}
}

// silentRounds is for how many rounds of usage a pod is silent: longer than the monitor takes to call it silent.
const silentRounds = 6

// sizings are the scenarios that end with the pods of web at a size.
func sizings() []Scenario {
	fallsBack := func(to v1beta1.Fallback) func(*v1beta1.VerticalScaler) {
		return func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.Fallback = to }
	}
	raised := small
	raised.zetaMemory = "400Mi" // twice the limit at the OOM kill would be 512Mi
	var scenarios []Scenario
	for _, s := range []sizing{
		// One kubelet is late.
		{name: "up", from: small, to: large, mode: v1beta1.UpdateModeInPlace, answers: map[int]Answer{1: Late}},
		// First one of the pods is lowered, and the others once it is verified.
		{
			name: "down", from: large, to: small, mode: v1beta1.UpdateModeInPlace,
			before: func(u *User) { u.Silence(NoPod) },
			change: func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.VerificationSeconds = ptr.To[int32](1) },
		},
		// The pods are lowered because of their usage, once that of the last pod is known. Nothing may be lowered before.
		{
			name: "silent", from: large, to: small, mode: v1beta1.UpdateModeInPlace,
			before: func(u *User) { u.Silence(LastPod) },
			change: func(s *v1beta1.VerticalScaler) {
				for i := range s.Spec.ResourcePolicy.ContainerPolicies { // usage is below the minimum
					s.Spec.ResourcePolicy.ContainerPolicies[i].MaxAllowed = nil
				}
			},
			then: func(u *User) {
				u.AwaitUsage(silentRounds)
				if wrong := u.podsAre(web, func(pod podSizes) string { return pod.asks(large) }); wrong != "" {
					u.Fatalf("while a pod is silent, %s", wrong)
				}
				u.Silence(NoPod)
			},
		},
		// One node has no room at first.
		{
			name: "deferred", from: small, to: large, mode: v1beta1.UpdateModeInPlace, answers: map[int]Answer{0: Deferred},
			then: func(u *User) {
				u.Await("a deferred resize", func() string {
					return u.says(web, v1beta1.ConditionApplied, metav1.ConditionFalse, v1beta1.ReasonDeferred)
				})
				u.Script(web, 0, Actuates)
			},
		},
		// One kubelet can never actuate a resize. The other pods are raised.
		{
			name: "failing", from: small, to: large, mode: v1beta1.UpdateModeInPlace, answers: map[int]Answer{2: Fails},
			done: func(u *User) string {
				return firstOf(
					u.says(web, v1beta1.ConditionApplied, metav1.ConditionFalse, v1beta1.ReasonResizeError),
					u.says(web, v1beta1.ConditionRecommendationProvided, metav1.ConditionTrue, v1beta1.ReasonEnoughHistory),
					u.podsAre(web, func(pod podSizes) string { return pod.asks(large) }),
				)
			},
		},
		// A user deletes a pod and adds another meanwhile.
		{
			name: "replaced", from: small, to: large, mode: v1beta1.UpdateModeInPlace, answers: map[int]Answer{0: Late},
			then: func(u *User) {
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
		},
		// The memory of all pods is raised after one of them was OOM-killed, as far as the user's maximum allows.
		{
			name: "oom", from: small, to: small, end: raised, mode: v1beta1.UpdateModeInPlace,
			config: func(c *operatorconfig.Operator) { c.Recommendation.MemoryWindow.Duration = time.Hour },
			change: func(s *v1beta1.VerticalScaler) {
				for i := range s.Spec.ResourcePolicy.ContainerPolicies {
					if policy := &s.Spec.ResourcePolicy.ContainerPolicies[i]; policy.ContainerName == "zeta" {
						policy.MaxAllowed = pinned("zeta", raised.zetaCPU, raised.zetaMemory).MaxAllowed
					}
				}
			},
			then: func(u *User) {
				u.Await("a first recommendation", func() string {
					return u.says(web, v1beta1.ConditionRecommendationProvided, metav1.ConditionTrue, v1beta1.ReasonEnoughHistory)
				})
				u.Kill(&u.podsInOrder(web)[1], "zeta")
			},
		},
		// A node will never have room for one of the pods.
		{
			name: "fallback", from: small, to: large, mode: v1beta1.UpdateModeInPlace, answers: map[int]Answer{0: Infeasible},
			change: fallsBack(v1beta1.FallbackRollout), template: large,
		},
		{name: "rollout", from: small, to: large, mode: v1beta1.UpdateModeRollout, template: large},
		// No node will ever have room: pods are evicted one by one under a budget.
		{
			name: "recreate", from: small, to: large, mode: v1beta1.UpdateModeInPlace,
			answers: map[int]Answer{0: Infeasible, 1: Infeasible, 2: Infeasible},
			before:  func(u *User) { u.Create(u.disruptionBudget(web)) },
			change:  fallsBack(v1beta1.FallbackRecreate), template: small,
		},
		// Only new pods are sized: those of the user's own rollout.
		{
			name: "initial", from: small, to: large, mode: v1beta1.UpdateModeInitial, template: small,
			then: func(u *User) {
				// The sizes are written down, and the API server learns of them, with a delay.
				like := u.podsInOrder(web)[0]
				u.Await("new pods to be sized", func() string {
					pod := &corev1.Pod{Spec: template(nil, small).Spec}
					pod.Namespace, pod.Name = u.Namespace, like.Name+"-dry-run"
					pod.Labels, pod.OwnerReferences = like.Labels, like.OwnerReferences
					if err := u.Client.Create(u.ctx, pod, client.DryRunAll); err != nil {
						return err.Error()
					}
					return podSizes{pod}.asks(large)
				})
				u.Patch(u.deployment(web, small), `{"spec":{"template":{"metadata":{"annotations":{"restarted":"true"}}}}}`)
			},
		},
		// A scaler that has written the template is deleted.
		{
			name: "restore", from: small, to: large, mode: v1beta1.UpdateModeRollout,
			then: func(u *User) {
				u.Await("a first rollout", func() string { return u.isApplied(web, web, large) })
				u.Remove(u.scaler(web, "", "", small))
			},
			done: func(u *User) string {
				return firstOf(u.isGone(u.scaler(web, "", "", small)), u.podsHave(web, small), u.templateIs(web, small))
			},
		},
	} {
		scenarios = append(scenarios, s.scenario())
	}
	return scenarios
}
