// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

func TestSort(t *testing.T) {
	rows := []explain.Row{
		{Namespace: "b", Name: "x", State: explain.State{Ready: "True", Reason: "Applied"}, Saved: &explain.Saved{Cores: -1, GiB: 2}, Changed: ptr.To(ago(time.Hour))},
		{Namespace: "a", Name: "x", State: explain.State{Ready: "Unknown", Reason: "NotObserved"}},
		{Namespace: "a", Name: "z", State: explain.State{Ready: "False", Reason: "QoSChange"}, Saved: &explain.Saved{Cores: 3}, Changed: ptr.To(ago(time.Minute))},
		{Namespace: "a", Name: "y", State: explain.State{Ready: "True", Reason: "Applied"}, Saved: &explain.Saved{Cores: 3, GiB: 1}},
	}
	for key, want := range map[string]string{
		"": "b/x a/x a/z a/y", "name": "a/x a/y a/z b/x", "ready": "a/z a/x a/y b/x", "reason": "a/y b/x a/x a/z",
		"changed": "a/z b/x a/x a/y", "saved-cores": "a/y a/z b/x a/x", "saved-gib": "b/x a/y a/z a/x",
	} {
		o := explain.Overview{Scalers: append([]explain.Row{}, rows...)}
		o.Sort(key)
		var got []string
		for _, r := range o.Scalers {
			got = append(got, r.Namespace+"/"+r.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("by %q: %v, want %s", key, got, want)
		}
	}
}

// A program reads a number in each column of numbers, in base units, and a spreadsheet must not evaluate text of a status.
func TestCSVHasNumbersAndNoFormulas(t *testing.T) {
	summary := func(cpu, memory, pods string) explain.Row {
		return explain.RowOf(checkout(func(e *explain.Evidence) {
			e.Scaler.Status.Summary = &v1beta1.Summary{CPU: cpu, Memory: memory, Pods: pods}
		}))
	}
	o := explain.Overview{
		Scalers: []explain.Row{
			summary("500m->310m", "512Mi (640Mi)", "4/6"), summary("none->16.5", "16Gi", "0/0"), summary("", "", ""),
			{Mode: "=HYPERLINK(1)", Profile: "a,\"b\"", State: explain.State{Reason: "@x"}},
		},
		ScaledDeployments: []explain.OwnedRow{{Name: "api", AvailablePods: 2, Replicas: 3}},
		Policies:          []explain.PolicyRow{explain.PolicyRowOf(policyCases()["policy-promoting"].Policy, nil, noon)},
	}
	records, err := csv.NewReader(strings.NewReader(o.CSV(true))).ReadAll()
	if err != nil || len(records) != 7 {
		t.Fatalf("%v: %v", records, err)
	}
	numbers := func(line int) string {
		var all []string
		for i, column := range records[0] {
			isText := slices.Contains(strings.Fields("kind namespace name deployment owner policy mode profile ready reason since ends changed"), column)
			if text := records[line][i]; !isText && text != "" {
				n, err := strconv.ParseFloat(text, 64)
				if err != nil {
					t.Errorf("%s is no number: %v", column, err)
				}
				all = append(all, fmt.Sprintf("%s=%.3f", column, n))
			}
		}
		return strings.Join(all, " ")
	}
	for line, want := range []string{
		1: "cpuCores=0.500 cpuTargetCores=0.310 memoryBytes=536870912.000 memoryTargetBytes=671088640.000 podsAtSize=4.000 runningPods=6.000 savedCores=1.080 savedBytes=2281701376.000",
		2: "cpuTargetCores=16.500 memoryBytes=17179869184.000 podsAtSize=0.000 runningPods=0.000 savedCores=0.000 savedBytes=0.000",
		3: "", 4: "", 5: "availablePods=2.000 replicas=3.000", 6: "selected=500.000 scaled=480.000 promoted=24.000 withoutUsage=0.000",
	} {
		if line > 0 && numbers(line) != want {
			t.Errorf("line %d: %s, want %s", line, numbers(line), want)
		}
	}
	if r := records[4]; r[6] != "'=HYPERLINK(1)" || r[7] != `a,"b"` || r[23] != "'@x" {
		t.Errorf("%q", r)
	}
}

// A table fits into a terminal, and its states are not cut.
func TestTablesFitInto80Columns(t *testing.T) {
	row := explain.RowOf(cases()["metrics-unavailable"])
	row.Namespace, row.Name, row.Deployment, row.Reason = strings.Repeat("n", 40), strings.Repeat("s", 60), strings.Repeat("d", 60), "ProgressDeadlineExceeded"
	policy := explain.PolicyRowOf(policyCases()["policy-promoting"].Policy, nil, noon)
	policy.WithoutUsage, policy.Scaled = 140, 200
	o := explain.Overview{Scalers: []explain.Row{row}, ScaledDeployments: []explain.OwnedRow{{Name: row.Name, Deployment: row.Name, State: row.State}}, Policies: []explain.PolicyRow{policy}}
	out := o.Table(noon, explain.Columns{Namespace: true, Width: 80})
	for line := range strings.Lines(out) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 80 {
			t.Errorf("too wide: %s", line)
		}
	}
	assert.Contains(t, "table", out, "sss…", "False   ProgressDeadlineExceeded\n", "True    PromotionInProgress (140 of 200 without usage)\n")
}

// A graver reason does not hide that changes are stopped.
func TestASuspendedScalerIsMarked(t *testing.T) {
	e := cases()["metrics-unavailable"]
	e.Scaler.Spec.Suspend = true
	if out := (explain.Overview{Scalers: []explain.Row{explain.RowOf(e)}}).Table(noon, explain.Columns{}); !strings.Contains(out, "InPlace, suspended ") {
		t.Error(out)
	}
}

// Savings of nothing are 0, without a sign.
func TestNothingSavedHasNoSign(t *testing.T) {
	if data, err := json.Marshal(explain.Saved{Cores: explain.Rounded(-0.0004)}); err != nil || strings.Contains(string(data), ":-0") {
		t.Errorf("%v: a negative zero: %s", err, data)
	}
}

// A later overview shows only changes, aligned with the rest. Passing time does not count.
func TestLaterTablesHaveChanges(t *testing.T) {
	row := func(name, reason, advice string) explain.Row {
		return explain.Row{Name: name, Deployment: "d", State: explain.State{Reason: reason, Advice: advice}}
	}
	last := explain.Overview{Scalers: []explain.Row{row("a-long-name", "WithinBounds", "Wait: app cpu is lowered in about 2h20m"), row("web", "Resizing", "Wait")}}
	now := explain.Overview{Scalers: []explain.Row{row("a-long-name", "WithinBounds", "Wait: app cpu is lowered in about 2h10m"), row("web", "Applied", "")}}
	const want = "web           d            -      -     -        -      -       Applied\n"
	if got := now.Table(noon, explain.Columns{Bare: true, Since: &last}); got != want {
		t.Errorf("got\n%s", got)
	}
}
