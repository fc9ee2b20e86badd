// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// Operator is the process of the operator, as far as oracles look at it.
type Operator struct {
	// Log is what all processes of the run have logged.
	Log []byte
	// Reference and End are gauges of the process by the name of the metric, such as
	// go_goroutines: at the end of the reference run, and of this one. Empty if unknown.
	Reference, End map[string]float64
	// Injected is the number of faults. A write whose answer was lost may be sent again, and
	// then changes nothing.
	Injected int
}

// Violations describes what was wrong during the run, each with the name of its oracle.
func (w *World) Violations() (out []string) {
	for _, wrong := range w.monitor.Violations() {
		out = append(out, "monitor: "+wrong)
	}
	writes, err := w.writes()
	if err != nil {
		return append(out, "audit log: "+err.Error())
	}
	if err := w.catchUp(); err != nil {
		return append(out, err.Error())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := world.Record{Changes: w.recorder.history(), Writes: writes, Quiet: w.quiet, Injected: w.operator.Injected}
	return slices.Concat(out, r.Violations(), w.operator.panics(), w.operator.gauges())
}

// catchUp waits until the recorder has seen each scaler and checkpoint as it is: events arrive later than the audit log
// notes their writes.
func (w *World) catchUp() error {
	var scalers v1beta1.VerticalScalerList
	var checkpoints v1beta1.VerticalScalerCheckpointList
	for _, list := range []client.ObjectList{&scalers, &checkpoints} {
		if err := w.user.Client.List(w.ctx, list, client.InNamespace(w.namespace)); err != nil {
			return fmt.Errorf("reading the scalers and checkpoints: %w", err)
		}
	}
	var current []client.Object
	for i := range scalers.Items {
		current = append(current, &scalers.Items[i])
	}
	for i := range checkpoints.Items {
		current = append(current, &checkpoints.Items[i])
	}
	ctx, cancel := context.WithTimeout(w.ctx, catchUpTimeout)
	defer cancel()
	return w.Wait(ctx, "the recorder", func(w *World) string {
		seen := map[types.UID]int64{}
		for _, e := range w.recorder.history() {
			seen[e.Object.GetUID()] = e.Revision()
		}
		for _, o := range current {
			if is := (world.Change{Object: o}).Revision(); seen[o.GetUID()] < is {
				return fmt.Sprintf("%T %s was seen at revision %d, and is at %d", o, o.GetName(), seen[o.GetUID()], is)
			}
		}
		return ""
	})
}

// catchUpTimeout is how late an event may be.
const catchUpTimeout = 30 * time.Second

// panics looks for panics in the log, also for those that the controller has recovered from.
func (o Operator) panics() (out []string) {
	for line := range bytes.Lines(o.Log) {
		for _, sign := range []string{"panic:", "Observed a panic", "goroutine 1 [", "fatal error:", "DATA RACE"} {
			if bytes.Contains(line, []byte(sign)) {
				out = append(out, "panics: "+strings.TrimSpace(string(line[:min(len(line), 300)])))
				break
			}
		}
	}
	return out
}

// gauges compares gauges of the process with those of the reference run. They are flat if
// there are no more than those, by a tolerance: goroutines of connections come and go, and
// the heap is as the garbage collector left it.
func (o Operator) gauges() (out []string) {
	for name, tolerance := range map[string]struct{ share, plus float64 }{
		"go_goroutines":                     {1.25, 30},
		"go_memstats_heap_inuse_bytes":      {2, 16 << 20},
		"process_open_fds":                  {1.5, 10},
		"workqueue_depth":                   {1, 1},
		"workqueue_unfinished_work_seconds": {1, 5},
	} {
		reference, known := o.Reference[name]
		end, measured := o.End[name]
		if most := reference*tolerance.share + tolerance.plus; known && measured && end > most {
			out = append(out, fmt.Sprintf("process: %s is %g, and %g in the reference run", name, end, reference))
		}
	}
	slices.Sort(out)
	return out
}
