// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package profile holds the parameters of the recommendation profiles.
//
// Balanced is the default. The others trade reserve against risk:
//
//	           CPU                                     memory
//	Balanced   reserves least for few starved minutes  8-day peak and  8 to 23 %
//	Frugal     reserves less, starves more             8-day peak and  5 to 20 %
//	Safe       starves a few minutes a day at most     8-day peak and 20 to 50 %
//
// Until a day of usage has been observed, the margin of memory is doubled. In the first days, CPU gets 15 to 1 % more
// in each profile.
package profile

import "github.com/verticalscaler/verticalscaler-operator/internal/recommend/ensemble"

// Profile names a set of parameters, as the API spells it.
type Profile string

// The profiles.
const (
	Balanced Profile = "Balanced"
	Frugal   Profile = "Frugal"
	Safe     Profile = "Safe"
)

// All lists the profiles.
func All() []Profile { return []Profile{Balanced, Frugal, Safe} }

// Params are the parameters of a profile.
type Params struct {
	// Prices are the prices of CPU.
	Prices ensemble.Prices
	// Memory is the memory margin.
	Memory Margin
}

// Margin is the margin of memory above its peak: PerChange times its volatility, but at least Least
// and at most Most of the peak.
//
//	PerChange 2, Least 0.1, Most 0.25:  volatility 0.02 → 0.1   0.1 → 0.2   0.4 → 0.25
type Margin struct {
	PerChange, Least, Most float64
}

// Of returns the parameters of a profile. Unknown names are Balanced.
func Of(p Profile) Params {
	balanced := Params{
		Prices: ensemble.Prices{Unserved: 24, Starved: 9, Resize: 0.02, ResizesPerDay: 9, Excess: 6},
		Memory: Margin{PerChange: 2, Least: 0.08, Most: 0.23},
	}
	switch p {
	case Frugal:
		balanced.Prices.Unserved, balanced.Prices.Starved = 8, 3
		balanced.Memory = Margin{PerChange: 2, Least: 0.05, Most: 0.20}
	case Safe:
		balanced.Prices.Unserved, balanced.Prices.Starved = 200, 200
		balanced.Memory = Margin{PerChange: 3, Least: 0.20, Most: 0.50}
	}
	return balanced
}
