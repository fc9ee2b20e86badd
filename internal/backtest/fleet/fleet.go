// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fleet compares the requests of many containers today with those of rules, by their recorded usage:
// cores, GiB, money, and the harm that a replay predicts. Containers with the largest differences come
// first.
//
// It promises that the same usage leads to the same report, byte for byte. It sends no requests: usage comes in
// as traces, container by container, and is not kept.
//
// Without past usage, it compares with the recommendations of scalers, or with usage at one moment. Figures that follow from usage are then
// unknown, and never 0.
//
// Its recommendation for Git depends on usage alone, or on the scaler, and not on today's requests. So it stays
// the same after it was applied.
package fleet

import (
	"cmp"
	"math"
	"slices"
	"strings"
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

// The values of Options.GroupBy.
const (
	GroupByNamespace = "namespace"
	GroupByLabel     = "label:" // before the key
)

// Container is a container of the pods of a workload.
type Container struct {
	Namespace string `json:"namespace"`
	// Kind is the workload's, such as Deployment or StatefulSet, and Workload its name.
	Kind     string `json:"kind"`
	Workload string `json:"workload"`
	Name     string `json:"container"`
	// Replicas is the number of pods; for a CronJob, while it runs.
	Replicas int `json:"replicas"`
	// HeapBytes is the heap that a flag sets, if any. No rule of VerticalScaler lowers the memory request below it.
	HeapBytes int64 `json:"heapBytes,omitempty"`
	// Requests and Limits are per pod; 0 means unset.
	Requests quantity.Amounts `json:"-"`
	Limits   quantity.Amounts `json:"-"`
	// IsSidecar is true if it is a native sidecar.
	IsSidecar bool `json:"-"`
	// Controller is the object that controls the workload, such as "ScaledDeployment web", if known.
	Controller string `json:"-"`
	// Label is the value of the workload's label by which Options group, if any.
	Label string `json:"-"`
}

// The kinds that differ from others.
const (
	deployment = "Deployment"
	rollout    = "Rollout"
	cronJob    = "CronJob"
)

// workload is the name of the workload, after its kind unless that is Deployment.
func workload(kind, name string) string {
	if kind == deployment {
		return name
	}
	return kind + "/" + name
}

// ID is NAMESPACE/DEPLOYMENT/CONTAINER, or NAMESPACE/KIND/WORKLOAD/CONTAINER for other kinds.
func (c Container) ID() string {
	return c.Namespace + "/" + workload(c.Kind, c.Workload) + "/" + c.Name
}

// Floor is the least memory request: the heap that a flag sets, at most today's request.
func (c Container) Floor() int64 { return min(c.HeapBytes, c.Requests.MemoryBytes) }

// Row is the result for one container.
type Row struct {
	Container
	// Difference is the distance of today's requests of all pods from the first rule's, in cores: a core
	// counts as much as GiBPerCore, or as the prices say. Rows are sorted by it.
	Difference float64 `json:"difference"`
	// Days is the number of days that were measured. 0 without past usage.
	Days int `json:"days,omitempty"`
	// ObservedSeconds is the usage behind the scaler's recommendation. 0 without a scaler.
	ObservedSeconds int64 `json:"observedSeconds,omitempty"`
	// UsageNow is true if the first rule has the usage of one moment, and no recommendation. It has no peaks and no margin, so
	// sums and requests for Git have today's requests.
	UsageNow bool `json:"usageNow,omitempty"`
	// Rules are today's requests, the rules' requests in order, and the requests for Git.
	Rules []Result `json:"rules"`

	// hours are the mean CPU of one pod in each hour of the day, in UTC and millicores.
	hours [24]float64
	// idle is a CronJob's share of time without pods.
	idle float64
	// plots are empty without Options.Record.
	plots []backtest.Plot
}

// Result has the requests of a container by one rule, and the predicted harm: both by the same replay, after the
// warm-up.
type Result struct {
	Rule string `json:"rule"`
	// Requested is nil, and its fields are missing, if the rule requires past usage and none is known.
	*Requested
	// Harm is nil if no past usage is known.
	*Harm
}

// Requested is the sum of a rule's requests.
type Requested struct {
	// CPUMillicores and MemoryBytes are the requests of one pod, on average; 0 is not set.
	CPUMillicores int64 `json:"cpuMillicores"`
	MemoryBytes   int64 `json:"memoryBytes"`
	// CostPerMonth is the cost of all pods in the currency of the prices; unset without prices.
	CostPerMonth *float64 `json:"costPerMonth,omitempty"`
}

// Harm is a rule's harm to a container.
type Harm struct {
	// StarvedPercent is the share of time in which the pod that uses most wants more CPU than requested.
	StarvedPercent float64 `json:"starvedPercent"`
	// OOMDays is the number of days on which a pod needs more memory than its limit.
	OOMDays int `json:"oomDays"`
	// ResizesPerDay is the number of changes of the requests.
	ResizesPerDay float64 `json:"resizesPerDay"`
}

// Requests are the requests of one pod, of a rule for which they are known.
func (r Result) Requests() quantity.Amounts {
	return quantity.Amounts{CPUMillis: r.CPUMillicores, MemoryBytes: r.MemoryBytes}
}

// Options control the replay of usage.
type Options struct {
	// Rules are at least one. The first one is compared with today's requests. Without usage, it is the rule of
	// the scalers, and only the names of rules count.
	Rules []backtest.Rule
	// WarmUp is the time at the beginning that is not measured.
	WarmUp time.Duration
	// Record keeps a picture of each container for the HTML page.
	Record bool
	// Prices are nil if unknown, and PricesFrom is their source.
	Prices     *Prices
	PricesFrom string
	// GroupBy is "namespace", or "label:" and the key of a label of workloads; empty disables groups.
	GroupBy string
}

// groupOf is the group of a container; empty for a workload without the label.
func (o Options) groupOf(c Container) string {
	if strings.HasPrefix(o.GroupBy, GroupByLabel) {
		return c.Label
	}
	return c.Namespace
}

// Evaluate replays the usage of one container, a trace without requests. It is not ok if its usage is not longer than the
// warm-up, or if the first rule, whose policy is a Recommender, recommends nothing.
//
// A replay begins with today's requests, but with memory of at least today's limit or, without one, the
// highest usage: the container runs with it.
func (o Options) Evaluate(c Container, usage backtest.Trace) (row Row, ok bool) {
	row.Container = c
	samples := usage.Samples
	if len(samples) < 2 || samples[len(samples)-1].At-samples[0].At <= int64(o.WarmUp/time.Second) {
		return row, false
	}
	peak := int64(0)
	for _, s := range samples {
		peak = max(peak, s.MemoryBytes)
	}
	var outcomes []backtest.Outcome
	add := func(rule string, requests quantity.Amounts, outcome backtest.Outcome) {
		row.add(o.Prices, rule, requests, harmOf(outcome.Measures))
		outcomes = append(outcomes, outcome)
	}
	options := backtest.Options{WarmUp: o.WarmUp, Record: o.Record}
	if c.Kind == cronJob {
		all := float64(samples[len(samples)-1].At-samples[0].At)/usage.Step.Seconds() + 1
		row.idle = max(1-float64(len(samples))/all, 0)
	}
	usage.Name, usage.HeapBytes = c.ID(), c.Floor()
	usage.Requests = quantity.Amounts{CPUMillis: c.Requests.CPUMillis, MemoryBytes: cmp.Or(c.Limits.MemoryBytes, quantity.MaxMemoryBytes)}
	today := backtest.Replay(usage, backtest.Static(), options)
	today.Changes = []backtest.Change{{At: samples[0].At, Requests: c.Requests}} // and not the limit
	row.Days, row.hours = today.Measures.Days, hoursOf(samples, o.WarmUp)
	add(Today, c.Requests, today)

	usage.Requests.MemoryBytes = max(c.Requests.MemoryBytes, peak, c.Limits.MemoryBytes)
	var fixed quantity.Amounts
	for i, rule := range o.Rules {
		options.Recommend = i == 0
		outcome := backtest.Replay(usage, rule, options)
		if i == 0 {
			if outcome.Recommended == nil {
				return row, false
			}
			fixed = *outcome.Recommended
		}
		add(rule.Name, meanOf(outcome.Measures), outcome)
	}
	usage.Requests, options.Recommend = fixed, false
	add(Git, fixed, backtest.Replay(usage, backtest.Static(), options))
	row.Difference = rounded(o.Prices.inCores(row.difference(row.Rules[0], row.Rules[1])))
	if o.Record {
		row.plots = backtest.Plots(usage, outcomes, o.WarmUp)
	}
	return row, true
}

// hoursOf is the mean CPU of each hour of the day after the warm-up; 0 for an hour without samples.
func hoursOf(samples []backtest.Sample, warmUp time.Duration) (hours [24]float64) {
	var counts [24]float64
	for _, s := range samples {
		if s.At-samples[0].At >= int64(warmUp/time.Second) {
			hours[s.At/3600%24] += s.CPUMillis
			counts[s.At/3600%24]++
		}
	}
	for i := range hours {
		hours[i] /= max(counts[i], 1)
	}
	return hours
}

// KeepPlots sorts rows as a report does, and forgets the pictures of all but the first ones.
func KeepPlots(rows []Row, first int) {
	sortRows(rows)
	for i := first; i < len(rows); i++ {
		rows[i].plots = nil
	}
}

// Recommended compares a container with the target of its scaler, which is also what it recommends for Git. Today's
// request of a resource without a target stays. The recommendations of other rules and all harm are unknown.
// observed is the usage behind the target.
func (o Options) Recommended(c Container, target quantity.Amounts, observed time.Duration) Row {
	row := Row{Container: c, ObservedSeconds: int64(observed / time.Second)}
	target.CPUMillis = cmp.Or(target.CPUMillis, c.Requests.CPUMillis)
	target.MemoryBytes = max(cmp.Or(target.MemoryBytes, c.Requests.MemoryBytes), c.Floor())
	row.add(o.Prices, Today, c.Requests, nil)
	row.add(o.Prices, o.Rules[0].Name, target, nil)
	for _, rule := range o.Rules[1:] {
		row.Rules = append(row.Rules, Result{Rule: rule.Name})
	}
	row.add(o.Prices, Git, target, nil)
	row.Difference = rounded(o.Prices.inCores(row.difference(row.Rules[0], row.Rules[1])))
	return row
}

// Now compares a container with what its busiest pod uses at one moment.
func (o Options) Now(c Container, used quantity.Amounts) Row {
	row := o.Recommended(c, quantity.Amounts{CPUMillis: max(used.CPUMillis, 1), MemoryBytes: max(used.MemoryBytes, 1)}, 0)
	row.UsageNow = true
	row.Rules = row.Rules[:len(row.Rules)-1]
	row.add(o.Prices, Git, c.Requests, nil)
	return row
}

// meanOf are the mean requests.
func meanOf(m backtest.Measures) quantity.Amounts {
	return quantity.Amounts{
		CPUMillis:   int64(math.Round(m.RequestedCPU / m.Hours * 1000)),
		MemoryBytes: int64(math.Round(m.RequestedMemory / m.Hours * gibi)),
	}
}

func harmOf(m backtest.Measures) *Harm {
	return &Harm{
		StarvedPercent: rounded(100 * m.StarvedHours / m.Hours),
		OOMDays:        m.KillDays,
		ResizesPerDay:  rounded(float64(m.Resizes) / (m.Hours / 24)),
	}
}

func (r *Row) add(prices *Prices, rule string, requests quantity.Amounts, harm *Harm) {
	result := Result{Rule: rule, Requested: &Requested{CPUMillicores: requests.CPUMillis, MemoryBytes: requests.MemoryBytes}, Harm: harm}
	if prices != nil {
		cost := rounded(prices.perMonth(r.cores(result), r.gib(result)))
		result.CostPerMonth = &cost
	}
	r.Rules = append(r.Rules, result)
}

const gibi = 1 << 30

// cores and gib are the requests of all pods by a rule.
func (r *Row) cores(of Result) float64 {
	return float64(of.CPUMillicores) / 1000 * r.pods()
}

func (r *Row) gib(of Result) float64 {
	return float64(of.MemoryBytes) / gibi * r.pods()
}

// pods is the number of pods on average.
func (r *Row) pods() float64 { return float64(r.Replicas) * (1 - r.idle) }

// difference is the absolute distance of two rules.
func (r *Row) difference(a, b Result) (cores, gib float64) {
	return math.Abs(r.cores(a) - r.cores(b)), math.Abs(r.gib(a) - r.gib(b))
}

// Git are the requests of one pod that suit the first rule where nothing changes them.
func (r *Row) Git() quantity.Amounts { return r.Rules[len(r.Rules)-1].Requests() }

// Report is the result of many containers. Numbers are rounded, so it is the same on every machine.
type Report struct {
	// Usage is nil, and its fields are missing, if no past usage is known.
	*Usage
	Currency string `json:"currency,omitempty"`
	// PricesFrom is the source of the prices, if any.
	PricesFrom string `json:"pricesFrom,omitempty"`
	Workloads  int    `json:"workloads"`
	// ContainerDays is the number of days that were measured, of all containers. 0 without past usage.
	ContainerDays int `json:"containerDays,omitempty"`
	// Rules are the sums over all containers, for today's requests and each rule.
	Rules []Total `json:"rules"`
	// Groups have the sums of Options.GroupBy: the largest difference first.
	Groups []Group `json:"groups,omitempty"`
	// Containers are sorted: the largest difference first.
	Containers []Row `json:"containers"`
	// Skipped are the containers that are not in the report, by namespace, workload and container.
	Skipped []Skipped `json:"skipped,omitempty"`

	about   map[string]string // by rule
	options Options
}

// Group is the sum over the containers of a namespace, or of the workloads with a value of a label.
type Group struct {
	// Name is the namespace or the value; empty for workloads without the label.
	Name       string `json:"name"`
	Containers int    `json:"containers"`
	// Rules are the sums, like the report's.
	Rules []Total `json:"rules"`
}

// Usage is the past usage that a report is about.
type Usage struct {
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
	// WarmUpSeconds is the time at the beginning of each container's usage that was replayed but not measured.
	WarmUpSeconds int64 `json:"warmUpSeconds"`
	// PeakHourByMean is the CPU that all pods use in the busiest hour of the day, by the mean over all hours: at least 1. 0
	// without CPU.
	PeakHourByMean float64 `json:"peakHourByMean,omitempty"`
}

// Total is the sum of a rule over all containers. Sum and Harm are nil as in a Result.
type Total struct {
	Rule string `json:"rule"`
	*Sum
	// Harm has means over containers, except for OOMDays, which is a sum.
	*Harm
}

// Sum has the requests of all containers by a rule.
type Sum struct {
	Cores        float64  `json:"cores"`
	GiB          float64  `json:"gib"`
	CostPerMonth *float64 `json:"costPerMonth,omitempty"`
}

// Skipped is a container that is not reported.
type Skipped struct {
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Workload  string `json:"workload"`
	Container string `json:"container,omitempty"` // empty for all of the workload's
	Why       string `json:"why"`
}

// New returns the report about rows of Evaluate, which it sorts. The times span the usage.
func New(rows []Row, skipped []Skipped, from, until time.Time, o Options) *Report {
	r := newReport(rows, skipped, o, "the highest CPU that the first rule recommends in the last week, no more than was used, and its memory, never changed")
	r.Usage = &Usage{From: from.UTC(), Until: until.UTC(), WarmUpSeconds: int64(o.WarmUp / time.Second), PeakHourByMean: peakHourByMean(rows)}
	return r
}

func peakHourByMean(rows []Row) float64 {
	var hours [24]float64
	sum := 0.0
	for _, row := range rows {
		for i, cpu := range row.hours {
			hours[i] += cpu * row.pods()
			sum += cpu * row.pods()
		}
	}
	if sum == 0 {
		return 0
	}
	return rounded(slices.Max(hours[:]) / (sum / float64(len(hours))))
}

// OfScalers returns the report about rows of Recommended and Now, which it sorts.
func OfScalers(rows []Row, skipped []Skipped, o Options) *Report {
	return newReport(rows, skipped, o, "what the scalers recommend now, never changed")
}

func newReport(rows []Row, skipped []Skipped, o Options, aboutGit string) *Report {
	r := &Report{Containers: rows, Skipped: skipped, options: o, about: map[string]string{Today: "what the containers request today", Git: aboutGit}}
	sortRows(r.Containers)
	slices.SortFunc(r.Skipped, func(a, b Skipped) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Container, b.Container))
	})
	workloads := map[[3]string]bool{}
	for _, row := range r.Containers {
		workloads[[3]string{row.Namespace, row.Kind, row.Workload}] = true
		r.ContainerDays += row.Days
	}
	r.Workloads = len(workloads)
	if o.Prices != nil {
		r.Currency, r.PricesFrom = o.Prices.Currency, o.PricesFrom
	}
	names := []string{Today}
	for _, rule := range o.Rules {
		names = append(names, rule.Name)
		r.about[rule.Name] = rule.About
	}
	names = append(names, Git)
	r.Rules = o.totals(names, r.Containers)
	if o.GroupBy != "" {
		r.Groups = o.groups(names, r.Containers)
	}
	return r
}

// groups are the groups of rows.
func (o Options) groups(rules []string, rows []Row) (groups []Group) {
	byName := map[string][]Row{}
	for _, row := range rows {
		name := o.groupOf(row.Container)
		byName[name] = append(byName[name], row)
	}
	for name, rows := range byName {
		groups = append(groups, Group{name, len(rows), o.totals(rules, rows)})
	}
	difference := func(g Group) float64 {
		today, first := g.Rules[0], g.Rules[1]
		return math.Abs(o.Prices.inCores(today.Cores-first.Cores, today.GiB-first.GiB))
	}
	slices.SortFunc(groups, func(a, b Group) int {
		return cmp.Or(cmp.Compare(difference(b), difference(a)), cmp.Compare(a.Name, b.Name))
	})
	return groups
}

// totals are the sums of all rules.
func (o Options) totals(rules []string, rows []Row) (totals []Total) {
	for i, name := range rules {
		totals = append(totals, total(name, i, rows, o.Prices))
	}
	return totals
}

// sortRows sorts by difference, the largest first, and then by name.
func sortRows(rows []Row) {
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(b.Difference, a.Difference), cmp.Compare(a.Namespace, b.Namespace),
			cmp.Compare(a.Workload, b.Workload), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
}

// total is the sum of one rule. A figure that is unknown for a container is unknown for all. Usage at one moment is in no sum.
func total(name string, rule int, rows []Row, prices *Prices) Total {
	sum, harm := &Sum{}, &Harm{}
	for i := range rows {
		row := &rows[i]
		result := row.Rules[rule]
		if row.UsageNow && rule == 1 {
			result = row.Rules[0]
		}
		if result.Requested == nil {
			return Total{Rule: name}
		}
		sum.Cores += row.cores(result)
		sum.GiB += row.gib(result)
		if harm == nil || result.Harm == nil {
			harm = nil
			continue
		}
		harm.StarvedPercent += result.StarvedPercent
		harm.ResizesPerDay += result.ResizesPerDay
		harm.OOMDays += result.OOMDays
	}
	if prices != nil {
		cost := rounded(prices.perMonth(sum.Cores, sum.GiB))
		sum.CostPerMonth = &cost
	}
	sum.Cores, sum.GiB = rounded(sum.Cores), rounded(sum.GiB)
	if harm != nil {
		n := float64(max(len(rows), 1))
		harm.StarvedPercent, harm.ResizesPerDay = rounded(harm.StarvedPercent/n), rounded(harm.ResizesPerDay/n)
	}
	return Total{name, sum, harm}
}

// rounded keeps four decimals: fewer than differ by the order of adding.
func rounded(v float64) float64 { return math.Round(v*1e4) / 1e4 }
