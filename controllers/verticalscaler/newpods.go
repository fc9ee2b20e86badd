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
	"k8s.io/apimachinery/pkg/api/equality"
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

// sizeNewPods is a phase: it settles whether the API server gives new pods the sizes of the plan. The status has them,
// and package newpods writes them down for the API server. They stay the same while changes are frozen. The budget
// does not count them, because no running pod changes.
func (r *Reconciler) sizeNewPods(ctx context.Context, s *scope) (done bool, err error) {
	if s.policy.Suspended || !scaler.SizesNewPods(&s.scaler.Spec) {
		return false, nil
	}
	current, wanted := s.scaler.Status.NewPods, newPodsStatus(s.plan.NewPods)
	if why, frozen := r.Freeze.Frozen(s.scaler.Namespace); frozen {
		s.keepsNewPods = true
		if scaler.NeedsSizedNewPods(&s.scaler.Spec) && !equality.Semantic.DeepEqual(current, wanted) {
			s.deferBy(&deferral{v1beta1.ReasonFrozen, why})
		}
		return false, nil
	}
	if !scaler.NeedsSizedNewPods(&s.scaler.Spec) && len(s.plan.NewPods.Sizes) == 0 && !setsBack(s.plan) {
		return false, nil
	}
	_, evicts := s.plan.Step.(plan.Evict)
	longest := r.ResyncPeriod
	if evicts {
		longest = 0 // Before an eviction, everything is read again.
	}
	s.unsized, err = r.admission.check(ctx, r.Live, r.Release, s.now, longest)
	if err != nil {
		return false, err
	}
	if s.unsized.reason != "" {
		s.planUnsized()
		r.admitted.forget(client.ObjectKeyFromObject(s.scaler))
		return false, nil
	}
	if !scaler.EvictsPods(&s.scaler.Spec) {
		return false, nil
	}
	return false, r.noteTold(ctx, s, evicts)
}

// noteRefused notes why the API server rejects the NewPodSizes object, unless the object already says of the Deployment
// what the status will say.
func (r *Reconciler) noteRefused(ctx context.Context, s *scope) error {
	why := r.newPodsRefusal(s.scaler.Namespace)
	if why.Reason == "" || !s.standing.isFirst() {
		return nil
	}
	var agrees bool
	var err error
	if recorded := recordedNewPods(s); recorded != nil && len(recorded.Containers) > 0 {
		agrees, err = isTold(ctx, r.Client, s.scaler, recorded.Containers)
	} else {
		agrees, err = isToldNothing(ctx, r.Client, s.scaler)
	}
	if err == nil && !agrees {
		s.untold = why
	}
	return err
}

// newPodsRefusal says why the API server rejects the NewPodSizes of a namespace. It has no reason if it does not.
func (r *Reconciler) newPodsRefusal(namespace string) apierror.Rejection {
	if r.NewPodsRefused == nil {
		return apierror.Rejection{}
	}
	return r.NewPodsRefused(namespace)
}

// isTold reports whether a NewPodSizes object has these sizes.
func isTold(ctx context.Context, from client.Reader, vs *v1beta1.VerticalScaler, sizes []v1beta1.NewPodContainer) (bool, error) {
	line := admission.Line(vs.Spec.DeploymentName, sizes)
	return isInSizes(ctx, from, vs, func(text string) bool { return admission.HasLine(text, line) })
}

// isToldNothing reports whether no NewPodSizes object has sizes for the Deployment.
func isToldNothing(ctx context.Context, from client.Reader, vs *v1beta1.VerticalScaler) (bool, error) {
	told, err := isInSizes(ctx, from, vs, func(text string) bool { return admission.HasDeployment(text, vs.Spec.DeploymentName) })
	return !told, err
}

// isInSizes reports whether something is true of the text of one of the NewPodSizes objects in the scaler's namespace.
func isInSizes(ctx context.Context, from client.Reader, vs *v1beta1.VerticalScaler, isIn func(text string) bool) (bool, error) {
	var all v1beta1.NewPodSizesList
	if err := from.List(ctx, &all, client.InNamespace(vs.Namespace)); err != nil {
		return false, fmt.Errorf("reading the sizes of new pods: %w", err)
	}
	return slices.ContainsFunc(all.Items, func(o v1beta1.NewPodSizes) bool { return isIn(o.Spec.Deployments) }), nil
}

// planUnsized makes the plan say that the API server does not size new pods.
func (s *scope) planUnsized() {
	switch why := s.unsized; {
	case !scaler.NeedsSizedNewPods(&s.scaler.Spec):
		if setsBack(s.plan) { // Another webhook has set the requests.
			s.policy.SizesNewPods = false
			s.plan = s.next()
		}
		s.plan = s.plan.WithNewPods(plan.NewPods{}) // Running pods are resized all the same.
	case scaler.EvictsPods(&s.scaler.Spec):
		s.plan = s.plan.UnsizedBeside(why.reason, why.message)
	default:
		s.plan = s.plan.Unsized(why.reason, why.message)
	}
}

// setsBack reports whether the plan gives a new pod the requests of its template.
func setsBack(p plan.Plan) bool {
	resize, ok := p.Step.(plan.Resize)
	return ok && len(resize.SetsBack) > 0
}

// untoldRetry is when to look again whether sizes are written down for the API server.
const untoldRetry = time.Second

// noteTold notes since when the API server has been told the sizes in the status: an eviction needs them to have
// arrived. Before an eviction, it asks the API server whether it still has them.
func (r *Reconciler) noteTold(ctx context.Context, s *scope, evicts bool) error {
	key, current := client.ObjectKeyFromObject(s.scaler), s.scaler.Status.NewPods
	wanted := newPodsStatus(s.plan.NewPods)
	if wanted == nil || len(wanted.Containers) == 0 {
		r.admitted.forget(key)
		return nil
	}
	told := false
	if current != nil {
		var from client.Reader = r.Client
		if evicts {
			from = r.Live
		}
		var err error
		if told, err = isTold(ctx, from, s.scaler, current.Containers); err != nil {
			return err
		}
	}
	if told {
		r.admitted.told(key, current.Containers, s.now)
	} else {
		r.admitted.forget(key)
		s.plan = s.plan.Relearning()
	}
	isComing := !told || !equality.Semantic.DeepEqual(current.Containers, wanted.Containers)
	if isComing && r.newPodsRefusal(s.scaler.Namespace).Reason == "" { // The end of a refusal wakes the scaler.
		s.requeueAfter = untoldRetry
	}
	return nil
}

// newPodsStatus is what the status says of new pods; nil for nothing.
func newPodsStatus(n plan.NewPods) *v1beta1.NewPods {
	out := scaler.APINewPods(n)
	if equality.Semantic.DeepEqual(*out, v1beta1.NewPods{}) {
		return nil
	}
	return out
}

// recordedNewPods is what the status says of new pods after a reconcile. What was recorded under another claim is about
// another Deployment. What is kept while nothing may change is kept only as long as pods can be created with it.
func recordedNewPods(s *scope) *v1beta1.NewPods {
	switch {
	case !s.standing.isFirst() || scaler.RecordedClaim(s.scaler) != scaler.Claim(s.scaler):
		return nil
	case s.err != nil && !s.isPlanned():
		return s.scaler.Status.NewPods
	case !scaler.IsPaused(s.scaler) && !scaler.SizesNewPods(&s.scaler.Spec), s.keepsSizes() && s.refusedNewPods().Exists():
		return nil
	case s.keepsSizes():
		return s.scaler.Status.NewPods
	}
	return newPodsStatus(s.plan.NewPods)
}

// keepsSizes reports whether new pods get the recorded sizes, whatever is planned.
func (s *scope) keepsSizes() bool { return s.keepsNewPods || scaler.IsPaused(s.scaler) }

// refusedNewPods says why new pods with the recorded sizes would not be created.
func (s *scope) refusedNewPods() plan.Obstacle {
	return plan.RefusedNewPods(s.observation.situation, s.policy, s.now)
}

// newPodsSized is the condition of a scaler that sizes new pods, once something is decided, or whose size cannot be removed.
// It is false for any other.
func newPodsSized(s *scope) (metav1.Condition, bool) {
	if !scaler.SizesNewPods(&s.scaler.Spec) && s.untold.Reason == "" || s.observation.deployment == nil {
		return metav1.Condition{}, false
	}
	recorded, why := recordedNewPods(s), s.plan.NewPods.Obstacle
	if s.keepsSizes() {
		why = s.refusedNewPods()
	}
	c := metav1.Condition{Type: v1beta1.ConditionNewPodsSized, Status: metav1.ConditionFalse}
	switch {
	case s.unsized.reason != "" && s.plan.Decision != nil:
		c.Reason, c.Message = s.unsized.reason, "New pods start as in the pod template: "+s.unsized.message
	case recorded != nil && s.untold.Reason != "":
		c.Reason, c.Message = s.untold.Reason, "New pods keep the previous size or start as in the pod template, because the API server rejected the NewPodSizes object: "+s.untold.Message
	case s.untold.Reason != "" && !s.keepsSizes(): // While sizes are kept, the condition remembers why they ended.
		c.Reason, c.Message = s.untold.Reason, "New pods still get a size that no longer applies, because the API server rejected the change of the NewPodSizes object: "+s.untold.Message
	case recorded != nil && len(recorded.Containers) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1beta1.ReasonApplied, "The API server gives new pods the sizes in status.newPods"
	case why.Exists():
		c.Reason, c.Message = why.Reason, "New pods start as in the pod template: "+why.Message
	default:
		before := meta.FindStatusCondition(s.scaler.Status.Conditions, c.Type)
		if before != nil && (!s.isPlanned() || s.keepsSizes() && before.Status == metav1.ConditionFalse) {
			return *before, true
		}
		return metav1.Condition{}, false
	}
	return c, true
}

// unsized says why the API server does not size new pods. It has no reason if it does.
type unsized struct{ reason, message string }

// admissionCheck remembers whether the API server sizes new pods, for all scalers. The zero value is ready for
// concurrent use.
type admissionCheck struct {
	mu     sync.Mutex
	last   unsized
	readAt time.Time
	// wasMissing is true if check has found the policy missing since becomesAvailable last returned true.
	wasMissing bool
}

// unavailableRetry is how long it is remembered that the API server does not size new pods.
const unavailableRetry = 30 * time.Second

// check returns why the API server does not size new pods. What was read at most that long ago is not read again.
func (a *admissionCheck) check(ctx context.Context, live client.Reader, own release.Release, now time.Time, longest time.Duration) (unsized, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last.reason != "" {
		longest = min(longest, unavailableRetry)
	}
	if age := now.Sub(a.readAt); !a.readAt.IsZero() && age >= 0 && age < longest {
		return a.last, nil
	}
	last, err := readAdmission(ctx, live, own)
	if err != nil {
		return unsized{}, err
	}
	a.last, a.readAt, a.wasMissing = last, now, a.wasMissing || last.reason != ""
	return last, nil
}

// becomesAvailable returns true once after a missing policy has been installed. The scalers that found it missing must
// then be reconciled, even if another caller of check was the first to find it installed.
func (a *admissionCheck) becomesAvailable(ctx context.Context, live client.Reader, own release.Release, now time.Time) bool {
	a.mu.Lock()
	wasMissing := a.wasMissing
	a.mu.Unlock()
	if !wasMissing {
		return false
	}
	if why, err := a.check(ctx, live, own, now, 0); err != nil || why.reason != "" {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.wasMissing = a.last.reason != "" // Another caller may have read it again.
	return !a.wasMissing
}

// readAdmission reads whether the policy and its binding are installed.
func readAdmission(ctx context.Context, live client.Reader, own release.Release) (unsized, error) {
	key := client.ObjectKey{Name: admission.PolicyName}
	for _, object := range []client.Object{&admissionv1.MutatingAdmissionPolicy{}, &admissionv1.MutatingAdmissionPolicyBinding{}} {
		err := live.Get(ctx, key, object)
		switch rejection := apierror.Of(err); {
		case err == nil:
		case meta.IsNoMatchError(err):
			return unsized{v1beta1.ReasonAdmissionUnavailable, "the API server has no MutatingAdmissionPolicy, which requires Kubernetes 1.36"}, nil
		case apierrors.IsNotFound(err):
			return unsized{v1beta1.ReasonAdmissionUnavailable, fmt.Sprintf("the policy %s is not installed: %s", key.Name, own.Install(release.NewPods))}, nil
		case rejection.Reason != "":
			return unsized{rejection.Reason, "the operator may not read whether the policy for new pods is installed: " + rejection.Message}, nil
		default:
			return unsized{}, fmt.Errorf("reading the policy for new pods: %w", err)
		}
	}
	return unsized{}, nil
}
