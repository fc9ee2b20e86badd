// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// TestATemplateThatAUserRaises is a floor until a day of usage with it has been observed.
func TestATemplateThatAUserRaises(t *testing.T) {
	for name, tc := range map[string]struct {
		request, limit int64 // results of 256 and 512 Mi; 0 if not set
		then           func(c *Container, note func(request, limit int64, hasOldPods bool))
		want           int64 // in Mi
	}{
		"a request":         {1024, 1024, nil, 1024},
		"a limit":           {256, 1024, nil, 256},
		"nothing":           {256, 512, nil, 0},
		"it is lowered":     {128, 512, nil, 0},
		"a limit is new":    {256, 0, func(_ *Container, note func(int64, int64, bool)) { note(256, 1024, false) }, 0},
		"and lowered again": {1024, 1024, func(_ *Container, note func(int64, int64, bool)) { note(512, 1024, false) }, 0},
		"hours ago":         {1024, 1024, func(c *Container, _ func(int64, int64, bool)) { feed(c, time.Hour, 24*time.Hour, 100, 200*mebi) }, 1024},
		"a day ago":         {1024, 1024, func(c *Container, _ func(int64, int64, bool)) { feed(c, time.Hour, 26*time.Hour, 100, 200*mebi) }, 0},
		"a day ago, and old pods are left": {1024, 1024, func(c *Container, note func(int64, int64, bool)) {
			feed(c, time.Hour, 24*time.Hour, 100, 200*mebi)
			note(1024, 1024, true)
			feed(c, 24*time.Hour, 26*time.Hour, 100, 200*mebi)
		}, 1024},
		"after a climb has ended": {1024, 1024, func(c *Container, _ func(int64, int64, bool)) {
			if end, _ := c.ClimbEnd(params); end > 0 {
				t.Error("the climb is not tried again")
			}
		}, 1024},
	} {
		c := &Container{}
		feed(c, 0, time.Hour, 100, 200*mebi)
		note := func(request, limit int64, hasOldPods bool) {
			c.NoteTemplate(quantity.Amounts{CPUMillis: 100, MemoryBytes: request * mebi}, quantity.Amounts{MemoryBytes: limit * mebi}, hasOldPods)
		}
		note(256, 512, false)
		c.endClimb(256*mebi, didNotHelp)
		note(tc.request, tc.limit, false)
		if tc.then != nil {
			tc.then(c, note)
		}
		got, err := Decode(c.Encode())
		if err != nil || got.templates != c.templates || got.TemplateFloor() != (quantity.Amounts{MemoryBytes: tc.want * mebi}) {
			t.Errorf("%s: the floor is %d, want %d Mi (%v)", name, got.TemplateFloor(), tc.want, err)
		}
	}
}
