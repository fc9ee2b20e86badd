// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package vpa

import "math"

const (
	cpuSampleWeight  = 0.1 // of a CPU sample before it is aged
	peakSampleWeight = 1.0 // of a daily peak of memory

	// empty is the weight below which a bucket counts as empty.
	empty = 0.001 * cpuSampleWeight

	halfLife = 24 * 60 * 60 // seconds
	// longestExponent is the number of half-lives after which weights are scaled down.
	longestExponent = 100
)

// scheme has the starts of the buckets of a histogram. The first is as wide as given, each further
// one wider by the growth, and the last has no end.
type scheme struct {
	first  float64
	starts []float64
}

var (
	// growth is the ratio of the width of a bucket to the one below it. It is a variable because the
	// library computes with float64: of a constant, growth-1 would be exactly 0.05, and some buckets
	// would begin a byte later.
	growth = 1.05

	cpuScheme    = newScheme(0.01, 1000) // cores
	memoryScheme = newScheme(1e7, 1e12)  // bytes
	logGrowth    = math.Log(growth)
)

func newScheme(first, most float64) *scheme {
	buckets := int(math.Ceil(math.Log(most*(growth-1)/first+1)/math.Log(growth))) + 1
	s := &scheme{first: first, starts: make([]float64, buckets)}
	for b := 1; b < buckets; b++ {
		s.starts[b] = first * (math.Pow(growth, float64(b)) - 1) / (growth - 1)
	}
	return s
}

func (s *scheme) bucketOf(value float64) int {
	if value < s.first {
		return 0
	}
	return min(int(math.Log(value*(growth-1)/s.first+1)/logGrowth), len(s.starts)-1)
}

// histogram is a distribution whose samples lose half of their weight each half-life. Instead of
// lighter old samples it has heavier new ones, relative to a moment that advances when the numbers
// become too large.
type histogram struct {
	*scheme

	weights []float64
	total   float64
	// lowest and highest enclose all buckets that are not empty.
	lowest, highest int
	// reference is the moment at which a sample weighs as much as is given for it. It is
	// a whole number of half-lives, in seconds since 1970.
	reference int64
	isUsed    bool
}

func newHistogram(s *scheme) histogram {
	return histogram{scheme: s, weights: make([]float64, len(s.starts)), lowest: len(s.starts) - 1}
}

func (h *histogram) add(value, weight float64, at int64) {
	b, weight := h.bucketOf(value), weight*h.factor(at)
	h.weights[b] += weight
	h.total += weight
	if h.weights[b] >= empty {
		h.lowest, h.highest = min(h.lowest, b), max(h.highest, b)
	}
}

// remove takes a sample back that was added for the same moment.
func (h *histogram) remove(value, weight float64, at int64) {
	b, weight := h.bucketOf(value), weight*h.factor(at)
	h.total = less(h.total, weight)
	h.weights[b] = less(h.weights[b], weight)
	h.enclose()
}

func less(a, b float64) float64 {
	if a -= b; a < empty {
		return 0
	}
	return a
}

// enclose moves the ends inwards, over buckets that have become empty.
func (h *histogram) enclose() {
	last := len(h.weights) - 1
	for h.lowest < last && h.weights[h.lowest] < empty {
		h.lowest++
	}
	for h.highest > 0 && h.weights[h.highest] < empty {
		h.highest--
	}
}

// factor is the weight of a sample of this moment relative to the reference.
func (h *histogram) factor(at int64) float64 {
	if !h.isUsed {
		h.isUsed, h.reference = true, wholeHalfLives(at)
	} else if at > h.reference+longestExponent*halfLife {
		h.moveTo(wholeHalfLives(at))
	}
	return math.Exp2(float64(at-h.reference) / halfLife)
}

// wholeHalfLives rounds to the nearest whole number of half-lives, and up in the middle.
func wholeHalfLives(at int64) int64 {
	rest := at % halfLife
	if rest < 0 {
		rest += halfLife
	}
	if at -= rest; rest*2 >= halfLife {
		at += halfLife
	}
	return at
}

func (h *histogram) moveTo(reference int64) {
	factor := math.Ldexp(1, int((h.reference-reference)/halfLife))
	for b := h.lowest; b <= h.highest; b++ {
		h.weights[b] *= factor
	}
	h.total *= factor
	h.reference = reference
	h.enclose()
}

// quantiles are the ends of the buckets with these parts of the weight; 0 in an empty histogram.
// The parts must not fall.
func (h *histogram) quantiles(parts [3]float64) (values [3]float64) {
	if h.weights[h.lowest] < empty {
		return values
	}
	sum, found := 0.0, 0
	for b := h.lowest; b < h.highest && found < len(parts); b++ {
		sum += h.weights[b]
		for found < len(parts) && sum >= parts[found]*h.total {
			values[found] = h.end(b)
			found++
		}
	}
	for ; found < len(parts); found++ {
		values[found] = h.end(h.highest)
	}
	return values
}

// end is the end of a bucket; for the last one, which has none, its start.
func (h *histogram) end(b int) float64 { return h.starts[min(b+1, len(h.starts)-1)] }
