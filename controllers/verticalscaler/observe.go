// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// observation is everything that a pass needs to know.
type observation struct {
	// deployment is the target; nil while it does not exist.
	deployment *appsv1.Deployment
	// winner names the scaler that sizes the Deployment instead of this one; empty
	// if this one does.
	winner string
	// situation is what the plan rests on, less the recommendations.
	situation plan.Situation
	// judgesQuotas says that the situation tells of all the ResourceQuotas.
	judgesQuotas bool
	// undone are the pods that somebody else has resized since we did, by generation.
	undone map[types.UID]int64
	// problems is what is wrong with the usage.
	problems collect.Problems
}

// observe reads the target and its surroundings from the cache.
func (r *Reconciler) observe(ctx context.Context, vs *v1beta1.VerticalScaler, status *v1beta1.VerticalScalerStatus) (o observation, err error) {
	if o.winner, err = r.winnerOver(ctx, vs); err != nil {
		return o, err
	}
	var deployment appsv1.Deployment
	if err := r.Client.Get(ctx, scaler.Target(vs), &deployment); err != nil {
		if apierrors.IsNotFound(err) {
			return o, nil
		}
		return o, fmt.Errorf("reading Deployment %s: %w", scaler.Target(vs), err)
	}
	o.deployment = &deployment
	if o.winner != "" {
		return o, nil
	}
	if r.Usage != nil {
		o.problems = r.Usage.ProblemsOf(client.ObjectKeyFromObject(vs))
	}

	s := plan.Situation{Deployment: workload.ReadDeployment(&deployment)}
	if s.Pods, err = inventory.PodsOf(ctx, r.Client, &deployment); err != nil {
		return o, err
	}
	if o.undone, err = r.recallPods(client.ObjectKeyFromObject(vs), &s); err != nil {
		return o, err
	}
	var ranges corev1.LimitRangeList
	if err := r.Client.List(ctx, &ranges, client.InNamespace(vs.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return o, fmt.Errorf("listing the LimitRanges of namespace %s: %w", vs.Namespace, err)
	}
	s.Bounds = workload.ReadLimitRanges(ranges.Items)
	var quotas corev1.ResourceQuotaList
	if err := r.Client.List(ctx, &quotas, client.InNamespace(vs.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return o, fmt.Errorf("listing the ResourceQuotas of namespace %s: %w", vs.Namespace, err)
	}
	s.Quotas, o.judgesQuotas = workload.ReadQuotas(quotas.Items)
	var hpas autoscalingv2.HorizontalPodAutoscalerList
	if err := r.Client.List(ctx, &hpas, client.InNamespace(vs.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return o, fmt.Errorf("listing the HorizontalPodAutoscalers of namespace %s: %w", vs.Namespace, err)
	}
	s.Scaled = workload.ReadHPAs(hpas.Items, &deployment)
	s.Sized = workload.SizedBy(r.VPAs.Of(vs.Namespace), &deployment)

	if r.Nodes != nil {
		s.LargestNode = r.Nodes.Largest()
	}

	// A decision is about one Deployment. One made anew under the same name starts
	// from its own template; only the history is inherited.
	if status.Target != nil && status.Target.UID != deployment.UID {
		status.Decision, status.RevertedChanges = nil, nil
	}
	if scaler.EvictsPods(&vs.Spec) {
		s.NewPods = scaler.NewPods(vs.Status.NewPods)
		s.NewPods.AskedSince = r.admitted.asked(client.ObjectKeyFromObject(vs), vs.Status.NewPods)
	}
	s.Decision = scaler.Decision(status.Decision)
	s.RevertedChanges = scaler.RevertedChanges(status.RevertedChanges)
	s.Originals = scaler.Originals(status.OriginalResources, deployment.UID)
	o.situation = s
	return o, nil
}

// recallPods adds what only we know of the pods, and refuses to go on with pods
// older than our own last resize of them. It returns those that somebody else has
// resized since.
func (r *Reconciler) recallPods(scaler types.NamespacedName, s *plan.Situation) (undone map[types.UID]int64, err error) {
	alive := map[types.UID]bool{s.Deployment.UID: true}
	for _, pod := range s.Pods {
		alive[pod.UID] = true
	}
	known, now := r.pods.recall(scaler, alive), r.Clock.Now()
	if known[s.Deployment.UID].isNewerThan(s.Deployment.Generation, now) {
		return nil, errStaleCache
	}
	if refused := known[s.Deployment.UID].eviction; refused != nil && now.Before(refused.Until) {
		s.RejectedEviction = refused
	}
	for _, pod := range s.Pods {
		what, ok := known[pod.UID]
		if !ok {
			continue
		}
		if what.evicted && !pod.Terminating && now.Sub(what.at) < staleFor {
			return nil, errStaleCache
		}
		if what.isNewerThan(pod.Generation, now) {
			return nil, errStaleCache
		}
		if what.isUndone(pod) {
			if undone == nil {
				undone, s.Undone = map[types.UID]int64{}, map[types.UID]bool{}
			}
			undone[pod.UID], s.Undone[pod.UID] = pod.Generation, true
		}
		for _, refused := range what.refused {
			if !now.Before(refused.until) {
				continue
			}
			if s.RejectedResizes == nil {
				s.RejectedResizes = map[types.UID][]plan.RejectedResize{}
			}
			s.RejectedResizes[pod.UID] = append(s.RejectedResizes[pod.UID], refused.RejectedResize)
		}
	}
	return undone, nil
}

// winnerOver names the scaler that comes before this one among those that name the
// same Deployment: the oldest, then the first by name.
func (r *Reconciler) winnerOver(ctx context.Context, vs *v1beta1.VerticalScaler) (string, error) {
	first := vs
	rivals, err := r.lookup.lookUp(ctx, targetIndex, scaler.Target(vs))
	if err != nil {
		return "", fmt.Errorf("looking up the scalers of Deployment %s: %w", scaler.Target(vs), err)
	}
	for _, key := range rivals {
		if key == client.ObjectKeyFromObject(vs) {
			continue
		}
		var rival v1beta1.VerticalScaler
		if err := r.Client.Get(ctx, key, &rival); err != nil {
			if apierrors.IsNotFound(err) {
				continue
			}
			return "", fmt.Errorf("reading scaler %s: %w", key, err)
		}
		if rival.Spec.DeploymentName == vs.Spec.DeploymentName && comesBefore(&rival, first) {
			first = &rival
		}
	}
	if first == vs {
		return "", nil
	}
	return first.Name, nil
}

func comesBefore(a, b *v1beta1.VerticalScaler) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// recommendations counts the OOM kills that the pods tell of, and recommends.
func (r *Reconciler) recommendations(vs *v1beta1.VerticalScaler, o observation, status *v1beta1.VerticalScalerStatus) (recs []recommend.Container) {
	r.Histories.With(client.ObjectKeyFromObject(vs), func(book history.Book) {
		var names []string
		for _, c := range o.situation.Deployment.Containers {
			names = append(names, c.Name)
		}
		book.Retain(names)
		for _, pod := range o.situation.Pods {
			for _, kill := range pod.Kills {
				if _, ok := o.situation.Deployment.Container(kill.Container); !ok {
					continue
				}
				container := book.Container(kill.Container)
				// A kill that the decision in force has answered is not counted again by a
				// history that was lost: the limit that the pod tells of is newer than the
				// kill, and would be raised once more.
				answered := o.situation.Decision != nil && o.situation.Decision.Reason == plan.DecidedOOMKill && !kill.At.After(o.situation.Decision.Time)
				if container != nil && (!answered || !container.NewestKill().IsZero()) {
					container.RecordOOM(kill.At, kill.HitBytes, r.Params.History)
				}
			}
		}
		recs = scaler.Recommendations(&vs.Spec, names, book, status.Recommendation, r.Params)
	})
	return recs
}
