// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// oneNode is a node of all pods of a plant, with that much CPU.
type oneNode struct {
	*plant
	cpuMillis int64
}

func (oneNode) Largest() quantity.Amounts { return quantity.Amounts{} }

func (oneNode) HaveRoom(quantity.Amounts, string, quantity.Amounts) bool { return true }

func (n oneNode) Free(string) (quantity.Amounts, bool) {
	n.t.Helper()
	var pods corev1.PodList
	must.Succeed(n.t, n.server.List(n.t.Context(), &pods))
	free := quantity.Amounts{CPUMillis: n.cpuMillis, MemoryBytes: 8 << 30}
	for i := range pods.Items {
		free.CPUMillis -= workload.ReadPod(&pods.Items[i], true).Counted().Requests.CPUMillis
	}
	return free, true
}

// Raises never exceed the room of their node, so the scheduler can use the rest.
func TestARaiseLeavesNoPodPending(t *testing.T) {
	p := newPlant(t, 400) // of 100m
	p.actuates = true
	node := func(cpuMillis int64) { p.Nodes = oneNode{p, cpuMillis} }
	left := func(want int64) {
		t.Helper()
		if free, _ := p.Nodes.Free("node-1"); free.CPUMillis != want {
			t.Errorf("the node has %dm left for new pods, want %dm", free.CPUMillis, want)
		}
	}
	node(800)
	p.resizes(noon, v1beta1.ReasonResizing, "checkout-1-a")
	free, _ := p.Nodes.Free("node-1") // of 500m
	if free.CPUMillis <= 0 {
		t.Fatalf("the first raise leaves %dm", free.CPUMillis)
	}
	p.resizes(noon.Add(time.Second), v1beta1.ReasonResizing, "checkout-1-b") // the part that fits
	left(0)
	vs := p.resizes(noon.Add(2*time.Second), v1beta1.ReasonDeferred)
	if applied := condition(vs, v1beta1.ConditionApplied); !strings.Contains(applied.Message, "pod checkout-1-c: container app has 100m of 421m of cpu; its node has no more") {
		t.Errorf("Applied: %s", applied.Message)
	}

	node(900)                                                                  // another pod has left
	p.resizes(noon.Add(2*time.Minute), v1beta1.ReasonDeferred, "checkout-1-b") // the status reports progress later
	left(0)
	node(1600)
	p.resizes(noon.Add(3*time.Minute), v1beta1.ReasonResizing, "checkout-1-b")
	p.resizes(noon.Add(4*time.Minute), v1beta1.ReasonResizing, "checkout-1-c")
	p.resizes(noon.Add(5*time.Minute), v1beta1.ReasonApplied)

	node(100) // overcommitted by others: nothing is lowered
	p.resizes(noon.Add(6*time.Minute), v1beta1.ReasonApplied)
}
