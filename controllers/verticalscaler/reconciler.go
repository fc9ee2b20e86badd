// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler/precedence"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/pressure"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

const (
	// DefaultResyncPeriod is the time between reconciles without an event.
	DefaultResyncPeriod = 10 * time.Minute
	// staleCacheRetry is the time until the next reconcile after a write whose result the next step needs.
	staleCacheRetry = 50 * time.Millisecond
	// refusedRetry is the time until the next reconcile after the API server has refused a step: it refuses others, too.
	refusedRetry = time.Second
)

// Pods reads the pods of Deployments, which must not be modified, and reports their changes.
type Pods interface {
	Of(ctx context.Context, d *appsv1.Deployment) ([]workload.Pod, error)
	OnChange(handler inventory.PodHandler)
}

// Nodes knows the allocatable resources of the largest node, and the free resources of a known node.
type Nodes interface {
	Largest() quantity.Amounts
	Free(node string) (free quantity.Amounts, isKnown bool)
	HaveRoom(requests quantity.Amounts, own string, leaving quantity.Amounts) bool
}

// Reconciler applies the recommendations of VerticalScalers to their Deployments.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Pods knows the pods of Deployments.
	Pods Pods
	// Histories stores the usage histories.
	Histories *checkpoint.Store
	// Usage reports which usage of a scaler is missing.
	Usage UsageProblems
	// Params are the parameters of recommendations.
	Params recommend.Params
	// Recorder records events.
	Recorder events.EventRecorder
	// Clock is the time.
	Clock clock.PassiveClock
	// ResyncPeriod is the time between reconciles without an event.
	ResyncPeriod time.Duration
	// Workers is the number of scalers that are reconciled at once.
	Workers int
	// Release is the operator's own.
	Release release.Release
	// Access is the part of the cluster that we cannot read.
	Access scaler.ClusterAccess
	// Budget limits concurrent changes; nil means no limit. It outlives a manager.
	Budget *budget.Budget
	// Freeze is the switch that stops all changes, or nil.
	Freeze *freeze.Switch
	// FreezeAPI is the API to watch the switch.
	FreezeAPI corev1client.ConfigMapsGetter
	// Nodes knows the size and the free room of nodes; nil if nodes are not read.
	Nodes Nodes
	// Pressure finds nodes that have used up their CPU; nil if nodes are not read.
	Pressure *pressure.Nodes
	// Fallback is the default fallback of scalers.
	Fallback v1beta1.Fallback
	// Ceilings bound raised requests. The zero value bounds nothing.
	Ceilings plan.Ceilings
	// VPAs knows the VerticalPodAutoscalers; nil if they are not watched.
	VPAs *inventory.VPAs
	// Metrics has the state of the scalers for Prometheus, or is nil.
	Metrics *metrics.Scalers
	// NewPodsPolicy watches the policy that sizes new pods, and its binding. Works reports whether it does, and TakeChange
	// whether something has changed since the last call. Nil watches nothing.
	NewPodsPolicy interface {
		Works() bool
		TakeChange() bool
	}
	// NewPodsRefused returns why the API server rejects the sizes of new pods of a namespace.
	NewPodsRefused func(namespace string) apierror.Rejection
	// Policies reads ScalingPolicies and ClusterScalingPolicies from a cache; nil if none are served.
	Policies client.Reader

	order     *precedence.Order
	memory    memories
	admission admissionCheck
	written   *ownwrites.Memory
	conflicts queue.Conflicts
}

// UsageProblems reports why a scaler's usage is incomplete, and adds the OOM kills that no status of a pod has.
type UsageProblems interface {
	ProblemsOf(scaler types.NamespacedName) collect.Problems
	AddOOMEvents(namespace string, pods []workload.Pod)
}

// scope carries the values of one reconcile from phase to phase.
//
// The scaler, its status and the Deployment are read without a copy. So a field may be replaced, but
// its target may not be modified: the cache and the status share it.
type scope struct {
	scaler *v1beta1.VerticalScaler
	now    time.Time
	access scaler.ClusterAccess

	// standing identifies the scaler that sizes the Deployment.
	standing precedence.Standing
	// status is the status to write.
	status v1beta1.VerticalScalerStatus
	// unreleased is the error of restoring the original values of a Deployment.
	unreleased error
	// promotion has the requirements of the scaler's policy for its promotion.
	promotion promotion
	// observation is the state of the target and its surroundings.
	observation observation
	// policy is the spec in the terms of the plan.
	policy plan.Policy
	// plan has no verdict until the plan phase.
	plan plan.Plan
	// unpublished is the API server's rejection of the NewPodSizes object, if any.
	unpublished apierror.Rejection
	// isUnsaved is true if the history is saved once a change is permitted.
	isUnsaved bool
	// isYoung is true if nothing of the history was saved yet, and a checkpoint would have no usage of CPU.
	isYoung bool
	// frozen is an administrator's reason for a freeze; empty without a freeze.
	frozen string

	// taken and takenNote are the event of this reconcile's step, if any.
	taken, takenNote string
	// requeueAfter is the longest time until the next reconcile; zero means any.
	requeueAfter time.Duration

	// outcome is the end of the reconcile.
	outcome outcome
	// err is the error that ended it; nil if it is settled.
	err error
}

// phase is one step of a reconcile. It returns done if the later phases must not run.
type phase func(ctx context.Context, s *scope) (done bool, err error)

// Reconcile moves one Deployment a step closer to its recommendation.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var vs v1beta1.VerticalScaler
	if err := r.Client.Get(ctx, request.NamespacedName, &vs, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			r.leave(request.NamespacedName)
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, err
	}
	s := &scope{scaler: &vs, now: r.Clock.Now(), access: r.Access, status: vs.Status}
	if r.written.IsNewerThan(&vs, s.now) {
		// A reconcile of an old object would compare with an old status, and might not write
		// changes.
		return reconcile.Result{RequeueAfter: r.conflicts.Delay(request.NamespacedName)}, nil
	}
	if vs.DeletionTimestamp != nil {
		s.classify(r.release(ctx, s))
		return r.result(s)
	}
	r.memory.change(request.NamespacedName, func(m *memory) { m.needsNoQuota = false })
	s.standing = r.order.StandingOf(&vs)
	s.classify(r.run(ctx, s))
	r.countPods(s)
	switch s.outcome {
	case conflicted, unread: // The status stays as it is.
		return r.result(s)
	case settled, failed, gone:
	}
	if err := r.noteUnpublished(ctx, s); err != nil {
		s.classify(err)
	}
	if err := r.writeStatus(ctx, s); err != nil {
		s.classify(err) // It outranks the error of a phase: the status must be written again.
		return r.result(s)
	}
	if !s.plan.IsHeld {
		r.acknowledge(request.NamespacedName, s.observation.undone)
	}
	r.Metrics.Record(request.NamespacedName, measuredState(s), measuredSizes(s))
	r.countReverts(request.NamespacedName, s)
	if s.outcome == settled {
		waits := slices.Contains([]string{s.plan.Verdict.Reason, s.plan.NewPods.Obstacle.Reason}, v1beta1.ReasonQuotaExceeded)
		r.memory.change(request.NamespacedName, func(m *memory) { m.needsNoQuota = !waits })
	}
	r.recordEvents(s)
	return r.result(s)
}

// run runs the phases in order.
func (r *Reconciler) run(ctx context.Context, s *scope) error {
	for _, run := range []phase{
		r.findPolicy, r.restorePrevious, r.claim, r.observe, r.learn, r.observePermission, r.plan, r.apply,
	} {
		if done, err := run(ctx, s); err != nil {
			return err
		} else if done {
			break
		}
	}
	return r.dropUnused(ctx, s)
}

// claim is a phase: it puts the scaler's claim of its Deployment into the status. Nothing on a
// Deployment changes before the status claims it, so that a restarted operator finds its changes. A
// scaler behind another one claims nothing, once it has restored its earlier changes: no event of
// the Deployment concerns it.
func (r *Reconciler) claim(_ context.Context, s *scope) (done bool, err error) {
	if s.scaler.Status.OriginalResources != nil && s.status.OriginalResources == nil {
		s.again(staleCacheRetry) // The finalizer is removed after the status is written.
	}
	if s.standing.IsFirst() || s.status.OriginalResources != nil {
		scaler.RecordClaim(&s.status, scaler.Claim(s.scaler))
	} else {
		scaler.RecordClaim(&s.status, "")
	}
	return false, nil
}

// learn is a phase: it records OOM kills, recommends, and saves the history before anything is changed.
// While scalers wait for the budget, the save waits for the permission.
func (r *Reconciler) learn(ctx context.Context, s *scope) (done bool, err error) {
	if err := r.Histories.Load(ctx, s.scaler, s.now); err != nil {
		return false, r.noteRefused(ctx, s, err, "The usage history cannot be read, so nothing is changed", &s.observation.situation.Unable)
	}
	situation, policy := &s.observation.situation, s.policy
	var containers []string
	for _, c := range situation.Deployment.Containers {
		containers = append(containers, c.Name)
	}
	var recs []recommend.Container
	r.Histories.With(client.ObjectKeyFromObject(s.scaler), func(histories history.Histories) {
		histories.Retain(containers)
		if policy.Edited {
			histories.ForgetClimbs()
		}
		plan.NoteTemplate(histories, *situation)
		for _, kill := range recordOOMKills(histories, *situation, policy, s.now, r.Params.History) {
			r.Metrics.Count(client.ObjectKeyFromObject(s.scaler), killEvent(*situation, kill))
		}
		recs = scaler.Recommendations(s.scaler, situation.Deployment, situation.Pods, histories, s.status.Recommendation, r.Params)
		s.promotion.record(histories, recs)
		plan.NoteStarts(policy, *situation, histories)
	})
	situation.Recommendations = recs
	s.status.Recommendation = scaler.APIRecommendation(recs)
	if s.isYoung = len(recs) > 0 && r.Histories.IsYoung(s.scaler); s.isYoung {
		s.again(youngDelay)
	}
	s.isUnsaved = r.mayWaitToSave(s)
	if len(recs) > 0 && !s.isUnsaved {
		err = r.Histories.Save(ctx, s.scaler, recs, s.now)
	}
	return false, r.noteRefused(ctx, s, err, "The usage history cannot be saved, so only urgent changes are made", &situation.Unsaved)
}

// recordOOMKills adds the OOM kills that the pods report to the history, the oldest first. It
// returns those that are new.
func recordOOMKills(histories history.Histories, situation plan.Situation, policy plan.Policy, now time.Time, params history.Params) (added []workload.OOMKill) {
	kills := map[string][]history.Kill{}
	for _, pod := range situation.Pods {
		for _, kill := range pod.Kills {
			kills[kill.Container] = append(kills[kill.Container], plan.KillOf(situation, policy, pod, kill))
		}
	}
	for name, list := range kills {
		if _, ok := situation.Deployment.Container(name); !ok {
			continue
		}
		container := histories.Container(name)
		if container == nil {
			continue
		}
		slices.SortStableFunc(list, func(a, b history.Kill) int { return a.At.Compare(b.At) })
		for _, kill := range list {
			if container.RecordKill(kill, now, params) {
				added = append(added, workload.OOMKill{Container: name, At: kill.At, Termination: kill.Termination, HitBytes: kill.HitBytes})
			}
		}
	}
	return added
}

// plan is a phase: it decides the next step. The writers of contested values are read only if there are any.
func (r *Reconciler) plan(ctx context.Context, s *scope) (done bool, err error) {
	s.plan = plan.Next(s.observation.situation, s.policy, s.now)
	if s.plan.Contest != nil {
		if s.observation.situation.Writers, err = r.writersOf(ctx, s.scaler, *s.plan.Contest); err != nil {
			return false, err // The values are contested, even if their writers are unknown.
		}
		s.plan = plan.Next(s.observation.situation, s.policy, s.now)
	}
	if s.plan.Decided && s.plan.Decision.Reason == plan.DecidedAdopted && s.observation.problems.Unread {
		return false, errUsageUnread
	}
	r.awaitNewPodSizes(s)
	return s.unreleased != nil, nil // Restoring asks the budget itself.
}

// again makes the next reconcile due within that time.
func (s *scope) again(within time.Duration) { s.requeueAfter = soonest(s.requeueAfter, within) }

// soonest is the least of the times that are not 0, or 0.
func soonest(times ...time.Duration) (least time.Duration) {
	for _, t := range times {
		if t > 0 && (least == 0 || t < least) {
			least = t
		}
	}
	return least
}

// isPlanned reports whether the reconcile got as far as a plan.
func (s *scope) isPlanned() bool { return s.plan.Verdict.Reason != "" }

// outcome is the end of a reconcile.
type outcome int

const (
	settled    outcome = iota // the plan has the next step
	failed                    // a request failed; the queue retries
	conflicted                // the cache was old, or the API server refuses the step; the next reconcile plans with that
	unread                    // usage was not read since the process started; nothing is decided
	gone                      // the object of a write was deleted; its event triggers a reconcile
)

// classify sorts the end of a reconcile into an outcome. It is the only place that looks
// at the kind of an error that ends one.
func (s *scope) classify(err error) {
	s.outcome, s.err = settled, err
	switch {
	case err == nil:
	case isConflict(err) || errors.Is(err, errRefused):
		s.outcome = conflicted
	case errors.Is(err, errUsageUnread):
		s.outcome = unread
	case apierrors.IsNotFound(err):
		s.outcome = gone
	default:
		s.outcome = failed
	}
}

// result returns when to reconcile next. A retry keeps its class.
func (r *Reconciler) result(s *scope) (reconcile.Result, error) {
	key, after := client.ObjectKeyFromObject(s.scaler), r.untilResync(s)
	if s.outcome != conflicted {
		r.conflicts.Forget(key)
	}
	if errors.Is(s.err, errRefused) {
		return reconcile.Result{RequeueAfter: refusedRetry}, nil
	}
	switch s.outcome {
	case conflicted:
		return reconcile.Result{RequeueAfter: r.conflicts.Delay(key)}, nil
	case unread:
		return reconcile.Result{RequeueAfter: unreadRetry, Priority: queue.Routine.Priority()}, nil
	case gone:
		return reconcile.Result{RequeueAfter: after, Priority: queue.Routine.Priority()}, nil
	case failed:
		return reconcile.Result{}, s.err
	case settled:
	}
	after = soonest(after, s.requeueAfter, s.plan.Verdict.RequeueAfter, untilUnmatchedStalls(s))
	if after <= staleCacheRetry {
		return reconcile.Result{RequeueAfter: after}, nil // It continues where this reconcile ends, in the same class.
	}
	return reconcile.Result{RequeueAfter: after, Priority: queue.Routine.Priority()}, nil
}

// untilResync spreads the resyncs of the scalers evenly over the period. A scaler always has the same place in
// it, also after a restart. Its first resync is later by up to a tenth of the period, so that none is too soon.
func (r *Reconciler) untilResync(s *scope) time.Duration {
	return queue.UntilSlot(s.now, r.ResyncPeriod, scaler.Share(s.scaler.UID))
}

// retryPeriod is the wait for changes without an event: 80 to 100 % of the resync period, by scaler.
func (r *Reconciler) retryPeriod(uid types.UID) time.Duration {
	return time.Duration(float64(r.ResyncPeriod) * (0.8 + 0.2*scaler.Share(uid)))
}

// leave drops the memory of a deleted scaler.
func (r *Reconciler) leave(key types.NamespacedName) {
	r.Histories.Forget(key)
	r.written.Forget(key)
	r.Metrics.Forget(key)
	r.memory.forget(key)
	r.conflicts.Forget(key)
	r.forgetBudget(key)
}

// errStaleCache is true if the cache does not show our own last write yet.
var errStaleCache = errors.New("the cache is older than our own last write")

// errRefused is true if the API server refuses the step, and that is remembered: the next reconcile takes another
// step, or reports the refusal.
var errRefused = errors.New("the API server refuses the step")

// errUsageUnread is true if a decision was lost, and that usage was not read since the process started. Without usage, the
// pods that were lowered before a crash would be raised again, and lowered a second time after the first round of usage.
var errUsageUnread = errors.New("no usage was read since the operator started")

// unreadRetry is the time until a reconcile looks for usage again.
const unreadRetry = 15 * time.Second

func isConflict(err error) bool {
	return apierrors.IsConflict(err) || errors.Is(err, errStaleCache) || errors.Is(err, errUnsaved) || errors.Is(err, checkpoint.ErrOvertaken)
}
