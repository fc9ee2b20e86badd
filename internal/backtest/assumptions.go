// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"hash/fnv"
	"math"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Assumptions model facts that a recorded series leaves out: a workload has several pods, usage changes within an
// interval, and a limit throttles it. They are stated, not measured. The zero value changes nothing.
//
// Pods. Each pod i uses a multiple of the recorded CPU u(t) that wanders slowly around 1:
//
//	x(i,t) = 0.8 x(i,t-1) + Spread √(1 - 0.8²) ε      ε normal, x(i,0) from the same distribution
//	cpu(i,t) = u(t) exp(x(i,t) - Spread²/2)           so that the expected multiple is 1
//
// The recorded memory is the largest pod's.
//
// Minutes. An interval of 5 minutes becomes five of a minute, whose CPU strays around the same
// mean, and whose memory is the recorded one. It applies before the pods do:
//
//	y(t) = 0.5 y(t-1) + Jitter √(1 - 0.5²) ε
//	cpu(t) = u exp(y(t)) / mean of the five exp(y)
//
// A CPU limit. A policy does not see the usage that pods would have had above it. They do not catch up later.
//
// A series of the same name is always changed in the same way.
type Assumptions struct {
	// Pods is the number of pods of each series. 0 and 1 leave the series as it is.
	Pods int
	// Spread is the standard deviation of the logarithm of a pod's multiple.
	Spread float64
	// Minutes turns series of 5 minutes into series of a minute. It leaves others alone.
	Minutes bool
	// Jitter is the standard deviation of the logarithm of a minute's multiple, with Minutes.
	Jitter float64
	// CPULimit is the CPU limit as a multiple of the request. 0 means no limit.
	CPULimit float64
}

// used is the CPU that pods with these requests use of the wanted CPU.
func (w Assumptions) used(wanted []float64, has quantity.Amounts) []float64 {
	if w.CPULimit == 0 {
		return wanted
	}
	used := slices.Clone(wanted)
	for i := range used {
		used[i] = min(used[i], w.CPULimit*float64(has.CPUMillis))
	}
	return used
}

const (
	podMemory    = 0.8 // the coefficient of x
	jitterMemory = 0.5 // the coefficient of y
)

// wander is an autoregressive process of the first order around 0, with normal steps. Its values
// follow from a name and a purpose.
type wander struct {
	state       uint64
	coefficient float64
	// deviation is the standard deviation of its values.
	deviation float64
}

func newWander(name, purpose string, coefficient, deviation float64) *wander {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(purpose + "\x00" + name)) // never fails
	return &wander{hash.Sum64(), coefficient, deviation}
}

func (w *wander) first() float64 { return w.deviation * w.normal() }

func (w *wander) after(value float64) float64 {
	return w.coefficient*value + w.deviation*math.Sqrt(1-w.coefficient*w.coefficient)*w.normal()
}

// normal returns a normally distributed number: Box and Muller, A Note on the Generation of Random
// Normal Deviates, 1958.
func (w *wander) normal() float64 {
	return math.Sqrt(-2*math.Log(1-w.uniform())) * math.Cos(2*math.Pi*w.uniform())
}

// uniform returns a number from 0 to 1, exclusively: splitmix64, Steele, Lea and Flood, Fast
// Splittable Pseudorandom Number Generators, 2014.
func (w *wander) uniform() float64 {
	w.state += 0x9e3779b97f4a7c15
	z := w.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}

// pods computes the usage of each pod, interval by interval.
type pods struct {
	*wander
	logs []float64
}

// pods returns nil for a single pod.
func (w Assumptions) pods(name string) *pods {
	if w.Pods <= 1 {
		return nil
	}
	p := &pods{newWander(name, "pods", podMemory, w.Spread), make([]float64, w.Pods)}
	for i := range p.logs {
		p.logs[i] = p.first()
	}
	return p
}

// next returns the usage of each pod where the series has cpu. A nil receiver is a single pod.
func (p *pods) next(cpu float64) []float64 {
	if p == nil {
		return []float64{cpu}
	}
	of := make([]float64, len(p.logs))
	for i, log := range p.logs {
		of[i] = cpu * math.Exp(log-p.deviation*p.deviation/2)
		p.logs[i] = p.after(log)
	}
	return of
}

// minutesOf returns a trace in intervals of a minute, if that is the model and the trace's are of
// 5 minutes.
func (w Assumptions) minutesOf(t Trace) Trace {
	const each = 60 // seconds
	if !w.Minutes || t.Step != averaged {
		return t
	}
	var (
		noise   = newWander(t.Name, "minutes", jitterMemory, w.Jitter)
		log     = noise.first()
		minutes = make([]Sample, 0, len(t.Samples)*5)
	)
	for i, sample := range t.Samples {
		count := 5
		if length := t.seconds(i); length < int64(averaged/time.Second) {
			count = int((length + each - 1) / each) // the next interval begins early
		}
		var multiples [5]float64
		sum := 0.0
		for m := range count {
			multiples[m] = math.Exp(log)
			sum += multiples[m]
			log = noise.after(log)
		}
		for m, multiple := range multiples[:count] {
			minutes = append(minutes, Sample{
				At:          sample.At + int64(m)*each,
				CPUMillis:   sample.CPUMillis * multiple * float64(count) / sum,
				MemoryBytes: sample.MemoryBytes,
			})
		}
	}
	t.Samples, t.Step = minutes, time.Minute
	return t
}
