// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plan decides what to do next about one Deployment.
//
// Next is a pure function: the same situation yields the same plan, whatever the
// order of its lists, and carrying a plan out and planning again yields nothing.
// It decides twice. First what to put in force (the decision: one request per
// container, moved only where the recommendation has left the tolerance, the
// bounds or the cooldown behind), then the next single step that brings the pods
// or the template closer to it. Whatever is not done has a reason.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Policy is what the scaler's spec allows.
type Policy struct {
	Mode v1beta1.UpdateMode
	// Fallback is what InPlace does where a pod cannot be resized in place. Empty stands
	// for Wait.
	Fallback v1beta1.Fallback
	// MinReplicas is how many replicas a Deployment has at least whose pods are evicted.
	MinReplicas int32
	Suspended   bool
	// Edited says that the spec is newer than the last pass. What differs from the
	// template then is our own doing, and what was contested is tried again.
	Edited bool
	// Cooldown is the least time between two decisions, where Raise and Lower do not say
	// otherwise.
	Cooldown time.Duration
	// Raise and Lower are for requests that go up, or down.
	Raise, Lower Direction
	// Windows are when requests may move.
	Windows window.Windows
	// BadWindow says which window never opens because it cannot be understood; empty for
	// none.
	BadWindow string
	// Tolerance is the least change of a request, as a share of it, that is worth
	// making: 0 to 1.
	Tolerance float64
	// Observation is how long pods are watched after a change before it counts as good; 0
	// for not at all.
	Observation time.Duration
	// Containers is the policy of each container of the template, by name.
	Containers map[string]ContainerPolicy
}

// DefaultTolerance is the least relative change of a request worth making.
const DefaultTolerance = 0.10

// Direction bounds the changes of one direction.
type Direction struct {
	// Cooldown is the policy's if it is nil.
	Cooldown *time.Duration
	// MaxStepPercent is the most that one decision changes a request, in percent of it;
	// 0 for any.
	MaxStepPercent int64
}

// ContainerPolicy says what may be changed on one container.
type ContainerPolicy struct {
	CPU, Memory bool
	// Limits says that limits follow their requests, and LimitPolicy how.
	Limits      bool
	LimitPolicy LimitPolicy
	MinAllowed  quantity.Amounts
	MaxAllowed  quantity.Amounts
	// Boost is more CPU while the container starts; nil for none.
	Boost *Boost
}

// LimitPolicy shapes the limits that follow. The zero value keeps the template's
// proportion.
type LimitPolicy struct {
	// HeadroomCPU and HeadroomMemory are what a limit has above its request, in percent
	// of that; nil keeps the template's proportion.
	HeadroomCPU, HeadroomMemory *int64
	// MinAllowed and MaxAllowed bound the limits; 0 is no bound.
	MinAllowed, MaxAllowed quantity.Amounts
}

// Situation is everything that a plan rests on.
type Situation struct {
	Deployment workload.Deployment
	Pods       []workload.Pod
	Bounds     workload.Bounds
	// Quotas are what the ResourceQuotas of the namespace have left.
	Quotas []workload.Quota
	// LargestNode is, for each resource, what the node can give that has the most of
	// it. 0 stands for not known, and bounds nothing.
	LargestNode quantity.Amounts
	Scaled      workload.Scaled
	// Sized names, by container, the VerticalPodAutoscalers that size it.
	Sized           map[string]workload.Scaled
	Recommendations []recommend.Container
	// Decision is the decision in force; nil before the first.
	Decision *Decision
	// Failed is what was put back before.
	Failed []Failed
	// Held are the values of the template that we have taken over, as they were
	// before; nil while we hold nothing of this Deployment.
	Held []Held
	// Undone holds the pods whose resources somebody else has changed since we last
	// resized them.
	Undone map[types.UID]bool
	// Writers are those who have what is contested; nil while nobody has asked.
	Writers *Writers
	// Refused holds, by pod, the resizes that the API server has refused and why.
	Refused map[types.UID][]Refused
	// Admission is what is known of how the API server sizes new pods.
	Admission Admission
	// EvictionRefused is the last eviction, if it was refused; nil for none.
	EvictionRefused *Refusal
}

// Decision is what has been decided to be put in force.
type Decision struct {
	Time   time.Time
	Reason string
	// Requests holds the decided requests, by container. 0 leaves the resource alone.
	Requests map[string]quantity.Amounts
	// Written says that the template has carried the decision once.
	Written bool
	// Reverts counts how often somebody else has undone it, or a decision before it, on
	// the template or on pods; LastRevert is when that was seen last.
	Reverts    int
	LastRevert time.Time
	// ContestedBy names those who had what is contested when it was last looked at.
	ContestedBy []string
	// KeptLimits holds, by container, memory limits that were to be lowered, and that the
	// kubelet could not lower for the memory in use. None up to them is lowered until the
	// container's memory is decided anew.
	KeptLimits map[string]int64
	// Trial is how it goes with what was changed; nil where nothing is watched.
	Trial *Trial
}

// Held is what we have taken over of one container of the template.
type Held struct {
	Container string
	// CPU and Memory tell which resources have been taken over.
	CPU, Memory bool
	// Resources are the values found. 0 stands for not set.
	workload.Resources
}

// holds says whether the resource has been taken over.
func (h Held) holds(r resource) bool {
	if r.name == "cpu" {
		return h.CPU
	}
	return h.Memory
}

// Refused is a resize that was refused.
type Refused struct {
	Sizes   []Size
	Reason  string
	Message string
}

// Size is what one container shall have.
type Size struct {
	Container string
	workload.Resources
}

// Resize is a step: resize one pod in place, all its containers at once.
type Resize struct {
	Pod             string
	UID             types.UID
	ResourceVersion string
	Sizes           []Size
	// Boost says that the pod is starting, and that it gets more CPU meanwhile.
	Boost bool
}

// Rewrite is a step: write sizes into the Deployment's pod template.
type Rewrite struct {
	UID             types.UID
	ResourceVersion string
	// Sizes holds, for each container, all that we own of it. A request of 0 is not
	// ours to set.
	Sizes []Size
	// Hold is what has to be recorded as held before the step is taken; nil if all
	// of it is. The step is then for a later pass.
	Hold []Held
}

// Plan is the next step and the reason for it, or for its absence.
type Plan struct {
	// Decision is the decision in force once the plan is carried out; nil for none.
	Decision *Decision
	// Decided says that Decision is new.
	Decided bool
	// PutBack is what was seen on which pods, where Decision puts back what was before it.
	PutBack string
	// Failed is what must not be tried again.
	Failed []Failed
	// RecordFirst says that the plan must be recorded before a step is taken: what was good
	// before a decision, or what is known of new pods, would be lost with the operator.
	RecordFirst bool
	// Resize, Rewrite, Evict and GiveBack are the step; at most one is set.
	Resize  *Resize
	Rewrite *Rewrite
	Evict   *Evict
	// GiveBack says to give the Deployment's pod template back: nothing of what is
	// held is managed any more.
	GiveBack bool
	// Contest is what the API server has to be asked about, for Situation.Writers; nil
	// where nothing is contested.
	Contest *Contest
	// NewPods is what the API server shall put into new pods, in the mode Initial and with the
	// fallback Recreate: for each container the resources that are managed.
	NewPods []Size
	// Admission is what is known of that, with the fallback Recreate.
	Admission Admission
	// Reason is one of the reasons of the condition Applied; Message explains it to
	// a person and is the same for the same situation.
	Reason  string
	Message string
	// Applied says that all is as decided.
	Applied bool
	// Changing says that a change is under way.
	Changing bool
	// Stalled says that a person must act.
	Stalled bool
	// RequeueAfter is when to look again for a reason that no event will tell of; 0
	// for never.
	RequeueAfter time.Duration
	// PodsAtSize of Pods have the decided sizes.
	PodsAtSize, Pods int
}

// Next decides what to do next.
func Next(s Situation, policy Policy, now time.Time) Plan {
	p := next(s, policy, now)
	idle := s.Deployment.Terminating || policy.Mode == v1beta1.UpdateModeRecommend || policy.Suspended
	if policy.BadWindow != "" && !idle && !p.Stalled && !p.steps() {
		p.Stalled = true
		return p.because(v1beta1.ReasonInvalidWindow, policy.BadWindow)
	}
	return p
}

// steps says whether there is a step to take.
func (p Plan) steps() bool {
	return p.Resize != nil || p.Rewrite != nil || p.Evict != nil || p.GiveBack
}

func next(s Situation, policy Policy, now time.Time) Plan {
	s.Failed = s.stillFailed(policy, now)
	p := Plan{Decision: s.Decision, Failed: s.Failed, Pods: countPods(s.Pods)}
	p.Admission.MissedBy = s.Admission.MissedBy
	switch {
	case s.Deployment.Terminating:
		return p.because(v1beta1.ReasonTerminating, "The Deployment is being deleted")
	case policy.Mode == v1beta1.UpdateModeRecommend:
		p.Decision = nil
		return p.because(v1beta1.ReasonRecommendOnly, "updateMode is Recommend: recommendations are not applied")
	case policy.Suspended:
		if p.Decision != nil {
			p.PodsAtSize = p.step(s, policy, now).PodsAtSize
		}
		return p.because(v1beta1.ReasonSuspended, "Nothing is changed while the scaler is suspended")
	}

	if policy.Edited {
		s.Decision = s.Decision.uncontested()
	} else {
		s.Decision = s.Decision.undone(s, policy, now)
	}
	s, saw, verdictIn := s.judged(policy, now)
	d := decide(s.settled(policy, now), policy, now)
	p.Decision, p.Decided = d.decision, d.decided || saw != ""
	p.Failed, p.PutBack = s.Failed, saw
	if policy.mayRollOut() && holdsInVain(s, policy) {
		p.GiveBack, p.Changing = true, true
		return p.because(v1beta1.ReasonRollingOut, "What is no longer managed of the Deployment's pod template is given back")
	}
	if p.Decision == nil {
		p.RequeueAfter = d.wait
		p.Decided = d.decided
		p.Stalled = d.stalled
		if d.reason == v1beta1.ReasonWithinTolerance || d.reason == v1beta1.ReasonWithinBounds {
			p.Applied, p.PodsAtSize = true, p.Pods
		}
		p = p.because(d.reason, d.message)
		if policy.boosts() {
			p = p.startUndecided(s, policy, now)
		}
		return p
	}
	p = p.step(s, policy, now)
	if p.steps() && p.Decided && (p.PutBack != "" || d.decision.Trial != nil) {
		p.Resize, p.Rewrite, p.Evict = nil, nil, nil
		p.Decision, p.RecordFirst = d.decision, true
	}
	if p.steps() && policy.mayEvict() && p.learns(s) {
		p.Resize, p.Evict, p.RecordFirst = nil, nil, true
	}
	p.RequeueAfter = sooner(p.RequeueAfter, verdictIn)
	if d.reason == v1beta1.ReasonVerifying && p.Decision.trial() == nil {
		p.RequeueAfter = sooner(p.RequeueAfter, time.Second) // what has waited for the trial is due
	}
	// A raise that waits for its cooldown is worth waking up for, and a request left
	// alone is worth a word, but only while there is nothing more pressing to say.
	if p.Resize == nil && p.Rewrite == nil && p.Evict == nil {
		p.RequeueAfter = sooner(p.RequeueAfter, d.wait)
		if p.Applied && d.message != "" {
			p.Message += ". " + d.message
			p.Stalled = d.stalled
			if d.reason != v1beta1.ReasonWithinBounds {
				p.Reason = d.reason
			}
		}
	}
	return p
}

// step plans the next step towards the decision.
func (p Plan) step(s Situation, policy Policy, now time.Time) Plan {
	s.Decision = p.Decision
	switch policy.Mode {
	case v1beta1.UpdateModeRollout:
		return p.rewrite(s, policy, now)
	case v1beta1.UpdateModeInitial:
		return p.admit(s, policy)
	}
	p.Admission = Admission{}
	if policy.mayEvict() {
		p = p.sizeNewPods(s, policy, now)
	}
	next := p.resize(s, policy, now)
	if next.Resize == nil && next.Evict == nil || next.Decision.Reverts < maxReverts {
		return next // what a fallback writes sees to that by itself
	}
	c := contested(s, policy, *next.Decision, now)
	if next.Decision.released(s.Writers, c) {
		next.Decision = next.Decision.uncontested()
		return next
	}
	return next.contest(s, c)
}

// mayRollOut says whether the pod template may be written, sooner or later.
func (p Policy) mayRollOut() bool {
	return p.Mode == v1beta1.UpdateModeRollout ||
		p.Mode == v1beta1.UpdateModeInPlace && p.Fallback == v1beta1.FallbackRollout
}

// sooner is the sooner of two times to wait, where 0 is never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func (p Plan) because(reason, message string) Plan {
	p.Reason, p.Message = reason, message
	return p
}

// countPods counts the pods that matter: those that run and stay.
func countPods(pods []workload.Pod) (n int) {
	for _, pod := range pods {
		if counts(pod) {
			n++
		}
	}
	return n
}

func counts(p workload.Pod) bool { return p.Running && p.Current && !p.Terminating }

// note is something that keeps a pod or a resource from having its size.
type note struct {
	reason  string
	subject string
	message string
	stalled bool
	// restart says that only a new pod can have its size: a matter for the fallback.
	restart bool
}

// notes collects them and tells them in an order that does not depend on the
// order of finding them.
type notes []note

func (n *notes) add(reason, subject, message string, stalled bool) {
	n.addNote(subject, note{reason: reason, message: message, stalled: stalled})
}

func (n *notes) addNote(subject string, what note) {
	what.subject = subject
	*n = append(*n, what)
}

// ofRestarts are those that are a matter for the fallback.
func (n notes) ofRestarts() (out notes) {
	for _, what := range n {
		if what.restart {
			out = append(out, what)
		}
	}
	return out
}

// tell sums the notes up: the reason is the one that most needs a person.
func (n notes) tell() (reason, message string, stalled bool) {
	if len(n) == 0 {
		return "", "", false
	}
	sorted := slices.Clone(n)
	slices.SortFunc(sorted, func(a, b note) int {
		if a.stalled != b.stalled {
			if a.stalled {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.message, b.message), cmp.Compare(a.subject, b.subject))
	})
	var parts []string
	for i := 0; i < len(sorted); {
		j := i
		var subjects []string
		for ; j < len(sorted) && sorted[j].message == sorted[i].message && sorted[j].reason == sorted[i].reason; j++ {
			subjects = append(subjects, sorted[j].subject)
		}
		parts = append(parts, fmt.Sprintf("%s: %s", list(slices.Compact(subjects)), sorted[i].message))
		i = j
	}
	if more := len(parts) - mostNamed; more > 0 {
		parts = append(parts[:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return sorted[0].reason, strings.Join(parts, "; "), sorted[0].stalled
}

// mostNamed keeps messages short, and from changing with every pod of a large
// Deployment.
const mostNamed = 3

func list(subjects []string) string {
	if more := len(subjects) - mostNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(subjects[:mostNamed], ", "), more)
	}
	return strings.Join(subjects, ", ")
}
