// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ensemble

import "math"

// packed is an amount in 16 bits: 5 bits of exponent and 11 bits after the leading one. Packing
// rounds up by at most 0.05 % and is exact up to 4095 millicores.
//
//	0 → 0   1 → 1   250 → 250   4097 → 4098   10,000,000 → 10,002,432
type packed uint16

const fraction = 11

func pack(v float32) packed {
	n := uint64(math.Ceil(float64(max(v, 0))))
	if n < 1<<(fraction+1) {
		return packed(n)
	}
	shift := 0
	for n >= 1<<(fraction+1) {
		n = (n + 1) >> 1
		shift++
	}
	if shift > 30 {
		return math.MaxUint16
	}
	return packed(uint64(shift)<<fraction + n)
}

func (p packed) value() float32 {
	if p < 1<<(fraction+1) {
		return float32(p)
	}
	shift := p>>fraction - 1
	return float32(uint64(p-shift<<fraction) << shift)
}
