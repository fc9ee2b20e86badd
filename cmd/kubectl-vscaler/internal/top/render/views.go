// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/x/ansi"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

const (
	// shortestSpan is the shortest time that a strip of history shows.
	shortestSpan = time.Minute
	// mostPods is how many pods are listed. Those that use most of their requests come
	// first.
	mostPods = 10
	// widestBar and widestStrip are their widths on a wide terminal.
	widestBar   = 20
	widestStrip = 100
)

// Scaler draws a scaler and its history.
func Scaler(s snapshot.Scaler, record *snapshot.Record, width int) []string {
	p := &page{width: max(width, leastWidth)}
	p.headline(s.Explanation.Headline(s.At))
	p.title(s)
	for _, c := range s.Containers {
		p.blank()
		p.container(s, c, record)
	}
	if len(s.Containers) == 0 {
		p.blank()
		p.wrap("", "No containers are known.")
	}
	if s.UsageMissing != "" {
		p.wrap("", "No usage: "+s.UsageMissing)
	}
	p.pods(s)
	p.waits(s)
	p.changes(s)
	p.missing(s.Missing)
	return p.lines
}

func (p *page) title(s snapshot.Scaler) {
	p.ends(strong.Render(explain.Printable(s.Explanation.Namespace+"/"+s.Explanation.Name)), faint.Render(s.At.Format("15:04:05")))
	mode := fmt.Sprintf("Deployment %s, %s, profile %s", s.Explanation.Deployment, s.Explanation.Mode, s.Explanation.Profile)
	p.wrap("", mode)
	pods := ""
	if s.Explanation.Pods != "" {
		pods = "; " + strings.Replace(s.Explanation.Pods, "/", " of ", 1) + " pods at the decided size"
	}
	since := ""
	if s.Explanation.Since != nil {
		since = " for " + explain.Age(s.At, s.Explanation.Since.Time)
	}
	p.add(styleOf(s.Explanation.Ends).Render(explain.Printable(s.Explanation.Reason)) + since + pods)
}

func (p *page) container(s snapshot.Scaler, c snapshot.Container, record *snapshot.Record) {
	based := ""
	if c.ObservedSeconds > 0 {
		based = faint.Render("based on at least " + duration.HumanDuration(time.Duration(c.ObservedSeconds)*time.Second) + " of usage")
	}
	p.ends(strong.Render("CONTAINER ")+explain.Printable(c.Name), based)
	for _, line := range p.resources(c) {
		p.add(line)
	}
	for _, r := range c.Resources {
		if silent := len(s.Pods) - r.Used.Pods; silent > 0 && s.UsageMissing == "" && r.Resource == snapshot.Resources[0] {
			p.wrap("", fmt.Sprintf("No usage is known of %d of %d pods.", silent, len(s.Pods)))
		}
		if r.Unmanaged != "" {
			p.wrap("", r.Resource+" is left alone: "+r.Unmanaged)
		}
	}
	for _, r := range c.Resources {
		p.strips(c.Name, r, record, s.At)
	}
}

// resources is the table of what the pods use, request and are allowed.
func (p *page) resources(c snapshot.Container) []string {
	columns := []explain.Column{
		{},
		{Name: "USAGE", IsNumber: true},
		{Name: "REQUEST", IsNumber: true},
		{Name: "TARGET", Rank: 1, IsNumber: true},
		{Name: "LIMIT", Rank: 3, IsNumber: true},
		{Name: "LOWER..UPPER", Rank: 4, IsNumber: true},
		{Name: "ALLOWED", Rank: 5, IsNumber: true},
		{Name: "USED", Rank: 2, IsNumber: true},
	}
	isBounded := false
	for _, r := range c.Resources {
		used := "-"
		if r.Busiest.Request > 0 {
			used = percent(r.Busiest.Percent())
			if r.Busiest.Percent() > 100 {
				used = bad.Render(used)
			}
		}
		isBounded = isBounded || r.MinAllowed > 0 || r.MaxAllowed > 0
		for i, cell := range []string{
			r.Resource, or(r.Used.Range(r.Resource, "..")), or(r.Request.Range(r.Resource, "..")), some(r.Resource, r.Target), or(r.Limit.Range(r.Resource, "..")),
			between(r.Resource, r.LowerBound, r.UpperBound), between(r.Resource, r.MinAllowed, r.MaxAllowed), used,
		} {
			columns[i].Cells = append(columns[i].Cells, cell)
		}
	}
	if !isBounded {
		columns = slices.DeleteFunc(columns, func(c explain.Column) bool { return c.Name == "ALLOWED" })
	}
	columns = explain.Fitting(columns, p.width, gapOfColumns)
	hasUsed := columns[len(columns)-1].Name == "USED"
	lines := table(columns)
	room := min(widestBar, p.width-explain.TableWidth(columns, gapOfColumns)-gapOfColumns)
	if room < 5 || !hasUsed {
		return lines
	}
	for i, r := range c.Resources {
		if r.Busiest.Request > 0 {
			lines[i+1] += strings.Repeat(" ", gapOfColumns) + bar(r.Busiest.Percent(), room)
		}
	}
	return lines
}

// strips draw the history of a resource, if there is any.
func (p *page) strips(container string, r snapshot.Resource, record *snapshot.Record, to time.Time) {
	points := record.Series(container, r.Resource)
	if len(points) < 2 {
		return
	}
	name := r.Resource + " "
	label := len("memory request ")
	columns := min(widestStrip, p.width-label)
	if columns < 8 {
		return
	}
	from := to.Add(-max(shortestSpan, to.Sub(points[0].At)))
	drawn := snapshot.Columns(points, from, to, columns)
	var used, requests []int64
	most := int64(1)
	for _, at := range carried(drawn) {
		request := at.Request
		if request == snapshot.None {
			request = snapshot.Unknown // blank
		}
		used, requests = append(used, at.Used), append(requests, request)
		most = max(most, at.Used, request)
	}
	fit := func(name string) string { return name + strings.Repeat(" ", label-len(name)) }
	p.add(fit(name+"request") + strip(requests, most, nil))
	p.add(fit(name+"usage") + strip(used, most, func(i int) bool { return requests[i] != snapshot.Unknown && used[i] > requests[i] }))
	ago := "-" + duration.HumanDuration(to.Sub(from))
	scale := "full height " + explain.Format(r.Resource, most)
	axis := ago + strings.Repeat(" ", max(1, columns-len(ago)-len("now"))) + "now"
	if gap := columns - len(ago) - len("now") - len(scale); gap >= 4 {
		axis = ago + strings.Repeat(" ", gap/2) + scale + strings.Repeat(" ", gap-gap/2) + "now"
	}
	p.add(faint.Render(strings.Repeat(" ", label) + axis))
}

// carriedFor is how long a usage is drawn until the next one is known. The metrics API has
// a new one every 15 seconds to a minute.
const carriedFor = 90 * time.Second

// carried draws a usage until the next one is known, but not for long.
func carried(columns []snapshot.Point) []snapshot.Point {
	last := snapshot.Point{Used: snapshot.Unknown}
	for i, c := range columns {
		switch {
		case c.Used != snapshot.Unknown:
			last = c
		case last.Used != snapshot.Unknown && c.At.Sub(last.At) <= carriedFor:
			columns[i].Used = last.Used
		}
	}
	return columns
}

// pods is the table of pods, those first that use most of a request.
func (p *page) pods(s snapshot.Scaler) {
	if len(s.Pods) == 0 {
		return
	}
	pods := slices.Clone(s.Pods)
	slices.SortStableFunc(pods, func(a, b snapshot.Pod) int { return cmp.Compare(pressure(b), pressure(a)) })
	columns := []explain.Column{
		{Name: "POD", ShrinksTo: 12, KeepsEnd: true},
		{Name: "READY", Rank: 2},
		{Name: "CONTAINER", Rank: 3},
		{Name: "CPU", IsNumber: true},
		{Name: "MEMORY", IsNumber: true},
		{Name: "RESIZE", Rank: 1},
		{Name: "OOM-KILLS", Rank: 4, IsNumber: true},
	}
	for _, pod := range pods[:min(len(pods), mostPods)] {
		for i, c := range pod.Containers {
			cells := []string{explain.Printable(pod.Name), yes(pod.Ready), c.Name, useOf(snapshot.Resources[0], c), useOf(snapshot.Resources[1], c), resize(pod, c), fmt.Sprint(pod.OOMKills)}
			if i > 0 {
				cells[0], cells[1], cells[6] = "", "", ""
			}
			for i, cell := range cells {
				columns[i].Cells = append(columns[i].Cells, cell)
			}
		}
	}
	if len(s.Containers) < 2 {
		columns = slices.Delete(columns, 2, 3)
	}
	p.blank()
	for _, line := range table(explain.Fitting(columns, p.width, gapOfColumns)) {
		p.add(line)
	}
	if more := len(pods) - mostPods; more > 0 {
		p.add(fmt.Sprintf("and %d more pods, which use less of their requests", more))
	}
}

// pressure is the largest share of a request that a pod uses, in percent.
func pressure(pod snapshot.Pod) (most float64) {
	for _, c := range pod.Containers {
		if c.Used == nil {
			continue
		}
		for _, resource := range snapshot.Resources {
			share := snapshot.Share{Used: explain.AmountOf(resource, *c.Used), Request: explain.AmountOf(resource, c.Applied.Requests)}
			most = max(most, share.Percent())
		}
	}
	return most
}

// useOf is usage and request, such as "41m/187m".
func useOf(resource string, c snapshot.PodContainer) string {
	used := "-"
	if c.Used != nil {
		used = explain.Format(resource, explain.AmountOf(resource, *c.Used))
	}
	return used + "/" + some(resource, explain.AmountOf(resource, c.Applied.Requests))
}

// resize is the state of the pod's resize. Without a report of the kubelet, it follows from
// what is declared and applied.
func resize(pod snapshot.Pod, c snapshot.PodContainer) string {
	switch {
	case pod.Resize == "Infeasible" || pod.Resize == "Failed":
		return bad.Render(pod.Resize)
	case pod.Resize != "":
		return soon.Render(pod.Resize)
	case c.Declared != c.Applied:
		return soon.Render("Requested")
	}
	return "-"
}

// waits says what the scaler waits for, and what to do about it.
func (p *page) waits(s snapshot.Scaler) {
	waits := s.Waits()
	if len(waits) == 0 {
		return
	}
	p.blank()
	p.add(strong.Render("WAITS FOR"))
	for _, f := range waits {
		since := ""
		if f.Since != nil {
			since = " for " + explain.Age(s.At, f.Since.Time)
		}
		p.add(styleOf(f.Ends).Render(explain.Printable(f.Reason.Reason)) + since)
		p.wrap("  ", cmp.Or(f.Message, f.Means))
		p.wrap("  ", f.Advice)
	}
}

func (p *page) changes(s snapshot.Scaler) {
	if len(s.Explanation.History) == 0 {
		return
	}
	p.blank()
	p.add(strong.Render("LAST CHANGES"))
	for _, change := range s.Explanation.History {
		p.wrap(fmt.Sprintf("%6s ago  ", explain.Age(s.At, change.Time.Time)), change.Message)
	}
}

func (p *page) missing(what []string) {
	if len(what) == 0 {
		return
	}
	p.blank()
	p.add(strong.Render("NOT INCLUDED"))
	for _, m := range what {
		p.wrap("  ", m)
	}
}

// between is "100m..1000m", with an open end for none.
func between(resource string, least, most int64) string {
	if least == 0 && most == 0 {
		return "-"
	}
	text := ".."
	if least > 0 {
		text = explain.Format(resource, least) + text
	}
	if most > 0 {
		text += explain.Format(resource, most)
	}
	return text
}

// some is an amount, or a dash for 0.
func some(resource string, amount int64) string {
	if amount == 0 {
		return "-"
	}
	return explain.Format(resource, amount)
}

func percent(v float64) string { return fmt.Sprintf("%.0f%%", v) }

func yes(is bool) string {
	if is {
		return "yes"
	}
	return bad.Render("no")
}

// Faint is text in the background.
func Faint(text string) string { return faint.Render(text) }

// Bad is text about a failure.
func Bad(text string) string { return bad.Render(text) }

// Cut cuts lines to a width, for text of others.
func Cut(line string, width int) string {
	return ansi.Truncate(explain.Printable(line), max(1, width), "…")
}

// Table draws several scalers, one line each. The lines of the scalers begin at rows, in their order.
func Table(f snapshot.Table, width int, hasNamespaces bool) (lines []string, rows int) {
	p := &page{width: max(width, leastWidth)}
	p.sums(f)
	p.missing(f.Missing)
	p.blank()
	table := table(explain.Fitting(fleetColumns(f, hasNamespaces), p.width, gapOfColumns))
	for i, line := range table {
		if i == 1 {
			rows = len(p.lines)
		}
		p.add(line)
	}
	return p.lines, rows
}

// headline adds a line that requires action, unless it is empty.
func (p *page) headline(line string) {
	for _, part := range wrapped(explain.Printable(line), p.width) {
		if part != "" {
			p.add(bad.Render(part))
		}
	}
}

// sums sums up the fleet. Objects that require action and are not scalers have no line of their own below.
func (p *page) sums(f snapshot.Table) {
	overview := f.Overview()
	for _, line := range overview.Headlines(f.At) {
		p.headline(line)
	}
	p.ends(strong.Render(overview.Tally().String()), faint.Render(f.At.Format("15:04:05")))
	for _, line := range overview.Actions() {
		p.headline(line)
	}
	cpu, memory := f.Total()
	for _, r := range []snapshot.Resource{cpu, memory} {
		if r.Request.Pods == 0 {
			continue
		}
		used := ""
		if r.Used.Pods > 0 {
			used = ", " + snapshot.Units(r.Resource, r.Used.Total) + " used"
		}
		gaps := ""
		if r.HasTarget {
			gaps = fmt.Sprintf(", %s above the targets, %s below", snapshot.Units(r.Resource, r.Over), snapshot.Units(r.Resource, r.Short))
		}
		p.wrap("", fmt.Sprintf("%s in %s: %s requested%s%s", r.Resource, snapshot.Unit(r.Resource), snapshot.Units(r.Resource, r.Request.Total), used, gaps))
	}
}

func fleetColumns(f snapshot.Table, hasNamespaces bool) []explain.Column {
	columns := []explain.Column{
		{Name: "NAMESPACE", Rank: 3, ShrinksTo: 12},
		{Name: "NAME", ShrinksTo: 16},
		{Name: "STATE"},
		{Name: "PODS", Rank: 5, IsNumber: true},
		{Name: "CPU-USED", Rank: 7, IsNumber: true},
		{Name: "CPU-REQ", Rank: 4, IsNumber: true},
		{Name: "CPU-GAP", Rank: 1, IsNumber: true},
		{Name: "MEM-USED", Rank: 8, IsNumber: true},
		{Name: "MEM-REQ", Rank: 6, IsNumber: true},
		{Name: "MEM-GAP", Rank: 2, IsNumber: true},
	}
	for _, r := range f.Rows {
		for i, cell := range []string{
			explain.Printable(r.Namespace), explain.Printable(r.Name), styleOf(r.Ends).Render(explain.Printable(r.Reason)), or(r.Pods),
			total(r.CPU.Resource, r.CPU.Used), total(r.CPU.Resource, r.CPU.Request), gap(r.CPU),
			total(r.Memory.Resource, r.Memory.Used), total(r.Memory.Resource, r.Memory.Request), gap(r.Memory),
		} {
			columns[i].Cells = append(columns[i].Cells, cell)
		}
	}
	if !hasNamespaces {
		return columns[1:]
	}
	return columns
}

func total(resource string, s snapshot.Spread) string {
	if s.Pods == 0 {
		return "-"
	}
	return explain.Format(resource, s.Total)
}

// gap is "+600m" for requests above the targets, "-100m" for requests below, and both if
// pods differ.
func gap(r snapshot.Resource) string {
	switch {
	case !r.HasTarget:
		return "-"
	case r.Over > 0 && r.Short > 0:
		return "+" + explain.Format(r.Resource, r.Over) + " " + bad.Render("-"+explain.Format(r.Resource, r.Short))
	case r.Short > 0:
		return bad.Render("-" + explain.Format(r.Resource, r.Short))
	case r.Over > 0:
		return "+" + explain.Format(r.Resource, r.Over)
	}
	return "0"
}

// Select marks a line of a fleet as chosen.
func Select(line string) string { return chosen.Render(ansi.Strip(line)) }
