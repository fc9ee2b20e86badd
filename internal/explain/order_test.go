// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
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

// A spreadsheet must not calculate what a status says.
func TestCSVHasNoFormulas(t *testing.T) {
	var out bytes.Buffer
	o := explain.Overview{Scalers: []explain.Row{{Name: "web", CPU: "=HYPERLINK(1)", Memory: "a,\"b\"", Pods: "@x", Saved: &explain.Saved{Cores: -0.5}}}}
	if err := o.WriteCSV(&out, false); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(records) != 1 {
		t.Fatalf("%v: %v", records, err)
	}
	if r := records[0]; r[7] != "'=HYPERLINK(1)" || r[8] != `a,"b"` || r[9] != "'@x" || r[13] != "-0.5" {
		t.Errorf("%q", records[0])
	}
}

// Nothing saved is 0, whatever its sign.
func TestNothingSavedHasNoSign(t *testing.T) {
	if data, err := json.Marshal(explain.Saved{Cores: explain.Rounded(-0.0004)}); err != nil || strings.Contains(string(data), ":-0") {
		t.Errorf("%v: a negative zero: %s", err, data)
	}
}

// Lines that follow align with those before.
func TestLaterTablesAlign(t *testing.T) {
	var out bytes.Buffer
	columns := explain.Columns{Widths: explain.Widths{}}
	for i, name := range []string{"a-long-name", "web"} {
		columns.Bare = i > 0
		o := explain.Overview{Scalers: []explain.Row{{Name: name, Deployment: "d"}}, ScaledDeployments: []explain.OwnedRow{{Name: name + "s", Deployment: "d"}}}
		if err := o.WriteTable(&out, noon, columns); err != nil {
			t.Fatal(err)
		}
	}
	const want = `NAME          DEPLOYMENT   MODE   CPU   MEMORY   PODS   READY   REASON
a-long-name   d            -      -     -        -      -       -

SCALEDDEPLOYMENT   DEPLOYMENT   AVAILABLE   READY   REASON   SIZED
a-long-names       d            -           -       -        -
web           d            -      -     -        -      -       -

webs               d            -           -       -        -
`
	if out.String() != want {
		t.Errorf("got\n%s", out.String())
	}
}
