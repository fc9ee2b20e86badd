// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/row"
)

// A runtime that sizes its heap from the memory limit reads the limit once, when the process starts. A raise in place does not
// reach it: the container has more memory, and its heap stays. Only the flags in the template show which runtimes do that.

// noteMemoryRaises notes in a new decision when it raises memory limits, compared with the one before it.
func noteMemoryRaises(rows row.Table, before, after *Decision, now time.Time) *Decision {
	for i := range rows.Containers {
		c := &rows.Containers[i]
		if memoryLimit(c, after) > memoryLimit(c, before) {
			after = after.With(func(d *Decision) {
				d.MemoryRaised = maps.Collect(maps.All(d.MemoryRaised)) // a copy, also of nothing
				d.MemoryRaised[c.Name] = now
			})
		}
	}
	return after
}

// memoryLimit is the memory limit that a decision gives a container of the template; the template's without a decision.
func memoryLimit(c *row.Container, d *Decision) int64 {
	request := d.Request(c.Name, Memory)
	if request == 0 {
		return c.Written.Limits.MemoryBytes
	}
	return c.Resize(c.Written, Memory.Alone(request)).Limits.MemoryBytes
}

// heapsOfBefore names the pods whose processes started before their memory limit was raised, and what to do; empty for none.
func heapsOfBefore(rows row.Table, d *Decision) string {
	var sentences []string
	for _, c := range rows.Containers {
		at := d.MemoryRaised[c.Name]
		if c.Heap.Flag == "" || c.Heap.Bytes > 0 || at.IsZero() {
			continue
		}
		var pods []string
		for _, running := range c.Running {
			if run, ok := running.Pod.Run(c.Name); ok && !run.Since.IsZero() && !run.Since.After(at) {
				pods = append(pods, running.Pod.Name)
			}
		}
		if len(pods) > 0 {
			sentences = append(sentences, fmt.Sprintf("Container %s of %s started before its memory limit was raised, and keeps the heap of its start (%s): restart these pods, for example with kubectl rollout restart",
				c.Name, model.Listed(pods, ", "), c.Heap.Flag))
		}
	}
	return strings.Join(slices.Compact(sentences), ". ")
}
