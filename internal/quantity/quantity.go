// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quantity converts between the API's quantities and the whole millicores and bytes of all
// other packages.
//
// No other place takes the integer value of a resource.Quantity: its accessors silently return wrong
// numbers outside their range. For example, 1e18 in millicores is 0, 9223372036854775807 is -1000,
// and 1e999 is 0. So every conversion is checked by comparison first. Amounts are rounded up in
// the canonical form that the API server stores, so that planning twice changes nothing.
package quantity

import (
	"cmp"
	"fmt"
	"math"
	"strconv"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// MaxCPUMillis is the largest accepted amount of CPU: 10,000 cores.
	MaxCPUMillis = 10_000 * 1000
	// MaxMemoryBytes is the largest accepted amount of memory: 1 PiB.
	MaxMemoryBytes = 1 << 50
	// MaxSum is the largest sum, in millicores or bytes. Any amount can be added to it.
	MaxSum = 1 << 62

	// Smallest is the smallest amount, a millicore or a byte. It also stands for a request of 0 beside a limit: 0 means
	// not set, and the API server sets such a request to the limit.
	Smallest = 1

	// maxExponent is larger than the exponent of any amount in range.
	maxExponent = 40

	mebi = 1 << 20
	gibi = 1 << 30
)

var (
	zero      = resource.MustParse("0")
	maxCPU    = *resource.NewMilliQuantity(MaxCPUMillis, resource.DecimalSI)
	maxMemory = *resource.NewQuantity(MaxMemoryBytes, resource.BinarySI)
	maxMillis = *resource.NewMilliQuantity(MaxSum, resource.DecimalSI)
	maxBytes  = *resource.NewQuantity(MaxSum, resource.BinarySI)
)

// Amounts is an amount of each resource. 0 means none or not set.
type Amounts struct {
	CPUMillis   int64 // millicores
	MemoryBytes int64 // bytes
}

// Plus is the sum.
func (a Amounts) Plus(b Amounts) Amounts {
	return Amounts{CPUMillis: a.CPUMillis + b.CPUMillis, MemoryBytes: a.MemoryBytes + b.MemoryBytes}
}

// Or returns the amounts, or b's where they are not set.
func (a Amounts) Or(b Amounts) Amounts {
	return Amounts{CPUMillis: cmp.Or(a.CPUMillis, b.CPUMillis), MemoryBytes: cmp.Or(a.MemoryBytes, b.MemoryBytes)}
}

// CPUMillis converts an amount of CPU to whole millicores, rounded up. It rejects
// negative amounts and amounts above MaxCPUMillis.
func CPUMillis(q resource.Quantity) (int64, error) {
	switch {
	case q.IsZero():
		return 0, nil
	case isBetween(q, leastOrdinary, MaxCPUMillis/1000/2):
		return q.MilliValue(), nil
	}
	if err := inRange(q, maxCPU, "CPU"); err != nil {
		return 0, err
	}
	return q.MilliValue(), nil
}

// MemoryBytes converts an amount of memory to whole bytes, rounded up. It rejects
// negative amounts and amounts above MaxMemoryBytes.
func MemoryBytes(q resource.Quantity) (int64, error) {
	switch {
	case q.IsZero():
		return 0, nil
	case isBetween(q, leastOrdinary, MaxMemoryBytes/2):
		return q.Value(), nil
	}
	if err := inRange(q, maxMemory, "memory"); err != nil {
		return 0, err
	}
	return q.Value(), nil
}

// SumOfCPU converts a sum of CPU, such as that of a ResourceQuota, to millicores, rounded up. A larger one is MaxSum.
// It rejects what is negative, and absurd exponents.
func SumOfCPU(q resource.Quantity) (millis int64, ok bool) {
	return sumOf(q, maxMillis, (*resource.Quantity).MilliValue)
}

// SumOfMemory converts a sum of memory to bytes, as SumOfCPU does.
func SumOfMemory(q resource.Quantity) (bytes int64, ok bool) {
	return sumOf(q, maxBytes, (*resource.Quantity).Value)
}

func sumOf(q, most resource.Quantity, value func(*resource.Quantity) int64) (int64, bool) {
	switch {
	case !isComparable(q) || q.Cmp(zero) < 0:
		return 0, false
	case q.Cmp(most) > 0:
		return MaxSum, true
	}
	return value(&q), true
}

// Equal reports whether two quantities are the same. A quantity with an absurd exponent is equal to
// none.
func Equal(a, b resource.Quantity) bool {
	return isComparable(a) && isComparable(b) && a.Cmp(b) == 0
}

// Quantities between these are harmless and need no exact arithmetic. Nearly all are. The least
// quantity that Kubernetes can represent is 1e-9.
const (
	leastOrdinary = 1e-10
	mostOrdinary  = 1e20
)

// isBetween reports whether the quantity is certainly between two numbers. It is fast and allocates
// nothing for any exponent, and is precise enough: the float is off by less than a millionth.
func isBetween(q resource.Quantity, least, most float64) bool {
	about := q.AsApproximateFloat64()
	return least < about && about < most
}

// isComparable reports whether the quantity can be compared quickly. A comparison first aligns the
// exponents digit by digit: 1e9999999 takes seconds.
func isComparable(q resource.Quantity) bool {
	if isBetween(q, leastOrdinary, mostOrdinary) {
		return true
	}
	scale := q.AsDec().Scale()
	return -maxExponent <= scale && scale <= maxExponent
}

func inRange(q, most resource.Quantity, what string) error {
	if !isComparable(q) {
		return fmt.Errorf("%s with such an exponent is out of range", what)
	}
	if q.Cmp(zero) < 0 || q.Cmp(most) > 0 {
		return fmt.Errorf("%s of %s is out of range: allowed is 0 to %s", what, q.String(), most.String())
	}
	return nil
}

// CPU returns millicores as a quantity.
func CPU(millis int64) resource.Quantity {
	return *resource.NewMilliQuantity(millis, resource.DecimalSI)
}

// Memory returns bytes as a quantity, in the largest binary unit that represents them exactly.
func Memory(bytes int64) resource.Quantity {
	return *resource.NewQuantity(bytes, resource.BinarySI)
}

// RoundMemory rounds bytes up to a readable number, by at most 1.6 %: to whole MiB from 64 MiB on,
// to whole 64 KiB below.
//
//	100 MiB + 1 byte → 101 MiB    10.03 MiB → 10.0625 MiB
func RoundMemory(bytes int64) int64 {
	unit := int64(mebi)
	if bytes < 64*mebi {
		unit = 64 << 10
	}
	return (bytes + unit - 1) / unit * unit
}

// FormatCPU formats millicores for display: below 10 cores always in millicores, so that values
// are easy to compare.
//
//	310 → "310m"   2000 → "2000m"   12500 → "12.5"
func FormatCPU(millis int64) string {
	if millis < 10_000 {
		return fmt.Sprintf("%dm", millis)
	}
	return decimal(float64(millis)/1000, 100)
}

// FormatMemory formats bytes for display: in KiB below 1 MiB, in MiB up to 10 GiB, and in GiB from
// there.
//
//	671088640 → "640Mi"   4294967296 → "4096Mi"   16 GiB → "16Gi"   1.5 MiB → "1.5Mi"
func FormatMemory(bytes int64) string {
	switch {
	case bytes >= 10*gibi:
		return decimal(float64(bytes)/gibi, 10) + "Gi"
	case bytes > 0 && bytes < mebi:
		return decimal(float64(bytes)/1024, 10) + "Ki"
	}
	return decimal(float64(bytes)/mebi, 10) + "Mi"
}

// decimal rounds to a unit and omits trailing zeros.
func decimal(v, part float64) string {
	return strconv.FormatFloat(math.Round(v*part)/part, 'f', -1, 64)
}
