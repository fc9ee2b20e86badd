// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package prometheus reads the usage of days gone by from a Prometheus that scrapes
// the kubelets' cAdvisor, or from anything that speaks its API: Thanos, Mimir,
// VictoriaMetrics.
//
// What it answers is not ours and is believed item by item, as in package
// metricsapi: a point that is not a number costs one sample, not the answer. Nothing
// that it does can cost more than the time and the memory that the options allow: no
// answer is read beyond a limit, no query outlasts its time-out, no redirect is
// followed.
package prometheus

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

const (
	// longestChunk is the time that one pair of queries is about: 360 points of each
	// series with a step of a minute, some 10 kB.
	longestChunk = 6 * time.Hour
	// shortestChunk is where halving ends that makes an answer short enough.
	shortestChunk = 5 * time.Minute
	// maxPoints is below the 11,000 points of a series that Prometheus answers at most.
	maxPoints = 10_000
)

// Options say which Prometheus is asked, how, and with which credentials. Nothing is
// taken from anywhere else: not from the environment, not from a home folder.
type Options struct {
	// Address is an http or https URL without credentials.
	Address string
	// Labels are those that a series must have besides, such as the cluster's.
	Labels map[string]string
	// Step is the time between two samples of a container.
	Step time.Duration
	// RateWindow is what CPU usage is averaged over. It must hold two scrapes.
	RateWindow time.Duration
	// MemoryWindow is what the peak of memory is looked for in. It must hold one scrape.
	// 0 is two steps: a scrape a step is then enough, and no peak between two is missed.
	MemoryWindow time.Duration
	// Timeout is for one query.
	Timeout time.Duration
	// MaxBytes is the longest answer that is read, when decompressed.
	MaxBytes int64
	// CAFile, CertFile and KeyFile are for TLS, in PEM.
	CAFile, CertFile, KeyFile string
	// BearerTokenFile, or Username and PasswordFile, are credentials. They are sent
	// over https only.
	BearerTokenFile, Username, PasswordFile string
}

// Source reads usage of the past.
type Source struct {
	options Options
}

// New makes a source. Nothing is read or asked yet.
func New(o Options) (*Source, error) {
	address, err := url.Parse(o.Address)
	if err != nil || address.Host == "" || address.User != nil || (address.Scheme != "http" && address.Scheme != "https") {
		return nil, errors.New("the address of Prometheus must be an http or https URL without credentials") // whose words may be secret
	}
	if address.Scheme != "https" && (o.BearerTokenFile != "" || o.PasswordFile != "") {
		return nil, errors.New("credentials for Prometheus are sent over https only")
	}
	if o.Step <= 0 || o.RateWindow <= 0 || o.MemoryWindow < 0 || o.Timeout <= 0 || o.MaxBytes <= 0 {
		return nil, errors.New("step, rate window, time-out and longest answer must be above 0")
	}
	return &Source{options: o}, nil
}

// Target is what usage is wanted of.
type Target struct {
	Namespace  string
	Deployment string
	Containers []string
}

// Queries are those that Range makes about a target: of CPU, and of memory.
func (s *Source) Queries(t Target) (cpu, memory string, err error) {
	q, err := s.queriesFor(t)
	return q.cpu, q.memory, err
}

// Chunk is a part of the answer. No sample of a later one is older.
type Chunk struct {
	// Samples are valid as package usage has it, and ordered by time.
	Samples []usage.Sample
	// Refused counts the points that were not used.
	Refused map[usage.Refusal]int
	// Warnings are those of Prometheus, shortened.
	Warnings []string
}

// Range reads what the target's pods have used between two times, both included, and
// calls each with one part after the other. An error is an *Error; what came before it
// is a beginning without its end.
func (s *Source) Range(ctx context.Context, t Target, from, to time.Time, each func(Chunk)) error {
	queries, err := s.queriesFor(t)
	if err != nil {
		return &Error{Words: "its Deployment's pods cannot be told by their names", Err: err}
	}
	c, err := s.open()
	if err != nil {
		return &Error{Words: "the operator's credentials for it cannot be read", Unavailable: true, Err: err}
	}
	defer c.close()

	step := s.options.Step
	length := min(longestChunk.Truncate(step), maxPoints*step) // of a part, from its first point to its last
	for at := ceil(from, step); !at.After(to); {
		last := at.Add(length)
		if last.After(to) {
			last = to.Truncate(step)
		}
		chunk, err := s.chunk(ctx, c, queries, v1.Range{Start: at, End: last, Step: step})
		if isTooLong(err) && length > max(shortestChunk, step) {
			length = (length / 2).Truncate(step)
			continue
		}
		if err != nil {
			return c.explain(err)
		}
		each(chunk)
		at = last.Add(step)
	}
	return nil
}

// chunk makes one pair of queries.
func (s *Source) chunk(ctx context.Context, c *client, q queries, r v1.Range) (chunk Chunk, err error) {
	var answers [2]model.Matrix
	for i, query := range []string{q.cpu, q.memory} {
		value, warnings, err := c.query(ctx, query, r, s.options.Timeout)
		if err != nil {
			return Chunk{}, err
		}
		matrix, ok := value.(model.Matrix)
		if !ok {
			return Chunk{}, fmt.Errorf("%w: it is a %T, not a matrix", errNotPrometheus, value)
		}
		answers[i] = matrix
		for _, warning := range warnings {
			if warning = printable(warning); !slices.Contains(chunk.Warnings, warning) && len(chunk.Warnings) < 3 {
				chunk.Warnings = append(chunk.Warnings, warning)
			}
		}
	}
	d := decoder{queries: q, first: r.Start, last: r.End, window: s.options.RateWindow, refused: map[usage.Refusal]int{}}
	chunk.Samples, chunk.Refused = d.decode(answers[0], answers[1]), d.refused
	return chunk, nil
}

// ceil rounds up to whole steps, so that the same moments are asked for each time.
func ceil(t time.Time, step time.Duration) time.Time {
	if down := t.Truncate(step); down.Before(t) {
		return down.Add(step)
	}
	return t
}
