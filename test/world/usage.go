// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// spread is how far the usage of replicas is from what the test sets, at most and in both directions, in percent.
	spread = 6
	// silentEvery is in how many rounds one of the pods of a Deployment is silent once.
	silentEvery = 40
	mebi        = int64(1) << 20
)

// Usage is a source of usage. By default replicas differ, and a pod is silent now and then, as in real clusters.
type Usage struct {
	// Even lets all replicas have the usage that the test sets, and no pod be silent.
	Even bool
	// Err is the answer of the source; nil for usage.
	Err error
	// Silent leaves out a container; nil for pods that are silent now and then.
	Silent func(pod *corev1.Pod, container string) bool
	// Rounds is the number of rounds so far.
	Rounds int

	world *World
	uses  []use
}

// use is the usage of a container in each pod of an app.
type use struct {
	app, container         string
	cpuMillis, memoryBytes int64
}

func newUsage(w *World) *Usage { return &Usage{world: w} }

// Uses sets the usage of a container in each pod with an app label from now on: CPU in thousandths, memory in mebibytes.
func (w *World) Uses(app, container string, cpuMillis, memoryMebi int64) {
	u := w.Usage
	u.uses = slices.DeleteFunc(u.uses, func(o use) bool { return o.app == app && o.container == container })
	u.uses = append(u.uses, use{app, container, cpuMillis, memoryMebi * mebi})
}

// silence lets there be no usage of the last pod of each Deployment in these rounds, counted from 0. Until such a pod has had
// usage for ten rounds in a row, the operator lowers nothing, unless the pod has just started.
func (u *Usage) silence(in func(round int) bool) {
	u.Silent = func(pod *corev1.Pod, _ string) bool {
		return u.world.Kubelet.Ordinal(pod)%replicas == replicas-1 && in(u.Rounds-1)
	}
}

func never(int) bool { return false }

func always(int) bool { return true }

// List implements collect.Source.
func (u *Usage) List(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error) {
	if namespace != u.world.Namespace { // These are asked for at the same time.
		return nil, nil, nil
	}
	u.Rounds++
	pods, err := u.world.allPods(ctx)
	if err != nil {
		return nil, nil, err
	}
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil })
	if u.Err != nil {
		return nil, nil, u.Err
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	replicas := map[string]int{}
	for _, pod := range pods {
		replicas[pod.Labels[AppLabel]]++
	}
	var samples []usage.Sample
	rank := map[string]int{}
	for i := range pods {
		app := pods[i].Labels[AppLabel]
		samples = append(samples, u.samplesOf(&pods[i], rank[app], replicas[app], now)...)
		rank[app]++
	}
	return samples, nil, nil
}

// samplesOf are the samples of a pod, the rank-th of so many.
func (u *Usage) samplesOf(pod *corev1.Pod, rank, of int, now time.Time) (samples []usage.Sample) {
	if !u.Even && u.Silent == nil && of > 1 && u.Rounds%silentEvery == silentEvery/2 && u.Rounds/silentEvery%of == rank {
		return nil
	}
	for _, c := range containersOf(pod) {
		i := slices.IndexFunc(u.uses, func(o use) bool { return o.app == pod.Labels[AppLabel] && o.container == c.Name })
		if i < 0 || u.Silent != nil && u.Silent(pod, c.Name) {
			continue
		}
		cpu, memory := int64(1000), int64(1000)
		if !u.Even && of > 1 { // the pod with the most memory has what the test sets
			step := int64(20 * spread * rank / (of - 1))
			cpu, memory = 1000-10*spread+step, 1000-step
		}
		samples = append(samples, usage.Sample{
			Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name, Window: 30 * time.Second, Time: u.world.Kubelet.now(pod).Time,
			CPUMillis: u.uses[i].cpuMillis * cpu / 1000, MemoryBytes: u.uses[i].memoryBytes * memory / 1000,
		})
	}
	return samples
}
