// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"encoding/csv"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SortKeys are the keys that rows can be sorted by.
func SortKeys() []string {
	return []string{"name", "ready", "reason", "changed", "saved-cores", "saved-gib"}
}

// Sort sorts the scalers by a key: what is not Ready, changed last, or saves most comes first, and what
// is unknown comes last. Equal ones are sorted by namespace and name, and so are ScaledDeployments and policies.
// It keeps the order for a key that is not one of SortKeys.
func (o *Overview) Sort(key string) {
	compare, ok := map[string]func(a, b Row) int{
		"name":   func(Row, Row) int { return 0 },
		"ready":  func(a, b Row) int { return cmp.Compare(readiness(a.Ready), readiness(b.Ready)) },
		"reason": func(a, b Row) int { return cmp.Compare(a.Reason, b.Reason) },
		"changed": func(a, b Row) int {
			return descending(a.Changed, b.Changed, func(t metav1.Time) int64 { return t.Unix() })
		},
		"saved-cores": func(a, b Row) int {
			return descending(a.Saved, b.Saved, func(s Saved) float64 { return s.Cores })
		},
		"saved-gib": func(a, b Row) int {
			return descending(a.Saved, b.Saved, func(s Saved) float64 { return s.GiB })
		},
	}[key]
	if !ok {
		return
	}
	slices.SortStableFunc(o.Scalers, func(a, b Row) int {
		return cmp.Or(compare(a, b), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortStableFunc(o.ScaledDeployments, func(a, b OwnedRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	// Those of the cluster come first.
	slices.SortStableFunc(o.Policies, func(a, b PolicyRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// readiness orders what needs a user before the rest.
func readiness(status metav1.ConditionStatus) int {
	return slices.Index([]metav1.ConditionStatus{metav1.ConditionFalse, metav1.ConditionUnknown, metav1.ConditionTrue}, status)
}

// descending compares two values, the larger first and unknown ones last.
func descending[T any, V cmp.Ordered](a, b *T, value func(T) V) int {
	switch {
	case a == b:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return cmp.Compare(value(*b), value(*a))
}

// columnsOfCSV are the columns of a table for a spreadsheet. Times are in RFC 3339.
const columnsOfCSV = "kind,namespace,name,deployment,owner,mode,profile,cpu,memory,pods,ready,reason,changed,saved_cores,saved_gib"

// WriteCSV writes the overview as a table for a spreadsheet: a line for each scaler,
// ScaledDeployment and policy. The pods of a policy are its Deployments. What is unknown is empty.
func (o Overview) WriteCSV(w io.Writer, hasHeader bool) error {
	out := csv.NewWriter(w)
	if hasHeader {
		_ = out.Write(strings.Split(columnsOfCSV, ",")) // Error returns it
	}
	for _, r := range o.Scalers {
		changed, cores, gib := "", "", ""
		if r.Changed != nil {
			changed = r.Changed.UTC().Format(time.RFC3339)
		}
		if r.Saved != nil {
			cores, gib = number(r.Saved.Cores), number(r.Saved.GiB)
		}
		_ = out.Write([]string{
			"VerticalScaler", r.Namespace, r.Name, r.Deployment, r.ownedBy(), inert(r.Mode), inert(r.Profile), inert(r.CPU), inert(r.Memory), inert(r.Pods),
			string(r.Ready), inert(r.Reason), changed, cores, gib,
		})
	}
	for _, r := range o.ScaledDeployments {
		_ = out.Write([]string{
			"ScaledDeployment", r.Namespace, r.Name, r.Deployment, "", "", "", "", "", r.Available, string(r.Ready), inert(r.Reason), "", "", "",
		})
	}
	for _, r := range o.Policies {
		_ = out.Write([]string{
			r.Kind, r.Namespace, r.Name, "", "", inert(r.Mode), "", "", "", inert(r.Deployments), string(r.Ready), inert(r.Reason), "", "", "",
		})
	}
	out.Flush()
	return out.Error()
}

// inert is text of a status that a spreadsheet must not take for a formula.
func inert(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
