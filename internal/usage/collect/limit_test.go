// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

func TestMemoryAboveTheLimit(t *testing.T) {
	const noReport = -1
	for name, tc := range map[string]struct {
		declared, applied int64         // MiB; 0 for no limit
		resized           time.Duration // before the sample; 0 for never
		usedMiB           int64
		wantMiB           int64 // 0 for a refusal
	}{
		"below the limit":                      {declared: 1024, applied: 1024, usedMiB: 900, wantMiB: 900},
		"at the limit":                         {declared: 1024, applied: 1024, usedMiB: 1024, wantMiB: 1024},
		"slightly above, it is at the limit":   {declared: 1024, applied: 1024, usedMiB: 1100, wantMiB: 1024},
		"far above, it is refused":             {declared: 1024, applied: 1024, usedMiB: 200 << 10},
		"without a report of the kubelet too":  {declared: 1024, applied: noReport, usedMiB: 200 << 10},
		"a raise that is not applied yet":      {declared: 2048, applied: 1024, resized: time.Hour, usedMiB: 2000, wantMiB: 2000},
		"a limit that is not lowered yet":      {declared: 512, applied: 1024, resized: time.Hour, usedMiB: 1000, wantMiB: 1000},
		"above both of them":                   {declared: 512, applied: 1024, resized: time.Hour, usedMiB: 3000},
		"a limit that was lowered just now":    {declared: 512, applied: 512, resized: time.Minute, usedMiB: 1000, wantMiB: 512},
		"a sample of just before a resize":     {declared: 512, applied: 512, resized: -time.Minute, usedMiB: 1000, wantMiB: 512},
		"a limit that was lowered an hour ago": {declared: 512, applied: 512, resized: time.Hour, usedMiB: 1000},
		"a container without a limit":          {usedMiB: 200 << 10, wantMiB: 200 << 10},
		"no limit, and no report":              {applied: noReport, usedMiB: 200 << 10, wantMiB: 200 << 10},
		"a limit that is not applied yet":      {declared: 1024, applied: 0, usedMiB: 200 << 10, wantMiB: 200 << 10},
		"a limit that is not gone yet":         {declared: 0, applied: 1024, usedMiB: 200 << 10, wantMiB: 200 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
			limit := func(mib int64) workload.Resources {
				return workload.Resources{Limits: quantity.Amounts{MemoryBytes: mib * mebi}}
			}
			pod := workload.Pod{Containers: []workload.Container{{Name: "app", Resources: limit(tc.declared)}}}
			if tc.applied != noReport {
				pod.Actual = map[string]workload.Resources{"app": limit(tc.applied)}
			}
			if tc.resized != 0 {
				pod.Resized = at.Add(-tc.resized)
			}
			sample := usage.Sample{Container: "app", Time: at, MemoryBytes: tc.usedMiB * mebi}
			got, ok := memoryOf(pod, sample)
			if ok != (tc.wantMiB > 0) || ok && got != tc.wantMiB*mebi {
				t.Errorf("memoryOf() = %d MiB, %v; want %d", got/mebi, ok, tc.wantMiB)
			}
		})
	}
}

// The samples of a pod are not copied if they are used as they are. Others are copied: the source's list has what was delivered.
func TestSamplesAreCopiedOnlyToBeChanged(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	sample := func(pod, container string, mib int64) usage.Sample {
		return usage.Sample{Pod: pod, Container: container, Time: at, MemoryBytes: mib * mebi}
	}
	listed := []usage.Sample{
		sample("a", "app", 100), sample("a", "proxy", 10),
		sample("b", "app", 1100), // slightly above the limit
		sample("c", "injected", 1), sample("c", "app", 200<<10),
		sample("b", "proxy", 10), // not next to the other one
	}
	delivered := slices.Clone(listed)
	byPod := groupByPod(listed)
	var pods []workload.Pod
	for _, name := range []string{"a", "b", "c", "silent"} {
		limited := workload.Resources{Limits: quantity.Amounts{MemoryBytes: 1024 * mebi}}
		pods = append(pods, workload.Pod{Name: name, Containers: []workload.Container{{Name: "app", Resources: limited}, {Name: "proxy"}}})
	}
	stale := usage.Refused{Pod: "c", Container: "proxy", Why: usage.Stale}
	left, refused := usable(pods, byPod, map[string][]usage.Refused{"c": {stale}})
	want := map[string][]usage.Sample{
		"a": {sample("a", "app", 100), sample("a", "proxy", 10)}, "b": {sample("b", "app", 1024), sample("b", "proxy", 10)}, "c": nil, "silent": nil,
	}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("usable (-want +got):\n%s", diff)
	}
	wantRefused := []usage.Refused{stale, {Pod: "c", Container: "app", Why: usage.AboveLimit}}
	if diff := cmp.Diff(wantRefused, refused["c"]); diff != "" || len(refused["a"])+len(refused["b"])+len(refused["silent"]) > 0 {
		t.Errorf("refused %v (-want +got):\n%s", refused, diff)
	}
	if diff := cmp.Diff(delivered, listed); diff != "" {
		t.Errorf("the list of the source was modified (-before +after):\n%s", diff)
	}
	if &left["a"][0] != &listed[0] {
		t.Error("samples were copied that are used as they are")
	}
}

func TestLimitFactor(t *testing.T) {
	of := func(request, limit int64) workload.Resources {
		return workload.Resources{Requests: quantity.Amounts{CPUMillis: request}, Limits: quantity.Amounts{CPUMillis: limit}}
	}
	for name, tc := range map[string]struct {
		declared, applied workload.Resources
		isReported        bool
		want              float64
	}{
		"twice the request":                {declared: of(100, 200), want: 2},
		"the request":                      {declared: of(100, 100), want: 1},
		"no limit":                         {declared: of(100, 0)},
		"no request":                       {declared: of(0, 200)},
		"a resize that is not applied yet": {declared: of(400, 400), applied: of(100, 150), isReported: true, want: 1.5},
	} {
		pod := workload.Pod{Containers: []workload.Container{{Name: "side", Resources: of(1, 7)}, {Name: "app", Resources: tc.declared}}}
		if tc.isReported {
			pod.Actual = map[string]workload.Resources{"app": tc.applied}
		}
		if got := limitFactorOf(pod, "app"); got != tc.want {
			t.Errorf("%s: limitFactorOf() = %g, want %g", name, got, tc.want)
		}
	}
}
