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

// decoder turns a pair of responses into samples.
type decoder struct {
	queries
	first, last time.Time
	window      time.Duration

	refused map[usage.Refusal]int
}

// container identifies a series.
type container struct{ pod, name string }

// series are the valid points of a container.
type series map[model.Time]float64

// decode pairs CPU with memory. It drops times with only one of the two: CPU begins one scrape later
// than memory and would count as 0.
func (d *decoder) decode(cpu, memory model.Matrix) (samples []usage.Sample) {
	cpus := d.read(cpu, quantity.MaxCPUMillis/1000)
	for of, bytes := range d.read(memory, quantity.MaxMemoryBytes) {
		for at, used := range bytes {
			cores, ok := cpus[of][at]
			if !ok {
				continue
			}
			samples = append(samples, usage.Sample{
				Namespace: d.namespace, Pod: of.pod, Container: of.name,
				Time: at.Time().UTC(), Window: d.window,
				CPUMillis: int64(math.Ceil(cores * 1000)), MemoryBytes: int64(math.Ceil(used)),
			})
		}
	}
	slices.SortFunc(samples, func(a, b usage.Sample) int {
		return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container))
	})
	return samples
}

// read keeps the valid points of a response; most is the largest valid value.
func (d *decoder) read(matrix model.Matrix, most float64) map[container]series {
	out := make(map[container]series, len(matrix))
	for _, stream := range matrix {
		if stream == nil {
			d.refused[usage.Malformed]++
			continue
		}
		of := container{string(stream.Metric["pod"]), string(stream.Metric["container"])}
		// A server that ignores the selector must not mix up the usage of two
		// Deployments.
		if !d.pods.MatchString(of.pod) || !slices.Contains(d.containers, of.name) {
			d.refused[usage.Malformed] += max(1, len(stream.Values))
			continue
		}
		if out[of] != nil {
			d.refused[usage.Duplicate] += max(1, len(stream.Values))
			continue
		}
		d.refuse(usage.Malformed, len(stream.Histograms))
		points := make(series, len(stream.Values))
		for _, p := range stream.Values {
			if why := d.judge(points, p, most); why != "" {
				d.refused[why]++
				continue
			}
			points[p.Timestamp] = float64(p.Value)
		}
		out[of] = points
	}
	return out
}

func (d *decoder) judge(before series, p model.SamplePair, most float64) usage.Refusal {
	if why := refusal(p.Timestamp.Time(), float64(p.Value), v1.Range{Start: d.first, End: d.last}, most); why != "" {
		return why
	}
	if _, ok := before[p.Timestamp]; ok {
		return usage.Duplicate
	}
	return ""
}

func (d *decoder) refuse(why usage.Refusal, n int) {
	if n > 0 {
		d.refused[why] += n
	}
}
