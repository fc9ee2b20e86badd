// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures what the operator costs, beside other ways to do the same:
//
//	go run ./hack/bench [-record] [-benchtime DURATION] [-only PATTERN]
//	go run ./hack/bench new-pods [-record]
//	bench cluster -operator PROGRAM [-scalers N] [FLAG...]
//
// The first runs Go benchmarks, which need no cluster, and prints one table. Each measures all ways in one
// run, in turns (internal/testkit/bench), so that the ratios hold on a busy machine, too. The second measures on
// a real API server what sizes of new pods cost: "make bench-new-pods". The third runs the operator, and VPA after it,
// on real API servers: "make bench-cluster". With -record, the tables go into docs/benchmarks.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// page is where -record keeps the table, between the lines that name the command.
const page = "docs/benchmarks.md"

// suite is the benchmarks of one package.
type suite struct {
	folder, pkg string // the folder of the module, and the package in it
	pattern     string // selects benchmarks, as for go test
	once        bool   // a repetition adds nothing
	tags        string // build tags
}

var suites = []suite{
	{".", "./controllers/verticalscaler", "^BenchmarkLookup$", false, ""},
	{".", "./test/benchmark", "^BenchmarkNoOpReconcile$", false, ""},
	{".", "./controllers/internal/queue", "^BenchmarkQueue$", false, ""},
	{".", "./controllers/internal/queue", "^BenchmarkOrder$", true, ""},
	{".", "./internal/change/budget", "^Benchmark(Budget|Slot)$", false, ""},
	{".", "./test/benchmark", "^BenchmarkMemory$", true, ""},
	{"hack/vpa", ".", "^BenchmarkHeap$/kept/containers=2000", true, ""},
	{"hack/vpa", ".", "^BenchmarkCPU$/kept", false, ""},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// Child processes end with the thread that started them (testkit/process). The main thread lives as long as
// the program.
func init() { runtime.LockOSThread() }

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) > 0 && args[0] == "cluster" {
		return runCluster(ctx, args[1:], out, progress)
	}
	if len(args) > 0 && args[0] == "new-pods" {
		return runNewPods(ctx, args[1:], out, progress)
	}
	return runBenchmarks(ctx, args, out, progress)
}

// runBenchmarks runs the benchmarks that need no cluster.
func runBenchmarks(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	record := flags.Bool("record", false, "keep the table in "+page)
	benchtime := flags.Duration("benchtime", time.Second, "run each benchmark for this long")
	only := flags.String("only", "", "run only the benchmarks whose pattern matches this regular expression")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if *record && *only != "" {
		return errors.New("-record needs all benchmarks: leave out -only")
	}
	facts, err := factsOf(ctx)
	if err != nil {
		return err
	}
	var results []result
	for _, s := range suites {
		if !chosen.MatchString(s.pattern) {
			continue
		}
		text, err := s.run(ctx, *benchtime, progress)
		if err != nil {
			return err
		}
		found, err := parse(text)
		if err != nil {
			return fmt.Errorf("reading the results of %s: %w", s.pkg, err)
		}
		results = append(results, found...)
	}
	facts.loadAfter = load()
	text := table(results) + "\n" + facts.String()
	fmt.Fprint(out, text)
	if !*record {
		return nil
	}
	return keep(page, "make bench", text)
}

// run runs the benchmarks of a suite, and returns what they print.
func (s suite) run(ctx context.Context, benchtime time.Duration, progress io.Writer) (string, error) {
	fmt.Fprintf(progress, "%s: %s\n", s.pkg, s.pattern)
	times := benchtime.String()
	if s.once {
		times = "1x"
	}
	command := exec.CommandContext(ctx, "go", "test", "-tags", s.tags, "-run", "^$", "-bench", s.pattern, "-benchtime", times, "-timeout", "30m", s.pkg)
	command.Dir = s.folder
	var text bytes.Buffer
	command.Stdout, command.Stderr = &text, progress
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("running %s: %w\n%s", strings.Join(command.Args, " "), err, text.String())
	}
	return text.String(), nil
}
