// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ensemble

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// ErrEncoding is returned for bytes that AppendBinary did not write.
var ErrEncoding = errors.New("not an encoded ensemble")

const (
	// A count takes one byte: resizes in units of a half, and the time since a fall in
	// units of six minutes. Costs lose all but 8 bits of their fraction.
	resizeUnit = 128
	fellUnit   = 6
	costShift  = 15

	perCandidate = 6
	fixedSize    = (5+spreads+hotIntervals)*4 + 2*2 + 1 + 2*ringSize + 2*slotSize + perCandidate*candidates

	// greatest is larger than any amount that is ever added, in millicores.
	greatest = 1 << 30
)

// AppendBinary appends the encoded state, without the current interval: 1.7 KB. The encoding has no version; the caller
// stores one. Costs and counts are rounded, so a decoded state may follow another candidate that costs about the same.
// Larger amounts are encoded as the greatest one: any state that was read stays readable.
func (c *CPU) AppendBinary(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(c.observed))
	b = binary.AppendUvarint(b, uint64(c.fadeAge))
	for _, f := range c.floats() {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(min(*f, greatest)))
	}
	b = binary.LittleEndian.AppendUint16(b, c.slot)
	b = binary.LittleEndian.AppendUint16(b, c.phase)
	b = append(b, c.chosen)
	for _, p := range c.ring {
		b = binary.LittleEndian.AppendUint16(b, uint16(p))
	}
	for _, p := range c.slots {
		b = binary.LittleEndian.AppendUint16(b, uint16(p))
	}
	for k := range c.level {
		b = binary.LittleEndian.AppendUint16(b, uint16(pack(min(c.level[k], greatest))))
		b = binary.LittleEndian.AppendUint16(b, uint16(math.Float32bits(min(c.cost[k], math.MaxFloat32))>>costShift))
		b = append(b, byte(min(c.resizes[k]/resizeUnit, math.MaxUint8)), byte(min((c.minute()-c.fell[k])/fellUnit, math.MaxUint8)))
	}
	return b
}

func (c *CPU) floats() []*float32 {
	list := []*float32{&c.mean, &c.fast, &c.noise, &c.span, &c.lack}
	for i := range c.spread {
		list = append(list, &c.spread[i])
	}
	for i := range c.hot {
		list = append(list, &c.hot[i])
	}
	return list
}

// DecodeBinary reads a state from the beginning of b and returns the rest of b. For any bytes, the
// result is a valid state or an error.
func DecodeBinary(b []byte) (CPU, []byte, error) {
	var c CPU
	for _, d := range []*time.Duration{&c.observed, &c.fadeAge} {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > uint64(longest) {
			return CPU{}, nil, ErrEncoding
		}
		*d = time.Duration(v)
		b = b[n:]
	}
	if len(b) < fixedSize {
		return CPU{}, nil, ErrEncoding
	}
	next := func() uint16 {
		v := binary.LittleEndian.Uint16(b)
		b = b[2:]
		return v
	}
	for _, f := range c.floats() {
		*f = math.Float32frombits(binary.LittleEndian.Uint32(b))
		b = b[4:]
		if !(*f >= 0 && *f <= greatest) {
			return CPU{}, nil, ErrEncoding
		}
	}
	c.slot, c.phase, c.chosen = next(), next(), b[0]
	b = b[1:]
	for i := range c.ring {
		c.ring[i] = packed(next())
	}
	for i := range c.slots {
		c.slots[i] = packed(next())
	}
	isPossible := int(c.slot) < slotSize && c.phase <= uint16(perDay) && c.chosen < candidates && c.fadeAge < time.Hour
	for k := range c.level {
		c.level[k] = packed(next()).value()
		c.cost[k] = math.Float32frombits(uint32(next()) << costShift)
		isPossible = isPossible && c.level[k] <= greatest && c.cost[k] >= 0 && !math.IsInf(float64(c.cost[k]), 0)
		c.resizes[k] = uint16(b[0]) * resizeUnit
		c.fell[k] = c.minute() - uint16(b[1])*fellUnit
		b = b[2:]
	}
	if c.refresh(); !isPossible || c.known[Week] > greatest || highest(c.ring[:]) > greatest {
		return CPU{}, nil, ErrEncoding
	}
	return c, b, nil
}
