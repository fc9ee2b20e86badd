// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

const (
	// leastCPUMillis and leastMemoryBytes are the smallest requests for any answer of a policy:
	// slack is a share of the request.
	leastCPUMillis   = 1
	leastMemoryBytes = 4 << 20

	// leastChange is the change, as a share of a request, below which nothing is
	// resized.
	leastChange = 1e-3

	daySeconds  = 24 * 60 * 60
	hourSeconds = 60 * 60
)

// Outcome is the result for one container under one policy.
type Outcome struct {
	Measures Measures
	// Changes are the requests and the times from which on they applied, beginning with the
	// initial requests. Kills are the intervals with an OOM kill, in seconds since 1970. Both
	// are kept only with Options.Record.
	Changes []Change
	Kills   []int64
	// Recommended is a Recommender's recommendation at the end, which depends on usage alone; nil if it has none,
	// or without Options.Recommend.
	Recommended *quantity.Amounts
}

// Change is a time from which on requests apply, in seconds since 1970.
type Change struct {
	At       int64
	Requests quantity.Amounts
}

// Options control the replay of traces.
type Options struct {
	// WarmUp is the time at the beginning of each trace that is replayed but not
	// measured, so that policies can learn. 0 measures everything.
	WarmUp time.Duration
	// Assumptions model facts that the traces leave out.
	Assumptions Assumptions
	// Record keeps the data for a plot.
	Record bool
	// Recommend asks for the recommendation at the end.
	Recommend bool
}

// Replay replays one trace with one policy.
func Replay(t Trace, rule Rule, o Options) Outcome {
	t = o.Assumptions.minutesOf(t)
	var (
		out     Outcome
		days    = map[int64]bool{} // by their number since 1970: whether there was a kill
		means   = window{isOfOne: t.Step >= averaged}
		pods    = o.Assumptions.pods(t.Name)
		current = atLeast(t.Requests)
		policy  = rule.New(Container{Name: t.Name, Step: t.Step, HasMemory: t.HasMemory, Requests: t.Requests, CPULimit: o.Assumptions.CPULimit, HeapBytes: t.HeapBytes})
		warmUp  = int64(o.WarmUp / time.Second)
	)
	if o.Record && len(t.Samples) > 0 {
		out.Changes = append(out.Changes, Change{t.Samples[0].At, current})
	}
	for i, sample := range t.Samples {
		isKilled := t.HasMemory && sample.MemoryBytes > current.MemoryBytes
		isMeasured := sample.At-t.Samples[0].At >= warmUp
		wanted := pods.next(sample.CPUMillis)
		if isMeasured {
			hours := float64(t.seconds(i)) / hourSeconds
			out.Measures.add(t.HasMemory, wanted, current, hours)
			out.Measures.StarvedMeanHours += means.add(sample.At, wanted, current.CPUMillis, hours)
			day := sample.At / daySeconds
			days[day] = days[day] || isKilled
		}
		if isKilled && o.Record {
			out.Kills = append(out.Kills, sample.At)
		}

		observed := observe(sample, t.Step, o.Assumptions.used(wanted, current), current)
		observed.OOMKilled = isKilled
		if o.Recommend {
			observed.NeededBytes = min(sample.MemoryBytes, quantity.MaxMemoryBytes)
		}
		next, ok := nextRequests(policy, t, observed)
		if !ok {
			continue
		}
		current = next
		if isMeasured {
			out.Measures.Resizes++
		}
		if o.Record && i+1 < len(t.Samples) {
			out.Changes = append(out.Changes, Change{t.Samples[i+1].At, current})
		}
	}
	out.Measures.StarvedMeanHours += means.starved()
	out.Measures.countDays(days)
	if o.Recommend {
		out.Recommended = recommendedBy(policy)
	}
	return out
}

// recommendedBy is a Recommender's recommendation, or nil.
func recommendedBy(policy Policy) *quantity.Amounts {
	if recommender, ok := policy.(Recommender); ok {
		if requests, ok := recommender.Recommend(); ok {
			return &requests
		}
	}
	return nil
}

// observe is a policy's observation of a sample, in which the pods used this CPU.
func observe(s Sample, step time.Duration, used []float64, current quantity.Amounts) Observation {
	o := Observation{
		Start: time.Unix(s.At, 0).UTC(), Step: step, CPUMillis: mean(used),
		MemoryBytes: min(s.MemoryBytes, current.MemoryBytes), Requests: current,
	}
	if len(used) > 1 {
		o.PodCPUMillis = used
	}
	return o
}

// nextRequests asks the policy for the requests after an interval. ok is false where they stay.
func nextRequests(policy Policy, t Trace, o Observation) (next quantity.Amounts, ok bool) {
	if next, ok = policy.Next(o); !ok {
		return o.Requests, false
	}
	next = atLeast(next)
	if !t.HasMemory {
		next.MemoryBytes = o.Requests.MemoryBytes
	}
	return next, isChange(o.Requests, next)
}

func atLeast(a quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{
		CPUMillis:   min(max(a.CPUMillis, leastCPUMillis), quantity.MaxCPUMillis),
		MemoryBytes: min(max(a.MemoryBytes, leastMemoryBytes), quantity.MaxMemoryBytes),
	}
}

func isChange(from, to quantity.Amounts) bool {
	moved := func(from, to int64) bool { return math.Abs(float64(to)/float64(from)-1) > leastChange }
	return moved(from.CPUMillis, to.CPUMillis) || moved(from.MemoryBytes, to.MemoryBytes)
}

// Run replays every trace with every rule. The outcomes are by trace and then by rule,
// in the order of the arguments.
func Run(traces []Trace, rules []Rule, o Options) [][]Outcome {
	outcomes, free := make([][]Outcome, len(traces)), make(chan struct{}, runtime.GOMAXPROCS(0))
	var group sync.WaitGroup
	for i, trace := range traces {
		outcomes[i] = make([]Outcome, len(rules))
		for j, rule := range rules {
			free <- struct{}{}
			group.Go(func() {
				outcomes[i][j] = Replay(trace, rule, o)
				<-free
			})
		}
	}
	group.Wait()
	return outcomes
}
