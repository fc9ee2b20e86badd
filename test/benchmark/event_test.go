// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/bench"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/fleet"
)

// BenchmarkDeploymentEvent is what it takes from an event of a Deployment until the reconcile of its
// scaler starts, by the number of scalers: the CPU time, and the time of a clock. The Deployments have
// no pods, so that the reconcile itself costs little.
func BenchmarkDeploymentEvent(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("scalers=%d", n), func(b *testing.B) {
			ways := []*events{operatorEvents(b, n), stockEvents(b, n, indexedList), stockEvents(b, n, listAndFilter)}
			const warmUp, inTurn = 100, 500
			for _, e := range ways {
				e.send(b, warmUp)
				e.took, e.cost = nil, bench.Cost{}
			}
			for b.Loop() {
				for _, e := range ways {
					e.send(b, inTurn)
				}
			}
			perByte := bench.CollectorPerByte(b)
			for _, e := range ways {
				slices.Sort(e.took)
				bench.Report(b, e.name, "cpu-ns", e.cost.CPU(perByte)/float64(len(e.took)))
				bench.Report(b, e.name, "p50-ns", float64(e.took[len(e.took)/2]))
				bench.Report(b, e.name, "p99-ns", float64(e.took[len(e.took)*99/100]))
			}
			b.ReportMetric(0, "ns/op") // It would be the time of all.
		})
	}
}

// events sends events of Deployments to an operator, one after the other.
type events struct {
	name    string
	api     *api
	scalers int
	sent    int
	started chan reconcile.Request
	ended   chan reconcile.Request

	took []time.Duration
	cost bench.Cost
}

func newEvents(b *testing.B, name string, scalers int) *events {
	b.Helper()
	e := &events{name: name, api: newAPI(b), scalers: scalers, started: make(chan reconcile.Request, scalers), ended: make(chan reconcile.Request, scalers)}
	serveFleet(e.api, scalers, false)
	return e
}

func operatorEvents(b *testing.B, n int) *events {
	b.Helper()
	e := newEvents(b, bench.Operator, n)
	settled(b, e.api, n, false)
	before := otel.GetTracerProvider()
	otel.SetTracerProvider(reconcileTraces{events: e})
	b.Cleanup(func() { otel.SetTracerProvider(before) })
	return e
}

func stockEvents(b *testing.B, n int, way string) *events {
	b.Helper()
	e := newEvents(b, way, n)
	newStock(b, e.api, way == indexedList, e)
	for seen := map[reconcile.Request]bool{}; len(seen) < n; {
		seen[<-e.ended] = true
	}
	return e
}

// note tells of a reconcile that starts or ends. Nobody waits for those that no event of ours has triggered.
func note(to chan<- reconcile.Request, request reconcile.Request) {
	select {
	case to <- request:
	default:
	}
}

// send sends n events.
func (e *events) send(b *testing.B, n int) {
	b.Helper()
	e.cost.Measure(b, func() { e.sendAll(b, n) })
}

func (e *events) sendAll(b *testing.B, n int) {
	b.Helper()
	for range n {
		e.sent++
		i := e.sent * 7919 % e.scalers // a prime, for another scaler each time
		d := fleet.Deployment(i)
		d.Status.CollisionCount = ptr.To(int32(e.sent)) // a change that leads to nothing
		start := time.Now()
		e.api.tell(d)
		e.wait(b, e.started, i)
		e.took = append(e.took, time.Since(start))
		e.wait(b, e.ended, i) // so that it does not delay the next one
	}
}

// wait waits for a reconcile of scaler i.
func (e *events) wait(b *testing.B, in <-chan reconcile.Request, i int) {
	b.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		select {
		case request := <-in:
			if request.NamespacedName == fleet.Key(i) {
				return
			}
		case <-late.C:
			b.Fatalf("%s: an event of Deployment %s did not trigger a reconcile", e.name, fleet.Key(i))
		}
	}
}

// reconcileTraces notes when a reconcile of the operator starts and ends: it is the first span of its trace.
type reconcileTraces struct {
	noop.TracerProvider
	events *events
}

// Tracer implements trace.TracerProvider.
func (t reconcileTraces) Tracer(string, ...trace.TracerOption) trace.Tracer {
	return reconcileTracer{events: t.events}
}

type reconcileTracer struct {
	noop.Tracer
	events *events
}

// Start implements trace.Tracer.
func (t reconcileTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	ctx, span := t.Tracer.Start(ctx, name, options...)
	if name != "reconcile" {
		return ctx, span
	}
	var request reconcile.Request
	config := trace.NewSpanStartConfig(options...)
	for _, a := range config.Attributes() {
		switch a.Key {
		case "k8s.namespace.name":
			request.Namespace = a.Value.AsString()
		case "verticalscaler.name":
			request.Name = a.Value.AsString()
		}
	}
	note(t.events.started, request)
	return ctx, reconcileSpan{span, func() { note(t.events.ended, request) }}
}

type reconcileSpan struct {
	trace.Span
	end func()
}

// End implements trace.Span.
func (s reconcileSpan) End(...trace.SpanEndOption) { s.end() }
