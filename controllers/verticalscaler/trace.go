// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// startTrace starts the span of a reconcile. While traces are sent, its log lines have the ID of the
// trace.
func startTrace(ctx context.Context, request reconcile.Request) (context.Context, trace.Span) {
	ctx, span := otel.Tracer(Name).Start(ctx, "reconcile", trace.WithAttributes(
		attribute.String("k8s.namespace.name", request.Namespace), attribute.String("verticalscaler.name", request.Name)))
	if span.IsRecording() {
		ctx = log.IntoContext(ctx, log.FromContext(ctx).WithValues("traceID", span.SpanContext().TraceID().String()))
	}
	return ctx, span
}

// traced runs a phase in a span of its own, if the reconcile is traced. Once there is a plan, the span has
// its reason.
func traced(ctx context.Context, s *scope, name string, run phase) (done bool, err error) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return run(ctx, s)
	}
	ctx, span := otel.Tracer(Name).Start(ctx, name)
	defer span.End()
	if done, err = run(ctx, s); err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "the phase failed")
	}
	if s.isPlanned() {
		span.SetAttributes(attribute.String("verticalscaler.reason", s.plan.Verdict.Reason))
	}
	return done, err
}
