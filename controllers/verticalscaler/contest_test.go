// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"cmp"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownership"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestOnlyWhatDiffersIsContested(t *testing.T) {
	containers := []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")},
		Limits:   corev1.ResourceList{"cpu": resource.MustParse("200m")},
	}}}
	wanted := []plan.Size{
		{Container: "app", Resources: workload.Resources{
			Requests: quantity.Amounts{CPUMillis: 300, MemoryBytes: 128 << 20}, Limits: quantity.Amounts{CPUMillis: 600, MemoryBytes: 256 << 20},
		}},
		{Container: "gone", Resources: workload.Resources{Requests: quantity.Amounts{CPUMillis: 300}}},
	}
	got := contestedLeaves(&corev1.PodSpec{Containers: containers}, wanted)
	slices.SortFunc(got, func(a, b ownership.Leaf) int { return cmp.Compare(a.List, b.List) })
	want := []ownership.Leaf{{Container: "app", List: "limits", Resource: "cpu"}, {Container: "app", List: "requests", Resource: "cpu"}}
	assert.Equal(t, "contestedLeaves()", want, got)
}

func TestWhetherAResizeWasChangedByAnotherController(t *testing.T) {
	small := workload.Resources{Requests: quantity.Amounts{CPUMillis: 100}}
	large := workload.Resources{Requests: quantity.Amounts{CPUMillis: 300}}
	ours := remembered{generation: 3, sizes: workload.Reported{}.With("app", large).With("gone", large)}
	pod := func(generation int64, r workload.Resources) workload.Pod {
		return workload.Pod{Generation: generation, Containers: []workload.Container{{Name: "app", Resources: r}}}
	}
	for name, tc := range map[string]struct {
		memory remembered
		pod    workload.Pod
		want   bool
	}{
		"not as we left it":                       {ours, pod(3, large), false},
		"not where the cache is older":            {ours, pod(2, small), false},
		"not where something else was changed":    {ours, pod(4, large), false},
		"where another controller has resized it": {ours, pod(4, small), true},
		"not one that we have never resized":      {remembered{}, pod(4, small), false},
		"not once that has been counted already":  {remembered{generation: 3}, pod(4, small), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.memory.isUndone(tc.pod); got != tc.want {
				t.Errorf("isUndone() = %t", got)
			}
		})
	}
}

func TestWhatIsCountedIsForgottenUnlessWeHaveResizedAgain(t *testing.T) {
	scaler := types.NamespacedName{Namespace: "shop", Name: "web"}
	var r Reconciler
	sizes := workload.Reported{{Name: "app"}}
	r.memory.changePod(scaler, "a", func(m *remembered) { m.generation, m.sizes = 3, sizes })
	r.memory.changePod(scaler, "b", func(m *remembered) { m.generation, m.sizes = 5, sizes })
	r.acknowledge(scaler, map[types.UID]int64{"a": 4, "b": 4})
	known := r.memory.podsOf(scaler, map[types.UID]bool{"a": true, "b": true})
	if known["a"].sizes != nil || known["b"].sizes == nil {
		t.Errorf("remembered: %+v", known)
	}
}
