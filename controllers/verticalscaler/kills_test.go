// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const killMebi = 1 << 20

var (
	killNoon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	killParams = history.DefaultParams()
)

// killedPod is a pod that was OOM-killed some times, last at a time by its node's clock.
type killedPod struct {
	name     string
	limitMiB int64
	restarts int32
	killed   time.Time
	resized  time.Time // zero for never
}

func (p killedPod) read() workload.Pod {
	limit := corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(p.limitMiB*killMebi, resource.BinarySI)}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, UID: types.UID("uid-" + p.name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{Limits: limit}}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: "app", RestartCount: p.restarts, LastTerminationState: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", FinishedAt: metav1.NewTime(p.killed)},
			},
		}}},
	}
	if !p.resized.IsZero() {
		at := metav1.NewTime(p.resized)
		pod.ManagedFields = []metav1.ManagedFieldsEntry{{Subresource: workload.ResizeSubresource, Time: &at}}
	}
	return workload.ReadPod(pod, true)
}

// floor lets a history see the kills of pods, and is its floor in MiB.
func floor(histories history.Histories, now time.Time, pods ...killedPod) int64 {
	situation := plan.Situation{Deployment: workload.Deployment{Containers: []workload.Container{{Name: "app"}}}}
	for _, p := range pods {
		situation.Pods = append(situation.Pods, p.read())
	}
	recordOOMKills(histories, situation, plan.Policy{}, now, killParams)
	return histories.Container("app").OOMFloor(killParams) / killMebi
}

// used is a history that has seen usage for some hours.
func used(hours int, memoryMiB int64) history.Histories {
	histories := history.Histories{}
	for minute := range hours * 60 {
		at := killNoon.Add(time.Duration(minute-hours*60) * time.Minute)
		histories.Add(usage.Sample{Container: "app", Time: at, CPUMillis: 100, MemoryBytes: memoryMiB * killMebi}, killParams)
	}
	return histories
}

// TestARecreatedScalerCountsAnOldKillOnce: the pods report their last kill for weeks. Each time the
// scaler is recreated, its history is empty, and the operator has resized the pods meanwhile.
func TestARecreatedScalerCountsAnOldKillOnce(t *testing.T) {
	old := killNoon.Add(-72 * time.Hour)
	pods := []killedPod{{name: "a", limitMiB: 345, restarts: 1, killed: old}, {name: "b", limitMiB: 345, restarts: 3, killed: old.Add(time.Minute)}}
	first := floor(used(1, 300), killNoon, pods...)
	if first != 414 {
		t.Errorf("the first scaler: floor %d MiB, want 414", first)
	}
	for recreated := range 4 {
		for i := range pods {
			pods[i].limitMiB, pods[i].resized = first, killNoon.Add(time.Duration(recreated-60)*time.Minute)
		}
		if got := floor(used(1, 300), killNoon.Add(time.Hour), pods...); got > first {
			t.Errorf("recreated %d times without another kill: floor %d MiB, want at most %d", recreated+1, got, first)
		}
	}
}

// TestKillsOfSeveralPodsAreSeenInOrder: the pod that the operator reads first may have been killed
// last.
func TestKillsOfSeveralPodsAreSeenInOrder(t *testing.T) {
	histories := used(25, 300)
	now := killNoon.Add(time.Minute)
	pods := []killedPod{
		{name: "c", limitMiB: 400, restarts: 1, killed: now.Add(-10 * time.Second)},
		{name: "a", limitMiB: 400, restarts: 1, killed: now.Add(-30 * time.Second)},
		{name: "b", limitMiB: 400, restarts: 1, killed: now.Add(-20 * time.Second)},
	}
	for range 3 { // one reconcile after another
		if got := floor(histories, now, pods...); got != 480 {
			t.Errorf("three pods were killed at 400 MiB: floor %d MiB, want 480", got)
		}
	}
	// The smallest restart count is of the pod that is killed next.
	pods[1] = killedPod{name: "a", limitMiB: 480, restarts: 2, killed: now.Add(time.Minute), resized: now}
	if got := floor(histories, now.Add(time.Minute), pods...); got != 816 {
		t.Errorf("one of them was killed again at 480 MiB: floor %d MiB, want 816", got)
	}
}
