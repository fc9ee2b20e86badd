// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ensemble

import (
	"math"
	"time"
)

// Params say what levels cost, and how fast time goes.
type Params struct {
	Prices Prices
	// Recent is how much faster than usual time goes for the short windows, the means
	// and the gaps of habits. 1 unless days are to pass in minutes.
	Recent float64
	// Long is the same for the half-hours and days, and for the fading of costs.
	Long float64
}

// recent and long are a step as the windows see it: at most a year, whatever the
// factor.
func (p Params) recent(step time.Duration) time.Duration { return scaled(step, p.Recent) }

func (p Params) long(step time.Duration) time.Duration { return scaled(step, p.Long) }

func scaled(step time.Duration, factor float64) time.Duration {
	if factor == 1 {
		return step
	}
	const most = 365 * 24 * time.Hour
	return time.Duration(min(max(math.Round(float64(step)*factor), 0), float64(most)))
}

// Prices say what a level costs besides what it reserves. More expensive starving makes
// for higher levels, more expensive resizes for fewer of them.
type Prices struct {
	// Unserved is the price of a core-hour demanded above the level, in core-hours
	// reserved. From 1 to some hundreds: at 40, a core is reserved rather than lacking
	// for a minute and a half of an hour.
	Unserved float64

	// Starved is the price of an hour in which any demand is above the level, in
	// core-hours reserved, for a container that uses a core; it grows with the root of
	// usage. From 0 to some hundreds. Unserved alone would let usage exceed the level
	// often and slightly.
	Starved float64

	// Resize is the price of one resize, in hours of usage reserved. From 0 to 1.
	Resize float64

	// ResizesPerDay is how many resizes are as cheap as that. From 1 to 100.
	ResizesPerDay float64

	// Excess is the price of each resize a day above that, as the share of usage that
	// would be reserved all day. From 0 to 10.
	Excess float64
}
