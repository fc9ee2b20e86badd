// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"

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
	address   string
	labels    map[string]string
	tokenFile string
	caFile    string
	since     time.Duration
	until     string // "" for now
	step      time.Duration
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

// source reads the average of CPU and the peak of memory in each interval. Readings of whole namespaces are limited to the
// given Deployments, if there are any.
func (o *pastOptions) source(deployments ...string) (*prometheus.Source, error) {
	return prometheus.New(prometheus.Options{
		Address:         o.address,
		Labels:          o.labels,
		Deployments:     deployments,
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
