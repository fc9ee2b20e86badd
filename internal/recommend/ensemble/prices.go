// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ensemble

import (
	"math"
	"time"
)

// Params are the prices of levels and the scale of time.
type Params struct {
	Prices Prices
	// Recent is the speed of time for the short windows, the means and the gaps of hold
	// policies. 1 is real time; tests use more.
	Recent float64
	// Long is the speed of time for the half-hours and days, and for the fading of costs.
	Long float64
}

// recent and long are a step on the time scale of the windows: at most a year.
func (p Params) recent(step time.Duration) time.Duration { return scaled(step, p.Recent) }

func (p Params) long(step time.Duration) time.Duration { return scaled(step, p.Long) }

func scaled(step time.Duration, factor float64) time.Duration {
	if factor == 1 {
		return step
	}
	const most = 365 * 24 * time.Hour
	return time.Duration(min(max(math.Round(float64(step)*factor), 0), float64(most)))
}

// Prices are the costs of a level besides its reservation. Higher prices of starving lead to higher
// levels, higher prices of resizes to fewer resizes.
type Prices struct {
	// Unserved is the price of a core-hour demanded above the level, in core-hours
	// reserved. From 1 to some hundreds. At 20, it is cheaper to reserve a core for an hour
	// than to lack it for three minutes.
	Unserved float64

	// Starved is the price of an hour in which a pod demands more than the level. It is in
	// core-hours reserved, for pods that use a core, and grows with the fourth root of usage. From
	// 0 to some hundreds. With Unserved alone, usage would exceed the level slightly but often.
	Starved float64

	// Resize is the price of one resize, in hours of usage reserved, of at least 100m. From 0 to 1.
	Resize float64

	// ResizesPerDay is the number of resizes a day that cost that price. From 1 to 100.
	ResizesPerDay float64

	// Excess is the price of each resize a day above that number, as a share of usage reserved
	// all day. From 0 to 20.
	Excess float64
}
