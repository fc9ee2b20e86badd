// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet compares what many containers request today with what rules would request, by their recorded
// usage: cores, GiB, money, and the harm that a replay predicts. The containers that request the most wrong
// amounts come first.
//
// It promises that the same usage leads to the same report, byte for byte. It sends no requests: usage comes in
// as traces, container by container, and is not kept.
//
// What it recommends for Git depends on usage alone, not on today's requests. So after these were applied, it
// recommends the same.
package fleet

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/backtest"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

const (
	// Today is the name of the requests that containers have today, which come first among the rules.
	Today = "today"
	// Git is the name of the requests that suit the first rule where nothing changes them, which come last.
	Git = "git"
)

// Container is a container of the pods of a Deployment.
type Container struct {
	Namespace  string `json:"namespace"`
	Deployment string `json:"deployment"`
	Name       string `json:"container"`
	// Replicas is the number of pods.
	Replicas int `json:"replicas"`
	// Requests and Limits are those of one pod; 0 is not set.
	Requests quantity.Amounts `json:"-"`
	Limits   quantity.Amounts `json:"-"`
	// IsSidecar says that it is a native sidecar.
	IsSidecar bool `json:"-"`
	// Controller is the object that controls the Deployment, such as "ScaledDeployment web"; empty if there is
	// none or if it is not known.
	Controller string `json:"-"`
}

// Row is the result for one container.
type Row struct {
	Container
	// Difference is how far today's requests of all pods are from those of the first rule, in cores: a core
	// counts as much as GiBPerCore, or as the prices say. Rows are sorted by it.
	Difference float64 `json:"difference"`
	// Days is the number of days that were measured.
	Days int `json:"days"`
	// Rules are today's requests, those of the rules in their order, and those for Git.
	Rules []Result `json:"rules"`

	// usage are the pictures' points of CPU and memory.
	usage [2][]band
}

// Result is what a container requests by one rule, and the harm that the replay predicts: both by the same replay,
// after the warm-up.
type Result struct {
	Rule string `json:"rule"`
	// CPUMillicores and MemoryBytes are the requests of one pod, on average; 0 is not set.
	CPUMillicores int64 `json:"cpuMillicores"`
	MemoryBytes   int64 `json:"memoryBytes"`
	// CostPerMonth is that of all pods in the currency of the prices; unset without prices.
	CostPerMonth *float64 `json:"costPerMonth,omitempty"`
	// StarvedPercent is the share of time in which the pod that uses most wants more CPU than requested.
	StarvedPercent float64 `json:"starvedPercent"`
	// OOMDays is the number of days on which a pod needs more memory than its limit.
	OOMDays int `json:"oomDays"`
	// ResizesPerDay is the number of changes of the requests.
	ResizesPerDay float64 `json:"resizesPerDay"`
}

// Requests are the requests of one pod.
func (r Result) Requests() quantity.Amounts {
	return quantity.Amounts{CPUMillis: r.CPUMillicores, MemoryBytes: r.MemoryBytes}
}

// Options say how usage is replayed.
type Options struct {
	// Rules are at least one. The first one is compared with today's requests.
	Rules []backtest.Rule
	// Step is the length of the intervals.
	Step time.Duration
	// WarmUp is the time at the beginning that is not measured.
	WarmUp time.Duration
	// Prices are nil if they are not known.
	Prices *Prices
}

// Evaluate replays the usage of one container. It is not ok if its usage is not longer than the warm-up, or if
// the first rule, whose policy is a Recommender, recommends nothing.
//
// A replay begins with today's requests, but with no less memory than today's limit or, without one, than was
// ever used: the container runs with it.
func (o Options) Evaluate(c Container, samples []backtest.Sample) (row Row, ok bool) {
	row.Container = c
	if len(samples) < 2 || samples[len(samples)-1].At-samples[0].At <= int64(o.WarmUp/time.Second) {
		return row, false
	}
	peak := int64(0)
	for _, s := range samples {
		peak = max(peak, s.MemoryBytes)
	}
	trace := backtest.Trace{
		Name: c.Namespace + "/" + c.Deployment + "/" + c.Name, Step: o.Step, HasMemory: true, Samples: samples,
		Requests: quantity.Amounts{CPUMillis: c.Requests.CPUMillis, MemoryBytes: cmp.Or(c.Limits.MemoryBytes, quantity.MaxMemoryBytes)},
	}
	options := backtest.Options{WarmUp: o.WarmUp}
	today := backtest.Replay(trace, backtest.Static(), options).Measures
	row.Days = today.Days
	row.add(o, Today, c.Requests, today)

	trace.Requests.MemoryBytes = max(c.Requests.MemoryBytes, peak, c.Limits.MemoryBytes)
	var fixed quantity.Amounts
	for i, rule := range o.Rules {
		outcome, requests, ok := backtest.ReplayAndRecommend(trace, rule, options)
		if i == 0 {
			if fixed = requests; !ok {
				return row, false
			}
		}
		row.add(o, rule.Name, meanOf(outcome.Measures), outcome.Measures)
	}
	trace.Requests = fixed
	row.add(o, Git, fixed, backtest.Replay(trace, backtest.Static(), options).Measures)
	row.Difference = rounded(o.Prices.inCores(row.difference(row.Rules[0], row.Rules[1])))
	row.usage = bandsOf(samples)
	return row, true
}

// meanOf are the mean requests.
func meanOf(m backtest.Measures) quantity.Amounts {
	return quantity.Amounts{
		CPUMillis:   int64(math.Round(m.RequestedCPU / m.Hours * 1000)),
		MemoryBytes: int64(math.Round(m.RequestedMemory / m.Hours * gibi)),
	}
}

func (r *Row) add(o Options, rule string, requests quantity.Amounts, m backtest.Measures) {
	result := Result{
		Rule: rule, CPUMillicores: requests.CPUMillis, MemoryBytes: requests.MemoryBytes,
		StarvedPercent: rounded(100 * m.StarvedHours / m.Hours),
		OOMDays:        m.KillDays,
		ResizesPerDay:  rounded(float64(m.Resizes) / (m.Hours / 24)),
	}
	if o.Prices != nil {
		cost := rounded(o.Prices.perMonth(r.cores(result), r.gib(result)))
		result.CostPerMonth = &cost
	}
	r.Rules = append(r.Rules, result)
}

const gibi = 1 << 30

// cores and gib are what all pods request by a rule.
func (r *Row) cores(of Result) float64 {
	return float64(of.CPUMillicores) / 1000 * float64(r.Replicas)
}

func (r *Row) gib(of Result) float64 {
	return float64(of.MemoryBytes) / gibi * float64(r.Replicas)
}

// difference is how far two rules are apart, whatever the direction.
func (r *Row) difference(a, b Result) (cores, gib float64) {
	return math.Abs(r.cores(a) - r.cores(b)), math.Abs(r.gib(a) - r.gib(b))
}

// Git are the requests of one pod that suit the first rule where nothing changes them.
func (r *Row) Git() quantity.Amounts { return r.Rules[len(r.Rules)-1].Requests() }

// Report is the result of many containers. Numbers are rounded, so that it is the same on every machine.
type Report struct {
	// From and Until are the time of the usage.
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// StepSeconds is the length of the intervals, WarmUpSeconds the time at the beginning of each container's
	// usage that was replayed but not measured.
	StepSeconds   int64  `json:"stepSeconds"`
	WarmUpSeconds int64  `json:"warmUpSeconds"`
	Currency      string `json:"currency,omitempty"`
	Deployments   int    `json:"deployments"`
	// ContainerDays is the number of days that were measured, of all containers.
	ContainerDays int `json:"containerDays"`
	// Rules are the sums over all containers, for today's requests and each rule.
	Rules []Total `json:"rules"`
	// Containers are sorted: the largest difference first.
	Containers []Row `json:"containers"`
	// Skipped are the containers that are not in the report, by namespace, Deployment and container.
	Skipped []Skipped `json:"skipped,omitempty"`

	about map[string]string // by rule
}

// Total is the sum of a rule over all containers.
type Total struct {
	Rule         string   `json:"rule"`
	Cores        float64  `json:"cores"`
	GiB          float64  `json:"gib"`
	CostPerMonth *float64 `json:"costPerMonth,omitempty"`
	// StarvedPercent and ResizesPerDay are means over containers, OOMDays is a sum.
	StarvedPercent float64 `json:"starvedPercent"`
	OOMDays        int     `json:"oomDays"`
	ResizesPerDay  float64 `json:"resizesPerDay"`
}

// Skipped is a container that is not reported.
type Skipped struct {
	Namespace  string `json:"namespace"`
	Deployment string `json:"deployment"`
	Container  string `json:"container,omitempty"` // empty for all of the Deployment's
	Why        string `json:"why"`
}

// New returns the report about rows, which it sorts.
func New(rows []Row, skipped []Skipped, from, until time.Time, o Options) *Report {
	r := &Report{
		From: from.UTC(), Until: until.UTC(), StepSeconds: int64(o.Step / time.Second), WarmUpSeconds: int64(o.WarmUp / time.Second),
		Containers: rows, Skipped: skipped, about: map[string]string{Today: "what the containers request today"},
	}
	slices.SortFunc(r.Containers, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Difference, a.Difference), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(r.Skipped, func(a, b Skipped) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Deployment, b.Deployment), cmp.Compare(a.Container, b.Container))
	})
	deployments := map[[2]string]bool{}
	for _, row := range r.Containers {
		deployments[[2]string{row.Namespace, row.Deployment}] = true
		r.ContainerDays += row.Days
	}
	r.Deployments = len(deployments)
	if o.Prices != nil {
		r.Currency = o.Prices.Currency
	}
	names := []string{Today}
	for _, rule := range o.Rules {
		names = append(names, rule.Name)
		r.about[rule.Name] = rule.About
	}
	names = append(names, Git)
	r.about[Git] = "the highest CPU that the first rule recommends in the last week, no more than was used, and its memory, never changed"
	for i, name := range names {
		r.Rules = append(r.Rules, r.total(name, i, o.Prices))
	}
	return r
}

func (r *Report) total(name string, rule int, prices *Prices) Total {
	t := Total{Rule: name}
	for i := range r.Containers {
		row := &r.Containers[i]
		result := row.Rules[rule]
		t.Cores += row.cores(result)
		t.GiB += row.gib(result)
		t.StarvedPercent += result.StarvedPercent
		t.ResizesPerDay += result.ResizesPerDay
		t.OOMDays += result.OOMDays
	}
	if prices != nil {
		cost := rounded(prices.perMonth(t.Cores, t.GiB))
		t.CostPerMonth = &cost
	}
	n := float64(max(len(r.Containers), 1))
	t.Cores, t.GiB, t.StarvedPercent, t.ResizesPerDay = rounded(t.Cores), rounded(t.GiB), rounded(t.StarvedPercent/n), rounded(t.ResizesPerDay/n)
	return t
}

// rounded keeps four decimals: fewer than differ by the order of adding.
func rounded(v float64) float64 { return math.Round(v*1e4) / 1e4 }
