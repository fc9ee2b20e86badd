// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import "time"

// prompt is how soon scalers come that nothing delays. A slot that is unused for a second is
// unused for less than two percent of a window of a minute.
const prompt = time.Second

// delay estimates how long scalers take to ask after they were requeued: the time in the queue,
// and the start of a reconcile. The zero value expects no delay.
//
// The estimate is that of TCP for the time of a round trip (RFC 6298, section 2), with its
// factors: an exponentially weighted mean, and the mean deviation from it.
type delay struct {
	mean, deviation time.Duration // at least 0
	measured        bool
	// ahead is the time within which most of the waiting scalers come by themselves; 0 if those
	// that are requeued come at once, so that slots need not go to others. Scalers that are
	// requeued are usually in the queue already, at any place, so they come after half of that
	// time on average. It is 2 to 4 times the mean, so that it changes rarely.
	ahead time.Duration
}

// measure adds a measured delay.
func (d *delay) measure(took time.Duration) {
	took = max(0, took)
	if !d.measured {
		d.mean, d.deviation, d.measured = took, took/2, true
	} else {
		d.deviation += ((took - d.mean).Abs() - d.deviation) / 4
		d.mean += (took - d.mean) / 8
	}
	switch {
	case d.mean < prompt/2:
		d.ahead = 0
	case d.mean > prompt && (d.ahead < 2*d.mean || d.ahead > 4*d.mean):
		d.ahead = 3 * d.mean
	}
}

// patience is how long a slot waits for the scaler that was requeued for it:
//
//	mean + max(1 s, 4 * deviation)
func (d delay) patience() time.Duration { return d.mean + max(prompt, 4*d.deviation) }
