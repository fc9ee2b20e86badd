// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
)

// RequestDeadline is the longest time until the answer of the API server to a request is read. The
// API server allows a webhook at most 30 s. Without it, an open connection without an answer, for
// example to a proxy, would block a worker.
const RequestDeadline = 35 * time.Second

var unanswered = metrics.NewCounter(metrics.Metric{
	Name:      "verticalscaler_unanswered_requests_total",
	Help:      "Requests to the API server that were not answered in 35 seconds, by HTTP method.",
	Labels:    []string{"method"},
	Stability: metrics.Beta,
}, []string{http.MethodGet}, []string{http.MethodPost}, []string{http.MethodPut}, []string{http.MethodPatch}, []string{http.MethodDelete})

func init() {
	ctrlmetrics.RegisterRESTClientMetrics(ctrlmetrics.MetricRequestLatency) // The runbook asks for it.
}

// errUnanswered is the cause of the end of a request that took too long.
var errUnanswered = errors.New("no answer in time")

// bounded gives each request a deadline, except watches, which have no end. It covers all clients:
// for reconciles, the collector, the checkpoints and the gates.
type bounded struct {
	next     http.RoundTripper
	deadline time.Duration
}

// withDeadline is a wrapper for rest.Config.Wrap.
func withDeadline(next http.RoundTripper) http.RoundTripper {
	return &bounded{next: next, deadline: RequestDeadline}
}

// RoundTrip implements http.RoundTripper.
func (b *bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	if watch := request.URL.Query().Get("watch"); watch == "true" || watch == "1" {
		return b.next.RoundTrip(request)
	}
	ctx, cancel := context.WithTimeoutCause(request.Context(), b.deadline, errUnanswered)
	began := clock.RealClock{}.Now()
	response, err := b.next.RoundTrip(request.WithContext(ctx))
	metrics.Latency.Observe(clock.RealClock{}.Since(began))
	if err != nil {
		defer cancel()
		return nil, b.explain(ctx, request.Method, err)
	}
	response.Body = &boundedBody{ReadCloser: response.Body, cancel: cancel, explain: func(err error) error {
		return b.explain(ctx, request.Method, err)
	}}
	return response, nil
}

// explain returns the error of a request. It names and counts the deadline if that ended the
// request.
func (b *bounded) explain(ctx context.Context, method string, err error) error {
	if !errors.Is(context.Cause(ctx), errUnanswered) {
		return err
	}
	unanswered.WithLabelValues(method).Inc()
	return fmt.Errorf("the API server did not answer within %s: %w", b.deadline, context.DeadlineExceeded)
}

// WrappedRoundTripper lets client-go find the transport below.
func (b *bounded) WrappedRoundTripper() http.RoundTripper { return b.next }

// boundedBody is the body of an answer. The deadline counts until it is closed.
type boundedBody struct {
	io.ReadCloser

	cancel  context.CancelFunc
	explain func(error) error
	failed  error // of the first read that failed
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if b.failed == nil {
		b.failed = b.explain(err)
	}
	return n, b.failed
}

// Close implements io.Closer.
func (b *boundedBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
