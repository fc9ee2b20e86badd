// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Boost is more CPU for a container while it starts: until its pod is Ready, and Duration longer.
//
// A boost is not a decision. The decision says what a pod gets once it has started; a boost
// is a temporary difference for a pod that starts. It depends only on what the pod itself
// reports, so there is nothing to remember, and nothing that a restart could lose.
type Boost struct {
	// Percent is the request in percent of the regular one: 200 is twice as much. MoreMillis is added to that.
	Percent, MoreMillis int64
	// LeastMillis is the least request, within the raise limit: earlier starts have needed it. It is 0 for a boost that a
	// user has set.
	LeastMillis int64
	// Duration is the time that a boost continues after the pod becomes Ready. At least 0.
	Duration time.Duration
}

// startsWithin is the longest time of a start. After that time, its boost ends
// even if the pod is not Ready. It is the default progress deadline of a Deployment.
const startsWithin = 10 * time.Minute

// Until is the end of the start of a pod's container; zero if it is not starting.
func (b Boost) Until(pod workload.Pod, container string, now time.Time) time.Time {
	if _, end := b.Start(pod, container); end.After(now) {
		return end
	}
	return time.Time{}
}

// Start says when the container of a pod last began to start, and when the start ended or will end; zero if it is not known.
//
// If a process began before its pod became unready, its start is over, and the pod is unready for another reason. If a container
// crashes repeatedly, the time counts from when the pod became unready, so that a crash does not start another boost.
func (b Boost) Start(pod workload.Pod, container string) (began, end time.Time) {
	run, ok := pod.Run(container)
	switch {
	case !ok, pod.ReadyChanged.IsZero(), pod.Ready && run.Since.IsZero():
		return began, end
	case pod.Ready:
		return run.Since, b.endOfReady(pod, run.Since)
	case run.Since.IsZero():
		return pod.ReadyChanged, b.latestEnd(pod.ReadyChanged)
	case run.Since.Before(pod.ReadyChanged.Truncate(time.Second)): // the times are in whole seconds
		return run.Since, pod.ReadyChanged
	case run.Restarted:
		return run.Since, b.latestEnd(pod.ReadyChanged)
	}
	return run.Since, b.latestEnd(run.Since)
}

func (b Boost) latestEnd(began time.Time) time.Time { return began.Add(startsWithin + b.Duration) }

func (b Boost) endOfReady(pod workload.Pod, began time.Time) time.Time {
	end, ready := b.latestEnd(began), Latest(pod.ReadyChanged, began).Add(b.Duration)
	if ready.Before(end) {
		return ready
	}
	return end
}
