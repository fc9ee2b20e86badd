// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/apierror"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/conditions"
	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// resize resizes one pod, all its containers at once. The pod must still be the one that
// the plan saw.
func (r *Reconciler) resize(ctx context.Context, s *scope, step plan.Resize) error {
	seen, _ := s.observation.situation.Pod(step.UID)
	if err := r.Freeze.Check(s.scaler.Namespace); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.scaler.Namespace, Name: step.Pod}}
	err := r.Client.SubResource("resize").Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, resizePatch(step, seen)), client.FieldOwner(Name))
	if rejection := apierror.Of(err); rejection.Reason != "" {
		countAction("resize", rejection.Reason)
		log.FromContext(ctx).Info("Resize rejected", "Pod", step.Pod, "reason", rejection.Reason, "message", rejection.Message)
		rejected := plan.RejectedResize{Sizes: step.Sizes, Reason: rejection.Reason, Message: rejection.Message}
		r.memory.changePod(client.ObjectKeyFromObject(s.scaler), step.UID, func(what *remembered) {
			what.reject(rejected, s.now, s.now.Add(r.rejectionPeriod(s, rejection.Reason)))
		})
		return errRefused
	}
	if err != nil {
		countAction("resize", actionOutcome(err))
		return fmt.Errorf("resizing pod %s: %w", step.Pod, err)
	}
	r.countDone(client.ObjectKeyFromObject(s.scaler), "resize", metrics.Resized)
	r.memory.changePod(client.ObjectKeyFromObject(s.scaler), step.UID, func(what *remembered) {
		what.generation, what.at = pod.Generation, s.now
		what.sizes = resourcesIn(workload.ReadPod(pod, true).Containers, step.Sizes)
		if step.Withdraws != nil {
			what.withdraw(*step.Withdraws, s.now)
		}
	})
	if step.SetsBack {
		r.memory.changePod(client.ObjectKeyFromObject(s.scaler), s.observation.situation.Deployment.UID, func(what *remembered) { what.setBackAt = s.now })
		s.taken = eventSetBack
		s.takenNote = fmt.Sprintf("Pod %s is unschedulable with the decided requests; insufficient resources are reduced to the template's requests", step.Pod)
	}
	sizes := formatChanges(seen.Containers, step.Sizes)
	r.Recorder.Eventf(pod, s.scaler, corev1.EventTypeNormal, eventDecided, actionSize, "%s", conditions.Truncated(fmt.Sprintf("VerticalScaler %s: %s: %s", s.scaler.Name, causeOf(s.plan), sizes)))
	log.FromContext(ctx).Info("Resized pod in place", "Pod", step.Pod, "reason", causeOf(s.plan), "sizes", sizes)
	return nil
}

// rejectionPeriod is the time before a rejected resize is retried. Most rejections end by changes
// that the operator does not watch, so the resync retries. A quota that the plan could check was
// only seen late.
func (r *Reconciler) rejectionPeriod(s *scope, reason string) time.Duration {
	if reason == v1beta1.ReasonQuotaExceeded && s.observation.judgesQuotas {
		return min(lateQuota, r.retryPeriod(s.scaler.UID))
	}
	return r.retryPeriod(s.scaler.UID)
}

// lateQuota is the longest time until a quota arrives in the cache.
const lateQuota = 10 * time.Second

// resizePatch is a strategic merge patch of the resources of the pod's containers, and of the
// pod-level ones if the pod has some. The identity of the pod is the precondition.
func resizePatch(step plan.Resize, pod workload.Pod) []byte {
	requirements := func(r workload.Resources) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: resourceList(r.Requests), Limits: resourceList(r.Limits)}
	}
	var containers []containerPatch
	for _, size := range step.Sizes {
		c, _ := pod.Container(size.Container)
		containers = append(containers, containerPatch{size.Container, requirements(size.Resources), c.IsSidecar})
	}
	spec := byList(containers)
	if step.PodLevel != (workload.Resources{}) {
		spec["resources"] = requirements(step.PodLevel)
	}
	return patchOf(step.UID, step.ResourceVersion, nil, spec)
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
