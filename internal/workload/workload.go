// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload reads Deployments, their pods and what else bounds them into
// plain values, so that deciding needs no Kubernetes object and no client.
//
// Its promise: nothing is guessed. A quantity outside the believable range, a
// condition about an older generation or a status that a kubelet has not filled
// yet is reported as such, never as zero.
package workload

import (
	"cmp"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Resources are a container's requests and limits. 0 stands for not set.
type Resources struct {
	Requests quantity.Amounts
	Limits   quantity.Amounts
}

// Container is a container as a pod or a pod template declares it.
type Container struct {
	Name string
	Resources
	// RestartOnCPU and RestartOnMemory say that the container's resizePolicy asks
	// for a restart when that resource changes.
	RestartOnCPU    bool
	RestartOnMemory bool
	// Unreadable says that a quantity is outside the believable range; the
	// container is then left alone.
	Unreadable bool
}

// Deployment is what we need to know of a Deployment.
type Deployment struct {
	Namespace       string
	Name            string
	UID             types.UID
	ResourceVersion string
	Generation      int64
	Replicas        int32
	UpdatedReplicas int32
	Paused          bool
	Terminating     bool
	// RollingOut says that pods of an older template still have to be replaced, or
	// that the Deployment's controller has not seen the newest spec.
	RollingOut bool
	// Stuck says that the Deployment's controller has given up on the rollout of this very
	// spec, because it did not get on for longer than progressDeadlineSeconds.
	Stuck bool
	// Unavailable is how many of the old pods a rollout may let go before the first new
	// one has come: all of them with the strategy Recreate.
	Unavailable int32
	// PodLevelResources says that the template declares resources for a pod as a whole.
	PodLevelResources bool
	// MinReady is how long a pod is ready before it counts as available.
	MinReady time.Duration
	// Containers are the template's containers, without init containers.
	Containers []Container
}

// Pod is what we need to know of a pod.
type Pod struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Generation      int64
	// Current says that the pod has the Deployment's newest template.
	Current bool
	Running bool
	// Ended says that the pod has run to its end, or was ended: another one stands in for it.
	Ended bool
	// Created is when the pod was made.
	Created time.Time
	// Started is when the kubelet took the pod over; zero before.
	Started time.Time
	// Ready says that the pod is ready to serve, and ReadyChanged since when it is so, or
	// is not; zero where nobody has said.
	Ready        bool
	ReadyChanged time.Time
	// Runs tells, by container, of its process, as far as the kubelet has told of it.
	Runs map[string]Run
	// Resized is when somebody last resized it in place; zero for never.
	Resized     time.Time
	Terminating bool
	QoS         corev1.PodQOSClass
	// PodLevelResources says that the pod declares resources for itself as a whole.
	PodLevelResources bool
	Containers        []Container
	// Others are the init containers, native sidecars among them, which we never change
	// but which count for QoS.
	Others []Container
	// Actual holds, by container, what the kubelet says is in force. A container is
	// missing until the kubelet has said so.
	Actual map[string]Resources
	// Resize is what the kubelet says about the resize of this very spec.
	Resize Resize
	// Kills are the OOM kills that the status still tells of.
	Kills []OOMKill
	// Exits are the ends of containers that the status still tells of, OOM kills among
	// them: of each container the last two at most.
	Exits []Exit
	// BackingOff names the containers that the kubelet waits to start again, since they
	// end each time.
	BackingOff []string
	// Unready is since when the pod has not been ready; zero while it is, and where the
	// kubelet has not said.
	Unready time.Time
}

// Exit is one end of one container.
type Exit struct {
	Container string
	At        time.Time
	OOMKilled bool
}

// Run is the process of a container.
type Run struct {
	// Since is when it started; zero while there is none.
	Since time.Time
	// Restarted says that it is not the container's first.
	Restarted bool
}

// Resize is the kubelet's word on a resize. The zero value means that it has none.
type Resize struct {
	Deferred   bool
	Infeasible bool
	InProgress bool
	Failed     bool
	Message    string
	// Since is when it began to say so of this very spec, as far as it is known.
	Since time.Time
}

// OOMKill is one container killed for using more memory than it may.
type OOMKill struct {
	Container string
	At        time.Time
	// HitBytes is the limit that was hit: the container's memory limit, or its
	// request where it has none. It may be newer than the kill.
	HitBytes int64
}

// Container returns the container of that name, and whether there is one.
func (d Deployment) Container(name string) (Container, bool) { return find(d.Containers, name) }

// Container returns the container of that name, and whether there is one.
func (p Pod) Container(name string) (Container, bool) { return find(p.Containers, name) }

func find(containers []Container, name string) (Container, bool) {
	for _, c := range containers {
		if c.Name == name {
			return c, true
		}
	}
	return Container{}, false
}

// ReadDeployment reads a Deployment.
func ReadDeployment(d *appsv1.Deployment) Deployment {
	out := Deployment{
		Namespace:       d.Namespace,
		Name:            d.Name,
		UID:             d.UID,
		ResourceVersion: d.ResourceVersion,
		Generation:      d.Generation,
		Replicas:        1,
		UpdatedReplicas: d.Status.UpdatedReplicas,
		Paused:          d.Spec.Paused,
		Terminating:     d.DeletionTimestamp != nil,
		Containers:      readContainers(d.Spec.Template.Spec.Containers),

		PodLevelResources: d.Spec.Template.Spec.Resources != nil,
		MinReady:          time.Duration(d.Spec.MinReadySeconds) * time.Second,
	}
	if d.Spec.Replicas != nil {
		out.Replicas = *d.Spec.Replicas
	}
	out.Unavailable = maxUnavailable(d.Spec.Strategy, out.Replicas)
	// The rule of kubectl rollout status.
	out.RollingOut = d.Status.ObservedGeneration < d.Generation ||
		d.Status.UpdatedReplicas < out.Replicas ||
		d.Status.Replicas > d.Status.UpdatedReplicas ||
		d.Status.AvailableReplicas < d.Status.UpdatedReplicas
	for _, c := range d.Status.Conditions {
		out.Stuck = out.Stuck || IsDeadlineExceeded(c) && d.Status.ObservedGeneration >= d.Generation
	}
	return out
}

// HasGivenUp says that a Deployment's condition tells of a rollout that does not get on.
func IsDeadlineExceeded(c appsv1.DeploymentCondition) bool {
	return c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded"
}

// unavailable reads the strategy as the Deployment's controller does: percentages of
// unavailable pods are rounded down, those of a surge up, and where both come to nothing,
// one pod may be unavailable.
func maxUnavailable(strategy appsv1.DeploymentStrategy, replicas int32) int32 {
	if strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return replicas
	}
	quarter := intstr.FromString("25%")
	most, surge := &quarter, &quarter
	if rolling := strategy.RollingUpdate; rolling != nil {
		most, surge = cmp.Or(rolling.MaxUnavailable, most), cmp.Or(rolling.MaxSurge, surge)
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(most, int(replicas), false)
	m, err2 := intstr.GetScaledValueFromIntOrPercent(surge, int(replicas), true)
	if err != nil || err2 != nil {
		return replicas // what cannot be read holds nothing back
	}
	if n <= 0 && m <= 0 {
		n = 1
	}
	return int32(min(max(n, 0), int(replicas)))
}

// ReadPod reads a pod. current says whether it has the Deployment's newest template.
func ReadPod(p *corev1.Pod, current bool) Pod {
	out := Pod{
		Name:              p.Name,
		UID:               p.UID,
		ResourceVersion:   p.ResourceVersion,
		Generation:        p.Generation,
		Current:           current,
		Running:           p.Status.Phase == corev1.PodRunning,
		Ended:             p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Created:           p.CreationTimestamp.Time,
		Terminating:       p.DeletionTimestamp != nil,
		QoS:               p.Status.QOSClass,
		PodLevelResources: p.Spec.Resources != nil,
		Containers:        readContainers(p.Spec.Containers),
		Others:            readContainers(p.Spec.InitContainers),
		Actual:            map[string]Resources{},
		Runs:              map[string]Run{},
		Resized:           resizedAt(p),
		Resize:            readResize(p),
	}
	if p.Status.StartTime != nil {
		out.Started = p.Status.StartTime.Time
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready, out.ReadyChanged = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	for _, status := range p.Status.ContainerStatuses {
		run := Run{Restarted: status.RestartCount > 0}
		if status.State.Running != nil {
			run.Since = status.State.Running.StartedAt.Time
		}
		out.Runs[status.Name] = run
		if status.Resources != nil {
			if actual, ok := readResources(*status.Resources); ok {
				out.Actual[status.Name] = actual
			}
		}
		for _, terminated := range []*corev1.ContainerStateTerminated{status.State.Terminated, status.LastTerminationState.Terminated} {
			if terminated == nil {
				continue
			}
			killed := terminated.Reason == "OOMKilled"
			out.Exits = append(out.Exits, Exit{Container: status.Name, At: terminated.FinishedAt.Time, OOMKilled: killed})
			if killed {
				out.Kills = append(out.Kills, oomKillOf(status.Name, terminated, out))
			}
		}
		if IsBackingOff(status.State.Waiting) {
			out.BackingOff = append(out.BackingOff, status.Name)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionFalse {
			out.Unready = c.LastTransitionTime.Time
		}
	}
	return out
}

// IsBackingOff says that a container is not started for now, since it ends each time.
func IsBackingOff(waiting *corev1.ContainerStateWaiting) bool {
	return waiting != nil && waiting.Reason == "CrashLoopBackOff"
}

func oomKillOf(container string, terminated *corev1.ContainerStateTerminated, pod Pod) OOMKill {
	kill := OOMKill{Container: container, At: terminated.FinishedAt.Time}
	if c, ok := pod.Container(container); ok {
		kill.HitBytes = cmp.Or(c.Limits.MemoryBytes, c.Requests.MemoryBytes)
	}
	return kill
}

// resizedAt is when a field was last changed through the subresource, by anybody.
func resizedAt(p *corev1.Pod) (last time.Time) {
	for _, entry := range p.ManagedFields {
		if entry.Subresource == ResizeSubresource && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// ResizeSubresource is the subresource of pods through which they are resized.
const ResizeSubresource = "resize"

// readResize believes only conditions about the newest spec: an older one tells of
// a resize that has been replaced since. What is pending has the word before what is
// in progress.
//
// A kubelet that says the same of the next resize leaves the time of the transition as
// it was. So the word on this resize is no older than the resize itself.
func readResize(p *corev1.Pod) (r Resize) {
	var (
		pending, failed string
		since           time.Time
	)
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue || c.ObservedGeneration < p.Generation {
			continue
		}
		switch c.Type {
		case corev1.PodResizePending:
			r.Deferred = c.Reason == corev1.PodReasonDeferred
			r.Infeasible = c.Reason == corev1.PodReasonInfeasible
			pending = c.Message
			since = c.LastTransitionTime.Time
		case corev1.PodResizeInProgress:
			r.InProgress = true
			if c.Reason == corev1.PodReasonError {
				r.Failed = true
				failed = c.Message
			}
			if !r.Deferred && !r.Infeasible {
				since = c.LastTransitionTime.Time
			}
		}
	}
	r.Message = cmp.Or(pending, failed)
	if r.Since = since; !since.IsZero() && resizedAt(p).After(since) {
		r.Since = resizedAt(p)
	}
	return r
}

func readContainers(containers []corev1.Container) []Container {
	out := make([]Container, 0, len(containers))
	for _, c := range containers {
		container := Container{Name: c.Name}
		resources, ok := readResources(c.Resources)
		container.Resources, container.Unreadable = resources, !ok
		for _, policy := range c.ResizePolicy {
			restart := policy.RestartPolicy == corev1.RestartContainer
			switch policy.ResourceName {
			case corev1.ResourceCPU:
				container.RestartOnCPU = restart
			case corev1.ResourceMemory:
				container.RestartOnMemory = restart
			}
		}
		out = append(out, container)
	}
	return out
}

func readResources(r corev1.ResourceRequirements) (Resources, bool) {
	requests, ok := readAmounts(r.Requests)
	limits, ok2 := readAmounts(r.Limits)
	return Resources{Requests: requests, Limits: limits}, ok && ok2
}

func readAmounts(list corev1.ResourceList) (quantity.Amounts, bool) {
	cpu, err := quantity.CPUMillis(list[corev1.ResourceCPU])
	memory, err2 := quantity.MemoryBytes(list[corev1.ResourceMemory])
	return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory}, err == nil && err2 == nil
}
