// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"math"
	"time"

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
	Containers []containerData   `json:"containers"`
	Pods       []podData         `json:"pods"`
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
	Usage   string `json:"usage,omitempty"`
	Request string `json:"request,omitempty"`
	Above   string `json:"above,omitempty"`
	Below   string `json:"below,omitempty"`
}

type containerData struct {
	Name            string         `json:"name"`
	ObservedSeconds int64          `json:"observedSeconds,omitempty"`
	Resources       []resourceData `json:"resources"`
}

// resourceData is a Resource. Usage, Request and Limit are over the pods; Target to MaxAllowed are for
// one pod.
type resourceData struct {
	Resource   string      `json:"resource"`
	Unmanaged  string      `json:"unmanaged,omitempty"`
	Usage      *spreadData `json:"usage,omitempty"`
	Request    *spreadData `json:"request,omitempty"`
	Limit      *spreadData `json:"limit,omitempty"`
	Busiest    *shareData  `json:"busiest,omitempty"`
	Target     string      `json:"target,omitempty"`
	LowerBound string      `json:"lowerBound,omitempty"`
	UpperBound string      `json:"upperBound,omitempty"`
	Decided    string      `json:"decided,omitempty"`
	MinAllowed string      `json:"minAllowed,omitempty"`
	MaxAllowed string      `json:"maxAllowed,omitempty"`
	Above      string      `json:"above,omitempty"`
	Below      string      `json:"below,omitempty"`
}

// spreadData is an amount that Pods of the pods have.
type spreadData struct {
	Pods  int    `json:"pods"`
	Least string `json:"least"`
	Most  string `json:"most"`
	Total string `json:"total"`
}

// shareData is the pod that uses most of its own request.
type shareData struct {
	Pod     string `json:"pod"`
	Usage   string `json:"usage"`
	Request string `json:"request"`
	// Percent is the usage in percent of the request, with one digit after the point.
	Percent float64 `json:"percent"`
}

type podData struct {
	Name       string             `json:"name"`
	Ready      bool               `json:"ready"`
	Resize     string             `json:"resize,omitempty"`
	OOMKills   int                `json:"oomKills"`
	Containers []podContainerData `json:"containers"`
}

// podContainerData is a container of a pod. Requests and Limits are applied; Declared are the requests in
// the pod's spec, if they differ.
type podContainerData struct {
	Name     string       `json:"name"`
	Usage    *amountsData `json:"usage,omitempty"`
	Requests *amountsData `json:"requests,omitempty"`
	Limits   *amountsData `json:"limits,omitempty"`
	Declared *amountsData `json:"declaredRequests,omitempty"`
}

type amountsData struct {
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
}

// Data is the scaler for programs.
func (s Scaler) Data() any { return dataOf(s) }

// Data is the fleet for programs.
func (f Fleet) Data() any { return dataOfFleet(f) }

func dataOf(s Scaler) scalerData {
	out := scalerData{
		Time: s.At, Scaler: s.State, Findings: s.Explanation.Findings, Changes: explain.ChangesOf(s.Explanation.History), Missing: s.Missing,
		Containers: []containerData{}, Pods: []podData{},
	}
	if s.UsageMissing != "" {
		out.Missing = append([]string{"Usage: " + s.UsageMissing}, s.Missing...)
	}
	for _, c := range s.Containers {
		container := containerData{Name: c.Name, ObservedSeconds: int64(c.Observed / time.Second)}
		for _, r := range c.Resources {
			container.Resources = append(container.Resources, dataOfResource(r))
		}
		out.Containers = append(out.Containers, container)
	}
	for _, p := range s.Pods {
		out.Pods = append(out.Pods, dataOfPod(p))
	}
	return out
}

func dataOfResource(r Resource) resourceData {
	known := func(amount int64) string {
		if amount == 0 {
			return ""
		}
		return exact(r.Resource, amount)
	}
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
	return out
}

func dataOfSpread(resource string, s Spread) *spreadData {
	if s.Pods == 0 {
		return nil
	}
	return &spreadData{Pods: s.Pods, Least: exact(resource, s.Least), Most: exact(resource, s.Most), Total: exact(resource, s.Total)}
}

func dataOfPod(p Pod) podData {
	out := podData{Name: p.Name, Ready: p.Ready, Resize: p.Resize, OOMKills: p.OOMKills, Containers: []podContainerData{}}
	for _, c := range p.Containers {
		container := podContainerData{Name: c.Name, Requests: dataOfAmounts(c.Applied.Requests), Limits: dataOfAmounts(c.Applied.Limits)}
		if c.Used != nil {
			container.Usage = &amountsData{CPU: exact(recommend.CPU, c.Used.CPUMillis), Memory: exact(recommend.Memory, c.Used.MemoryBytes)}
		}
		if c.Declared.Requests != c.Applied.Requests {
			container.Declared = dataOfAmounts(c.Declared.Requests)
		}
		out.Containers = append(out.Containers, container)
	}
	return out
}

// dataOfAmounts leaves out what is not set.
func dataOfAmounts(a quantity.Amounts) *amountsData {
	if a == (quantity.Amounts{}) {
		return nil
	}
	out := &amountsData{}
	if a.CPUMillis > 0 {
		out.CPU = exact(recommend.CPU, a.CPUMillis)
	}
	if a.MemoryBytes > 0 {
		out.Memory = exact(recommend.Memory, a.MemoryBytes)
	}
	return out
}

func dataOfFleet(f Fleet) fleetData {
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
func exact(resource string, amount int64) string {
	q := quantity.Memory(amount)
	if resource == recommend.CPU {
		q = quantity.CPU(amount)
	}
	return q.String()
}
