// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"testing"

	"github.com/spf13/cobra"
)

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
