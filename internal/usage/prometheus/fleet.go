// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"math"
	"slices"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// longestFleetChunk is the time range of one query for all Deployments of some namespaces: 288 points of
// each series with a step of 5 minutes, about 10 kB.
const longestFleetChunk = 24 * time.Hour

// FleetContainer names a container of the pods of a workload.
type FleetContainer struct{ Namespace, Kind, Workload, Container string }

// ContainerUsage is the usage of a container in successive intervals: of the pod that uses most in each, for CPU and
// memory separately.
type ContainerUsage struct {
	// First is the end of the first interval.
	First time.Time
	// CPUMillis and MemoryBytes have an amount for each interval, or less than 0 if it is unknown.
	CPUMillis   []int32
	MemoryBytes []int64
}

// FleetUsage has the usage of many containers.
type FleetUsage struct {
	Usage map[FleetContainer]*ContainerUsage
	// Refused counts the points that were not used, and Warnings are the warnings of Prometheus, shortened.
	Refused  map[usage.Refusal]int
	Warnings []string
}

// Fleet reads the usage of the pods of all workloads of some kinds in some namespaces, between two times, both included, as
// means and peaks of intervals. It sends a pair of queries for each day, and calls progress with the end of the range after
// each. It keeps usage of containers that are wanted. An error is an *Error.
//
// A pod belongs to the first wanted workload whose name matches, in the order of the constants of kinds. Names longer than
// LongestName are not in the names of pods.
func (s *Source) Fleet(ctx context.Context, namespaces, kinds []string, from, to time.Time, isWanted func(FleetContainer) bool,
	progress func(time.Time),
) (*FleetUsage, error) {
	queries, err := s.fleetQueries(namespaces, kinds)
	if err != nil {
		return nil, &Error{Words: "the namespaces are not valid", Err: err}
	}
	c, err := s.open()
	if err != nil {
		return nil, err
	}
	defer c.close()

	step := s.options.Step
	first := ceil(from, step)
	length := max(0, int(to.Truncate(step).Sub(first)/step)+1)
	out := &FleetUsage{Usage: map[FleetContainer]*ContainerUsage{}, Refused: map[usage.Refusal]int{}}
	read := func(matrix model.Matrix, part v1.Range, most float64, put func(u *ContainerUsage, at int, value float64)) {
		eachPoint(matrix, part, most, out.Refused, func(labels model.Metric) func(time.Time, float64) {
			of, ok := wantedOf(labels, kinds, isWanted)
			if !ok {
				return nil
			}
			u := out.Usage[of]
			if u == nil {
				u = &ContainerUsage{First: first, CPUMillis: slices.Repeat([]int32{-1}, length), MemoryBytes: slices.Repeat([]int64{-1}, length)}
				out.Usage[of] = u
			}
			return func(at time.Time, value float64) { put(u, int(at.Sub(first)/step), value) }
		})
	}
	err = c.inParts(from, to, step, longestFleetChunk, func(part v1.Range) error {
		// Both are read before either counts: a part that is too large is read again in smaller ones.
		answers, warnings, err := c.pair(ctx, queries, part)
		if err != nil {
			return err
		}
		out.Warnings = shortened(append(out.Warnings, warnings...))
		read(answers[0], part, quantity.MaxCPUMillis/1000, func(u *ContainerUsage, at int, v float64) {
			u.CPUMillis[at] = max(u.CPUMillis[at], int32(math.Ceil(v*1000)))
		})
		read(answers[1], part, quantity.MaxMemoryBytes, func(u *ContainerUsage, at int, v float64) {
			u.MemoryBytes[at] = max(u.MemoryBytes[at], int64(math.Ceil(v)))
		})
		progress(part.End)
		return nil
	})
	return out, err
}

// wantedOf is the first wanted container that the labels of a series may name.
func wantedOf(labels model.Metric, kinds []string, isWanted func(FleetContainer) bool) (of FleetContainer, ok bool) {
	for _, n := range namings {
		if !slices.Contains(kinds, n.kind) {
			continue
		}
		if of, ok = containerOf(labels, n.kind); ok && isWanted(of) {
			return of, true
		}
	}
	return of, false
}

// containerOf reads the labels of a series. It is not ok for the pods of other kinds, nor for invalid names of
// objects: users name files by it.
func containerOf(labels model.Metric, kind string) (of FleetContainer, ok bool) {
	workload, ok := workloadOf(string(labels["pod"]), kind)
	of = FleetContainer{string(labels["namespace"]), kind, workload, string(labels["container"])}
	return of, ok && len(validation.IsDNS1123Label(of.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(of.Workload)) == 0 &&
		len(validation.IsDNS1123Label(of.Container)) == 0
}
