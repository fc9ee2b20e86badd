// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package step

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// The last resize of a pod has lowered its request and its limit, and the kubelet has not applied it yet. The next one counts
// from what is declared: the kubelet may apply it before the quota is asked.
func TestGrowthCountsFromWhatIsDeclaredWhileAResizeIsPending(t *testing.T) {
	of := func(request, limit int64) workload.Resources {
		return workload.Resources{Requests: quantity.Amounts{CPUMillis: request, MemoryBytes: request}, Limits: quantity.Amounts{CPUMillis: limit, MemoryBytes: limit}}
	}
	pod := workload.Pod{Containers: []workload.Container{{Name: "app", Resources: of(100, 200)}}, Actual: map[string]workload.Resources{"app": of(400, 800)}}
	got := planner{}.growth(pod, []model.Size{{Container: "app", Resources: of(500, 1000)}})
	if diff := cmp.Diff(of(400, 800), got); diff != "" {
		t.Errorf("growth (-want +got):\n%s", diff)
	}
}
