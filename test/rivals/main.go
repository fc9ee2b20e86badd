// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Rivals runs the tests that rivals.yaml names, and prints the table:
//
//	go run ./test/rivals [-only PATTERN]
//
// Each row of rivals.yaml is a public issue of another project: what went wrong there, and the tests
// of ours that would have caught it. A row fails if one of its tests does not exist, is skipped, does
// not run or fails. docs/rivals.md is generated from the same file.
//
// Tests without a build tag are cached by go test. Others run against an API server, which
// "make test-rivals" builds first.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rivals:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// run runs the tests of the rows that the arguments select, and prints them to out. It fails unless
// every row passes.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("rivals", flag.ContinueOnError)
	only := flags.String("only", "", "run only rows whose issue matches this regular expression")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	source, err := os.ReadFile("test/rivals/rivals.yaml")
	if err != nil {
		return fmt.Errorf("run this in the root of the repository: %w", err)
	}
	rows, err := Parse(source)
	if err != nil {
		return err
	}
	if rows = matching(rows, pattern); len(rows) == 0 {
		return errors.New("-only: no issue matches")
	}
	batches, err := batchesOf(".", rows)
	if err != nil {
		return err
	}
	results := results{}
	for _, b := range batches {
		if err := b.run(ctx, ".", results); err != nil {
			return err
		}
	}
	if failed := results.print(out, rows); failed > 0 {
		return fmt.Errorf("%d of %d rows fail", failed, len(rows))
	}
	return nil
}

func matching(rows []Row, pattern *regexp.Regexp) (matched []Row) {
	for _, row := range rows {
		if pattern.MatchString(row.Issue.String()) {
			matched = append(matched, row)
		}
	}
	return matched
}
