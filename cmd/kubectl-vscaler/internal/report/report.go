// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package report has the command report.
package report

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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/past"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/engine"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/krr"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/vpa"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

// longestWarmUp is longer than any known recording.
const longestWarmUp = 366 * past.Day

// reportOptions are the flags.
type reportOptions struct {
	genericiooptions.IOStreams
	Reporter

	everywhere  bool
	selector    string
	fromMetrics bool
	until       string // "" for now
	profiles    []string
	prices      string
	output      string
	outputFile  string
	patches     patchOptions
}

// New is the command report.
func New(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &reportOptions{IOStreams: streams, profiles: []string{string(profile.Balanced)}, output: "table", Reporter: Reporter{
		Cluster: cluster, Past: &past.Options{Since: 8 * past.Day, Step: 5 * time.Minute}, Options: fleet.Options{WarmUp: 3 * past.Day}, Top: 20,
	}}
	c := cli.Command(&cobra.Command{
		Use: "report [--prometheus=URL|FILE|FOLDER|- ...]", Short: "Report what containers request, and what they need", SuggestFor: []string{"backtest"},
		ValidArgsFunction: cobra.FixedCompletions([]string{"csv", "gz"}, cobra.ShellCompDirectiveFilterFileExt),
	}, o.run)
	flags := c.Flags()
	flags.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "Report the workloads of all namespaces.")
	flags.StringVarP(&o.selector, "selector", "l", "", "Report only workloads with these labels, such as team=shop,tier!=test.")
	flags.StringSliceVar(&o.Selection.Deployments, "deployment", nil, "Report only Deployments with this name, and no other kinds. Can be repeated.")
	o.Past.Bind(c, "The URL of the Prometheus to read usage from. It must scrape the kubelets' cAdvisor metrics.")
	flags.BoolVar(&o.fromMetrics, "from-metrics", false, "Read Deployments and requests from kube-state-metrics in Prometheus, and no cluster.")
	flags.DurationVar(&o.Past.Since, "since", o.Past.Since, "How far back to read usage.")
	flags.StringVar(&o.until, "until", "", "The end of the usage, such as 2026-11-23T12:00:00Z. Defaults to now.")
	flags.DurationVar(&o.Past.Step, "step", o.Past.Step, "The resolution of the usage.")
	flags.StringVar(&o.Save, "save", "", "The folder to save the usage from Prometheus to, as tables that can be reported.")
	flags.DurationVar(&o.Options.WarmUp, "warm-up", o.Options.WarmUp, "The time at the beginning of each container's usage that is replayed but not measured.")
	flags.StringSliceVar(&o.profiles, "profile", o.profiles, "The profiles to report: "+strings.Join(ProfileNames(), ", ")+". The first one is compared with today's requests.")
	flags.StringVar(&o.prices, "prices", "", "The file with the prices of CPU and memory. Defaults to OpenCost's metrics in Prometheus, if there are any.")
	flags.StringVar(&o.Options.GroupBy, "group-by", "", "Also report the sums by namespace, or by a label of the workloads, such as label:team.")
	cli.AddChoice(c, &o.output, "output", "o", []string{"table", "csv", "json", "html"}, "The format of the report")
	flags.StringVar(&o.outputFile, "output-file", "", "The file to write the report to. Defaults to stdout.")
	flags.IntVar(&o.Top, "top", o.Top, "The number of containers in the outputs table and html. 0 means only the sums.")
	o.patches.bind(c)
	flags.IntVar(&o.Workers, "workers", 0, "The number of concurrent replays. 0 means one for each processor.")
	cli.Complete(c, "profile", ProfileNames())
	return c
}

var (
	// aboutPrometheus are the flags that require --prometheus.
	aboutPrometheus = []string{"from-metrics", "since", "until", "step", "save"}
	// aboutReplays are the flags that require usage.
	aboutReplays = []string{"profile", "warm-up", "workers"}
	// notWithTables are the flags about Deployments and other sources of usage.
	notWithTables = []string{"prometheus", "all-namespaces", "selector", "deployment", "patches"}
)

func (o *reportOptions) run(ctx context.Context, c *cobra.Command, paths []string) error {
	if err := o.validateSource(paths, c.Flags().Changed); err != nil {
		return cli.Usage(err)
	}
	err := o.Past.Find(ctx, o.Cluster.Config, o.ErrOut)
	if err != nil {
		return err
	}
	if err = o.validate(); err != nil {
		return cli.Usage(err)
	}
	if err := o.readPrices(); err != nil {
		return err
	}
	if len(paths) == 0 {
		if o.Selection.Namespace, err = o.Cluster.NamespaceOrAll(o.everywhere); err != nil {
			return err
		}
	}
	if o.fromMetrics {
		o.Cluster = nil
	}
	o.Options.Record, o.Options.Rules, o.tables = o.output == "html", Rules(o.profiles...), tables{paths, o.In}
	o.Progress = cli.NewProgress(o.ErrOut)
	defer o.Progress.Clear()
	report, err := o.Report(ctx)
	if err != nil {
		return err
	}
	o.Progress.Clear()
	if err := o.patches.write(report, o.ErrOut); err != nil {
		return err
	}
	return o.write(report)
}

// validateSource rejects flags of other sources of usage.
func (o *reportOptions) validateSource(paths []string, isSet func(flag string) bool) error {
	hasTables, hasServer := len(paths) > 0, o.Past.Address != ""
	if i := slices.IndexFunc(notWithTables, isSet); i >= 0 && hasTables {
		return fmt.Errorf("--%s cannot be combined with tables", notWithTables[i])
	}
	if err := o.Past.Require(isSet, aboutPrometheus...); err != nil {
		return err
	}
	if i := slices.IndexFunc(aboutReplays, isSet); i >= 0 && !hasServer && !hasTables {
		return fmt.Errorf("--%s requires --prometheus or tables", aboutReplays[i])
	}
	if i := slices.Index(paths, "-"); i >= 0 && slices.Contains(paths[i+1:], "-") {
		return errors.New("standard input can be read only once")
	}
	return nil
}

// validate checks the flags, and reads selector and until.
func (o *reportOptions) validate() (err error) {
	if o.Selection.Labels, err = labels.Parse(o.selector); err != nil {
		return fmt.Errorf("--selector: %w", err)
	}
	o.Until = o.Cluster.Clock.Now()
	if o.until != "" {
		if o.Until, err = time.Parse(time.RFC3339, o.until); err != nil {
			return fmt.Errorf("--until %q is not like 2026-11-23T12:00:00Z", o.until)
		}
	}
	if err := validateProfiles(o.profiles); err != nil {
		return err
	}
	by, warmUp, step, since := o.Options.GroupBy, o.Options.WarmUp, o.Past.Step, o.Past.Since
	const onlyInCluster = "cannot be combined with --from-metrics: the labels of Deployments are only in the cluster"
	for _, check := range []struct {
		isWrong bool
		message string
	}{
		{o.fromMetrics && o.selector != "", "--selector " + onlyInCluster},
		{o.fromMetrics && strings.HasPrefix(by, fleet.GroupByLabel), "--group-by=label:... " + onlyInCluster},
		{!isGroup(by), fmt.Sprintf("--group-by %q is neither namespace nor label: with the key of a label, such as label:team", by)},
		{warmUp < 0 || warmUp > longestWarmUp, fmt.Sprintf("--warm-up must be from 0 to %s", longestWarmUp)},
		{step < time.Minute || step > time.Hour || step%time.Second != 0, "--step must be from 1m to 1h, in whole seconds"},
		{since < 2*step || since > past.LongestSince, fmt.Sprintf("--since must be from two steps to %s", past.LongestSince)},
		{since <= warmUp && o.Past.Address != "", fmt.Sprintf("--since %s is not longer than --warm-up %s: nothing would be measured", since, warmUp)},
		{o.Top < 0 || o.Workers < 0, "--top and --workers must not be negative"},
	} {
		if check.isWrong {
			return errors.New(check.message)
		}
	}
	if err := o.patches.validate(); err != nil {
		return err
	}
	if o.Past.Address == "" {
		return nil
	}
	o.Until = o.Until.Truncate(step)
	return o.Past.Validate()
}

// validateProfiles rejects an unknown or repeated profile, and none.
func validateProfiles(names []string) error {
	if len(names) == 0 {
		return errors.New("--profile is empty")
	}
	for i, name := range names {
		switch {
		case !slices.Contains(ProfileNames(), name):
			return fmt.Errorf("--profile %q is not one of %s", name, strings.Join(ProfileNames(), ", "))
		case slices.Contains(names[:i], name):
			return fmt.Errorf("--profile names %s twice", name)
		}
	}
	return nil
}

// isGroup reports whether containers can be summed by this.
func isGroup(by string) bool {
	key, isLabel := strings.CutPrefix(by, fleet.GroupByLabel)
	return by == "" || by == fleet.GroupByNamespace || isLabel && len(validation.IsQualifiedName(key)) == 0
}

// Rules are the rules to replay.
func Rules(profiles ...string) (rules []backtest.Rule) {
	for _, name := range profiles {
		rule := engine.Of(profile.Profile(name))
		rule.Name = strings.ToLower(name)
		rules = append(rules, rule)
	}
	return append(rules, vpa.Rule(), krr.Rule())
}

// ProfileNames are the names of all profiles.
func ProfileNames() (names []string) {
	for _, p := range profile.All() {
		names = append(names, string(p))
	}
	return names
}

func (o *reportOptions) readPrices() error {
	if o.prices == "" {
		return nil
	}
	text, err := os.ReadFile(o.prices)
	if err != nil {
		return fmt.Errorf("reading --prices: %w", err)
	}
	if o.Options.Prices, err = fleet.ReadPrices(text); err != nil {
		return fmt.Errorf("--prices %s: %w", o.prices, err)
	}
	o.Options.PricesFrom = o.prices
	return nil
}

func (o *reportOptions) write(report *fleet.Report) error {
	write := func(w io.Writer) error {
		switch o.output {
		case "csv":
			return report.WriteCSV(w)
		case "json":
			return cli.WriteData(w, o.output, report)
		case "html":
			return report.WriteHTML(w, o.Top)
		}
		return report.WriteTable(w, o.Top)
	}
	if o.outputFile == "" {
		return write(o.Out)
	}
	return cli.WriteFile(o.outputFile, write)
}
