// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package row

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// proportional keeps the limit's proportion to the request, rounded up so that it never falls below. A shape without
// a request counts as one whose request equals its limit, as in the API server. A shape without a limit gives no
// proportion: the current limit stays, but never below the request. So does the limit of a shape that requests
// nothing, or next to nothing: such a proportion would be absurd.
//
//	request 300, shape 100/200 → 600    request 300, shape -/200 → 300    request 300, shape 0/200 → 300    request 100, shape 0/200 → 200
func proportional(request, shapeRequest, shapeLimit, current, most int64) int64 {
	if shapeLimit == 0 {
		return max(current, request)
	}
	switch shapeRequest {
	case 0:
		shapeRequest = shapeLimit
	case quantity.Smallest:
		return max(shapeLimit, request)
	}
	return max(request, min(MulDiv(request, shapeLimit, shapeRequest, true), most))
}

// mostLimit is the highest limit that a limit:request ratio allows a request. 0 means no ratio.
func mostLimit(request, ratio int64) int64 {
	if ratio == 0 {
		return math.MaxInt64
	}
	limit := MulDiv(request, ratio, 1000, false)
	for limit > request && Exceeds(limit, request, ratio) {
		limit--
	}
	return limit
}

// leastRequest is the least request that a limit:request ratio allows a limit; 0 without one of the two.
func leastRequest(limit, ratio int64) int64 {
	if min(limit, ratio) == 0 {
		return 0
	}
	request := MulDiv(limit, 1000, ratio, true)
	for request < limit && Exceeds(limit, request, ratio) {
		request++
	}
	return request
}

// Exceeds is the API server's own rule for a ratio, with its own rounding. 0 means no ratio.
func Exceeds(limit, request, ratio int64) bool {
	return float64(limit)/float64(request)*1000 > cmp.Or(float64(ratio), math.Inf(1))
}

// Scale is a percentage of an amount, rounded up, without overflow on the way.
func Scale(amount, percent int64) int64 { return MulDiv(amount, percent, 100, true) }

// ScaleTo is the limit once its request moves from one amount to another, in the same proportion. It is
// rounded up if it rises, and down if it falls, so that the way back ends where it began.
func ScaleTo(limit, from, to int64) int64 { return MulDiv(limit, to, from, to > from) }

// MulDiv is a*b/c for positive amounts, without overflow on the way.
func MulDiv(a, b, c int64, up bool) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if up {
		var carry uint64
		low, carry = bits.Add64(low, uint64(c-1), 0)
		high += carry
	}
	if high >= uint64(c) {
		return math.MaxInt64
	}
	quotient, _ := bits.Div64(high, low, uint64(c))
	return int64(min(quotient, math.MaxInt64))
}
