// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
)

const (
	day = 24 * time.Hour
	// longestSince is the limit of the operator's own configuration.
	longestSince = 90 * day
	// leastRateWindow covers two scrapes, even with a scrape interval of two minutes.
	leastRateWindow = 4 * time.Minute
	// queryTimeout applies to one query. The source splits a query that takes longer.
	queryTimeout = time.Minute
	// maxAnswer is the largest decompressed response, in bytes.
	maxAnswer = 32 << 20
	// maxWarnings is the number of Prometheus warnings that are shown.
	maxWarnings = 3
)

// pastOptions are the flags for Prometheus.
type pastOptions struct {
	address    string
	labels     map[string]string
	tokenFile  string
	caFile     string
	deployment string
	scaler     string
	requests   []string
	since      time.Duration
	until      string // "" for now
	step       time.Duration
	save       string
}

func (o *pastOptions) bind(c *cobra.Command) {
	o.since, o.step = 8*day, 5*time.Minute
	flags := c.Flags()
	o.bindServer(c, "The URL of the Prometheus to read usage from, instead of files. It must scrape the kubelets' cAdvisor metrics.")
	flags.StringVar(&o.deployment, "deployment", "", "The Deployment whose usage to read from Prometheus.")
	flags.StringVar(&o.scaler, "scaler", "", "The VerticalScaler whose Deployment to read, instead of --deployment.")
	flags.StringSliceVar(&o.requests, "requests", nil, "The containers to replay and their current requests, such as app=500m/1Gi. No cluster is read then.")
	o.bindSpan(c)
	flags.StringVar(&o.save, "save", "", "The folder to save the usage to, as tables that can be replayed.")
}

// bindSpan adds the flags that say which usage to read.
func (o *pastOptions) bindSpan(c *cobra.Command) {
	flags := c.Flags()
	flags.DurationVar(&o.since, "since", o.since, "How far back to read usage.")
	flags.StringVar(&o.until, "until", "", "The end of the usage, such as 2026-11-23T12:00:00Z. Defaults to now.")
	flags.DurationVar(&o.step, "step", o.step, "The resolution of the usage.")
}

// end is the end of the usage.
func (o *pastOptions) end(now time.Time) (time.Time, error) {
	if o.until == "" {
		return now, nil
	}
	until, err := time.Parse(time.RFC3339, o.until)
	if err != nil {
		return until, fmt.Errorf("--until %q is not like 2026-11-23T12:00:00Z", o.until)
	}
	return until, nil
}

// bindServer adds the flags that say which Prometheus to ask.
func (o *pastOptions) bindServer(c *cobra.Command, what string) {
	flags := c.Flags()
	flags.StringVar(&o.address, "prometheus", "", what)
	flags.StringToStringVar(&o.labels, "prometheus-label", nil, "An additional label matcher, such as cluster=east.")
	flags.StringVar(&o.tokenFile, "prometheus-token-file", "", "The file with the bearer token for Prometheus. The token is sent over https only.")
	flags.StringVar(&o.caFile, "prometheus-ca-file", "", "The CA bundle (PEM) for Prometheus. Defaults to the CAs of the system.")
}

// needPrometheus are the flags that require --prometheus.
var needPrometheus = []string{
	"deployment", "scaler", "requests", "since", "until", "step", "save", "prometheus-label", "prometheus-token-file", "prometheus-ca-file",
}

// validate checks the flags.
func (o *pastOptions) validate(c *cobra.Command, paths []string, warmUp time.Duration) error {
	if !c.Flags().Changed("prometheus") {
		for _, flag := range needPrometheus {
			if c.Flags().Changed(flag) {
				return fmt.Errorf("--%s requires --prometheus", flag)
			}
		}
		return nil
	}
	switch {
	case len(paths) > 0:
		return errors.New("use either --prometheus or files, not both")
	case (o.deployment == "") == (o.scaler == ""):
		return errors.New("--prometheus requires either --deployment or --scaler")
	case o.scaler != "" && len(o.requests) > 0:
		return errors.New("--requests requires --deployment: a scaler can only be read from the cluster")
	case o.step < time.Minute || o.step > time.Hour || o.step%time.Second != 0:
		return errors.New("--step must be from 1m to 1h, in whole seconds")
	case o.since < 2*o.step || o.since > longestSince:
		return fmt.Errorf("--since must be from two steps to %s", longestSince)
	case o.since <= warmUp:
		return fmt.Errorf("--since %s is not longer than --warm-up %s: nothing would be measured", o.since, warmUp)
	}
	if _, err := o.containers(); err != nil {
		return err
	}
	return o.validateServer()
}

// validateServer checks the flags of bindServer.
func (o *pastOptions) validateServer() error {
	if address, err := url.Parse(o.address); err == nil && (address.RawQuery != "" || address.ForceQuery || address.Fragment != "") {
		return errors.New("--prometheus must be a URL without ? and #")
	}
	for name := range o.labels {
		if !model.LegacyValidation.IsValidLabelName(name) {
			return fmt.Errorf("--prometheus-label %q is not a valid label name", name)
		}
	}
	if _, err := o.source(); err != nil {
		return fmt.Errorf("--prometheus: %w", err)
	}
	return nil
}

// source reads the average of CPU and the peak of memory in each interval.
func (o *pastOptions) source() (*prometheus.Source, error) {
	return prometheus.New(prometheus.Options{
		Address:         o.address,
		Labels:          o.labels,
		Step:            o.step,
		RateWindow:      max(o.step, leastRateWindow),
		MemoryWindow:    o.step,
		Timeout:         queryTimeout,
		MaxBytes:        maxAnswer,
		Uncompressed:    true,
		CAFile:          o.caFile,
		BearerTokenFile: o.tokenFile,
	})
}

// containers are the containers of --requests.
func (o *pastOptions) containers() (all []sized, err error) {
	for _, text := range o.requests {
		name, amounts, hasName := strings.Cut(text, "=")
		cpu, memory, hasBoth := strings.Cut(amounts, "/")
		if !hasName || !hasBoth || name == "" {
			return nil, fmt.Errorf("--requests %q is not like app=500m/1Gi", text)
		}
		if slices.ContainsFunc(all, func(s sized) bool { return s.name == name }) {
			return nil, fmt.Errorf("--requests names container %s twice", name)
		}
		c := sized{name: name}
		if c.requests.CPUMillis, err = amount("--requests", cpu, quantity.CPUMillis); err != nil {
			return nil, err
		}
		if c.requests.MemoryBytes, err = amount("--requests", memory, quantity.MemoryBytes); err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// past is usage from Prometheus.
type past struct {
	pastOptions
	cluster   *cluster
	namespace string // "" for that of the command
	until     time.Time
	say       func(string) // shows progress
	warn      func(string)
}

func (p *past) Traces(ctx context.Context, requests quantity.Amounts) ([]backtest.Trace, error) {
	name, containers, err := p.target(ctx)
	if err != nil {
		return nil, err
	}
	for i := range containers {
		if err := containers[i].complete(requests); err != nil {
			return nil, fmt.Errorf("container %q of Deployment %s: %w", containers[i].name, name, err)
		}
	}
	used, err := p.read(ctx, name, containers)
	if err != nil {
		return nil, err
	}

	// The replay reads the same tables that --save writes.
	var amounts, sizes bytes.Buffer
	series := func(container string) string { return name.String() + "/" + container }
	used.write(&amounts, series)
	writeSizes(&sizes, containers, p.step, series)
	if p.save != "" {
		if err := save(p.save, name, amounts.Bytes(), sizes.Bytes()); err != nil {
			return nil, fmt.Errorf("saving usage: %w", err)
		}
	}
	var reader backtest.Reader
	for _, table := range []*bytes.Buffer{&amounts, &sizes} {
		if err := reader.Read("the response of Prometheus", table); err != nil {
			return nil, err
		}
	}
	return reader.Traces(requests)
}

// target returns the Deployment, its containers and their requests.
func (p *past) target(ctx context.Context) (name types.NamespacedName, containers []sized, err error) {
	if name.Namespace = p.namespace; name.Namespace == "" {
		if name.Namespace, err = p.cluster.namespace(); err != nil {
			return name, nil, err
		}
	}
	name.Name = p.deployment
	if containers, err = p.containers(); err != nil || len(containers) > 0 {
		return name, containers, err
	}
	p.say("Reading requests from the cluster")
	c, err := p.cluster.open()
	if err != nil {
		return name, nil, fmt.Errorf("reading the current requests from the cluster (or set --requests): %w", err)
	}
	if p.scaler != "" {
		if name.Name, err = deploymentOf(ctx, c, types.NamespacedName{Namespace: name.Namespace, Name: p.scaler}); err != nil {
			return name, nil, err
		}
	}
	containers, err = containersOf(ctx, c, name)
	return name, containers, err
}

// complete fills in requests that are not set.
func (s *sized) complete(requests quantity.Amounts) error {
	for _, a := range []struct {
		what, flag string
		into       *int64
		standIn    int64
	}{
		{"CPU", "--cpu-request", &s.requests.CPUMillis, requests.CPUMillis},
		{"memory", "--memory-request", &s.requests.MemoryBytes, requests.MemoryBytes},
	} {
		if *a.into == 0 {
			*a.into = a.standIn
		}
		if *a.into == 0 {
			return fmt.Errorf("it has no %s request: set %s to compare with", a.what, a.flag)
		}
	}
	return nil
}

// read asks for one day at a time, to be able to show progress.
func (p *past) read(ctx context.Context, name types.NamespacedName, containers []sized) (peaks, error) {
	source, err := p.source()
	if err != nil {
		return nil, err
	}
	target := prometheus.Target{Namespace: name.Namespace, Deployment: name.Name}
	for _, c := range containers {
		target.Containers = append(target.Containers, c.name)
	}
	cpu, memory, err := source.Queries(target)
	if err != nil {
		return nil, fmt.Errorf("asking Prometheus about Deployment %s: %w", name, err)
	}

	answer := answers{used: peaks{}, refused: map[usage.Refusal]int{}, step: p.step}
	from, days := p.until.Add(-p.since), int((p.since+day-1)/day)
	for i := range days {
		p.say(fmt.Sprintf("Reading usage from Prometheus: day %d of %d", i+1, days))
		start, end := from.Add(time.Duration(i)*day), p.until
		if i+1 < days {
			end = start.Add(day - 1) // the next day begins with the next sample
		}
		if err := source.Range(ctx, target, start, end, answer.add); err != nil {
			return nil, p.explain(err)
		}
	}
	if len(answer.used) == 0 {
		return nil, fmt.Errorf("Prometheus at %s knows no usage of Deployment %s since %s. The queries were\n  %s\n  %s%s", //nolint:staticcheck // a name, and queries to copy
			p.address, name, from.UTC().Format(time.RFC3339), cpu, memory, countsOf(answer.refused))
	}
	p.warnAbout(answer, containers)
	return answer.used, nil
}

// answers collects what Prometheus answers.
type answers struct {
	used     peaks
	refused  map[usage.Refusal]int
	warnings []string // no more than maxWarnings
	step     time.Duration
}

func (a *answers) add(c prometheus.Chunk) {
	a.used.add(c.Samples, a.step)
	for why, n := range c.Refused {
		a.refused[why] += n
	}
	for _, warning := range c.Warnings {
		if !slices.Contains(a.warnings, warning) && len(a.warnings) < maxWarnings {
			a.warnings = append(a.warnings, warning)
		}
	}
}

// warnAbout warns about usage that is missing and points that were not used.
func (p *past) warnAbout(a answers, containers []sized) {
	for _, c := range containers {
		if a.used[c.name] == nil {
			p.warn(fmt.Sprintf("Prometheus knows no usage of container %q; the backtest leaves it out", c.name))
		}
	}
	for _, warning := range a.warnings {
		p.warn("Prometheus: " + warning)
	}
	if len(a.refused) > 0 {
		p.warn("some points from Prometheus could not be used" + countsOf(a.refused))
	}
}

func (o *pastOptions) explain(err error) error {
	hint := ""
	var said *prometheus.Error
	if errors.As(err, &said) && said.Unauthorized {
		hint = "the credentials were rejected (--prometheus-token-file): "
	}
	return fmt.Errorf("asking Prometheus at %s: %s%w", o.address, hint, err)
}

// countsOf lists the points that were not used, by reason.
func countsOf(refused map[usage.Refusal]int) string {
	var words []string
	for _, why := range slices.Sorted(maps.Keys(refused)) {
		words = append(words, fmt.Sprintf("%d %s", refused[why], why))
	}
	if len(words) == 0 {
		return ""
	}
	return "; points refused: " + strings.Join(words, ", ")
}

// peaks is the largest usage of any pod, by container and interval: one request applies to
// all pods.
type peaks map[string]map[int64]quantity.Amounts

// add merges samples. Their time is the end of the interval.
func (p peaks) add(samples []usage.Sample, step time.Duration) {
	for _, s := range samples {
		if p[s.Container] == nil {
			p[s.Container] = map[int64]quantity.Amounts{}
		}
		start := s.Time.Add(-step).Unix()
		most := p[s.Container][start]
		p[s.Container][start] = quantity.Amounts{
			CPUMillis:   max(most.CPUMillis, s.CPUMillis),
			MemoryBytes: max(most.MemoryBytes, s.MemoryBytes),
		}
	}
}

// write writes the table of usage.
func (p peaks) write(w io.Writer, series func(container string) string) {
	fmt.Fprintln(w, "series,timestamp,cpu_cores,memory_bytes")
	for _, container := range slices.Sorted(maps.Keys(p)) {
		name := series(container)
		for _, at := range slices.Sorted(maps.Keys(p[container])) {
			most := p[container][at]
			fmt.Fprintf(w, "%s,%d,%s,%d\n", name, at, cores(most.CPUMillis), most.MemoryBytes)
		}
	}
}

// writeSizes writes the table of containers.
func writeSizes(w io.Writer, containers []sized, step time.Duration, series func(container string) string) {
	fmt.Fprintln(w, "series,step_s,init_cpu,init_mem")
	for _, c := range containers {
		fmt.Fprintf(w, "%s,%d,%s,%d\n", series(c.name), step/time.Second, cores(c.requests.CPUMillis), c.requests.MemoryBytes)
	}
}

func cores(millis int64) string { return fmt.Sprintf("%d.%03d", millis/1000, millis%1000) }

// save writes the tables to a folder. All tables of a folder can be replayed together. Names in
// Kubernetes have no underscore, so the files of two Deployments never collide.
func save(folder string, name types.NamespacedName, amounts, sizes []byte) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // usage is no secret
		return err
	}
	base := filepath.Join(folder, name.Namespace+"_"+name.Name)
	for path, table := range map[string][]byte{base + "_series.csv": sizes, base + ".csv": amounts} {
		if err := writeFile(path, func(w io.Writer) error {
			_, err := w.Write(table)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
