// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tracing sends traces by OTLP, if the standard environment variables of OpenTelemetry ask for
// it. Otherwise nothing is traced, and spans cost nothing.
package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// endpoints are the environment variables that name where traces go. The exporter reads these and
// others, such as OTEL_EXPORTER_OTLP_HEADERS and OTEL_TRACES_SAMPLER.
var endpoints = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}

// Start sends the traces of this process, whose version it names, if an environment variable says
// where to. The function that it returns sends what is left, and ends it.
func Start(ctx context.Context, getenv func(string) string, version string) (stop func(context.Context) error, err error) {
	if !isWanted(getenv) {
		return func(context.Context) error { return nil }, nil
	}
	exporter, err := otlptracegrpc.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("creating the exporter of traces: %w", err)
	}
	// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES come last, and win.
	source, err := resource.New(ctx,
		resource.WithAttributes(attribute.String("service.name", "verticalscaler-operator"), attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describing the source of traces: %w", err)
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(source))
	otel.SetTracerProvider(provider)
	return provider.Shutdown, nil
}

func isWanted(getenv func(string) string) bool {
	for _, name := range endpoints {
		if getenv(name) != "" {
			return true
		}
	}
	return false
}
