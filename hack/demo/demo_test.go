// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// size is what a test's pod has: requests, and twice that as limits.
func size(cpu, memory int64) workload.Resources {
	return workload.Resources{
		Requests: quantity.Amounts{CPUMillis: cpu, MemoryBytes: memory * mebi},
		Limits:   quantity.Amounts{CPUMillis: 2 * cpu, MemoryBytes: 2 * memory * mebi},
	}
}

// aPod is a pod that runs with what it asks for.
func aPod(n int, has workload.Resources) pod {
	name := fmt.Sprintf("web-7c5d-%d", n)
	return pod{ready: true, Pod: workload.Pod{
		Name: name, UID: types.UID(name), Running: true, Current: true,
		Containers: []workload.Container{{Name: "app", Resources: has}},
		Actual:     map[string]workload.Resources{"app": has},
	}}
}

// aState is a settled one, at a time in seconds.
func aState(at int, used quantity.Amounts, has workload.Resources) state {
	s := state{
		at: time.Duration(at) * time.Second, deployments: []deployment{{name: "web", generation: 1}}, replicaSets: 1, usage: map[string]usage.Sample{},
		scaler: &v1beta1.VerticalScaler{},
		audit:  audit{requests: 50, leases: at / 2, writes: map[string]int{"patch pods/resize": 3, "update verticalscalers/status": at}},
	}
	for i := range replicas {
		s.pods = append(s.pods, aPod(i+1, has))
		s.usage[s.pods[i].Name] = usage.Sample{Pod: s.pods[i].Name, CPUMillis: used.CPUMillis, MemoryBytes: used.MemoryBytes * mebi}
	}
	s.scaler.Status = v1beta1.VerticalScalerStatus{
		Summary: &v1beta1.Summary{CPU: "100m", Memory: "128Mi", Pods: "3/3"},
		Conditions: []metav1.Condition{
			{Type: "Ready", Status: "True", Reason: "OperatingNormally", Message: "The scaler works"},
			{Type: "TargetFound", Status: "True", Reason: "DeploymentFound", Message: "Deployment demo/web is found"},
			{Type: "Applied", Status: "True", Reason: "Applied", Message: "All pods have the decided size"},
			{Type: "Stalled", Status: "False", Reason: "OperatingNormally", Message: "Nothing waits for a person"},
		},
		Recommendation: &v1beta1.Recommendation{ContainerRecommendations: []v1beta1.ContainerRecommendation{{
			ContainerName: "app", Target: recommended("100m", "128Mi"), LowerBound: recommended("80m", "118Mi"), UpperBound: recommended("140m", "170Mi"),
			Reasons: []v1beta1.RecommendationReason{
				{Resource: "cpu", Code: "RecentUsage"}, {Resource: "cpu", Code: "SafetyMargin"}, {Resource: "memory", Code: "Peak"},
			},
		}}},
	}
	return s
}

func recommended(cpu, memory string) v1beta1.Amounts {
	return v1beta1.Amounts{CPU: ptr.To(resource.MustParse(cpu)), Memory: ptr.To(resource.MustParse(memory))}
}

// aPlay is a record of a play in which all went well.
func aPlay() *record {
	r := newRecord(scalerPiece())
	before := state{at: time.Second}
	r.add(before)
	steady := aState(3, quantity.Amounts{CPUMillis: 85, MemoryBytes: 110}, size(100, 128))
	r.add(steady)
	phases := play()
	end := func(s state) {
		r.add(s)
		r.current().done = s.at
	}
	r.begin(phases[0], r.last.at)
	end(aState(30, quantity.Amounts{CPUMillis: 85, MemoryBytes: 110}, size(100, 128)))
	r.begin(phases[1], r.last.at)
	r.add(aState(40, quantity.Amounts{CPUMillis: 150, MemoryBytes: 200}, size(100, 128)))
	half := aState(42, quantity.Amounts{CPUMillis: 150, MemoryBytes: 200}, size(100, 128))
	half.pods[0] = aPod(1, size(210, 230))
	r.add(half)
	end(aState(45, quantity.Amounts{CPUMillis: 180, MemoryBytes: 200}, size(210, 230)))
	r.begin(phases[2], r.last.at)
	r.add(aState(55, quantity.Amounts{CPUMillis: 40, MemoryBytes: 60}, size(210, 230)))
	end(aState(95, quantity.Amounts{CPUMillis: 40, MemoryBytes: 60}, size(46, 69)))
	r.begin(phases[3], r.last.at)
	r.strike("web-7c5d-3")
	killed := aState(97, quantity.Amounts{CPUMillis: 40, MemoryBytes: 60}, size(46, 69))
	killed.pods[2].Kills = []workload.OOMKill{{Container: "app"}}
	killed.pods[2].ready = false
	r.add(killed)
	after := func(at int) state {
		s := aState(at, quantity.Amounts{CPUMillis: 40, MemoryBytes: 60}, size(46, 166))
		s.pods[2].Kills = killed.pods[2].Kills
		s.pods[2].restarts = 1
		return s
	}
	end(after(100))
	r.begin(phases[4], r.last.at)
	calm := after(131)
	calm.wrote = 101 * time.Second
	end(calm)
	return r
}

func TestPhasesEndWhenTheirOutcomeIsSeen(t *testing.T) {
	load := map[string]quantity.Amounts{}
	for _, ph := range play() {
		load[ph.name] = quantity.Amounts{CPUMillis: ph.load.CPUMillis, MemoryBytes: ph.load.MemoryBytes / mebi}
	}
	cases := map[string]struct {
		phase  string
		before workload.Resources
		now    workload.Resources
		change func(p *progress, s *state)
		want   string // what is missing
	}{
		"steady, all is well": {phase: "steady", before: size(100, 128), now: size(100, 128)},
		"steady, a pod without usage": {
			phase: "steady", now: size(100, 128),
			change: func(_ *progress, s *state) { delete(s.usage, "web-7c5d-2") }, want: "the usage of 1 of 3 pods",
		},
		"steady, no pods": {phase: "steady", change: func(_ *progress, s *state) { s.pods = nil }, want: "the usage of 0 of 0 pods"},
		"steady, no recommendation": {
			phase: "steady", now: size(100, 128),
			change: func(_ *progress, s *state) { s.scaler.Status.Recommendation = nil }, want: "a recommendation",
		},
		"rise, nothing has moved": {
			phase: "rise", before: size(100, 128), now: size(100, 128),
			want: "3 of 3 pods to have requests above their usage in force",
		},
		"rise, CPU only": {
			phase: "rise", before: size(100, 128), now: size(210, 128),
			want: "3 of 3 pods to have requests above their usage in force",
		},
		"rise, one pod is behind": {
			phase: "rise", before: size(100, 128), now: size(210, 230),
			change: func(_ *progress, s *state) { s.pods[1] = aPod(2, size(100, 128)) },
			want:   "1 of 3 pods to have requests above their usage in force",
		},
		"rise, asked for and not in force": {
			phase: "rise", before: size(100, 128), now: size(210, 230),
			change: func(_ *progress, s *state) {
				s.pods[1].Actual = map[string]workload.Resources{"app": size(100, 128)}
			},
			want: "1 of 3 pods to have requests above their usage in force",
		},
		"rise, the operator is not done": {
			phase: "rise", before: size(100, 128), now: size(210, 230),
			change: func(_ *progress, s *state) { s.scaler.Status.Conditions[2].Status = "False" },
			want:   "the operator to say that nothing is left to be done",
		},
		"rise, done":               {phase: "rise", before: size(100, 128), now: size(210, 230)},
		"fall, too little":         {phase: "fall", before: size(210, 230), now: size(150, 160), want: "3 of 3 pods to have requests lowered by a third, and above their usage in force"},
		"fall, below the usage":    {phase: "fall", before: size(210, 230), now: size(30, 40), want: "3 of 3 pods to have requests lowered by a third, and above their usage in force"},
		"fall, done":               {phase: "fall", before: size(210, 230), now: size(46, 69)},
		"oom, the kill is unknown": {phase: "oom", before: size(46, 69), now: size(46, 69), want: "the kill in the pod's status"},
		"oom, the victim is down": {
			phase: "oom", before: size(46, 69), now: size(46, 166),
			change: func(p *progress, s *state) { p.seen = 1; s.pods[2].ready = false }, want: "pod web-7c5d-3 to run again",
		},
		"oom, not enough": {
			phase: "oom", before: size(46, 69), now: size(46, 138),
			change: func(p *progress, _ *state) { p.seen = 1 }, want: "3 of 3 pods to have requests above the limit that was hit in force",
		},
		"oom, done": {phase: "oom", before: size(46, 69), now: size(46, 166), change: func(p *progress, _ *state) { p.seen = 1 }},
		"calm, a write a while ago": {
			phase: "calm", now: size(46, 166),
			change: func(p *progress, s *state) { p.began = 80 * time.Second; s.wrote = 90 * time.Second }, want: "20s more without a write",
		},
		"calm, no write but just begun": {
			phase: "calm", now: size(46, 166),
			change: func(p *progress, s *state) { p.began = 95 * time.Second; s.wrote = 10 * time.Second }, want: "25s more without a write",
		},
		"calm, done": {phase: "calm", now: size(46, 166), change: func(p *progress, s *state) { p.began = 70 * time.Second; s.wrote = 69 * time.Second }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRecord(scalerPiece())
			r.add(aState(90, load[tc.phase], tc.before))
			for _, ph := range play() {
				if ph.name != tc.phase {
					continue
				}
				p := r.begin(ph, r.last.at)
				p.hit = 138 * mebi
				s := aState(100, load[tc.phase], tc.now)
				if tc.change != nil {
					tc.change(p, &s)
				}
				if got := ph.missing(p, s); got != tc.want {
					t.Errorf("missing() = %q, want %q", got, tc.want)
				}
			}
		})
	}
}

func TestChecks(t *testing.T) {
	cases := map[string]struct {
		change func(r *record)
		want   []string // the checks that fail
	}{
		"all went well":     {},
		"nothing was seen":  {change: func(r *record) { *r = *newRecord(scalerPiece()) }, want: []string{"a scaler before its Deployment", "resized up in place", "resized down in place", "raised after the OOM kill", "no restart but the kill's", "no rollout, no new pod", "no right missing", "no write but its own", "silent when nothing happens"}},
		"one restart more":  {change: func(r *record) { r.restarts = 2 }, want: []string{"no restart but the kill's"}},
		"another restarted": {change: func(r *record) { r.last.pods[0].restarts, r.last.pods[2].restarts = 1, 0 }, want: []string{"no restart but the kill's"}},
		"a pod was replaced": {change: func(r *record) {
			s := r.last
			s.pods = append([]pod{aPod(9, size(46, 166))}, s.pods[1:]...)
			r.add(s)
		}, want: []string{"no rollout, no new pod"}},
		"the template was changed": {change: func(r *record) { r.last.deployments[0].generation = 2 }, want: []string{"no rollout, no new pod"}},
		"a second ReplicaSet":      {change: func(r *record) { r.last.replicaSets = 2 }, want: []string{"no rollout, no new pod"}},
		"a right is missing": {
			change: func(r *record) { r.last.audit.forbidden = map[string]int{"list pods": 1} },
			want:   []string{"no right missing"},
		},
		"the Deployment was written": {
			change: func(r *record) { r.last.audit.writes["patch deployments"] = 1 },
			want:   []string{"no write but its own"},
		},
		"a pod did not follow": {change: func(r *record) { r.phase("rise").changed = 2 }, want: []string{"resized up in place"}},
		"the calm never came":  {change: func(r *record) { r.phase("calm").done = -1 }, want: []string{"silent when nothing happens"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := aPlay()
			if tc.change != nil {
				tc.change(r)
			}
			var failed []string
			for _, c := range checksOf(r) {
				if !c.ok {
					failed = append(failed, c.name)
				}
				if len(c.details) == 0 {
					t.Errorf("check %q tells no details", c.name)
				}
			}
			if diff := cmp.Diff(tc.want, failed); diff != "" {
				t.Errorf("failed checks (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGoldens(t *testing.T) {
	r := aPlay()
	busy := aPlay()
	s := &busy.last
	s.pods[0].Containers[0].Resources = size(210, 230)
	s.pods[1].Resize.Deferred = true
	s.scaler.Status.Conditions[2] = metav1.Condition{
		Type: "Applied", Status: "False", Reason: "Deferred",
		Message: strings.Repeat("pod web-7c5d-2: its node has no room for the new size yet; ", 4),
	}
	for i := range eventLines + 2 {
		s.events = append(s.events, event{uid: types.UID(fmt.Sprint(i)), at: time.Duration(i*20) * time.Second, reason: "Decided", note: fmt.Sprintf("Raise: app cpu %dm->%dm", i, i+1)})
	}
	early := newRecord(scalerPiece())
	early.add(state{at: 2 * time.Second})
	cases := map[string][]string{
		"view":          render(busy, "1 of 3 pods to have requests above their usage in force", paint{}),
		"view-early":    render(early, "the scaler to find its Deployment", paint{}),
		"view-owned":    render(refused(), "the ScaledDeployment to say that the Deployment is not its own", paint{}),
		"summary-owned": renderSummary(checksOf(anOwnedPlay()), paint{}),
		"summary":       renderSummary(checksOf(r), paint{}),
		"summary-bad": renderSummary(checksOf(func() *record {
			r := aPlay()
			r.last.audit.forbidden = map[string]int{"patch pods/resize": 3, "list limitranges": 1}
			r.last.audit.failed = map[string]int{"update verticalscalers/status: 409": 2}
			r.phase("oom").done = -1
			return r
		}()), paint{}),
		"news": news(aState(40, quantity.Amounts{CPUMillis: 85, MemoryBytes: 110}, size(100, 128)), *s),
	}
	for name, got := range cases {
		t.Run(name, func(t *testing.T) {
			for _, line := range got {
				if n := utf8.RuneCountInString(line); n > width {
					t.Errorf("%d columns: %q", n, line)
				}
				if strings.TrimRight(line, " ") != line && !strings.HasPrefix(name, "view") {
					t.Errorf("blanks at the end: %q", line)
				}
			}
			path := filepath.Join("testdata", name+".txt")
			text := ""
			for _, line := range got {
				text += strings.TrimRight(line, " ") + "\n"
			}
			if *update {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), text); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		})
	}
}

// refused is a record of a play that has come so far.
func refused() *record {
	r := newRecord(ownedPiece())
	r.add(ownedState(60, "shop", 1, 3, steady, size(100, 128)))
	r.begin(r.piece.phases[6], r.last.at)
	r.add(refusedState(62))
	return r
}

func TestColoursAddNoColumns(t *testing.T) {
	plain := render(aPlay(), "nothing", paint{})
	colours := render(aPlay(), "nothing", paint{colours: true})
	strip := strings.NewReplacer("\x1b[1m", "", "\x1b[2m", "", "\x1b[31m", "", "\x1b[32m", "", "\x1b[0m", "")
	for i := range colours {
		colours[i] = strip.Replace(colours[i])
	}
	if diff := cmp.Diff(plain, colours); diff != "" {
		t.Errorf("(-plain +colours):\n%s", diff)
	}
}

func TestNoNewsIsNothing(t *testing.T) {
	s := aPlay().last
	if got := news(s, s); len(got) > 0 {
		t.Errorf("news() = %q, want none", got)
	}
}

func TestAuditCountsTheOperatorsRequests(t *testing.T) {
	line := func(user, verb, resource, sub string, code int, stage string, at string) string {
		return fmt.Sprintf(`{"stage":%q,"verb":%q,"user":{"username":%q},"objectRef":{"resource":%q,"subresource":%q},"responseStatus":{"code":%d},"stageTimestamp":%q}`,
			stage, verb, user, resource, sub, code, at) + "\n"
	}
	const done, noon = "ResponseComplete", "2026-01-01T12:00:00.000000Z"
	path := filepath.Join(t.TempDir(), "audit.log")
	log := &auditLog{path: path, user: operatorUser}
	if got, err := log.read(); err != nil || got.requests != 0 {
		t.Fatalf("read() = %+v, %v before there is a log", got, err)
	}
	first := line(operatorUser, "patch", "pods", "resize", 200, done, noon) +
		line("system:admin", "patch", "pods", "", 200, done, noon) +
		line(operatorUser, "watch", "pods", "", 200, "ResponseStarted", noon) +
		line(operatorUser, "watch", "pods", "", 403, done, noon) +
		line(operatorUser, "create", "selfsubjectaccessreviews", "", 201, done, "2026-01-01T12:00:10.000000Z") +
		line(operatorUser, "update", "leases", "", 200, done, "2026-01-01T12:00:09.000000Z")
	second := line(operatorUser, "update", "verticalscalers", "status", 409, done, "2026-01-01T12:00:03.000000Z") +
		line(operatorUser, "patch", "deployments", "", 403, done, "2026-01-01T12:00:02.000000Z")
	cutAt := len(second) / 3
	for _, part := range []string{first + second[:cutAt], second[cutAt:]} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(part); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := log.read(); err != nil {
			t.Fatal(err)
		}
	}
	got, err := log.read()
	if err != nil {
		t.Fatal(err)
	}
	want := audit{
		requests:  6,
		writes:    map[string]int{"patch pods/resize": 1},
		leases:    1,
		forbidden: map[string]int{"watch pods": 1, "patch deployments": 1},
		failed:    map[string]int{"update verticalscalers/status: 409": 1},
		lastWrite: time.Date(2026, 1, 1, 12, 0, 3, 0, time.UTC),
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(audit{})); diff != "" {
		t.Errorf("read() (-want +got):\n%s", diff)
	}
}

func TestOnlyTheRolesThatAreNeededAreInstalled(t *testing.T) {
	objects, err := stage.Decode([]byte(`# nothing but a comment
---
{kind: Namespace, metadata: {name: verticalscaler-system}}
---
{kind: ClusterRole, metadata: {name: verticalscaler-manager}}
---
{kind: ClusterRole, metadata: {name: verticalscaler-manager-rollout}}
---
{kind: ClusterRole, metadata: {name: verticalscaler-manager-scaled-deployment}}
---
{kind: ConfigMap, metadata: {name: verticalscaler-config}}
---
{kind: Service, metadata: {name: verticalscaler-metrics}}
---
{kind: Deployment, metadata: {name: verticalscaler-operator}}
`))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		piece piece
		want  []string
	}{
		"a scaler": {scalerPiece(), []string{"verticalscaler-system", "verticalscaler-manager"}},
		"a ScaledDeployment": {ownedPiece(), []string{
			"verticalscaler-system", "verticalscaler-manager", "verticalscaler-manager-scaled-deployment",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, object := range objects {
				if installed(object, tc.piece.without) {
					got = append(got, object.GetName())
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("installed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOurFilesSayWhatTheCodeSays(t *testing.T) {
	operator, err := config.Parse(operatorConfig)
	if err != nil {
		t.Fatalf("operator.yaml: %v", err)
	}
	usual := config.Default()
	for what, d := range map[string][2]metav1.Duration{
		"cpuHalfLife":    {usual.Recommendation.CPUHalfLife, operator.Recommendation.CPUHalfLife},
		"memoryWindow":   {usual.Recommendation.MemoryWindow, operator.Recommendation.MemoryWindow},
		"fullEvidence":   {usual.Recommendation.FullEvidence, operator.Recommendation.FullEvidence},
		"confidenceUnit": {usual.Recommendation.ConfidenceUnit, operator.Recommendation.ConfidenceUnit},
	} {
		if got := fmt.Sprintf("%gs", d[1].Seconds()/(d[0].Hours()/24)); got != dayHere {
			t.Errorf("by %s, a day is %s in operator.yaml, want %s", what, got, dayHere)
		}
	}
	var scaler v1beta1.VerticalScaler
	if err := yaml.UnmarshalStrict(scalerYAML, &scaler); err != nil {
		t.Fatalf("scaler.yaml: %v", err)
	}
	if got := time.Duration(*scaler.Spec.UpdatePolicy.CooldownSeconds) * time.Second; got != cooldown || scaler.Spec.DeploymentName != name {
		t.Errorf("scaler.yaml has cooldown %s and deploymentName %s, want %s and %s", got, scaler.Spec.DeploymentName, cooldown, name)
	}
	if got := time.Duration(*scaler.Spec.UpdatePolicy.VerificationSeconds) * time.Second; got != cooldown {
		t.Errorf("scaler.yaml watches for %s, and the demo says %s", got, cooldown)
	}
	var deployment struct {
		Spec struct {
			Replicas int
			Template corev1.PodTemplateSpec
		}
	}
	if err := yaml.Unmarshal(workloadYAML, &deployment); err != nil {
		t.Fatalf("workload.yaml: %v", err)
	}
	template := deployment.Spec.Template
	load := play()[0].load
	if deployment.Spec.Replicas != replicas || template.Spec.Containers[0].Name != container ||
		template.Annotations[cpuAnnotation] != quantity.FormatCPU(load.CPUMillis) ||
		template.Annotations[memoryAnnotation] != quantity.FormatMemory(load.MemoryBytes) {
		t.Errorf("workload.yaml does not begin as the play does: %+v", deployment)
	}
}

func TestParse(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "localcluster"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		args []string
		want string // part of the error
	}{
		"as make demo does":   {args: []string{"-cluster-dir=" + dir}},
		"once":                {args: []string{"-cluster-dir", dir, "-once", "-owned", "-keep", "-plain", "-dir=x"}},
		"no cluster":          {args: []string{"-once"}, want: `use "make demo"`},
		"a folder without it": {args: []string{"-cluster-dir=" + t.TempDir()}, want: "-cluster-dir has no cluster"},
		"an argument":         {args: []string{"-cluster-dir=" + dir, "once"}, want: `unexpected argument "once"`},
		"an unknown flag":     {args: []string{"-twice"}, want: "-twice"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tc.args, &bytes.Buffer{})
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("parse() = %v, want %q", err, tc.want)
			}
		})
	}
	var help bytes.Buffer
	if _, err := parse([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) || !strings.Contains(help.String(), "-cluster-dir") {
		t.Errorf("parse(-h) = %v, and prints %q", err, help.String())
	}
}

func TestText(t *testing.T) {
	cases := map[string]struct{ got, want string }{
		"cut":               {cut("größer", 4), "grö…"},
		"cut to nothing":    {cut("abc", 0), "…"},
		"fit":               {fit("ä", 3), "ä  "},
		"fit right":         {fitRight("ä", 3), "  ä"},
		"bar":               {bar(60, 100, 10), "██████····"},
		"bar above":         {bar(150, 100, 10), "█████████▶"},
		"bar of nothing":    {bar(1, 0, 3), "···"},
		"sparkline":         {sparkline([]int64{9, 0, 50, 100}, 100, 3), "▁▄█"},
		"sparkline of none": {sparkline(nil, 0, 3), ""},
		"wrap":              {strings.Join(wrap("one two three", 7), "|"), "one two|three"},
		"wrap a long word":  {strings.Join(wrap("a 123456789", 4), "|"), "a|123…"},
		"days":              {days(metav1.Duration{Duration: 96 * time.Hour}), "4 days"},
		"a day":             {days(metav1.Duration{Duration: 24 * time.Hour}), "a day"},
		"not days":          {days(metav1.Duration{Duration: 36 * time.Hour}), "36h0m0s"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.got != tc.want {
				t.Errorf("got %q, want %q", tc.got, tc.want)
			}
		})
	}
}
