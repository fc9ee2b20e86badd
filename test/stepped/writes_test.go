// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package stepped

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/admission"
	"github.com/verticalscaler/verticalscaler-operator/internal/change/budget"
	"github.com/verticalscaler/verticalscaler-operator/test/world"
)

// writesOfMany counts the operator's writes by kind, and its events.
func writesOfMany(w *fixture, many int) map[string]int {
	counts := map[string]int{}
	for _, write := range w.Writes() {
		counts[write.Kind()]++
	}
	for i := range many {
		counts["create events"] += len(w.Events(w.Scaler(nameOf(i)).UID)) + len(w.Events(w.Deployment(nameOf(i)).UID))
		for _, pod := range w.Pods(nameOf(i)) {
			counts["create events of pods"] += len(w.Events(pod.UID))
		}
	}
	return counts
}

func nameOf(i int) string { return fmt.Sprintf("d-%02d", i) }

// logWrites logs a table of the writes since then, for each change or scaler, and returns their sum.
func logWrites(t *testing.T, title string, before, now map[string]int, per int) (sum float64) {
	t.Helper()
	var out strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(now)) {
		if n := now[kind] - before[kind]; n > 0 {
			sum += float64(n) / float64(per)
			fmt.Fprintf(&out, "%-32s %5.2f\n", kind, float64(n)/float64(per))
		}
	}
	t.Logf("%s: %.2f writes\n%s", title, sum, &out)
	return sum
}

// checkWritesPerChange logs the writes since then for each resize, and fails if there are more than that. Each decision has an
// event on the scaler and on its Deployment, and each resize one on its pod.
func checkWritesPerChange(t *testing.T, w *fixture, before map[string]int, many int, most float64) {
	t.Helper()
	after := writesOfMany(w, many)
	changes := after["patch pods/resize"] - before["patch pods/resize"]
	if sum := logWrites(t, fmt.Sprintf("each of %d changes", changes), before, after, changes); sum > most {
		t.Errorf("%.2f writes a change", sum)
	}
}

// The usage of many workloads doubles at once.
func TestAWaveCostsFewWritesAChange(t *testing.T) {
	t.Parallel()
	const many = 10
	w := newFixtureOn(t, world.NewAPI(admission.Policy(), admission.Binding()), "shop", nil)
	w.Usage.Even = true
	deployMany(w, many, 300, 240, func(s *v1beta1.VerticalScaler) { s.Spec.UpdatePolicy.NewPods = v1beta1.NewPodsSized })
	w.Minutes(8)
	before := writesOfMany(w, many)
	for i := range many {
		w.Uses(nameOf(i), "app", 600, 480)
	}
	w.Minutes(8)
	checkWritesPerChange(t, w, before, many, 3.8)
	for i := range many {
		w.Sized(nameOf(i))
	}
}

// deployMany deploys many workloads that use that much, with scalers.
func deployMany(w *fixture, many int, cpuMillis, memoryMebi int64, changes ...func(*v1beta1.VerticalScaler)) {
	w.Helper()
	for i := range many {
		w.deploy(nameOf(i))
		w.Uses(nameOf(i), "app", cpuMillis, memoryMebi)
		w.Scale(nameOf(i), changes...)
	}
}

// settledFleet deploys many workloads, and returns their writes once they are settled.
func settledFleet(w *fixture, many int) map[string]int {
	w.Helper()
	deployMany(w, many, 300, 240)
	w.Minutes(60)
	return writesOfMany(w, many)
}

// The budget allows few changes a minute. Most of a fleet says nothing while it waits, and those that begin are finished first.
func TestTheFirstMinutesOfAWaveCostFewWrites(t *testing.T) {
	t.Parallel()
	const many = 10
	w := newFixture(t)
	w.Operator.Scalers.Budget = budget.New(budget.Limits{Changes: 3, PerNamespace: 3, Window: time.Minute})
	w.Usage.Even = true
	before := settledFleet(w, many)
	for i := range many {
		w.Uses(nameOf(i), "app", 600, 480)
	}
	w.Minutes(5)
	checkWritesPerChange(t, w, before, many, 4)
}

// While most of a fleet waits for the budget, and each turn changes one pod, its usage goes on growing. Waiting scalers write
// little.
func TestWaitingForTheBudgetCostsFewWrites(t *testing.T) {
	t.Parallel()
	const many = 10
	w := newFixture(t)
	w.Operator.Scalers.Budget = budget.New(budget.Limits{Changes: 2, PerNamespace: 2, Window: time.Minute})
	before := settledFleet(w, many)
	for minute := range 20 {
		for i := range many {
			w.Uses(nameOf(i), "app", int64(600+10*minute), int64(480+10*minute))
		}
		w.Minutes(1)
	}
	checkWritesPerChange(t, w, before, many, 5.1)
}

// The claim and the recommendation are two writes. The first checkpoint waits for usage of CPU that it can hold.
func TestANewScalerCostsTwoWritesAndThenItsCheckpoint(t *testing.T) {
	t.Parallel()
	const many = 10
	w := newFixture(t)
	deployMany(w, many, 60, 60)
	w.Minutes(4)
	if sum := logWrites(t, "each new scaler", nil, writesOfMany(w, many), many); sum > 2 || w.Scaler(nameOf(0)).Status.Recommendation == nil {
		t.Errorf("%.2f writes until the recommendation %v", sum, w.Scaler(nameOf(0)).Status.Recommendation)
	}
	w.Minutes(6)
	if sum := logWrites(t, "each scaler of 10 minutes", nil, writesOfMany(w, many), many); sum > 3 {
		t.Errorf("%.2f writes with the checkpoint", sum)
	}
	if n := writesOfMany(w, many)["create verticalscalercheckpoints"]; n != many {
		t.Errorf("%d checkpoints", n)
	}
}

// Before the first checkpoint, the status alone has the recommendation. A restart loses minutes of usage, and no number.
func TestARestartBeforeTheFirstCheckpointKeepsTheRecommendation(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	w.Usage.Even = true
	w.deploy("web")
	w.Uses("web", "app", 60, 60)
	w.Scale("web")
	w.Minutes(4)
	before := w.Scaler("web").Status.Recommendation
	w.Stop()
	w.Start()
	for range 8 {
		w.Minutes(1)
		if after := w.Scaler("web").Status.Recommendation; after == nil || after.ContainerRecommendations[0].Target.Memory.Cmp(*before.ContainerRecommendations[0].Target.Memory) != 0 {
			t.Fatalf("the recommendation was %v, and is %v", before, after)
		}
	}
	if n := writesOfMany(w, 0)["create verticalscalercheckpoints"]; n != 1 {
		t.Errorf("%d checkpoints", n)
	}
}

// A request above its target waits for evidence, which grows. That does not cause a write.
func TestGrowingEvidenceCostsAtMostOneWriteADoubling(t *testing.T) {
	t.Parallel()
	const many = 4
	w := newFixture(t)
	w.Usage.Even = true
	deployMany(w, many, 60, 60, world.InMode(v1beta1.UpdateModeRecommend))
	w.Minutes(8)
	before := writesOfMany(w, many)
	const doublings = 4
	w.Minutes(8<<doublings - 8)
	if sum := logWrites(t, "each scaler and doubling", before, writesOfMany(w, many), doublings*many); sum > 1 {
		t.Errorf("%.2f writes", sum)
	}
}
