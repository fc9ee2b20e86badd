// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func size(cpuMillis, mebibytes int64) workload.Resources {
	request := quantity.Amounts{CPUMillis: cpuMillis, MemoryBytes: mebibytes << 20}
	return workload.Resources{Requests: request, Limits: quantity.Amounts{MemoryBytes: 2 * request.MemoryBytes}}
}

func amounts(cpu, memory string) v1beta1.Amounts {
	return v1beta1.Amounts{CPU: ptr.To(resource.MustParse(cpu)), Memory: ptr.To(resource.MustParse(memory))}
}

// evidence is of pods with a container app and a sidecar, whose target is 200m and 256Mi.
func evidence(sizes ...workload.Resources) explain.Evidence {
	s := &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: v1beta1.VerticalScalerSpec{DeploymentName: "web"}}
	s.Status = v1beta1.VerticalScalerStatus{
		Conditions: []metav1.Condition{
			{Type: v1beta1.ConditionApplied, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonApplied, LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))},
			{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1beta1.ReasonOperatingNormally},
		},
		Recommendation: &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{
			ContainerName: "app", Target: amounts("200m", "256Mi"), LowerBound: amounts("150m", "200Mi"), UpperBound: amounts("1", "1Gi"), ObservedSeconds: 3600,
		}}},
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	d.Spec.Template.Spec = corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "mesh", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
		Containers:     []corev1.Container{{Name: "app"}},
	}
	e := explain.Evidence{Scaler: s, Deployment: d}
	for i := len(sizes) - 1; i >= 0; i-- { // in any order
		e.Pods = append(e.Pods, workload.Pod{
			Name: fmt.Sprintf("web-%d", i), Running: true, Ready: true,
			Containers: []workload.Container{{Name: "app", Resources: sizes[i]}, {Name: "mesh"}, {Name: "injected", Resources: size(900, 900)}},
		})
	}
	return e
}

func sample(pod, container string, cpuMillis, mebibytes int64, age time.Duration) usage.Sample {
	return usage.Sample{Namespace: "shop", Pod: pod, Container: container, Time: now.Add(-age), CPUMillis: cpuMillis, MemoryBytes: mebibytes << 20}
}

func TestUnevenAndSilentPodsAreCountedAsTheyAre(t *testing.T) {
	e := evidence(size(500, 512), size(100, 128), size(500, 512))
	other := sample("web-0", "app", 9000, 9000, 0)
	other.Namespace = "other"
	s := Of(e, []usage.Sample{
		other,
		sample("web-0", "app", 50, 100, time.Minute), sample("web-0", "app", 160, 110, 0), sample("web-0", "app", 90, 900, 2*time.Minute),
		sample("web-1", "app", 95, 120, 0), sample("web-1", "injected", 800, 800, 0), sample("gone", "app", 5000, 5000, 0),
	}, "", now)
	if len(s.Containers) != 2 || s.Containers[0].Name != "mesh" || s.Containers[1].Name != "app" {
		t.Fatalf("containers %+v, want those of the template: the sidecar and app", s.Containers)
	}
	want := []Resource{
		{
			Resource: "cpu", Used: Spread{2, 95, 160, 255}, Request: Spread{3, 100, 500, 1100}, Busiest: Share{"web-1", 95, 100},
			Target: 200, LowerBound: 150, UpperBound: 1000, HasTarget: true, Over: 600, Short: 100,
		},
		{
			Resource: "memory", Used: Spread{2, 110 << 20, 120 << 20, 230 << 20}, Request: Spread{3, 128 << 20, 512 << 20, 1152 << 20},
			Limit: Spread{3, 256 << 20, 1024 << 20, 2304 << 20}, Busiest: Share{"web-1", 120 << 20, 128 << 20},
			Target: 256 << 20, LowerBound: 200 << 20, UpperBound: 1 << 30, HasTarget: true, Over: 512 << 20, Short: 128 << 20,
		},
	}
	assert.Equal(t, "app", want, s.Containers[1].Resources)
	if r := s.Containers[0].Resources[0]; r.Used.Pods != 0 || r.Request.Pods != 0 || r.Busiest.Percent() != 0 {
		t.Errorf("the sidecar has neither usage nor a request: %+v", r)
	}
	if s.Pods[0].Name != "web-0" || s.Pods[2].Containers[1].Used != nil || s.Pods[1].Containers[1].Used.CPUMillis != 95 {
		t.Errorf("pods %+v", s.Pods)
	}
	if got := s.Containers[1].Resources[0].Request.FurthestFrom(200); got != 500 {
		t.Errorf("the request furthest from 200m is %d, want 500", got)
	}
	if got := s.Containers[1].Resources[0].Request.FurthestFrom(450); got != 100 {
		t.Errorf("the request furthest from 450m is %d, want 100", got)
	}
}

// The resources that the kubelet has applied count, and not those of the pod's spec.
func TestADeferredResizeIsNotWhatAPodHas(t *testing.T) {
	e := evidence(size(500, 512))
	e.Pods[0].Actual = workload.Reported{}.With("app", size(100, 128))
	e.Pods[0].Resize = workload.Resize{Deferred: true}
	e.Pods[0].Kills = []workload.OOMKill{{Container: "app"}}
	s := Of(e, nil, "metrics.k8s.io is not served", now)
	if r := s.Containers[1].Resources[0]; r.Request.Most != 100 || r.Short != 100 || r.Used.Pods != 0 {
		t.Errorf("cpu %+v, want the applied 100m", r)
	}
	if p := s.Pods[0]; p.Resize != "Deferred" || p.OOMKills != 1 || p.Containers[1].Declared.Requests.CPUMillis != 500 {
		t.Errorf("pod %+v", p)
	}
	if s.UsageMissing == "" || len(s.Waits()) != 0 {
		t.Errorf("%q, waits for %+v", s.UsageMissing, s.Waits())
	}
}

func TestAScalerThatNoOperatorHasSeenHasAView(t *testing.T) {
	e := evidence()
	e.Scaler.Status, e.Deployment = v1beta1.VerticalScalerStatus{}, nil
	s := Of(e, nil, "", now)
	if len(s.Containers) != 0 || len(s.Waits()) != 1 || s.Waits()[0].Reason.Reason != "NotObserved" || !s.AppliedSince.IsZero() {
		t.Errorf("%+v", s)
	}
}

// Old usage is shown with its age.
func TestOldUsageIsDated(t *testing.T) {
	for age, want := range map[time.Duration][]string{time.Minute: nil, 9 * time.Minute: {"Usage of the last 9m: the usage that is shown is older"}} {
		if s := Of(evidence(size(500, 512)), []usage.Sample{sample("web-0", "app", 50, 100, age)}, "", now); !cmp.Equal(s.Missing, want) || s.Containers[1].Resources[0].Used.Most != 50 {
			t.Errorf("%s old: %q", age, s.Missing)
		}
	}
}

// Pods that start have more than the decided CPU, although it counts as applied.
func TestBoostedSizesHaveNoPast(t *testing.T) {
	e := evidence(size(500, 512))
	e.Scaler.Status.Conditions[0].Reason = v1beta1.ReasonBoosted
	if s := Of(e, nil, "", now); !s.AppliedSince.IsZero() {
		t.Errorf("applied since %s", s.AppliedSince)
	}
}

// The target is 200m and 256Mi. The gravest container and resource counts.
func TestRequestsBelowTheTargetAreGraver(t *testing.T) {
	for name, tc := range map[string]struct {
		sizes []workload.Resources
		want  Severity
	}{
		"no pods":                      {nil, NoTarget},
		"no requests":                  {[]workload.Resources{size(0, 0)}, FarTooLow},
		"a quarter below":              {[]workload.Resources{size(150, 256)}, TooLow},
		"more than a quarter below":    {[]workload.Resources{size(149, 256)}, FarTooLow},
		"within the tolerance":         {[]workload.Resources{size(180, 256)}, OnTarget},
		"a quarter above":              {[]workload.Resources{size(250, 320)}, OnTarget},
		"more than a quarter above":    {[]workload.Resources{size(200, 321)}, TooHigh},
		"CPU too high, memory too low": {[]workload.Resources{size(900, 224)}, TooLow},
		"one of two pods":              {[]workload.Resources{size(200, 256), size(100, 256)}, TooLow},
	} {
		if got := RowOf(Of(evidence(tc.sizes...), nil, "", now)).Severity; got != tc.want {
			t.Errorf("%s: severity %d, want %d", name, got, tc.want)
		}
	}
}

func TestAFleetIsSortedByShares(t *testing.T) {
	row := func(name string, cpuOver, cpuShort, memoryOver int64) Row {
		return Row{
			Row: explain.Row{Name: name}, CPU: Resource{Request: Spread{Total: 1000}, Over: cpuOver, Short: cpuShort},
			Memory: Resource{Request: Spread{Total: 1 << 30}, Over: memoryOver},
		}
	}
	for order, want := range map[Order]string{
		ByGap: "[memory waste lack a b]", ByWaste: "[memory waste a b lack]", ByLack: "[lack a b memory waste]", ByName: "[a b lack memory waste]",
	} {
		f := Table{Rows: []Row{row("b", 0, 0, 0), row("waste", 300, 0, 0), row("a", 0, 0, 0), row("lack", 0, 200, 0), row("memory", 0, 0, 1<<29)}}
		f.Sort(order)
		var got []string
		for _, r := range f.Rows {
			got = append(got, r.Name)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("by %s: %v, want %s", order, got, want)
		}
	}
	f := Table{Rows: []Row{row("a", 300, 0, 0), row("b", 0, 200, 5)}}
	if cpu, memory := f.Total(); cpu.Over != 300 || cpu.Short != 200 || cpu.Request.Total != 2000 || memory.Over != 5 {
		t.Errorf("total %+v, %+v", cpu, memory)
	}
}

func TestARecordKeepsWhatIsKnown(t *testing.T) {
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	r := Record{Keep: time.Minute}
	for i, used := range []int64{50, 0, 70} { // silent at 10 s
		var samples []usage.Sample
		if used > 0 {
			samples = append(samples, sample("web-0", "app", used, 100, 0))
		}
		r.Add(Of(evidence(size(500, 512), size(100, 128)), samples, "", at(10*i)))
	}
	r.Add(Of(evidence(size(1, 1)), nil, "", at(15))) // an answer that was overtaken
	want := []Point{{at(-60), Unknown, 500, None}, {at(0), 50, 500, None}, {at(10), Unknown, 500, None}, {at(20), 70, 500, None}}
	assert.Equal(t, "points", want, r.Series("app", "cpu"))
	if got := r.Series("mesh", "cpu"); got[1].Request != None {
		t.Errorf("the sidecar has no request: %+v", got)
	}

	r.Fill("app", "cpu", []Point{{at(-120), 30, Unknown, Unknown}, {at(-30), 40, Unknown, Unknown}, {at(5), 999, Unknown, Unknown}})
	columns := Columns(r.Series("app", "cpu"), at(-40), at(20), 6)
	var used, requests []int64
	for _, c := range columns {
		used, requests = append(used, c.Used), append(requests, c.Request)
	}
	assert.Equal(t, "usage in columns", []int64{Unknown, 40, Unknown, Unknown, 50, 70}, used)
	assert.Equal(t, "requests in columns", []int64{500, 500, 500, 500, 500, 500}, requests)

	r.Add(Of(evidence(size(500, 512)), nil, "", at(300)))
	if got := r.Series("app", "cpu"); len(got) != 2 || !got[0].At.Equal(at(20)) {
		t.Errorf("a minute is kept, and the point before it: %+v", got)
	}
}

// A limit that was removed, and a request of pods that are gone, are not drawn on. Values that may
// not be read stay as they were.
func TestWhatNoPodHasEnds(t *testing.T) {
	at := func(seconds int) time.Time { return now.Add(time.Duration(seconds) * time.Second) }
	points := []Point{{at(0), 50, 500, 1000}, {at(10), 50, Unknown, Unknown}, {at(20), 50, 500, None}, {at(30), Unknown, None, None}, {at(40), 50, 300, Unknown}}
	var got []string
	for _, c := range Columns(points, at(0), at(50), 5) {
		got = append(got, fmt.Sprintf("%d/%d", c.Request, c.Limit))
	}
	assert.Equal(t, "requests and limits", []string{"500/1000", "500/1000", "500/0", "0/0", "300/0"}, got)
	r := Record{Keep: time.Minute}
	e := evidence(size(500, 512))
	r.Add(Of(e, nil, "", at(0)))
	e.Pods = nil
	r.Add(Of(e, nil, "", at(10)))
	if got := r.Series("app", "cpu"); got[len(got)-1].Request != Unknown {
		t.Errorf("without pods: %+v", got)
	}
}
