// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// With cgroup v1, and with the kubelet's singleProcessOOMKill, the kernel kills one process of a container: a worker, or
// a compiler. The container continues, so no status of a pod has the kill, and usage is lower after it. Only the counters
// of the kubelet's cAdvisor, which Prometheus may have, show that this is not evidence for less.

const (
	// oomEventsPeriod is the time between reads.
	oomEventsPeriod = 2 * time.Minute
	// oomEventsDelay is the time for which Prometheus may not have a kill yet, or still have the count of an ended container.
	oomEventsDelay = 6 * time.Minute
)

// OOMEvents calls each with the containers in which processes were OOM-killed, and their number since the container started.
type OOMEvents func(ctx context.Context, at time.Time, each func(of usage.Container, kills int)) error

// oomEvents are the kills in one container, and the time at which their number was last seen to grow. The answer before that
// had fewer; zero without one.
type oomEvents struct {
	kills      int
	at, before time.Time
}

// readOOMEvents reads the counts of all containers, if it is time and there is a source. The last ones stay if that fails.
func (c *Collector) readOOMEvents(ctx context.Context) {
	now := c.Clock.Now()
	if c.OOMEvents == nil || now.Sub(c.oomAsked) < oomEventsPeriod {
		return
	}
	c.oomAsked = now
	known := map[usage.Container]oomEvents{}
	err := c.OOMEvents(ctx, now, func(of usage.Container, kills int) {
		events := c.oom[of]
		if kills > events.kills {
			events = oomEvents{kills: kills, at: now, before: c.oomAnswered}
		}
		known[of] = events
	})
	if err != nil {
		log.FromContext(ctx).V(1).Info("Cannot read OOM events from Prometheus", "error", err.Error())
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.oom, c.oomAnswered = known, now
}

// AddOOMEvents adds the OOM kills of single processes to those of pods, which are not shared. A kill that the first answer has
// is dated at the start of its container: that stays the same when the operator restarts, so it counts once.
func (c *Collector) AddOOMEvents(namespace string, pods []workload.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range pods {
		pod := &pods[i]
		for _, container := range pod.Containers {
			events, ok := c.oom[usage.Container{Namespace: namespace, Pod: pod.Name, Name: container.Name}]
			run, _ := pod.Run(container.Name)
			isOfTheOneBefore := run.Restarted && events.at.Sub(run.Since) < oomEventsDelay
			if !ok || run.Since.IsZero() || isOfTheOneBefore {
				continue
			}
			at, after := events.at, events.before.Add(-oomEventsDelay)
			if events.before.IsZero() {
				at, after = run.Since, run.Since
			}
			pod.Kills = append(slices.Clip(pod.Kills), pod.ProcessKill(run, events.kills, after, at))
		}
	}
}

// lacksKill reports whether a kill of a pod is newer than those in the histories. Kills in the status of a pod trigger its
// scaler.
func lacksKill(histories history.Histories, pods []workload.Pod) bool {
	return slices.ContainsFunc(pods, func(pod workload.Pod) bool {
		return slices.ContainsFunc(pod.Kills, func(kill workload.OOMKill) bool {
			h := histories[kill.Container]
			return h != nil && kill.At.After(h.NewestKill())
		})
	})
}
