// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// A resize names the pod that it is meant for, the containers and their resources, and
// nothing else. What is 0 is not ours to set: a limit of 0 would end the pod.
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
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("resizePatch() (-want +got):\n%s", diff)
	}
}

func TestChangesAreToldFromWhatToWhat(t *testing.T) {
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
