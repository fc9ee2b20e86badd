// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	corev1 "k8s.io/api/core/v1"
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
	// answers are the answers of the kubelets to resizes, by the ordinal of the pod.
	answers map[int]Answer
	config  func(*operatorconfig.Operator)
	// before runs before the Deployment is created, and change changes the scaler.
	before func(w *World)
	change func(s *v1beta1.VerticalScaler)
	// then runs once the scaler exists.
	then func(w *World)
	// template is the size of the template at the end, if that matters.
	template size
	// done describes what lacks for another end than the usual one.
	done func(w *World) string
}

// scenario is the sizing as a scenario.
func (s sizing) scenario() Scenario {
	return Scenario{
		Name:   s.name,
		Config: s.config,
		Setup: func(w *World) {
			for ordinal, answer := range s.answers {
				w.Kubelet.Script(web, ordinal, answer)
			}
			if s.before != nil {
				s.before(w)
			}
			w.deployAll(s.from, web)
		},
		Act: func(w *World) {
			scaler := w.scaler(web, web, s.mode, s.to)
			if s.change != nil {
				s.change(scaler)
			}
			w.Create(scaler)
			if s.then != nil {
				s.then(w)
			}
		},
		Done: func(w *World) string {
			if s.done != nil {
				return s.done(w)
			}
			end := s.to
			if s.end != (size{}) {
				end = s.end
			}
			if lacks := w.isApplied(web, web, end); lacks != "" || s.template == (size{}) {
				return lacks
			}
			return w.templateIs(web, s.template)
		},
	}
}

// silentRounds is for how many rounds of usage a pod is silent.
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
			name: "down", from: large, to: lowered, mode: v1beta1.UpdateModeInPlace,
			before: func(w *World) { w.Usage.silence(never) },
			change: func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.VerificationSeconds = ptr.To[int32](1) },
		},
		// The pods are lowered because of their usage, once that of the last pod is known. Nothing may be lowered before.
		{
			name: "silent", from: large, to: lowered, mode: v1beta1.UpdateModeInPlace,
			before: func(w *World) { w.Usage.silence(always) },
			change: func(s *v1beta1.VerticalScaler) {
				for i := range s.Spec.ResourcePolicy.ContainerPolicies { // usage is below the minimum
					s.Spec.ResourcePolicy.ContainerPolicies[i].MaxAllowed = nil
				}
			},
			then: func(w *World) {
				until := w.Usage.Rounds + silentRounds
				w.Await("usage to be read", func() string {
					if w.Usage.Rounds < until {
						return "not yet"
					}
					return ""
				})
				if wrong := w.podsAre(web, func(pod *corev1.Pod) string { return asks(pod, large) }); wrong != "" {
					w.Fatalf("while a pod is silent, %s", wrong)
				}
				w.Usage.silence(never)
			},
		},
		// One node has no room at first.
		{
			name: "deferred", from: small, to: large, mode: v1beta1.UpdateModeInPlace, answers: map[int]Answer{0: Deferred},
			then: func(w *World) {
				w.Await("a deferred resize", func() string {
					return w.reports(web, v1beta1.ConditionApplied, "False", v1beta1.ReasonDeferred)
				})
				w.Kubelet.Script(web, 0, Actuates)
			},
		},
		// One kubelet can never actuate a resize. The other pods are raised.
		{
			name: "failing", from: small, to: large, mode: v1beta1.UpdateModeInPlace, answers: map[int]Answer{2: Fails},
			done: func(w *World) string {
				return firstOf(
					w.reports(web, v1beta1.ConditionApplied, "False", v1beta1.ReasonResizeError),
					w.knowsUsage(web),
					w.podsAre(web, func(pod *corev1.Pod) string { return asks(pod, large) }),
				)
			},
		},
		// A user deletes a pod and adds another meanwhile.
		{
			name: "replaced", from: small, to: large, mode: v1beta1.UpdateModeInPlace, answers: map[int]Answer{0: Late},
			then: func(w *World) {
				w.Await("a first decision", func() string {
					if w.podsHave(web, large) == "" {
						return "" // The decision may be lost by now, and not needed anymore.
					}
					return w.hasDecision(web)
				})
				pods := w.podsInOrder(web)
				w.Remove(&pods[len(pods)-1])
				w.Patch(w.deployment(web, small), `{"spec":{"replicas":%d}}`, replicas+1)
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
			then: func(w *World) {
				w.Await("a first recommendation", func() string {
					return w.knowsUsage(web)
				})
				w.Kill(&w.podsInOrder(web)[1], "zeta")
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
			before:  func(w *World) { w.Create(w.disruptionBudget(web)) },
			change:  fallsBack(v1beta1.FallbackRecreate), template: small,
		},
		// Only new pods are sized: those of the user's own rollout.
		{
			name: "initial", from: small, to: large, mode: v1beta1.UpdateModeInitial, template: small,
			then: func(w *World) {
				// The sizes are written down, and the API server learns of them, with a delay.
				like := w.podsInOrder(web)[0]
				w.Await("new pods to be sized", func() string {
					pod := &corev1.Pod{Spec: template(nil, small).Spec}
					pod.Namespace, pod.Name = w.Namespace, like.Name+"-dry-run"
					pod.Labels, pod.OwnerReferences = like.Labels, like.OwnerReferences
					if err := w.Client.Create(w.ctx, pod, client.DryRunAll); err != nil {
						return err.Error()
					}
					return asks(pod, large)
				})
				w.Patch(w.deployment(web, small), `{"spec":{"template":{"metadata":{"annotations":{"restarted":"true"}}}}}`)
			},
		},
		// A scaler that has written the template is deleted.
		{
			name: "restore", from: small, to: large, mode: v1beta1.UpdateModeRollout,
			then: func(w *World) {
				w.Await("a first rollout", func() string { return w.isApplied(web, web, large) })
				w.Remove(w.scaler(web, "", "", small))
			},
			done: func(w *World) string {
				return firstOf(w.isGone(w.scaler(web, "", "", small)), w.podsHave(web, small), w.templateIs(web, small))
			},
		},
	} {
		scenarios = append(scenarios, s.scenario())
	}
	return scenarios
}
