// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// What is no terminal gets only warnings.
func TestProgress(t *testing.T) {
	var screen strings.Builder
	p := &Progress{to: &screen, isTerminal: true}
	p.Say("Reading usage")
	p.Say("Replaying: 1 of 3")
	p.Say("Done")
	p.Clear()
	p.Warn("late")
	want := "\rReading usage" + "\rReplaying: 1 of 3" + "\rDone             " + "\r    \r" + "warning: late\n"
	if got := screen.String(); got != want {
		t.Errorf("the screen got %q, want %q", got, want)
	}
	screen.Reset()
	quiet := NewProgress(&screen)
	quiet.Say("Reading usage")
	quiet.Clear()
	if screen.Len() > 0 {
		t.Errorf("what is no terminal got %q", screen.String())
	}
}
