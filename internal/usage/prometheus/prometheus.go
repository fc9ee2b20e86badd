// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus reads past usage from a Prometheus that scrapes the kubelets' cAdvisor, or from
// another server with its API: Thanos, Mimir, VictoriaMetrics. For plots, it also reads past requests
// and limits.
//
// Responses are checked item by item, as in package metricsapi: a point that is not a number costs
// one sample, not the response. The options bound time and memory: no response is read beyond a
// limit, every query has a timeout, and redirects are not followed.
package prometheus

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// longestChunk is the time range of one pair of queries: 360 points of each series with a
	// step of a minute, about 10 kB.
	longestChunk = 6 * time.Hour
	// shortestChunk is the shortest range to which a query is halved when its response is too
	// large.
	shortestChunk = 5 * time.Minute
	// maxPoints is below the limit of Prometheus, which is 11,000 points of a series.
	maxPoints = 10_000
)

// Options select the Prometheus to query, and how, with its credentials. Neither the environment
// nor files in the home folder have an effect.
type Options struct {
	// Address is an http or https URL without credentials.
	Address string
	// Labels are additional label matchers, such as the cluster.
	Labels map[string]string
	// Deployments limit Fleet to their pods; none are all.
	Deployments []string
	// Step is the time between two samples of a container.
	Step time.Duration
	// RateWindow is the averaging length of CPU usage. It must cover two scrapes.
	RateWindow time.Duration
	// MemoryWindow is the window of the memory peak. It must cover one scrape. 0 is two steps:
	// one scrape a step is then enough to miss no peak.
	MemoryWindow time.Duration
	// Timeout applies to one query.
	Timeout time.Duration
	// MaxBytes is the largest response.
	MaxBytes int64
	// CAFile, CertFile and KeyFile are PEM files for TLS.
	CAFile, CertFile, KeyFile string
	// BearerTokenFile, or Username and PasswordFile, are credentials. They are sent
	// over https only.
	BearerTokenFile, Username, PasswordFile string
	// Transport sends the queries, such as through a proxy that has credentials of its own; nil for the usual one.
	Transport http.RoundTripper
}

// Source reads past usage.
type Source struct {
	options Options
}

// New returns a source. It reads no files and sends no query.
func New(o Options) (*Source, error) {
	address, err := url.Parse(o.Address)
	if err != nil || address.Host == "" || address.User != nil || (address.Scheme != "http" && address.Scheme != "https") {
		return nil, errors.New("the address of Prometheus must be an http or https URL without credentials") // the parser's error may quote a secret
	}
	if address.Scheme != "https" && (o.BearerTokenFile != "" || o.PasswordFile != "") {
		return nil, errors.New("credentials for Prometheus require https")
	}
	if o.Step <= 0 || o.RateWindow <= 0 || o.MemoryWindow < 0 || o.Timeout <= 0 || o.MaxBytes <= 0 {
		return nil, errors.New("step, rate window, timeout and largest response must be above 0")
	}
	return &Source{options: o}, nil
}

// Target names the containers whose usage to read.
type Target struct {
	Namespace  string
	Deployment string
	Containers []string
	// Scaler is the VerticalScaler whose metrics Sizes may read, if any. It has no effect on usage.
	Scaler string
}

// Chunk is a part of the result. Chunks come in chronological order.
type Chunk struct {
	// Samples are valid as defined by package usage, in chronological order.
	Samples []usage.Sample
	// Refused counts the points that were not used.
	Refused map[usage.Refusal]int
	// Warnings are the warnings of Prometheus, shortened.
	Warnings []string
}

// Range reads the usage of the target's pods between two times, both included, and calls each with
// one chunk after the other. An error is an *Error; chunks before it are valid but incomplete.
func (s *Source) Range(ctx context.Context, t Target, from, to time.Time, each func(Chunk)) error {
	queries, err := s.queriesFor(t)
	if err != nil {
		return &Error{Words: "the pods of the Deployment cannot be identified by name", Err: err}
	}
	c, err := s.open()
	if err != nil {
		return err
	}
	defer c.close()

	return c.inParts(from, to, s.options.Step, longestChunk, func(part v1.Range) error {
		chunk, err := c.chunk(ctx, t, queries.usage, part)
		if err == nil {
			each(chunk)
		}
		return err
	})
}

// inParts reads a time range, both ends included, in parts of at most the given length. It halves the
// length while the response is too large.
func (c *client) inParts(from, to time.Time, step, longest time.Duration, read func(v1.Range) error) error {
	length := min(longest.Truncate(step), maxPoints*step) // of a part, from its first point to its last
	for at := ceil(from, step); !at.After(to); {
		last := at.Add(length)
		if last.After(to) {
			last = to.Truncate(step)
		}
		err := read(v1.Range{Start: at, End: last, Step: step})
		if isTooLong(err) && length > max(shortestChunk, step) {
			length = (length / 2).Truncate(step)
			continue
		}
		if err != nil {
			return c.explain(err)
		}
		at = last.Add(step)
	}
	return nil
}

// chunk sends one pair of queries.
func (c *client) chunk(ctx context.Context, t Target, queries [2]string, part v1.Range) (Chunk, error) {
	answers, warnings, err := c.pair(ctx, queries, part)
	if err != nil {
		return Chunk{}, err
	}
	chunk := Chunk{Refused: map[usage.Refusal]int{}, Warnings: shortened(warnings)}
	chunk.decode(answers, part, t, c.options.RateWindow)
	return chunk, nil
}

// shortened are the first three different warnings, as printable lines.
func shortened(warnings []string) (out []string) {
	for _, warning := range warnings {
		if warning = printable(warning); !slices.Contains(out, warning) && len(out) < 3 {
			out = append(out, warning)
		}
	}
	return out
}

// ceil rounds up to whole steps, so that repeated queries use the same times.
func ceil(t time.Time, step time.Duration) time.Time { return t.Add(step - 1).Truncate(step) }
