// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verification

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// unreadyFor is the time after which an unready pod counts as unhealthy.
	unreadyFor = 30 * time.Second
	// maxUnhealthy limits the unhealthy pods that are recorded.
	maxUnhealthy = 32
	// ClockSkew is the largest assumed difference between two clocks of the cluster.
	ClockSkew = 30 * time.Second
)

// unhealthyPods are the pods that are unhealthy, or have been within the time before now, or of ClockSkew.
func unhealthyPods(pods []workload.Pod, within time.Duration, now time.Time) (out []types.UID) {
	for _, pod := range pods {
		if !model.IsAlive(pod) {
			continue
		}
		failure := failureOf(pod, now.Add(-max(within, ClockSkew)), now)
		if failure.count() > 0 || !pod.Unready.IsZero() && !isStarting(pod) {
			out = append(out, pod.UID)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxUnhealthy)]
}

// isStarting reports whether a pod has not been Ready with any of its processes. That is not a sign of harm.
func isStarting(pod workload.Pod) bool {
	return len(pod.Runs) > 0 && !slices.ContainsFunc(pod.Runs, func(run workload.Run) bool { return wasReady(pod, run) })
}

// podFailure is a failure of a pod.
type podFailure struct {
	evidence string // empty for nothing
	severity severity
	last     time.Time     // when it last failed
	wait     time.Duration // until there may be more to see; 0 for no time
}

type severity int

const (
	healthy severity = iota
	unready
	exited
	oomKilled
	crashing
)

// failureOf says what has happened to a pod since a time. If the resizePolicy of a
// container restarts it, only its OOM kills count: other exits are expected.
func failureOf(pod workload.Pod, since, now time.Time) podFailure {
	var f podFailure
	for _, name := range pod.BackingOff {
		f.note(crashing, now, "container %s crashes each time it is started", name)
	}
	for _, exit := range pod.Exits {
		c, _ := pod.Container(exit.Container)
		switch {
		case exit.At.Before(since):
		case exit.OOMKilled:
			f.note(oomKilled, exit.At, "container %s was OOM-killed", exit.Container)
		case c.RestartOnCPU, c.RestartOnMemory:
		default:
			f.note(exited, exit.At, "container %s exited", exit.Container)
		}
	}
	switch left := pod.Unready.Add(unreadyFor).Sub(now); {
	case pod.Unready.Before(since): // also if it is Ready
	case left > 0:
		f.wait = min(left, unreadyFor)
	default:
		f.note(unready, now, "is not ready")
	}
	return f
}

// note keeps the most severe failure, and the first by name of several.
func (f *podFailure) note(s severity, at time.Time, format string, args ...any) {
	f.last = model.Latest(f.last, at)
	evidence := fmt.Sprintf(format, args...)
	if cmp.Or(cmp.Compare(s, f.severity), cmp.Compare(f.evidence, evidence)) > 0 {
		f.severity, f.evidence = s, evidence
	}
}

func (f podFailure) count() int {
	return min(int(f.severity), 1)
}
