// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
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

func TestChoice(t *testing.T) {
	c, output, dryRun := &cobra.Command{}, "table", NoDryRun
	AddChoice(c, &output, "output", "o", []string{"table", "json"}, "The format")
	AddDryRun(c, &dryRun)
	if err := c.ParseFlags([]string{"-o=json", "--dry-run"}); err != nil || output != "json" || dryRun != ServerDryRun {
		t.Errorf("%v: %s, %s", err, output, dryRun)
	}
	for _, value := range []string{"xml", ""} {
		want := `invalid argument "` + value + `" for "-o, --output" flag: use one of table, json`
		if err := c.ParseFlags([]string{"--output=" + value}); err == nil || err.Error() != want || output != "json" {
			t.Errorf("%v, and the output is %s", err, output)
		}
	}
	if usage := c.Flags().Lookup("output").Usage; usage != "The format: table, json." {
		t.Error(usage)
	}
}
