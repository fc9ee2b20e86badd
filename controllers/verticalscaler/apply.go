// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// apply carries out the plan's step.
func (r *Reconciler) apply(ctx context.Context, vs *v1beta1.VerticalScaler, p *scope) {
	done, err := r.permit(vs, p)
	if err == nil {
		func() {
			defer done()
			r.carryOut(ctx, vs, p)
		}()
		err = p.err
	}
	if why := deferralFrom(err); why != nil {
		log.FromContext(ctx).V(1).Info("The change waits", "reason", why.reason, "message", why.message)
		p.wait(why)
		p.err = nil
	}
}

func (r *Reconciler) carryOut(ctx context.Context, vs *v1beta1.VerticalScaler, p *scope) {
	switch step := p.plan.Step.(type) {
	case plan.Resize:
		p.err = r.resize(ctx, vs, p, step)
	case plan.TakeOver:
		p.err = r.takeOver(ctx, vs, p, step)
	case plan.Rewrite:
		p.err = r.rewrite(ctx, vs, p, step)
	case plan.Evict:
		p.err = r.evict(ctx, vs, p, step)
	case plan.Restore:
		if p.err = r.restore(ctx, vs, p.status.OriginalResources); p.err == nil {
			p.status.OriginalResources = nil
			p.requeueAfter = staleCacheRetry
		}
	case plan.Record:
		p.requeueAfter = staleCacheRetry
	default:
		log.FromContext(ctx).V(1).Info("Nothing to change", "reason", p.plan.Verdict.Reason, "message", p.plan.Verdict.Message)
	}
}

// resize asks for one pod's resize, all its containers at once. The pod must still
// be the one that the plan saw.
func (r *Reconciler) resize(ctx context.Context, vs *v1beta1.VerticalScaler, p *scope, step plan.Resize) error {
	patch, err := resizePatch(step)
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: vs.Namespace, Name: step.Pod}}
	err = r.Client.SubResource("resize").Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(Name))
	key := client.ObjectKeyFromObject(vs)
	if err == nil {
		countAction("resize", "done")
		r.pods.remember(key, step.UID, func(what *remembered) {
			what.generation, what.at = pod.Generation, p.now
			what.sizes = resourcesIn(workload.ReadPod(pod, true).Containers, step.Sizes)
		})
		p.changes = append(p.changes, changesOf(p.observation.situation, step)...)
		log.FromContext(ctx).Info("Resized pod in place", "Pod", step.Pod, "reason", causeOf(p.plan), "sizes", formatChanges(p.changes))
		return nil
	}
	if refused := apierror.Of(err); refused.Reason != "" {
		countAction("resize", refused.Reason)
		verdict := plan.RejectedResize{Sizes: step.Sizes, Reason: refused.Reason, Message: refused.Message}
		r.pods.remember(key, step.UID, func(what *remembered) {
			what.refused = slices.DeleteFunc(what.refused, func(old refusedUntil) bool { return !p.now.Before(old.until) })
			what.refused = append(what.refused, refusedUntil{verdict, p.now.Add(r.patience(vs, p, refused.Reason))})
		})
		log.FromContext(ctx).Info("Resize refused", "Pod", step.Pod, "reason", refused.Reason, "message", refused.Message)
		// Plan again with what we know now: the refusal becomes the plan's reason, or
		// another pod's turn comes, in a pass of its own.
		situation := &p.observation.situation
		situation.RejectedResizes = maps.Clone(situation.RejectedResizes)
		if situation.RejectedResizes == nil {
			situation.RejectedResizes = map[types.UID][]plan.RejectedResize{}
		}
		situation.RejectedResizes[step.UID] = append(slices.Clone(situation.RejectedResizes[step.UID]), verdict)
		p.plan = plan.Next(*situation, scaler.PlanPolicy(vs, situation.Deployment), p.now)
		if _, resizes := p.plan.Step.(plan.Resize); resizes {
			p.requeueAfter = staleCacheRetry
		}
		return nil
	}
	countAction("resize", actionOutcome(err))
	return fmt.Errorf("resizing pod %s: %w", step.Pod, err)
}

// causeOf is why a step is made, for the log.
func causeOf(p plan.Plan) string {
	if resize, ok := p.Step.(plan.Resize); ok && resize.Boost || p.Decision == nil {
		return v1beta1.ReasonBoosted
	}
	return p.Decision.Reason
}

// patience is how long a refusal stands. Most end with something that we do not watch: the
// resync asks again. A quota that we could judge, and did, was only seen late.
func (r *Reconciler) patience(vs *v1beta1.VerticalScaler, p *scope, reason string) time.Duration {
	if reason == v1beta1.ReasonQuotaExceeded && p.observation.judgesQuotas {
		return min(lateQuota, r.resync(vs.UID))
	}
	return r.resync(vs.UID)
}

// lateQuota is how long a quota may take to arrive in the cache.
const lateQuota = 10 * time.Second

// outcomeOf tells a write that came too late from one that failed.
func actionOutcome(err error) string {
	switch {
	case isConflict(err):
		return "conflict"
	case deferralFrom(err) != nil:
		return v1beta1.ReasonFrozen
	}
	return "failed"
}

// otherHolder names another scaler that holds values of the Deployment with that UID.
func (r *Reconciler) otherHolder(ctx context.Context, vs *v1beta1.VerticalScaler, deployment types.UID) (string, error) {
	var scalers v1beta1.VerticalScalerList
	if err := r.Client.List(ctx, &scalers, client.InNamespace(vs.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing the scalers of namespace %s: %w", vs.Namespace, err)
	}
	for i := range scalers.Items {
		other := &scalers.Items[i]
		if held := other.Status.OriginalResources; other.Name != vs.Name && held != nil && held.UID == deployment {
			return other.Name, nil
		}
	}
	return "", nil
}

// refusedBy says why the step is not taken, and whether the answer was a refusal at all.
func (p *scope) refusedBy(err error) bool {
	refused := apierror.Of(err)
	if refused.Reason == "" {
		return false
	}
	p.plan = p.plan.Blocked(refused.Reason, refused.Message)
	return true
}

// resizePatch is the strategic merge patch that holds the pod's identity and the
// containers' resources, and nothing else.
func resizePatch(step plan.Resize) ([]byte, error) {
	type container struct {
		Name      string                      `json:"name"`
		Resources corev1.ResourceRequirements `json:"resources"`
	}
	var body struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
		Spec struct {
			Containers []container `json:"containers"`
		} `json:"spec"`
	}
	body.Metadata.UID, body.Metadata.ResourceVersion = step.UID, step.ResourceVersion
	for _, size := range step.Sizes {
		body.Spec.Containers = append(body.Spec.Containers, container{
			Name: size.Container,
			Resources: corev1.ResourceRequirements{
				Requests: resourceList(size.Requests),
				Limits:   resourceList(size.Limits),
			},
		})
	}
	patch, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding the resize of pod %s: %w", step.Pod, err)
	}
	return patch, nil
}

func resourceList(a quantity.Amounts) corev1.ResourceList {
	list := corev1.ResourceList{}
	if a.CPUMillis > 0 {
		list[corev1.ResourceCPU] = quantity.CPU(a.CPUMillis)
	}
	if a.MemoryBytes > 0 {
		list[corev1.ResourceMemory] = quantity.Memory(a.MemoryBytes)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

// takeOver records what the template holds before it is taken over, first the
// finalizer, then the values. The step itself is for the next pass.
//
// What is found must be the user's: not another scaler's that has not given it back
// yet, nor what a cache shows that is older than the Deployment.
func (r *Reconciler) takeOver(ctx context.Context, vs *v1beta1.VerticalScaler, p *scope, step plan.TakeOver) error {
	other, err := r.otherHolder(ctx, vs, step.UID)
	if err != nil {
		return err
	}
	if other != "" {
		p.plan = p.plan.Delayed(v1beta1.ReasonConflict, "VerticalScaler "+other+" has not restored the pod template yet")
		return nil
	}
	var live appsv1.Deployment
	if err := r.Live.Get(ctx, scaler.Target(vs), &live); err != nil {
		if p.refusedBy(err) {
			return nil
		}
		return fmt.Errorf("reading Deployment %s to record what it holds: %w", scaler.Target(vs), err)
	}
	if live.ResourceVersion != step.ResourceVersion {
		return errStaleCache
	}
	if !controllerutil.ContainsFinalizer(vs, v1beta1.RestoreFinalizer) {
		updated := vs.DeepCopy()
		controllerutil.AddFinalizer(updated, v1beta1.RestoreFinalizer)
		if err := r.Client.Patch(ctx, updated, client.MergeFromWithOptions(vs, client.MergeFromWithOptimisticLock{})); err != nil {
			if p.refusedBy(err) {
				return nil
			}
			return fmt.Errorf("adding the finalizer: %w", err)
		}
		r.written.Remember(updated, p.now)
		vs.ResourceVersion, vs.Finalizers = updated.ResourceVersion, updated.Finalizers
	}
	p.status.OriginalResources = scaler.APIOriginals(p.observation.situation.Originals, step.Originals, p.observation.situation.Deployment)
	p.requeueAfter = staleCacheRetry
	return nil
}

// rewrite applies the sizes to the Deployment's pod template, by server-side apply
// of nothing but these values. It takes them from whoever had them: they are
// recorded as held, to be given back.
func (r *Reconciler) rewrite(ctx context.Context, vs *v1beta1.VerticalScaler, p *scope, step plan.Rewrite) error {
	sizes := map[string]corev1.ResourceRequirements{}
	for _, size := range step.Sizes {
		sizes[size.Container] = corev1.ResourceRequirements{Requests: resourceList(size.Requests), Limits: resourceList(size.Limits)}
	}
	if err := r.keepUnrecorded(ctx, vs, p, sizes); err != nil {
		if p.refusedBy(err) {
			p.plan = p.plan.KeepDecision(p.observation.situation)
			return nil
		}
		return err
	}
	var containers []*corev1ac.ContainerApplyConfiguration
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		resources := corev1ac.ResourceRequirements()
		if list := sizes[name].Requests; len(list) > 0 {
			resources.WithRequests(list)
		}
		if list := sizes[name].Limits; len(list) > 0 {
			resources.WithLimits(list)
		}
		containers = append(containers, corev1ac.Container().WithName(name).WithResources(resources))
	}
	config := appsv1ac.Deployment(p.observation.situation.Deployment.Name, vs.Namespace).
		// Without these an apply would make a Deployment that has gone meanwhile, or
		// hit another one by the same name.
		WithUID(step.UID).WithResourceVersion(step.ResourceVersion).
		WithSpec(appsv1ac.DeploymentSpec().WithTemplate(corev1ac.PodTemplateSpec().
			WithSpec(corev1ac.PodSpec().WithContainers(containers...))))
	err := r.Client.Apply(ctx, config, client.FieldOwner(Name), client.ForceOwnership)
	if err == nil {
		countAction("rollout", "done")
		// The answer was read into what was sent.
		r.pods.remember(client.ObjectKeyFromObject(vs), step.UID, func(what *remembered) {
			what.generation, what.at = ptr.Deref(config.Generation, 0), p.now
		})
		p.changes = append(p.changes, templateChanges(p.observation.situation.Deployment, step.Sizes)...)
		log.FromContext(ctx).Info("Rewrote the pod template", "Deployment", p.observation.situation.Deployment.Name,
			"reason", causeOf(p.plan), "sizes", formatChanges(p.changes))
		return nil
	}
	p.plan = p.plan.KeepDecision(p.observation.situation)
	if refused := apierror.Of(err); refused.Reason != "" {
		countAction("rollout", refused.Reason)
		p.plan = p.plan.Blocked(refused.Reason, refused.Message)
		return nil
	}
	countAction("rollout", actionOutcome(err))
	return fmt.Errorf("applying the sizes to Deployment %s: %w", p.observation.situation.Deployment.Name, err)
}

// keepUnrecorded adds to the sizes what we own of the template without a record of
// having taken it: the status that said so was lost. An apply that left it out would
// remove it, and leave a container without requests.
func (r *Reconciler) keepUnrecorded(ctx context.Context, vs *v1beta1.VerticalScaler, p *scope, sizes map[string]corev1.ResourceRequirements) error {
	var deployment appsv1.Deployment
	key := scaler.Target(vs)
	if err := r.Live.Get(ctx, key, &deployment); err != nil {
		return fmt.Errorf("reading who owns what of Deployment %s: %w", key, err)
	}
	owned, err := ownership.Of(deployment.ManagedFields, ownership.Scalers)
	if err != nil {
		return fmt.Errorf("reading the managed fields of Deployment %s: %w", key, err)
	}
	addUnrecorded(&deployment, p.observation.situation.Originals, owned, sizes)
	return nil
}

func addUnrecorded(d *appsv1.Deployment, held []plan.Original, owned *fieldpath.Set, sizes map[string]corev1.ResourceRequirements) {
	for _, c := range d.Spec.Template.Spec.Containers {
		size := sizes[c.Name]
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			if isRecorded(held, c.Name, name) {
				continue
			}
			if q, ok := c.Resources.Requests[name]; ok && ownership.HasResource(owned, c.Name, "requests", string(name)) {
				size.Requests = withQuantity(size.Requests, name, q)
			}
			if q, ok := c.Resources.Limits[name]; ok && ownership.HasResource(owned, c.Name, "limits", string(name)) {
				size.Limits = withQuantity(size.Limits, name, q)
			}
		}
		if size.Requests != nil || size.Limits != nil {
			sizes[c.Name] = size
		}
	}
}

func isRecorded(held []plan.Original, container string, resource corev1.ResourceName) bool {
	return slices.ContainsFunc(held, func(h plan.Original) bool {
		return h.Container == container && (resource == corev1.ResourceCPU && h.CPU || resource == corev1.ResourceMemory && h.Memory)
	})
}

func withQuantity(list corev1.ResourceList, name corev1.ResourceName, q resource.Quantity) corev1.ResourceList {
	if list == nil {
		list = corev1.ResourceList{}
	}
	list[name] = q
	return list
}

// change is one container's resources, before and after.
type change struct {
	subject   string // "pod web-1" or "Deployment web"
	container string
	before    workload.Resources
	after     workload.Resources
}

func changesOf(s plan.Situation, step plan.Resize) (out []change) {
	for _, pod := range s.Pods {
		if pod.UID != step.UID {
			continue
		}
		for _, size := range step.Sizes {
			if c, ok := pod.Container(size.Container); ok && c.Resources != size.Resources {
				out = append(out, change{"pod " + pod.Name, size.Container, c.Resources, size.Resources})
			}
		}
	}
	return out
}

func templateChanges(d workload.Deployment, sizes []plan.Size) (out []change) {
	for _, size := range sizes {
		c, ok := d.Container(size.Container)
		after := workload.Resources{
			Requests: cover(c.Requests, size.Requests),
			Limits:   cover(c.Limits, size.Limits),
		}
		if ok && c.Resources != after {
			out = append(out, change{"Deployment " + d.Name, size.Container, c.Resources, after})
		}
	}
	return out
}
