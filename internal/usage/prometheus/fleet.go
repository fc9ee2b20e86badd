// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// podOfDeployment finds the Deployment in the name of a pod.
var podOfDeployment = regexp.MustCompile("^(.+)-" + hashPattern + "-" + suffixPattern + "$")

// FleetContainer names a container of the pods of a Deployment.
type FleetContainer struct{ Namespace, Deployment, Container string }

// FleetUsage is the usage of a container in successive intervals: of the pod that uses most in each, for CPU and
// memory separately.
type FleetUsage struct {
	// First is the end of the first interval.
	First time.Time
	// CPUMillis and MemoryBytes have an amount for each interval, or less than 0 if it is unknown.
	CPUMillis   []int32
	MemoryBytes []int64
}

// Fleet has the usage of many containers.
type Fleet struct {
	Usage map[FleetContainer]*FleetUsage
	// Refused counts the points that were not used, and Warnings are the warnings of Prometheus, shortened.
	Refused  map[usage.Refusal]int
	Warnings []string
}

// Fleet reads the usage of the pods of all Deployments of some namespaces, between two times, both included, as
// means and peaks of intervals. It sends a pair of queries for each day, and calls progress with the end of
// what was read after each. It keeps what has a container that isWanted. An error is an *Error.
//
// A pod belongs to the Deployment of which it has the name. A name longer than 46 characters is not in the names
// of its pods, see LongestDeployment.
func (s *Source) Fleet(ctx context.Context, namespaces []string, from, to time.Time, isWanted func(FleetContainer) bool,
	progress func(time.Time),
) (*Fleet, error) {
	queries, err := s.fleetQueries(namespaces)
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
	r := &fleetReader{
		Fleet:    &Fleet{Usage: map[FleetContainer]*FleetUsage{}, Refused: map[usage.Refusal]int{}},
		first:    first,
		step:     step,
		length:   max(0, int(to.Truncate(step).Sub(first)/step)+1),
		isWanted: isWanted,
	}
	err = c.inParts(from, to, step, longestFleetChunk, func(part v1.Range) error {
		// Both are read before either counts: a part that is too large is read again in smaller ones.
		answers, warnings, err := s.pair(ctx, c, queries, part)
		if err != nil {
			return err
		}
		r.Warnings = shortened(append(r.Warnings, warnings...))
		r.add(answers[0], part, func(u *FleetUsage, at int, v float64) {
			u.CPUMillis[at] = max(u.CPUMillis[at], int32(math.Ceil(v*1000)))
		}, quantity.MaxCPUMillis/1000)
		r.add(answers[1], part, func(u *FleetUsage, at int, v float64) {
			u.MemoryBytes[at] = max(u.MemoryBytes[at], int64(math.Ceil(v)))
		}, quantity.MaxMemoryBytes)
		progress(part.End)
		return nil
	})
	return r.Fleet, err
}

// LongestDeployment is the longest name of a Deployment whose pods have it in full in their names.
const LongestDeployment = longestName

// fleetQueries are the queries for CPU and for memory. Several series of a container are merged here and not by the
// query: with "max by (...)", Prometheus takes twice as long.
func (s *Source) fleetQueries(namespaces []string) (queries [2]string, err error) {
	of, err := inNamespaces(namespaces)
	if err != nil {
		return queries, err
	}
	deployments := ".+"
	if len(s.options.Deployments) > 0 {
		var names []string
		for _, name := range s.options.Deployments {
			names = append(names, regexp.QuoteMeta(name))
		}
		deployments = "(" + strings.Join(names, "|") + ")"
	}
	selector := fmt.Sprintf(`%s,pod=~%s,container!="",container!="POD"%s`, of,
		strconv.Quote(deployments+"-"+hashPattern+"-"+suffixPattern), s.labels())
	return [2]string{
		fmt.Sprintf("rate(container_cpu_usage_seconds_total{%s}[%s])", selector, promDuration(s.options.RateWindow)),
		fmt.Sprintf("max_over_time(container_memory_working_set_bytes{%s}[%s])", selector, promDuration(cmp.Or(s.options.MemoryWindow, 2*s.options.Step))),
	}, nil
}

// inNamespaces is a label matcher. No namespaces are all of them.
func inNamespaces(namespaces []string) (matcher string, err error) {
	for _, name := range namespaces {
		if wrong := validation.IsDNS1123Label(name); len(wrong) > 0 {
			return "", fmt.Errorf("%.80q is not a valid namespace name", name)
		}
	}
	switch len(namespaces) {
	case 0:
		return `namespace!=""`, nil
	case 1:
		return "namespace=" + strconv.Quote(namespaces[0]), nil
	}
	return "namespace=~" + strconv.Quote(strings.Join(namespaces, "|")), nil
}

// labels are the additional label matchers, each after a comma.
func (s *Source) labels() (matchers string) {
	for _, name := range slices.Sorted(maps.Keys(s.options.Labels)) {
		matchers += fmt.Sprintf(",%s=%s", name, strconv.Quote(s.options.Labels[name]))
	}
	return matchers
}

// fleetReader adds up the responses.
type fleetReader struct {
	*Fleet
	first    time.Time
	step     time.Duration
	length   int
	isWanted func(FleetContainer) bool
}

func (r *fleetReader) add(matrix model.Matrix, part v1.Range, put func(u *FleetUsage, at int, value float64), most float64) {
	for i, stream := range matrix {
		matrix[i] = nil // its points can be collected
		if stream == nil {
			r.Refused[usage.Malformed]++
			continue
		}
		of, ok := containerOf(stream.Metric)
		if !ok || !r.isWanted(of) {
			continue
		}
		if len(stream.Histograms) > 0 {
			r.Refused[usage.Malformed] += len(stream.Histograms)
		}
		u := r.usageOf(of)
		for _, p := range stream.Values {
			at, value := p.Timestamp.Time(), float64(p.Value)
			if why := refusal(at, value, part, most); why != "" {
				r.Refused[why]++
				continue
			}
			put(u, int(at.Sub(r.first)/r.step), value)
		}
	}
}

func (r *fleetReader) usageOf(of FleetContainer) *FleetUsage {
	u := r.Usage[of]
	if u == nil {
		u = &FleetUsage{First: r.first, CPUMillis: make([]int32, r.length), MemoryBytes: make([]int64, r.length)}
		for i := range r.length {
			u.CPUMillis[i], u.MemoryBytes[i] = -1, -1
		}
		r.Usage[of] = u
	}
	return u
}

// containerOf reads the labels of a series. It is not ok for the pods of others than Deployments, nor for what no object can be
// called: users name files by it.
func containerOf(labels model.Metric) (of FleetContainer, ok bool) {
	pod := podOfDeployment.FindStringSubmatch(string(labels["pod"]))
	if pod == nil {
		return of, false
	}
	of = FleetContainer{string(labels["namespace"]), pod[1], string(labels["container"])}
	isName := len(validation.IsDNS1123Label(of.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(of.Deployment)) == 0 &&
		len(validation.IsDNS1123Label(of.Container)) == 0
	return of, isName
}

// refusal says why a point is not used; empty if it is.
func refusal(at time.Time, value float64, part v1.Range, most float64) usage.Refusal {
	switch {
	case at.Before(part.Start):
		return usage.Stale
	case at.After(part.End):
		return usage.FromTheFuture
	case math.IsNaN(value) || math.IsInf(value, 0):
		return usage.NotANumber
	case value < 0:
		return usage.Negative
	case value > most:
		return usage.TooLarge
	}
	return ""
}
