// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Record replays a folder of recorded usage with each profile of the operator and with
// the rule of the Vertical Pod Autoscaler (VPA), in one run, and tells which of the
// project's targets are reached:
//
//	make record [flags] FOLDER
//
// The folder holds tables as "kubectl vscaler report" reads them, and the model is that
// of internal/backtest. A table is a source. Series are told apart by patterns such as borg-*
// that match the name of a series or that of its table, without .csv and .gz:
//
//	-skip 'synthetic*' -group 'containers=borg-*,smd-*'
//
// The targets for usage like that of containers apply to the group "containers". The
// same folder leads to the same record, byte for byte, on any number of processors.
//
// Each series is replayed in several scenarios, of which -scenarios chooses some: as recorded; as 3
// and 10 pods that differ by 5 and 15 %; as minutes with and without jitter; and its first day from
// requests that are too small. The last scenario, patterns, needs no folder's series: it generates
// them, such as an office's hours. backtest.World states the models.
//
// Every figure comes with two kinds of doubt. The interval is from a bootstrap over clusters of
// siblings, such as the tasks of a job: series of one source in whose names -siblings matches the
// same text. Any other series is its own cluster:
//
//	-siblings '^job-[0-9]{6}'     job-12345678 and job-12345699 are one cluster
//
// And targets show the range without each source in turn. Neither knows of series that are not
// there: where the engine was tuned on the same series, both are too narrow.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
)

// The exit codes: 1 where something has failed, or a target is missed and -check is
// given; 2 where the command line makes no sense.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr, time.Now())) }

type options struct {
	folder      string
	skip        patterns
	groups      []group
	siblings    siblings
	scenarios   []scenario
	patternDays int
	warmUp      time.Duration
	workers     int
	draws       int
	output      string
	into        string
	isCheck     bool
}

func run(args []string, out, errOut io.Writer, now time.Time) int {
	o, err := parse(args, errOut)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(errOut, "record:", err)
		return exitUsage
	}
	r, err := replay(o, errOut)
	if err == nil {
		err = publish(r, o, out, now)
	}
	if err == nil && o.isCheck {
		err = r.missed()
	}
	if err != nil {
		fmt.Fprintln(errOut, "record:", err)
		return exitFailed
	}
	return 0
}

func parse(args []string, errOut io.Writer) (options, error) {
	o := options{groups: []group{{name: groupAll}}, scenarios: scenarios()}
	flags := flag.NewFlagSet("record", flag.ContinueOnError)
	flags.SetOutput(errOut)
	flags.Func("skip", "leave out the series that match one of these `patterns`", func(text string) (err error) {
		o.skip, err = parsePatterns(text)
		return err
	})
	flags.Func("group", "a group of series, besides all: `name=patterns`. May be repeated", func(text string) error {
		g, err := parseGroup(text)
		o.groups = append(o.groups, g)
		return err
	})
	flags.Func("siblings", "an `expression` for the part of a series' name that its siblings share. May be repeated; the first match counts", func(text string) error {
		expression, err := regexp.Compile(text)
		o.siblings = append(o.siblings, expression)
		return err
	})
	flags.Func("scenarios", "replay only these `names`, of "+strings.Join(scenarioNames(), ","), func(text string) (err error) {
		o.scenarios, err = parseScenarios(text)
		return err
	})
	flags.IntVar(&o.patternDays, "pattern-days", 28, "how many days of each pattern are generated")
	flags.DurationVar(&o.warmUp, "warm-up", 3*24*time.Hour, "the time at the beginning of each series that is replayed, but not measured")
	flags.IntVar(&o.workers, "workers", 0, "the number of replays at the same time; 0 is one for each processor")
	flags.IntVar(&o.draws, "draws", 10_000, "how often the bootstrap draws clusters of series")
	flags.StringVar(&o.output, "o", "table", "the format: table, markdown or json")
	flags.StringVar(&o.into, "into", "", "a document whose record is replaced by this one, in markdown, with today's date")
	flags.BoolVar(&o.isCheck, "check", false, "fail if a target is missed")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.folder = flags.Arg(0)
	switch {
	case flags.NArg() != 1:
		return o, errors.New("name one folder of tables: see -help")
	case !slices.Contains([]string{"table", "markdown", "json"}, o.output):
		return o, fmt.Errorf("-o %q is not one of table, markdown, json", o.output)
	case o.warmUp < 0 || o.workers < 0 || o.draws < 1 || o.patternDays < 1:
		return o, errors.New("-warm-up and -workers must not be negative, and -draws and -pattern-days at least 1")
	}
	return o, nil
}

func replay(o options, errOut io.Writer) (*record, error) {
	traces, err := readFolder(o.folder)
	if err != nil {
		return nil, err
	}
	traces = slices.DeleteFunc(traces, o.skip.match)
	if len(traces) == 0 {
		return nil, errors.New("no series is left to replay")
	}
	r := &record{Draws: o.draws}
	for _, scenario := range o.scenarios {
		began, selected := time.Now(), scenario.traces(traces, o)
		outcomes := backtest.Run(selected, rules(), backtest.Options{
			WarmUp: scenario.warmUp(o), World: scenario.world, Workers: o.workers,
			Progress: func(done, of int) {
				if step := max(of/4, 1); done%step == 0 || done == of {
					fmt.Fprintf(errOut, "%s: replayed %d of %d\n", scenario.name, done, of)
				}
			},
		})
		if err := r.add(scenario, selected, outcomes, o); err != nil {
			return nil, err
		}
		fmt.Fprintf(errOut, "%s: took %.1f s\n", scenario.name, time.Since(began).Seconds())
	}
	r.sortTargets()
	return r, nil
}

// readFolder reads all tables of a folder, which also contain the initial requests.
func readFolder(folder string) ([]backtest.Trace, error) {
	var (
		reader backtest.Reader
		tables []string
		files  = os.DirFS(folder)
	)
	for _, pattern := range []string{"*.csv", "*.csv.gz"} {
		found, err := fs.Glob(files, pattern)
		if err != nil {
			return nil, err
		}
		tables = append(tables, found...)
	}
	slices.Sort(tables)
	for _, name := range tables {
		file, err := files.Open(name)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(reader.Read(name, file), file.Close()); err != nil {
			return nil, err
		}
	}
	traces, err := reader.Traces()
	if err != nil {
		return nil, fmt.Errorf("folder %s: %w", folder, err)
	}
	return traces, nil
}

func publish(r *record, o options, out io.Writer, now time.Time) error {
	if o.into != "" {
		return replaceRecord(o.into, r, now)
	}
	switch o.output {
	case "json":
		return r.writeJSON(out)
	case "markdown":
		return r.writeMarkdown(out)
	}
	return r.writeTable(out)
}
