// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// An output that is not a terminal gets only warnings.
func TestProgress(t *testing.T) {
	var screen strings.Builder
	p := &Progress{to: &screen, isTerminal: true}
	p.Report("Reading usage")
	p.Report("Replaying: 1 of 3")
	p.Report("Done")
	p.Clear()
	p.Warn("late")
	want := "\rReading usage" + "\rReplaying: 1 of 3" + "\rDone             " + "\r    \r" + "warning: late\n"
	if got := screen.String(); got != want {
		t.Errorf("the screen got %q, want %q", got, want)
	}
	screen.Reset()
	quiet := NewProgress(&screen)
	quiet.Report("Reading usage")
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

// A developer with the built-in role edit learns which right is missing, and the command that grants it.
func TestAMissingRightNamesTheCommand(t *testing.T) {
	forbidden := func(group, message string) error {
		return fmt.Errorf("calling: %w", apierrors.NewForbidden(schema.GroupResource{Group: group, Resource: "verticalscalers"}, "web", errors.New(message)))
	}
	of := func(verb string) string {
		return `User "CORP\\dev" cannot ` + verb + ` resource "verticalscalers" in API group "autoscaling.verticalscaler.io" in the namespace "shop"`
	}
	for message, want := range map[string]string{
		of("create"): `, and with verticalscaler-resizer for scalers in the mode InPlace:
kubectl create rolebinding 'verticalscaler-editor-CORP\dev' -n shop --clusterrole=verticalscaler-editor --user='CORP\dev'`,
		of("list"): `kubectl create rolebinding 'verticalscaler-viewer-CORP\dev' -n shop --clusterrole=verticalscaler-viewer --user='CORP\dev'`,
		"no":       "bind the ClusterRole verticalscaler-viewer to read",
	} {
		if got := withRole(forbidden(v1beta1.GroupVersion.Group, message)).Error(); !strings.Contains(got, message) || !strings.Contains(got, want) {
			t.Error(got)
		}
	}
	if err := forbidden("apps", of("list")); withRole(err).Error() != err.Error() {
		t.Errorf("another right: %v", withRole(err))
	}
}
