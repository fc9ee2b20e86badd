// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/release"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// observeNewPods reads whether the API server sizes new pods, and since when the sizes in the status are published.
// Package newpods publishes them.
func (r *Reconciler) observeNewPods(ctx context.Context, s *scope) (err error) {
	situation, key := &s.observation.situation, client.ObjectKeyFromObject(s.scaler)
	if s.policy.Suspended || s.policy.Paused != "" || situation.Frozen.Exists() || !s.policy.SizesNewPods {
		return nil
	}
	if len(situation.Recommendations) == 0 && situation.Decision == nil && !s.policy.NeedsSizedNewPods() {
		return nil // New pods get no sizes in any case.
	}
	situation.Unsized, err = r.admission.check(ctx, r, s.now, r.ResyncPeriod)
	switch {
	case err != nil:
		return err
	case situation.Unsized.Exists():
		r.memory.forgetPublished(key)
		if s.scaler.Spec.UpdatePolicy.Fallback == "" {
			s.policy.Fallback = v1beta1.FallbackWait
		}
		if s.policy.NeedsSizedNewPods() {
			s.again(unavailableRetry)
		}
		return nil
	case !s.policy.MayEvict():
		return nil
	}
	isPublishedNow, err := isPublished(ctx, r.Client, s.scaler)
	if err != nil {
		return err
	}
	if !isPublishedNow { // It is unknown when new pods get their sizes.
		r.memory.forgetPublished(key)
		situation.NewPods.EffectiveSince = time.Time{}
		return nil
	}
	situation.NewPods.AskedSince = r.memory.publishedSince(key, s.scaler.Status.NewPods.Containers, s.now)
	return nil
}

// confirmNewPods reads again, before an eviction, whether the API server sizes new pods and has the sizes.
func (r *Reconciler) confirmNewPods(ctx context.Context, s *scope) error {
	unsized, err := r.admission.check(ctx, r, s.now, 0)
	if err != nil {
		return err
	}
	isPublishedNow, err := isPublished(ctx, r.Live, s.scaler)
	if err != nil {
		return err
	}
	if isPublishedNow && !unsized.Exists() {
		return nil
	}
	r.memory.forgetPublished(client.ObjectKeyFromObject(s.scaler))
	return errStaleCache
}

// noteUnpublished records why the API server rejects the NewPodSizes object, unless the object already has the sizes that the
// status will report.
func (r *Reconciler) noteUnpublished(ctx context.Context, s *scope) error {
	why := r.NewPodsRefused(s.scaler.Namespace)
	if why.Reason == "" || !s.standing.IsFirst() {
		return nil
	}
	agrees, err := hasLine(ctx, r.Client, s.scaler, lineOf(s.scaler, recordedNewPods(s)))
	if err == nil && !agrees {
		s.unpublished = why
	}
	return err
}

// isPublished reports whether the API server has the sizes in the status, if there are some.
func isPublished(ctx context.Context, from client.Reader, vs *v1beta1.VerticalScaler) (bool, error) {
	line := lineOf(vs, vs.Status.NewPods)
	if line == "" {
		return false, nil
	}
	return hasLine(ctx, from, vs, line)
}

// lineOf is the line of the scaler's Deployment with these sizes, if any.
func lineOf(vs *v1beta1.VerticalScaler, sizes *v1beta1.NewPods) string {
	if sizes == nil {
		return ""
	}
	return admission.LineOf(vs, *sizes)
}

// hasLine reports whether the NewPodSizes objects of the namespace have that line for the scaler's Deployment; for an empty
// line, whether they have none.
func hasLine(ctx context.Context, from client.Reader, vs *v1beta1.VerticalScaler, line string) (bool, error) {
	var all v1beta1.NewPodSizesList
	if err := from.List(ctx, &all, client.InNamespace(vs.Namespace)); err != nil {
		return false, fmt.Errorf("reading the sizes of new pods: %w", err)
	}
	return (line != "") == slices.ContainsFunc(all.Items, func(o v1beta1.NewPodSizes) bool {
		if line == "" {
			return admission.HasDeployment(o.Spec.Deployments, vs.Spec.DeploymentName)
		}
		return admission.HasLine(o.Spec.Deployments, line)
	}), nil
}

// publishRetry is the time until the publication of sizes is checked again.
const publishRetry = time.Second

// awaitNewPodSizes looks again soon while sizes that an eviction may need are about to be published. The end of a rejection
// triggers a reconcile.
func (r *Reconciler) awaitNewPodSizes(s *scope) {
	wanted := lineOf(s.scaler, scaler.APINewPods(s.plan.NewPods))
	if s.plan.IsHeld || !s.policy.MayEvict() || wanted == "" {
		return
	}
	isPublished := !s.observation.situation.NewPods.AskedSince.IsZero() && lineOf(s.scaler, s.scaler.Status.NewPods) == wanted
	if !isPublished && r.NewPodsRefused(s.scaler.Namespace).Reason == "" {
		s.again(publishRetry)
	}
}

// recordedNewPods is the status of new pods after a reconcile. Sizes recorded under another claim belong to another
// Deployment.
func recordedNewPods(s *scope) *v1beta1.NewPods {
	switch {
	case !s.standing.IsFirst() || scaler.RecordedClaim(s.scaler) != scaler.Claim(s.scaler):
		return nil
	case s.err != nil && !s.isPlanned():
		return s.scaler.Status.NewPods
	}
	return scaler.APINewPods(s.plan.NewPods)
}

// newPodsSized is the condition of a scaler that sizes new pods and has a decision, or whose size cannot be removed. It is
// false for other scalers.
func newPodsSized(s *scope) (metav1.Condition, bool) {
	if !scaler.SizesNewPods(&s.scaler.Spec) && s.unpublished.Reason == "" || s.observation.deployment == nil {
		return metav1.Condition{}, false
	}
	recorded, unsized, why := recordedNewPods(s), s.observation.situation.Unsized, s.plan.NewPods.Obstacle
	c := metav1.Condition{Type: v1beta1.ConditionNewPodsSized, Status: metav1.ConditionFalse}
	switch {
	case unsized.Exists() && s.plan.Decision != nil:
		c.Reason, c.Message = unsized.Reason, "New pods start as in the pod template: "+unsized.Message
	case recorded != nil && s.unpublished.Reason != "":
		c.Reason, c.Message = s.unpublished.Reason, "New pods keep the previous size or start as in the pod template, because the API server rejected the NewPodSizes object: "+s.unpublished.Message
	case s.unpublished.Reason != "":
		c.Reason, c.Message = s.unpublished.Reason, "New pods still get a size that no longer applies, because the API server rejected the change of the NewPodSizes object: "+s.unpublished.Message
	case recorded != nil && len(recorded.Containers) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonApplied, "The API server gives new pods the sizes in status.newPods"
		if !s.policy.SizesOnlyNewPods() {
			c.Message += ". Pods of a new revision start with the larger of these and the pod template's, until its pods are healthy with them"
		}
	case why.Exists():
		c.Reason, c.Message = why.Reason, "New pods start as in the pod template: "+why.Message
	default:
		before := meta.FindStatusCondition(s.scaler.Status.Conditions, c.Type)
		if before != nil && (!s.isPlanned() || s.plan.IsHeld && before.Status == metav1.ConditionFalse) {
			return *before, true
		}
		return metav1.Condition{}, false
	}
	return c, true
}

// admissionCheck remembers whether the API server sizes new pods, for all scalers. The zero value is ready for
// concurrent use.
type admissionCheck struct {
	mu     sync.Mutex
	last   plan.Obstacle
	readAt time.Time
}

// unavailableRetry is the time after which a scaler that needs its new pods sized looks again. Other scalers look at their next
// resync. If the policy is not watched, an API server that does not size new pods is remembered for that time.
const unavailableRetry = 30 * time.Second

// check returns the obstacle to sizing new pods, if any. An answer younger than longest is reused until the policy changes.
func (a *admissionCheck) check(ctx context.Context, r *Reconciler, now time.Time, longest time.Duration) (plan.Obstacle, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	isWatched := r.NewPodsPolicy != nil && r.NewPodsPolicy.Works()
	if isWatched && r.NewPodsPolicy.TakeChange() {
		a.readAt = time.Time{}
	}
	if isKnownAbsent := isWatched && a.last.Reason == v1beta1.ReasonAdmissionUnavailable; a.last.Exists() && !isKnownAbsent {
		longest = min(longest, unavailableRetry)
	}
	if age := now.Sub(a.readAt); !a.readAt.IsZero() && age >= 0 && age < longest {
		return a.last, nil
	}
	last, err := readAdmission(ctx, r.Live, r.Release)
	if err != nil {
		return plan.Obstacle{}, err
	}
	a.last, a.readAt = last, now
	return last, nil
}

// readAdmission reads whether the policy and its binding are installed.
func readAdmission(ctx context.Context, live client.Reader, own release.Release) (plan.Obstacle, error) {
	key := client.ObjectKey{Name: admission.PolicyName}
	for _, object := range []client.Object{&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}} {
		err := live.Get(ctx, key, object)
		switch rejection := apierror.Of(err); {
		case err == nil:
		case meta.IsNoMatchError(err):
			return plan.Obstacle{Reason: v1beta1.ReasonAdmissionUnavailable, Message: "the API server has no MutatingAdmissionPolicy, which requires Kubernetes 1.36", Stalled: true}, nil
		case apierrors.IsNotFound(err):
			return plan.Obstacle{Reason: v1beta1.ReasonAdmissionUnavailable, Message: fmt.Sprintf("the policy %s is not installed: %s", key.Name, own.Install(release.NewPods)), Stalled: true}, nil
		case rejection.Reason != "":
			return plan.Obstacle{Reason: rejection.Reason, Message: "the operator may not read whether the policy for new pods is installed: " + rejection.Message, Stalled: true}, nil
		default:
			return plan.Obstacle{}, fmt.Errorf("reading the policy for new pods: %w", err)
		}
	}
	return plan.Obstacle{}, nil
}
