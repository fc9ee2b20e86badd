// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"

	"github.com/charmbracelet/x/ansi"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/live"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// Fleet draws several scalers, one line each. The lines from Rows on are those of the
// scalers, in their order.
func Fleet(f live.Fleet, width int, hasNamespaces bool) (lines []string, rows int) {
	p := &page{width: max(width, leastWidth)}
	p.sums(f)
	p.missing(f.Missing)
	p.blank()
	table := table(fitting(fleetColumns(f, hasNamespaces), p.width))
	for i, line := range table {
		if i == 1 {
			rows = len(p.lines)
		}
		p.add(line)
	}
	return p.lines, rows
}

// sums sums up the fleet.
func (p *page) sums(f live.Fleet) {
	acts := 0
	for _, r := range f.Rows {
		if r.Ends == explain.ByUser {
			acts++
		}
	}
	action := good.Render("none requires action")
	if acts == 1 {
		action = bad.Render("1 requires action")
	} else if acts > 1 {
		action = bad.Render(fmt.Sprintf("%d require action", acts))
	}
	number := fmt.Sprintf("%d scalers", len(f.Rows))
	if len(f.Rows) == 1 {
		number = "1 scaler"
	}
	p.ends(strong.Render(number)+", "+action, faint.Render(f.At.Format("15:04:05")))
	cpu, memory := f.Total()
	for _, r := range []live.Resource{cpu, memory} {
		if r.Request.Pods == 0 {
			continue
		}
		used := ""
		if r.Used.Pods > 0 {
			used = ", " + live.Format(r.Resource, r.Used.Total) + " used"
		}
		gaps := ""
		if r.HasTarget {
			gaps = fmt.Sprintf(", %s above the targets, %s below", live.Format(r.Resource, r.Over), live.Format(r.Resource, r.Short))
		}
		p.wrap("", fmt.Sprintf("%s %s requested%s%s", r.Resource, live.Format(r.Resource, r.Request.Total), used, gaps))
	}
}

func fleetColumns(f live.Fleet, hasNamespaces bool) []column {
	columns := []column{
		{name: "NAMESPACE", isText: true, rank: 3, shrinksTo: 12},
		{name: "NAME", isText: true, shrinksTo: 16},
		{name: "STATE", isText: true, shrinksTo: 12},
		{name: "PODS", rank: 5},
		{name: "CPU-USED", rank: 7},
		{name: "CPU-REQ", rank: 4},
		{name: "CPU-GAP", rank: 1},
		{name: "MEM-USED", rank: 8},
		{name: "MEM-REQ", rank: 6},
		{name: "MEM-GAP", rank: 2},
	}
	for _, r := range f.Rows {
		for i, cell := range []string{
			explain.Printable(r.Namespace), explain.Printable(r.Name), styleOf(r.Ends).Render(explain.Printable(r.Reason)), or(r.Pods),
			total(r.CPU.Resource, r.CPU.Used), total(r.CPU.Resource, r.CPU.Request), gap(r.CPU),
			total(r.Memory.Resource, r.Memory.Used), total(r.Memory.Resource, r.Memory.Request), gap(r.Memory),
		} {
			columns[i].cells = append(columns[i].cells, cell)
		}
	}
	if !hasNamespaces {
		return columns[1:]
	}
	return columns
}

func total(resource string, s live.Spread) string {
	if s.Pods == 0 {
		return "-"
	}
	return live.Format(resource, s.Total)
}

// gap is "+600m" for requests above the targets, "-100m" for requests below, and both if
// pods differ.
func gap(r live.Resource) string {
	switch {
	case !r.HasTarget:
		return "-"
	case r.Over > 0 && r.Short > 0:
		return "+" + live.Format(r.Resource, r.Over) + " " + bad.Render("-"+live.Format(r.Resource, r.Short))
	case r.Short > 0:
		return bad.Render("-" + live.Format(r.Resource, r.Short))
	case r.Over > 0:
		return "+" + live.Format(r.Resource, r.Over)
	}
	return "0"
}

// Select marks a line of a fleet as chosen.
func Select(line string) string { return chosen.Render(ansi.Strip(line)) }
