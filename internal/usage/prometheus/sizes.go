// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// longestSizes is the time range of one query for sizes: their responses have no more series than
// the target has containers and resources.
const longestSizes = 90 * 24 * time.Hour

// Sizes are the requests and limits of a target's pods. They are for plots, not for decisions.
type Sizes struct {
	// HasRequests and HasLimits are true if Prometheus has them at some time.
	HasRequests, HasLimits bool
	// At has the size of a resource of a container, by time: "cpu" in millicores or "memory" in
	// bytes.
	At map[Of]map[time.Time]Size
}

// Of names a resource of a container.
type Of struct{ Container, Resource string }

// Size is the declared size of pods at a time. kube-state-metrics reports the amounts in the specs
// of pods, which a kubelet may not have applied.
type Size struct {
	Request, Limit Amount
}

// Amount is the least and the most that a pod declares. Both are None if no pod declares an amount,
// and Unknown if that is not known.
type Amount struct{ Least, Most int64 }

const (
	// None is an amount that no pod declares.
	None int64 = 0
	// Unknown is an amount that Prometheus does not know.
	Unknown int64 = -1
)

// Sizes reads the requests and limits of the target's pods between two times, both included, at
// the times of the samples of Range. It takes them from kube-state-metrics and, where that has none,
// the requests from the operator's metrics about the target's scaler. An error is an *Error.
func (s *Source) Sizes(ctx context.Context, t Target, from, to time.Time) (Sizes, error) {
	out := Sizes{At: map[Of]map[time.Time]Size{}}
	queries, err := s.queriesFor(t)
	if err != nil {
		return out, &Error{Words: "the pods of the Deployment cannot be identified by name", Err: err}
	}
	c, err := s.open()
	if err != nil {
		return out, err
	}
	defer c.close()
	return out, c.inParts(from, to, s.options.Step, longestSizes, func(r v1.Range) error {
		declared, _, err := c.pair(ctx, queries.sizes, r)
		if err != nil {
			return err
		}
		var reported model.Matrix
		if queries.requests != "" {
			if reported, _, err = c.matrix(ctx, queries.requests, r); err != nil {
				return err
			}
		}
		out.declare(declared, t.Containers, r)
		out.complete(reported, t.Containers, r)
		return nil
	})
}

// declare adds the least and the most by kube-state-metrics. A container with one reported resource
// has none of the others.
func (s *Sizes) declare(answers [2]model.Matrix, containers []string, r v1.Range) {
	for i, matrix := range answers {
		eachAmount(matrix, "container", containers, r, func(of Of, labels model.Metric) func(time.Time, int64) {
			isLimit := strings.HasSuffix(string(labels[model.MetricNameLabel]), "_limits")
			s.HasRequests, s.HasLimits = true, true
			return func(at time.Time, amount int64) {
				for _, resource := range []string{cpu, memory} {
					s.size(Of{of.Container, resource}, at, Size{}) // none, unless a series follows
				}
				size := s.At[of][at]
				to := &size.Request
				if isLimit {
					to = &size.Limit
				}
				if i == 0 {
					to.Least = amount
				} else {
					to.Most = amount
				}
				s.At[of][at] = size
			}
		})
	}
}

// complete adds the operator's reports where kube-state-metrics has none.
func (s *Sizes) complete(answer model.Matrix, containers []string, r v1.Range) {
	eachAmount(answer, "target_container", containers, r, func(of Of, _ model.Metric) func(time.Time, int64) {
		s.HasRequests = true
		return func(at time.Time, amount int64) {
			s.size(of, at, Size{Request: Amount{amount, amount}, Limit: Amount{Unknown, Unknown}})
		}
	})
}

// size adds a size, unless one is known at that time.
func (s *Sizes) size(of Of, at time.Time, size Size) {
	if s.At[of] == nil {
		s.At[of] = map[time.Time]Size{}
	}
	if _, isKnown := s.At[of][at]; !isKnown {
		s.At[of][at] = size
	}
}

// The names of resources in labels.
const (
	cpu    = "cpu"
	memory = "memory"
)

// eachAmount is eachPoint for amounts in millicores or bytes, of the resources of some containers, whose names a label has.
func eachAmount(matrix model.Matrix, label model.LabelName, containers []string, r v1.Range, putOf func(Of, model.Metric) func(time.Time, int64)) {
	eachPoint(matrix, r, quantity.MaxMemoryBytes, map[usage.Refusal]int{}, func(labels model.Metric) func(time.Time, float64) {
		of := Of{string(labels[label]), string(labels["resource"])}
		if !slices.Contains(containers, of.Container) || of.Resource != cpu && of.Resource != memory {
			return nil
		}
		factor, most := 1.0, float64(quantity.MaxMemoryBytes)
		if of.Resource == cpu {
			factor, most = 1000, quantity.MaxCPUMillis
		}
		put := putOf(of, labels)
		return func(at time.Time, value float64) {
			if amount := math.Round(value * factor); amount <= most {
				put(at, int64(amount))
			}
		}
	})
}
