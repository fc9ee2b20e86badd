// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scalingpolicy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
)

// scope carries the values of one reconcile of a policy from phase to phase.
type scope struct {
	object client.Object
	status *v1beta1.ScalingPolicyStatus
	now    time.Time

	// policy is nil if it selects nothing, or may not.
	policy *fleet.Policy
	// invalid is the error of a selector that cannot be parsed.
	invalid error
	// isSurplus is true if too many older policies are in the namespace.
	isSurplus bool
	// targets are the Deployments of the namespace, or of all.
	targets []target
	// forbidden lists the rights that the operator lacks, and how to grant them.
	forbidden string
	// isPaused is true if an annotation pauses the policy.
	isPaused bool
	// frozen is an administrator's reason for a freeze; empty without a freeze.
	frozen string

	scalers   map[types.NamespacedName]*v1beta1.VerticalScaler
	survey    fleet.Survey
	promotion fleet.Promotion
	// requeueAfter is the longest time until the next reconcile; zero means any.
	requeueAfter time.Duration
}

// lookAgainIn asks for the next reconcile in that time, or before.
func (s *scope) lookAgainIn(d time.Duration) {
	if s.requeueAfter == 0 || d < s.requeueAfter {
		s.requeueAfter = d
	}
}

// tolerate is the error of a write to a scaler, unless that scaler alone is concerned: it is gone, or the API server
// rejects the write, which the status reports. One such scaler does not stop the others.
func (s *scope) tolerate(err error) error {
	rejection := apierror.Of(err)
	if rejection.Reason == "" {
		return client.IgnoreNotFound(err)
	}
	message := conditions.Truncated(rejection.Message)
	s.survey.Rejected = min(cmp.Or(s.survey.Rejected, message), message)
	s.lookAgainIn(rejectedRetry)
	return nil
}

// frozenRetry is the time until the freeze is checked again.
const frozenRetry = 15 * time.Second

// errOldCache is returned if the cache is older than our last write. Its objects must not be counted.
var errOldCache = errors.New("the cache is older than the last write")

// phase is one step of a reconcile. It returns done if the later phases must not run.
type phase func(ctx context.Context, s *scope) (done bool, err error)

// Reconcile counts the selected Deployments, promotes scalers and writes the status of each policy. A request has the name
// of a ClusterScalingPolicy, or the namespace of ScalingPolicies, which share what is read.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	all, err := r.policies(ctx, request.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	var targets []target
	if r.Forbidden == "" {
		if targets, err = r.targets(ctx, request.Namespace, all); err != nil {
			return reconcile.Result{}, err
		}
	}
	var result reconcile.Result
	var errs []error
	for _, key := range r.keysOf(request, all) {
		after, err := r.reconcile(ctx, key, all, targets)
		errs = append(errs, err)
		if after > 0 && (result.RequeueAfter == 0 || after < result.RequeueAfter) {
			result.RequeueAfter = after
		}
	}
	return result, errors.Join(errs...)
}

// keysOf are the policies of a request, with those that have been deleted since the last one.
func (r *Reconciler) keysOf(request reconcile.Request, all policies) []types.NamespacedName {
	if request.Name != "" {
		return []types.NamespacedName{request.NamespacedName}
	}
	now := slices.DeleteFunc(slices.Clone(all.keys), func(key types.NamespacedName) bool { return key.Namespace == "" })
	last, _ := r.known.Swap(request.Namespace, now)
	if len(now) == 0 {
		r.known.Delete(request.Namespace)
	}
	before, _ := last.([]types.NamespacedName)
	return sets.New(slices.Concat(before, now)...).UnsortedList()
}

// reconcile reconciles one policy, and returns when to do it again.
func (r *Reconciler) reconcile(ctx context.Context, key types.NamespacedName, all policies, targets []target) (after time.Duration, err error) {
	s, err := r.read(ctx, key)
	if err != nil || s == nil {
		return 0, err
	}
	s.targets, s.isSurplus = targets, all.surplus.Has(s.object.GetUID())
	if err := r.run(ctx, s); err != nil {
		if apierrors.IsConflict(err) || errors.Is(err, errOldCache) {
			return r.conflict.Delay(key), nil
		}
		return 0, err
	}
	r.conflict.Forget(key)
	after = r.ResyncPeriod
	for _, sooner := range []time.Duration{s.requeueAfter, s.promotion.LookAgain} {
		if sooner > 0 {
			after = min(after, max(sooner, pause))
		}
	}
	return after, nil
}

// run runs the phases in order, and then writes the status.
func (r *Reconciler) run(ctx context.Context, s *scope) error {
	if r.written.IsNewerThan(s.object, s.now) {
		return errOldCache
	}
	for _, phase := range []phase{r.checkRights, r.checkSelectors, r.count, r.markHarm, r.promote} {
		if done, err := phase(ctx, s); err != nil {
			return err
		} else if done {
			break
		}
	}
	return r.writeStatus(ctx, s)
}

// read reads a policy; nil if it does not exist or is being deleted.
func (r *Reconciler) read(ctx context.Context, key types.NamespacedName) (*scope, error) {
	s := &scope{now: r.Clock.Now(), object: &v1beta1.ScalingPolicy{}}
	if key.Namespace == "" {
		s.object = &v1beta1.ClusterScalingPolicy{}
	}
	s.status = fleet.ViewOf(s.object).Status
	if err := r.Cached.Get(ctx, key, s.object); err != nil {
		if apierrors.IsNotFound(err) {
			r.parsed.Delete(key)
			r.written.Forget(key)
			r.writtenAt.Delete(key)
			r.conflict.Forget(key)
			metrics.ForgetPolicy(key)
			return nil, nil
		}
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	if s.object.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	return s, nil
}

// checkRights is a phase: a policy without rights on scalers reports this.
func (r *Reconciler) checkRights(_ context.Context, s *scope) (done bool, err error) {
	if r.Forbidden != "" {
		s.forbidden = "The operator may not " + r.Forbidden + ", which policies need. An administrator can grant it: " + r.Release.Install(release.Policies)
	}
	return r.Forbidden != "", nil
}

// checkSelectors is a phase: a policy whose selectors cannot be parsed, or that is one too many, selects nothing, and keeps
// its scalers.
func (r *Reconciler) checkSelectors(_ context.Context, s *scope) (done bool, err error) {
	if !s.isSurplus {
		s.policy, s.invalid = r.parse(s.object)
	}
	return s.policy == nil, nil
}

// target is a Deployment that policies may select.
type target struct {
	deployment *fleet.Deployment
	namespace  *fleet.Namespace
	scalers    fleet.Scalers
	// sizedBy is the policy that sizes it, or none.
	sizedBy []*fleet.Policy
}

// targets reads the Deployments of a namespace, or of all.
func (r *Reconciler) targets(ctx context.Context, namespace string, all policies) (out []target, err error) {
	scalers, err := r.scalersBy(ctx, client.InNamespace(namespace))
	if err != nil {
		return nil, err
	}
	namespaces := map[string]*fleet.Namespace{}
	for _, d := range r.Deployments.All(namespace) {
		if namespaces[d.Namespace] == nil {
			if namespaces[d.Namespace], err = r.namespace(ctx, d.Namespace); err != nil {
				return nil, err
			}
		}
		t := target{deployment: d, namespace: namespaces[d.Namespace], scalers: scalers[d.Key()]}
		if p := all.choose(d, t.namespace); p != nil {
			t.sizedBy = []*fleet.Policy{p}
		}
		out = append(out, t)
	}
	return out, nil
}

// count is a phase: it looks at all Deployments that the policy selects.
func (r *Reconciler) count(_ context.Context, s *scope) (done bool, err error) {
	s.isPaused = s.policy.IsPaused()
	s.scalers = map[types.NamespacedName]*v1beta1.VerticalScaler{}
	var members []fleet.Member
	for _, t := range s.targets {
		key := t.deployment.Key()
		member, ok := fleet.MemberOf(s.policy, t.sizedBy, t.deployment, t.namespace, t.scalers, r.rejection(key))
		if !ok {
			continue
		}
		if member.Scaler != nil {
			if r.promoted.IsNewerThan(member.Scaler, s.now) {
				return false, errOldCache
			}
			s.scalers[key] = member.Scaler
		}
		members = append(members, member)
	}
	s.survey = fleet.Count(members)
	return false, nil
}

// scalersBy are scalers by the Deployments that they concern.
func (r *Reconciler) scalersBy(ctx context.Context, which ...client.ListOption) (map[types.NamespacedName]fleet.Scalers, error) {
	var list v1beta1.VerticalScalerList
	if err := r.Cached.List(ctx, &list, append(which, client.UnsafeDisableDeepCopy)...); err != nil {
		return nil, fmt.Errorf("listing VerticalScalers: %w", err)
	}
	return fleet.ScalersBy(list.Items), nil
}

// markHarm is a phase: it notes on promoted scalers that they did harm while they were verified.
func (r *Reconciler) markHarm(ctx context.Context, s *scope) (done bool, err error) {
	verification := fleet.RolloutOf(s.policy.Rules.Rollout).Verification
	var errs []error
	for i := range s.survey.Candidates {
		c := &s.survey.Candidates[i]
		scaler := s.scalers[c.Key]
		if c.Promoted.IsZero() || !c.Harmed.IsZero() {
			continue
		}
		harm, ok := fleet.HarmOf(&scaler.Status, c.Promoted, verification)
		if !ok {
			continue
		}
		c.Harmed = harm.At
		if s.isPaused {
			continue // It counts already, and is noted after the pause.
		}
		mark := func(s *v1beta1.VerticalScaler) *v1beta1.VerticalScaler {
			return fleet.Marked(s, v1beta1.HarmedAnnotation, harm.At)
		}
		if _, err := r.update(ctx, scaler, mark); err != nil {
			errs = append(errs, s.tolerate(err))
		}
	}
	return false, errors.Join(errs...)
}

// promote is a phase: it promotes the scalers whose turn it is.
func (r *Reconciler) promote(ctx context.Context, s *scope) (done bool, err error) {
	if !s.policy.Promotes() {
		return false, nil
	}
	for i := range s.survey.Candidates {
		c := &s.survey.Candidates[i]
		switch why, frozen := r.Freeze.Announced(c.Key.Namespace); {
		case frozen:
			c.Blocked, s.frozen = true, why
		case s.isPaused:
			c.Blocked = true
		}
	}
	s.promotion = fleet.Promote(fleet.RolloutOf(s.policy.Rules.Rollout), haltsIn(s.status.Rollout), s.survey.Candidates, s.now)
	var errs []error
	promoted := 0
	for _, key := range s.promotion.Promote {
		if _, frozen := r.Freeze.Frozen(key.Namespace); frozen {
			s.lookAgainIn(pause) // It is not known yet whether there is a freeze.
			continue
		}
		promote := func(scaler *v1beta1.VerticalScaler) *v1beta1.VerticalScaler { return s.policy.Promoted(scaler, s.now) }
		scaler, err := r.update(ctx, s.scalers[key], promote)
		if err != nil {
			errs = append(errs, s.tolerate(err))
			continue
		}
		r.promoted.Remember(scaler, s.now)
		promoted++
	}
	if s.frozen != "" {
		s.lookAgainIn(frozenRetry) // The end of the freeze sends no event.
	}
	if promoted > 0 {
		log.FromContext(ctx).Info("Promoted scalers", "policy", s.policy.String(), "scalers", promoted, "updateMode", s.policy.Rules.Template.UpdatePolicy.UpdateMode)
		s.lookAgainIn(pause) // They count as verifying then.
	}
	return false, errors.Join(errs...)
}
