// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// WriteCSV writes a line for each container, with columns for each rule.
func (r *Report) WriteCSV(w io.Writer) error {
	header := []string{"namespace", "kind", "workload", "container", "replicas", "difference", "days"}
	if r.Groups != nil {
		header = append([]string{r.options.GroupBy}, header...)
	}
	for _, rule := range r.Rules {
		for _, column := range []string{"cpu_millicores", "memory_bytes", "cost_per_month", "starved_percent", "oom_days", "resizes_per_day"} {
			header = append(header, rule.Rule+"_"+column)
		}
	}
	table := csv.NewWriter(w)
	_ = table.Write(header) // the error is kept
	for _, row := range r.Containers {
		days := ""
		if r.Usage != nil || row.UsageNow {
			days = strconv.Itoa(row.Days)
		}
		line := []string{row.Namespace, row.Kind, row.Workload, row.Name, strconv.Itoa(row.Replicas), number(row.Difference), days}
		if r.Groups != nil {
			line = append([]string{r.options.groupOf(row.Container)}, line...)
		}
		for _, result := range row.Rules {
			line = append(line, result.cells()...)
		}
		_ = table.Write(line)
	}
	table.Flush()
	return table.Error()
}

// cells are empty where the figures are unknown.
func (r Result) cells() []string {
	var cells [6]string
	if r.Requested != nil {
		cells[0], cells[1] = strconv.FormatInt(r.CPUMillicores, 10), strconv.FormatInt(r.MemoryBytes, 10)
		if r.CostPerMonth != nil {
			cells[2] = number(*r.CostPerMonth)
		}
	}
	if r.Harm != nil {
		cells[3], cells[4], cells[5] = number(r.StarvedPercent), strconv.Itoa(r.OOMDays), number(r.ResizesPerDay)
	}
	return cells[:]
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// WriteTable writes the sums of each rule and the first containers, at most top.
func (r *Report) WriteTable(w io.Writer, top int) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.title())
	b.WriteString("\n")
	table(&b, func(line func(...string)) {
		line(r.totalHeader()...)
		for i := range r.Rules {
			line(r.totalCells(i)...)
		}
	})
	if prices := r.pricesLine(); prices != "" {
		fmt.Fprintf(&b, "\n%s\n", prices)
	}
	if r.Usage != nil && r.PeakHourByMean > 0 {
		fmt.Fprintf(&b, "\n%s\n", r.dayLine())
	}
	if len(r.Groups) > 0 {
		b.WriteString("\n")
		table(&b, func(line func(...string)) {
			for _, cells := range r.groupTable() {
				line(cells...)
			}
		})
	}
	if top > 0 && len(r.Containers) > 0 {
		b.WriteString("\n")
		table(&b, func(line func(...string)) {
			line(r.rowHeader()...)
			for i := range r.Containers[:min(top, len(r.Containers))] {
				line(r.rowCells(&r.Containers[i])...)
			}
		})
		if rest := len(r.Containers) - top; rest > 0 {
			fmt.Fprintf(&b, "\n%s with smaller differences: see --top, or --output csv\n", count(rest, "more container"))
		}
	}
	if r.Usage == nil {
		fmt.Fprintf(&b, "\n%s\n", r.unknownLine())
	}
	for _, line := range r.skippedLines() {
		fmt.Fprintf(&b, "\n%s\n", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// pricesLine names the source of the prices; empty without prices.
func (r *Report) pricesLine() string {
	if r.options.Prices == nil {
		return ""
	}
	return fmt.Sprintf("Prices are from %s: a core costs %s and a GiB %s an hour", r.options.PricesFrom,
		number(rounded(r.options.Prices.CPUCoreHour)), number(rounded(r.options.Prices.MemoryGiBHour)))
}

// groupTable has a header and a line for each group: its requests today -> by the first rule. It is empty without groups.
func (r *Report) groupTable() (lines [][]string) {
	if len(r.Groups) == 0 {
		return nil
	}
	header := []string{strings.ToUpper(strings.TrimPrefix(r.options.GroupBy, GroupByLabel)), "CONTAINERS", "CORES", "GIB"}
	if r.hasCost() {
		header = append(header, r.cost())
	}
	lines = append(lines, header)
	for _, g := range r.Groups {
		today, first := g.Rules[0], g.Rules[1]
		cells := []string{
			cmp.Or(g.Name, "(none)"), strconv.Itoa(g.Containers),
			amount(today.Cores) + " -> " + amount(first.Cores), amount(today.GiB) + " -> " + amount(first.GiB),
		}
		if today.CostPerMonth != nil {
			cells = append(cells, money(*today.CostPerMonth)+" -> "+money(*first.CostPerMonth))
		}
		lines = append(lines, cells)
	}
	return lines
}

// unknown is shown for figures that follow from past usage, where none is known.
const unknown = "unknown"

// unknownLine explains why figures are unknown.
func (r *Report) unknownLine() string {
	line := "Unknown are the figures that follow from past usage, which --prometheus reads: those of other rules, and all harm"
	if r.now() > 0 {
		line += ". Usage at one moment has no peaks and no margin: the sums and git keep the requests of these containers today"
	}
	return line
}

// now is the number of containers that are compared with their usage at one moment.
func (r *Report) now() (n int) {
	for i := range r.Containers {
		if r.Containers[i].UsageNow {
			n++
		}
	}
	return n
}

// dailyFrom is the least PeakHourByMean of series in the world "day" of bench/nodes, where raises find no room in the morning.
const dailyFrom = 1.4

// dayLine is the line about the peak of the day.
func (r *Report) dayLine() string {
	advice := "usage hardly follows the day"
	if r.PeakHourByMean >= dailyFrom {
		advice = "if a node autoscaler consolidates nodes, use the fallback Recreate"
	}
	return fmt.Sprintf("In the busiest hour of the day, all pods use %.2f times the mean CPU: %s", r.PeakHourByMean, advice)
}

func (r *Report) title() string {
	if now := r.now(); now > 0 {
		return fmt.Sprintf("%s of %s: %d by what their scalers recommend, %d by their usage at one moment (now)", count(len(r.Containers), "container"), count(r.Workloads, "workload"),
			len(r.Containers)-now, now)
	}
	if r.Usage == nil {
		return fmt.Sprintf("%s of %s, by what their scalers recommend", count(len(r.Containers), "container"), count(r.Workloads, "workload"))
	}
	return fmt.Sprintf("%s of %s, by usage from %s to %s", count(len(r.Containers), "container"), count(r.Workloads, "workload"),
		r.From.Format(time.RFC3339), r.Until.Format(time.RFC3339))
}

func (r *Report) cost() string { return strings.TrimSpace("COST/MONTH " + r.Currency) }

func (r *Report) hasCost() bool { return r.Rules[0].CostPerMonth != nil } // today's requests are always known

func (r *Report) totalHeader() []string {
	header := []string{"RULE", "CORES", "GIB"}
	if r.hasCost() {
		header = append(header, r.cost())
	}
	return append(header, "CPU VS TODAY", "MEMORY VS TODAY", "STARVED", "OOM DAYS", "RESIZES/DAY")
}

func (r *Report) totalCells(i int) []string {
	t, today := r.Rules[i], r.Rules[0]
	if t.Sum == nil {
		return append([]string{t.Rule}, slices.Repeat([]string{unknown}, len(r.totalHeader())-1)...)
	}
	cells := []string{t.Rule, amount(t.Cores), amount(t.GiB)}
	if t.CostPerMonth != nil {
		cells = append(cells, money(*t.CostPerMonth))
	}
	cells = append(cells, versus(t.Cores, today.Cores), versus(t.GiB, today.GiB))
	if t.Harm == nil {
		return append(cells, unknown, unknown, unknown)
	}
	return append(cells, fmt.Sprintf("%.2f%%", t.StarvedPercent), fmt.Sprintf("%d of %d", t.OOMDays, r.ContainerDays), fmt.Sprintf("%.2f", t.ResizesPerDay))
}

func (r *Report) rowHeader() []string {
	header := []string{"NAMESPACE", "WORKLOAD", "CONTAINER", "PODS", "CPU", "MEMORY"}
	if r.hasCost() {
		header = append(header, r.cost())
	}
	for _, rule := range r.Rules[2:] {
		header = append(header, strings.ToUpper(rule.Rule))
	}
	return append(header, "STARVED", "OOM DAYS")
}

// rowCells are the container's request today -> the first rule's recommendation, the other rules'
// recommendations, and the harm of the first two.
func (r *Report) rowCells(row *Row) []string {
	today, ours := row.Rules[0], row.Rules[1]
	mark := ""
	if row.UsageNow {
		mark = " (now)"
	}
	cells := []string{
		row.Namespace, workload(row.Kind, row.Workload), row.Name, strconv.Itoa(row.Replicas),
		cpuText(today.CPUMillicores) + " -> " + cpuText(ours.CPUMillicores) + mark, memoryText(today.MemoryBytes) + " -> " + memoryText(ours.MemoryBytes) + mark,
	}
	if today.CostPerMonth != nil {
		cells = append(cells, money(*today.CostPerMonth)+" -> "+money(*ours.CostPerMonth))
	}
	for _, other := range row.Rules[2:] {
		if other.Requested == nil {
			cells = append(cells, unknown)
			continue
		}
		cells = append(cells, cpuText(other.CPUMillicores)+" "+memoryText(other.MemoryBytes))
	}
	if today.Harm == nil || ours.Harm == nil {
		return append(cells, unknown, unknown)
	}
	return append(cells, fmt.Sprintf("%.1f%% -> %.1f%%", today.StarvedPercent, ours.StarvedPercent), fmt.Sprintf("%d -> %d", today.OOMDays, ours.OOMDays))
}

// skippedLines are one for each reason, with the first names.
func (r *Report) skippedLines() (lines []string) {
	const names = 3
	byReason := map[string][]string{}
	for _, s := range r.Skipped {
		byReason[s.Why] = append(byReason[s.Why], s.name())
	}
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		all := byReason[why]
		line := fmt.Sprintf("Skipped, because %s: %s", why, strings.Join(all[:min(len(all), names)], ", "))
		if rest := len(all) - names; rest > 0 {
			line += fmt.Sprintf(" and %d more", rest)
		}
		lines = append(lines, line)
	}
	return lines
}

func (s Skipped) name() string {
	return strings.TrimSuffix(s.Namespace+"/"+workload(s.Kind, s.Workload)+"/"+s.Container, "/")
}

func cpuText(millis int64) string {
	if millis == 0 {
		return "none"
	}
	return quantity.FormatCPU(millis)
}

func memoryText(bytes int64) string {
	if bytes == 0 {
		return "none"
	}
	return quantity.FormatMemory(bytes)
}

// versus is a change in percent.
func versus(v, today float64) string {
	if today == 0 {
		return "-"
	}
	percent := math.Round((v/today-1)*1000) / 10
	if percent == 0 {
		return "0%"
	}
	return fmt.Sprintf("%+.1f%%", percent)
}

func money(v float64) string { return fmt.Sprintf("%.2f", v) }

// amount prints a number with about four digits.
func amount(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 100:
		return fmt.Sprintf("%.1f", v)
	case v >= 10:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.3f", v)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// table aligns columns, without spaces at the end of lines.
func table(b *strings.Builder, write func(line func(...string))) {
	var aligned strings.Builder
	w := tabwriter.NewWriter(&aligned, 0, 0, 3, ' ', 0)
	write(func(cells ...string) { fmt.Fprintln(w, strings.Join(cells, "\t")) })
	_ = w.Flush() // to a string
	for line := range strings.Lines(aligned.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}
