// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/json"
	"math"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

// fields are an object of what "top -o json" and "-o yaml" write. Amounts are in cores or bytes, and an unknown amount is
// absent. docs/plugin.md describes them for users.
type fields map[string]any

// amount adds an amount, in cores or bytes.
func (f fields) amount(name, resource string, amount int64) {
	f[name] = explain.NumberOf(resource, amount)
}

// amounts adds the amounts that are set.
func (f fields) amounts(name string, a quantity.Amounts) {
	out := fields{}
	for _, resource := range Resources {
		if amount := explain.AmountOf(resource, a); amount != 0 {
			out.amount(resource, resource, amount)
		}
	}
	if len(out) > 0 {
		f[name] = out
	}
}

// gaps adds how much pods request above and below the targets.
func (f fields) gaps(r Resource) {
	if r.HasTarget {
		f.amount("above", r.Resource, r.Over)
		f.amount("below", r.Resource, r.Short)
	}
}

// Data is the scaler for programs.
func (s Scaler) Data() any {
	out := fields{
		"time": s.At, "scaler": s.Explanation.Row, "findings": s.Explanation.Findings, "changes": explain.ChangesOf(s.Explanation.History),
		"containers": append([]Container{}, s.Containers...), "pods": append([]Pod{}, s.Pods...),
	}
	missing := s.Missing
	if s.UsageMissing != "" {
		missing = append([]string{"Usage: " + s.UsageMissing}, missing...)
	}
	if len(missing) > 0 {
		out["missing"] = missing
	}
	return out
}

// MarshalJSON writes amounts in cores or bytes.
func (r Resource) MarshalJSON() ([]byte, error) {
	out := fields{"resource": r.Resource}
	if r.Unmanaged != "" {
		out["unmanaged"] = r.Unmanaged
	}
	for name, s := range map[string]Spread{"usage": r.Used, "request": r.Request, "limit": r.Limit} {
		if s.Pods == 0 {
			continue
		}
		spread := fields{"pods": s.Pods}
		spread.amount("least", r.Resource, s.Least)
		spread.amount("most", r.Resource, s.Most)
		spread.amount("total", r.Resource, s.Total)
		out[name] = spread
	}
	if b := r.Busiest; b.Request > 0 {
		busiest := fields{"pod": b.Pod, "percent": math.Round(10*b.Percent()) / 10}
		busiest.amount("usage", r.Resource, b.Used)
		busiest.amount("request", r.Resource, b.Request)
		out["busiest"] = busiest
	}
	for name, amount := range map[string]int64{
		"target": r.Target, "lowerBound": r.LowerBound, "upperBound": r.UpperBound, "decided": r.Decided, "minAllowed": r.MinAllowed, "maxAllowed": r.MaxAllowed,
	} {
		if amount != 0 {
			out.amount(name, r.Resource, amount)
		}
	}
	out.gaps(r)
	return json.Marshal(out)
}

// MarshalJSON writes amounts in cores or bytes.
func (c PodContainer) MarshalJSON() ([]byte, error) {
	out := fields{"name": c.Name}
	out.amounts("requests", c.Applied.Requests)
	out.amounts("limits", c.Applied.Limits)
	if c.Used != nil {
		used := fields{}
		used.amount(recommend.CPU, recommend.CPU, c.Used.CPUMillis)
		used.amount(recommend.Memory, recommend.Memory, c.Used.MemoryBytes)
		out["usage"] = used
	}
	if c.Declared.Requests != c.Applied.Requests {
		out.amounts("declaredRequests", c.Declared.Requests)
	}
	return json.Marshal(out)
}

// Data is the fleet for programs.
func (t Table) Data() any {
	// item is a scaler as in "status -o json", with the sums.
	type item struct {
		explain.Row `json:",inline"`
		Resources   fields `json:"resources"`
	}
	items := []item{}
	for _, r := range t.Rows {
		items = append(items, item{r.Row, sums(r.CPU, r.Memory)})
	}
	out := fields{
		"time": t.At, "resources": sums(t.Total()), "scalers": items,
		"scaledDeployments": append([]explain.OwnedRow{}, t.Owned...), "policies": append([]explain.PolicyRow{}, t.Policies...),
	}
	if len(t.Missing) > 0 {
		out["missing"] = t.Missing
	}
	return out
}

// sums are the total usage and requests of all pods.
func sums(all ...Resource) fields {
	out := fields{}
	for _, r := range all {
		of := fields{}
		if r.Used.Pods > 0 {
			of.amount("usage", r.Resource, r.Used.Total)
		}
		if r.Request.Pods > 0 {
			of.amount("request", r.Resource, r.Request.Total)
		}
		of.gaps(r)
		out[r.Resource] = of
	}
	return out
}
