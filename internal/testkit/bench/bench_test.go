// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import "testing"

var kept []byte

func TestACostHasItsShareOfTheCollector(t *testing.T) {
	const size = 8 << 20
	var allocates, idles Cost
	allocates.Measure(t, func() { kept = make([]byte, size) })
	idles.Measure(t, func() {})
	if got := allocates.CPU(2) - allocates.CPU(0); got < 2*size || got > 3*size {
		t.Errorf("an allocation of %d bytes costs %.0f ns at 2 ns for each", size, got)
	}
	if got := idles.CPU(2) - idles.CPU(0); got > size {
		t.Errorf("doing nothing costs %.0f ns for what others allocate", got)
	}
	if got := CollectorPerByte(t); got < 0 {
		t.Errorf("a byte costs %f ns", got)
	}
}
