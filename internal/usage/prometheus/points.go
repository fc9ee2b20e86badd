// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"cmp"
	"math"
	"slices"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// eachPoint calls the function from putOf for a series with its valid points, at most the given value, and counts its
// other points. putOf returns nil for a series that was not asked for.
func eachPoint(matrix model.Matrix, part v1.Range, most float64, refused map[usage.Refusal]int, putOf func(model.Metric) func(at time.Time, value float64)) {
	for i, stream := range matrix {
		matrix[i] = nil // its points can be collected
		if stream == nil {
			refused[usage.Malformed]++
			continue
		}
		put := putOf(stream.Metric)
		if put == nil {
			continue
		}
		if len(stream.Histograms) > 0 {
			refused[usage.Malformed] += len(stream.Histograms)
		}
		for _, p := range stream.Values {
			at, value := p.Timestamp.Time().UTC(), float64(p.Value)
			if why := refusal(at, value, part, most); why != "" {
				refused[why]++
				continue
			}
			put(at, value)
		}
	}
}

// refusal is the reason why a point is not used, if any.
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

// container identifies a container of a pod.
type container struct{ pod, name string }

// read adds the points of a response to the chunk's refusals or to the result: by container, and by time in
// milliseconds since 1970. The larger one counts of two at the same time.
func (c *Chunk) read(matrix model.Matrix, part v1.Range, t Target, most float64) map[container]map[int64]float64 {
	out := map[container]map[int64]float64{}
	eachPoint(matrix, part, most, c.Refused, func(labels model.Metric) func(time.Time, float64) {
		of := container{string(labels["pod"]), string(labels["container"])}
		// A server that ignores the selector must not mix up the usage of two Deployments.
		if deployment, isOne := workloadOf(of.pod, Deployment); !isOne || deployment != t.Deployment || !slices.Contains(t.Containers, of.name) {
			c.Refused[usage.Malformed]++
			return nil
		}
		if out[of] == nil {
			out[of] = map[int64]float64{}
		}
		points := out[of]
		return func(at time.Time, value float64) { points[at.UnixMilli()] = max(points[at.UnixMilli()], value) }
	})
	return out
}

// decode pairs CPU with memory. It drops times with only one of the two: CPU begins one scrape later
// than memory and would count as 0.
func (c *Chunk) decode(answers [2]model.Matrix, part v1.Range, t Target, window time.Duration) {
	cores := c.read(answers[0], part, t, quantity.MaxCPUMillis/1000)
	for of, bytes := range c.read(answers[1], part, t, quantity.MaxMemoryBytes) {
		for at, used := range bytes {
			cpu, ok := cores[of][at]
			if !ok {
				continue
			}
			c.Samples = append(c.Samples, usage.Sample{
				Namespace: t.Namespace, Pod: of.pod, Container: of.name, Time: time.UnixMilli(at).UTC(), Window: window,
				CPUMillis: int64(math.Ceil(cpu * 1000)), MemoryBytes: int64(math.Ceil(used)),
			})
		}
	}
	slices.SortFunc(c.Samples, func(a, b usage.Sample) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
	})
}
