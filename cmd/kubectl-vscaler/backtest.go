// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

// rules are all policies, in the order in which they are shown.
var rules = []backtest.Rule{engine.Rule(), vpa.Rule(), backtest.Static()}

// against are the policies that the others are compared with.
var against = []string{"static", "vpa"}

var outputs = []string{"table", "wide", "json", "yaml", "html"}

// longestWarmUp is longer than any known recording.
const longestWarmUp = 366 * 24 * time.Hour

const backtestLong = `Replay recorded usage. The report shows what each policy would have reserved, and where resources would have been short.

The command reads usage from CSV tables, plain or compressed with gzip, or from Prometheus. The arguments are files,
folders with files that end in .csv or .csv.gz, or "-" for standard input. The header tells the two kinds of tables apart.
The order of columns and rows does not matter:

  series,timestamp,cpu_cores,memory_bytes    usage: the average of CPU and the peak of memory since the timestamp, which
                                             is in seconds since 1970 or like 2026-01-05T00:05:00Z
  series,step_s,init_cpu,init_mem            containers: the length of their intervals, and their current requests in
                                             cores and bytes

With --prometheus, there are no arguments. The command asks Prometheus for the usage of the pods of --deployment, or of
the Deployment of --scaler. With several pods, the largest usage of any pod counts in each interval, for CPU and for
memory, because one request applies to all pods. The current requests are the largest of its pods in the cluster of your
kubeconfig; --cpu-request and --memory-request stand in for requests that are not set. With --requests, no cluster is
needed. Credentials for Prometheus come only from the files that the flags name.

The policies are:

  verticalscaler   VerticalScaler with its defaults, resizing in place: the code that the operator runs. --profile
                   corresponds to spec.recommendationPolicy.profile
  vpa              the Vertical Pod Autoscaler's rule with its defaults, resizing in place
  static           the current requests, never changed

The replay assumes that usage does not depend on what is reserved. The memory limit equals the memory request, and there
is no CPU limit. A container that needs more memory than its limit is OOM-killed; in the next interval it needs what was
recorded. A new request takes effect with the next interval, and every resize succeeds.

The operator's own checkpoints cannot be replayed: a VerticalScalerCheckpoint holds peaks and costs, not usage over time.

Exit codes: 0: report written, 1: failure, 2: invalid usage.`

const backtestExample = `  # All policies, for the containers in a folder
  %[1]s backtest internal/backtest/testdata/traces

  # A line for each container, measured from the beginning
  %[1]s backtest internal/backtest/testdata/traces -o wide --warm-up 0

  # An HTML page with plots
  %[1]s backtest internal/backtest/testdata/traces -o html --output-file backtest.html

  # What fewer resizes would cost
  %[1]s backtest internal/backtest/testdata/traces --profile Calm

  # Usage from standard input, of containers that currently request 500m and 512Mi
  gunzip -c usage.csv.gz | %[1]s backtest - --cpu-request 500m --memory-request 512Mi --policy verticalscaler,static -o json

  # The last eight days of a Deployment from Prometheus; its requests from the cluster
  %[1]s backtest --prometheus http://localhost:9090 --deployment web -n shop

  # A scaler's Deployment, from a Prometheus that requires a token; save the usage to replay it later
  %[1]s backtest --prometheus https://prometheus.example.com --prometheus-token-file token --prometheus-ca-file ca.crt --scaler web -n shop --since 336h --save usage

  # Without a cluster
  %[1]s backtest --prometheus http://localhost:9090 --deployment web -n shop --requests app=500m/1Gi,proxy=100m/64Mi`

// backtestOptions are the flags.
type backtestOptions struct {
	genericiooptions.IOStreams
	cluster *cluster
	clock   clock.PassiveClock
	past    pastOptions

	policies   []string
	profile    string
	output     string
	outputFile string
	warmUp     time.Duration
	cpu        string
	memory     string
	workers    int
}

func newBacktest(streams genericiooptions.IOStreams, cluster *cluster) *cobra.Command {
	o := &backtestOptions{
		IOStreams: streams, cluster: cluster, clock: clock.RealClock{},
		policies: ruleNames(), profile: string(profile.Balanced), output: "table", warmUp: 3 * 24 * time.Hour,
	}
	c := &cobra.Command{
		Use:     "backtest FILE|FOLDER|- ...|--prometheus=URL",
		Short:   "Replay recorded usage with VerticalScaler, VPA and today's requests",
		Long:    backtestLong,
		Example: fmt.Sprintf(backtestExample, commandName),
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && !c.Flags().Changed("prometheus") {
				return usageError{errors.New("no usage to replay: name files or a folder, or - for standard input, or use --prometheus")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error { return o.run(c, args) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"csv", "gz"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	flags := c.Flags()
	flags.StringSliceVar(&o.policies, "policy", o.policies, "The policies to replay, in the order to show them.")
	flags.StringVar(&o.profile, "profile", o.profile, "The profile of the policy verticalscaler: "+strings.Join(profileNames(), ", ")+".")
	flags.StringVarP(&o.output, "output", "o", o.output, "The format of the report: "+strings.Join(outputs, ", ")+".")
	flags.StringVar(&o.outputFile, "output-file", "", "The file to write the report to. Defaults to stdout.")
	flags.DurationVar(&o.warmUp, "warm-up", o.warmUp, "The time at the beginning of each trace that is replayed but not measured.")
	flags.StringVar(&o.cpu, "cpu-request", "", "The current CPU request, such as 500m, of containers whose request is not known otherwise.")
	flags.StringVar(&o.memory, "memory-request", "", "The current memory request, such as 512Mi, of containers whose request is not known otherwise.")
	flags.IntVar(&o.workers, "workers", 0, "The number of concurrent replays. 0 means one for each processor.")
	o.past.bind(c)
	for flag, values := range map[string][]string{"policy": ruleNames(), "profile": profileNames(), "output": outputs} {
		complete := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
		if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // a flag that does not exist
		}
	}
	return c
}

func ruleNames() (names []string) {
	for _, rule := range rules {
		names = append(names, rule.Name)
	}
	return names
}

func profileNames() (names []string) {
	for _, p := range profile.All() {
		names = append(names, string(p))
	}
	return names
}

func (o *backtestOptions) run(c *cobra.Command, paths []string) error {
	chosen, err := o.rules()
	if err != nil {
		return usageError{err}
	}
	requests, err := o.requests()
	if err != nil {
		return usageError{err}
	}
	if err := o.validate(paths); err != nil {
		return usageError{err}
	}

	if err := o.past.validate(c, paths, o.warmUp); err != nil {
		return usageError{err}
	}
	until, err := o.past.end(o.clock.Now())
	if err != nil {
		return usageError{err}
	}

	progress := newProgress(o.ErrOut)
	defer progress.clear()
	progress.say("Reading usage")
	var from source = files{paths: paths, stdin: o.In}
	if o.past.address != "" {
		from = &past{pastOptions: o.past, cluster: o.cluster, until: until, say: progress.say, warn: func(text string) {
			progress.clear()
			fmt.Fprintln(o.ErrOut, "warning:", text)
		}}
	}
	traces, err := from.Traces(c.Context(), requests)
	if err != nil {
		return err
	}
	report, err := backtest.Evaluate(traces, chosen, against, backtest.Options{
		WarmUp:  o.warmUp,
		Record:  o.output == "html",
		Workers: o.workers,
		Progress: func(done, all int) {
			progress.say(fmt.Sprintf("Replaying: %d of %d", done, all))
		},
	})
	if err != nil {
		return fmt.Errorf("%w: use --warm-up", err)
	}
	progress.clear()
	return o.write(report)
}

func (o *backtestOptions) rules() ([]backtest.Rule, error) {
	var chosen []backtest.Rule
	for _, name := range o.policies {
		named := func(r backtest.Rule) bool { return r.Name == name }
		i := slices.IndexFunc(rules, named)
		if i < 0 {
			return nil, fmt.Errorf("--policy %q is not one of %s", name, strings.Join(ruleNames(), ", "))
		}
		if slices.ContainsFunc(chosen, named) {
			return nil, fmt.Errorf("--policy names %s twice", name)
		}
		chosen = append(chosen, rules[i])
	}
	switch {
	case !slices.Contains(profileNames(), o.profile):
		return nil, fmt.Errorf("--profile %q is not one of %s", o.profile, strings.Join(profileNames(), ", "))
	case o.profile != string(profile.Balanced):
		rule := engine.Of(profile.Profile(o.profile))
		for i := range chosen {
			if chosen[i].Name == rule.Name {
				chosen[i] = rule
			}
		}
	}
	if len(chosen) == 0 {
		return nil, errors.New("--policy is empty")
	}
	return chosen, nil
}

func (o *backtestOptions) requests() (requests quantity.Amounts, err error) {
	for _, f := range []struct {
		flag, text string
		read       func(resource.Quantity) (int64, error)
		into       *int64
	}{
		{"--cpu-request", o.cpu, quantity.CPUMillis, &requests.CPUMillis},
		{"--memory-request", o.memory, quantity.MemoryBytes, &requests.MemoryBytes},
	} {
		if f.text == "" {
			continue
		}
		if *f.into, err = amount(f.flag, f.text, f.read); err != nil {
			return requests, err
		}
	}
	return requests, nil
}

// amount reads a flag's amount, which must be more than 0.
func amount(flag, text string, read func(resource.Quantity) (int64, error)) (n int64, err error) {
	q, err := resource.ParseQuantity(text)
	if err == nil {
		n, err = read(q)
	}
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w", flag, text, err)
	}
	if n == 0 {
		return 0, fmt.Errorf("%s must be more than 0", flag)
	}
	return n, nil
}

func (o *backtestOptions) validate(paths []string) error {
	switch {
	case !slices.Contains(outputs, o.output):
		return fmt.Errorf("--output %q is not one of %s", o.output, strings.Join(outputs, ", "))
	case o.warmUp < 0 || o.warmUp > longestWarmUp:
		return fmt.Errorf("--warm-up must be from 0 to %s", longestWarmUp)
	case o.workers < 0:
		return errors.New("--workers must not be negative")
	}
	for i, path := range paths {
		if path == "-" && slices.Contains(paths[i+1:], "-") {
			return errors.New("standard input can be read only once")
		}
	}
	return nil
}

// write writes the report to --output-file, or else to stdout.
func (o *backtestOptions) write(report *backtest.Report) error {
	if o.outputFile == "" {
		return o.writeTo(o.Out, report)
	}
	return writeFile(o.outputFile, func(w io.Writer) error { return o.writeTo(w, report) })
}

// writeFile writes a file atomically: it writes a temporary file and renames it.
func writeFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name()) // the first error is reported
		}
	}()
	err = write(file)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(file.Name(), 0o644) //nolint:gosec // a report is no secret
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	return err
}

func (o *backtestOptions) writeTo(w io.Writer, report *backtest.Report) error {
	switch o.output {
	case "json":
		return report.WriteJSON(w)
	case "yaml":
		return report.WriteYAML(w)
	case "html":
		return report.WriteHTML(w)
	}
	return report.WriteTable(w, o.output == "wide")
}

// progress is one line on a terminal that each message overwrites.
type progress struct {
	to     io.Writer // nil for none
	length int
}

func newProgress(to io.Writer) *progress {
	if file, ok := to.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		return &progress{to: to}
	}
	return &progress{}
}

func (p *progress) say(text string) {
	if p.to == nil {
		return
	}
	fmt.Fprintf(p.to, "\r%-*s", p.length, text)
	p.length = len(text)
}

func (p *progress) clear() {
	if p.to == nil || p.length == 0 {
		return
	}
	fmt.Fprintf(p.to, "\r%*s\r", p.length, "")
	p.length = 0
}
