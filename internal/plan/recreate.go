// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/window"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// With the fallback Recreate, a pod that cannot be resized in place is evicted, and the API
// server puts the decided sizes into the one that comes for it. The pod template is left
// alone. An eviction costs a pod, so none is made in vain but one:
//
//   - not before the API server has had time to learn of the sizes;
//   - one at a time: the next one once all replicas are available again, so that what has
//     come for the last one is known;
//   - none any more once a pod has come without the sizes, until a newer one has them. That is
//     kept in the scaler's status, and recorded before anything else is done;
//   - never of a pod that the sizes would give nothing, so that no pod is evicted for ever.

// admissionLearns is how long an API server may take to learn of a binding and of the sizes in
// the scaler's status. It looks for bindings once a second, and is told of the status.
const admissionLearns = 10 * time.Second

// Evict is a step: evict one pod, so that another one comes with NewPods.
type Evict struct {
	Pod             string
	UID             types.UID
	ResourceVersion string
}

// Admission is what is known of how the API server sizes new pods, in the fallback Recreate.
type Admission struct {
	// Sizes is what the scaler's status has it put into new pods.
	Sizes []Size
	// Asked is since when both the sizes and the binding have been there, as far as we have
	// seen; zero for not.
	Asked time.Time
	// NewestPod is when the newest pod was made that there was when Asked was long enough ago,
	// by the API server's clock; zero before. Pods that are made later get the sizes.
	NewestPod time.Time
	// MissedBy names a pod that was made later and has not got them.
	MissedBy string
}

// Refusal is an eviction that was refused.
type Refusal struct {
	Reason, Message string
	Stalled         bool
	// Until is when to try again.
	Until time.Time
}

// mayEvict says whether pods may be evicted, sooner or later.
func (p Policy) mayEvict() bool {
	return p.Mode == v1beta1.UpdateModeInPlace && p.Fallback == v1beta1.FallbackRecreate
}

// mayReplace says whether pods may be replaced by new ones, in whatever way.
func (p Policy) mayReplace() bool { return p.mayRollOut() || p.mayEvict() }

// sizeNewPods has the API server size new pods, and judges whether it does.
func (p Plan) sizeNewPods(s Situation, policy Policy, now time.Time) Plan {
	p.NewPods, _ = newPods(s, policy, *p.Decision)
	was := s.Admission
	a := Admission{Sizes: p.NewPods, MissedBy: was.MissedBy}
	if len(p.NewPods) > 0 && slices.Equal(bySize(p.NewPods), bySize(was.Sizes)) {
		a.Asked, a.NewestPod = was.Asked, was.NewestPod
	}
	// Whatever is decided now: a new pod is judged by what it was to get.
	pod := newestAfter(s.Pods, was.NewestPod)
	var fit []Size
	if pod != nil {
		fit = fitting(s, was.Sizes)
	}
	switch {
	case policy.Edited && was.MissedBy != "": // a person wants it to be tried again
		a.MissedBy, a.NewestPod = "", time.Time{}
	case len(fit) == 0:
	case !hasSizes(*pod, fit):
		a.MissedBy = pod.Name
	case a.MissedBy != "":
		a.MissedBy = ""
		if !a.NewestPod.IsZero() {
			a.NewestPod = pod.Created // whatever older ones have
		}
	}
	if a.NewestPod.IsZero() && !a.Asked.IsZero() && !now.Before(a.Asked.Add(admissionLearns)) {
		for _, pod := range s.Pods {
			a.NewestPod = latest(a.NewestPod, pod.Created)
		}
	}
	p.Admission = a
	return p
}

// learns says that the plan has found out something about the API server's sizing of new pods
// that must not be lost.
func (p Plan) learns(s Situation) bool {
	return p.Admission.MissedBy != s.Admission.MissedBy || !p.Admission.NewestPod.Equal(s.Admission.NewestPod)
}

// fitting are the sizes that the API server puts into pods: those that have limits exactly
// where the pod has some, as internal/apiserver/admission says. A template that has changed since makes
// others. What somebody else changes of a pod is no excuse: the next one would fare the same.
func fitting(s Situation, sizes []Size) []Size {
	made := withDefaults(s.Deployment.Containers, s.Bounds)
	return slices.DeleteFunc(slices.Clone(sizes), func(size Size) bool {
		i := slices.IndexFunc(made, func(c workload.Container) bool { return c.Name == size.Container })
		if i < 0 {
			return true
		}
		c := made[i]
		return slices.ContainsFunc(resources, func(r resource) bool {
			return r.of(size.Requests) > 0 && (r.of(size.Limits) > 0) != (r.of(c.Limits) > 0)
		})
	})
}

func bySize(sizes []Size) []Size {
	return slices.SortedFunc(slices.Values(sizes), func(a, b Size) int { return strings.Compare(a.Container, b.Container) })
}

// newestAfter is the newest pod of the newest template that was made after that time and that
// still has what it was made with; nil for none.
func newestAfter(pods []workload.Pod, after time.Time) (newest *workload.Pod) {
	for i := range pods {
		pod := &pods[i]
		if after.IsZero() || !pod.Current || !pod.Resized.IsZero() || !pod.Created.After(after) {
			continue
		}
		if newest == nil || pod.Created.After(newest.Created) || pod.Created.Equal(newest.Created) && pod.Name > newest.Name {
			newest = pod
		}
	}
	return newest
}

// hasSizes says that a new pod would have nothing that this one has not.
//
// What a pod declares is in force but after a resize, which may be Infeasible. What the kubelet
// reports is believed only then: a pod whose kubelet reports something else for ever would be
// evicted for ever.
func hasSizes(pod workload.Pod, sizes []Size) bool {
	resized := !pod.Resized.IsZero() || pod.Resize != (workload.Resize{})
	return !slices.ContainsFunc(sizes, func(size Size) bool {
		actual, ok := pod.Actual[size.Container]
		if !resized || !ok {
			return !carries(pod, size)
		}
		want := actual
		for _, r := range resources {
			if v := r.of(size.Requests); v > 0 {
				r.set(&want.Requests, v)
			}
			if v := r.of(size.Limits); v > 0 {
				r.set(&want.Limits, v)
			}
		}
		return !matches(actual, want)
	})
}

// recreate plans the next eviction of a pod that takes a new one to have its size.
func (p Plan) recreate(s Situation, policy Policy, restarts notes, have int, now time.Time) Plan {
	if _, no := newPods(s, policy, *p.Decision); no.reason != "" {
		p.Stalled = no.stalled
		if no.reason == v1beta1.ReasonQuotaExceeded {
			p.RequeueAfter = sooner(p.RequeueAfter, quotaRetry)
		}
		return p.because(no.reason, no.message)
	}
	var in []workload.Pod
	for _, pod := range s.Pods {
		isMeant := slices.ContainsFunc(restarts, func(n note) bool { return n.subject == "pod "+pod.Name })
		if isMeant && counts(pod) && !hasSizes(pod, p.NewPods) {
			in = append(in, pod)
		}
	}
	if len(in) == 0 {
		p.Message += ". A new pod would have the same size"
		return p
	}
	slices.SortFunc(in, func(a, b workload.Pod) int { return strings.Compare(a.Name, b.Name) })
	_, why, _ := restarts.tell()
	p.Stalled = false
	p = p.evict(s, policy, in, have, now)
	p.Message = fmt.Sprintf("%s. It takes a new pod: %s", p.Message, why)
	return p
}

// evict plans the eviction of one of these pods, or says what keeps it from being made.
func (p Plan) evict(s Situation, policy Policy, in []workload.Pod, have int, now time.Time) Plan {
	if p.Admission.MissedBy != "" {
		p.Stalled = true
		return p.because(v1beta1.ReasonAdmissionIneffective, fmt.Sprintf("Pod %s was made without the sizes that the API server was to put into it, so no pod is evicted: see what else changes new pods, and delete that pod to have another one made", p.Admission.MissedBy))
	}
	if s.Deployment.Replicas < policy.MinReplicas {
		p.Stalled = true
		return p.because(v1beta1.ReasonTooFewReplicas, fmt.Sprintf("The Deployment has %d replicas, and no pod is evicted of fewer than %d (updatePolicy.minReplicas)", s.Deployment.Replicas, policy.MinReplicas))
	}
	if s.Deployment.Paused {
		return p.because(v1beta1.ReasonRolloutPaused, "The Deployment is paused: no pod is evicted until it is resumed")
	}
	urgent := p.Decision.Reason == DecidedOOMKill || p.Decision.Reason == DecidedPutBack
	sick, no := p.crew(s, urgent, now)
	if no.reason != "" {
		p.Changing = no.reason == v1beta1.ReasonRecreating
		return p.because(no.reason, no.message)
	}
	if len(sick) > 0 {
		in = sick // nothing is lost with them
	}
	if open, left := windowForEviction(in, p.NewPods, policy, *p.Decision, now); !open {
		p.RequeueAfter = sooner(p.RequeueAfter, left)
		return p.because(v1beta1.ReasonOutsideWindow, "Pods are evicted in the next of updatePolicy.windows")
	}
	if p.Decision.trial() != nil && have > 0 {
		p.Changing = true
		return p.because(v1beta1.ReasonVerifying, "The pods that were lowered first are watched before others are evicted")
	}
	if refused := s.EvictionRefused; refused != nil && !policy.Edited && now.Before(refused.Until) {
		p.Stalled, p.RequeueAfter = refused.Stalled, sooner(p.RequeueAfter, refused.Until.Sub(now))
		return p.because(refused.Reason, refused.Message)
	}
	p.Changing = true
	if wait := p.Admission.learning(now); wait > 0 {
		p.RequeueAfter = sooner(p.RequeueAfter, wait)
		return p.because(v1beta1.ReasonRecreating, "The API server is told first what new pods get")
	}
	p.Evict = &Evict{Pod: in[0].Name, UID: in[0].UID, ResourceVersion: in[0].ResourceVersion}
	return p.because(v1beta1.ReasonRecreating, "Pods are evicted, one after the other")
}

// learning is how long to wait until what is made next gets the sizes, and can be told from what
// was there: times of creation are in whole seconds.
func (a Admission) learning(now time.Time) time.Duration {
	age := now.Sub(a.NewestPod)
	switch {
	case !a.NewestPod.IsZero() && age >= 0 && age < time.Second:
		return time.Second
	case !a.NewestPod.IsZero():
		return 0
	case a.Asked.IsZero():
		return admissionLearns
	}
	return min(admissionLearns, max(time.Second, a.Asked.Add(admissionLearns).Sub(now)))
}

// crew says what keeps any pod from being evicted: that not all replicas are available. What is
// urgent may evict a pod that is not available itself, and has not got the sizes yet, for pods that
// are killed for want of memory never become available; sick are those.
func (p Plan) crew(s Situation, urgent bool, now time.Time) (sick []workload.Pod, no note) {
	var ready, starting, other int
	for _, pod := range s.Pods {
		switch {
		case pod.Terminating || pod.Ended:
		case !pod.Current:
			return nil, note{reason: v1beta1.ReasonRolloutInProgress, message: "Another rollout of the Deployment is in progress"}
		case pod.Ready && !now.Before(pod.ReadyChanged.Add(s.Deployment.MinReady)):
			ready++
		case hasSizes(pod, p.NewPods):
			starting++
		case urgent && pod.Running:
			sick = append(sick, pod)
		default:
			other++
		}
	}
	missing := int(s.Deployment.Replicas) > ready+starting+other+len(sick)
	switch {
	case other == 0 && (starting > 0 || missing):
		return nil, note{reason: v1beta1.ReasonRecreating, message: "The next pod is evicted once the one that comes for the last is ready"}
	case other > 0 || s.Deployment.RollingOut && len(sick) == 0:
		return nil, note{reason: v1beta1.ReasonPodsUnavailable, message: "Not all replicas are available: no pod is evicted until they are"}
	}
	slices.SortFunc(sick, func(a, b workload.Pod) int { return strings.Compare(a.Name, b.Name) })
	return sick, note{}
}

// windowForEviction says whether pods may be evicted now for what was decided. An eviction is a
// restart: it waits for a window that allows the directions in which pods are changed, unless
// what led to it is urgent.
func windowForEviction(in []workload.Pod, sizes []Size, policy Policy, d Decision, now time.Time) (open bool, left time.Duration) {
	if !waits(d.Reason) && d.Reason != DecidedAdopted {
		return true, 0
	}
	moves := map[window.Direction]bool{}
	for _, pod := range in {
		for _, size := range sizes {
			c, _ := pod.Container(size.Container)
			if actual, ok := pod.Actual[size.Container]; ok {
				c.Resources = actual
			}
			for _, r := range resources {
				moves[window.ScaleUp] = moves[window.ScaleUp] || r.of(size.Requests) > r.of(c.Requests) || r.of(size.Limits) > r.of(c.Limits)
				moves[window.ScaleDown] = moves[window.ScaleDown] || below(r.of(size.Requests), r.of(c.Requests)) || below(r.of(size.Limits), r.of(c.Limits))
			}
		}
	}
	return policy.opensFor(moves, now)
}

// below says that a value that is set is less than another.
func below(v, than int64) bool { return v > 0 && v < than }
