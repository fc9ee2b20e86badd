// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// observation is everything that a reconcile needs to know.
type observation struct {
	// deployment is the target; nil while it does not exist, or while another scaler sizes it.
	deployment *appsv1.Deployment
	// tooLarge is true if the Deployment is too large to be stored.
	tooLarge bool
	// situation is the input of the plan. The learn phase adds the recommendations.
	situation plan.Situation
	// judgesQuotas is true if the situation has all the ResourceQuotas.
	judgesQuotas bool
	// undone are the pods that another controller has resized after our last resize, by
	// generation.
	undone map[types.UID]int64
	// foreign are the pods of other owners that match the selector of a Deployment without pods.
	foreign []string
	// problems are the problems with the usage.
	problems collect.Problems
}

// observe is a phase: it reads the target and its surroundings from the cache. The reconcile
// is done if there is no Deployment for this scaler to size.
func (r *Reconciler) observe(ctx context.Context, s *scope) (done bool, err error) {
	key, o := client.ObjectKeyFromObject(s.scaler), &s.observation
	if s.standing.IsFirst() {
		o.deployment, err = r.deploymentOf(ctx, s.scaler)
	} else {
		r.Histories.Forget(key) // No usage is collected for this scaler meanwhile.
	}
	if err != nil {
		return false, err
	}
	if o.deployment != nil && inventory.IsTooLarge(o.deployment) {
		o.deployment, o.tooLarge = nil, true
	}
	if o.deployment == nil {
		if !isWait(s.unreleased) {
			r.dequeue(key)
		}
		return true, nil
	}
	o.problems = r.Usage.ProblemsOf(key)
	o.situation.Deployment = workload.ReadDeployment(o.deployment) // for the status, if an error ends the reconcile
	situation := plan.Situation{Deployment: o.situation.Deployment, MissingUsage: missingUsage(o.problems), UsageIsBack: o.problems.Recovering != ""}
	if situation.Pods, err = r.Pods.Of(ctx, o.deployment); err != nil {
		return false, err
	}
	r.Usage.AddOOMEvents(o.deployment.Namespace, situation.Pods)
	var retry time.Duration
	if o.undone, retry, err = r.recallPods(s.scaler, &situation); err != nil {
		return false, err
	}
	s.again(retry)
	if o.judgesQuotas, err = r.readSurroundings(ctx, o.deployment, &situation); err != nil {
		return false, err
	}
	r.addRecorded(s, &situation)
	s.policy = r.policyOf(s.scaler, situation.Deployment)
	r.readRoom(s.policy, &situation)
	if len(situation.Pods) == 0 {
		if o.foreign, err = r.foreignPodsOf(ctx, key, o.deployment); err != nil {
			return false, err
		}
	}
	o.situation = situation
	return false, nil
}

// policyOf reads the spec. The operator chooses the fallback if none is set, unless new pods start as in the template: a
// replacement would gain nothing.
func (r *Reconciler) policyOf(vs *v1beta1.VerticalScaler, d workload.Deployment) plan.Policy {
	p := scaler.PlanPolicy(vs, d)
	if vs.Spec.UpdatePolicy.Fallback == "" && p.SizesNewPods {
		p.Fallback = r.Fallback
	}
	return p
}

// missingUsage describes the missing usage of running pods, if any. It stays the same while the
// same pods are silent.
func missingUsage(p collect.Problems) string {
	switch {
	case !p.Silent:
		return ""
	case p.Outage != "":
		return p.Outage
	case p.Incomplete != "":
		return p.Incomplete
	case p.Recovering != "":
		return p.Recovering
	}
	return "pods that have just started, or whose last sample was lost"
}

// deploymentOf reads the scaler's Deployment, or nil. It is not copied and must not be modified.
func (r *Reconciler) deploymentOf(ctx context.Context, vs *v1beta1.VerticalScaler) (*appsv1.Deployment, error) {
	var deployment appsv1.Deployment
	if err := r.Client.Get(ctx, scaler.Target(vs), &deployment, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading Deployment %s: %w", scaler.Target(vs), err)
	}
	return &deployment, nil
}

// readSurroundings adds other facts that limit the size of the Deployment's pods. It reports
// whether all ResourceQuotas of the namespace could be read.
func (r *Reconciler) readSurroundings(ctx context.Context, deployment *appsv1.Deployment, s *plan.Situation) (judgesQuotas bool, err error) {
	namespace := client.InNamespace(deployment.Namespace)
	var ranges corev1.LimitRangeList
	if err := r.Client.List(ctx, &ranges, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the LimitRanges of namespace %s: %w", deployment.Namespace, err)
	}
	var quotas corev1.ResourceQuotaList
	if err := r.Client.List(ctx, &quotas, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the ResourceQuotas of namespace %s: %w", deployment.Namespace, err)
	}
	hpas, err := inventory.HPAsOf(ctx, r.Client, deployment)
	if err != nil {
		return false, err
	}
	s.Bounds = workload.ReadLimitRanges(ranges.Items)
	s.Quotas, judgesQuotas = workload.ReadQuotas(quotas.Items)
	s.Scaled = workload.ReadHPAs(hpas, deployment)
	s.Sized = workload.SizedBy(r.VPAs.Of(deployment), deployment)
	if r.Nodes != nil {
		s.LargestNode = r.Nodes.Largest()
	}
	s.Ceilings = r.Ceilings
	return judgesQuotas, nil
}

// readRoom adds the room of the nodes of the pods, if pods are resized in place.
func (r *Reconciler) readRoom(policy plan.Policy, s *plan.Situation) {
	if r.Nodes == nil || !policy.InPlace() {
		return
	}
	s.Room = map[string]quantity.Amounts{}
	for _, pod := range s.Pods {
		if _, isRead := s.Room[pod.Node]; isRead || !pod.Running {
			continue
		}
		if free, isKnown := r.Nodes.Free(pod.Node); isKnown {
			s.Room[pod.Node] = free
		}
	}
}

// addRecorded adds the records of the status. A decision belongs to one Deployment: a recreated
// Deployment of the same name starts from its own template, and inherits only the history.
func (r *Reconciler) addRecorded(s *scope, situation *plan.Situation) {
	if target := s.status.Target; target != nil && target.UID != situation.Deployment.UID {
		s.status.Decision, s.status.RevertedChanges = nil, nil
	} else if scaler.IsPaused(s.scaler) || scaler.SizesNewPods(&s.scaler.Spec) {
		situation.NewPods = scaler.NewPods(s.scaler.Status.NewPods)
	}
	situation.Decision = scaler.Decision(s.status.Decision)
	situation.RevertedChanges = scaler.RevertedChanges(s.status.RevertedChanges)
	situation.Originals = scaler.Originals(s.status.OriginalResources, situation.Deployment.UID)
}

// recallPods adds the operator's memory of the pods. It returns an error if the cache is older
// than our own last write. Otherwise it returns the pods that another controller has resized
// since, and the time until the first rejection expires; 0 without one.
func (r *Reconciler) recallPods(vs *v1beta1.VerticalScaler, s *plan.Situation) (undone map[types.UID]int64, retry time.Duration, err error) {
	alive := map[types.UID]bool{s.Deployment.UID: true}
	for _, pod := range s.Pods {
		alive[pod.UID] = true
	}
	known, now := r.memory.podsOf(client.ObjectKeyFromObject(vs), alive), r.Clock.Now()
	last := known[s.Deployment.UID]
	if last.isNewerThan(s.Deployment.Generation, now) {
		return nil, 0, errStaleCache
	}
	if last.eviction != nil && last.evictionOf == vs.Generation && now.Before(last.eviction.Until) {
		s.RejectedEviction = last.eviction
	}
	s.IsSetBack = now.Before(last.setBackAt.Add(setBackFor))
	for _, pod := range s.Pods {
		what := known[pod.UID]
		evictedNow := what.evicted && !pod.Terminating && now.Sub(what.at) < ownwrites.StaleFor
		if evictedNow || what.isNewerThan(pod.Generation, now) {
			return nil, 0, errStaleCache
		}
		if what.isUndone(pod) {
			if undone == nil {
				undone, s.Undone = map[types.UID]int64{}, map[types.UID]bool{}
			}
			undone[pod.UID], s.Undone[pod.UID] = pod.Generation, true
		}
		rejected, left := what.rejectedAt(now)
		retry = soonest(retry, left)
		if len(rejected) > 0 {
			if s.RejectedResizes == nil {
				s.RejectedResizes = map[types.UID][]plan.RejectedResize{}
			}
			s.RejectedResizes[pod.UID] = rejected
		}
	}
	return undone, retry, nil
}
