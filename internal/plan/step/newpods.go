// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// newPodsDelay is how long an API server may take to learn of sizes that are written down for it. It is
// notified of them, and looks for a new policy once a second.
const newPodsDelay = 10 * time.Second

// sizeNewPodsOnly plans what new pods get. Running pods stay unchanged, whatever they have.
func (p planner) sizeNewPodsOnly() model.Plan {
	p.newPods.Sizes, _, p.newPods.Obstacle = p.newPodSizes()
	if o := p.newPods.Obstacle; o.Exists() {
		return p.withinQuota(o).without(o.Verdict())
	}
	p.progress.PodsAtSize = p.podsAt(p.newPods.Sizes)
	if p.progress.PodsAtSize < p.progress.Pods {
		return p.without(model.Waiting.Because(v1beta1.ReasonNewPodsOnly, "New pods get the decided size, and running pods stay unchanged"))
	}
	return p.without(model.Applied.Because(v1beta1.ReasonApplied, "All pods have the decided size, and new pods get it"))
}

// newPodsBeside says what new pods get in InPlace, beside the running pods that are resized. With the fallback
// Recreate, learnNewPods does.
func (p planner) newPodsBeside() model.NewPods {
	if !p.policy.SizesNewPods {
		return model.NewPods{}
	}
	sizes, set, obstacle := p.newPodSizes()
	if o := cmp.Or(obstacle, p.unschedulable(sizes, set)); o.Exists() {
		return model.NewPods{Obstacle: o}
	}
	return model.NewPods{Sizes: sizes, Starts: p.starts(sizes, set), ReplicaSet: set}
}

// unschedulable reports whether a new pod of these sizes may find no node, and would if it started as in the
// template: a pod that is resized later runs meanwhile.
func (p planner) unschedulable(sizes []model.Size, provedBy types.UID) model.Obstacle {
	made := p.withDefaults(p.NewPod())
	sizes = p.startedWith(made, sizes, provedBy)
	sized, plain := resized(made, sizes).Counted(), made.Counted()
	for _, r := range model.Resources {
		node, request := r.Of(p.LargestNode), r.Request(sized)
		switch {
		case request <= r.Request(plain):
		case model.IsBelow(node, request):
			return model.Obstacle{Reason: v1beta1.ReasonNodeCapacity, Message: fmt.Sprintf("no node could hold a new pod with %s of %s", r.Format(request), r)}
		case p.IsSetBack, slices.ContainsFunc(p.Pods, func(pod workload.Pod) bool { return lacksNode(pod) && r.Request(pod.Footprint().Counted()) >= request }):
			return model.Obstacle{Reason: v1beta1.ReasonNodeCapacity, Message: "the scheduler finds no node for a new pod that has it"}
		}
	}
	return model.Obstacle{}
}

// A size below the template belongs to the ReplicaSet that has run with it. Pods of a new revision start with the
// larger of the decision and their template, and are lowered in place once they are Ready. When all pods are of one
// revision and healthy with the decided size, that revision has proved it, and its new pods start with it.

// proved are the sizes that new pods get if these are decided, and the ReplicaSet that has proved them; empty for none. Until it
// has proved less, its new pods get no less than what it has proved before.
func (p planner) proved(decided []model.Size) (sizes []model.Size, set types.UID) {
	if set := p.provedNow(); set != "" {
		return decided, set
	}
	before := p.Situation.NewPods
	sizes = slices.Clone(decided)
	for i, size := range sizes {
		j := slices.IndexFunc(before.Sizes, func(old model.Size) bool { return old.Container == size.Container })
		if before.ReplicaSet == "" || j < 0 || !raise(&sizes[i].Resources, before.Sizes[j].Resources) {
			return decided, ""
		}
	}
	if p.outOfBounds(sizes).Exists() { // of a LimitRange that is newer than what was proved
		return decided, ""
	}
	return sizes, before.ReplicaSet
}

// provedNow is the ReplicaSet of all pods if they have proved what is decided; empty if they have not.
func (p planner) provedNow() (set types.UID) {
	if p.Deployment.RollingOut {
		return ""
	}
	for _, pod := range p.Pods {
		switch {
		case pod.IsOver():
		case !pod.Current, !p.provesDecision(pod):
			return ""
		default:
			set = pod.ReplicaSet
		}
	}
	return set
}

// raise raises amounts to what was proved. It is false if nothing is known about one of them.
func raise(v *workload.Resources, proved workload.Resources) bool {
	for _, r := range model.Resources {
		for to, from := range map[*quantity.Amounts]quantity.Amounts{&v.Requests: proved.Requests, &v.Limits: proved.Limits} {
			switch now, before := r.Of(*to), r.Of(from); {
			case now == 0:
			case before == 0:
				return false
			default:
				r.Set(to, max(now, before))
			}
		}
	}
	return true
}

// IsSame reports whether these are the same sizes, in any order.
func IsSame(a, b []model.Size) bool { return slices.Equal(sorted(a), sorted(b)) }

func sorted(sizes []model.Size) []model.Size {
	return slices.SortedFunc(slices.Values(sizes), func(a, b model.Size) int { return strings.Compare(a.Container, b.Container) })
}

// provesDecision reports whether a pod is healthy with no more than is decided. With the fallback Recreate, its replacement
// is the trial.
func (p planner) provesDecision(pod workload.Pod) bool {
	switch {
	case p.policy.MayEvict():
		return true
	case p.Decision.Verification != nil, !model.IsAlive(pod), !p.isAvailable(pod), pod.Resize != (workload.Resize{}):
		return false
	}
	for _, c := range p.Deployment.Containers { // each has no more than is decided, and its kubelet has applied what it declares
		size := decision.LimitRulesFor(p.Situation, p.policy, c).Apply(p.Bounds.Defaulted(c), p.Decision.Requests[c.Name])
		limitsCount := p.policy.Containers[c.Name].Limits == model.LimitsFollow // otherwise new pods have at least the template's
		has, _ := pod.Readable(c.Name)
		actual, isKnown := pod.Actual[c.Name]
		for _, r := range model.Resources {
			switch {
			case p.Decision.Request(c.Name, r) == 0:
			case r.Request(has.Resources) > r.Request(size), limitsCount && r.Limit(has.Resources) > r.Limit(size), isKnown && !r.IsApplied(actual, has.Resources):
				return false
			}
		}
	}
	return true
}

// requestsOfNewPods are the requests that new pods of the container get; 0 for those of the template. A container with
// whole CPUs keeps those of the template, unless whole ones are decided.
func (p planner) requestsOfNewPods(c workload.Container) quantity.Amounts {
	requests := p.Decision.Requests[c.Name]
	if p.policy.ResizesNewPods() && decision.LosesWholeCores(p.Situation, p.policy, c, requests.CPUMillis) {
		requests.CPUMillis = 0
	}
	return requests
}

// newPodSizes is what new pods get by the decision, the ReplicaSet that has proved it, and why they get nothing.
func (p planner) newPodSizes() (sizes []model.Size, provedBy types.UID, obstacle model.Obstacle) {
	if p.Deployment.PodLevelResources {
		return nil, "", podLevelResources()
	}
	made := p.withDefaults(p.NewPod())
	for _, c := range p.Deployment.Containers {
		if !p.isDecided(c) {
			continue
		}
		requests := p.requestsOfNewPods(c)
		whole := decision.LimitRulesFor(p.Situation, p.policy, c).New(p.Bounds.Defaulted(c), requests)
		size := model.Size{Container: c.Name} // without what is not requested
		for _, r := range model.Resources {
			if r.Of(requests) > 0 {
				r.Copy(&size.Resources, whole)
			}
		}
		if size.Resources != (workload.Resources{}) {
			sizes = append(sizes, size)
		}
	}
	if !p.policy.SizesOnlyNewPods() {
		sizes, provedBy = p.proved(sizes)
	}
	started := p.startedWith(made, sizes, provedBy)
	if o := cmp.Or(p.outOfBounds(started), p.outOfBounds(covering(made, sizes)), p.newPodOverQuota(made, started)); o.Exists() {
		return nil, "", o
	}
	return sizes, provedBy, model.Obstacle{}
}

// startedWith are the sizes with which the next pod starts: exactly these if its ReplicaSet has proved them.
func (p planner) startedWith(made workload.Footprint, sizes []model.Size, provedBy types.UID) []model.Size {
	whole := covering(made, sizes)
	isProved := provedBy != "" && slices.ContainsFunc(p.Pods, func(pod workload.Pod) bool { return pod.Current && pod.ReplicaSet == provedBy })
	if isProved || p.policy.SizesOnlyNewPods() {
		return whole
	}
	for i, size := range whole { // no less than the template has
		c, _ := made.Container(size.Container)
		for _, r := range model.Resources {
			r.Put(&whole[i].Resources, max(r.Request(size.Resources), r.Request(c.Resources)), max(r.Limit(size.Resources), r.Limit(c.Resources)))
		}
	}
	return whole
}

// failureMemory is how long new pods start as in the template after the API server has refused to create pods with
// other sizes.
const failureMemory = 24 * time.Hour

// WithFailure is what new pods get, if nothing is known to prevent their creation: nothing for a day after the API server
// has refused pods with sizes, whatever the cause. It may be an admission policy, a quota or a LimitRange.
func WithFailure(n model.NewPods, s model.Situation, now time.Time) model.NewPods {
	at, message := s.NewPods.FailedAt, s.NewPods.Failure
	switch {
	case s.Deployment.CreateFailure != "" && len(s.NewPods.Sizes) > 0:
		at, message = now, s.Deployment.CreateFailure
	case at.IsZero(), !now.Before(at.Add(failureMemory)):
		return n
	}
	return model.NewPods{IneffectiveOnPod: n.IneffectiveOnPod, FailedAt: at, Failure: message, Obstacle: model.Obstacle{
		Reason: v1beta1.ReasonReplicaFailure, Message: "the API server refused to create pods with other sizes: " + message,
	}}
}

func podLevelResources() model.Obstacle {
	return model.Obstacle{
		Reason: v1beta1.ReasonUnsupported, Message: "The Deployment declares pod-level resources, which are not managed", Stalled: true,
	}
}

// learnNewPods says what new pods get with the fallback Recreate, and finds out from the
// newest pod whether the API server does it.
func (p planner) learnNewPods() model.NewPods {
	if !p.policy.MayEvict() {
		return model.NewPods{}
	}
	before := p.Situation.NewPods
	next := model.NewPods{IneffectiveOnPod: before.IneffectiveOnPod}
	if p.Unsized.Exists() {
		return next
	}
	next.Sizes, next.ReplicaSet, next.Obstacle = p.newPodSizes()
	next.Starts = p.starts(next.Sizes, next.ReplicaSet)
	if next.ReplicaSet == before.ReplicaSet && IsSame(next.Sizes, before.Sizes) && IsSame(next.Starts, before.Starts) {
		next.AskedSince, next.EffectiveSince = before.AskedSince, before.EffectiveSince
	}
	next = p.checkNewest(next)
	switch {
	case next.AskedSince.IsZero(), len(next.Sizes) == 0, !next.EffectiveSince.IsZero(), p.now.Before(next.AskedSince.Add(newPodsDelay)):
		return next
	}
	for _, pod := range p.Pods { // pods that are created from now on get the sizes
		next.EffectiveSince = model.Latest(next.EffectiveSince, pod.Created)
	}
	return next
}

// checkNewest compares the newest pod with the sizes that it was to get, even if other sizes
// are decided now.
func (p planner) checkNewest(n model.NewPods) model.NewPods {
	isKnownIneffective := n.IneffectiveOnPod != ""
	before := p.Situation.NewPods
	pod, sizes := newestAfter(p.Pods, before), p.applicableSizes(before.Sizes)
	switch {
	case pod.Name == "", len(sizes) == 0:
	case !hasSizes(pod, sizes) && !p.startedBoosted(pod):
		n.IneffectiveOnPod = pod.Name
	case isKnownIneffective:
		n.IneffectiveOnPod = ""
		if !n.EffectiveSince.IsZero() {
			n.EffectiveSince = pod.Created // whatever older pods have
		}
	}
	return n
}

// untilLearned is how long to wait until a new pod gets the sizes and is newer than those that
// exist: creation times are in whole seconds.
func (p planner) untilLearned() time.Duration {
	n := p.newPods
	switch age := p.now.Sub(n.EffectiveSince); {
	case n.EffectiveSince.IsZero() && n.AskedSince.IsZero():
		return newPodsDelay
	case n.EffectiveSince.IsZero():
		return min(newPodsDelay, max(time.Second, n.AskedSince.Add(newPodsDelay).Sub(p.now)))
	case age.Truncate(time.Second) == 0 && age >= 0:
		return time.Second
	}
	return 0
}

// applicableSizes are the sizes that the API server puts into pods: those that have limits
// exactly where the pod has some, as internal/apiserver/admission says. After a change
// of the template, other sizes apply. Changes to pods by another controller do not matter
// here, because it would change the next pod, too.
func (p planner) applicableSizes(sizes []model.Size) []model.Size {
	made := p.withDefaults(p.Deployment.Footprint())
	return slices.DeleteFunc(slices.Clone(sizes), func(size model.Size) bool {
		c, ok := made.Container(size.Container)
		return !ok || slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool {
			addsOrRemoves := (r.Limit(size.Resources) > 0) != (r.Limit(c.Resources) > 0)
			return addsOrRemoves && r.Request(size.Resources) > 0
		})
	})
}

// newestAfter is the newest pod of the ReplicaSet with sizes that was created when they were effective; without a name for
// none, or if it was resized, so that it does not tell what it was created with.
func newestAfter(pods []workload.Pod, n model.NewPods) (newest workload.Pod) {
	for _, pod := range pods {
		switch {
		case n.EffectiveSince.IsZero(), !pod.Current, pod.ReplicaSet != n.ReplicaSet, !pod.Created.After(n.EffectiveSince):
		case cmp.Or(pod.Created.Compare(newest.Created), cmp.Compare(pod.Name, newest.Name)) > 0:
			newest = pod
		}
	}
	if !newest.Resized.IsZero() {
		return workload.Pod{}
	}
	return newest
}

// hasSizes reports whether the pod has the sizes: a new pod would gain nothing.
//
// What a pod declares is applied, except after a resize, which may be Infeasible. Only then
// does the report of the kubelet count: a pod whose kubelet always reports something else
// would be evicted again and again.
func hasSizes(pod workload.Pod, sizes []model.Size) bool {
	isResized := model.WasResized(pod)
	return !slices.ContainsFunc(sizes, func(size model.Size) bool {
		actual, ok := pod.Actual[size.Container]
		if isResized && ok {
			return !matches(actual, cover(actual, size.Resources))
		}
		return !carries(pod, size)
	})
}

// covering are the sizes with the amounts of the pod where they have none.
func covering(made workload.Footprint, sizes []model.Size) []model.Size {
	out := slices.Clone(sizes)
	for i, size := range sizes {
		c, _ := made.Container(size.Container)
		out[i].Resources = cover(c.Resources, size.Resources)
	}
	return out
}

// cover puts the amounts that are set over those of has.
func cover(has, over workload.Resources) workload.Resources {
	for _, r := range model.Resources {
		if v := r.Request(over); v > 0 {
			r.Set(&has.Requests, v)
		}
		if v := r.Limit(over); v > 0 {
			r.Set(&has.Limits, v)
		}
	}
	return has
}
