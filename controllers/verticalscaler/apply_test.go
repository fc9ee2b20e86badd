// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"context"
	"errors"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A resize names the pod, the containers and their resources, and nothing else. It leaves out
// amounts of 0: a limit of 0 would end the pod.
func TestResizePatch(t *testing.T) {
	got := resizePatch(plan.Resize{
		Pod: "web-1", UID: "uid", ResourceVersion: "7",
		Sizes: []plan.Size{
			{Container: "app", Resources: workload.Resources{Requests: amounts(250, 640), Limits: amounts(2000, 0)}},
			{Container: "log", Resources: workload.Resources{Requests: quantity.Amounts{MemoryBytes: 1<<20 + 1}}},
			{Container: "proxy", Resources: workload.Resources{Requests: amounts(30, 0)}},
		},
	}, workload.Pod{Containers: []workload.Container{{Name: "proxy", IsSidecar: true}, {Name: "app"}, {Name: "log"}}})
	want := `{"metadata":{"resourceVersion":"7","uid":"uid"},"spec":{"containers":[` +
		`{"name":"app","resources":{"limits":{"cpu":"2"},"requests":{"cpu":"250m","memory":"640Mi"}}},` +
		`{"name":"log","resources":{"requests":{"memory":"1048577"}}}],"initContainers":[` +
		`{"name":"proxy","resources":{"requests":{"cpu":"30m"}}}]}}`
	assert.Equal(t, "resizePatch()", want, string(got))
}

func TestEventsReportOldAndNewSizes(t *testing.T) {
	before := workload.Resources{Requests: amounts(100, 128), Limits: amounts(200, 256)}
	containers := []workload.Container{{Name: "app", Resources: before}, {Name: "log"}}
	for _, after := range []workload.Resources{
		{Requests: amounts(100, 256), Limits: amounts(200, 512)},
		{Requests: amounts(0, 256), Limits: amounts(0, 512)}, // 0 is unmanaged
	} {
		got := formatChanges(containers, []plan.Size{{Container: "app", Resources: after}, {Container: "log"}, {Container: "gone", Resources: after}})
		if want := "app memory 128Mi->256Mi memory limit 256Mi->512Mi"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if unchanged := formatChanges(containers, []plan.Size{{Container: "app", Resources: before}}); unchanged != "" {
		t.Errorf("nothing changes, but %q", unchanged)
	}
}

// olderTarget is the status of a scaler whose Deployment has been edited since.
func olderTarget(s *v1beta1.VerticalScaler) {
	s.Status.Target, s.Status.ObservedGeneration = &v1beta1.Target{UID: "deployment-1", Generation: 0}, s.Generation
}

func TestAnEditIsReportedBeforeAPodIsResized(t *testing.T) {
	p := newPlant(t, 400, olderTarget) // of 100m
	p.Budget = budget.New(budget.Limits{Changes: 1, PerNamespace: 1, Window: time.Minute})
	p.refused = errors.New("not before the edit is reported")
	vs, result, err := p.reconcile()
	if err != nil || len(p.resized) > 0 || result.RequeueAfter > staleCacheRetry {
		t.Errorf("resized %v, again in %s, %v", p.resized, result.RequeueAfter, err)
	}
	if vs.Status.Target.Generation != 1 || vs.Status.Decision != nil || len(vs.Status.History) > 0 {
		t.Errorf("the status reports %+v, and the decision %+v", vs.Status.Target, vs.Status.Decision)
	}
	p.refused = nil
	if vs = p.mustReconcile(); len(p.resized) != 1 || vs.Status.Decision == nil {
		t.Errorf("then: resized %v, the decision is %+v", p.resized, vs.Status.Decision)
	}
}

func TestAStatusThatCannotBeWrittenKeepsNoResizeWaiting(t *testing.T) {
	p := newPlant(t, 400, olderTarget)
	p.Client = interceptor.NewClient(p.server, interceptor.Funcs{
		SubResourceUpdate: func(context.Context, client.Client, string, client.Object, ...client.SubResourceUpdateOption) error {
			return errors.New("etcd")
		},
	})
	for try, resized := range []int{0, 1} {
		if _, _, err := p.reconcile(); err == nil || len(p.resized) != resized {
			t.Errorf("try %d: resized %v, %v", try+1, p.resized, err)
		}
	}
}

func TestUrgentResizesDoNotWaitUntilAnEditIsReported(t *testing.T) {
	for what, c := range map[string]struct {
		step  plan.Step
		pod   workload.Pod
		first bool
	}{
		"a raise":        {step: plan.Resize{UID: "a"}, pod: workload.Pod{UID: "a"}, first: true},
		"a killed pod":   {step: plan.Resize{UID: "a"}, pod: workload.Pod{UID: "a", Kills: []workload.OOMKill{{Container: "app"}}}},
		"a starting pod": {step: plan.Resize{UID: "a", Boost: true}, pod: workload.Pod{UID: "a"}},
		"no resize":      {pod: workload.Pod{UID: "a"}},
	} {
		s := &scope{scaler: checkout(olderTarget), plan: plan.Plan{Decision: &plan.Decision{Reason: plan.DecidedOOMKill}, Step: c.step}}
		s.scaler.ResourceVersion = "1"
		s.observation.situation = plan.Situation{Deployment: workload.Deployment{Generation: 1}, Pods: []workload.Pod{c.pod}}
		if first := (&Reconciler{}).reportsFirst(s); first != c.first {
			t.Errorf("%s: the edit is reported first: %t", what, first)
		}
	}
}
