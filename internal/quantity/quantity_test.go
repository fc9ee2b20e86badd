// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package quantity

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func TestConversions(t *testing.T) {
	cases := map[string]struct {
		convert func(resource.Quantity) (int64, error)
		in      string
		want    int64 // -1 for an error
	}{
		"whole cores":                        {convert: CPUMillis, in: "2", want: 2000},
		"millicores":                         {convert: CPUMillis, in: "250m", want: 250},
		"nanocores are rounded up":           {convert: CPUMillis, in: "12345678n", want: 13},
		"no CPU":                             {convert: CPUMillis, in: "0", want: 0},
		"the most CPU":                       {convert: CPUMillis, in: "10k", want: 10_000_000},
		"a nanocore too much":                {convert: CPUMillis, in: "10000000000001n", want: -1},
		"negative CPU":                       {convert: CPUMillis, in: "-1n", want: -1},
		"CPU whose millicores overflow to 0": {convert: CPUMillis, in: "1e18", want: -1},
		"CPU whose millicores overflow":      {convert: CPUMillis, in: "9223372036854775807", want: -1},
		"binary memory":                      {convert: MemoryBytes, in: "1536Ki", want: 1536 << 10},
		"decimal memory":                     {convert: MemoryBytes, in: "1M", want: 1_000_000},
		"parts of a byte are rounded up":     {convert: MemoryBytes, in: "1500m", want: 2},
		"the most memory":                    {convert: MemoryBytes, in: "1Pi", want: 1 << 50},
		"a byte too much":                    {convert: MemoryBytes, in: "1125899906842625", want: -1},
		"negative memory":                    {convert: MemoryBytes, in: "-1", want: -1},
		"memory that reads as 0":             {convert: MemoryBytes, in: "1e999", want: -1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := tc.convert(resource.MustParse(tc.in))
			if (err != nil) != (tc.want < 0) || err == nil && got != tc.want {
				t.Errorf("converting %s: %d, %v; want %d", tc.in, got, err, tc.want)
			}
		})
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

func TestFormats(t *testing.T) {
	cases := map[string]string{
		FormatCPU(310):               "310m",
		FormatCPU(2000):              "2000m",
		FormatCPU(12_500):            "12.5",
		FormatCPU(20_000):            "20",
		FormatMemory(640 * mebi):     "640Mi",
		FormatMemory(4096 * mebi):    "4096Mi",
		FormatMemory(16 * gibi):      "16Gi",
		FormatMemory(3 * mebi / 2):   "1.5Mi",
		FormatMemory(25 * gibi / 2):  "12.5Gi",
		quantityString(CPU(310)):     "310m",
		quantityString(Memory(5e8)):  "500000000",
		quantityString(Memory(gibi)): "1Gi",
	}
	for got, want := range cases {
		if got != want {
			t.Errorf("printed %s, want %s", got, want)
		}
	}
}

func quantityString(q resource.Quantity) string { return q.String() }
