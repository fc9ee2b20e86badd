// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/fleet"
)

func TestResultsBecomeATable(t *testing.T) {
	r := Results{
		Scalers: 1000, Foreign: 20_000, ChangesPerMinute: 300,
		Operator: Measures{"idle rss": 200 << 20, "empty rss": 50 << 20, "idle cpu": 1.2, "template p50": 0.0082, "wave share": 0.98, "wave changes": 900, "idle writes": 0},
		VPA:      Measures{"idle rss": 400 << 20, "empty rss": 50 << 20, "idle cpu": 4.8, "wave share": 2, "wave changes": 0, "idle writes": 600.25},
	}
	const want = `1000 scalers or VPAs, 3000 pods of 2 containers, then 20000 foreign pods; a budget of 300 changes a minute, which VPA does not have.

| What | Operator | VPA: recommender and updater | Operator / VPA |
|---|---|---|---|
| Memory with nothing to do (RSS) | 50 MiB | 50 MiB | 1 |
| Idle: memory (RSS) | 200 MiB | 400 MiB | 0.5 |
| – CPU per minute | 1.20 s | 4.80 s | 0.25 |
| – writes per minute, except of leases | 0 | 600.3 | 0 |
| Template change until its status is seen: median | 8 ms | | |
| Wave: pods changed | 900 | 0 |  |
| – share of what the budget allows | 98 % | | |
`
	if diff := cmp.Diff(want, r.Table()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	const million = `Measured: 50 MiB with nothing to do, 157.3 kB of RSS and 20.0 µs of CPU a second for each scaler. 1000000 containers are 166666 scalers with 499998 pods.

| Replicas | Scalers of each | Memory of each (RSS) | CPU of each, idle |
|---|---|---|---|
| 1 | 166666 | 24.46 GiB | 3.33 cores |
| 4 | 41667 | 6.15 GiB | 0.83 cores |
| 16 | 10417 | 1.57 GiB | 0.21 cores |
`
	if diff := cmp.Diff(million, r.Million()); diff != "" {
		t.Errorf("a million containers (-want +got):\n%s", diff)
	}
	if got := (Results{Operator: Measures{"start cpu": 1}}).Million(); got != "" {
		t.Errorf("without an idle stage, a million containers are %q", got)
	}
}

func TestEveryMeasureIsWrittenReadably(t *testing.T) {
	for got, want := range map[string]string{
		seconds(0.0076): "8 ms", seconds(1.07): "1.07 s", seconds(281): "281 s", mib(713 << 20): "713 MiB", mib(3 << 30): "3.00 GiB", percent(0.494): "49 %", count(36): "36",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestTheAllowedChangesFollowTheFleet(t *testing.T) {
	for deployments, want := range map[int]int{
		100: 60, 150: 120, 1000: 300, 5000: 750, // 60 in each namespace, 300 in all, 5 % of the pods
	} {
		if got := allowedInMinute(deployments); got != want {
			t.Errorf("%d Deployments: %d changes, not %d", deployments, got, want)
		}
	}
}

// The Deployments of the OOM kills are all different, and spread over the namespaces.
func TestTheKilledAreSpread(t *testing.T) {
	for _, deployments := range []int{100, 1000, 5000} {
		seen := map[int]bool{}
		for stage := range 2 {
			for _, i := range spared(deployments, stage) {
				if seen[i] || i < 0 || i >= deployments {
					t.Errorf("of %d Deployments, %d is killed again, or does not exist", deployments, i)
				}
				seen[i] = true
			}
		}
		if len(seen) != 2*kills {
			t.Errorf("%d of %d Deployments are killed", len(seen), deployments)
		}
	}
	if i, ok := fleet.DeploymentOf(fleet.PodName(1234, 2)); i != 1234 || !ok {
		t.Errorf("the Deployment of a pod is %d, %v", i, ok)
	}
	if _, ok := fleet.DeploymentOf("job-000001-5d4f8c-00000"); ok {
		t.Error("a foreign pod has a Deployment")
	}
}

func TestWrongOptionsAreRefused(t *testing.T) {
	for want, o := range map[string]Options{
		"at least 100 scalers":         {Scalers: 99, Wave: time.Minute, Operator: "true"},
		`no stage "nothing"`:           {Scalers: 100, Wave: time.Minute, Operator: "true", Stages: []string{"idle", "nothing"}},
		"whole minutes, not 1m30s":     {Scalers: 100, Wave: 90 * time.Second, Operator: "true"},
		"finding a program":            {Scalers: 100, Wave: time.Minute, Operator: "/nowhere"},
		`exec: "/nothing/recommender"`: {Scalers: 100, Wave: time.Minute, Operator: "true", Recommender: "/nothing/recommender"},
	} {
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
