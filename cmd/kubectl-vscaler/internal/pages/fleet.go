// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/live"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

// Fleet is what the overview shows.
type Fleet = live.Fleet

const (
	// mostRows limits the table. A page with more is slow, and nobody reads it.
	mostRows = 500
	// mostOffenders is the length of the lists of those that waste or lack the most.
	mostOffenders = 5
)

// choice is what the reader has chosen to see of the fleet.
type choice struct {
	Text, Namespace, State string
	Order                  live.Order
}

// choiceOf reads the query of an address. Nonsense in it means no choice.
func choiceOf(q url.Values) choice {
	c := choice{Text: q.Get("text"), Namespace: q.Get("namespace"), State: q.Get("state"), Order: live.Order(q.Get("order"))}
	if !slices.Contains(live.Orders, c.Order) {
		c.Order = live.Orders[0]
	}
	return c
}

func (c choice) includes(r live.Row) bool {
	return (c.Namespace == "" || c.Namespace == r.Namespace) && (c.State == "" || c.State == r.Reason) &&
		(c.Text == "" || strings.Contains(r.Namespace+"/"+r.Name+" "+r.Deployment, c.Text))
}

// overview is the view of a fleet.
type overview struct {
	choice
	Base       string
	Orders     []orderView
	Namespaces []string
	Scalers    int
	NotReady   int
	NeedUser   int
	Saved      *explain.Saved
	// CPU and Memory are the sums of all scalers.
	CPU, Memory sumView
	Parts       []partView
	States      []stateView
	Wasting     []offender
	Lacking     []offender
	Rows        []rowView
	// Chosen is the number of rows that match the choice, of which Rows are the first.
	Chosen  int
	Missing []string
}

type orderView struct {
	live.Order
	Text string
}

var orderTexts = map[live.Order]string{
	live.ByGap: "furthest from the target", live.ByWaste: "most above the target", live.ByLack: "most below the target", live.ByName: "name",
}

// sumView is a resource of all scalers. A text is empty if the amount is not known.
type sumView struct {
	Used, Request, Over, Short string
	// UsedPercent is the share of the requests that is used: 0 to 100, and more.
	UsedPercent float64
}

// partView is a part of the bar of states: those of one kind of End.
type partView struct {
	Class, Text string
	Count       int
	X, Width    float64 // of 100
}

type stateView struct {
	Reason, Means, Class string
	Count                int
}

type offender struct {
	rowView
	Text string
}

type rowView struct {
	live.Row
	Link        string
	Class       string
	Changed     string
	CPU, Memory usedView
}

// usedView is a cell that compares usage with the request.
type usedView struct {
	Text, Used string
	// Percent is the length of the bar: 0 to 100.
	Percent float64
	IsKnown bool
	IsAbove bool
	// SilentPods is the number of pods with a request and without usage.
	SilentPods int
}

func fleetView(f Fleet, c choice, base string, now time.Time) overview {
	f.Rows = slices.Clone(f.Rows) // the source may keep its own
	out := overview{choice: c, Base: base, Scalers: len(f.Rows), Missing: f.Missing}
	for _, order := range live.Orders {
		out.Orders = append(out.Orders, orderView{order, orderTexts[order]})
	}
	cpu, memory := f.Total()
	out.CPU, out.Memory = sumOf(cpu), sumOf(memory)
	out.count(f.Rows)

	f.Sort(live.ByWaste)
	out.Wasting = offenders(f.Rows, base, now, func(r live.Resource) int64 { return r.Over })
	f.Sort(live.ByLack)
	out.Lacking = offenders(f.Rows, base, now, func(r live.Resource) int64 { return r.Short })
	f.Sort(c.Order)
	for _, r := range f.Rows {
		if !c.includes(r) {
			continue
		}
		if out.Chosen++; out.Chosen <= mostRows {
			out.Rows = append(out.Rows, rowOf(r, base, now))
		}
	}
	return out
}

// count counts the scalers by state, and adds up what they save.
func (o *overview) count(rows []live.Row) {
	ends := map[explain.End]int{}
	for _, r := range rows {
		ends[r.Ends]++
		if r.Ready != metav1.ConditionTrue {
			o.NotReady++
		}
		if !slices.Contains(o.Namespaces, r.Namespace) {
			o.Namespaces = append(o.Namespaces, r.Namespace)
		}
		if r.Saved != nil {
			if o.Saved == nil {
				o.Saved = &explain.Saved{}
			}
			o.Saved.Cores, o.Saved.GiB = o.Saved.Cores+r.Saved.Cores, o.Saved.GiB+r.Saved.GiB
		}
		i := slices.IndexFunc(o.States, func(s stateView) bool { return s.Reason == r.Reason })
		if i < 0 {
			known, _ := explain.ReasonFor(r.Reason)
			i, o.States = len(o.States), append(o.States, stateView{Reason: r.Reason, Means: known.Means, Class: classOf(r.Ends)})
		}
		o.States[i].Count++
	}
	slices.Sort(o.Namespaces)
	slices.SortFunc(o.States, func(a, b stateView) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	o.NeedUser = ends[explain.ByUser]
	x := 0.0
	for _, end := range []explain.End{explain.Fine, explain.ByItself, explain.ByUser} {
		if n := ends[end]; n > 0 {
			width := 100 * float64(n) / float64(len(rows))
			o.Parts = append(o.Parts, partView{Class: classOf(end), Text: endTexts[end], Count: n, X: x, Width: width})
			x += width
		}
	}
}

var endTexts = map[explain.End]string{
	explain.Fine: "need no action", explain.ByItself: "resolve by themselves", explain.ByUser: "need a user",
}

// classOf is the class of a state's color.
func classOf(end explain.End) string {
	switch end {
	case explain.Fine:
		return "fine"
	case explain.ByItself:
		return "moving"
	case explain.ByUser:
	}
	return "blocked"
}

func sumOf(r live.Resource) (out sumView) {
	if r.Request.Pods > 0 {
		out.Request = amountOf(r.Resource, r.Request.Total)
	}
	if r.Used.Pods > 0 {
		out.Used = amountOf(r.Resource, r.Used.Total)
		if r.Request.Total > 0 {
			out.UsedPercent = 100 * float64(r.Used.Total) / float64(r.Request.Total)
		}
	}
	if r.Over > 0 {
		out.Over = amountOf(r.Resource, r.Over)
	}
	if r.Short > 0 {
		out.Short = amountOf(r.Resource, r.Short)
	}
	return out
}

// amountOf is an amount of many pods.
func amountOf(resource string, amount int64) string {
	if resource == recommend.CPU {
		return fmt.Sprintf("%.2f cores", float64(amount)/1000)
	}
	return live.Format(resource, amount)
}

// offenders are the first rows, which are sorted, as far as they have an amount.
func offenders(rows []live.Row, base string, now time.Time, amount func(live.Resource) int64) (out []offender) {
	for _, r := range rows {
		var texts []string
		for _, of := range []live.Resource{r.CPU, r.Memory} {
			if n := amount(of); n > 0 {
				texts = append(texts, live.Format(of.Resource, n)+" "+word(of.Resource))
			}
		}
		if len(texts) == 0 || len(out) == mostOffenders {
			break
		}
		out = append(out, offender{rowView: rowOf(r, base, now), Text: strings.Join(texts, ", ")})
	}
	return out
}

func rowOf(r live.Row, base string, now time.Time) rowView {
	out := rowView{
		Row: r, Link: base + "scalers/" + r.Namespace + "/" + r.Name, Class: classOf(r.Ends),
		CPU: usedOf(r.CPU, r.Row.CPU), Memory: usedOf(r.Memory, r.Row.Memory),
	}
	if r.Changed != nil {
		out.Changed = ago(now, r.Changed.Time)
	}
	return out
}

func usedOf(r live.Resource, text string) usedView {
	out := usedView{Text: text}
	if r.Used.Pods == 0 || r.Request.Total == 0 {
		return out
	}
	percent := 100 * float64(r.Used.Total) / float64(r.Request.Total)
	out.IsKnown, out.IsAbove, out.Percent = true, percent > 100, min(percent, 100)
	out.Used, out.SilentPods = live.Format(r.Resource, r.Used.Total), max(0, r.Request.Pods-r.Used.Pods)
	return out
}
