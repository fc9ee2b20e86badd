// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// sink is a collector that remembers the names of spans and of their source.
type sink struct {
	collector.UnimplementedTraceServiceServer

	spans  atomic.Int64
	source atomic.Value
}

// Export implements collector.TraceServiceServer.
func (s *sink) Export(_ context.Context, request *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	for _, resource := range request.GetResourceSpans() {
		for _, a := range resource.GetResource().GetAttributes() {
			if a.GetKey() == "service.name" {
				s.source.Store(a.GetValue().GetStringValue())
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			s.spans.Add(int64(len(scope.GetSpans())))
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func TestTracesAreSentWhereTheEnvironmentSays(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	received := &sink{}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, received)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	before := otel.GetTracerProvider()
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+listener.Addr().String())

	stop, err := Start(t.Context(), os.Getenv, "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	_, span := otel.Tracer("test").Start(t.Context(), "reconcile")
	span.End()
	if err := stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if received.spans.Load() != 1 || received.source.Load() != "verticalscaler-operator" {
		t.Errorf("%d spans arrived, of %v", received.spans.Load(), received.source.Load())
	}
}

func TestNothingIsTracedUnlessAsked(t *testing.T) {
	before := otel.GetTracerProvider()
	stop, err := Start(t.Context(), func(string) string { return "" }, "v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	if otel.GetTracerProvider() != before {
		t.Error("there is another provider")
	}
	if err := stop(t.Context()); err != nil {
		t.Error(err)
	}
}
