// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"encoding/csv"
	"fmt"
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
const columnsOfCSV = "kind,namespace,name,deployment,owner,mode,profile,cpu_cores,cpu_target_cores,memory_bytes,memory_target_bytes," +
	"pods_at_size,running_pods,saved_cores,saved_bytes,available_pods,replicas,selected,scaled,promoted,without_usage,ready,reason,since,ends,changed"

// WriteCSV writes the overview as a table for a spreadsheet: a line for each scaler, ScaledDeployment and policy, with one
// value in each column, in base units. What is unknown, or another kind does not have, is empty.
func (o Overview) WriteCSV(w io.Writer, hasHeader bool) error {
	out := csv.NewWriter(w)
	columns := strings.Split(columnsOfCSV, ",")
	if hasHeader {
		_ = out.Write(columns) // Error returns it
	}
	write := func(state State, cells map[string]string) {
		cells["ready"], cells["reason"], cells["since"], cells["ends"] = string(state.Ready), state.Reason, timestamp(state.Since), string(state.Ends)
		line := make([]string, len(columns))
		for i, column := range columns {
			line[i] = inert(cells[column])
		}
		_ = out.Write(line)
	}
	for _, r := range o.Scalers {
		write(r.State, map[string]string{
			"kind": "VerticalScaler", "namespace": r.Namespace, "name": r.Name, "deployment": r.Deployment, "owner": r.ownedBy(), "mode": r.Mode, "profile": r.Profile,
			"cpu_cores": number(r.CPUCores), "cpu_target_cores": number(r.CPUTargetCores), "memory_bytes": number(r.MemoryBytes), "memory_target_bytes": number(r.MemoryTargetBytes),
			"pods_at_size": number(r.PodsAtSize), "running_pods": number(r.RunningPods), "saved_cores": number(r.SavedCores), "saved_bytes": number(r.SavedBytes),
			"changed": timestamp(r.Changed),
		})
	}
	for _, r := range o.ScaledDeployments {
		write(r.State, map[string]string{
			"kind": "ScaledDeployment", "namespace": r.Namespace, "name": r.Name, "deployment": r.Deployment,
			"available_pods": fmt.Sprint(r.AvailablePods), "replicas": fmt.Sprint(r.Replicas),
		})
	}
	for _, r := range o.Policies {
		write(r.State, map[string]string{
			"kind": r.Kind, "namespace": r.Namespace, "name": r.Name, "mode": r.Mode,
			"selected": fmt.Sprint(r.Selected), "scaled": fmt.Sprint(r.Scaled), "promoted": number(r.PromotedScalers), "without_usage": fmt.Sprint(r.WithoutUsage),
		})
	}
	out.Flush()
	return out.Error()
}

// inert is text of a status that a spreadsheet must not take for a formula.
func inert(s string) string {
	if _, err := strconv.ParseFloat(s, 64); err != nil && s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}

// number is a number without an exponent; empty for an unknown one.
func number(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}

func timestamp(t *metav1.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
