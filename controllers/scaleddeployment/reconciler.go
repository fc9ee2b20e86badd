// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package scaleddeployment

import (
	"context"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/controllers/internal/queue"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
)

// rejectedRetry is the time until a rejected write is retried. A quota or a webhook that would
// accept it sends no event.
const rejectedRetry = time.Minute

const (
	// ownedPolicy is part of the name of the admission policy that compares writes with the
	// ScaledDeployment. The API server may still have an older version of it.
	ownedPolicy = "operator-owned"
	// For policyDelay, a rejection by that policy is not reported, and is retried like a conflict.
	// The API server learns of a change within milliseconds, as the operator does, and of a new
	// kind within 30 seconds.
	policyDelay = 40 * time.Second
)

// Reconciler creates and updates the Deployments and VerticalScalers that
// ScaledDeployments ask for.
type Reconciler struct {
	// Client reads from the cache and writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Recorder records events.
	Recorder events.EventRecorder
	// Clock is the time.
	Clock clock.PassiveClock
	// ResyncPeriod is the time between reconciles without an event.
	ResyncPeriod time.Duration

	conflicts queue.Conflicts
	// settled maps the key of an owner to the versions at the end of the last reconcile, if it has nothing left to do.
	settled sync.Map
	// ineffective maps an objectKey to the last attempt that the API server modified.
	ineffective sync.Map
	// compared maps the key of an owner to the first rejection by ownedPolicy.
	compared sync.Map
}

// comparison is a rejection by ownedPolicy.
type comparison struct {
	uid        types.UID
	generation int64
	since      time.Time
}

// scope carries the values of one reconcile from phase to phase.
type scope struct {
	owner *v1beta1.ScaledDeployment
	now   time.Time

	// deployment is the owner's Deployment, or nil.
	deployment *appsv1.Deployment
	// previous is a Deployment of the owner under another name, or nil.
	previous *appsv1.Deployment
	// scaler is the owner's VerticalScaler, or nil.
	scaler *v1beta1.VerticalScaler
	// foreignScaler describes a VerticalScaler with the owner's name and another controller, if
	// any.
	foreignScaler string
	// scaledBy names an HPA that targets the Deployment instead of the owner, if any.
	scaledBy string

	// waiting names the deletion that the reconcile waits for, if any.
	waiting string
	// rejection, if any, needs a user's action.
	rejection apierror.Rejection
	// changes are the writes of this reconcile, for events.
	changes []change
	// err is the error that the queue retries; nil unless the outcome is failed.
	err error
}

// phase is one step of a reconcile. It returns done if the later phases must not run.
type phase func(ctx context.Context, s *scope) (done bool, err error)

// Reconcile creates, updates or deletes the Deployment and the VerticalScaler of one
// ScaledDeployment. The cache has no pod templates, because a user of one namespace could fill the memory with them. So a
// reconcile reads the owner and its Deployment live, unless the cache has the versions of the last reconcile.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var cached v1beta1.ScaledDeployment
	if err := r.Client.Get(ctx, request.NamespacedName, &cached); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(request.NamespacedName)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	s := &scope{now: r.Clock.Now()}
	if last, ok := r.settled.Load(request.NamespacedName); ok && last == r.cachedVersions(ctx, &cached) {
		return r.result(s)
	}
	var err error
	if s.owner, err = r.liveOwner(ctx, &cached); s.owner == nil || s.owner.DeletionTimestamp != nil {
		return reconcile.Result{}, err // The garbage collector deletes the objects of a deleted owner.
	}
	end := s.classify(r.run(ctx, s))
	if end == rejected && r.mayBeOutdated(s) {
		end = conflicted
	}
	r.recordChanges(s) // Changes are made, even if a later phase failed.
	switch end {
	case conflicted:
		return reconcile.Result{RequeueAfter: r.conflicts.Delay(request.NamespacedName)}, nil
	case abandoned:
		return reconcile.Result{}, nil
	case settled, rejected, failed:
	}
	if err := r.writeStatus(ctx, s); err != nil {
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: r.conflicts.Delay(request.NamespacedName)}, nil
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	r.conflicts.Forget(request.NamespacedName)
	if end == settled && s.waiting == "" {
		r.settled.Store(request.NamespacedName, versionsOf(s))
	}
	return r.result(s)
}

// run runs the phases in order.
func (r *Reconciler) run(ctx context.Context, s *scope) error {
	for _, phase := range []phase{r.observe, r.claimName, r.replacePrevious, r.applyDeployment, r.applyScaler} {
		if done, err := phase(ctx, s); done || err != nil {
			return err
		}
	}
	return nil
}

// outcome is the end of a reconcile.
type outcome int

const (
	settled    outcome = iota // everything is applied, or an event ends the wait
	rejected                  // a user must act; the status reports how
	failed                    // a request failed; the queue retries
	conflicted                // the cache was old; nothing is known
	abandoned                 // the namespace is being deleted, and the owner with it
)

// classify sorts the end of a reconcile into an outcome. It is the only place that looks
// at the kind of an error. A rejection outranks a failed request: retries do not help
// against it.
func (s *scope) classify(err error) outcome {
	s.reject(apierror.Of(err))
	switch {
	case apierrors.IsConflict(err):
		return conflicted
	case s.rejection.Reason == v1beta1.ReasonNamespaceTerminating:
		return abandoned
	case s.rejection.Reason != "":
		return rejected
	case err != nil:
		s.err = err
		return failed
	}
	return settled
}

// mayBeOutdated reports whether the API server may have rejected a write because its admission
// policy has compared it with an older version of the owner.
func (r *Reconciler) mayBeOutdated(s *scope) bool {
	if !strings.Contains(s.rejection.Message, ownedPolicy) {
		return false
	}
	first := comparison{uid: s.owner.UID, generation: s.owner.Generation, since: s.now}
	key := client.ObjectKeyFromObject(s.owner)
	if before, ok := r.compared.Load(key); ok {
		if before, ok := before.(comparison); ok && before.uid == first.uid && before.generation == first.generation {
			first = before
		}
	}
	r.compared.Store(key, first)
	return s.now.Sub(first.since) < policyDelay
}

// reject notes why a user must act. The first rejection of a reconcile is reported.
func (s *scope) reject(rejection apierror.Rejection) {
	if s.rejection.Reason == "" {
		s.rejection = rejection
	}
}

// result returns when to reconcile next.
func (r *Reconciler) result(s *scope) (reconcile.Result, error) {
	if s.err != nil {
		return reconcile.Result{}, s.err
	}
	after := wait.Jitter(r.ResyncPeriod, 0.2)
	// A foreign object that is deleted triggers a reconcile. Other rejections end silently.
	if s.rejection.Reason != "" && s.rejection.Reason != v1beta1.ReasonNotControlled {
		after = min(after, rejectedRetry)
	}
	return reconcile.Result{RequeueAfter: after, Priority: queue.Routine.Priority()}, nil
}

// forget drops the memory of a deleted owner.
func (r *Reconciler) forget(owner types.NamespacedName) {
	r.settled.Delete(owner)
	r.conflicts.Forget(owner)
	r.compared.Delete(owner)
	for _, kind := range []string{deploymentKind.Kind, scalerKind.Kind} {
		r.ineffective.Delete(objectKey{kind, owner})
	}
}
