// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/freeze"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/checkpoint"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

const (
	// DefaultResyncPeriod is how often a scaler is reconciled that nothing wakes.
	DefaultResyncPeriod = 10 * time.Minute
	// staleCacheRetry is when to look again after our cache was found to be old.
	staleCacheRetry = 50 * time.Millisecond
)

// Reconciler keeps Deployments at the size that their scalers find.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Histories are what is known of the usage.
	Histories *checkpoint.Store
	// Usage tells what is missing of a scaler's usage; nil for nothing.
	Usage UsageProblems
	// Params are those of the recommendation.
	Params recommend.Params
	// Recorder records events.
	Recorder events.EventRecorder
	// Clock is the time; the real one if unset.
	Clock clock.PassiveClock
	// ResyncPeriod is how often a scaler is reconciled that nothing wakes.
	ResyncPeriod time.Duration
	// Access is the part of the cluster that we cannot read.
	Access scaler.ClusterAccess
	// Budget says how much may be changed at once; nil for all of it. It outlives a
	// manager.
	Budget *budget.Budget
	// Freeze is the switch that stops changes; nil for none.
	Freeze *freeze.Switch
	// FreezeAPI is where the switch is watched.
	FreezeAPI corev1client.ConfigMapsGetter
	// Nodes tells the size of the largest node; nil where nodes are not read.
	Nodes *inventory.Nodes
	// VPAs knows the VerticalPodAutoscalers; nil where nobody looks out for them.
	VPAs *inventory.VPAs

	lookup   *lookup
	pods     podMemory
	admitted admissionMemory
	written  *ownwrites.Memory
}

// UsageProblems tells what keeps a scaler's usage from being complete.
type UsageProblems interface {
	ProblemsOf(scaler types.NamespacedName) collect.Problems
}

// pass is what one Reconcile found, decided and did.
type scope struct {
	now         time.Time
	access      scaler.ClusterAccess
	status      v1beta1.VerticalScalerStatus // to be written
	observation observation
	plan        plan.Plan
	changes     []change            // made in this pass, for events
	undone      map[types.UID]int64 // the pods that count as undone by somebody else, by generation
	evicted     string              // the pod that was evicted in this pass
	requeueAfter       time.Duration
	// holdsAdmission says that new pods go on getting what they have been getting.
	keepsNewPods bool
	err            error
}

// Reconcile moves one Deployment a step closer to its recommendation.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var vs v1beta1.VerticalScaler
	if err := r.Client.Get(ctx, request.NamespacedName, &vs); err != nil {
		if apierrors.IsNotFound(err) {
			r.Histories.Forget(request.NamespacedName)
			r.written.Forget(request.NamespacedName)
			r.pods.forget(request.NamespacedName)
			r.dequeue(request.NamespacedName)
			if r.admitted.isBound(request.NamespacedName) {
				if err := r.deleteBinding(ctx, request.NamespacedName); err != nil && apierror.Of(err).Reason == "" {
					return reconcile.Result{}, err
				}
			}
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := r.Clock.Now()
	if r.written.IsNewerThan(&vs, now) {
		// A pass over our own past would compare with a status that is no longer
		// there, and might find that nothing is to be written.
		return reconcile.Result{RequeueAfter: staleCacheRetry}, nil
	}
	if vs.DeletionTimestamp != nil {
		return r.verdict(&vs, r.release(ctx, &vs, now))
	}
	p := r.run(ctx, &vs, now)
	if lost := r.writeStatus(ctx, &vs, &p); lost != nil {
		p.err = lost // outranks the pass's own: a verdict nobody can read must be reached again
		return r.verdict(&vs, p)
	}
	if !isConflict(p.err) {
		r.acknowledge(request.NamespacedName, p.undone)
	}
	r.recordEvents(&vs, p)
	return r.verdict(&vs, p)
}

// run makes the pass. It changes nothing on a Deployment that the status does not
// claim yet, so that whatever we touch can be found again after a crash.
func (r *Reconciler) run(ctx context.Context, vs *v1beta1.VerticalScaler, now time.Time) (p scope) {
	p.now, p.access = now, r.Access
	p.status = *vs.Status.DeepCopy()
	claimed := scaler.RecordedClaim(vs) == scaler.Claim(vs)

	refused, waits := apierror.Rejection{}, (*deferral)(nil)
	if err := r.releaseOthers(ctx, vs, &p.status, now); err != nil {
		waits = deferralFrom(err)
		if refused = apierror.Of(err); refused.Reason == "" && waits == nil {
			p.err = err
			return p
		}
	}
	if p.err = r.deleteUnusedBinding(ctx, vs, &p.status); p.err != nil {
		return p
	}
	if vs.Status.OriginalResources != nil && p.status.OriginalResources == nil {
		p.requeueAfter = staleCacheRetry // the finalizer goes once the status says that nothing is held
	}
	scaler.RecordClaim(&p.status, scaler.Claim(vs))
	if p.observation, p.err = r.observe(ctx, vs, &p.status); p.err != nil {
		return p
	}
	if p.observation.winner != "" {
		r.Histories.Forget(client.ObjectKeyFromObject(vs)) // nobody feeds it meanwhile
	}
	if p.observation.deployment == nil || p.observation.winner != "" {
		if waits == nil {
			r.dequeue(client.ObjectKeyFromObject(vs))
		}
		return p
	}
	if p.err = r.learn(ctx, vs, &p); p.err != nil {
		return p
	}
	if refused.Reason != "" {
		p.keepsNewPods = true
		p.plan = plan.Unreleased(p.observation.situation, refused.Reason, refused.Message)
		return p
	}
	if waits != nil {
		p.wait(waits)
		return p
	}
	policy := scaler.PlanPolicy(vs, p.observation.situation.Deployment)
	if scaler.IsPaused(vs) {
		r.dequeue(client.ObjectKeyFromObject(vs))
		policy.Suspended = true
		p.plan = plan.Next(p.observation.situation, policy, now).Paused(
			p.observation.situation, v1beta1.ReasonPaused, "The annotation "+v1beta1.PausedAnnotation+" is set")
		p.keepsNewPods = true
		return p
	}
	p.plan = plan.Next(p.observation.situation, policy, now)
	if p.plan.Contest != nil {
		writers, err := r.writersOf(ctx, vs, *p.plan.Contest)
		if err != nil {
			p.err = err // what is contested is so without names, too
			return p
		}
		p.observation.situation.Writers = writers
		p.plan = plan.Next(p.observation.situation, policy, now)
	}
	if !claimed {
		p.plan = p.plan.Unclaimed(p.observation.situation)
		return p // the claim's own arrival in the cache wakes the next pass
	}
	if !policy.Suspended {
		p.undone = p.observation.undone
	}
	if policy.Suspended {
		p.keepsNewPods = true
	} else {
		p.err = r.admit(ctx, vs, &p)
	}
	if p.err == nil {
		r.apply(ctx, vs, &p)
	}
	return p
}

// learn counts OOM kills, recommends, and saves what must not be lost before
// anything is changed.
func (r *Reconciler) learn(ctx context.Context, vs *v1beta1.VerticalScaler, p *scope) error {
	if err := r.Histories.Load(ctx, vs); err != nil {
		return err
	}
	recs := r.recommendations(vs, p.observation, &p.status)
	p.observation.situation.Recommendations = recs
	p.status.Recommendation = scaler.APIRecommendation(recs)
	if len(recs) == 0 {
		return nil
	}
	return r.Histories.Save(ctx, vs, recs, p.now)
}

// writeStatus writes the status if it says anything new.
func (r *Reconciler) writeStatus(ctx context.Context, vs *v1beta1.VerticalScaler, p *scope) error {
	completeStatus(vs, p)
	if scaler.EqualStatus(vs.Status, p.status) {
		return nil
	}
	updated := vs.DeepCopy()
	updated.Status = p.status
	if err := r.Client.Status().Update(ctx, updated); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	r.written.Remember(updated, p.now)
	return nil
}

// verdict tells the queue when to come again.
func (r *Reconciler) verdict(vs *v1beta1.VerticalScaler, p scope) (reconcile.Result, error) {
	switch {
	case isConflict(p.err):
		return reconcile.Result{RequeueAfter: staleCacheRetry}, nil
	case apierrors.IsNotFound(p.err):
		// What we wrote to has gone meanwhile, and its event says so.
		return reconcile.Result{RequeueAfter: r.resync(vs.UID)}, nil
	case p.err != nil:
		return reconcile.Result{}, p.err
	}
	after := r.resync(vs.UID)
	for _, sooner := range []time.Duration{p.requeueAfter, p.plan.Verdict.RequeueAfter} {
		if sooner > 0 {
			after = min(after, sooner)
		}
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// resync spreads the scalers' resyncs over a fifth of the period, each always at
// the same place, so that they do not come in herds.
func (r *Reconciler) resync(uid types.UID) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(uid))
	share := float64(h.Sum32()) / float64(1<<32)
	return time.Duration(float64(r.ResyncPeriod) * (0.9 + 0.2*share))
}

// errStaleCache says that the cache has not caught up with our own write yet.
var errStaleCache = errors.New("the cache is older than our own last write")

func isConflict(err error) bool {
	return apierrors.IsConflict(err) || errors.Is(err, errStaleCache)
}

// staleFor is how long a cache is believed to be merely late.
const staleFor = ownwrites.StaleFor

// podMemory remembers of pods what only we know: how new they must be after our
// last resize, and which resizes the API server has refused; and of the Deployment
// how new it must be after our last rewrite. It is lost with a
// restart, which costs one more request per pod at most.
type podMemory struct {
	mu   sync.Mutex
	pods map[types.NamespacedName]map[types.UID]remembered // by scaler
}

type remembered struct {
	generation int64
	at         time.Time // when it led to that generation
	// sizes is what the pod had after it, of the containers that were resized.
	sizes   map[string]workload.Resources
	refused []refusedUntil
	// evicted says that the pod was evicted, at that time.
	evicted bool
	// eviction is the last one that was refused, of the Deployment's pods.
	eviction *plan.RejectedEviction
}

// isNewerThan says whether our last write led to a later generation than the one at
// hand.
func (m remembered) isNewerThan(generation int64, now time.Time) bool {
	return generation < m.generation && now.Sub(m.at) < staleFor
}

type refusedUntil struct {
	plan.RejectedResize
	until time.Time
}

// remember changes what is remembered of a pod.
func (m *podMemory) remember(scaler types.NamespacedName, pod types.UID, change func(*remembered)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pods == nil {
		m.pods = map[types.NamespacedName]map[types.UID]remembered{}
	}
	if m.pods[scaler] == nil {
		m.pods[scaler] = map[types.UID]remembered{}
	}
	what := m.pods[scaler][pod]
	what.refused = slices.Clone(what.refused) // the old list may have been handed out
	change(&what)
	m.pods[scaler][pod] = what
}

func (m *podMemory) forget(scaler types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pods, scaler)
}

// recall returns what is remembered of the scaler's pods, less those that are gone.
func (m *podMemory) recall(scaler types.NamespacedName, alive map[types.UID]bool) map[types.UID]remembered {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[types.UID]remembered{}
	for uid, what := range m.pods[scaler] {
		if !alive[uid] {
			delete(m.pods[scaler], uid)
			continue
		}
		out[uid] = what
	}
	if len(m.pods[scaler]) == 0 {
		delete(m.pods, scaler)
	}
	return out
}
