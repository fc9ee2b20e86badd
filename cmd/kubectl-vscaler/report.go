// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/krr"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

const reportLong = `Report what the containers of many Deployments request today, and what they need by their usage in Prometheus. Nothing has
to be installed in the cluster, and nothing is changed.

Without --prometheus, what they need is what VerticalScalers in updateMode Recommend recommend now, each by its own
profile, from at least a day of usage. A scaler's recommendation does not say what would have happened, so the harm and
the rules of others are unknown.

The report has today's requests, VerticalScaler's recommendation for each --profile, and those of the rules of the
Vertical Pod Autoscaler (VPA) and of the Kubernetes Resource Recommender (KRR). For each, it has cores, GiB, their
price with --prices, and the harm that a replay of the usage predicts. The containers whose requests differ most from
the first recommendation come first.

  CORES, GIB        requests of all pods; each container counts with what is recommended at the end of the usage
  STARVED           the share of time in which the pod that uses most wants more CPU than requested, the mean over containers
  OOM DAYS          the days on which a container needs more memory than its limit, of all days of all containers. For
                    today, the limit is that of the pods; for a rule, it equals the request
  RESIZES/DAY       changes of a container's requests per day

In the replay, VerticalScaler and VPA resize pods in place whenever their rules say so, and KRR's rule is applied once a
day. Nothing is measured during the --warm-up. "kubectl vscaler backtest" has the same replay for a single Deployment.

Deployments, replicas, requests and limits are read from the cluster of your kubeconfig, or with --from-metrics from
kube-state-metrics in Prometheus. The usage of a namespace is read as a whole, a day at a time. A request is the largest
of any pod; without pods, it is that of the template. In each interval, the usage of the pod that uses most counts.

The file of --prices is YAML with the keys currency, cpuCoreHour and memoryGiBHour. A month has 730 hours. Without prices,
a core counts as much as 8 GiB in the order of the containers.

With --patches, the command also writes a file for each Deployment whose requests differ from the rule git. They are for a
Git repository: patches and a component for Kustomize, manifests for "kubectl apply --server-side", or values for Helm. Limits
that are set follow in proportion. Files of other Deployments stay as they are: a Deployment that has its patch differs no
more. Deployments that another object controls get no patch.

The same usage and --until give the same report, byte for byte.

The command requires the permission to list Deployments and pods, unless --from-metrics is set. Without --prometheus, it
also requires that to list VerticalScalers.

Exit codes: 0: report written, 1: failure, 2: invalid usage.`

const reportExample = `  # A namespace
  %[1]s report -n shop --prometheus http://localhost:9090

  # The whole cluster, with prices, for a spreadsheet
  %[1]s report -A --prometheus http://localhost:9090 --prices prices.yaml -o csv --output-file report.csv

  # A page with pictures
  %[1]s report -A --prometheus http://localhost:9090 -o html --output-file report.html

  # One team's Deployments, with all profiles
  %[1]s report -A -l team=shop --prometheus http://localhost:9090 --profile Balanced,Frugal,Safe,Calm

  # Without access to the cluster
  %[1]s report -A --prometheus https://prometheus.example.com --prometheus-token-file token --from-metrics

  # What scalers in updateMode Recommend recommend, without Prometheus
  %[1]s report -A

  # Patches for Git
  %[1]s report -A --prometheus http://localhost:9090 --patches kustomize --patches-folder requests

  # The same report again
  %[1]s report -A --prometheus http://localhost:9090 --until 2026-11-23T12:00:00Z -o json`

var reportOutputs = []string{"table", "csv", "json", "html"}

// reportOptions are the flags.
type reportOptions struct {
	genericiooptions.IOStreams
	cluster *cluster
	clock   clock.PassiveClock
	past    pastOptions // only the flags for the server

	everywhere  bool
	selector    string
	fromMetrics bool
	profiles    []string
	prices      string
	warmUp      time.Duration
	output      string
	outputFile  string
	top         int
	patches     patchOptions
	workers     int
}

func newReport(streams genericiooptions.IOStreams, cluster *cluster) *cobra.Command {
	o := &reportOptions{
		IOStreams: streams, cluster: cluster, clock: clock.RealClock{}, past: pastOptions{since: 8 * day, step: 5 * time.Minute},
		profiles: []string{string(profile.Balanced)}, output: "table", warmUp: 3 * day, top: 20,
	}
	c := &cobra.Command{
		Use:               "report [--prometheus=URL]",
		Short:             "Report what a whole cluster requests, and what it needs",
		Long:              reportLong,
		Example:           fmt.Sprintf(reportExample, commandName),
		Args:              noArguments,
		RunE:              func(c *cobra.Command, _ []string) error { return o.run(c.Context(), c.Flags().Changed) },
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := c.Flags()
	flags.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "Report the Deployments of all namespaces.")
	flags.StringVarP(&o.selector, "selector", "l", "", "Report only Deployments with these labels, such as team=shop,tier!=test.")
	o.past.bindServer(c, "The URL of the Prometheus to read usage from. It must scrape the kubelets' cAdvisor metrics. Without it, scalers say what containers need.")
	flags.BoolVar(&o.fromMetrics, "from-metrics", false, "Read Deployments and requests from kube-state-metrics in Prometheus, and no cluster.")
	o.past.bindSpan(c)
	flags.DurationVar(&o.warmUp, "warm-up", o.warmUp, "The time at the beginning of each container's usage that is replayed but not measured.")
	flags.StringSliceVar(&o.profiles, "profile", o.profiles, "The profiles to report: "+strings.Join(profileNames(), ", ")+". The first one is compared with today's requests.")
	flags.StringVar(&o.prices, "prices", "", "The file with the prices of CPU and memory.")
	flags.StringVarP(&o.output, "output", "o", o.output, "The format of the report: "+strings.Join(reportOutputs, ", ")+".")
	flags.StringVar(&o.outputFile, "output-file", "", "The file to write the report to. Defaults to stdout.")
	flags.IntVar(&o.top, "top", o.top, "The number of containers in the outputs table and html. 0 means only the sums.")
	o.patches.bind(c)
	flags.IntVar(&o.workers, "workers", 0, "The number of concurrent replays. 0 means one for each processor.")
	for flag, values := range map[string][]string{"output": reportOutputs, "profile": profileNames(), "patches": patchFormats()} {
		if err := c.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)); err != nil {
			panic(err) // a flag that does not exist
		}
	}
	return c
}

// reportNeedsPrometheus are the flags that require --prometheus.
var reportNeedsPrometheus = []string{
	"from-metrics", "profile", "warm-up", "workers", "since", "until", "step", "prometheus-label", "prometheus-token-file", "prometheus-ca-file",
}

func (o *reportOptions) run(ctx context.Context, isSet func(flag string) bool) error {
	if i := slices.IndexFunc(reportNeedsPrometheus, isSet); i >= 0 && o.past.address == "" {
		return usageError{fmt.Errorf("--%s requires --prometheus", reportNeedsPrometheus[i])}
	}
	selection, until, err := o.validate()
	if err != nil {
		return usageError{err}
	}
	options, err := o.options()
	if err != nil {
		return err
	}
	if !o.everywhere {
		if selection.namespace, err = o.cluster.namespace(); err != nil {
			return err
		}
	}
	progress := newProgress(o.ErrOut)
	defer progress.clear()
	r := &reporter{
		past: &o.past, options: options, selection: selection, from: until.Add(-o.past.since), until: until, workers: o.workers,
		say: progress.say,
		warn: func(text string) {
			progress.clear()
			fmt.Fprintln(o.ErrOut, "warning:", text)
		},
	}
	if !o.fromMetrics {
		r.cluster = o.cluster
	}
	report, err := r.report(ctx)
	if err != nil {
		return err
	}
	progress.clear()
	if err := o.patches.write(report, o.ErrOut); err != nil {
		return err
	}
	return o.write(report)
}

// validate checks the flags.
func (o *reportOptions) validate() (s selection, until time.Time, err error) {
	if s.labels, err = labels.Parse(o.selector); err != nil {
		return s, until, fmt.Errorf("--selector: %w", err)
	}
	if until, err = o.past.end(o.clock.Now()); err != nil {
		return s, until, err
	}
	for i, name := range o.profiles {
		switch {
		case !slices.Contains(profileNames(), name):
			return s, until, fmt.Errorf("--profile %q is not one of %s", name, strings.Join(profileNames(), ", "))
		case slices.Contains(o.profiles[:i], name):
			return s, until, fmt.Errorf("--profile names %s twice", name)
		}
	}
	switch {
	case !slices.Contains(reportOutputs, o.output):
		return s, until, fmt.Errorf("--output %q is not one of %s", o.output, strings.Join(reportOutputs, ", "))
	case len(o.profiles) == 0:
		return s, until, errors.New("--profile is empty")
	case o.fromMetrics && o.selector != "":
		return s, until, errors.New("--selector cannot be combined with --from-metrics: the labels of Deployments are only in the cluster")
	case o.warmUp < 0 || o.warmUp > longestWarmUp:
		return s, until, fmt.Errorf("--warm-up must be from 0 to %s", longestWarmUp)
	case o.past.step < time.Minute || o.past.step > time.Hour || o.past.step%time.Second != 0:
		return s, until, errors.New("--step must be from 1m to 1h, in whole seconds")
	case o.past.since < 2*o.past.step || o.past.since > longestSince:
		return s, until, fmt.Errorf("--since must be from two steps to %s", longestSince)
	case o.past.since <= o.warmUp:
		return s, until, fmt.Errorf("--since %s is not longer than --warm-up %s: nothing would be measured", o.past.since, o.warmUp)
	case o.top < 0 || o.workers < 0:
		return s, until, errors.New("--top and --workers must not be negative")
	}
	if err := o.patches.validate(); err != nil {
		return s, until, err
	}
	if o.past.address == "" {
		return s, until, nil
	}
	return s, until.Truncate(o.past.step), o.past.validateServer()
}

// options reads the prices, and names the rules.
func (o *reportOptions) options() (fleet.Options, error) {
	options := fleet.Options{Step: o.past.step, WarmUp: o.warmUp}
	for _, name := range o.profiles {
		rule := engine.Of(profile.Profile(name))
		rule.Name = strings.ToLower(name)
		options.Rules = append(options.Rules, rule)
	}
	options.Rules = append(options.Rules, vpa.Rule(), krr.Rule())
	if o.past.address == "" {
		options.Rules = scalerRules()
	}
	if o.prices == "" {
		return options, nil
	}
	text, err := os.ReadFile(o.prices)
	if err != nil {
		return options, fmt.Errorf("reading --prices: %w", err)
	}
	if options.Prices, err = fleet.ReadPrices(text); err != nil {
		return options, fmt.Errorf("--prices %s: %w", o.prices, err)
	}
	return options, nil
}

func (o *reportOptions) write(report *fleet.Report) error {
	write := func(w io.Writer) error {
		switch o.output {
		case "csv":
			return report.WriteCSV(w)
		case "json":
			return report.WriteJSON(w)
		case "html":
			return report.WriteHTML(w, o.top)
		}
		return report.WriteTable(w, o.top)
	}
	if o.outputFile == "" {
		return write(o.Out)
	}
	return writeFile(o.outputFile, write)
}

// samplesOf turns usage into samples. An interval counts where both CPU and memory are known.
func samplesOf(cpu []int32, memory []int64, first time.Time, step time.Duration) []backtest.Sample {
	samples := make([]backtest.Sample, 0, len(cpu))
	for i := range cpu {
		if cpu[i] >= 0 && memory[i] >= 0 {
			at := first.Add(time.Duration(i-1) * step) // an interval begins a step before its point
			samples = append(samples, backtest.Sample{At: at.Unix(), CPUMillis: float64(cpu[i]), MemoryBytes: memory[i]})
		}
	}
	return samples
}
