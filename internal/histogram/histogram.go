// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package histogram holds a distribution of values that fades.
//
// Its promises: a quantile is within 3.2 % of the exact one, never falls as q
// rises, and costs some 300 bytes for the load of a usual container, whatever the
// number of values added.
//
// Buckets are log-linear: up to 31 every value has its own, and from there each
// octave (16..31, 32..63, 64..127, ...) is cut into 16 of equal width. A bucket is
// thus at most 1/16 of its values wide, and its middle at most 1/32 off. The bucket
// of a value comes from the position of its highest bit and the four bits behind
// it, without a logarithm:
//
//	value   bucket   holds        answers
//	    4        4   4..4         4
//	   45       38   44..45       44
//	  300       82   288..303     295
//	 1000      111   992..1023    1007
//	1 GiB      432   1..1.0625 GiB
//
// Only the buckets between the least and the greatest value are stored.
//
// Fading is by halving all counts once per half-life, which leaves every quantile
// where it is and weighs what comes later twice as much. When that is due is up to
// the caller: there is no clock here.
package histogram

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"slices"
)

const (
	// subBits is the number of bits that tell apart the buckets of one octave.
	subBits = 4
	perOct  = 1 << subBits
	// bucketCount is one more than the bucket of the greatest int64.
	bucketCount = (62-subBits)*perOct + 2*perOct
)

// Histogram is a distribution of values of at least 0. Its zero value is empty and
// ready for use. It must not be copied once something was added: use Clone.
type Histogram struct {
	// counts are those of the buckets from first on. Neither end is 0, so that equal
	// distributions are equal values.
	counts []uint32
	first  uint16
}

// bucketOf tells the bucket of a value of at least 0.
func bucketOf(value int64) int {
	shift := max(bits.Len64(uint64(value))-subBits-1, 0)
	return shift*perOct + int(value>>shift)
}

// middleOf tells the middle of a bucket, rounded down.
func middleOf(bucket int) int64 {
	if bucket < 2*perOct {
		return int64(bucket)
	}
	shift := bucket/perOct - 1
	lowest := int64(bucket-shift*perOct) << shift
	return lowest + (int64(1)<<shift-1)/2
}

// Add counts a value with a weight. A value below 0 counts as 0. When a bucket
// would overflow, all are halved first: proportions stay.
func (h *Histogram) Add(value int64, weight uint32) {
	if weight == 0 {
		return
	}
	bucket := bucketOf(max(value, 0))
	h.extend(bucket, bucket)
	count := &h.counts[bucket-int(h.first)]
	if *count > math.MaxUint32-weight {
		// Not Halve: it would drop ends, and with them perhaps this bucket.
		for i := range h.counts {
			h.counts[i] >>= 1
		}
		weight >>= 1
		*count += weight
		h.trim()
		return
	}
	*count += weight
}

// extend makes room for the buckets from lowest to highest, and for no more: the
// range of a container's usage soon stops to grow.
func (h *Histogram) extend(lowest, highest int) {
	if len(h.counts) > 0 {
		lowest = min(lowest, int(h.first))
		highest = max(highest, int(h.first)+len(h.counts)-1)
	}
	if highest-lowest+1 == len(h.counts) {
		return
	}
	counts := make([]uint32, highest-lowest+1)
	if len(h.counts) > 0 {
		copy(counts[int(h.first)-lowest:], h.counts)
	}
	h.counts, h.first = counts, uint16(lowest)
}

// trim drops empty buckets at both ends.
func (h *Histogram) trim() {
	lead, end := 0, len(h.counts)
	for lead < end && h.counts[lead] == 0 {
		lead++
	}
	for end > lead && h.counts[end-1] == 0 {
		end--
	}
	switch {
	case lead == end:
		*h = Histogram{}
	case lead > 0 || end < len(h.counts):
		h.counts = slices.Clone(h.counts[lead:end]) // a copy, so that the room is given back
		h.first += uint16(lead)
	}
}

// Halve halves the weight of all that was added so far. Half counts are dropped, so
// that what is old goes for good: a count of 100 is gone after 7 halvings. Weights
// should therefore be well above 1.
func (h *Histogram) Halve() {
	for i := range h.counts {
		h.counts[i] >>= 1
	}
	h.trim()
}

// Merge adds all that other holds. The order of merging does not matter as long as
// no bucket overflows; if one does, all are halved, as with Add.
func (h *Histogram) Merge(other *Histogram) {
	if other.IsEmpty() {
		return
	}
	h.extend(int(other.first), int(other.first)+len(other.counts)-1)
	from := int(other.first) - int(h.first)
	shift := 0
	for i, count := range other.counts {
		if uint64(h.counts[from+i])+uint64(count) > math.MaxUint32 {
			shift = 1
		}
	}
	for i := range h.counts {
		sum := uint64(h.counts[i])
		if i >= from && i < from+len(other.counts) {
			sum += uint64(other.counts[i-from])
		}
		h.counts[i] = uint32(sum >> shift)
	}
	h.trim()
}

// Quantile tells the value below or at which the part q of the weight lies, as the
// middle of its bucket. q is between 0 and 1, and is taken to the nearer end beyond.
// An empty histogram answers 0.
func (h *Histogram) Quantile(q float64) int64 {
	total := h.Total()
	if total == 0 {
		return 0
	}
	rank := uint64(1) // of q = 0, and of NaN
	if q > 0 {
		rank = min(uint64(math.Ceil(min(q, 1)*float64(total))), total)
	}
	below := uint64(0)
	for i, count := range h.counts {
		if below += uint64(count); below >= rank {
			return middleOf(int(h.first) + i)
		}
	}
	return 0 // not reached: below is total now
}

// Total is the sum of all weights.
func (h *Histogram) Total() uint64 {
	total := uint64(0)
	for _, count := range h.counts {
		total += uint64(count)
	}
	return total
}

// IsEmpty tells whether nothing is left of what was added.
func (h *Histogram) IsEmpty() bool { return len(h.counts) == 0 }

// Clone makes a copy that shares nothing.
func (h *Histogram) Clone() Histogram {
	return Histogram{first: h.first, counts: slices.Clone(h.counts)}
}

// AppendBinary appends the encoded histogram: the first bucket, the number of
// buckets and their counts, all as varints. It carries no version: whoever stores
// it has one.
func (h *Histogram) AppendBinary(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(h.first))
	b = binary.AppendUvarint(b, uint64(len(h.counts)))
	for _, count := range h.counts {
		b = binary.AppendUvarint(b, uint64(count))
	}
	return b
}

// ErrEncoding is returned for bytes that AppendBinary has not written.
var ErrEncoding = errors.New("not a histogram")

// DecodeBinary reads a histogram from the beginning of b, and returns what follows
// it. It accepts any bytes, and takes at most 4 KiB of memory for them. Values above
// greatest are an error: a histogram that is read must not be wider than those that
// are written.
func DecodeBinary(b []byte, greatest int64) (Histogram, []byte, error) {
	first, b, ok := uvarint(b, bucketCount-1)
	if !ok {
		return Histogram{}, nil, ErrEncoding
	}
	length, b, ok := uvarint(b, bucketCount)
	if !ok || int(first+length) > bucketOf(max(greatest, 0))+1 || length > uint64(len(b)) {
		return Histogram{}, nil, ErrEncoding
	}
	if length == 0 {
		if first != 0 {
			return Histogram{}, nil, ErrEncoding
		}
		return Histogram{}, b, nil
	}
	h := Histogram{first: uint16(first), counts: make([]uint32, length)}
	for i := range h.counts {
		var count uint64
		if count, b, ok = uvarint(b, math.MaxUint32); !ok {
			return Histogram{}, nil, ErrEncoding
		}
		h.counts[i] = uint32(count)
	}
	if h.counts[0] == 0 || h.counts[length-1] == 0 {
		return Histogram{}, nil, ErrEncoding
	}
	return h, b, nil
}

func uvarint(b []byte, most uint64) (uint64, []byte, bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > most {
		return 0, nil, false
	}
	return v, b[n:], true
}
