// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Record replays a folder of recorded usage with each profile of the operator and with the rule of the Vertical
// Pod Autoscaler (VPA), in one run. It compares them in Markdown:
//
//	go -C bench run ./record [flags] FOLDER
//
// The folder holds tables as "kubectl vscaler report" reads them. A table is a source. Patterns such as borg-* match
// the name of a series, or that of its table without .csv and .gz:
//
//	-skip 'synthetic*' -group 'containers=borg-*,smd-*'
//
// The same folder leads to the same record, on any number of processors. Intervals come from a bootstrap over clusters of
// siblings, such as the tasks of a job: series of one source in whose names -siblings matches the same text. Any other
// series is its own cluster:
//
//	-siblings '^job-[0-9]{6}'     job-12345678 and job-12345699 are one cluster
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/bench/tables"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
)

func main() {
	if err := run(os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

type options struct {
	skip     tables.Patterns
	groups   []group
	siblings []*regexp.Regexp
	draws    int
}

func run(args []string, out, progress io.Writer) error {
	o := options{groups: []group{{name: "all", Patterns: tables.Patterns{"*"}}}}
	flags := flag.NewFlagSet("record", flag.ContinueOnError)
	flags.SetOutput(progress)
	flags.Func("skip", "leave out the series that match one of these `patterns`", func(text string) (err error) {
		o.skip, err = tables.ParsePatterns(text)
		return err
	})
	flags.Func("group", "a group of series, besides all: `name=patterns`. May be repeated", func(text string) (err error) {
		name, list, _ := strings.Cut(text, "=")
		g := group{name: name}
		g.Patterns, err = tables.ParsePatterns(list)
		o.groups = append(o.groups, g)
		return err
	})
	flags.Func("siblings", "an `expression` for the part of a series' name that its siblings share. May be repeated; the first match counts", func(text string) error {
		expression, err := regexp.Compile(text)
		o.siblings = append(o.siblings, expression)
		return err
	})
	flags.IntVar(&o.draws, "draws", 10_000, "how often the bootstrap draws clusters of series")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("name one folder of tables: see -help")
	}
	traces, err := tables.Read(os.DirFS(flags.Arg(0)))
	if err != nil {
		return fmt.Errorf("folder %s: %w", flags.Arg(0), err)
	}
	traces = slices.DeleteFunc(traces, o.skip.Match)
	var results []result
	for _, s := range scenarios {
		began := time.Now()
		outcomes := backtest.Run(traces, rules(), backtest.Options{WarmUp: warmUp, Assumptions: s.assumed})
		fmt.Fprintf(progress, "%s: took %.1f s\n", s.name, time.Since(began).Seconds())
		measured, err := measure(traces, outcomes, o)
		if err != nil {
			return err
		}
		results = append(results, measured)
	}
	return write(out, results)
}

// group is a named set of series.
type group struct {
	name string
	tables.Patterns
}

// clusterOf names the cluster of a series: its source, and what the first expression matches of its name.
func (o options) clusterOf(t backtest.Trace) string {
	for _, expression := range o.siblings {
		if match := expression.FindString(t.Name); match != "" {
			return tables.Source(t) + "/" + match + "*"
		}
	}
	return tables.Source(t) + "/" + t.Name
}
