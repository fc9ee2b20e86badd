// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/golden"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

const mebi = 1 << 20

func amounts(cpuMillis, mebibytes int64) quantity.Amounts {
	return quantity.Amounts{CPUMillis: cpuMillis, MemoryBytes: mebibytes * mebi}
}

func pod(name string, cpuMillis, mebibytes, usedMillis, usedMebibytes int64) snapshot.Pod {
	size := workload.Resources{Requests: amounts(cpuMillis, mebibytes), Limits: amounts(0, 2*mebibytes)}
	used := amounts(usedMillis, usedMebibytes)
	p := snapshot.Pod{Name: name, Ready: true, Containers: []snapshot.PodContainer{{Name: "app", Declared: size, Applied: size}}}
	if usedMillis > 0 {
		p.Containers[0].Used = &used
	}
	return p
}

// verifying is a scaler in the middle of lowering its pods. One pod is silent, and one uses more
// than it requests.
func verifying() (snapshot.Scaler, *snapshot.Record) {
	ago := func(d time.Duration) *metav1.Time { at := metav1.NewTime(now.Add(-d)); return &at }
	reason := func(code string) explain.Reason { r, _ := explain.ReasonFor(code); return r }
	s := snapshot.Scaler{
		At: now,
		Pods: []snapshot.Pod{
			pod("checkout-7d5f8b6c4-2xkq9", 121, 342, 118, 300), pod("checkout-7d5f8b6c4-8zr5v", 500, 512, 90, 301),
			pod("checkout-7d5f8b6c4-hjw2m", 500, 512, 0, 0), pod("checkout-7d5f8b6c4-tq7lb", 100, 512, 115, 290),
		},
		Containers: []snapshot.Container{{
			Name: "app", ObservedSeconds: 26 * 3600,
			Resources: []snapshot.Resource{
				{
					Resource: "cpu", Used: snapshot.Spread{Pods: 3, Least: 90, Most: 118}, Request: snapshot.Spread{Pods: 4, Least: 100, Most: 500},
					Busiest: snapshot.Share{Pod: "checkout-7d5f8b6c4-tq7lb", Used: 115, Request: 100},
					Target:  121, LowerBound: 110, UpperBound: 190, Decided: 121, HasTarget: true, Over: 758, Short: 21,
				},
				{
					Resource: "memory", Used: snapshot.Spread{Pods: 3, Least: 290 * mebi, Most: 301 * mebi}, Request: snapshot.Spread{Pods: 4, Least: 342 * mebi, Most: 512 * mebi},
					Limit: snapshot.Spread{Pods: 4, Least: 684 * mebi, Most: 1024 * mebi}, Busiest: snapshot.Share{Pod: "checkout-7d5f8b6c4-2xkq9", Used: 300 * mebi, Request: 342 * mebi},
					Target: 342 * mebi, LowerBound: 310 * mebi, UpperBound: 400 * mebi, Decided: 342 * mebi, MaxAllowed: 1024 * mebi,
				},
			},
		}},
		Explanation: explain.Explanation{
			Row: explain.Row{
				Namespace: "shop", Name: "checkout", Deployment: "checkout", Mode: "InPlace", Profile: "Balanced", Pods: "1/4",
				State: explain.State{Ready: "True", Reason: v1beta1.ReasonVerifying, Ends: explain.ByItself, Since: ago(12 * time.Second)},
			},
			Findings: []explain.Finding{
				{Reason: reason(v1beta1.ReasonVerifying), Message: "1 pod was changed; verified for 12s of 2m0s", Since: ago(12 * time.Second)},
				{Reason: reason(v1beta1.ReasonHPAConflict), Message: "HorizontalPodAutoscaler checkout scales on memory, so memory keeps its size"},
			},
			History: []v1beta1.HistoryEntry{
				{Time: *ago(20 * time.Second), Message: "ScaleDown: app cpu 500m->121m, memory 512Mi->342Mi"},
				{Time: *ago(26 * time.Hour), Message: "OOMKill: app memory 256Mi->512Mi"},
			},
		},
	}
	s.Pods[1].Containers[0].Declared.Requests = amounts(121, 342)
	s.Pods[3].Ready, s.Pods[3].Resize, s.Pods[3].OOMKills = false, "Deferred", 2
	record := &snapshot.Record{Keep: time.Hour}
	var past []snapshot.Point
	for i := range 60 {
		p := snapshot.Point{At: now.Add(time.Duration(i-60) * 10 * time.Second), Used: int64(60 + i), Request: 500, Limit: snapshot.Unknown}
		if i < 15 {
			p.Request = 250
		}
		if i >= 20 && i < 35 {
			p.Used = snapshot.Unknown // a gap
		}
		past = append(past, p)
	}
	record.Fill("app", "cpu", past)
	return s, record
}

// fleet has names of all lengths and hundreds of scalers.
func fleet(n int) snapshot.Table {
	f := snapshot.Table{At: now}
	for i := range n {
		r := snapshot.Row{Row: explain.Row{Namespace: "shop", Name: fmt.Sprintf("svc-%03d", i), State: explain.State{Ready: "True", Reason: v1beta1.ReasonApplied, Ends: explain.Fine}, Pods: "3/3"}}
		r.CPU = snapshot.Resource{Resource: "cpu", HasTarget: true, Used: snapshot.Spread{Pods: 3, Total: 300}, Request: snapshot.Spread{Pods: 3, Total: 600}}
		r.Memory = snapshot.Resource{Resource: "memory", HasTarget: true, Used: snapshot.Spread{Pods: 3, Total: 300 * mebi}, Request: snapshot.Spread{Pods: 3, Total: 600 * mebi}}
		switch i % 4 {
		case 1:
			r.CPU.Over, r.Memory.Over = 250, 90*mebi
		case 2:
			r.Name, r.Ready, r.Reason, r.Ends = strings.Repeat("very-long-", 5)+"name", "False", v1beta1.ReasonQoSChange, explain.ByUser
			r.CPU.Short, r.CPU.Over = 120, 40
		case 3:
			r.Row.Pods, r.Reason, r.Ends = "", v1beta1.ReasonLearning, explain.ByItself
			r.CPU, r.Memory = snapshot.Resource{Resource: "cpu"}, snapshot.Resource{Resource: "memory"}
		}
		f.Rows = append(f.Rows, r)
	}
	return f
}

// Each golden file is the output on a terminal of that width, without colors.
func TestGoldenViews(t *testing.T) {
	s, record := verifying()
	waiting := snapshot.Scaler{At: now, Explanation: explain.Explanation{Row: explain.Row{Namespace: "shop", Name: "web", Deployment: "web", Mode: "InPlace", Profile: "Balanced", State: explain.State{Reason: "NotObserved", Ends: explain.ByUser}}}, UsageMissing: "metrics.k8s.io is not served: is metrics-server installed?"}
	few, _ := Table(fleet(8), 120, true)
	named := fleet(4)
	for i, name := range []string{"api", "checkout", "sessions", "batch"} {
		named.Rows[i].Name = name
	}
	named.Sort(snapshot.ByGap)
	some, _ := Table(named, 110, true)
	narrow, _ := Table(fleet(8), 60, true)
	for name, lines := range map[string][]string{
		"scaler-100": Scaler(s, record, 100), "scaler-60": Scaler(s, record, 60), "scaler-nothing": Scaler(waiting, &snapshot.Record{}, 80),
		"fleet-120": few, "fleet-110": some, "fleet-60": narrow,
	} {
		got := ansi.Strip(strings.Join(lines, "\n")) + "\n"
		golden.Compare(t, name+".txt", got)
	}
}

// The samples in the documentation are views.
func TestTheDocumentationShowsGoldenViews(t *testing.T) {
	docs, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "docs", "plugin.md"))
	must.Succeed(t, err)
	for _, name := range []string{"scaler-100", "fleet-110"} {
		golden, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		must.Succeed(t, err)
		if !strings.Contains(string(docs), "```\n"+string(golden)+"```\n") {
			t.Errorf("docs/plugin.md does not show testdata/%s.txt", name)
		}
	}
}

func TestNamesGetTheRoomThatIsLeft(t *testing.T) {
	columns := []explain.Column{{Name: "NAME", ShrinksTo: 5, Cells: []string{"abcdefghijklmnop"}}, {Name: "A", Cells: []string{"12345678"}}, {Name: "B", Rank: 1, Cells: []string{"12345678"}}}
	for width, want := range map[int]string{40: "abcdefghijklmnop  12345678  12345678", 34: "abcdefghijklm…  12345678  12345678", 25: "abcd…  12345678  12345678", 24: "abcdefghijklm…  12345678"} {
		if got := explain.Table(explain.Fitting(columns, width, gapOfColumns), gapOfColumns)[1]; got != want {
			t.Errorf("width %d: %q, want %q", width, got, want)
		}
	}
}

func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	s, record := verifying()
	for width := leastWidth; width <= 250; width++ {
		lines, rows := Table(fleet(8), width, true)
		if !strings.Contains(ansi.Strip(lines[rows]), "svc-000") && width > 40 {
			t.Errorf("width %d: line %d is not the first scaler: %q", width, rows, lines[rows])
		}
		for _, line := range append(lines, Scaler(s, record, width)...) {
			if got := ansi.StringWidth(line); got > width {
				t.Errorf("width %d: %d columns: %q", width, got, ansi.Strip(line))
			}
		}
	}
}

func TestTextOfObjectsDoesNotControlTheTerminal(t *testing.T) {
	s, record := verifying()
	const evil = "\x1b]0;x\x07\x1b[2Jevil\u202e"
	s.Explanation.Name, s.Explanation.Reason, s.Explanation.History[0].Message, s.Missing = evil, evil, evil, []string{evil}
	s.Pods[0].Name, s.Explanation.Deployment, s.UsageMissing = evil, evil, evil
	s.Containers[0].Resources[0].Unmanaged = evil
	f := fleet(1)
	f.Rows[0].Name, f.Missing = evil, []string{evil}
	lines, _ := Table(f, 100, false)
	for _, line := range append(lines, Scaler(s, record, 100)...) {
		for _, sequence := range []string{"\x1b]", "\x1b[2J", "\x07", "\u202e"} {
			if strings.Contains(line, sequence) {
				t.Errorf("%q is in %q", sequence, line)
			}
		}
	}
}

func TestAStripShowsGapsAndWhatIsAboveTheRequest(t *testing.T) {
	got := strip([]int64{0, 50, 100, snapshot.Unknown, 100}, 100, func(i int) bool { return i == 4 })
	if want := "▁▅█ " + bad.Render("█"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := bar(150, 4), bad.Render("████")+faint.Render(""); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := bar(50, 4), "██"+faint.Render("··"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	s, _ := verifying()
	record := &snapshot.Record{Keep: time.Hour}
	record.Fill("app", "cpu", []snapshot.Point{{At: now.Add(-time.Second), Used: 120, Request: 100, Limit: snapshot.Unknown}, {At: now, Used: 120, Request: 100, Limit: snapshot.Unknown}})
	if text := strings.Join(Scaler(s, record, 100), "\n"); !strings.Contains(text, bad.Render("█")+bad.Render("█")) {
		t.Errorf("usage above the request is not red: %q", text)
	}
	columns := []snapshot.Point{{At: now, Used: 7}, {At: now.Add(carriedFor), Used: snapshot.Unknown}, {At: now.Add(carriedFor + 1), Used: snapshot.Unknown}}
	if got := carried(columns); got[1].Used != 7 || got[2].Used != snapshot.Unknown {
		t.Errorf("a usage is drawn for %s: %+v", carriedFor, got)
	}
}

func TestWordsAreNotBroken(t *testing.T) {
	got := wrapped("memory 512Mi->342Mi aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa end", 14)
	assert.Equal(t, "lines", []string{"memory", "512Mi->342Mi", "aaaaaaaaaaaaaa", "aaaaaaaaaaaaaa", "aa", "end"}, got)
}

func TestOnlyTheBusiestPodsAreListed(t *testing.T) {
	s, record := verifying()
	for i := range 300 {
		s.Pods = append(s.Pods, pod(fmt.Sprintf("idle-%d", i), 500, 512, 1, 1))
	}
	text := ansi.Strip(strings.Join(Scaler(s, record, 100), "\n"))
	if !strings.Contains(text, "and 294 more pods") || strings.Count(text, "idle-") != 7 {
		t.Errorf("want the 3 busy pods, 7 others, and their number:\n%s", text)
	}
}
