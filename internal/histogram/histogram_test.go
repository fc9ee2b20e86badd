// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package histogram

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
)

func TestBuckets(t *testing.T) {
	cases := map[string]struct {
		value  int64
		bucket int
		middle int64
	}{
		"nothing has a bucket of its own":          {value: 0, bucket: 0, middle: 0},
		"small values have a bucket of their own":  {value: 4, bucket: 4, middle: 4},
		"the last value with its own bucket":       {value: 31, bucket: 31, middle: 31},
		"the first bucket of two values":           {value: 33, bucket: 32, middle: 32},
		"45 shares with 44":                        {value: 45, bucket: 38, middle: 44},
		"300 is in the middle of 16":               {value: 300, bucket: 82, middle: 295},
		"the last bucket of an octave":             {value: 1000, bucket: 111, middle: 1007},
		"memory":                                   {value: 1 << 30, bucket: 432, middle: 1<<30 + 1<<25 - 1},
		"the greatest value is in the last bucket": {value: math.MaxInt64, bucket: bucketCount - 1, middle: 31<<58 + 1<<57 - 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := bucketOf(tc.value); got != tc.bucket {
				t.Errorf("bucketOf(%d) = %d, want %d", tc.value, got, tc.bucket)
			}
			if got := middleOf(tc.bucket); got != tc.middle {
				t.Errorf("middleOf(%d) = %d, want %d", tc.bucket, got, tc.middle)
			}
		})
	}
}

func TestEveryMiddleIsInItsBucket(t *testing.T) {
	last := int64(-1)
	for bucket := range bucketCount {
		middle := middleOf(bucket)
		if got := bucketOf(middle); got != bucket || middle <= last {
			t.Fatalf("bucket %d: its middle %d is in bucket %d; the one before was %d", bucket, middle, got, last)
		}
		last = middle
	}
}

// shapes are a day of CPU usage at one sample a minute, in millicores.
var shapes = map[string]func(r *rand.Rand, minute int) float64{
	"tiny":     func(r *rand.Rand, _ int) float64 { return 4 + 2*r.Float64() },
	"small":    func(r *rand.Rand, _ int) float64 { return 45 + 10*r.NormFloat64() },
	"constant": func(*rand.Rand, int) float64 { return 250 },
	"diurnal": func(r *rand.Rand, m int) float64 {
		return 500 + 400*math.Sin(float64(m)/1440*2*math.Pi) + 20*r.NormFloat64()
	},
	"spiky": func(r *rand.Rand, m int) float64 {
		if m%60 < 3 {
			return 4000 + 100*r.NormFloat64()
		}
		return 100 + 5*r.NormFloat64()
	},
	"heavy tail": func(r *rand.Rand, _ int) float64 { return 50 / math.Pow(r.Float64()+1e-4, 0.7) },
}

func TestQuantilesAreWithin3Point2Percent(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			var h Histogram
			values := make([]int64, 8*1440)
			for i := range values {
				values[i] = max(int64(shape(r, i)), 0)
				h.Add(values[i], 64)
			}
			slices.Sort(values)
			for _, q := range []float64{0, 0.01, 0.5, 0.9, 0.95, 0.99, 0.999, 1} {
				exact := values[max(int(math.Ceil(q*float64(len(values))))-1, 0)]
				got := h.Quantile(q)
				if off := math.Abs(float64(got-exact)) / max(float64(exact), 1); off > 0.032 {
					t.Errorf("Quantile(%v) = %d, want %d: %.1f %% off", q, got, exact, off*100)
				}
			}
		})
	}
}

func TestQuantileOfFewValues(t *testing.T) {
	var empty, h Histogram
	h.Add(10, 1)
	h.Add(20, 2)
	h.Add(30, 1)
	cases := map[string]struct {
		h    *Histogram
		q    float64
		want int64
	}{
		"an empty histogram answers 0":           {h: &empty, q: 0.5, want: 0},
		"0 is the least":                         {h: &h, q: 0, want: 10},
		"a quarter is still the least":           {h: &h, q: 0.25, want: 10},
		"just above it is the next":              {h: &h, q: 0.26, want: 20},
		"weight counts":                          {h: &h, q: 0.75, want: 20},
		"1 is the greatest":                      {h: &h, q: 1, want: 30},
		"beyond the end is the end":              {h: &h, q: math.Inf(1), want: 30},
		"before the beginning is the beginning":  {h: &h, q: math.Inf(-1), want: 10},
		"not a number is the least, not a panic": {h: &h, q: math.NaN(), want: 10},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.h.Quantile(tc.q); got != tc.want {
				t.Errorf("Quantile(%v) = %d, want %d", tc.q, got, tc.want)
			}
		})
	}
}

func TestHalvingKeepsProportionsAndForgets(t *testing.T) {
	var h Histogram
	h.Add(1000, 100)
	for range 6 {
		h.Halve()
	}
	h.Add(10, 64)
	if got := h.Total(); got != 65 {
		t.Errorf("Total() = %d, want 1 + 64", got)
	}
	if h.Halve(); h.Quantile(1) != 10 || len(h.counts) != 1 {
		t.Errorf("the old value is still there after 7 halvings: %+v", h)
	}
	for range 6 {
		h.Halve()
	}
	if !h.IsEmpty() {
		t.Errorf("something is left: %+v", h)
	}
}

func TestAFullBucketHalvesAll(t *testing.T) {
	var h Histogram
	h.Add(10, math.MaxUint32)
	h.Add(20, math.MaxUint32)
	h.Add(5, 1) // dropped with the halving
	h.Add(10, 200)
	want := Histogram{first: 10, counts: []uint32{1<<31 - 1 + 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1<<31 - 1}}
	if diff := cmp.Diff(want, h, cmp.AllowUnexported(Histogram{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	other := h.Clone()
	other.Add(10, 1<<31)
	h.Merge(&other)
	if got, want := h.Quantile(0.5), int64(10); got != want {
		t.Errorf("Quantile(0.5) after an overflowing merge = %d, want %d", got, want)
	}
}

func TestACloneSharesNothing(t *testing.T) {
	var h Histogram
	h.Add(10, 1)
	clone := h.Clone()
	clone.Add(10, 1)
	if h.Total() != 1 || clone.Total() != 2 {
		t.Errorf("totals are %d and %d, want 1 and 2", h.Total(), clone.Total())
	}
}

// fromBytes makes a histogram of any bytes: 2 for the value, 1 for the weight.
func fromBytes(b []byte) Histogram {
	var h Histogram
	for ; len(b) >= 3; b = b[3:] {
		value := int64(binary.LittleEndian.Uint16(b)>>4) << (b[0] & 0xf)
		h.Add(value, uint32(b[2]))
	}
	return h
}

func FuzzHistogram(f *testing.F) {
	f.Add([]byte{1, 2, 3, 200, 9, 255, 16, 0, 64}, []byte{7, 7, 7}, []byte{0, 255, 1}, 0.5, 0.9)
	f.Fuzz(func(t *testing.T, a, b, c []byte, p, q float64) {
		x, y, z := fromBytes(a), fromBytes(b), fromBytes(c)
		if p <= q && x.Quantile(p) > x.Quantile(q) {
			t.Errorf("Quantile(%v) = %d is above Quantile(%v) = %d", p, x.Quantile(p), q, x.Quantile(q))
		}

		xyz, zyx := x.Clone(), z.Clone()
		xyz.Merge(&y)
		xyz.Merge(&z)
		zyx.Merge(&y)
		zyx.Merge(&x)
		if diff := cmp.Diff(xyz, zyx, cmp.AllowUnexported(Histogram{})); diff != "" {
			t.Errorf("the order of merging matters (-xyz +zyx):\n%s", diff)
		}

		encoded := xyz.AppendBinary([]byte("before"))
		decoded, rest, err := DecodeBinary(append(encoded[len("before"):], "after"...), math.MaxInt64)
		if err != nil || string(rest) != "after" {
			t.Fatalf("DecodeBinary() = %q, %v", rest, err)
		}
		if diff := cmp.Diff(xyz, decoded, cmp.AllowUnexported(Histogram{})); diff != "" {
			t.Errorf("encoding does not round-trip (-want +got):\n%s", diff)
		}
	})
}

func FuzzDecodeBinary(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0})
	f.Add([]byte{10, 2, 1, 1, 99})
	f.Fuzz(func(t *testing.T, b []byte) {
		const greatest = 10_000_000
		h, _, err := DecodeBinary(b, greatest)
		if err != nil {
			return
		}
		if len(h.counts) > bucketCount || h.Quantile(1) > greatest+greatest/16 {
			t.Errorf("%d buckets up to %d were accepted", len(h.counts), h.Quantile(1))
		}
		h.Add(1, 1)
		h.Halve()
	})
}

func TestHostileBytesAreRefused(t *testing.T) {
	cases := map[string][]byte{
		"nothing":                              {},
		"only the first bucket":                {1},
		"a varint without an end":              {0xff, 0xff},
		"a first bucket beyond the last":       binary.AppendUvarint(nil, bucketCount),
		"more buckets than there are":          {1, 0xff, 0x7f, 1},
		"more buckets than bytes":              {1, 5, 1, 1},
		"a value above the greatest":           {100, 1, 1},
		"a count above 32 bits":                append([]byte{1, 1}, binary.AppendUvarint(nil, 1<<32)...),
		"an empty first bucket":                {1, 2, 0, 1},
		"an empty last bucket":                 {1, 2, 1, 0},
		"a first bucket of an empty histogram": {1, 0},
	}
	for name, b := range cases {
		t.Run(name, func(t *testing.T) {
			if h, _, err := DecodeBinary(b, 100); err == nil {
				t.Errorf("DecodeBinary(%v) = %+v, want an error", b, h)
			}
		})
	}
}

func TestSizeOfAUsualHistogram(t *testing.T) {
	for name, shape := range shapes {
		r := rand.New(rand.NewPCG(1, 2))
		var h Histogram
		for i := range 8 * 1440 {
			h.Add(int64(max(shape(r, i), 0)), 64)
			if i%1440 == 1439 {
				h.Halve()
			}
		}
		encoded := len(h.AppendBinary(nil))
		memory := int(unsafe.Sizeof(h)) + 4*cap(h.counts)
		t.Logf("%s: %d B in memory, %d B encoded", name, memory, encoded)
		if memory > 1024 || encoded > 512 {
			t.Errorf("%s takes %d B in memory and %d B encoded, want at most 1024 and 512", name, memory, encoded)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	values := make([]int64, 4096)
	for i := range values {
		values[i] = int64(shapes["diurnal"](r, i))
	}
	var h Histogram
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		h.Add(values[i&4095], 1)
		i++
	}
}

func BenchmarkQuantile(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	var h Histogram
	for i := range 1440 {
		h.Add(int64(shapes["diurnal"](r, i)), 64)
	}
	b.ReportAllocs()
	for b.Loop() {
		h.Quantile(0.95)
	}
}
