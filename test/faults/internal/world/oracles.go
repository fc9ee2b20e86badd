// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import "fmt"

// Operator is the process of the operator, as far as oracles look at it.
type Operator struct {
	// Log is what all processes of the run have logged.
	Log []byte
	// Start and End are the process metrics of the last process: once it was idle in the
	// reference run, and at the end of this one. Empty if they are unknown.
	Start, End Metrics
}

// Metrics are gauges of a process by name, such as "go_goroutines".
type Metrics map[string]float64

// isBookkeeping says whether a write is of a checkpoint. The evidence grows with time, and
// each time that it has doubled, it is saved.
func isBookkeeping(w Write) bool { return w.Resource == "verticalscalercheckpoints" }

// Violations describes what was wrong during the run.
func (w *World) Violations() (out []string) {
	for _, wrong := range w.monitor.Violations() {
		out = append(out, fmt.Sprintf("monitor: %s", wrong))
	}
	return out
}
