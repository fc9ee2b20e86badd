// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package past asks Prometheus for the usage of past days.
package past

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/prometheus"
)

const (
	// Day is the unit of --since and --warm-up.
	Day = 24 * time.Hour
	// LongestSince is the limit of the operator's own configuration.
	LongestSince = 90 * Day
	// leastRateWindow covers two scrapes, even with a scrape interval of two minutes.
	leastRateWindow = 4 * time.Minute
	// pointsOfPast is about how many points are read of a scaler.
	pointsOfPast = 300
	// queryTimeout applies to one query. The source splits a query that takes longer.
	queryTimeout = time.Minute
	// maxAnswer is the largest response, in bytes.
	maxAnswer = 32 << 20
	// MaxWarnings is the number of Prometheus warnings that are shown.
	MaxWarnings = 3
)

// Options are the flags for Prometheus.
type Options struct {
	Address   string
	Labels    map[string]string
	TokenFile string
	CAFile    string
	Since     time.Duration
	Step      time.Duration
	// Transport sends the queries, if Find has found a server.
	Transport http.RoundTripper
	// InCluster is the address of that server for pods of the cluster.
	InCluster string
}

// Bind adds the flags that say which Prometheus to ask.
func (o *Options) Bind(c *cobra.Command, what string) {
	flags := c.Flags()
	flags.StringVar(&o.Address, "prometheus", "", what+" With auto, its Service is found by its labels.")
	flags.StringToStringVar(&o.Labels, "prometheus-label", nil, "An additional label matcher, such as cluster=east.")
	flags.StringVar(&o.TokenFile, "prometheus-token-file", "", "The file with the bearer token for Prometheus. The token is sent over https only.")
	flags.StringVar(&o.CAFile, "prometheus-ca-file", "", "The CA bundle (PEM) for Prometheus. Defaults to the CAs of the system.")
}

// Require rejects flags that are set without --prometheus: the flags of Bind, and more.
func (o *Options) Require(isSet func(flag string) bool, more ...string) error {
	flags := append([]string{"prometheus-label", "prometheus-token-file", "prometheus-ca-file"}, more...)
	if i := slices.IndexFunc(flags, isSet); i >= 0 && o.Address == "" {
		return fmt.Errorf("--%s requires --prometheus", flags[i])
	}
	return nil
}

// Validate checks the flags of Bind.
func (o *Options) Validate() error {
	if address, err := url.Parse(o.Address); err == nil && (address.RawQuery != "" || address.ForceQuery || address.Fragment != "") {
		return errors.New("--prometheus must be a URL without ? and #")
	}
	for name := range o.Labels {
		if !model.LegacyValidation.IsValidLabelName(name) {
			return fmt.Errorf("--prometheus-label %q is not a valid label name", name)
		}
	}
	if o.Address == Auto {
		return nil
	}
	if _, err := o.Source(); err != nil {
		return fmt.Errorf("--prometheus: %w", err)
	}
	return nil
}

// Source reads the average of CPU and the peak of memory in each interval. Readings of whole namespaces are limited to the
// given Deployments, if there are any.
func (o *Options) Source(deployments ...string) (*prometheus.Source, error) {
	return prometheus.New(prometheus.Options{
		Address:         o.Address,
		Labels:          o.Labels,
		Deployments:     deployments,
		Step:            o.Step,
		RateWindow:      max(o.Step, leastRateWindow),
		MemoryWindow:    o.Step,
		Timeout:         queryTimeout,
		MaxBytes:        maxAnswer,
		CAFile:          o.CAFile,
		BearerTokenFile: o.TokenFile,
		Transport:       o.Transport,
	})
}

// Explain adds which Prometheus was asked to an error.
func (o *Options) Explain(err error) error {
	hint := ""
	var rejected *prometheus.Error
	if errors.As(err, &rejected) && rejected.Unauthorized {
		hint = "the credentials were rejected (--prometheus-token-file): "
		if o.Transport != nil {
			hint = "you need the right to get services/proxy: "
		}
	}
	return fmt.Errorf("asking Prometheus at %s: %s%w", o.Address, hint, err)
}

// CountsOf lists the points that were not used, by reason.
func CountsOf(refused map[usage.Refusal]int) string {
	var words []string
	for _, why := range slices.Sorted(maps.Keys(refused)) {
		words = append(words, fmt.Sprintf("%d %s", refused[why], why))
	}
	if len(words) == 0 {
		return ""
	}
	return "; points refused: " + strings.Join(words, ", ")
}

// Series is the past usage of a container.
type Series struct {
	Container, Resource string
	Points              []snapshot.Point
}

// Usage is the data that Prometheus has about the containers of a scaler.
type Usage struct {
	Series                 []Series
	HasRequests, HasLimits bool
	// Missing is the reason why requests and limits could not be read; empty if they could be.
	Missing string
}

// Read reads from Prometheus what the containers of a scaler have used and requested before.
func (o Options) Read(ctx context.Context, s snapshot.Scaler) (past Usage, err error) {
	o.Step = max(time.Minute, (o.Since / pointsOfPast).Round(time.Minute))
	source, err := o.Source(s.Explanation.Deployment)
	if err != nil {
		return past, fmt.Errorf("--prometheus: %w", err)
	}
	target := prometheus.Target{Namespace: s.Explanation.Namespace, Deployment: s.Explanation.Deployment, Scaler: s.Explanation.Name}
	for _, c := range s.Containers {
		target.Containers = append(target.Containers, c.Name)
	}
	used, err := source.Fleet(ctx, []string{target.Namespace}, []string{prometheus.Deployment}, s.At.Add(-o.Since), s.At, func(of prometheus.FleetContainer) bool {
		return slices.Contains(target.Containers, of.Container)
	}, func(time.Time) {})
	if err != nil {
		return past, fmt.Errorf("asking Prometheus at %s: %w", o.Address, err)
	}
	sizes, err := source.Sizes(ctx, target, s.At.Add(-o.Since), s.At)
	if err != nil {
		sizes, past.Missing = prometheus.Sizes{}, fmt.Sprintf("asking Prometheus at %s: %v", o.Address, err)
	}
	past.HasRequests, past.HasLimits = sizes.HasRequests, sizes.HasLimits
	for _, c := range s.Containers {
		for _, r := range c.Resources {
			of := prometheus.FleetContainer{Namespace: target.Namespace, Kind: prometheus.Deployment, Workload: target.Deployment, Container: c.Name}
			points := pointsOf(r, used.Usage[of], sizes.At[prometheus.Of{Container: c.Name, Resource: r.Resource}], o.Step, s.At)
			past.Series = append(past.Series, Series{Container: c.Name, Resource: r.Resource, Points: points})
		}
	}
	return past, nil
}

// pointsOf are the points of a resource of a container, in chronological order. At a time at which
// nothing is known although requests are known before, there was no pod: its request ends there.
// Limits likewise.
func pointsOf(r snapshot.Resource, used *prometheus.ContainerUsage, sizes map[time.Time]prometheus.Size, step time.Duration, to time.Time) (points []snapshot.Point) {
	known := map[int64]snapshot.Point{}
	for i := range ptr.Deref(used, prometheus.ContainerUsage{}).CPUMillis {
		end := used.First.Add(time.Duration(i) * step)
		amount := explain.AmountOf(r.Resource, quantity.Amounts{CPUMillis: int64(used.CPUMillis[i]), MemoryBytes: used.MemoryBytes[i]})
		if amount >= 0 {
			known[end.Unix()] = snapshot.Point{At: end, Used: amount, Request: snapshot.Unknown, Limit: snapshot.Unknown}
		}
	}
	for at, size := range sizes {
		p, ok := known[at.Unix()]
		if !ok {
			p = snapshot.Point{At: at, Used: snapshot.Unknown}
		}
		p.Request, p.Limit = furthest(size.Request, r.Target), furthest(size.Limit, r.Target)
		known[at.Unix()] = p
	}
	gap := snapshot.Point{Used: snapshot.Unknown, Request: snapshot.Unknown, Limit: snapshot.Unknown}
	add := func(p snapshot.Point) {
		if n := len(points); n > 0 && p.At.After(points[n-1].At.Add(step)) {
			gap.At = points[n-1].At.Add(step)
			points = append(points, gap)
		}
		if p.Request != snapshot.Unknown {
			gap.Request = snapshot.None
		}
		if p.Limit != snapshot.Unknown {
			gap.Limit = snapshot.None
		}
		points = append(points, p)
	}
	for _, at := range slices.Sorted(maps.Keys(known)) {
		add(known[at])
	}
	add(snapshot.Point{At: to, Used: snapshot.Unknown, Request: snapshot.Unknown, Limit: snapshot.Unknown})
	return points
}

// furthest is the amount of the pod that is furthest from the target.
func furthest(a prometheus.Amount, target int64) int64 {
	switch a.Most {
	case prometheus.Unknown:
		return snapshot.Unknown
	case prometheus.None:
		return snapshot.None
	}
	return snapshot.Spread{Pods: 1, Least: a.Least, Most: a.Most}.FurthestFrom(target)
}
