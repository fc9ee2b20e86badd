// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package ensemble

import (
	"testing"
	"time"
)

// A state with the greatest numbers that are read stays readable, however many samples follow.
func TestAStateThatWasReadStaysReadable(t *testing.T) {
	var c CPU
	for i := range 300 {
		c.Add(Sample{Pod: "a", Millis: int64(100 * (i % 7)), Window: time.Minute}, time.Minute, params)
	}
	for _, f := range c.floats() {
		*f = greatest
	}
	for i := range c.spread {
		c.spread[i] = greatest
	}
	for i := range 100 {
		read, _, err := DecodeBinary(c.AppendBinary(nil))
		if err != nil {
			t.Fatalf("after %d more samples: %v", i, err)
		}
		c = read
		c.Add(Sample{Pod: "a", Millis: 4000, Window: time.Minute}, time.Minute, params)
		c.Add(Sample{Pod: "a", Millis: 4000, Window: time.Minute}, 20*time.Minute, params)
	}
}
