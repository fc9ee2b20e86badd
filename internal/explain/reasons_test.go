// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// constants are the values of a package's exported constants of text whose names match.
func constants(t *testing.T, folder, names string) (values []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files, %v", folder, len(files), err)
	}
	matches := regexp.MustCompile(names).MatchString
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		must.Succeed(t, err)
		for _, decl := range parsed.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				value := spec.(*ast.ValueSpec)
				for i, name := range value.Names {
					if i >= len(value.Values) || !matches(name.Name) {
						continue
					}
					if text, ok := value.Values[i].(*ast.BasicLit); ok && text.Kind == token.STRING {
						unquoted, err := strconv.Unquote(text.Value)
						must.Succeed(t, err)
						values = append(values, unquoted)
					}
				}
			}
		}
	}
	return values
}

// Each code that the operator can report is explained once, and no other code is.
func TestEverythingIsExplained(t *testing.T) {
	var reasons, steps, causes []string
	for _, r := range explain.Reasons {
		reasons = append(reasons, r.Reason)
	}
	for _, s := range explain.Steps {
		steps = append(steps, s.Code)
	}
	for _, c := range explain.Causes {
		causes = append(causes, c.Cause)
	}
	for _, tc := range []struct {
		what, folder, names string
		least               int
		got                 []string
	}{
		{"reasons", "../../api/v1beta1", `^Reason`, 40, reasons},
		{"steps", "../recommend", `^(?:[A-BD-Z]|C[^P])`, 14, steps}, // all but CPU and Memory, the resources
		{"causes", "../plan/model", `^Decided`, 6, causes},
	} {
		want := slices.DeleteFunc(constants(t, tc.folder, tc.names), func(s string) bool { return tc.what == "steps" && s == "memory" })
		if len(want) < tc.least {
			t.Errorf("only %d %s are found in %s: the test looks for the wrong thing", len(want), tc.what, tc.folder)
		}
		slices.Sort(want)
		slices.Sort(tc.got)
		if diff := cmp.Diff(want, tc.got); diff != "" {
			t.Errorf("%s: add a line for each with - to internal/explain, and remove those with +:\n%s", tc.what, diff)
		}
	}
}

// Each explanation is a sentence or two, with advice where a user must act.
func TestAdvice(t *testing.T) {
	for _, r := range explain.Reasons {
		for what, text := range map[string]string{"meaning": r.Means, "advice": r.Advice} {
			if len(text) < 15 || len(text) > 260 || !strings.HasSuffix(text, ".") || strings.ContainsAny(text, "|\n") || text[0] < 'A' || text[0] > 'Z' {
				t.Errorf("the %s of %s is no sentence: %q", what, r.Reason, text)
			}
		}
		if !slices.Contains([]explain.End{explain.Fine, explain.ByItself, explain.ByUser}, r.Ends) {
			t.Errorf("%s ends %q", r.Reason, r.Ends)
		}
		if waits := strings.HasPrefix(r.Advice, "Wait"); waits && r.Ends == explain.ByUser {
			t.Errorf("%s is resolved by a user, and the advice is %q", r.Reason, r.Advice)
		}
	}
	if r, ok := explain.ReasonFor("MadeUp"); ok || r.Reason != "MadeUp" {
		t.Errorf("a reason that does not exist is explained: %+v", r)
	}
}

// Conditions with a reason of an earlier version are explained by the present one.
func TestFormerReasons(t *testing.T) {
	for former, now := range map[string]string{
		"CollectingHistory": "Learning", "NoRecommendation": "Learning", "WaitingForDeployment": "DeploymentNotFound", "Progressing": "RollingOut",
	} {
		if r, ok := explain.ReasonFor(former); !ok || r.Reason != now {
			t.Errorf("%s is explained as %+v, want %s", former, r, now)
		}
	}
}

// The tables in the documentation equal the code's.
func TestDocumentedReasons(t *testing.T) {
	const page = "../../docs/reasons.md"
	before, err := os.ReadFile(page)
	must.Succeed(t, err)
	var reasons, steps, causes [][]string
	for _, r := range explain.Reasons {
		ends := map[explain.End]string{explain.Fine: "", explain.ByItself: "itself", explain.ByUser: "user"}[r.Ends]
		reasons = append(reasons, []string{"`" + r.Reason + "`", r.Means, ends, r.Advice})
	}
	for _, s := range explain.Steps {
		steps = append(steps, []string{"`" + s.Code + "`", s.Means})
	}
	for _, c := range explain.Causes {
		causes = append(causes, []string{"`" + c.Cause + "`", c.Means})
	}
	after := string(before)
	for name, table := range map[string]string{
		"reasons": markdown([]string{"Reason", "Meaning", "Resolved by", "Action"}, reasons),
		"steps":   markdown([]string{"Step", "Amount"}, steps),
		"causes":  markdown([]string{"Reason", "Because"}, causes),
	} {
		begin, end := "<!-- "+name+": go test ./internal/explain -update -->\n", "<!-- end -->\n"
		head, rest, ok := strings.Cut(after, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Fatalf("%s has no place for %s: %s…%s", page, name, begin, end)
		}
		after = head + begin + table + end + tail
	}
	if *golden.Update {
		must.Succeed(t, os.WriteFile(page, []byte(after), 0o644))
		return
	}
	if diff := cmp.Diff(strings.Split(string(before), "\n"), strings.Split(after, "\n")); diff != "" {
		t.Errorf("run go test ./internal/explain -update; %s (-has +code):\n%s", page, diff)
	}
}

func markdown(header []string, rows [][]string) string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	return b.String()
}
