// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/decision"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/verification"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// template is what the Deployment's pod template should be.
type template struct {
	owned     []model.Size     // the values that we own, by container
	wanted    []model.Size     // all resources of the containers in owned
	originals []model.Original // the original values to record first
	isChanged bool
	obstacle  model.Obstacle
	withheld  model.Obstacle // what the requests that are to be lowered wait for
}

// rollOut plans the next change of the Deployment's pod template.
func (p planner) rollOut() model.Plan {
	t := p.template()
	p.progress.PodsAtSize = p.podsAt(p.decidedTemplate().owned)
	if !t.isChanged {
		if t.withheld.Exists() {
			return p.without(model.Obstacles{t.withheld.On("the pod template")}.Verdict())
		}
		return p.with(p.Decision.Applied()).rolledOut()
	}
	if p.Decision.Reverts >= maxReverts {
		c := p.contested()
		if !p.isReleased(c) {
			return p.contest(c, p.without(model.Verdict{}))
		}
		p.Decision = p.Decision.Uncontested()
	}
	if o := p.rolloutObstacle(t); o.Exists() {
		return p.without(o.Verdict())
	}
	if open, in := decision.MayRestart(p.Decision.Reason, p.policy.Windows, p.now); !open {
		return p.within(in).without(model.Waiting.Because(v1beta1.ReasonOutsideWindow, "Waiting for the next of updatePolicy.windows to roll out the decided size"))
	}
	if o := p.rolloutOverQuota(t.wanted); o.Exists() {
		return p.within(quotaRetry).without(o.Verdict())
	}
	verdict := model.Changing.Because(v1beta1.ReasonRollingOut, "The Deployment is rolling out the decided size")
	if len(t.originals) > 0 {
		return p.plan(model.TakeOver{UID: p.Deployment.UID, ResourceVersion: p.Deployment.ResourceVersion, Originals: t.originals}, verdict)
	}
	rewrite := model.Rewrite{UID: p.Deployment.UID, ResourceVersion: p.Deployment.ResourceVersion, Sizes: t.owned}
	if t.withheld.Exists() {
		return p.plan(rewrite, verdict)
	}
	return p.with(p.Decision.Applied()).plan(rewrite, verdict)
}

// isTemplateAsDecided reports whether a fallback has given the template the decided size.
func (p planner) isTemplateAsDecided() bool {
	if !p.policy.MayRollOut() || len(p.Originals) == 0 {
		return false
	}
	t := p.decidedTemplate()
	return !t.isChanged && len(t.originals) == 0
}

// decidedTemplate is what the pod template should be once no usage is missing.
func (p planner) decidedTemplate() template {
	p.MissingUsage = ""
	return p.template()
}

// rolloutObstacle says what keeps the template from being changed.
//
// OOM-killed pods never become available, pods that the API server refuses are never created (which reverts the decision), and
// pods that are larger than what any node has left never start. A rollout that waits for them may
// never end: it must not block what helps them.
func (p planner) rolloutObstacle(t template) model.Obstacle {
	switch {
	case t.obstacle.Exists():
		return t.obstacle
	case p.Deployment.Paused:
		return model.Obstacle{Reason: v1beta1.ReasonRolloutPaused, Message: "The Deployment is paused: its pod template is not changed until it is resumed"}
	case p.Deployment.RollingOut && !p.endsRollout(t):
		return anotherRollout()
	}
	return model.Obstacle{}
}

// endsRollout reports whether the changed template lets a rollout end that otherwise would not.
func (p planner) endsRollout(t template) bool {
	wasApplied := p.Decision.AppliedToTemplate || p.Decision.LastRevert.After(p.Decision.Time) // even if another controller has undone it since
	if p.Decision.IsUrgentRestart() && !wasApplied {
		return true
	}
	return slices.ContainsFunc(p.Pods, lacksNode) && p.onlyLowers(t)
}

// onlyLowers reports whether the changed template requests less than the current one, and of no resource
// more.
func (p planner) onlyLowers(t template) bool {
	least, most := int64(0), int64(0) // of the differences
	for _, size := range t.wanted {
		c, _ := p.Deployment.Container(size.Container)
		for _, r := range model.Resources {
			more := r.Request(size.Resources) - r.Request(c.Resources)
			least, most = min(least, more), max(most, more)
		}
	}
	return most == 0 && least < 0
}

func anotherRollout() model.Obstacle {
	return model.Obstacle{Reason: v1beta1.ReasonRolloutInProgress, Message: "Another rollout of the Deployment is in progress"}
}

// rolledOut says how far the Deployment is with a template that is as decided.
func (p planner) rolledOut() model.Plan {
	switch {
	case !p.Deployment.RollingOut:
	case p.Deployment.Paused:
		return p.without(model.Waiting.Because(v1beta1.ReasonRolloutPaused, "The Deployment is paused: its pods get the decided size once it is resumed"))
	default:
		return p.without(model.Changing.Because(v1beta1.ReasonRollingOut, "The Deployment is rolling out the decided size"))
	}
	if p.Decision.Verification != nil {
		d, left := verification.Observe(p.Situation, p.policy, p.Decision, p.now)
		if left <= 0 {
			d, left = d.WithVerification(nil), 0
		}
		p = p.with(d).within(left)
	}
	return p.without(model.Applied.Because(v1beta1.ReasonApplied, "The Deployment's pod template has the decided size"))
}

// template is what the pod template should be by the decision.
func (p planner) template() (t template) {
	for _, c := range p.Deployment.Containers {
		before, isOurs := p.Original(c.Name)
		if !c.Unreadable {
			size, withheld := p.withholdFromTemplate(c, p.templateSize(c))
			t.add(c, size, before)
			t.withheld = cmp.Or(t.withheld, withheld)
		} else if isOurs {
			// A rewrite without what we own of it would remove that.
			t.obstacle = model.Obstacle{
				Reason:  v1beta1.ReasonRejected,
				Message: fmt.Sprintf("Container %s has resources outside the supported range: correct them in the Deployment", c.Name),
				Stalled: true,
			}
		}
	}
	switch {
	case t.obstacle.Exists():
	case p.Deployment.PodLevelResources:
		t.obstacle = podLevelResources()
	default:
		t.obstacle = p.outOfBounds(t.wanted)
	}
	return t
}

// outOfBounds says which rule of a LimitRange a new pod of these sizes breaks. What is injected into pods is known from
// those that run only: a new pod may come without it.
func (p planner) outOfBounds(sizes []model.Size) (o model.Obstacle) {
	for _, made := range []workload.Footprint{p.NewPod(), p.Deployment.NewPod(nil)} {
		o = cmp.Or(o, decision.OutOfBounds(p.withDefaults(resized(made, sizes)), sizes, p.Bounds))
	}
	return o
}

func (t *template) add(c workload.Container, size templateSize, before model.Original) {
	if size.own != (workload.Resources{}) {
		t.owned = append(t.owned, model.Size{Container: c.Name, Resources: size.own})
		t.wanted = append(t.wanted, model.Size{Container: c.Name, Resources: size.want})
	}
	if size.want != c.Resources {
		t.isChanged = true
	}
	if size.original != before {
		t.originals = append(t.originals, size.original)
	}
}

// templateSize is what we own of a template's container, what the container looks like with
// it, and the original values that must be recorded for that.
type templateSize struct {
	own, want workload.Resources
	original  model.Original
}

// templateSize is the size of a template's container by the decision.
//
// A value once taken over stays ours until it is restored. So what is no longer decided is
// written with its original value.
func (p planner) templateSize(c workload.Container) (size templateSize) {
	requests := p.Decision.Requests[c.Name]
	size.want = decision.LimitRulesFor(p.Situation, p.policy, c).New(c.Resources, requests)
	size.original, _ = p.Original(c.Name)
	for _, r := range model.Resources {
		if r.Of(requests) > 0 {
			size.original = size.original.With(r, c)
		} else if size.original.Has(r) {
			r.Copy(&size.want, size.original.Resources)
		}
		if size.original.Has(r) {
			r.Copy(&size.own, size.want)
		}
	}
	return size
}

// withDefaults fills in what is not set, as far as it is known what new pods get.
func (p planner) withDefaults(pod workload.Footprint) workload.Footprint {
	return pod.With(p.Bounds.Defaulted)
}

// podsAt counts the pods that carry all that we own of the template. What we do not own may
// differ: a LimitRange fills it in.
func (p planner) podsAt(owned []model.Size) int {
	return p.Count(func(pod workload.Pod) bool {
		return model.IsAlive(pod) && !slices.ContainsFunc(owned, func(size model.Size) bool { return !carries(pod, size) })
	})
}

// carries reports whether the pod declares what is set of the size.
func carries(pod workload.Pod, size model.Size) bool {
	c, ok := pod.Container(size.Container)
	return ok && cover(c.Resources, size.Resources) == c.Resources
}

// MustRestore reports whether we own something of the template, but nothing that is still
// managed.
func MustRestore(s model.Situation, policy model.Policy) bool {
	if !policy.MayRollOut() || len(s.Originals) == 0 {
		return false
	}
	for _, original := range s.Originals {
		for _, r := range model.Resources {
			if original.Has(r) && s.IsManaged(policy, original.Container, r) {
				return false
			}
		}
	}
	return true
}
