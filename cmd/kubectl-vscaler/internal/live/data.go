// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"encoding/json"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

// The types of this file are what "top -o json" and "-o yaml" write. Amounts are exact quantities, and
// an unknown amount is absent. docs/plugin.md describes them for users.

// scalerData is a Scaler.
type scalerData struct {
	Time       time.Time         `json:"time"`
	Scaler     explain.Row       `json:"scaler"`
	Findings   []explain.Finding `json:"findings"`
	Containers []Container       `json:"containers"`
	Pods       []Pod             `json:"pods"`
	Changes    []explain.Change  `json:"changes"`
	Missing    []string          `json:"missing,omitempty"`
}

// fleetData is a Fleet.
type fleetData struct {
	Time      time.Time   `json:"time"`
	Resources sumsData    `json:"resources"`
	Scalers   []fleetItem `json:"scalers"`
	Missing   []string    `json:"missing,omitempty"`
}

// fleetItem is a Row: what "status -o json" has of a scaler, and the sums.
type fleetItem struct {
	explain.Row `json:",inline"`
	Resources   sumsData `json:"resources"`
}

// sumsData are sums of all pods.
type sumsData struct {
	CPU    sumData `json:"cpu"`
	Memory sumData `json:"memory"`
}

// sumData is what pods use and request together. Above and Below are how much they request above and
// below the targets.
type sumData struct {
	Usage   *resource.Quantity `json:"usage,omitempty"`
	Request *resource.Quantity `json:"request,omitempty"`
	Above   *resource.Quantity `json:"above,omitempty"`
	Below   *resource.Quantity `json:"below,omitempty"`
}

// resourceData is a Resource. Usage, Request and Limit are over the pods; Target to MaxAllowed are for
// one pod.
type resourceData struct {
	Resource   string             `json:"resource"`
	Unmanaged  string             `json:"unmanaged,omitempty"`
	Usage      *spreadData        `json:"usage,omitempty"`
	Request    *spreadData        `json:"request,omitempty"`
	Limit      *spreadData        `json:"limit,omitempty"`
	Busiest    *shareData         `json:"busiest,omitempty"`
	Target     *resource.Quantity `json:"target,omitempty"`
	LowerBound *resource.Quantity `json:"lowerBound,omitempty"`
	UpperBound *resource.Quantity `json:"upperBound,omitempty"`
	Decided    *resource.Quantity `json:"decided,omitempty"`
	MinAllowed *resource.Quantity `json:"minAllowed,omitempty"`
	MaxAllowed *resource.Quantity `json:"maxAllowed,omitempty"`
	Above      *resource.Quantity `json:"above,omitempty"`
	Below      *resource.Quantity `json:"below,omitempty"`
}

// spreadData is an amount that Pods of the pods have.
type spreadData struct {
	Pods  int                `json:"pods"`
	Least *resource.Quantity `json:"least"`
	Most  *resource.Quantity `json:"most"`
	Total *resource.Quantity `json:"total"`
}

// shareData is the pod that uses most of its own request.
type shareData struct {
	Pod     string             `json:"pod"`
	Usage   *resource.Quantity `json:"usage"`
	Request *resource.Quantity `json:"request"`
	// Percent is the usage in percent of the request, with one digit after the point.
	Percent float64 `json:"percent"`
}

// podContainerData is a container of a pod. Requests and Limits are applied; Declared are the requests in
// the pod's spec, if they differ.
type podContainerData struct {
	Name     string           `json:"name"`
	Usage    *v1beta1.Amounts `json:"usage,omitempty"`
	Requests *v1beta1.Amounts `json:"requests,omitempty"`
	Limits   *v1beta1.Amounts `json:"limits,omitempty"`
	Declared *v1beta1.Amounts `json:"declaredRequests,omitempty"`
}

// Data is the scaler for programs.
func (s Scaler) Data() any {
	out := scalerData{
		Time: s.At, Scaler: s.State, Findings: s.Explanation.Findings, Changes: explain.ChangesOf(s.Explanation.History), Missing: s.Missing,
		Containers: append([]Container{}, s.Containers...), Pods: append([]Pod{}, s.Pods...),
	}
	if s.UsageMissing != "" {
		out.Missing = append([]string{"Usage: " + s.UsageMissing}, s.Missing...)
	}
	return out
}

// MarshalJSON writes exact quantities. What is not known is absent.
func (r Resource) MarshalJSON() ([]byte, error) {
	known := func(amount int64) *resource.Quantity { return known(r.Resource, amount) }
	out := resourceData{
		Resource: r.Resource, Unmanaged: r.Unmanaged,
		Usage: dataOfSpread(r.Resource, r.Used), Request: dataOfSpread(r.Resource, r.Request), Limit: dataOfSpread(r.Resource, r.Limit),
		Target: known(r.Target), LowerBound: known(r.LowerBound), UpperBound: known(r.UpperBound),
		Decided: known(r.Decided), MinAllowed: known(r.MinAllowed), MaxAllowed: known(r.MaxAllowed),
	}
	if b := r.Busiest; b.Request > 0 {
		out.Busiest = &shareData{
			Pod: b.Pod, Usage: exact(r.Resource, b.Used), Request: exact(r.Resource, b.Request), Percent: math.Round(10*b.Percent()) / 10,
		}
	}
	if r.HasTarget {
		out.Above, out.Below = exact(r.Resource, r.Over), exact(r.Resource, r.Short)
	}
	return json.Marshal(out)
}

func dataOfSpread(of string, s Spread) *spreadData {
	if s.Pods == 0 {
		return nil
	}
	return &spreadData{Pods: s.Pods, Least: exact(of, s.Least), Most: exact(of, s.Most), Total: exact(of, s.Total)}
}

// MarshalJSON writes exact quantities. What is not known or not set is absent.
func (c PodContainer) MarshalJSON() ([]byte, error) {
	out := podContainerData{Name: c.Name, Requests: dataOfAmounts(c.Applied.Requests), Limits: dataOfAmounts(c.Applied.Limits)}
	if c.Used != nil {
		out.Usage = &v1beta1.Amounts{CPU: exact(recommend.CPU, c.Used.CPUMillis), Memory: exact(recommend.Memory, c.Used.MemoryBytes)}
	}
	if c.Declared.Requests != c.Applied.Requests {
		out.Declared = dataOfAmounts(c.Declared.Requests)
	}
	return json.Marshal(out)
}

// dataOfAmounts leaves out what is not set.
func dataOfAmounts(a quantity.Amounts) *v1beta1.Amounts {
	if a == (quantity.Amounts{}) {
		return nil
	}
	return &v1beta1.Amounts{CPU: known(recommend.CPU, a.CPUMillis), Memory: known(recommend.Memory, a.MemoryBytes)}
}

// Data is the fleet for programs.
func (f Fleet) Data() any {
	cpu, memory := f.Total()
	out := fleetData{Time: f.At, Resources: sumsData{dataOfSum(cpu), dataOfSum(memory)}, Scalers: []fleetItem{}, Missing: f.Missing}
	for _, r := range f.Rows {
		out.Scalers = append(out.Scalers, fleetItem{Row: r.Row, Resources: sumsData{dataOfSum(r.CPU), dataOfSum(r.Memory)}})
	}
	return out
}

func dataOfSum(r Resource) (out sumData) {
	if r.Used.Pods > 0 {
		out.Usage = exact(r.Resource, r.Used.Total)
	}
	if r.Request.Pods > 0 {
		out.Request = exact(r.Resource, r.Request.Total)
	}
	if r.HasTarget {
		out.Above, out.Below = exact(r.Resource, r.Over), exact(r.Resource, r.Short)
	}
	return out
}

// exact is an amount as a quantity, such as "310m" or "640Mi".
func exact(of string, amount int64) *resource.Quantity {
	return ptr.To(explain.QuantityOf(of, amount))
}

// known is nil for 0, which stands for none.
func known(of string, amount int64) *resource.Quantity {
	if amount == 0 {
		return nil
	}
	return exact(of, amount)
}
