// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Situation is everything that a plan depends on.
type Situation struct {
	Deployment workload.Deployment
	// Pods are the pods, by name.
	Pods   []workload.Pod
	Bounds workload.Bounds
	// Quotas are the ResourceQuotas of the namespace.
	Quotas []workload.Quota
	// LargestNode is, for each resource, the largest allocatable amount of any node. 0 stands for unknown, and bounds nothing.
	LargestNode quantity.Amounts
	// Room is, by node, what can be allocated and is not requested by any pod; negative if pods request more. A node that is
	// missing is not known, and bounds nothing.
	Room map[string]quantity.Amounts
	// Ceilings are set in the operator's configuration.
	Ceilings Ceilings
	Scaled   workload.Scaled
	// Sized names, by container, the VerticalPodAutoscalers that size it.
	Sized           map[string]workload.Scaled
	Recommendations []recommend.Container
	// MissingUsage says which usage of running pods is missing; empty if the usage is complete.
	// While some is missing, no request is lowered: see WaitsForUsage.
	MissingUsage string
	// UsageIsBack is true if it is there, and does not count yet.
	UsageIsBack bool
	// Unable is the reason why nothing can be planned: the usage history cannot be read, or the original
	// values of a former target cannot be restored. No obstacle if neither is the case.
	Unable Obstacle
	// IsUnclaimed is true until the scaler's claim of the Deployment is recorded.
	IsUnclaimed bool
	// Unsaved is the reason why the usage history cannot be saved, so that a restart would lose the basis
	// of a decision. Only urgent changes are made meanwhile, and they lower no other request.
	Unsaved Obstacle
	// Frozen is the reason why all changes are frozen.
	Frozen Obstacle
	// Unsized is the reason why the API server does not size new pods, although the policy wants it.
	Unsized Obstacle
	// Decision is the current decision; nil before the first.
	Decision *Decision
	// RevertedChanges are the changes that were reverted before.
	RevertedChanges []RevertedChange
	// Originals are the original values of what we have taken over of the pod template;
	// nil while we own nothing of this Deployment.
	Originals []Original
	// Undone holds the pods whose resources another controller has changed since we last resized them.
	Undone map[types.UID]bool
	// Writers are the field managers of what is contested; nil until they are looked up.
	Writers *Writers
	// RejectedResizes holds, by pod, the resizes that are not repeated for now.
	RejectedResizes map[types.UID][]RejectedResize
	// IsSetBack is true for a while after a new pod of the Deployment has found no node: see Resize.SetsBack.
	IsSetBack bool
	// NewPods has the published sizes, and whether the API server applies them.
	NewPods NewPods
	// RejectedEviction is the last eviction, if it was refused; nil for none.
	RejectedEviction *RejectedEviction
}

// Ceilings bound what requests are raised to, whatever the policy says. They lower nothing that
// pods have. The zero value bounds nothing.
type Ceilings struct {
	// Container is the most that one container requests, and Pod the most that all containers of a
	// pod request together. 0 means no ceiling.
	Container, Pod quantity.Amounts
	// NodePercent is the most that a pod requests if it is resized in place, in percent of
	// LargestNode: 1 to 100. 0 means no ceiling.
	NodePercent int64
	// RaiseFactor bounds raises without maxAllowed, as a multiple of the template's request or
	// limit. It is also the highest ratio of a limit to its request that is kept. 0 means no bound.
	RaiseFactor int64
}

// Original has the values of a container of the template before we took it over.
type Original struct {
	Container string
	// CPU and Memory tell which resources have been taken over.
	CPU, Memory bool
	// Resources are the values found. 0 stands for not set.
	workload.Resources
}

// Has reports whether the resource has been taken over.
func (o Original) Has(r Resource) bool { return *r.taken(&o) }

// With is the original with the values of one more resource of a container, unless it is taken over already.
func (o Original) With(r Resource, found workload.Container) Original {
	if o.Has(r) {
		return o
	}
	r.Copy(&o.Resources, found.Resources)
	o.Container, *r.taken(&o) = found.Name, true
	return o
}

// Size has the resources for one container.
type Size struct {
	Container string
	workload.Resources
}

// RejectedResize is a resize that the API server refused, or that was withdrawn because the kubelet did not grant it.
type RejectedResize struct {
	Sizes   []Size
	Reason  string
	Message string
}

// RejectedEviction is an eviction that the API server refused.
type RejectedEviction struct {
	Reason, Message string
	Stalled         bool
	// Until is the time of the next attempt.
	Until time.Time
}

// NewPods has the sizes that the API server puts into new pods, and whether it does.
type NewPods struct {
	// Sizes holds, for each container, the resources that are managed.
	Sizes []Size
	// Starts has the CPU with which containers with a startup boost start, instead of that in Sizes.
	Starts []Size
	// AskedSince is the time since which both the sizes and the binding are known to exist; zero if they do not.
	AskedSince time.Time
	// EffectiveSince is the creation time of the newest pod at the moment when the API server
	// had had enough time since AskedSince; zero before. Pods created later get the sizes.
	EffectiveSince time.Time
	// IneffectiveOnPod names a later pod that has not got them.
	IneffectiveOnPod string
	// ReplicaSet, if set, has had healthy pods with exactly these sizes. Pods of others get at least their template's.
	ReplicaSet types.UID
	// FailedAt is the time at which the API server refused to create pods with the sizes, and Failure is its message;
	// zero for never.
	FailedAt time.Time
	Failure  string
	// Obstacle is the reason why new pods get nothing, although something is decided; none if they get it.
	Obstacle Obstacle
}

// Writers are the field managers of what is contested.
type Writers struct {
	Names []string
	// Ours is true if we still own all of it: no other controller has undone anything, but a
	// changed LimitRange requires other values.
	Ours bool
	// Partly is true if only a part has been looked at.
	Partly bool
}

// Contest has the sizes that another controller has undone too often. Only the API server knows who owns it now.
type Contest struct {
	// Template has the sizes for the pod template's containers.
	Template []Size
	// Pods has the sizes for the pods' containers, by pod name.
	Pods map[string][]Size
}

// IsEmpty reports whether nothing is contested.
func (c Contest) IsEmpty() bool { return len(c.Template)+len(c.Pods) == 0 }

// Pod is the pod with that UID, if it exists.
func (s Situation) Pod(uid types.UID) (workload.Pod, bool) {
	return find(s.Pods, func(pod workload.Pod) bool { return pod.UID == uid })
}

// Recommendation is the recommendation for a container.
func (s Situation) Recommendation(container string) (recommend.Container, bool) {
	return find(s.Recommendations, func(rec recommend.Container) bool { return rec.Name == container })
}

// Original has the values that were taken over of a container of the template.
func (s Situation) Original(container string) (Original, bool) {
	return find(s.Originals, func(o Original) bool { return o.Container == container })
}

func find[T any](list []T, is func(T) bool) (found T, ok bool) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i], true
	}
	return found, false
}

// TakenBy says which other autoscaler manages a resource of a container, so that it is not changed.
func (s Situation) TakenBy(container string, r Resource) Obstacle {
	if hpa := r.scaledBy(s.Scaled); hpa != "" {
		return Wait(v1beta1.ReasonHPAConflict, "not managed, because HorizontalPodAutoscaler %s scales on its utilization", hpa).On(r.String())
	}
	if vpa := r.scaledBy(s.Sized[container]); vpa != "" {
		return Wait(v1beta1.ReasonVPAConflict, "not managed, because VerticalPodAutoscaler %s sizes it", vpa).On(container + " " + r.String())
	}
	return Obstacle{}
}

// WaitsForUsage blocks lower requests while usage is missing; no obstacle if the usage is complete.
func (s Situation) WaitsForUsage() Obstacle {
	if s.MissingUsage == "" {
		return Obstacle{}
	}
	if s.UsageIsBack {
		return Wait(v1beta1.ReasonMetricsRecovering, "waits: %s", s.MissingUsage)
	}
	return Wait(v1beta1.ReasonMetricsIncomplete, "waits until all running pods report usage (%s)", s.MissingUsage)
}

// KillSkew is the largest difference between the clock of a node, which says when a container was killed, and the API server's.
const KillSkew = 30 * time.Second

// IsAlive reports whether the pod runs and is not about to end.
func IsAlive(p workload.Pod) bool { return p.Running && !p.Terminating }

// IsActive reports whether the pod runs and stays, so that its size depends on the decision and the decision on it. Where pods
// are resized in place, a pod of an older template stays while the Deployment is paused or its rollout is stuck.
func (s Situation) IsActive(policy Policy, p workload.Pod) bool {
	return IsAlive(p) && (p.Current || policy.InPlace() && s.Deployment.KeepsOldPods())
}

// IsLeaving reports whether the pod runs, and a rollout is about to replace it.
func (s Situation) IsLeaving(policy Policy, p workload.Pod) bool {
	return IsAlive(p) && !s.IsActive(policy, p)
}

// FewPods is the largest number of pods without an outlier: a pod whose memory was raised alone.
const FewPods = 2

// AlivePods counts the pods that run and are not about to end, whatever their template.
func (s Situation) AlivePods() int { return s.Count(IsAlive) }

// OldPods counts the pods of AlivePods that have an older template.
func (s Situation) OldPods() int {
	return s.Count(func(p workload.Pod) bool { return IsAlive(p) && !p.Current })
}

// Count counts the pods that a condition holds for.
func (s Situation) Count(is func(workload.Pod) bool) (n int) {
	for _, pod := range s.Pods {
		if is(pod) {
			n++
		}
	}
	return n
}

// AppliedTo are the pod's containers with the resources that the kubelet reports, or else what they declare.
func AppliedTo(pod workload.Pod) []workload.Container {
	out := slices.Clone(pod.Containers)
	for i, c := range out {
		out[i].Resources = pod.Applied(c.Name)
	}
	return out
}

// WasResized reports whether a resize of the pod was asked for, by anyone.
func WasResized(pod workload.Pod) bool {
	return !pod.Resized.IsZero() || pod.Resize != (workload.Resize{})
}

// Injected names the containers of current pods that the template does not have, sorted: admission has
// added them. They are not sized, because the next rollout would bring their own size again.
func (s Situation) Injected() (names []string) {
	for _, pod := range s.Pods {
		if !pod.Current || pod.Ended {
			continue
		}
		for _, c := range s.besideTemplate(pod.Containers) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// besideTemplate are the containers that the template does not have.
func (s Situation) besideTemplate(containers []workload.Container) []workload.Container {
	return slices.DeleteFunc(slices.Clone(containers), func(c workload.Container) bool {
		_, isInTemplate := s.Deployment.Container(c.Name)
		return isInTemplate
	})
}

// NewPod is the footprint that the next pod will probably have.
func (s Situation) NewPod() workload.Footprint { return s.Deployment.NewPod(s.Pods) }

// Beside is the most that a pod requests besides the template's containers: for native sidecars, for what is injected into pods,
// and as overhead. Pods of an older template count too, because the next ones are probably injected alike.
func (s Situation) Beside() (most quantity.Amounts) {
	pods := make([]workload.Footprint, 1, 1+len(s.Pods))
	pods[0] = s.NewPod()
	for _, pod := range s.Pods {
		if !pod.IsOver() {
			pods = append(pods, pod.Footprint())
		}
	}
	for _, pod := range pods {
		beside := workload.Footprint{Running: s.besideTemplate(pod.Running), Overhead: pod.Overhead}
		counted := beside.Counted().Requests
		most.CPUMillis, most.MemoryBytes = max(most.CPUMillis, counted.CPUMillis), max(most.MemoryBytes, counted.MemoryBytes)
	}
	return most
}
