// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

const refused = -1

func TestConversionIsExactOrRefused(t *testing.T) {
	cases := map[string]struct {
		quantity    string
		cpuMillis   int64
		memoryBytes int64
	}{
		"zero is a number":                         {"0", 0, 0},
		"minus zero is zero":                       {"-0", 0, 0},
		"millicores":                               {"250m", 250, 1},
		"cores, or bytes":                          {"2", 2000, 2},
		"a fraction":                               {"0.25", 250, 1},
		"a trailing point":                         {"5.", 5000, 5},
		"a leading point":                          {".5", 500, 1},
		"an exponent":                              {"5e-1", 500, 1},
		"parts of a unit are rounded up":           {"187500u", 188, 1},
		"the least there is is rounded up":         {"1n", 1, 1},
		"less than that is the least there is":     {"1e-30", 1, 1},
		"a binary fraction":                        {"1.1Ki", 1126400, 1127},
		"the most CPU":                             {"10k", 10_000_000, 10_000},
		"a nano-core above the most CPU":           {"10000000000001n", refused, 10_001},
		"a millicore above the most CPU":           {"10000001m", refused, 10_001},
		"usual memory is absurd CPU":               {"512Mi", refused, 512 << 20},
		"the most memory":                          {"1Pi", refused, 1 << 50},
		"a byte above the most memory":             {"1125899906842625", refused, refused},
		"a part of a byte above the most memory":   {"1125899906842624001m", refused, refused},
		"the least below zero":                     {"-1n", refused, refused},
		"below zero":                               {"-1", refused, refused},
		"far below zero":                           {"-1e18", refused, refused},
		"below every integer":                      {"-1e999", refused, refused},
		"MilliValue of this is 0":                  {"1e18", refused, refused},
		"Value of this is 0":                       {"1e19", refused, refused},
		"Value of this is 0 and its float is Inf":  {"1e999", refused, refused},
		"MilliValue of this is -1000":              {"9223372036854775807", refused, refused},
		"Value of this is the least integer":       {"9223372036854775808", refused, refused},
		"MilliValue of this capped value is -1000": {"10Ei", refused, refused},
		"1e99999999 would take minutes to compare": {"1e99999999", refused, refused},
		"29 digits":                                {"12345678901234567890123456789", refused, refused},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			q := resource.MustParse(tc.quantity)
			verdict(t, "CPUMillis", tc.cpuMillis, CPUMillis, q)
			verdict(t, "MemoryBytes", tc.memoryBytes, MemoryBytes, q)
		})
	}
}

func verdict(t *testing.T, what string, want int64, convert func(resource.Quantity) (int64, error), q resource.Quantity) {
	t.Helper()
	got, err := convert(q)
	switch {
	case want == refused && (err == nil || got != 0):
		t.Errorf("%s(%s) = %d, %v, want 0 and an error", what, q.String(), got, err)
	case want != refused && (err != nil || got != want):
		t.Errorf("%s(%s) = %d, %v, want %d", what, q.String(), got, err, want)
	}
}

func TestRefusalsNameWhatIsAllowed(t *testing.T) {
	_, err := CPUMillis(resource.MustParse("-1"))
	if got, want := err.Error(), "CPU of -1 is out of range: allowed is 0 to 10k"; got != want {
		t.Errorf("CPUMillis(-1) = %q, want %q", got, want)
	}
	_, err = MemoryBytes(resource.MustParse("2Pi"))
	if got, want := err.Error(), "memory of 2Pi is out of range: allowed is 0 to 1Pi"; got != want {
		t.Errorf("MemoryBytes(2Pi) = %q, want %q", got, want)
	}
}

// The API server would store our quantities as we write them.
func TestQuantitiesAreCanonical(t *testing.T) {
	for millis, want := range map[int64]string{0: "0", 1: "1m", 310: "310m", 1000: "1", 1500: "1500m", 12_500: "12500m", MaxCPUMillis: "10k"} {
		q := CPU(millis)
		if got := q.String(); got != want {
			t.Errorf("CPU(%d) is %s, want %s", millis, got, want)
		}
		verdict(t, "CPUMillis", millis, CPUMillis, resource.MustParse(want))
	}
	for bytes, want := range map[int64]string{0: "0", 1: "1", 1024: "1Ki", 640 << 20: "640Mi", 1 << 30: "1Gi", 1000: "1k", 1<<20 + 1: "1048577", MaxMemoryBytes: "1Pi"} {
		q := Memory(bytes)
		if got := q.String(); got != want {
			t.Errorf("Memory(%d) is %s, want %s", bytes, got, want)
		}
		verdict(t, "MemoryBytes", bytes, MemoryBytes, resource.MustParse(want))
	}
}

func TestRoundMemory(t *testing.T) {
	for in, want := range map[int64]int64{
		0:            0,
		1:            64 << 10,
		64 << 10:     64 << 10,
		10*mebi + 1:  10*mebi + 64<<10,
		64 * mebi:    64 * mebi,
		100*mebi + 1: 101 * mebi,
		1 << 50:      1 << 50,
	} {
		if got := RoundMemory(in); got != want {
			t.Errorf("RoundMemory(%d) = %d, want %d", in, got, want)
		}
	}
}

func TestFormatCPU(t *testing.T) {
	for millis, want := range map[int64]string{
		0: "0m", 1: "1m", 310: "310m", 2000: "2000m", 9999: "9999m",
		10_000: "10", 10_001: "10", 12_500: "12.5", 12_340: "12.34", 99_999: "100", 128_000: "128",
		1_234_567: "1234.57", 9_999_999: "10000", MaxCPUMillis: "10000",
	} {
		if got := FormatCPU(millis); got != want {
			t.Errorf("FormatCPU(%d) = %q, want %q", millis, got, want)
		}
	}
}

func TestFormatMemory(t *testing.T) {
	for bytes, want := range map[int64]string{
		0: "0Mi", 1024: "1Ki", 64 << 10: "64Ki", 1<<20 - 1: "1024Ki", 1 << 20: "1Mi", 3 << 19: "1.5Mi",
		640 << 20: "640Mi", 640<<20 + 1: "640Mi", 4294967296: "4096Mi",
		10<<30 - 1: "10240Mi", 10 << 30: "10Gi", 16 << 30: "16Gi", 33 << 29: "16.5Gi", MaxMemoryBytes: "1048576Gi",
	} {
		if got := FormatMemory(bytes); got != want {
			t.Errorf("FormatMemory(%d) = %q, want %q", bytes, got, want)
		}
	}
}

// Where the accessors of resource.Quantity answer nonsense, the conversions must
// refuse; and where they do not refuse, the answer is in range and rounded up by
// less than one.
func FuzzConversion(f *testing.F) {
	for _, s := range []string{
		"0", "-1", "1n", "187500u", "0.5m", "1e18", "1e19", "1e999", "-1e999", "1e99999", "0e70", "9223372036854775807", "9223372036854775808",
		"10Ei", "5.", ".5", "1e-30", "NaN", "10k", "1Pi", "1125899906842625", "1.1Gi", "12345678901234567890123456789",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if i := strings.LastIndexAny(s, "eE"); i >= 0 && len(s)-i > 6 {
			return // ParseQuantity takes minutes for 1e-99999999
		}
		q, err := resource.ParseQuantity(s)
		if err != nil {
			return // not a quantity
		}
		exactly(t, q, MaxCPUMillis, resource.Milli, CPUMillis)
		exactly(t, q, MaxMemoryBytes, 0, MemoryBytes)
	})
}

func exactly(t *testing.T, q resource.Quantity, most int64, scale resource.Scale, convert func(resource.Quantity) (int64, error)) {
	t.Helper()
	got, err := convert(q.DeepCopy())
	if err != nil {
		if got != 0 {
			t.Errorf("%s was refused and is still %d", q.String(), got)
		}
		copied := q.DeepCopy()
		if scale := copied.AsDec().Scale(); scale < -40 || scale > 40 {
			return // comparing would take forever, and rejecting 0e70 loses nothing
		}
		if q.Sign() >= 0 && q.Cmp(*resource.NewScaledQuantity(most, scale)) <= 0 {
			t.Errorf("%s was refused, but it is in range: %v", q.String(), err)
		}
		return
	}
	if got < 0 || got > most {
		t.Fatalf("%s became %d, which is out of range", q.String(), got)
	}
	if up := resource.NewScaledQuantity(got, scale); up.Cmp(q) < 0 {
		t.Errorf("%s became %d, which is less", q.String(), got)
	}
	if got > 0 {
		if down := resource.NewScaledQuantity(got-1, scale); down.Cmp(q) >= 0 {
			t.Errorf("%s became %d, but %d would do", q.String(), got, got-1)
		}
	}
}
