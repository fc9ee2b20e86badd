// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/ensemble"
)

const (
	// Version is the version of the encoding. It is also its first byte, so that the
	// encoding describes itself.
	Version = 2

	// firstVersion had distributions of CPU usage instead of the ensemble. Its memory
	// history is still read. The evidence of CPU starts over, so that no published target is
	// lowered before the same amount of usage has been observed again.
	firstVersion = 1

	// MaxEncoded is the largest accepted encoding, in bytes. Current encodings take less
	// than 2 KB.
	MaxEncoded = 8 << 10
)

// ErrEncoding is returned for bytes that are not an encoded history.
var ErrEncoding = errors.New("not an encoded history")

// Encode encodes a history. Decode returns the same history, except for the rounding of the
// ensemble. The encoding is the version, nine numbers and the 32 peaks as varints, the mean of
// changes, and the ensemble.
func (c *Container) Encode() []byte {
	b := make([]byte, 0, 2048)
	b = append(b, Version)
	for _, v := range c.numbers() {
		b = binary.AppendUvarint(b, uint64(*v))
	}
	for _, peak := range c.peaks {
		b = binary.AppendUvarint(b, uint64(peak))
	}
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(c.changes))
	return c.cpu.AppendBinary(b)
}

// numbers lists what is encoded as a single number, in order.
func (c *Container) numbers() []*int64 {
	return []*int64{
		(*int64)(&c.observed), &c.newest, &c.samples,
		(*int64)(&c.cpuFrom), (*int64)(&c.slotAge), &c.counted,
		&c.oom.bytes, (*int64)(&c.oom.set), &c.oom.kill,
	}
}

// Decode reads an encoded history. For any bytes, the result is a valid history or an error.
func Decode(b []byte) (Container, error) {
	if len(b) == 0 || len(b) > MaxEncoded {
		return Container{}, fmt.Errorf("%w: %d bytes", ErrEncoding, len(b))
	}
	version := b[0]
	if version != Version && version != firstVersion {
		return Container{}, fmt.Errorf("%w: version %d", ErrEncoding, version)
	}
	b = b[1:]

	var c Container
	numbers := c.numbers()
	if version == firstVersion {
		numbers = c.firstNumbers()
	}
	for _, v := range append(numbers, c.peakNumbers()...) {
		number, n := binary.Uvarint(b)
		if n <= 0 || number > 1<<63-1 {
			return Container{}, fmt.Errorf("%w: cut short", ErrEncoding)
		}
		*v = int64(number)
		b = b[n:]
	}
	if version == firstVersion {
		return c.startOver()
	}
	if len(b) < 4 {
		return Container{}, fmt.Errorf("%w: cut short", ErrEncoding)
	}
	c.changes = math.Float32frombits(binary.LittleEndian.Uint32(b))
	var err error
	if c.cpu, b, err = ensemble.DecodeBinary(b[4:]); err != nil {
		return Container{}, fmt.Errorf("%w: CPU: %w", ErrEncoding, err)
	}
	if len(b) != 0 {
		return Container{}, fmt.Errorf("%w: %d bytes too many", ErrEncoding, len(b))
	}
	if !c.isPossible() {
		return Container{}, fmt.Errorf("%w: values out of range", ErrEncoding)
	}
	return c, nil
}

// firstNumbers are the numbers of the first version, in its order.
func (c *Container) firstNumbers() []*int64 {
	var cpuAge, recentAge int64
	return []*int64{
		(*int64)(&c.observed), &c.newest,
		&cpuAge, &recentAge, (*int64)(&c.slotAge),
		&c.oom.bytes, (*int64)(&c.oom.set), &c.oom.kill,
	}
}

// startOver keeps the memory part of a history of the first version. CPU begins without
// history.
func (c *Container) startOver() (Container, error) {
	if !c.isPossible() {
		return Container{}, fmt.Errorf("%w: values out of range", ErrEncoding)
	}
	c.cpuFrom = c.observed
	return *c, nil
}

// greatestChange is ln of the greatest amount of memory: no change is larger.
const greatestChange = 64

func (c *Container) peakNumbers() []*int64 {
	peaks := make([]*int64, slotCount)
	for i := range peaks {
		peaks[i] = &c.peaks[i]
	}
	return peaks
}

// isPossible says whether samples and kills can lead to this state. The caller has checked that
// all numbers are at least 0.
func (c *Container) isPossible() bool {
	for _, age := range []time.Duration{c.cpuFrom, c.slotAge, c.oom.set} {
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
		c.counted <= mostCounted-firstCounted &&
		c.changes >= 0 && c.changes <= greatestChange &&
		(c.newest != 0 || c.observed == 0)
}
