// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import "github.com/verticalscaler/verticalscaler-operator/internal/quantity"

const gibi = 1 << 30

// Measures are sums over the measured time of one container under one policy.
type Measures struct {
	Hours float64

	// CPU, in core-hours. Used is what fits into the request, Wanted is all of it.
	RequestedCPU, UsedCPU, WantedCPU, UnservedCPU float64
	// SlackCPU is the share of the request that is not used, times hours.
	SlackCPU float64
	// StarvedHours is the time when more CPU was wanted than requested.
	StarvedHours float64

	// Memory, in GiB-hours; 0 without memory.
	HasMemory                   bool
	RequestedMemory, UsedMemory float64
	SlackMemory                 float64

	// Kills are the intervals with an OOM kill; KillDays the days with one, of Days.
	Kills, KillDays, Days int
	// WarmUpKills are those before anything was measured.
	WarmUpKills int
	Resizes     int
}

func (m *Measures) add(s Sample, inForce quantity.Amounts, hasMemory bool, hours float64) {
	wanted, requested := s.CPUMillis/1000, float64(inForce.CPUMillis)/1000
	used := min(wanted, requested)
	m.Hours += hours
	m.RequestedCPU += requested * hours
	m.UsedCPU += used * hours
	m.WantedCPU += wanted * hours
	m.UnservedCPU += (wanted - used) * hours
	m.SlackCPU += (1 - used/requested) * hours
	if wanted > requested {
		m.StarvedHours += hours
	}
	if !hasMemory {
		return
	}
	m.HasMemory = true
	bytes := min(s.MemoryBytes, inForce.MemoryBytes)
	m.RequestedMemory += float64(inForce.MemoryBytes) / gibi * hours
	m.UsedMemory += float64(bytes) / gibi * hours
	m.SlackMemory += (1 - float64(bytes)/float64(inForce.MemoryBytes)) * hours
	if s.MemoryBytes > inForce.MemoryBytes {
		m.Kills++
	}
}
