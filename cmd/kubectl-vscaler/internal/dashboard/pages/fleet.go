// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

// mostRows limits the table: a page with more is slow.
const mostRows = 500

// choice is the reader's selection of the fleet. State is a reason or a kind of End.
type choice struct {
	Text, Namespace, State string
	Order                  snapshot.Order
}

// choiceOf reads the query of an address. Nonsense in it means no choice.
func choiceOf(q url.Values) choice {
	c := choice{Text: q.Get("text"), Namespace: q.Get("namespace"), State: q.Get("state"), Order: snapshot.Order(q.Get("order"))}
	if !slices.Contains(snapshot.Orders, c.Order) {
		c.Order = snapshot.Orders[0]
	}
	return c
}

func (c choice) includes(r snapshot.Row) bool {
	return (c.Namespace == "" || c.Namespace == r.Namespace) && (c.State == "" || c.State == r.Reason || c.State == string(r.Ends)) &&
		(c.Text == "" || strings.Contains(r.Namespace+"/"+r.Name+" "+r.Deployment, c.Text))
}

// overview is the view of a fleet. Its rows are the first of the Chosen ones that match the choice.
type overview struct {
	choice
	snapshot.Table
	Orders     []snapshot.Order
	Namespaces []string
	Chosen     int
	explain.Tally
	// Headlines are messages about more than one object, and Actions are the ScaledDeployments and policies that require
	// action.
	Headlines, Actions []string
	Saved              *explain.Saved
	// Known is the number of scalers in Saved.
	Known int
	// CPU and Memory are the sums of all scalers.
	CPU, Memory snapshot.Resource
	Parts       []part
	States      []state
}

// part is a part of the bar of states: those of one kind of End. X and Width are in percent.
type part struct {
	Ends     explain.End
	Count    int
	X, Width float64
}

type state struct {
	Reason, Means string
	Ends          explain.End
	Count         int
}

func fleetView(f snapshot.Table, c choice) overview {
	f.Rows = slices.Clone(f.Rows) // the source may keep its own
	all := f.Overview()
	out := overview{choice: c, Table: f, Orders: snapshot.Orders, Tally: all.Tally(), Headlines: all.Headlines(f.At), Actions: all.Actions()}
	out.CPU, out.Memory = f.Total()
	out.count()
	f.Sort(c.Order)
	f.Rows = slices.DeleteFunc(f.Rows, func(r snapshot.Row) bool { return !c.includes(r) })
	out.Chosen, out.Rows = len(f.Rows), f.Rows[:min(len(f.Rows), mostRows)]
	return out
}

// count counts the scalers by state, and adds up what they save.
func (o *overview) count() {
	ends := map[explain.End]int{}
	for _, r := range o.Rows {
		ends[r.Ends]++
		if !slices.Contains(o.Namespaces, r.Namespace) {
			o.Namespaces = append(o.Namespaces, r.Namespace)
		}
		if r.Saved != nil {
			if o.Saved == nil {
				o.Saved = &explain.Saved{}
			}
			o.Known++
			o.Saved.Cores, o.Saved.GiB = o.Saved.Cores+r.Saved.Cores, o.Saved.GiB+r.Saved.GiB
		}
		i := slices.IndexFunc(o.States, func(s state) bool { return s.Reason == r.Reason })
		if i < 0 {
			known, _ := explain.ReasonFor(r.Reason)
			i, o.States = len(o.States), append(o.States, state{Reason: r.Reason, Means: known.Means, Ends: r.Ends})
		}
		o.States[i].Count++
	}
	slices.Sort(o.Namespaces)
	slices.SortFunc(o.States, func(a, b state) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	x := 0.0
	for _, end := range []explain.End{explain.Fine, explain.ByItself, explain.ByUser} {
		if n := ends[end]; n > 0 {
			width := 100 * float64(n) / float64(o.Scalers)
			o.Parts = append(o.Parts, part{end, n, x, width})
			x += width
		}
	}
}

// ending is the appearance of a kind of End: the class of its color, and its name.
type ending struct{ Class, Text, Resolved string }

func endingOf(end explain.End) ending {
	switch end {
	case explain.Fine:
		return ending{"fine", "No action needed", ""}
	case explain.ByItself:
		return ending{"moving", "Resolved by itself", "by itself"}
	case explain.ByUser:
		return ending{"blocked", "Action required", "by a user"}
	}
	return ending{Class: "blocked"}
}

// grade is the appearance of a severity: the class of its color, a word, and its meaning.
type grade struct{ Class, Text, Means string }

func gradeOf(s snapshot.Severity) grade {
	return map[snapshot.Severity]grade{
		snapshot.FarTooLow: {"blocked", "far too low", fmt.Sprintf("more than %d %% below the target", snapshot.FarTooLowPercent)},
		snapshot.TooLow:    {"warning", "too low", fmt.Sprintf("more than %d %% below", snapshot.TooLowPercent)},
		snapshot.TooHigh:   {"warning", "too high", fmt.Sprintf("more than %d %% above", snapshot.TooHighPercent)},
		snapshot.OnTarget:  {"fine", "ok", "closer to the target"},
	}[s]
}

// orderText describes an order.
func orderText(order snapshot.Order) string {
	return map[snapshot.Order]string{
		snapshot.ByGap: "furthest from the target", snapshot.ByWaste: "most above the target", snapshot.ByLack: "most below the target", snapshot.ByName: "name",
	}[order]
}

// savings is how much less, or more, is requested.
func savings(s explain.Saved) string {
	part := func(v float64, unit string) string {
		word := "less"
		if v < 0 {
			v, word = -v, "more"
		}
		return fmt.Sprintf("%.2f %s %s", v, unit, word)
	}
	return part(s.Cores, "cores") + ", " + part(s.GiB, "GiB")
}

// amounts are two amounts of many pods; "none" without any.
func amounts(cpu, memory int64) string {
	parts := slices.DeleteFunc([]string{amountOf(recommend.CPU, cpu), amountOf(recommend.Memory, memory)}, func(s string) bool { return s == "" })
	return cmp.Or(strings.Join(parts, ", "), "none")
}

// amountOf is an amount of many pods; empty for 0.
func amountOf(resource string, amount int64) string {
	if amount == 0 {
		return ""
	}
	return snapshot.Units(resource, amount) + " " + snapshot.Unit(resource)
}

// usedPercent is how much of the requests is used, in percent: 0 without requests, and "?" without usage.
func usedPercent(r snapshot.Resource) string {
	if r.Used.Pods == 0 {
		return "?"
	}
	return fmt.Sprintf("%.0f %%", snapshot.Share{Used: r.Used.Total, Request: r.Request.Total}.Percent())
}

// usedView is a cell that compares usage with the request.
type usedView struct {
	Used string
	// Percent is the length of the bar: 0 to 100.
	Percent          float64
	IsKnown, IsAbove bool
	// SilentPods is the number of pods with a request and without usage.
	SilentPods int
}

func usedOf(r snapshot.Resource) (out usedView) {
	if r.Used.Pods == 0 || r.Request.Total == 0 {
		return out
	}
	percent := snapshot.Share{Used: r.Used.Total, Request: r.Request.Total}.Percent()
	return usedView{explain.Format(r.Resource, r.Used.Total), min(percent, 100), true, percent > 100, max(0, r.Request.Pods-r.Used.Pods)}
}
