// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

var epoch = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// snapshotAt has three ready pods with these requests, and is otherwise quiet.
func snapshotAt(second int, used quantity.Amounts, cpuMillis, mebibytes int64) snapshot {
	s := snapshot{at: epoch.Add(time.Duration(second) * time.Second), replicaSets: 1, memory: map[string]int64{}}
	s.scaler.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionApplied, Status: metav1.ConditionTrue}}
	s.scaler.Status.Recommendation = &v1beta1.Recommendation{}
	s.deployments = []appsv1.Deployment{{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "d", Generation: 1}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}}}
	for _, name := range []string{"web-1", "web-2", "web-3"} {
		r := workload.Resources{
			Requests: quantity.Amounts{CPUMillis: cpuMillis, MemoryBytes: mebibytes << 20},
			Limits:   quantity.Amounts{CPUMillis: 2 * cpuMillis, MemoryBytes: 2 * mebibytes << 20},
		}
		s.pods = append(s.pods, workload.Pod{Name: name, UID: types.UID(name), Ready: true, Actual: map[string]workload.Resources{"app": r}})
		s.memory[name] = used.MemoryBytes
	}
	return s
}

// taken is the progress of a step of the scenario after the snapshots, the first of which
// is its start.
func taken(t *testing.T, name string, snapshots ...snapshot) *progress {
	t.Helper()
	for _, s := range scalerScenario.steps {
		if s.name == name {
			p := &progress{step: s, start: snapshots[0], end: snapshots[0], done: true}
			for _, s := range snapshots[1:] {
				p.add(s)
			}
			return p
		}
	}
	t.Fatalf("there is no step %s", name)
	return nil
}

func TestStepsEndWithTheirEffect(t *testing.T) {
	killed := func(s snapshot) snapshot {
		s.pods[2].Kills = []workload.OOMKill{{Container: "app"}}
		s.restarts = 1
		return s
	}
	changed := func(s snapshot, change func(*snapshot)) snapshot {
		change(&s)
		return s
	}
	for name, tc := range map[string]struct {
		step        string
		start, next snapshot
		want        string // what is missing
	}{
		"steady":             {step: "steady", next: snapshotAt(1, low, 100, 128)},
		"no usage of a pod":  {step: "steady", next: changed(snapshotAt(1, low, 100, 128), func(s *snapshot) { delete(s.memory, "web-2") }), want: "the usage of all pods: 2 of 3"},
		"no recommendation":  {step: "steady", next: changed(snapshotAt(1, low, 100, 128), func(s *snapshot) { s.scaler.Status.Recommendation = nil }), want: "a recommendation"},
		"usage not reported": {step: "up", start: snapshotAt(0, low, 100, 128), next: snapshotAt(1, low, 210, 230), want: "the new usage or the OOM kill to appear in the API"},
		"not resized":        {step: "up", start: snapshotAt(0, low, 100, 128), next: snapshotAt(1, high, 100, 128), want: "requests that cover the usage on all pods: 0 of 3"},
		"CPU as the mean":    {step: "up", start: snapshotAt(0, low, 100, 128), next: snapshotAt(1, high, 168, 230)},
		"CPU below the mean": {step: "up", start: snapshotAt(0, low, 100, 128), next: snapshotAt(1, high, 167, 230), want: "requests that cover the usage on all pods: 0 of 3"},
		"CPU alone resized":  {step: "up", start: snapshotAt(0, low, 100, 128), next: snapshotAt(1, high, 210, 128), want: "requests that cover the usage on all pods: 0 of 3"},
		"a pod not resized": {
			step: "up", start: snapshotAt(0, low, 100, 128),
			next: changed(snapshotAt(1, high, 210, 230), func(s *snapshot) { s.pods[1] = snapshotAt(1, high, 100, 128).pods[1] }), want: "requests that cover the usage on all pods: 2 of 3",
		},
		"not Applied": {
			step: "up", start: snapshotAt(0, low, 100, 128),
			next: changed(snapshotAt(1, high, 210, 230), func(s *snapshot) { s.scaler.Status.Conditions = nil }), want: "the operator to report Applied",
		},
		"up":              {step: "up", start: snapshotAt(0, low, 100, 128), next: snapshotAt(1, high, 210, 230)},
		"lowered little":  {step: "down", start: snapshotAt(0, high, 210, 230), next: snapshotAt(1, low, 150, 160), want: "requests that cover the usage and are a third lower on all pods: 0 of 3"},
		"below the usage": {step: "down", start: snapshotAt(0, high, 210, 230), next: snapshotAt(1, low, 30, 40), want: "requests that cover the usage and are a third lower on all pods: 0 of 3"},
		"down":            {step: "down", start: snapshotAt(0, high, 210, 230), next: snapshotAt(1, low, 46, 69)},
		"not killed":      {step: "oom", start: snapshotAt(0, low, 46, 69), next: snapshotAt(1, low, 46, 166), want: "the new usage or the OOM kill to appear in the API"},
		"at the limit":    {step: "oom", start: snapshotAt(0, low, 46, 69), next: killed(snapshotAt(1, low, 46, 138)), want: "requests above the memory limit of the OOM-killed pod on all pods: 0 of 3"},
		"oom":             {step: "oom", start: snapshotAt(0, low, 46, 69), next: killed(snapshotAt(1, low, 46, 166))},
		"a recent write":  {step: "quiet", start: snapshotAt(0, low, 46, 69), next: changed(snapshotAt(40, low, 46, 69), func(s *snapshot) { s.lastWrite = epoch.Add(25 * time.Second) }), want: "15s more without a write"},
		"a recent start":  {step: "quiet", start: snapshotAt(0, low, 46, 69), next: snapshotAt(20, low, 46, 69), want: "10s more without a write"},
		"quiet":           {step: "quiet", start: snapshotAt(0, low, 46, 69), next: changed(snapshotAt(40, low, 46, 69), func(s *snapshot) { s.lastWrite = epoch.Add(10 * time.Second) })},
	} {
		t.Run(name, func(t *testing.T) {
			p := taken(t, tc.step, tc.start, tc.next)
			if got := p.missing(p); got != tc.want {
				t.Errorf("missing() = %q, want %q", got, tc.want)
			}
			if tc.want == "" && p.proof != nil {
				if ok, details := p.proof(p); !ok {
					t.Errorf("no proof: %s", details)
				}
			}
		})
	}
}

// TestEarlierResizesDoNotCount has a pod that is resized before metrics-server reports
// the new usage.
func TestEarlierResizesDoNotCount(t *testing.T) {
	early, half := snapshotAt(4, low, 100, 128), snapshotAt(12, high, 90, 128)
	early.pods[0] = snapshotAt(4, low, 90, 128).pods[0]
	half.pods[1] = snapshotAt(12, high, 210, 230).pods[1]
	p := taken(t, "up", snapshotAt(0, low, 100, 128), early, snapshotAt(9, low, 90, 128), snapshotAt(10, high, 90, 128), half, snapshotAt(13, high, 210, 230))
	ok, details := p.proof(p)
	const want = "cpu 90m -> 210m, memory 128Mi -> 230Mi on 3 of 3 pods, the first 2.0s and the last 3.0s after the API showed the cause; "
	if !ok || !strings.HasPrefix(details, want) {
		t.Errorf("proof() = %t, %q, want %q", ok, details, want)
	}
	// Between two snapshots, usage can become known and pods can be resized.
	p = taken(t, "up", snapshotAt(0, low, 100, 128), snapshotAt(10, high, 210, 230))
	if ok, details := p.proof(p); !ok || !strings.Contains(details, "the first 0.0s") {
		t.Errorf("proof() = %t, %q", ok, details)
	}
}

func TestChangesThatFailAProof(t *testing.T) {
	for name, change := range map[string]func(*snapshot){
		"a new pod":     func(s *snapshot) { s.pods[0].UID = "another" },
		"a rollout":     func(s *snapshot) { s.replicaSets = 2 },
		"a new spec":    func(s *snapshot) { s.deployments[0].Generation = 2 },
		"a replacement": func(s *snapshot) { s.deployments[0].UID = "another" },
		"a restart":     func(s *snapshot) { s.restarts = 1 },
		"no resize":     func(s *snapshot) { s.pods = snapshotAt(0, low, 100, 128).pods },
	} {
		t.Run(name, func(t *testing.T) {
			end := snapshotAt(10, high, 210, 230)
			change(&end)
			p := taken(t, "up", snapshotAt(0, low, 100, 128), end)
			if ok, details := p.proof(p); ok {
				t.Errorf("proof() = true, %q", details)
			}
		})
	}
}

func TestResults(t *testing.T) {
	s := scenario{writes: []string{"patch pods/resize"}, steps: []step{{name: "a", claim: "first"}, {name: "b", claim: "second", proof: unchanged}}}
	done := []*progress{{done: true}, {done: true, start: snapshotAt(0, low, 100, 128), end: snapshotAt(1, low, 100, 128)}}
	for name, tc := range map[string]struct {
		seen  []*progress
		audit audit
		want  string // the claim that fails
	}{
		"all is well":         {seen: done, audit: audit{requests: 2, writes: map[string]int{"patch pods/resize": 1}}},
		"a step did not end":  {seen: []*progress{done[0], {}}, audit: audit{requests: 2, writes: map[string]int{"patch pods/resize": 1}}, want: "second"},
		"a step is not taken": {seen: done[:1], audit: audit{requests: 2, writes: map[string]int{"patch pods/resize": 1}}, want: "second"},
		"a right is missing":  {seen: done, audit: audit{requests: 2, writes: map[string]int{"patch pods/resize": 1}, forbidden: map[string]int{"list pods": 1}}, want: "no right is missing"},
		"an unneeded write":   {seen: done, audit: audit{requests: 2, writes: map[string]int{"patch deployments": 1}}, want: "the operator writes only what it must"},
	} {
		t.Run(name, func(t *testing.T) {
			lines, passed := s.results(tc.seen, tc.audit)
			var failed []string
			for _, line := range lines {
				if strings.HasPrefix(line, "FAIL") {
					failed = append(failed, line)
				}
			}
			if passed != (tc.want == "") || len(lines) != 4 || len(failed) > 1 || tc.want != "" && !strings.HasPrefix(strings.Join(failed, "\n"), "FAIL  "+tc.want) {
				t.Errorf("passed: %t, failed: %q, want %q", passed, failed, tc.want)
			}
		})
	}
}

func TestAuditCountsTheOperatorsRequests(t *testing.T) {
	line := func(user, verb, resource, sub string, code, second int) string {
		return fmt.Sprintf(`{"stage":"ResponseComplete","verb":%q,"user":{"username":%q},"objectRef":{"resource":%q,"subresource":%q},"responseStatus":{"code":%d},"stageTimestamp":%q}`,
			verb, user, resource, sub, code, epoch.Add(time.Duration(second)*time.Second).Format(time.RFC3339Nano)) + "\n"
	}
	all := line(operatorUser, "patch", "pods", "resize", 200, 1) +
		line("system:admin", "patch", "pods", "", 200, 9) +
		strings.Replace(line(operatorUser, "watch", "pods", "", 200, 9), "ResponseComplete", "ResponseStarted", 1) +
		line(operatorUser, "watch", "pods", "", 403, 9) +
		line(operatorUser, "create", "selfsubjectaccessreviews", "", 201, 9) +
		line(operatorUser, "update", "leases", "", 200, 9) +
		line(operatorUser, "update", "verticalscalers", "status", 409, 3) +
		line(operatorUser, "patch", "deployments", "", 403, 9)
	var file bytes.Buffer
	a := audit{log: bufio.NewReader(&file), writes: map[string]int{}, forbidden: map[string]int{}}
	for len(all) > 0 { // a line is read once it is complete
		n := min(len(all), 100)
		file.WriteString(all[:n])
		all = all[n:]
		if err := a.read(); err != nil {
			t.Fatal(err)
		}
	}
	got := []any{a.requests, list(a.writes), list(a.forbidden), a.lastWrite.Sub(epoch)}
	want := []any{6, "[patch pods/resize:1 update verticalscalers/status:1]", "[patch deployments:1 watch pods:1]", 3 * time.Second}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests, writes, forbidden, last write (-want +got):\n%s", diff)
	}
}

func TestFilesAreValid(t *testing.T) {
	read := func(name string) []byte {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	operator, err := config.Parse(read("operator.yaml"))
	if err != nil {
		t.Fatalf("operator.yaml: %v", err)
	}
	usual := config.Default()
	for name, d := range map[string][2]metav1.Duration{
		"cpuHalfLife":    {usual.Recommendation.CPUHalfLife, operator.Recommendation.CPUHalfLife},
		"memoryWindow":   {usual.Recommendation.MemoryWindow, operator.Recommendation.MemoryWindow},
		"fullEvidence":   {usual.Recommendation.FullEvidence, operator.Recommendation.FullEvidence},
		"confidenceUnit": {usual.Recommendation.ConfidenceUnit, operator.Recommendation.ConfidenceUnit},
	} {
		if got := d[1].Seconds() / (d[0].Hours() / 24); got != 5 {
			t.Errorf("by %s, a day is %g seconds in operator.yaml, want 5", name, got)
		}
	}
	for name, object := range map[string]any{"scaler.yaml": &v1beta1.VerticalScaler{}, "owned.yaml": &v1beta1.ScaledDeployment{}, "by-hand.yaml": &v1beta1.VerticalScaler{}, "workload.yaml": &appsv1.Deployment{}} {
		if err := yaml.UnmarshalStrict(read(name), object); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
