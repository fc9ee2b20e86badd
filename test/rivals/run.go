// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

// A batch is what one run of go test runs: some tests of one package.
type batch struct {
	folder    string
	tag       string
	functions []string // sorted
}

// runnable are the build tags whose tests run here. Those of other tags take too long, or need more
// than an API server.
var runnable = []string{"", "integration"}

// batchesOf groups the tests of all rows, those without a build tag first.
func batchesOf(root string, rows []Row) ([]batch, error) {
	var batches []batch
	for _, row := range rows {
		for _, t := range row.Tests {
			at, err := locate(root, t)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", row.Issue, err)
			}
			if !slices.Contains(runnable, at.tag) {
				return nil, fmt.Errorf("%s: %s needs the build tag %s, and tests with that tag are not run here", row.Issue, t, at.tag)
			}
			i := slices.IndexFunc(batches, func(b batch) bool { return b.folder == t.Folder && b.tag == at.tag })
			if i < 0 {
				i = len(batches)
				batches = append(batches, batch{folder: t.Folder, tag: at.tag})
			}
			if !slices.Contains(batches[i].functions, t.Function) {
				batches[i].functions = append(batches[i].functions, t.Function)
			}
		}
	}
	for _, b := range batches {
		slices.Sort(b.functions)
	}
	slices.SortFunc(batches, func(a, b batch) int {
		return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.folder, b.folder))
	})
	return batches, nil
}

// arguments are those of go. The result of a test with a build tag is not cached: what it needs is not
// only in files.
func (b batch) arguments() []string {
	arguments := []string{"test", "-json", "-timeout", "10m", "-run", "^(" + strings.Join(b.functions, "|") + ")$"}
	if b.tag != "" {
		arguments = append(arguments, "-tags", b.tag, "-count=1")
	}
	return append(arguments, "./"+b.folder)
}

// run adds the results of a batch. A test that fails is a result and no error.
func (b batch) run(ctx context.Context, root string, into results) error {
	command := exec.CommandContext(ctx, "go", b.arguments()...)
	command.Dir = root
	var stderr bytes.Buffer
	command.Stderr = &stderr
	stdout, err := command.Output()
	if failed := (&exec.ExitError{}); err != nil && !errors.As(err, &failed) || ctx.Err() != nil {
		return fmt.Errorf("go test ./%s: %w", b.folder, cmp.Or(ctx.Err(), err))
	}
	into.add(b.folder, io.MultiReader(bytes.NewReader(stdout), &stderr))
	return nil
}

// An event is a line of go test -json: https://pkg.go.dev/cmd/test2json.
type event struct {
	Action, Test, Output string
}

// results are what became of each test, by folder and reported name. That of a package has no name.
type results map[[2]string]*result

type result struct {
	action string // pass, fail or skip; empty while it runs
	output strings.Builder
}

func (r results) of(folder, name string) *result {
	if r[[2]string{folder, name}] == nil {
		r[[2]string{folder, name}] = &result{}
	}
	return r[[2]string{folder, name}]
}

// add reads the output of go test -json of one package. Lines that are no events are about the package,
// such as those of a compiler.
func (r results) add(folder string, output io.Reader) {
	text, err := io.ReadAll(output)
	if err != nil {
		text = append(text, err.Error()...)
	}
	for line := range strings.Lines(string(text)) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			e = event{Output: line}
		}
		about := r.of(folder, e.Test)
		about.output.WriteString(e.Output)
		if slices.Contains([]string{"pass", "fail", "skip"}, e.Action) {
			about.action = e.Action
		}
	}
}

// trouble is why a test shows nothing; empty if it has passed.
func (r results) trouble(t Test) string {
	var action string
	if found := r[[2]string{t.Folder, t.reported()}]; found != nil {
		action = found.action
	}
	switch action {
	case "pass":
		return ""
	case "skip":
		return "is skipped"
	case "fail":
		return "fails"
	}
	return "did not run"
}

// print prints the rows, and the output of tests that show nothing. It returns the number of rows that
// fail.
func (r results) print(out io.Writer, rows []Row) (failed int) {
	outputs := map[[2]string]bool{}
	for _, row := range rows {
		var troubles []string
		for _, t := range row.Tests {
			if trouble := r.trouble(t); trouble != "" {
				troubles = append(troubles, fmt.Sprintf("      %s %s", t, trouble))
				outputs[[2]string{t.Folder, ""}] = true
				outputs[[2]string{t.Folder, t.reported()}] = true
			}
		}
		word := "pass"
		if len(troubles) > 0 {
			word = "FAIL"
			failed++
		}
		fmt.Fprintf(out, "%s  %-32s %s\n", word, row.Issue, row.What)
		for _, trouble := range troubles {
			fmt.Fprintln(out, trouble)
		}
	}
	for _, key := range slices.SortedFunc(keys(outputs), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		if found := r[key]; found != nil && found.output.Len() > 0 {
			fmt.Fprintf(out, "\n=== output of %s %s\n%s", key[0], key[1], found.output.String())
		}
	}
	fmt.Fprintf(out, "\n%s; %d fail\n", counted(rows), failed)
	return failed
}
