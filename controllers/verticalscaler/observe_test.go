// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/pressure"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestThePlanKnowsWhichUsageIsMissing(t *testing.T) {
	const unknown = "pods that have just started, or whose last sample was lost"
	for name, tc := range map[string]struct {
		problems collect.Problems
		want     string
	}{
		"nothing is missing":    {},
		"past usage is missing": {problems: collect.Problems{Past: "Prometheus is down"}},
		"a new pod":             {problems: collect.Problems{Silent: true}, want: unknown},
		"a silent pod":          {problems: collect.Problems{Silent: true, Incomplete: "pod a: Stale"}, want: "pod a: Stale"},
		"an outage":             {problems: collect.Problems{Silent: true, Outage: "metrics.k8s.io is not served"}, want: "metrics.k8s.io is not served"},
	} {
		if got := missingUsage(tc.problems); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// nodeCPU is the metrics API's answer for nodes: their CPU, or an error.
type nodeCPU struct {
	millis map[string]int64
	err    error
	asked  int
	clock  *clocktesting.FakePassiveClock
}

func (n *nodeCPU) NodeCPU(_ context.Context, node string) (int64, time.Time, error) {
	n.asked++
	return n.millis[node], n.clock.Now(), n.err
}

// Nodes are asked about only for pods that lack CPU, and an eviction starts the readings of its node again.
func TestPressureOfNodes(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(noon)
	source := &nodeCPU{millis: map[string]int64{"busy": 3900, "idle": 400}, clock: clock}
	r := apiServer(t, interceptor.Funcs{SubResourceCreate: func(context.Context, client.Client, string, client.Object, client.Object, ...client.SubResourceCreateOption) error {
		return nil
	}}, admission.Policy(), admission.Binding(), sizes("\ncheckout @;app,100m,,,\n"))
	r.Clock = clock
	r.Pressure = &pressure.Nodes{Source: source, Allocatable: func(string) int64 { return 4000 }, Clock: clock}
	s := sizing(withUpdate(v1beta1.UpdatePolicy{UpdateMode: "InPlace", Fallback: "RecreateUnderPressure"}))
	situation := &s.observation.situation
	situation.Pods = nil
	cpu := func(millis int64) workload.Resources {
		return workload.Resources{Requests: quantity.Amounts{CPUMillis: millis}}
	}
	for _, tc := range []struct {
		node              string
		declared, applied int64 // 100m is decided
	}{{"busy", 50, 50}, {"idle", 100, 50}, {"calm", 50, 100}, {"", 50, 50}} {
		injected := workload.Container{Name: "zz-injected", Resources: cpu(10)} // nothing is decided for it
		pod := runningPod("web-"+tc.node, injected, workload.Container{Name: "app", Resources: cpu(tc.declared)})
		pod.Node, pod.UID, pod.Actual = tc.node, types.UID("web-"+tc.node), map[string]workload.Resources{"app": cpu(tc.applied)}
		situation.Pods = append(situation.Pods, pod)
	}
	read := func(wantBusy map[string]bool, wantUnknown string) {
		t.Helper()
		clock.SetTime(clock.Now().Add(time.Minute))
		situation.BusyNodes, situation.BusyUnknown = nil, ""
		r.readPressure(t.Context(), s.policy, situation)
		if diff := cmp.Diff(wantBusy, situation.BusyNodes); diff != "" || !strings.Contains(situation.BusyUnknown, wantUnknown) || (wantUnknown == "") != (situation.BusyUnknown == "") {
			t.Errorf("busy nodes (-want +got):\n%s\nunknown because %q", diff, situation.BusyUnknown)
		}
	}
	read(map[string]bool{"busy": false, "idle": false}, "")
	read(map[string]bool{"busy": true, "idle": false}, "")
	if source.asked != 4 {
		t.Errorf("the metrics API was asked %d times about two nodes, not twice each", source.asked)
	}
	if err := r.evict(t.Context(), s, plan.Evict{Pod: "web-busy", UID: "web-busy", ResourceVersion: "7"}); err != nil {
		t.Fatal(err)
	}
	read(map[string]bool{"busy": false, "idle": false}, "")
	read(map[string]bool{"busy": true, "idle": false}, "")

	source.err = apierrors.NewForbidden(schema.GroupResource{Group: "metrics.k8s.io", Resource: "nodes"}, "busy", errors.New("no right"))
	read(map[string]bool{}, "recreate.yaml")
	source.err, source.asked = errors.New("down"), 0
	read(map[string]bool{}, "the metrics API has no current usage of them")
	if source.asked != 1 {
		t.Errorf("a metrics API that is down was asked %d times", source.asked)
	}
	source.err = apierrors.NewNotFound(schema.GroupResource{Group: "metrics.k8s.io", Resource: "nodes"}, "busy")
	read(map[string]bool{}, "the metrics API has no current usage of them")
	r.Pressure = nil
	read(map[string]bool{}, "the operator does not read nodes")
}
