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
	Version = 5

	// firstVersion had distributions of CPU usage instead of the ensemble, and secondVersion an
	// ensemble of other usage. Both knew of OOM kills only the floor and the newest. Their memory
	// history is still read. The evidence of CPU starts over, so that no published target is
	// lowered before the same amount of usage has been observed again.
	//
	// thirdVersion had no climbs, and fourthVersion neither the pod template nor insufficient sizes.
	firstVersion  = 1
	secondVersion = 2
	thirdVersion  = 3
	fourthVersion = 4

	// MaxEncoded is the largest accepted encoding, in bytes. Current encodings take less
	// than 2 KB.
	MaxEncoded = 8 << 10
)

// ErrEncoding is returned for bytes that are not an encoded history.
var ErrEncoding = errors.New("not an encoded history")

// Encode encodes a history. Decode returns the same history, except for the rounding of the
// ensemble and its current interval. The encoding is the version, 23 numbers and the 32 peaks as varints, the mean of
// changes and 11 more numbers in four bytes each, and the ensemble. If a start was capped, two varints follow: older operators keep
// such a history, and start over.
func (c *Container) Encode() []byte {
	b := make([]byte, 0, 2048)
	b = append(b, Version)
	for _, v := range c.numbers(Version) {
		b = binary.AppendUvarint(b, uint64(*v))
	}
	for _, peak := range c.peaks {
		b = binary.AppendUvarint(b, uint64(peak))
	}
	b = binary.LittleEndian.AppendUint32(b, math.Float32bits(c.changes))
	for _, v := range c.smallNumbers(Version) {
		b = binary.LittleEndian.AppendUint32(b, *v)
	}
	b = c.cpu.AppendBinary(b)
	if c.start.need > 0 {
		b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(c.start.need)), uint64(c.start.at))
	}
	return b
}

// numbers lists the single numbers of an encoding since the third version, in order.
func (c *Container) numbers(version byte) []*int64 {
	out := append(c.secondNumbers(), &c.oom.need, (*int64)(&c.oom.shown))
	if version > thirdVersion {
		out = append(out, &c.climb.request, (*int64)(&c.climb.at), &c.climb.limit, &c.climb.from, &c.climb.used)
	}
	if version > fourthVersion {
		out = append(out, &c.oom.from)
		for i := range c.templates {
			t := &c.templates[i]
			out = append(out, &t.request, &t.limit, (*int64)(&t.left))
		}
	}
	return out
}

// smallNumbers are encoded in four bytes each, in order.
func (c *Container) smallNumbers(version byte) []*uint32 {
	out := []*uint32{&c.oom.row, &c.oom.counted.until}
	for i := range c.oom.counted.newest {
		out = append(out, &c.oom.counted.newest[i].id, &c.oom.counted.newest[i].at)
	}
	if version > thirdVersion {
		out = append(out, &c.oom.by, &c.climb.perMille, &c.climb.state)
	}
	return out
}

// Decode reads an encoded history. For any bytes, the result is a valid history or an error.
func Decode(b []byte) (Container, error) {
	if len(b) == 0 || len(b) > MaxEncoded {
		return Container{}, fmt.Errorf("%w: %d bytes", ErrEncoding, len(b))
	}
	var c Container
	switch version := b[0]; version {
	case firstVersion, secondVersion:
		return c.startOver(b[1:], version)
	case thirdVersion, fourthVersion, Version:
		return c.decode(b[1:], c.numbers(version), c.smallNumbers(version))
	default:
		return Container{}, fmt.Errorf("%w: version %d", ErrEncoding, version)
	}
}

func (c *Container) decode(b []byte, numbers []*int64, small []*uint32) (Container, error) {
	b, err := readNumbers(b, append(numbers, c.peakNumbers()...))
	if err != nil {
		return Container{}, err
	}
	if len(b) < 4+4*len(small) {
		return Container{}, fmt.Errorf("%w: cut short", ErrEncoding)
	}
	c.changes = math.Float32frombits(binary.LittleEndian.Uint32(b))
	for i, v := range small {
		*v = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	if c.cpu, b, err = ensemble.DecodeBinary(b[4+4*len(small):]); err != nil {
		return Container{}, fmt.Errorf("%w: CPU: %w", ErrEncoding, err)
	}
	if len(b) > 0 {
		if b, err = readNumbers(b, []*int64{&c.start.need, (*int64)(&c.start.at)}); err != nil {
			return Container{}, err
		}
	}
	if len(b) != 0 {
		return Container{}, fmt.Errorf("%w: %d bytes too many", ErrEncoding, len(b))
	}
	if !c.isPossible() {
		return Container{}, fmt.Errorf("%w: values out of range", ErrEncoding)
	}
	return *c, nil
}

// readNumbers reads varints, and returns the bytes after them.
func readNumbers(b []byte, numbers []*int64) ([]byte, error) {
	for _, v := range numbers {
		number, n := binary.Uvarint(b)
		if n <= 0 || number > math.MaxInt64 {
			return nil, fmt.Errorf("%w: cut short", ErrEncoding)
		}
		*v = int64(number)
		b = b[n:]
	}
	return b, nil
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

// secondNumbers are the numbers of the second version, in its order.
func (c *Container) secondNumbers() []*int64 {
	return []*int64{
		(*int64)(&c.observed), &c.newest, &c.samples,
		(*int64)(&c.cpuFrom), (*int64)(&c.slotAge), &c.counted,
		&c.oom.bytes, (*int64)(&c.oom.set), &c.oom.kill,
	}
}

// startOver reads the memory part of a history of an older version. CPU begins without history. All
// kills until the newest one were counted, and the size hit is 5/6 of its floor.
func (c *Container) startOver(b []byte, version byte) (Container, error) {
	numbers := c.firstNumbers()
	if version == secondVersion {
		numbers = c.secondNumbers()
	}
	b, err := readNumbers(b, append(numbers, c.peakNumbers()...))
	if err != nil {
		return Container{}, err
	}
	if version == secondVersion {
		if len(b) < 4 {
			return Container{}, fmt.Errorf("%w: cut short", ErrEncoding)
		}
		c.changes = math.Float32frombits(binary.LittleEndian.Uint32(b))
	}
	c.oom.need = c.oom.bytes / 6 * 5
	c.oom.counted.until = secondsOf(c.oom.kill)
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

// isPossible reports whether samples and kills can lead to this state. The caller has checked that
// all numbers are at least 0.
func (c *Container) isPossible() bool {
	for _, t := range c.templates {
		if max(t.request, t.limit) > quantity.MaxMemoryBytes || t.left > raisedFor {
			return false
		}
	}
	for _, age := range []time.Duration{c.cpuFrom, c.slotAge, c.oom.set, c.oom.shown, c.oom.set + c.oom.shown, c.climb.at, c.start.at} {
		if age > c.observed {
			return false
		}
	}
	for _, at := range []int64{c.newest, c.oom.kill} {
		if at != nanos(fromNanos(at)) {
			return false
		}
	}
	return c.observed <= longest && c.observed <= time.Duration(c.newest) &&
		c.Peak() <= quantity.MaxMemoryBytes &&
		c.oom.bytes <= quantity.MaxMemoryBytes &&
		max(c.oom.need, c.oom.from) <= quantity.MaxMemoryBytes &&
		max(c.climb.request, c.climb.limit, c.climb.from, c.climb.used) <= quantity.MaxMemoryBytes &&
		c.climb.state <= isFollowed && (!c.climb.hasEnded() || c.climb.request > 0) &&
		int(c.oom.row) < len(steps) &&
		c.start.need <= quantity.MaxCPUMillis &&
		c.counted <= mostCounted-firstCounted &&
		c.changes >= 0 && c.changes <= greatestChange
}
