// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Silence of a running pod is never evidence for less. The rules are:
//
//   - A pod counts while its phase is Running, for any ReplicaSet of the Deployment.
//     A pod that terminates counts until its grace period is over: then
//     its kubelet does not answer, and another pod has taken its place.
//   - Each container in the spec of such a pod counts, except init containers that end and native
//     sidecars that are not in the Deployment's template. One that does not run, in CrashLoopBackOff or after it has completed, counts too: its future usage is unknown.
//   - A container is silent if the answer has no usable sample of it. A sample that the source
//     rejects, such as a stale one, does not count. A repeated one does: a source may measure less
//     often than it is asked.
//
// While a container is silent in one pod, the samples of that container in all pods may raise its
// recommendation, and never lower it. While any container is silent, nothing is lowered.
//
// A pod that has just started has no usage yet. It keeps requests from being lowered, but the samples of the other pods
// count in full: with many pods, one is always new.

const (
	// recoveredAfter is for how many rounds in a row a container must have a sample until its
	// silence is over. A pod that is silent in every other round does not change the status.
	recoveredAfter = 10
	// backAfter is the number of such rounds until usage is reported as back.
	backAfter = 3
	// settling is the time for which a container may run without usage before that is reported:
	// metrics-server needs two scrapes of a new container.
	settling = 2 * time.Minute
)

// containerID is one container of one pod.
type containerID struct {
	pod       types.UID
	container string
}

// silence is a container without usage, and its state since it became silent.
type silence struct {
	pod string
	// why is the reason; it is fixed once reported.
	why string
	// rounds counts the silent rounds, and heard the rounds with a sample since the last silent
	// one.
	rounds, heard int
	isNamed       bool // reported
	isNew         bool // the container has just started
}

// silences are the silences of one Deployment's containers.
type silences map[containerID]silence

// next returns the silences after one more round, and the names of the containers that were silent
// in it. While metrics are down, nothing more is reported.
func (s silences) next(pods []podUsage, now time.Time, isDown bool) (after silences, silent map[string]bool) {
	after, silent = silences{}, map[string]bool{}
	heard := map[string]bool{}
	for _, pod := range pods {
		for _, sample := range pod.samples {
			heard[sample.Container] = true
		}
	}
	for _, pod := range pods {
		if !counts(pod.Pod, now) {
			continue
		}
		for _, c := range pod.Containers {
			id := containerID{pod.UID, c.Name}
			if !pod.hasSample(c.Name) {
				if !heard[c.Name] || now.Sub(pod.Started) > settling || len(pod.refused) > 0 {
					silent[c.Name] = true
				}
				why, isRefused := pod.whySilent(c.Name)
				isYoung := now.Sub(startOf(pod.Pod, c.Name)) <= settling
				after[id] = s[id].again(pod.Pod, why, isYoung, isRefused, isDown)
			} else if before, ok := s[id]; ok && !before.isOver() {
				before.heard++
				after[id] = before
			}
		}
	}
	return after, silent
}

// blindnessOf reports whether pods run for long enough to have usage, and whether none of them has.
func blindnessOf(pods []podUsage, now time.Time) (isSized, isBlind bool) {
	isBlind = true
	for _, pod := range pods {
		if counts(pod.Pod, now) && now.Sub(pod.Started) > settling {
			isSized, isBlind = true, isBlind && len(pod.samples) == 0
		}
	}
	return isSized, isBlind
}

// counts reports whether the pod should have usage.
func counts(pod workload.Pod, now time.Time) bool {
	return pod.Running && (!pod.Terminating || now.Before(pod.GraceEnds))
}

func (p *podUsage) hasSample(container string) bool {
	return slices.ContainsFunc(p.samples, func(s usage.Sample) bool { return s.Container == container })
}

// whySilent returns why a container has no sample, and whether the source rejected one.
func (p *podUsage) whySilent(container string) (why string, isRefused bool) {
	for _, r := range p.refused {
		switch r.Container {
		case "":
			return "the reported " + r.Why.Words(), true
		case container:
			return fmt.Sprintf("container %s: the reported %s", container, r.Why.Words()), true
		}
	}
	if len(p.samples)+len(p.refused) > 0 {
		return fmt.Sprintf("container %s has no usage reported", container), false
	}
	return "no usage reported", false
}

// again is the silence after one more silent round.
func (s silence) again(pod workload.Pod, why string, isYoung, isRefused, isDown bool) silence {
	if s.rounds == 0 {
		s.isNew = isYoung
	}
	s.pod, s.heard = pod.Name, 0
	s.rounds++
	if !s.isNamed {
		s.why = why
		s.isNamed = !isDown && s.rounds >= outageAfter && (!isYoung || isRefused) && !pod.Terminating
	}
	return s
}

// startOf is the start of the container, or of its pod if the container does not run.
func startOf(pod workload.Pod, container string) time.Time {
	if run, _ := pod.Run(container); run.Since.After(pod.Started) {
		return run.Since
	}
	return pod.Started
}

// isOver reports whether one more round with a sample ends the silence. A container that has just
// started is heard from once, and stays so.
func (s silence) isOver() bool {
	return s.isNew && !s.isNamed || s.heard+1 >= recoveredAfter
}

// areEnding reports whether usage of all reported containers is back.
func (s silences) areEnding() bool {
	isAny := false
	for _, each := range s {
		if each.isNamed && each.heard < backAfter {
			return false
		}
		isAny = isAny || each.isNamed
	}
	return isAny
}

// mostNamed limits the pods that a message names.
const mostNamed = 3

// String lists the reported containers, sorted.
func (s silences) String() string {
	byPod := map[string][]string{}
	for _, each := range s {
		if each.isNamed {
			byPod[each.pod] = append(byPod[each.pod], each.why)
		}
	}
	var parts []string
	for pod, words := range byPod {
		slices.Sort(words)
		parts = append(parts, fmt.Sprintf("pod %s: %s", pod, strings.Join(slices.Compact(words), ", ")))
	}
	slices.Sort(parts)
	if len(parts) > mostNamed {
		parts = append(parts[:mostNamed], "and more")
	}
	return strings.Join(parts, "; ")
}
