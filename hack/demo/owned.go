// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// The names that the Deployment gets on its way: the first is the ScaledDeployment's, and
// the last is somebody else's at first.
const (
	renamed = "shop"
	foreign = "legacy"
)

// ownedPiece is about a ScaledDeployment.
func ownedPiece() piece {
	return piece{
		phases: ownedPlay(), checks: ownedChecks,
		writes: append(slices.Clip(scalerWrites),
			"patch deployments", "delete deployments", "patch verticalscalers", "update scaleddeployments/status"),
		without: []string{"manager-rollout"}, rights: "the right that only the mode Rollout needs",
	}
}

// ownedPlay is the whole of it. What is done is what a user would do.
func ownedPlay() []phase {
	rename := func(to string) string {
		return `patch sdeploy ` + name + ` --type=merge -p '{"spec":{"deploymentName":"` + to + `"}}'`
	}
	return []phase{
		{
			name:     "made",
			story:    "A ScaledDeployment is applied: a Deployment and its VerticalScaler are to come.",
			commands: []string{"apply -f hack/demo/owned.yaml"},
			missing:  func(_ *progress, s state) string { return first(isKept(s, name, 2), isSettled(nil, s)) },
			within:   2 * time.Minute,
		},
		{
			name:     "drift",
			story:    "Somebody scales the Deployment and changes its image by hand: put both back.",
			commands: []string{"scale deployment web --replicas=9", "set image deployment web app=registry.example/other:1"},
			missing:  func(_ *progress, s state) string { return isKept(s, name, 2) },
			within:   2 * time.Minute,
		},
		{
			name:     "deleted",
			story:    "Somebody deletes the Deployment: make it again.",
			commands: []string{"delete deployment web"},
			missing:  func(_ *progress, s state) string { return isKept(s, name, 2) },
			within:   2 * time.Minute,
		},
		{
			name:     "scaled",
			story:    "The ScaledDeployment is scaled, as a Deployment would be.",
			commands: []string{"scale sdeploy web --replicas=3"},
			missing:  func(_ *progress, s state) string { return first(isKept(s, name, 3), isSettled(nil, s)) },
			within:   2 * time.Minute,
		},
		{
			name:    "rise",
			story:   "All pods use 180m and 200Mi now: resize them in place, and leave the Deployment alone.",
			load:    quantity.Amounts{CPUMillis: 180, MemoryBytes: 200 * mebi},
			missing: func(p *progress, s state) string { return first(isRaised(p, s), isKept(s, name, 3)) },
			within:  2 * time.Minute,
		},
		{
			name:     "renamed",
			story:    "The Deployment gets another name: the old one goes, then the new one comes, never two.",
			commands: []string{rename(renamed)},
			missing:  func(_ *progress, s state) string { return isKept(s, renamed, 3) },
			within:   2 * time.Minute,
		},
		{
			name:     "refused",
			story:    "Now it gets a name that somebody else's Deployment has: touch neither of the two.",
			commands: []string{"create deployment legacy --image=registry.example/legacy:1", rename(foreign)},
			missing:  isRefused,
			within:   2 * time.Minute,
		},
		{
			name:     "taken over",
			story:    "The other Deployment is deleted: take the name.",
			commands: []string{"delete deployment legacy"},
			missing:  func(_ *progress, s state) string { return isKept(s, foreign, 3) },
			within:   2 * time.Minute,
		},
		{
			name:    "calm",
			story:   fmt.Sprintf("Nothing happens: the operator must write nothing for %s but its lease.", quiet),
			missing: isQuiet,
			within:  2*time.Minute + quiet,
		},
		{
			name:     "gone",
			story:    "The ScaledDeployment is deleted: the garbage collector takes all the rest.",
			commands: []string{"delete sdeploy web"},
			missing:  isGone,
			within:   2 * time.Minute,
		},
	}
}

// isKept waits for the ScaledDeployment to have the one Deployment of that name, as it
// says itself, and the scaler for it.
func isKept(s state, name string, pods int) string {
	if s.owner == nil {
		return "the ScaledDeployment"
	}
	mine, template := s.mine(), s.owner.Spec.Template.Spec
	if len(mine) != 1 || mine[0].name != name || mine[0].deleting {
		return fmt.Sprintf("Deployment %s, and no other", name)
	}
	if int(mine[0].replicas) != pods || mine[0].replicas != ptr.Deref(s.owner.Spec.Replicas, 1) || mine[0].image != template.Containers[0].Image {
		return fmt.Sprintf("Deployment %s to be as the ScaledDeployment says", name)
	}
	if s.scaler == nil || !metav1.IsControlledBy(s.scaler, s.owner) || s.scaler.Spec.DeploymentName != name ||
		s.condition(v1beta1.ConditionApplied).ObservedGeneration != s.scaler.Generation {
		return fmt.Sprintf("its VerticalScaler to look after Deployment %s", name)
	}
	if n := count(s.pods, func(p pod) bool { return p.ready }); n != pods || len(s.pods) != pods {
		return fmt.Sprintf("%d pods, all ready", pods)
	}
	if c := find(s.said(), v1beta1.ConditionReady); c.Status != metav1.ConditionTrue || c.ObservedGeneration != s.owner.Generation {
		return "the ScaledDeployment to say that it is ready"
	}
	return ""
}

// isRefused waits for the ScaledDeployment to say whose the Deployment is.
func isRefused(_ *progress, s state) string {
	c := find(s.said(), v1beta1.ConditionStalled)
	if c.Status != metav1.ConditionTrue || c.Reason != v1beta1.ReasonNotControlled || s.eventsFor("Refused") == 0 {
		return "the ScaledDeployment to say that the Deployment is not its own"
	}
	return ""
}

// isGone waits for everything to be gone.
func isGone(_ *progress, s state) string {
	if s.owner != nil || s.scaler != nil || len(s.deployments)+s.replicaSets+len(s.pods) > 0 {
		return fmt.Sprintf("all to be gone: %d Deployments, %d ReplicaSets and %d pods are left", len(s.deployments), s.replicaSets, len(s.pods))
	}
	return ""
}

// first is the first thing that is missing.
func first(missing ...string) string {
	for _, what := range missing {
		if what != "" {
			return what
		}
	}
	return ""
}

func (s state) eventsFor(reason string) (n int) {
	for _, e := range s.events {
		if e.reason == reason {
			n++
		}
	}
	return n
}

// named is the Deployment of that name; its zero value if there is none.
func (s state) named(name string) deployment {
	for _, d := range s.deployments {
		if d.name == name {
			return d
		}
	}
	return deployment{}
}

func ownedChecks(r *record) []check {
	took := func(p *progress) string { return seconds(p.done - p.began) }
	return []check{
		r.check("made", "Deployment and scaler are made", func(p *progress) (bool, string) {
			return true, "both controlled by the ScaledDeployment, ready after " + took(p)
		}),
		r.check("drift", "drift is put back", func(p *progress) (bool, string) {
			before, after := p.start.target(), p.end.target()
			return before.uid == after.uid && after.generation > before.generation+2,
				fmt.Sprintf("9 replicas and another image, Deployment generation %d -> %d; ready after %s", before.generation, after.generation, took(p))
		}),
		r.check("deleted", "a deleted one is made again", func(p *progress) (bool, string) {
			return p.start.target().uid != p.end.target().uid, "ready after " + took(p)
		}),
		r.check("scaled", "kubectl scale sdeploy", func(p *progress) (bool, string) {
			return p.end.owner.Status.Replicas == replicas && p.start.target().uid == p.end.target().uid,
				fmt.Sprintf("%d -> %d pods after %s", p.start.owner.Status.Replicas, p.end.owner.Status.Replicas, took(p))
		}),
		checkResized(r, "rise", "resized in place", "metrics showed it"),
		r.check("rise", "and the Deployment left alone", func(p *progress) (bool, string) {
			before, after := p.start.target(), p.end.target()
			return before == after && same(p.start.uids(), p.end.uids()) && r.restarts == 0,
				fmt.Sprintf("generation %d -> %d, %d pods before and after, %d restarts", before.generation, after.generation, len(p.end.pods), r.restarts)
		}),
		r.check("renamed", "renamed, never two", func(p *progress) (bool, string) {
			return p.most == 1, fmt.Sprintf("%s -> %s, at most %d at a time, ready after %s", p.start.target().name, p.end.target().name, p.most, took(p))
		}),
		r.check("refused", "another's Deployment is refused", func(p *progress) (bool, string) {
			other, told := p.end.named(foreign), p.end.eventsFor("Refused")-p.start.eventsFor("Refused")
			ok := other.generation == 1 && !other.touched && p.start.target() == p.end.target() && same(p.start.uids(), p.end.uids()) && told == 1
			return ok, fmt.Sprintf("neither it nor %s was touched; %d event: %s", p.end.target().name, told, find(p.end.said(), v1beta1.ConditionStalled).Message)
		}),
		r.check("taken over", "and taken over once it is free", func(p *progress) (bool, string) {
			return p.most == 1 && p.start.named(foreign).uid != p.end.target().uid,
				fmt.Sprintf("%s -> %s, at most %d at a time, ready after %s", p.start.target().name, p.end.target().name, p.most, took(p))
		}),
		r.check("gone", "the garbage collector takes all", func(p *progress) (bool, string) {
			n := deletes(p.end.audit) - deletes(p.start.audit)
			return n == 0, fmt.Sprintf("%d deletions by the operator, all gone after %s", n, took(p))
		}),
		checkRights(r),
		checkWrites(r),
		checkQuiet(r),
	}
}

// check is about one phase. Its proof is asked for once the phase has ended.
func (r *record) check(phase, name string, proof func(*progress) (ok bool, said string)) check {
	c := check{name: name}
	p := r.phase(phase)
	if p == nil || p.done < 0 {
		return c.because("not seen")
	}
	ok, said := proof(p)
	c.ok = ok
	return c.because("%s", said)
}

// deletes is the number of deletions among the writes.
func deletes(a audit) (n int) {
	for kind, times := range a.writes {
		if strings.HasPrefix(kind, "delete ") {
			n += times
		}
	}
	return n
}
