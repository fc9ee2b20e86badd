// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/http"
	"testing"
	"time"
)

// The age of a lease is by the API server's clock, not by that of the user's machine.
func TestTheClockIsThatOfTheServer(t *testing.T) {
	var c serverClock
	local := time.Unix(1767225600, 0)
	for _, tc := range []struct{ ahead, want time.Duration }{{0, 0}, {-time.Second, 0}, {time.Hour, time.Hour}, {-time.Hour, -time.Hour}} {
		c.note(local.Add(tc.ahead).UTC().Format(http.TimeFormat), local)
		if got := c.Now(local).Sub(local); got != tc.want {
			t.Errorf("a server %s ahead: %s", tc.ahead, got)
		}
	}
	if c.note("yesterday", local); c.Now(local).Sub(local) != -time.Hour {
		t.Error("a date that cannot be read changes the time")
	}
}
