// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package workload reads Deployments, their pods and the objects that bound them into plain
// values, so that decisions need no Kubernetes object and no client.
//
// It does not guess. A quantity out of range, a condition of an older generation and a status
// that the kubelet has not set yet are reported as such, never as zero.
package workload

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Resources are the requests and limits of a container. 0 means not set. A request of 0 beside a limit is read as
// quantity.Smallest.
type Resources struct {
	Requests quantity.Amounts
	Limits   quantity.Amounts
}

// Container is a container as a pod or a pod template declares it.
type Container struct {
	Name string
	Resources
	// RestartOnCPU and RestartOnMemory are true if the container's resizePolicy requires a restart
	// when that resource changes.
	RestartOnCPU    bool
	RestartOnMemory bool
	// Unreadable is true if a quantity is out of range. The operator does not change such a
	// container.
	Unreadable bool
	// IsSidecar is true if the container is a native sidecar: an init container that runs for as
	// long as its pod.
	IsSidecar bool
	// SidecarsBefore is the number of native sidecars that start before an init container that
	// ends; 0 for other containers. See Footprint.
	SidecarsBefore int
}

// Deployment has the values of a Deployment that decisions need.
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
	// RollingOut is true if pods of an older template are not replaced yet, or that the
	// Deployment controller has not observed the latest spec.
	RollingOut bool
	// Stuck is true if the rollout of the latest spec made no progress for longer than
	// progressDeadlineSeconds.
	Stuck bool
	// CreateFailure is the reason why the ReplicaSet controller cannot create pods (ReplicaFailure), if any.
	CreateFailure string
	// CreateFailureSince is the time since which they cannot be created.
	CreateFailureSince time.Time
	// Unavailable is the number of old pods that a rollout may terminate before the first new pod
	// is ready: all of them with the strategy Recreate.
	Unavailable int32
	// PodLevelResources is true if the template declares pod-level resources, and PodLevel has them.
	PodLevelResources bool
	PodLevel          Resources
	// Overhead is the need of pods besides their containers, if the template has it. Usually only
	// pods do, because admission adds it by their RuntimeClass.
	Overhead quantity.Amounts
	// MinReady is the time for which a pod must be ready to count as available.
	MinReady time.Duration
	// ProgressDeadline is the longest time of a rollout without progress.
	ProgressDeadline time.Duration
	// Containers are the containers of the template that run for as long as a pod: native sidecars in
	// the order in which they start, then the containers.
	Containers []Container
	// Others are the init containers that end before the containers start. The operator never
	// changes them.
	Others []Container
	// Heaps are the heaps that flags set, by container.
	Heaps map[string]Heap
}

// Pod has the values of a pod that decisions need.
type Pod struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	Generation      int64
	// Current is true if the pod has the Deployment's latest template, and ReplicaSet is the UID of its
	// ReplicaSet.
	Current    bool
	ReplicaSet types.UID
	Running    bool
	// Ended is true if the pod has succeeded or failed. Another pod replaces it.
	Ended bool
	// Node is the name of the pod's node; empty before it has one.
	Node string
	// Unmovable is true if an annotation for node autoscalers asks not to evict the pod.
	Unmovable bool
	// NoNodeSince is the time since which the pod is unschedulable; zero if it has a node, and before the first
	// attempt.
	NoNodeSince time.Time
	// Scheduled is the time at which the pod got its node, by the clock of the API server; zero before, and if unknown.
	Scheduled time.Time
	// InsufficientCPU and InsufficientMemory are true if the scheduler has found too little on all nodes.
	InsufficientCPU, InsufficientMemory bool
	// Created is the creation time of the pod.
	Created time.Time
	// Started is the time at which the kubelet started the pod; zero before.
	Started time.Time
	// Ready is true if the pod is ready, and ReadyChanged is the last transition; zero if
	// unknown.
	Ready        bool
	ReadyChanged time.Time
	// Runs are the processes of the containers, as far as the kubelet has reported them.
	Runs []Run
	// Resized is the time of the pod's last resize in place, by any client; zero means never.
	Resized     time.Time
	Terminating bool
	// GraceEnds is the time at which a terminating pod must have ended; zero for others.
	GraceEnds time.Time
	QoS       corev1.PodQOSClass
	// PodLevelResources is true if the pod declares pod-level resources, and PodLevel has them.
	PodLevelResources bool
	PodLevel          Resources
	// Overhead is the pod's need besides its containers, by its RuntimeClass.
	Overhead quantity.Amounts
	// Containers run for as long as the pod: native sidecars in the order in which they start, then the containers.
	Containers []Container
	// Others are the init containers that end before the containers start. The operator never
	// changes them, but they count for QoS.
	Others []Container
	// Actual has, by container, the resources that the kubelet reports as applied. A
	// container is missing until the kubelet reports it. Pods may share it, so it must not be modified.
	Actual Reported
	// Resize is the kubelet's report about the resize of the latest spec.
	Resize Resize
	// Kills are the OOM kills in the status.
	Kills []OOMKill
	// Exits are the terminations in the status, including OOM kills: at most the last two of
	// each container.
	Exits []Exit
	// BackingOff names the containers in CrashLoopBackOff.
	BackingOff []string
	// Unready is the time since which the pod has not been ready; zero while it is ready, and if
	// the kubelet has not reported it.
	Unready time.Time
}

// Annotations with which the owner of a pod asks node autoscalers not to evict it: the first one with the value true, the
// second one with the value false.
const (
	DoNotDisrupt = "karpenter.sh/do-not-disrupt"
	SafeToEvict  = "cluster-autoscaler.kubernetes.io/safe-to-evict"
)

// Reported are the resources of some containers, as the kubelet reports them. A map would take five times the memory.
type Reported []NamedResources

// NamedResources are the resources of the container with a name.
type NamedResources struct {
	Name string
	Resources
}

// Get returns the resources of a container, and whether they are reported.
func (r Reported) Get(container string) (Resources, bool) {
	for _, c := range r {
		if c.Name == container {
			return c.Resources, true
		}
	}
	return Resources{}, false
}

// Of returns the resources of a container, and zero if they are not reported.
func (r Reported) Of(container string) Resources {
	resources, _ := r.Get(container)
	return resources
}

// With returns a copy with other resources of a container.
func (r Reported) With(container string, resources Resources) Reported {
	others := slices.DeleteFunc(slices.Clone(r), func(c NamedResources) bool { return c.Name == container })
	return append(others, NamedResources{container, resources})
}

// Exit is one termination of a container.
type Exit struct {
	Container string
	At        time.Time
	OOMKilled bool
}

// Readable returns the container with that name, and whether it exists and its resources are in the supported range.
func (p Pod) Readable(name string) (Container, bool) {
	c, ok := p.Container(name)
	return c, ok && !c.Unreadable
}

// Readable returns the container with that name, and whether it exists and its resources are in the supported range.
func (d Deployment) Readable(name string) (Container, bool) {
	c, ok := d.Container(name)
	return c, ok && !c.Unreadable
}

// IsOver reports whether the pod has ended, or is about to be gone.
func (p Pod) IsOver() bool { return p.Ended || p.Terminating }

// Run is the process of a container.
type Run struct {
	Container string
	// Since is the start; zero if no process runs.
	Since time.Time
	// Restarted is true if the container was restarted before.
	Restarted bool
}

// Resize is the kubelet's report about a resize. The zero value means no report.
type Resize struct {
	Deferred   bool
	Infeasible bool
	InProgress bool
	Failed     bool
	Message    string
	// Since is the time of the kubelet's first such report about the latest spec; zero if unknown.
	Since time.Time
}

// OOMKill is one OOM kill of a container.
type OOMKill struct {
	Container string
	At        time.Time
	// Termination is the number of the container's termination in this pod: its restart count
	// once it has been restarted. It is negative for a kill of one process that has not ended the container.
	Termination int32
	// HitBytes is the size that was hit: the memory limit that the kubelet reports as applied, or
	// the request without a limit. It is 0 if unknown because the pod was resized after the kill.
	HitBytes int64
}

// KeepsOldPods reports whether pods of an older template stay for now: a paused Deployment replaces
// none, and a rollout that makes no progress may never replace them.
func (d Deployment) KeepsOldPods() bool { return d.Paused || d.Stuck }

// Container returns the container with that name, and whether it exists.
func (d Deployment) Container(name string) (Container, bool) { return find(d.Containers, name) }

// Container returns the container with that name, and whether it exists.
func (p Pod) Container(name string) (Container, bool) { return find(p.Containers, name) }

// Run returns the process of the container with that name, and whether the kubelet has reported it.
func (p Pod) Run(container string) (Run, bool) {
	for _, run := range p.Runs {
		if run.Container == container {
			return run, true
		}
	}
	return Run{}, false
}

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
		Containers:      readLongRunning(&d.Spec.Template.Spec),
		Others:          readEnding(&d.Spec.Template.Spec),
		Overhead:        readable(d.Spec.Template.Spec.Overhead),
		Heaps:           readHeaps(&d.Spec.Template.Spec),

		PodLevelResources: d.Spec.Template.Spec.Resources != nil,
		PodLevel:          readPodLevel(d.Spec.Template.Spec.Resources),
		MinReady:          time.Duration(d.Spec.MinReadySeconds) * time.Second,
		ProgressDeadline:  time.Duration(ptr.Deref(d.Spec.ProgressDeadlineSeconds, 600)) * time.Second,
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
		if IsReplicaFailure(c) {
			out.CreateFailure, out.CreateFailureSince = cmp.Or(c.Message, c.Reason), c.LastTransitionTime.Time
		}
	}
	return out
}

// LacksQuota reports whether the API server creates no pods because of a ResourceQuota. That may end by itself: pods that end
// still count.
func (d Deployment) LacksQuota() bool { return IsQuotaRefusal(d.CreateFailure) }

// IsQuotaRefusal reports whether the API server has refused an object because of a ResourceQuota.
func IsQuotaRefusal(message string) bool { return strings.Contains(message, "exceeded quota") }

// IsDeadlineExceeded reports whether a condition of a Deployment reports a rollout without progress.
func IsDeadlineExceeded(c appsv1.DeploymentCondition) bool {
	return c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Reason == "ProgressDeadlineExceeded"
}

// IsReplicaFailure reports whether a condition of a Deployment reports pods that cannot be created.
func IsReplicaFailure(c appsv1.DeploymentCondition) bool {
	return c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
}

// maxUnavailable reads the strategy as the Deployment controller does: percentages of
// unavailable pods are rounded down, those of a surge up. If both are zero, one pod may be
// unavailable.
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
		return replicas // An invalid value keeps no pods available.
	}
	if n <= 0 && m <= 0 {
		n = 1
	}
	return int32(min(max(n, 0), int(replicas)))
}

// ReadPod reads a pod. current reports whether it has the Deployment's latest template.
func ReadPod(p *corev1.Pod, current bool) Pod {
	out := Pod{
		Name:              p.Name,
		UID:               p.UID,
		ResourceVersion:   p.ResourceVersion,
		Generation:        p.Generation,
		Current:           current,
		Running:           p.Status.Phase == corev1.PodRunning,
		Ended:             p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
		Node:              p.Spec.NodeName,
		Unmovable:         p.Annotations[DoNotDisrupt] == "true" || p.Annotations[SafeToEvict] == "false",
		Created:           p.CreationTimestamp.Time,
		Terminating:       p.DeletionTimestamp != nil,
		QoS:               p.Status.QOSClass,
		PodLevelResources: p.Spec.Resources != nil,
		PodLevel:          readPodLevel(p.Spec.Resources),
		Overhead:          readable(p.Spec.Overhead),
		Containers:        readLongRunning(&p.Spec),
		Others:            readEnding(&p.Spec),
		Resized:           resizedAt(p),
		Resize:            readResize(p),
	}
	if p.DeletionTimestamp != nil {
		out.GraceEnds = p.DeletionTimestamp.Time
	}
	if p.Status.StartTime != nil {
		out.Started = p.Status.StartTime.Time
	}
	for i := range p.Status.ContainerStatuses {
		out.readStatus(&p.Status.ContainerStatuses[i])
	}
	for i := range p.Status.InitContainerStatuses {
		status := &p.Status.InitContainerStatuses[i]
		if _, ok := out.Container(status.Name); ok {
			out.readStatus(status)
		} else {
			out.readActual(status)
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			out.Ready, out.ReadyChanged = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
			if c.Status == corev1.ConditionFalse {
				out.Unready = out.ReadyChanged
			}
		}
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			out.Scheduled = c.LastTransitionTime.Time
		}
		if IsUnschedulable(c) {
			out.NoNodeSince = cmp.Or(c.LastTransitionTime, p.CreationTimestamp).Time
			out.InsufficientCPU, out.InsufficientMemory = strings.Contains(c.Message, "Insufficient cpu"), strings.Contains(c.Message, "Insufficient memory")
		}
	}
	return out
}

// IsUnschedulable reports whether a condition of a pod reports that the scheduler found no node for it.
func IsUnschedulable(c corev1.PodCondition) bool {
	return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
}

// readStatus reads the status of one container.
func (p *Pod) readStatus(status *corev1.ContainerStatus) {
	run := Run{Container: status.Name, Restarted: status.RestartCount > 0}
	if status.State.Running != nil {
		run.Since = status.State.Running.StartedAt.Time
	}
	p.Runs = append(p.Runs, run)
	p.readActual(status)
	for n, terminated := range terminationsOf(status) {
		killed := terminated.Reason == oomKilled
		p.Exits = append(p.Exits, Exit{Container: status.Name, At: terminated.FinishedAt.Time, OOMKilled: killed})
		if killed {
			p.Kills = append(p.Kills, p.oomKill(status.Name, terminated.FinishedAt.Time, n))
		}
	}
	if IsBackingOff(status.State.Waiting) {
		p.BackingOff = append(p.BackingOff, status.Name)
	}
}

func (p *Pod) readActual(status *corev1.ContainerStatus) {
	if status.Resources == nil {
		return
	}
	if actual, ok := readResources(*status.Resources); ok {
		p.Actual = p.Actual.With(status.Name, actual)
	}
}

// IsBackingOff reports whether a container waits for a restart because it terminates each time.
func IsBackingOff(waiting *corev1.ContainerStateWaiting) bool {
	return waiting != nil && waiting.Reason == "CrashLoopBackOff"
}

// Applied has a container's resources: as applied by the kubelet, or else as declared by the pod.
func (p Pod) Applied(container string) Resources {
	if actual, ok := p.Actual.Get(container); ok {
		return actual
	}
	declared, _ := p.Container(container)
	return declared.Resources
}

// oomKill is an OOM kill of a container. Times have whole seconds: a resize within the second of the
// kill may be either before or after it.
func (p *Pod) oomKill(container string, at time.Time, termination int32) OOMKill {
	kill := OOMKill{Container: container, At: at, Termination: termination}
	if !p.Resized.IsZero() && !p.Resized.Before(at) {
		return kill
	}
	actual := p.Actual.Of(container)
	declared, _ := p.Container(container)
	kill.HitBytes = cmp.Or(actual.Limits.MemoryBytes, actual.Requests.MemoryBytes,
		declared.Limits.MemoryBytes, declared.Requests.MemoryBytes)
	return kill
}

// ProcessKill is the OOM kill of one process in a run of a container, which continues: the last of the given number in this
// run. It happened after one time and is dated at another.
func (p *Pod) ProcessKill(run Run, kills int, after, at time.Time) OOMKill {
	kill := p.oomKill(run.Container, after, -int32((run.Since.Unix()+int64(kills))%math.MaxInt32))
	kill.At = at
	return kill
}

// resizedAt is the time of the last change by any client through the resize subresource.
func resizedAt(p *corev1.Pod) (last time.Time) {
	for _, entry := range p.ManagedFields {
		if entry.Subresource == ResizeSubresource && entry.Time != nil && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}

// ResizeSubresource is the subresource of pods that resizes them.
const ResizeSubresource = "resize"

// readResize uses only conditions of the latest spec. An older condition is about a resize that
// has been replaced. A pending resize takes precedence over one in progress.
//
// A kubelet that reports the same about the next resize keeps the transition time. So the
// report is at least as new as the resize itself.
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
	r.Message = strings.TrimSuffix(cmp.Or(pending, failed), ".") // our messages go on
	if r.Since = since; !since.IsZero() && resizedAt(p).After(since) {
		r.Since = resizedAt(p)
	}
	return r
}

// IsSidecar reports whether an init container is a native sidecar.
func IsSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// LongRunning are the containers of a pod that run for as long as it: native sidecars, then the containers.
// They are not copied and must not be modified.
func LongRunning(spec *corev1.PodSpec) []*corev1.Container {
	out := make([]*corev1.Container, 0, len(spec.InitContainers)+len(spec.Containers))
	for i := range spec.InitContainers {
		if c := &spec.InitContainers[i]; IsSidecar(c) {
			out = append(out, c)
		}
	}
	for i := range spec.Containers {
		out = append(out, &spec.Containers[i])
	}
	return out
}

// NamesOf are the names of the long-running containers, in their order.
func NamesOf(spec *corev1.PodSpec) (names []string) {
	for _, c := range LongRunning(spec) {
		names = append(names, c.Name)
	}
	return names
}

func readLongRunning(spec *corev1.PodSpec) []Container {
	containers := LongRunning(spec)
	out := make([]Container, 0, len(containers))
	for i, c := range containers {
		container := readContainer(c)
		container.IsSidecar = i < len(containers)-len(spec.Containers)
		out = append(out, container)
	}
	return out
}

// readEnding reads the init containers that end, with the number of native sidecars before each.
func readEnding(spec *corev1.PodSpec) (out []Container) {
	sidecars := 0
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if IsSidecar(c) {
			sidecars++
			continue
		}
		container := readContainer(c)
		container.SidecarsBefore = sidecars
		out = append(out, container)
	}
	return out
}

func readContainer(c *corev1.Container) Container {
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
	return container
}

// readPodLevel reads pod-level resources, which may be missing. An amount out of range counts as not set.
func readPodLevel(r *corev1.ResourceRequirements) Resources {
	if r == nil {
		return Resources{}
	}
	return Resources{Requests: readable(r.Requests), Limits: readable(r.Limits)}
}

func readResources(r corev1.ResourceRequirements) (Resources, bool) {
	requests, ok := readAmounts(r.Requests)
	limits, ok2 := readAmounts(r.Limits)
	if limits.CPUMillis > 0 && isZero(r.Requests, corev1.ResourceCPU) {
		requests.CPUMillis = quantity.Smallest
	}
	if limits.MemoryBytes > 0 && isZero(r.Requests, corev1.ResourceMemory) {
		requests.MemoryBytes = quantity.Smallest
	}
	return Resources{Requests: requests, Limits: limits}, ok && ok2
}

// isZero reports whether a request is 0, and not absent.
func isZero(list corev1.ResourceList, name corev1.ResourceName) bool {
	amount, ok := list[name]
	return ok && amount.IsZero()
}

func readAmounts(list corev1.ResourceList) (quantity.Amounts, bool) {
	cpu, err := quantity.CPUMillis(list[corev1.ResourceCPU])
	memory, err2 := quantity.MemoryBytes(list[corev1.ResourceMemory])
	return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory}, err == nil && err2 == nil
}
