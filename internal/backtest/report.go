// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"sigs.k8s.io/yaml"
)

// Report is the result of a backtest. Numbers are rounded, so that a report is the same on
// every machine.
type Report struct {
	// WarmUpSeconds were replayed at the beginning of each trace, but not measured.
	WarmUpSeconds int64 `json:"warmUpSeconds"`
	// Policies are the results over all containers, in the requested order.
	Policies []PolicyReport `json:"policies"`
	// Comparisons hold one entry for each policy and each one that it is compared with.
	Comparisons []Comparison `json:"comparisons,omitempty"`
	// Containers are the results for each container, sorted by name.
	Containers []ContainerReport `json:"containers"`
	// Skipped are the containers that were not measured, and why.
	Skipped []Skipped `json:"skipped,omitempty"`

	traces   []Trace
	outcomes [][]Outcome
}

// PolicyReport is about one policy.
type PolicyReport struct {
	Name  string `json:"name"`
	About string `json:"about,omitempty"`
	Figures
}

// ContainerReport is about one container.
type ContainerReport struct {
	Name        string         `json:"name"`
	StepSeconds int64          `json:"stepSeconds"`
	Policies    []PolicyReport `json:"policies"`
}

// Skipped is a container that was not measured.
type Skipped struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Figures are measures for people. Shares are in percent.
type Figures struct {
	Containers    int `json:"containers"`
	ContainerDays int `json:"containerDays"`

	CPU CPUFigures `json:"cpu"`
	// Memory is unset where none was recorded.
	Memory *MemoryFigures `json:"memory,omitempty"`

	// ResizesPerDay is by container.
	ResizesPerDay float64 `json:"resizesPerDay"`
}

// CPUFigures are about CPU.
type CPUFigures struct {
	// RequestedCores is the sum over containers of their mean request.
	RequestedCores float64 `json:"requestedCores"`
	// SlackPercent is the share of the request that is not used: the mean over time, and
	// then over containers. FleetSlackPercent is that of all that is requested.
	SlackPercent      float64 `json:"slackPercent"`
	FleetSlackPercent float64 `json:"fleetSlackPercent"`
	// StarvedPercent is the share of time in which a container needs more than its request.
	// UnservedPercent is the share of the needed CPU that is above the request. Both are means
	// over containers. A node with free capacity would still serve it.
	StarvedPercent  float64 `json:"starvedPercent"`
	UnservedPercent float64 `json:"unservedPercent"`
}

// MemoryFigures are about memory.
type MemoryFigures struct {
	Containers        int     `json:"containers"`
	RequestedGiB      float64 `json:"requestedGiB"`
	SlackPercent      float64 `json:"slackPercent"`
	FleetSlackPercent float64 `json:"fleetSlackPercent"`
	// OOMKills is the number of intervals with one. OOMContainerDays is the number of days
	// with at least one, summed over containers, and OOMContainerDaysPercent their share.
	OOMKills                int     `json:"oomKills"`
	OOMContainerDays        int     `json:"oomContainerDays"`
	OOMContainerDaysPercent float64 `json:"oomContainerDaysPercent"`
	// WarmUpOOMKills are kills before the measured time.
	WarmUpOOMKills int `json:"warmUpOOMKills"`
}

// Comparison is how one policy differs from another.
type Comparison struct {
	Policy  string `json:"policy"`
	Against string `json:"against"`
	// Percentages are of what the other one requests; negative is less.
	CPURequestedPercent    float64  `json:"cpuRequestedPercent"`
	MemoryRequestedPercent *float64 `json:"memoryRequestedPercent,omitempty"`
	OOMKills               *int     `json:"oomKills,omitempty"`
	ResizesPerDay          float64  `json:"resizesPerDay"`
}

// Evaluate replays all traces with all rules and returns the report. It skips traces that end
// before the warm-up. It compares each policy with the policies that against names.
func Evaluate(traces []Trace, rules []Rule, against []string, o Options) (*Report, error) {
	report := &Report{WarmUpSeconds: int64(o.WarmUp / time.Second)}
	for _, t := range traces {
		if t.length() <= o.WarmUp {
			report.Skipped = append(report.Skipped, Skipped{t.Name, fmt.Sprintf("its %s of usage are not longer than the warm-up of %s", t.length(), o.WarmUp)})
			continue
		}
		report.traces = append(report.traces, t)
	}
	if len(report.traces) == 0 {
		return nil, fmt.Errorf("no container has usage for longer than the warm-up of %s", o.WarmUp)
	}
	report.outcomes = Run(report.traces, rules, o)

	for i, rule := range rules {
		all := make([]Measures, len(report.traces))
		for t := range report.traces {
			all[t] = report.outcomes[t][i].Measures
		}
		report.Policies = append(report.Policies, PolicyReport{rule.Name, rule.About, figuresOf(all...)})
	}
	for _, name := range against {
		for _, p := range report.Policies {
			if other, ok := report.policy(name); ok && p.Name != name && p.Name != "static" {
				report.Comparisons = append(report.Comparisons, compare(p, other))
			}
		}
	}
	for t, trace := range report.traces {
		c := ContainerReport{Name: trace.Name, StepSeconds: int64(trace.Step / time.Second)}
		for i, rule := range rules {
			c.Policies = append(c.Policies, PolicyReport{Name: rule.Name, Figures: figuresOf(report.outcomes[t][i].Measures)})
		}
		report.Containers = append(report.Containers, c)
	}
	return report, nil
}

func (r *Report) policy(name string) (PolicyReport, bool) {
	for _, p := range r.Policies {
		if p.Name == name {
			return p, true
		}
	}
	return PolicyReport{}, false
}

// figuresOf sums up the measures of containers.
func figuresOf(all ...Measures) Figures {
	var (
		f           Figures
		m           MemoryFigures
		days        int
		resizes     int
		sum         Measures
		hours       float64
		requested   float64
		requestedMB float64
	)
	for _, one := range all {
		f.Containers++
		f.ContainerDays += one.Days
		resizes += one.Resizes
		hours += one.Hours
		sum.RequestedCPU += one.RequestedCPU
		sum.UsedCPU += one.UsedCPU
		requested += one.RequestedCPU / one.Hours
		f.CPU.SlackPercent += one.SlackCPU / one.Hours
		f.CPU.StarvedPercent += one.StarvedHours / one.Hours
		if one.WantedCPU > 0 {
			f.CPU.UnservedPercent += one.UnservedCPU / one.WantedCPU
		}
		if !one.HasMemory {
			continue
		}
		m.Containers++
		days += one.Days
		sum.RequestedMemory += one.RequestedMemory
		sum.UsedMemory += one.UsedMemory
		requestedMB += one.RequestedMemory / one.Hours
		m.SlackPercent += one.SlackMemory / one.Hours
		m.OOMKills += one.Kills
		m.OOMContainerDays += one.KillDays
		m.WarmUpOOMKills += one.WarmUpKills
	}
	n := float64(f.Containers)
	f.CPU = CPUFigures{
		RequestedCores:    rounded(requested),
		SlackPercent:      percent(f.CPU.SlackPercent, n),
		FleetSlackPercent: percent(sum.RequestedCPU-sum.UsedCPU, sum.RequestedCPU),
		StarvedPercent:    percent(f.CPU.StarvedPercent, n),
		UnservedPercent:   percent(f.CPU.UnservedPercent, n),
	}
	f.ResizesPerDay = rounded(float64(resizes) / (hours / 24))
	if m.Containers > 0 {
		m.RequestedGiB = rounded(requestedMB)
		m.SlackPercent = percent(m.SlackPercent, float64(m.Containers))
		m.FleetSlackPercent = percent(sum.RequestedMemory-sum.UsedMemory, sum.RequestedMemory)
		m.OOMContainerDaysPercent = percent(float64(m.OOMContainerDays), float64(days))
		f.Memory = &m
	}
	return f
}

// rounded keeps four decimals: fewer than differ by the order of adding.
func rounded(v float64) float64 { return math.Round(v*1e4) / 1e4 }

func percent(part, of float64) float64 {
	if of == 0 {
		return 0
	}
	return rounded(part / of * 100)
}

func compare(p, other PolicyReport) Comparison {
	c := Comparison{
		Policy: p.Name, Against: other.Name,
		CPURequestedPercent: percent(p.CPU.RequestedCores-other.CPU.RequestedCores, other.CPU.RequestedCores),
		ResizesPerDay:       rounded(p.ResizesPerDay - other.ResizesPerDay),
	}
	if p.Memory != nil && other.Memory != nil {
		requested := percent(p.Memory.RequestedGiB-other.Memory.RequestedGiB, other.Memory.RequestedGiB)
		kills := p.Memory.OOMKills - other.Memory.OOMKills
		c.MemoryRequestedPercent, c.OOMKills = &requested, &kills
	}
	return c
}

// WriteJSON writes the report in JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

// WriteYAML writes the same in YAML.
func (r *Report) WriteYAML(w io.Writer) error {
	text, err := yaml.Marshal(r)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// amount prints a number with about four digits.
func amount(v float64) string {
	digits := 3
	if v >= 10 {
		digits = cmp.Or(max(3-int(math.Log10(v)), 0), 0)
	}
	return fmt.Sprintf("%.*f", digits, v)
}
