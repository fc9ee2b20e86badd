// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package row

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

func TestProportional(t *testing.T) {
	const mebi = 1 << 20
	cases := map[string]struct {
		request, shapeRequest, shapeLimit, current, most, want int64
	}{
		"twice stays twice":                           {300, 100, 200, 250, 1000, 600},
		"equal stays equal":                           {300, 200, 200, 200, 1000, 300},
		"a shape without request counts as equal":     {300, 0, 200, 200, 1000, 300},
		"a shape without limit leaves the limit":      {300, 100, 0, 400, 1000, 400},
		"but not below the request":                   {300, 100, 0, 200, 1000, 300},
		"a part is rounded up":                        {10, 3, 7, 0, 1000, 24},
		"what is whole is not rounded up":             {3, 3, 10, 0, 1000, 10},
		"a proportion of 1.1 adds no byte":            {1000 * mebi, 100 * mebi, 110 * mebi, 0, quantity.MaxMemoryBytes, 1100 * mebi},
		"no overflow for the most memory":             {quantity.MaxMemoryBytes, 2, quantity.MaxMemoryBytes, 0, quantity.MaxMemoryBytes, quantity.MaxMemoryBytes},
		"no more CPU than is believed":                {5_000_000, 2, 2000, 0, quantity.MaxCPUMillis, quantity.MaxCPUMillis},
		"a shape that requests nothing has none":      {300, quantity.Smallest, 200, 200, 1000, 300},
		"and leaves its limit":                        {100, quantity.Smallest, 200, 300, 1000, 200},
		"never below the request, whatever the shape": {300, 200, 100, 100, 1000, 300},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := proportional(tc.request, tc.shapeRequest, tc.shapeLimit, tc.current, tc.most); got != tc.want {
				t.Errorf("proportional() = %d, want %d", got, tc.want)
			}
		})
	}
}

// A ratio is met to the last byte, as the API server works it out.
func TestRatios(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100_000 {
		amount, ratio := 1+r.Int64N(quantity.MaxMemoryBytes), 1000+r.Int64N(20_000)
		if r.IntN(2) == 0 {
			amount = 1 + r.Int64N(10_000)
		}
		limit := mostLimit(amount, ratio)
		if limit < amount || Exceeds(limit, amount, ratio) {
			t.Fatalf("seed %d: mostLimit(%d, %d) = %d", seed, amount, ratio, limit)
		}
		request := leastRequest(amount, ratio)
		if request < 1 || request > amount || Exceeds(amount, request, ratio) {
			t.Fatalf("seed %d: leastRequest(%d, %d) = %d", seed, amount, ratio, request)
		}
	}
}

func TestMulDiv(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 100_000 {
		a, b, c := r.Int64()>>r.IntN(63), r.Int64()>>r.IntN(63), 1+r.Int64()>>r.IntN(63)
		c = max(c, 1)
		quotient, rest := new(big.Int).QuoRem(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(c), new(big.Int))
		for _, up := range []bool{false, true} {
			want := new(big.Int).Set(quotient)
			if up && rest.Sign() > 0 {
				want.Add(want, big.NewInt(1))
			}
			if !want.IsInt64() {
				want.SetInt64(math.MaxInt64)
			}
			if got := MulDiv(a, b, c, up); got != want.Int64() {
				t.Fatalf("seed %d: MulDiv(%d, %d, %d, %t) = %d, want %d", seed, a, b, c, up, got, want)
			}
		}
	}
}
