// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package workload_test

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const mebi = 1 << 20

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

// list is a resource list; an empty string leaves a resource out.
func list(cpu, memory string) corev1.ResourceList {
	out := corev1.ResourceList{}
	if cpu != "" {
		out["cpu"] = resource.MustParse(cpu)
	}
	if memory != "" {
		out["memory"] = resource.MustParse(memory)
	}
	return out
}

func amounts(cpu, memory int64) quantity.Amounts {
	return quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory}
}

func declared(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

// rolledOut is a fully rolled out Deployment of two replicas.
func rolledOut(change func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "5", Generation: 3},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
				InitContainers: []corev1.Container{declared("init", list("1", "1Gi"), nil)},
				Containers:     []corev1.Container{declared("app", list("100m", "128Mi"), list("200m", ""))},
			}},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2},
	}
	change(d)
	return d
}

func TestReadDeployment(t *testing.T) {
	got := workload.ReadDeployment(rolledOut(func(*appsv1.Deployment) {}))
	want := workload.Deployment{
		Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "5", Generation: 3, Replicas: 2, UpdatedReplicas: 2, ProgressDeadline: 10 * time.Minute,
		Containers: []workload.Container{{Name: "app", Resources: workload.Resources{Requests: amounts(100, 128*mebi), Limits: amounts(200, 0)}}},
		Others:     []workload.Container{{Name: "init", Resources: workload.Resources{Requests: amounts(1000, 1024*mebi)}}},
	}
	assert.Equal(t, "ReadDeployment()", want, got)
}

func TestRollingOut(t *testing.T) {
	cases := map[string]struct {
		change func(*appsv1.Deployment)
		want   bool
	}{
		"not after it is complete":                   {func(*appsv1.Deployment) {}, false},
		"while the latest spec is not observed":      {func(d *appsv1.Deployment) { d.Status.ObservedGeneration = 2 }, true},
		"while pods of the new template are missing": {func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 }, true},
		"while pods of an old template remain":       {func(d *appsv1.Deployment) { d.Status.Replicas = 3 }, true},
		"while new pods are not available":           {func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 }, true},
		"one replica by default": {func(d *appsv1.Deployment) {
			d.Spec.Replicas = nil
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}
		}, false},
		"not without replicas": {func(d *appsv1.Deployment) {
			d.Spec.Replicas = ptr.To[int32](0)
			d.Status = appsv1.DeploymentStatus{ObservedGeneration: 3}
		}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := workload.ReadDeployment(rolledOut(tc.change)).RollingOut; got != tc.want {
				t.Errorf("RollingOut = %t", got)
			}
		})
	}
}

func TestReadPod(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "p", ResourceVersion: "9", Generation: 4},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{
				declared("init", list("1", ""), nil),
				{Name: "proxy", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)},
				{Name: "late-init"},
			},
			Containers: []corev1.Container{
				{
					Name:      "app",
					Resources: corev1.ResourceRequirements{Requests: list("100500u", "128Mi"), Limits: list("1", "256Mi")},
					ResizePolicy: []corev1.ContainerResizePolicy{
						{ResourceName: "cpu", RestartPolicy: "NotRequired"}, {ResourceName: "memory", RestartPolicy: "RestartContainer"},
					},
				},
				declared("huge", list("1e19", ""), nil),
			},
			EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, QOSClass: "Burstable", StartTime: &metav1.Time{Time: noon},
			Conditions: []corev1.PodCondition{
				{Type: corev1.ContainersReady, Status: corev1.ConditionFalse},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon.Add(time.Minute))},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "app", RestartCount: 2, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(time.Second))}}, Resources: &corev1.ResourceRequirements{Requests: list("100m", "128Mi"), Limits: list("1", "256Mi")}},
				{Name: "huge", Resources: &corev1.ResourceRequirements{Requests: list("-1", "")}},
				{Name: "late"},
			},
			EphemeralContainerStatuses: []corev1.ContainerStatus{{Name: "debug", LastTerminationState: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.NewTime(noon)},
			}}},
			InitContainerStatuses: []corev1.ContainerStatus{
				{
					Name: "init", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(noon)}},
					Resources: &corev1.ResourceRequirements{Requests: list("500m", "")},
				},
				{
					Name: "proxy", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon)}},
					LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.NewTime(noon.Add(-time.Minute))}},
					Resources:            &corev1.ResourceRequirements{Limits: list("", "64Mi")},
				},
			},
		},
	}
	want := workload.Pod{
		Name: "web-1", UID: "p", ResourceVersion: "9", Generation: 4, Current: true, Running: true, Started: noon, QoS: "Burstable",
		Ready: true, ReadyChanged: noon.Add(time.Minute),
		Runs: []workload.Run{
			{Container: "app", Since: noon.Add(time.Second), Restarted: true}, {Container: "huge"}, {Container: "late"}, {Container: "proxy", Since: noon, Restarted: true},
		},
		Containers: []workload.Container{
			{Name: "proxy", IsSidecar: true},
			{Name: "app", Resources: workload.Resources{Requests: amounts(101, 128*mebi), Limits: amounts(1000, 256*mebi)}, RestartOnMemory: true},
			{Name: "huge", Unreadable: true},
		},
		Others: []workload.Container{
			{Name: "init", Resources: workload.Resources{Requests: amounts(1000, 0)}}, {Name: "late-init", SidecarsBefore: 1},
		},
		Actual: workload.Reported{}.With("app", workload.Resources{Requests: amounts(100, 128*mebi), Limits: amounts(1000, 256*mebi)}).
			With("init", workload.Resources{Requests: amounts(500, 0)}).With("proxy", workload.Resources{Limits: amounts(0, 64*mebi)}),
		Kills: []workload.OOMKill{{Container: "proxy", At: noon.Add(-time.Minute), Termination: 1, HitBytes: 64 * mebi}},
		Exits: []workload.Exit{{Container: "proxy", At: noon.Add(-time.Minute), OOMKilled: true}},
	}
	assert.Equal(t, "ReadPod()", want, workload.ReadPod(pod, true))
}

func TestWhenAPodGotItsNode(t *testing.T) {
	for status, want := range map[corev1.ConditionStatus]time.Time{corev1.ConditionTrue: noon, corev1.ConditionFalse: {}} {
		pod := workload.ReadPod(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: status, LastTransitionTime: metav1.NewTime(noon)}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
		}}}, true)
		if !pod.Scheduled.Equal(want) {
			t.Errorf("%s: scheduled at %s, want %s", status, pod.Scheduled, want)
		}
	}
}

func TestWhatNoNodeHasEnoughOf(t *testing.T) {
	for message, want := range map[string][2]bool{
		"0/3 nodes are available: 1 Insufficient cpu, 2 Insufficient memory. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.": {true, true},
		"0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector.":                                                        {true, false},
		"0/2 nodes are available: 2 node(s) had untolerated taint {test: }. preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.":      {false, false},
		"running PreBind plugin: binding volumes: timed out waiting for the condition":                                                                             {false, false},
	} {
		pod := workload.ReadPod(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message,
		}}}}, true)
		if got := [2]bool{pod.InsufficientCPU, pod.InsufficientMemory}; got != want {
			t.Errorf("%s: %v, want %v", message, got, want)
		}
	}
}

func TestUnschedulablePods(t *testing.T) {
	for name, tc := range map[string]struct {
		condition corev1.PodCondition
		want      time.Time
	}{
		"no node has room":                 {corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(noon)}, noon},
		"its scheduler reports no time":    {corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}, noon.Add(-time.Hour)},
		"it has a node":                    {corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, time.Time{}},
		"a scheduling gate holds it":       {corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}, time.Time{}},
		"another condition has the reason": {corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}, time.Time{}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{tc.condition, {Type: corev1.ContainersReady}}}}
			pod.CreationTimestamp = metav1.NewTime(noon.Add(-time.Hour))
			if got := workload.ReadPod(pod, true).NoNodeSince; !got.Equal(tc.want) {
				t.Errorf("without a node since %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPendingAndEndedPodsAreNotRunning(t *testing.T) {
	pod := workload.ReadPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{Time: noon}},
		Spec:       corev1.PodSpec{Resources: &corev1.ResourceRequirements{}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}, false)
	if pod.Running || pod.Current || !pod.Terminating || !pod.GraceEnds.Equal(noon) || !pod.Started.IsZero() || !pod.PodLevelResources {
		t.Errorf("ReadPod() = %+v", pod)
	}
}

func TestResize(t *testing.T) {
	condition := func(kind corev1.PodConditionType, reason, message string, generation int64) corev1.PodCondition {
		return corev1.PodCondition{Type: kind, Status: "True", Reason: reason, Message: message, ObservedGeneration: generation}
	}
	cases := map[string]struct {
		conditions []corev1.PodCondition
		want       workload.Resize
	}{
		"no conditions": {nil, workload.Resize{}},
		"Deferred": {
			[]corev1.PodCondition{condition("PodResizePending", "Deferred", "no room", 4)},
			workload.Resize{Deferred: true, Message: "no room"},
		},
		"Infeasible": {
			[]corev1.PodCondition{condition("PodResizePending", "Infeasible", "too big", 4)},
			workload.Resize{Infeasible: true, Message: "too big"},
		},
		"In progress": {
			[]corev1.PodCondition{condition("PodResizeInProgress", "", "", 4)},
			workload.Resize{InProgress: true},
		},
		"Failed": {
			[]corev1.PodCondition{condition("PodResizeInProgress", "Error", "usage is above", 4)},
			workload.Resize{InProgress: true, Failed: true, Message: "usage is above"},
		},
		"a condition of an older spec is ignored": {
			[]corev1.PodCondition{condition("PodResizePending", "Infeasible", "too big", 3)},
			workload.Resize{},
		},
		"a condition that is False is ignored": {
			[]corev1.PodCondition{{Type: "PodResizePending", Status: "False", Reason: "Deferred", ObservedGeneration: 4}},
			workload.Resize{},
		},
		"a pending resize takes precedence in any order": {
			[]corev1.PodCondition{condition("PodResizePending", "Deferred", "no room", 4), condition("PodResizeInProgress", "Error", "usage is above", 4)},
			workload.Resize{Deferred: true, InProgress: true, Failed: true, Message: "no room"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, conditions := range [][]corev1.PodCondition{tc.conditions, reversed(tc.conditions)} {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Generation: 4}, Status: corev1.PodStatus{Conditions: conditions}}
				assert.Equal(t, "Resize", tc.want, workload.ReadPod(pod, true).Resize)
			}
		})
	}
}

// A kubelet keeps the time of the transition while it reports the same about successive resizes.
func TestResizeSince(t *testing.T) {
	reportedAt := noon.Add(-time.Hour)
	deferred := []corev1.PodCondition{{
		Type: "PodResizePending", Status: "True", Reason: "Deferred", ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(reportedAt),
	}}
	failed := []corev1.PodCondition{{
		Type: "PodResizeInProgress", Status: "True", Reason: "Error", ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(reportedAt),
	}}
	resizedAt := func(at time.Time, subresource string) []metav1.ManagedFieldsEntry {
		return []metav1.ManagedFieldsEntry{
			{Subresource: subresource, Time: &metav1.Time{Time: at}},
			{Subresource: "resize", Time: &metav1.Time{Time: reportedAt.Add(-time.Hour)}},
			{Subresource: "resize"},
		}
	}
	for name, tc := range map[string]struct {
		conditions []corev1.PodCondition
		fields     []metav1.ManagedFieldsEntry
		want       time.Time
	}{
		"no conditions":                               {nil, resizedAt(noon, "resize"), time.Time{}},
		"since the transition":                        {deferred, nil, reportedAt},
		"since the failure":                           {failed, resizedAt(noon, "status"), reportedAt},
		"the resize is older":                         {deferred, resizedAt(reportedAt.Add(-time.Minute), "resize"), reportedAt},
		"since the resize, if the condition is older": {deferred, resizedAt(noon, "resize"), noon},
		"other writes are ignored":                    {deferred, resizedAt(noon, "status"), reportedAt},
		"the pending resize takes precedence":         {append(slices.Clone(deferred), corev1.PodCondition{Type: "PodResizeInProgress", Status: "True", ObservedGeneration: 4, LastTransitionTime: metav1.NewTime(noon)}), nil, reportedAt},
	} {
		t.Run(name, func(t *testing.T) {
			for _, conditions := range [][]corev1.PodCondition{tc.conditions, reversed(tc.conditions)} {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Generation: 4, ManagedFields: tc.fields}, Status: corev1.PodStatus{Conditions: conditions},
				}
				if got := workload.ReadPod(pod, true).Resize.Since; !got.Equal(tc.want) {
					t.Errorf("Since = %s, want %s", got, tc.want)
				}
			}
		})
	}
}

func reversed(in []corev1.PodCondition) (out []corev1.PodCondition) {
	for _, c := range in {
		out = append([]corev1.PodCondition{c}, out...)
	}
	return out
}

func TestOOMKills(t *testing.T) {
	killed := func(at time.Time) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.Time{Time: at}}
	}
	failed := &corev1.ContainerStateTerminated{Reason: "Error", FinishedAt: metav1.Time{Time: noon}}
	cases := map[string]struct {
		limits corev1.ResourceList
		status corev1.ContainerStatus
		want   []workload.OOMKill
	}{
		"none": {list("", "256Mi"), corev1.ContainerStatus{Name: "app"}, nil},
		"just now": {
			list("", "256Mi"),
			corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Terminated: killed(noon)}},
			[]workload.OOMKill{{Container: "app", At: noon, Termination: 1, HitBytes: 256 * mebi}},
		},
		"before its last start": {
			list("", "256Mi"),
			corev1.ContainerStatus{Name: "app", RestartCount: 3, LastTerminationState: corev1.ContainerState{Terminated: killed(noon)}},
			[]workload.OOMKill{{Container: "app", At: noon, Termination: 3, HitBytes: 256 * mebi}},
		},
		"twice": {
			list("", "256Mi"),
			corev1.ContainerStatus{
				Name:                 "app",
				RestartCount:         7,
				State:                corev1.ContainerState{Terminated: killed(noon.Add(time.Minute))},
				LastTerminationState: corev1.ContainerState{Terminated: killed(noon)},
			},
			[]workload.OOMKill{{Container: "app", At: noon.Add(time.Minute), Termination: 8, HitBytes: 256 * mebi}, {Container: "app", At: noon, Termination: 7, HitBytes: 256 * mebi}},
		},
		"before another termination": {
			list("", "256Mi"),
			corev1.ContainerStatus{
				Name: "app", RestartCount: 3, State: corev1.ContainerState{Terminated: failed}, LastTerminationState: corev1.ContainerState{Terminated: killed(noon)},
			},
			[]workload.OOMKill{{Container: "app", At: noon, Termination: 3, HitBytes: 256 * mebi}},
		},
		"the request without a limit": {
			nil,
			corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Terminated: killed(noon)}},
			[]workload.OOMKill{{Container: "app", At: noon, Termination: 1, HitBytes: 128 * mebi}},
		},
		"of a container that the pod does not declare": {
			nil,
			corev1.ContainerStatus{Name: "other", State: corev1.ContainerState{Terminated: killed(noon)}},
			[]workload.OOMKill{{Container: "other", At: noon, Termination: 1}},
		},
		"another termination is not an OOM kill": {list("", "256Mi"), corev1.ContainerStatus{Name: "app", State: corev1.ContainerState{Terminated: failed}}, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				Spec:   corev1.PodSpec{Containers: []corev1.Container{declared("app", list("", "128Mi"), tc.limits)}},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{tc.status}},
			}
			assert.Equal(t, "Kills", tc.want, workload.ReadPod(pod, true).Kills)
		})
	}
}

// TestTheSizeThatWasHit: the declared size of a pod may be newer than the kill.
func TestTheSizeThatWasHit(t *testing.T) {
	cases := map[string]struct {
		resized time.Duration // after the kill; 0 for never
		actual  *corev1.ResourceRequirements
		wantMiB int64
	}{
		"a pod that was never resized has the size it had": {wantMiB: 512},
		"so has one that was resized before":               {resized: -time.Minute, wantMiB: 512},
		"after a resize, it is unknown":                    {resized: time.Minute},
		"in the second of a resize too":                    {resized: 1, actual: &corev1.ResourceRequirements{Limits: list("", "512Mi")}},
		"even if the resize is not applied yet":            {resized: time.Minute, actual: &corev1.ResourceRequirements{Limits: list("", "256Mi")}},
		"the size that is applied is the one that was hit": {resized: -time.Minute, actual: &corev1.ResourceRequirements{Limits: list("", "256Mi"), Requests: list("", "128Mi")}, wantMiB: 256},
		"without a limit it is the applied request":        {resized: -time.Minute, actual: &corev1.ResourceRequirements{Requests: list("", "300Mi")}, wantMiB: 300},
		"an empty report is ignored":                       {actual: &corev1.ResourceRequirements{}, wantMiB: 512},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{
				Spec: corev1.PodSpec{Containers: []corev1.Container{declared("app", list("", "256Mi"), list("", "512Mi"))}},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
					Name: "app", RestartCount: 1, Resources: tc.actual, LastTerminationState: corev1.ContainerState{
						Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.NewTime(noon)},
					},
				}}},
			}
			if tc.resized != 0 {
				pod.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: "resize", Time: ptr.To(metav1.NewTime(noon.Add(tc.resized).Truncate(time.Second)))}}
			}
			want := []workload.OOMKill{{Container: "app", At: noon, Termination: 1, HitBytes: tc.wantMiB * mebi}}
			assert.Equal(t, "Kills", want, workload.ReadPod(pod, true).Kills)
		})
	}
}

// The status of a pod alone has its exits, with their times.
func TestExitsAndBackOff(t *testing.T) {
	ended := func(at time.Time, reason string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(at), Reason: reason}
	}
	first, last := time.Unix(1_700_000_000, 0), time.Unix(1_700_000_060, 0)
	pod := workload.ReadPod(&corev1.Pod{Status: corev1.PodStatus{
		ContainerStatuses: []corev1.ContainerStatus{
			{Name: "app", State: corev1.ContainerState{Terminated: ended(last, "Error")}, LastTerminationState: corev1.ContainerState{Terminated: ended(first, "OOMKilled")}},
			{Name: "log", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
			{Name: "new", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}},
		},
		Conditions: []corev1.PodCondition{
			{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(first)},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(last)},
		},
	}}, true)
	exits := []workload.Exit{{Container: "app", At: last}, {Container: "app", At: first, OOMKilled: true}}
	assert.Equal(t, "Exits", exits, pod.Exits)
	assert.Equal(t, "BackingOff", []string{"log"}, pod.BackingOff)
	if !pod.Unready.Equal(last) {
		t.Errorf("Unready = %s", pod.Unready)
	}
	ready := workload.ReadPod(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(last)},
	}}}, true)
	if !ready.Unready.IsZero() {
		t.Errorf("a ready pod is unready since %s", ready.Unready)
	}
}

// A Deployment is stuck by its controller's word on this very spec.
func TestStuck(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: appsv1.DeploymentStatus{
		ObservedGeneration: 2,
		Conditions:         []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded"}},
	}}
	if !workload.ReadDeployment(d).Stuck {
		t.Error("it has given up, and is not stuck")
	}
	older, progressing := d.DeepCopy(), d.DeepCopy()
	older.Generation = 3
	progressing.Status.Conditions[0].Status, progressing.Status.Conditions[0].Reason = corev1.ConditionTrue, "ReplicaSetUpdated"
	for _, d := range []*appsv1.Deployment{older, progressing} {
		if workload.ReadDeployment(d).Stuck {
			t.Errorf("%+v is stuck", d.Status)
		}
	}
}

func TestPodReadinessAndAvailability(t *testing.T) {
	made := time.Date(2026, 3, 2, 11, 0, 0, 0, time.UTC)
	for phase, want := range map[corev1.PodPhase]bool{"Pending": false, "Running": false, "Succeeded": true, "Failed": true, "Unknown": false} {
		p := workload.ReadPod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}, Status: corev1.PodStatus{Phase: phase}}, true)
		if p.Ended != want || !p.Created.Equal(made) {
			t.Errorf("%s: ended %t, made %s", phase, p.Ended, p.Created)
		}
	}
	d := workload.ReadDeployment(rolledOut(func(d *appsv1.Deployment) {
		d.Spec.MinReadySeconds, d.Spec.ProgressDeadlineSeconds = 30, ptr.To[int32](900)
	}))
	if d.MinReady != 30*time.Second || d.ProgressDeadline != 15*time.Minute {
		t.Errorf("available after %s, given up after %s", d.MinReady, d.ProgressDeadline)
	}
}
