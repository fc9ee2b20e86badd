// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

const gibi = 1 << 30

// Measures are sums over the measured time of one container under one policy. For CPU, they are
// means over its pods.
type Measures struct {
	Hours float64

	// CPU, in core-hours. Unserved is the wanted CPU above the request.
	RequestedCPU, WantedCPU, UnservedCPU float64
	// StarvedHours is the time when more CPU was wanted than requested. StarvedMeanHours is the
	// same for means over 5 minutes, which a request can promise for shorter intervals; for others,
	// the two are equal.
	StarvedHours, StarvedMeanHours float64

	// RequestedMemory is in GiB-hours; 0 without memory.
	HasMemory       bool
	RequestedMemory float64

	// KillDays are the days with an OOM kill, of Days.
	KillDays, Days int
	Resizes        int
}

// countDays counts the days seen, and those with a kill.
func (m *Measures) countDays(days map[int64]bool) {
	m.Days = len(days)
	for _, isKilled := range days {
		if isKilled {
			m.KillDays++
		}
	}
}

// add adds an interval in which the pods wanted this CPU each, in millicores. All values are means
// over pods.
func (m *Measures) add(hasMemory bool, wanted []float64, requested quantity.Amounts, hours float64) {
	m.Hours += hours
	if m.HasMemory = hasMemory; hasMemory {
		m.RequestedMemory += float64(requested.MemoryBytes) / gibi * hours
	}
	cores, share := float64(requested.CPUMillis)/1000, hours/float64(len(wanted))
	m.RequestedCPU += cores * hours
	for _, millis := range wanted {
		wanted := millis / 1000
		m.WantedCPU += wanted * share
		m.UnservedCPU += (wanted - min(wanted, cores)) * share
		if wanted > cores {
			m.StarvedHours += share
		}
	}
}

// averaged is the length of the means in which StarvedMeanHours is measured.
const averaged = 5 * time.Minute

// window is a span of 5 minutes, by the clock, whose means are compared: an interval belongs to the
// span in which it begins.
type window struct {
	// isOfOne is true if each interval is its own span: it is as long, or longer.
	isOfOne bool

	number           int64
	hours, requested float64   // requested is in millicore-hours
	wanted           []float64 // the same, of each pod
}

// add adds an interval, and returns the starved hours of the span before if it begins a new one.
func (w *window) add(at int64, wanted []float64, requested int64, hours float64) (starved float64) {
	if number := at / int64(averaged/time.Second); w.wanted == nil || w.isOfOne || number != w.number {
		starved = w.starved()
		*w = window{isOfOne: w.isOfOne, number: number, wanted: make([]float64, len(wanted))}
	}
	w.hours += hours
	w.requested += float64(requested) * hours
	for i, millis := range wanted {
		w.wanted[i] += millis * hours
	}
	return starved
}

// starved is the length of the span times the share of the pods that wanted more than requested.
func (w *window) starved() float64 {
	hours := 0.0
	for _, wanted := range w.wanted {
		if wanted > w.requested {
			hours += w.hours / float64(len(w.wanted))
		}
	}
	return hours
}

func mean(of []float64) float64 {
	sum := 0.0
	for _, v := range of {
		sum += v
	}
	return sum / float64(len(of))
}
