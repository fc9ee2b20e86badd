// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"
)

// Only yes is a yes.
func TestAdoptAsks(t *testing.T) {
	for answer, want := range map[string]error{"y\n": nil, "YES \r\n": nil, "yes": nil, "\n": errNotConfirmed, "": errNotConfirmed, "no\n": errNotConfirmed, "yesterday\n": errNotConfirmed} {
		var asks bytes.Buffer
		if err := asked(strings.NewReader(answer), &asks, "Create ClusterScalingPolicy fleet?"); !errors.Is(err, want) || asks.String() != "Create ClusterScalingPolicy fleet? [y/N] " {
			t.Errorf("%q: %v, want %v: %s", answer, err, want, asks.String())
		}
	}
}

// Times are in days, too.
func TestTimeSpans(t *testing.T) {
	for text, want := range map[string]time.Duration{"7d": 168 * time.Hour, "36h": 36 * time.Hour, "0": 0, "90s": 90 * time.Second} {
		if got, err := timeSpan(text); err != nil || got != want {
			t.Errorf("%s is %s: %v", text, got, err)
		}
	}
	for _, text := range []string{"", "d", "-1d", "-1h", "1.5d", "99999999h", "7 d"} {
		if got, err := timeSpan(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}
