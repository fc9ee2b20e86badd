// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/histogram"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

const (
	// Version is the version of the encoding. It is also its first byte, so that
	// the bytes alone are enough.
	Version = 1

	// MaxEncoded is the most bytes that are ever encoded or accepted. A usual
	// container takes a few hundred.
	MaxEncoded = 8 << 10
)

// ErrEncoding is what decoding anything but an encoded history leads to.
var ErrEncoding = errors.New("not an encoded history")

// Encode makes bytes from which Decode makes the very same history. They are the
// version, eight numbers, the 32 peaks and the two distributions, as varints.
func (c *Container) Encode() []byte {
	b := make([]byte, 0, 512)
	b = append(b, Version)
	for _, v := range c.numbers() {
		b = binary.AppendUvarint(b, uint64(*v))
	}
	for _, peak := range c.peaks {
		b = binary.AppendUvarint(b, uint64(peak))
	}
	b = c.cpu.values.AppendBinary(b)
	b = c.recent.values.AppendBinary(b)
	return b
}

// numbers lists what is encoded as a single number, in order.
func (c *Container) numbers() []*int64 {
	return []*int64{
		(*int64)(&c.observed), &c.newest,
		(*int64)(&c.cpu.age), (*int64)(&c.recent.age), (*int64)(&c.slotAge),
		&c.oom.bytes, (*int64)(&c.oom.set), &c.oom.kill,
	}
}

// Decode reads an encoded history. Whatever the bytes, the result is a history that
// could have come about, or an error.
func Decode(b []byte) (Container, error) {
	if len(b) == 0 || len(b) > MaxEncoded {
		return Container{}, fmt.Errorf("%w: %d bytes", ErrEncoding, len(b))
	}
	if b[0] != Version {
		return Container{}, fmt.Errorf("%w: version %d", ErrEncoding, b[0])
	}
	b = b[1:]

	var c Container
	for _, v := range append(c.numbers(), c.peakNumbers()...) {
		number, n := binary.Uvarint(b)
		if n <= 0 || number > 1<<63-1 {
			return Container{}, fmt.Errorf("%w: cut short", ErrEncoding)
		}
		*v = int64(number)
		b = b[n:]
	}
	var err error
	if c.cpu.values, b, err = histogram.DecodeBinary(b, quantity.MaxCPUMillis); err != nil {
		return Container{}, fmt.Errorf("%w: CPU: %w", ErrEncoding, err)
	}
	if c.recent.values, b, err = histogram.DecodeBinary(b, quantity.MaxCPUMillis); err != nil {
		return Container{}, fmt.Errorf("%w: recent CPU: %w", ErrEncoding, err)
	}
	if len(b) != 0 {
		return Container{}, fmt.Errorf("%w: %d bytes too many", ErrEncoding, len(b))
	}
	if !c.isPossible() {
		return Container{}, fmt.Errorf("%w: values out of range", ErrEncoding)
	}
	return c, nil
}

func (c *Container) peakNumbers() []*int64 {
	peaks := make([]*int64, slotCount)
	for i := range peaks {
		peaks[i] = &c.peaks[i]
	}
	return peaks
}

// isPossible tells whether samples and kills could have led here. All numbers are
// known to be at least 0.
func (c *Container) isPossible() bool {
	for _, age := range []time.Duration{c.cpu.age, c.recent.age, c.slotAge, c.oom.set} {
		if age > c.observed {
			return false
		}
	}
	for _, at := range []int64{c.newest, c.oom.kill} {
		if at != nanos(fromNanos(at)) {
			return false
		}
	}
	return c.observed <= longest &&
		c.Peak() <= quantity.MaxMemoryBytes &&
		c.oom.bytes <= quantity.MaxMemoryBytes &&
		(c.newest != 0 || c.observed == 0)
}
