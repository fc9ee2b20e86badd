// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// promotion has the policy's requirements for a promotion of the scaler, and their state. The policy's controller
// reads the condition and decides.
type promotion struct {
	// isUnknown is true if the scaler's policy cannot be found. The record stays as it is.
	isUnknown bool
	// waits is true if the scaler waits to be promoted.
	waits bool
	// goal is the usage that its recommendations must cover.
	goal history.Goal
	// isAtStart is true if the scaler has the update mode in which evidence is collected.
	isAtStart bool

	// isLearned is true if the learn phase has read the following.
	isLearned bool
	covered   []coveredContainer
}

// coveredContainer is a container with a recommendation.
type coveredContainer struct {
	name string
	history.Coverage
}

// findPolicy is a phase: it reads the requirements of the scaler's policy from the cache. Sizing does not depend on it.
func (r *Reconciler) findPolicy(ctx context.Context, s *scope) (done bool, err error) {
	owner := metav1.GetControllerOfNoCopy(s.scaler)
	if r.Policies == nil || !v1beta1.IsPolicy(owner) || fleet.IsPromoted(s.scaler) {
		return false, nil
	}
	rules, err := r.rulesOf(ctx, s.scaler.Namespace, owner)
	if err != nil {
		log.FromContext(ctx).V(1).Info("Cannot read the policy of a scaler", "Kind", owner.Kind, "Name", owner.Name, "error", err.Error())
	}
	s.promotion = promotionBy(s.scaler, rules)
	return false, nil
}

// rulesOf returns the rules of a policy, or nil if it does not exist.
func (r *Reconciler) rulesOf(ctx context.Context, namespace string, owner *metav1.OwnerReference) (*v1beta1.PolicyRules, error) {
	key, policy := types.NamespacedName{Name: owner.Name}, client.Object(&v1beta1.ClusterScalingPolicy{})
	if owner.Kind == v1beta1.ScalingPolicyKind {
		key.Namespace, policy = namespace, &v1beta1.ScalingPolicy{}
	}
	switch err := r.Policies.Get(ctx, key, policy, client.UnsafeDisableDeepCopy); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading %s %s: %w", owner.Kind, owner.Name, err)
	case policy.GetUID() != owner.UID:
		return nil, nil
	}
	return fleet.ViewOf(policy).Rules, nil
}

// promotionBy has the requirements for a scaler that is not promoted. Nil rules are unknown.
func promotionBy(vs *v1beta1.VerticalScaler, rules *v1beta1.PolicyRules) promotion {
	if rules == nil {
		return promotion{isUnknown: true}
	}
	rollout := fleet.RolloutOf(rules.Rollout)
	if rollout.Start == scaler.Mode(&v1beta1.VerticalScalerSpec{Scaling: rules.Template}) {
		return promotion{}
	}
	return promotion{waits: true, goal: rollout.Evidence, isAtStart: scaler.Mode(&vs.Spec) == rollout.Start}
}

// record sets the current recommendation in the histories, and reads its coverage.
func (p *promotion) record(histories history.Histories, recs []recommend.Container) {
	if p.isUnknown {
		return
	}
	for name, container := range histories {
		i := slices.IndexFunc(recs, func(rec recommend.Container) bool { return rec.Name == name })
		switch {
		case !p.waits:
			container.DropCoverage()
		case !p.isAtStart || p.goal.Time == 0 || i < 0:
			container.Pause()
		default:
			container.Expect(recs[i].Target, p.goal)
		}
	}
	if !p.waits {
		return
	}
	p.isLearned = true
	for _, rec := range recs {
		if container := histories.Container(rec.Name); container != nil {
			p.covered = append(p.covered, coveredContainer{rec.Name, container.Coverage()})
		}
	}
}

// readyForPromotion is the condition of a scaler that waits to be promoted. It is false for other scalers. Its message
// has no running time: it changes when a container begins again, and when all have enough.
func readyForPromotion(s *scope, provided metav1.Condition) (metav1.Condition, bool) {
	p := s.promotion
	if !p.waits {
		return metav1.Condition{}, false
	}
	if before := meta.FindStatusCondition(s.scaler.Status.Conditions, v1beta1.ConditionReadyForPromotion); before != nil && !p.isLearned && s.isUnread() {
		return *before, true
	}
	c := metav1.Condition{Type: v1beta1.ConditionReadyForPromotion, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonCollectingEvidence}
	isEnough := len(p.covered) > 0
	for _, container := range p.covered {
		isEnough = isEnough && container.Reaches(p.goal)
	}
	goal := duration.HumanDuration(p.goal.Time)
	switch {
	case p.goal.Time == 0 && provided.Status != metav1.ConditionTrue:
		c.Message = "Needs a recommendation that is based on enough usage"
	case p.goal.Time == 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonEnoughEvidence, "The policy asks for a recommendation only (rollout.afterSeconds is 0)"
	case isEnough:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonEnoughEvidence, fmt.Sprintf("The recommendations would have covered %s of usage", goal)
	default:
		c.Message = fmt.Sprintf("Needs %s of usage that the recommendations would have covered", goal) + p.lastShortfall()
	}
	return c, true
}

// isUnread reports whether the reconcile has not come to read the history of a Deployment, or may not read it.
func (s *scope) isUnread() bool { return s.err != nil || s.observation.deployment != nil }

// lastShortfall is the last reason for which a container without enough coverage began again, if any.
func (p *promotion) lastShortfall() string {
	var last coveredContainer
	for _, container := range p.covered {
		if !container.Reaches(p.goal) && container.At.After(last.At) {
			last = container
		}
	}
	at := last.At.UTC().Format(time.RFC3339)
	switch last.Shortfall {
	case history.ShortOfMemory:
		return fmt.Sprintf("; container %s used more memory than recommended at %s", last.name, at)
	case history.KilledForMemory:
		return fmt.Sprintf("; container %s was OOM-killed at %s", last.name, at)
	case history.ShortOfCPU:
		return fmt.Sprintf("; container %s used more CPU than recommended for more than %d %% of the time until %s", last.name, p.goal.MaxStarvedPercent, at)
	}
	return ""
}
