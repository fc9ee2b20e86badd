// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/goal"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// newPodsDelay is the time in which an API server learns of published sizes. It is
// notified of them, and looks for a new policy once a second.
const newPodsDelay = 10 * time.Second

// sizeNewPodsOnly plans what new pods get. Running pods stay unchanged, whatever they have.
func (p planner) sizeNewPodsOnly() model.Plan {
	next := p.Goals.Next()
	p.newPods.Sizes, p.newPods.Obstacle = next.Sizes, next.Obstacle
	if o := p.newPods.Obstacle; o.Exists() {
		return p.withinQuota(o).without(o.Verdict())
	}
	p.progress.PodsAtSize = p.PodsAt(p.newPods.Sizes)
	if p.progress.PodsAtSize < p.progress.Pods {
		return p.without(model.Waiting.Because(v1beta1.ReasonNewPodsOnly, "New pods get the decided size, and running pods stay unchanged"))
	}
	return p.without(model.Applied.Because(v1beta1.ReasonApplied, "All pods have the decided size, and new pods get it"))
}

// learnNewPods says what new pods get with the fallback Recreate, and finds out from the
// newest pod whether the API server does it.
func (p planner) learnNewPods() model.NewPods {
	before := p.Situation.NewPods
	if p.Unsized.Exists() {
		return model.NewPods{IneffectiveOnPod: before.IneffectiveOnPod}
	}
	next := p.Goals.Next()
	next.IneffectiveOnPod = before.IneffectiveOnPod
	if next.ReplicaSet == before.ReplicaSet && goal.IsSame(next.Sizes, before.Sizes) && goal.IsSame(next.Starts, before.Starts) {
		next.AskedSince, next.EffectiveSince = before.AskedSince, before.EffectiveSince
	}
	next = p.checkNewest(next)
	switch {
	case next.AskedSince.IsZero(), len(next.Sizes) == 0, !next.EffectiveSince.IsZero(), p.Now.Before(next.AskedSince.Add(newPodsDelay)):
		return next
	}
	for _, pod := range p.Pods { // pods that are created from now on get the sizes
		next.EffectiveSince = model.Latest(next.EffectiveSince, pod.Created)
	}
	return next
}

// checkNewest compares the newest pod with the sizes that it was to get, even if other sizes are decided now.
func (p planner) checkNewest(n model.NewPods) model.NewPods {
	isKnownIneffective := n.IneffectiveOnPod != ""
	before := p.Situation.NewPods
	pod, sizes := newestAfter(p.Pods, before), p.applicableSizes(before.Sizes)
	switch {
	case pod.Name == "", len(sizes) == 0:
	case !goal.HasSizes(pod, sizes) && !p.In(pod).StartedBoosted():
		n.IneffectiveOnPod = pod.Name
	case isKnownIneffective:
		n.IneffectiveOnPod = ""
		if !n.EffectiveSince.IsZero() {
			n.EffectiveSince = pod.Created // whatever older pods have
		}
	}
	return n
}

// untilLearned is the time until a new pod gets the sizes and is newer than those that
// exist: creation times are in whole seconds.
func (p planner) untilLearned() time.Duration {
	n := p.newPods
	switch age := p.Now.Sub(n.EffectiveSince); {
	case n.EffectiveSince.IsZero() && n.AskedSince.IsZero():
		return newPodsDelay
	case n.EffectiveSince.IsZero():
		return min(newPodsDelay, max(time.Second, n.AskedSince.Add(newPodsDelay).Sub(p.Now)))
	case age.Truncate(time.Second) == 0 && age >= 0:
		return time.Second
	}
	return 0
}

// applicableSizes are the sizes that the API server puts into pods: those that have limits exactly where the pod has some, as
// internal/apiserver/admission says. After a change of the template, other sizes apply. Changes to pods by another controller do
// not matter here, because it would change the next pod, too.
func (p planner) applicableSizes(sizes []model.Size) []model.Size {
	made := p.Deployment.Footprint().With(p.Bounds.Defaulted)
	return slices.DeleteFunc(slices.Clone(sizes), func(size model.Size) bool {
		c, ok := made.Container(size.Container)
		return !ok || slices.ContainsFunc(model.Resources[:], func(r model.Resource) bool {
			addsOrRemoves := (r.Limit(size.Resources) > 0) != (r.Limit(c.Resources) > 0)
			return addsOrRemoves && r.Request(size.Resources) > 0
		})
	})
}

// newestAfter is the newest pod of the ReplicaSet with sizes that was created when they were effective. It has no name if
// there is none, or if it was resized, so that its size at its creation is not known.
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
