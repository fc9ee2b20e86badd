// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// A trace has a span for each phase of a reconcile, and says what was planned for which scaler.
func TestAReconcileIsTraced(t *testing.T) {
	recorded := tracetest.NewSpanRecorder()
	before := otel.GetTracerProvider()
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	otel.SetTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(recorded)))

	p := newPlant(t, 500)
	vs, _, err := p.reconcile()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	attributes := map[string]map[attribute.Key]string{}
	for _, span := range recorded.Ended() {
		names = append(names, span.Name())
		attributes[span.Name()] = map[attribute.Key]string{}
		for _, a := range span.Attributes() {
			attributes[span.Name()][a.Key] = a.Value.AsString()
		}
	}
	want := []string{"restorePrevious", "claim", "observe", "learn", "plan", "sizeNewPods", "apply", "reconcile"}
	if diff := cmp.Diff(want, names[max(0, len(names)-len(want)):]); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	if got := attributes["apply"]["verticalscaler.reason"]; got != condition(vs, v1beta1.ConditionApplied).Reason {
		t.Errorf("the reason is %q", got)
	}
	if got := attributes["reconcile"]; got["verticalscaler.name"] != vs.Name || got["k8s.namespace.name"] != vs.Namespace {
		t.Errorf("the reconcile is of %v", got)
	}
}
