// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/operator-framework/api/pkg/apis/scorecard/v1alpha3"
)

// render prints a line for each result, and below it what there is to say.
func render(outcomes []outcome, strict bool) string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "STATE\tSUITE\tTEST\tTOOK")
	for _, o := range outcomes {
		for _, r := range o.status.Results {
			state := string(r.State)
			switch {
			case r.State != v1alpha3.PassState:
			case len(r.Errors) > 0:
				state += ", with errors"
			case len(openOf(r)) > 0:
				state += ", with suggestions"
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%.1fs\n", state, o.test.Labels["suite"], r.Name, o.took.Round(100*time.Millisecond).Seconds())
		}
	}
	_ = table.Flush() // a Builder takes all
	for _, o := range outcomes {
		for _, r := range o.status.Results {
			out.WriteString(details(r, strict))
		}
	}
	return out.String()
}

// details are the errors and suggestions of a result, with the log of one that failed.
// Our own tests say in their log what they have seen, which is worth reading anyway.
func details(r v1alpha3.TestResult, strict bool) string {
	var out strings.Builder
	for _, part := range []struct {
		name  string
		lines []string
	}{{"error", r.Errors}, {"suggestion", sayAccepted(r.Suggestions)}, {"log", logOf(r, strict)}} {
		for _, line := range part.lines {
			fmt.Fprintf(&out, "  %s: %s\n", part.name, strings.ReplaceAll(strings.TrimSpace(line), "\n", "\n    "))
		}
	}
	if out.Len() == 0 {
		return ""
	}
	return "\n" + r.Name + "\n" + out.String()
}

// sayAccepted adds the reason to suggestions that are accepted.
func sayAccepted(suggestions []string) (lines []string) {
	for _, s := range suggestions {
		if reason := reasonFor(s); reason != "" {
			s += "\nAccepted: " + reason
		}
		lines = append(lines, s)
	}
	return lines
}

// logOf are the lines of a result's log. Stock tests log every file that they read:
// theirs are shown for a failure only.
func logOf(r v1alpha3.TestResult, strict bool) []string {
	if r.Log == "" || (strings.HasPrefix(r.Log, "time=") || strings.HasPrefix(r.Log, "Loaded")) && !isFailure(r, strict) {
		return nil
	}
	return strings.Split(strings.TrimRight(r.Log, "\n"), "\n")
}

// accepted are suggestions that are right in general and not here: by their beginning,
// with the reason.
var accepted = map[string]string{
	"verticalscalercheckpoints.autoscaling.verticalscaler.io does not have status spec": "a checkpoint holds what was learned; there is nothing that it could be on the way to",
}

// openOf are the suggestions of a result that are not accepted.
func openOf(r v1alpha3.TestResult) []string {
	return slices.DeleteFunc(slices.Clone(r.Suggestions), func(suggestion string) bool { return reasonFor(suggestion) != "" })
}

// reasonFor is why a suggestion is accepted; empty if it is not.
func reasonFor(suggestion string) string {
	for beginning, reason := range accepted {
		if strings.HasPrefix(suggestion, beginning) {
			return reason
		}
	}
	return ""
}

// failedOf counts the tests that did not pass.
func failedOf(outcomes []outcome, strict bool) (n int) {
	for _, o := range outcomes {
		for _, r := range o.status.Results {
			if isFailure(r, strict) {
				n++
				break
			}
		}
	}
	return n
}

func isFailure(r v1alpha3.TestResult, strict bool) bool {
	return r.State != v1alpha3.PassState || len(r.Errors) > 0 || (strict && len(openOf(r)) > 0)
}
