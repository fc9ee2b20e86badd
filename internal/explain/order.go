// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SortKeys are the keys that rows can be sorted by.
func SortKeys() []string {
	return []string{"name", "ready", "reason", "changed", "saved-cores", "saved-gib"}
}

// Sort sorts the scalers by a key: those that are not Ready, changed last, or save most come first, and unknown
// values last. Equal ones are sorted by namespace and name, and so are ScaledDeployments and policies. It keeps
// the order for a key that is not one of SortKeys.
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
	// Cluster policies come first.
	slices.SortStableFunc(o.Policies, func(a, b PolicyRow) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// readiness orders objects that need a user before the rest.
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

// columnsOfCSV are the columns of a table for a spreadsheet: the kind, and fields of rows.
const columnsOfCSV = "kind,namespace,name,deployment,owner,policy,mode,profile,cpuCores,cpuTargetCores,memoryBytes,memoryTargetBytes," +
	"podsAtSize,runningPods,savedCores,savedBytes,availablePods,replicas,selected,scaled,promoted,withoutUsage,ready,reason,since,ends,changed"

// CSV is the overview as a table for a spreadsheet: a line for each scaler, ScaledDeployment and policy, with one value in each
// column, in base units. Unknown values, and columns of other kinds, are empty.
func (o Overview) CSV(hasHeader bool) string {
	var b strings.Builder
	out, columns := csv.NewWriter(&b), strings.Split(columnsOfCSV, ",")
	if hasHeader {
		_ = out.Write(columns) // a builder never fails
	}
	write := func(kind string, row any) {
		fields, line := fieldsOf(row), make([]string, len(columns))
		line[0] = kind
		for i, column := range columns[1:] {
			if value := fields[column]; value != nil {
				line[i+1] = inert(fmt.Sprint(value))
			}
		}
		_ = out.Write(line)
	}
	for _, r := range o.Scalers {
		write("VerticalScaler", r)
	}
	for _, r := range o.ScaledDeployments {
		write("ScaledDeployment", r)
	}
	for _, r := range o.Policies {
		write(r.Kind, r)
	}
	out.Flush()
	return b.String()
}

// fieldsOf are the fields of a row by their names in JSON. Numbers have no exponent.
func fieldsOf(row any) (fields map[string]any) {
	text, err := json.Marshal(row)
	if err == nil {
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		err = decoder.Decode(&fields)
	}
	if err != nil {
		panic(err) // it holds only text and numbers
	}
	return fields
}

// inert is text of a status that a spreadsheet must not take for a formula.
func inert(s string) string {
	if _, err := strconv.ParseFloat(s, 64); err != nil && s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
