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
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// rules are all that there are, in the order in which they are shown.
var rules = []backtest.Rule{engine.Rule(), vpa.Rule(), backtest.Static()}

// against are those that the others are compared with.
var against = []string{"static", "vpa"}

var outputs = []string{"table", "wide", "json", "yaml", "html"}

// longestWarmUp is more than anybody has recorded.
const longestWarmUp = 366 * 24 * time.Hour

const backtestLong = `Replay recorded usage, and show what each policy would have reserved, and what would have gone short.

Usage is read from tables of comma-separated values, compressed with gzip or not, or from Prometheus. The arguments are
files, folders with files that end in .csv or .csv.gz, or "-" for standard input. Two kinds of tables are told apart by
their header; the order of columns and rows does not matter:

  series,timestamp,cpu_cores,memory_bytes    usage: the average of CPU and the peak of memory since the timestamp, which
                                             is in seconds since 1970 or like 2026-01-05T00:05:00Z
  series,step_s,init_cpu,init_mem            what is known of each container: the length of its intervals, and today's
                                             requests in cores and bytes

With --prometheus, there are no arguments: Prometheus is asked for the usage of the pods of --deployment, or of the
Deployment of --scaler. Where it has several pods, the largest usage of any of them counts in each interval, for CPU and
for memory: one request holds for all pods. Today's requests are the largest of its pods in the cluster of your
kubeconfig; what they do not request, --cpu-request and --memory-request stand in for. With --requests, no cluster is
needed. Credentials for Prometheus come from the files that flags name, and from nowhere else.

The policies are:

  ours     VerticalScaler with its defaults, resizing in place: the code that the operator runs. --profile is what
           spec.recommendationPolicy.profile would be
  vpa      the Vertical Pod Autoscaler's rule with its defaults, resizing in place
  static   today's requests, never changed

Usage is taken as what a container wants: it does not react to what is reserved. The memory limit is the memory request,
and there is no CPU limit. A container that wants more memory than its limit is killed, and wants what was recorded
for the next interval. An answer takes effect with the next interval, and every resize succeeds.

What the operator has stored cannot be replayed: a VerticalScalerCheckpoint holds peaks of usage and what rules would have
cost, not its course over time.

Exit codes: 0 for a report, 1 where something has failed, 2 where the command line makes no sense.`

const backtestExample = `  # All policies, for the containers in a folder
  %[1]s backtest internal/backtest/testdata/traces

  # Each container on its own, all of its time measured
  %[1]s backtest internal/backtest/testdata/traces -o wide --warm-up 0

  # A page with plots, for a browser
  %[1]s backtest internal/backtest/testdata/traces -o html --output-file backtest.html

  # What fewer resizes would cost
  %[1]s backtest internal/backtest/testdata/traces --profile Calm

  # Usage from somewhere else, of containers that request 500m and 512Mi today
  gunzip -c usage.csv.gz | %[1]s backtest - --cpu-request 500m --memory-request 512Mi --policy ours,static -o json

  # A Deployment's last eight days, from Prometheus; its requests from the cluster
  %[1]s backtest --prometheus http://localhost:9090 --deployment web -n shop

  # A scaler's Deployment, from a Prometheus that wants a token; and keep what was read, to replay it later
  %[1]s backtest --prometheus https://prometheus.example.com --prometheus-token-file token --prometheus-ca-file ca.crt --scaler web -n shop --since 336h --save usage

  # Without a cluster
  %[1]s backtest --prometheus http://localhost:9090 --deployment web -n shop --requests app=500m/1Gi,proxy=100m/64Mi`

// backtestOptions are what the command line says.
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
	flags.StringVar(&o.profile, "profile", o.profile, "The profile of the policy ours: "+strings.Join(profileNames(), ", ")+".")
	flags.StringVarP(&o.output, "output", "o", o.output, "The format of the report: "+strings.Join(outputs, ", ")+".")
	flags.StringVar(&o.outputFile, "output-file", "", "A file for the report. Standard output without.")
	flags.DurationVar(&o.warmUp, "warm-up", o.warmUp, "The time at the beginning of each container that is replayed, but not measured.")
	flags.StringVar(&o.cpu, "cpu-request", "", "Today's CPU request, such as 500m, of containers for which nothing else tells it.")
	flags.StringVar(&o.memory, "memory-request", "", "Today's memory request, such as 512Mi, of containers for which nothing else tells it.")
	flags.IntVar(&o.workers, "workers", 0, "The number of replays at the same time. 0 is one for each processor.")
	o.past.bind(c)
	for flag, values := range map[string][]string{"policy": ruleNames(), "profile": profileNames(), "output": outputs} {
		complete := cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
		if err := c.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // there is no such flag
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

	progress := newProgress(o.ErrOut)
	defer progress.clear()
	progress.say("Reading usage")
	var from source = files{paths: paths, stdin: o.In}
	if o.past.address != "" {
		from = &past{pastOptions: o.past, cluster: o.cluster, now: o.clock.Now(), say: progress.say, warn: func(text string) {
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
		return nil, errors.New("--policy names none")
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

// write writes the report to the file, if there is one.
func (o *backtestOptions) write(report *backtest.Report) error {
	if o.outputFile == "" {
		return o.writeTo(o.Out, report)
	}
	return writeFile(o.outputFile, func(w io.Writer) error { return o.writeTo(w, report) })
}

// writeFile writes a file that is complete or not there: it is written beside, and then
// moved.
func writeFile(path string, write func(io.Writer) error) (err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name()) // the first error is the one to tell
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

// progress is one line on a terminal that is written over.
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
