// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
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
			at := noon
			limit := func(mib int64) workload.Resources {
				return workload.Resources{Limits: quantity.Amounts{MemoryBytes: mib * mebi}}
			}
			pod := workload.Pod{Containers: []workload.Container{{Name: "app", Resources: limit(tc.declared)}}}
			if tc.applied != noReport {
				pod.Actual = workload.Reported{}.With("app", limit(tc.applied))
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

// The source's list has the delivered samples, and is not changed. Pod a became Ready half a minute ago, within the window
// of its sample, and pod b two minutes ago. The CPU usage during a startup boost is marked, and so are other starts.
func TestUsageOfPods(t *testing.T) {
	sample := func(pod, container string, mib int64) usage.Sample {
		return usage.Sample{Pod: pod, Container: container, Time: noon, Window: time.Minute, MemoryBytes: mib * mebi}
	}
	listed := []usage.Sample{
		sample("a", "app", 100), sample("a", "proxy", 10),
		sample("b", "app", 1100), // slightly above the limit
		sample("c", "injected", 1), sample("c", "app", 200<<10),
		sample("b", "proxy", 10), // not next to the other sample of b
	}
	delivered := slices.Clone(listed)
	has := func(cpu, cpuLimit int64) workload.Resources {
		return workload.Resources{Requests: quantity.Amounts{CPUMillis: cpu, MemoryBytes: mebi}, Limits: quantity.Amounts{CPUMillis: cpuLimit, MemoryBytes: 1024 * mebi}}
	}
	var pods []workload.Pod
	for _, name := range []string{"a", "b", "c", "silent"} {
		pods = append(pods, workload.Pod{
			Name: name, Ready: true, ReadyChanged: noon.Add(-2 * time.Minute), Runs: []workload.Run{{Container: "app", Since: noon.Add(-10 * time.Minute)}},
			Containers: []workload.Container{{Name: "app", Resources: has(100, 200)}, {Name: "proxy"}},
		})
	}
	pods[0].ReadyChanged = noon.Add(-30 * time.Second)
	var boosted v1beta1.VerticalScalerSpec
	boosted.ResourcePolicy = &v1beta1.ResourcePolicy{ContainerPolicies: []v1beta1.ContainerPolicy{{
		ContainerName: "app", StartupBoost: &v1beta1.StartupBoost{CPU: &v1beta1.CPUStartupBoost{Type: "Factor", Factor: ptr.To[int32](2)}},
	}}}
	pods[1].Actual = workload.Reported{}.With("app", has(100, 150)) // a resize that is not applied yet
	stale := usage.Refused{Pod: "c", Container: "proxy", Why: usage.Stale}
	limited := func(s usage.Sample, factor float64, limit int64) usage.Sample {
		s.LimitFactor, s.CPULimitMillis, s.MemoryRequest, s.MemoryLimit = factor, limit, mebi, 1024*mebi
		return s
	}
	want := [][]usage.Sample{
		{limited(sample("a", "app", 100), 2, 200), sample("a", "proxy", 10)},
		{limited(sample("b", "app", 1024), 1.5, 150), sample("b", "proxy", 10)},
		{},
		{},
	}
	wantRefused := [][]usage.Refused{nil, nil, {stale, {Pod: "c", Container: "app", Why: usage.AboveLimit}}, nil}
	want[0][0].NoCPU = true
	var got [][]usage.Sample
	var refused [][]usage.Refused
	for _, u := range usageOf(&boosted, pods, groupByPod(listed), map[string][]usage.Refused{"c": {stale}}) {
		got, refused = append(got, u.samples), append(refused, u.refused)
	}
	for i, u := range usageOf(&v1beta1.VerticalScalerSpec{}, pods, groupByPod(listed), nil) {
		for _, s := range u.samples {
			if isStart := i == 0 && s.Container == "app"; s.Starting != isStart || s.NoCPU {
				t.Errorf("without a startupBoost, usage of a start: %t, CPU that does not count: %t, of %s in %s", s.Starting, s.NoCPU, s.Container, s.Pod)
			}
		}
	}
	if diff := cmp.Diff(want, got) + cmp.Diff(wantRefused, refused) + cmp.Diff(delivered, listed); diff != "" {
		t.Errorf("usage, refusals and the list (-want +got):\n%s", diff)
	}
}

// Usage from before a resize is not compared with the limit after it: a lowered limit would seem to be reached.
func TestTheLimitOfASample(t *testing.T) {
	for resized, want := range map[time.Duration]int64{0: 200, time.Minute: 200, 59 * time.Second: 0, -time.Second: 0} {
		pod := workload.Pod{Name: "a", Containers: []workload.Container{{Name: "app", Resources: workload.Resources{
			Requests: quantity.Amounts{CPUMillis: 100}, Limits: quantity.Amounts{CPUMillis: 200},
		}}}}
		if resized != 0 {
			pod.Resized = noon.Add(-resized)
		}
		samples := map[string][]usage.Sample{"a": {{Pod: "a", Container: "app", Time: noon, Window: time.Minute, CPUMillis: 300}}}
		if got := usageOf(&v1beta1.VerticalScalerSpec{}, []workload.Pod{pod}, samples, nil)[0].samples[0].CPULimitMillis; got != want {
			t.Errorf("resized %s before the end of a window of a minute: the limit is %dm, not %dm", resized, got, want)
		}
	}
}
