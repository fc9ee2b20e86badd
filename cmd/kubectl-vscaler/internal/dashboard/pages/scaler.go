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

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

// Span is the time that the plots show.
type Span string

const (
	// Live is the time since the page was opened first: at most LiveLength.
	Live Span = "live"
	// Day is the last day, and Week the last 8 days. Both need Prometheus.
	Day Span = "day"
	// Week is as long as the memory peaks that a recommendation is based on.
	Week Span = "week"
)

// LiveLength is the longest time that a plot of Live shows, and leastLength the shortest.
const (
	LiveLength  = 15 * time.Minute
	leastLength = 2 * time.Minute
	// liveColumn is longer than the interval of the readings, so that no column is empty.
	liveColumn = 15 * time.Second
)

// Spans are all spans, the default first.
var Spans = []Span{Live, Day, Week}

// Text is the name of the span on the page.
func (s Span) Text() string { return map[Span]string{Live: "Live", Day: "1 day", Week: "8 days"}[s] }

// Length is how long the span is, and Step the resolution of its points. A span of the past is
// read from Prometheus.
func (s Span) Length() (length, step time.Duration) {
	switch s {
	case Day:
		return 24 * time.Hour, 5 * time.Minute
	case Week:
		return 8 * 24 * time.Hour, time.Hour
	case Live:
	}
	return LiveLength, liveColumn
}

// spanOf reads the query of an address. Nonsense in it means the default.
func spanOf(q url.Values) Span {
	if s := Span(q.Get("span")); slices.Contains(Spans, s) {
		return s
	}
	return Live
}

// Details is the content of the page of one scaler.
type Details struct {
	snapshot.Scaler
	// Span is the span of the points, and HasPast says that others than Live can be read.
	Span    Span
	HasPast bool
	// Past says what Prometheus knows of the past.
	Past Past
	// Record has the points.
	Record snapshot.Record
}

// Past lists the data about the past that Prometheus has besides usage.
type Past struct{ HasRequests, HasLimits bool }

// Note says where the requests and limits of a plot are from.
func (d Details) Note() string {
	const since = "since the page was opened, or since the last decision was applied."
	switch {
	case !d.HasPast:
		return "Plots begin when the page is first opened. Start the command with --prometheus to see the last 8 days, and a backtest."
	case d.Span == Live:
		return ""
	case d.Past.HasLimits:
		return "Requests and limits of the past come from the specs of the pods, from kube-state-metrics."
	case d.Past.HasRequests:
		return "Requests of the past are from the operator's metrics. Prometheus has none of kube-state-metrics, so limits are known " + since
	}
	return "Prometheus has usage only: requests and limits are known " + since
}

// ResourceView is a resource of a container on the page.
type ResourceView struct {
	explain.Resource
	ID    string
	Plot  plot
	Facts []fact
}

// fact is a line of the table of a resource.
type fact struct{ Name, Value, Note string }

// Show is the view of a resource, by its place in the explanation.
func (d Details) Show(container, resource int) ResourceView {
	c := d.Explanation.Containers[container]
	r := c.Resources[resource]
	var now snapshot.Resource
	if container < len(d.Containers) && resource < len(d.Containers[container].Resources) {
		now = d.Containers[container].Resources[resource]
	}
	in := plotInput{
		id: fmt.Sprintf("c%d-%s", container, r.Resource), resource: r.Resource, span: d.Span, at: d.At,
		points: d.Record.Series(c.Name, r.Resource), target: r.Target.Value(), lower: r.LowerBound.Value(), upper: r.UpperBound.Value(),
	}
	for _, h := range d.Explanation.History {
		in.marks = append(in.marks, h.Time.Time)
	}
	return ResourceView{r, in.id, plotOf(in), factsOf(r, now, len(d.Pods))}
}

// factsOf are the numbers of a resource, as far as they are known.
func factsOf(r explain.Resource, now snapshot.Resource, pods int) (facts []fact) {
	add := func(name, value, note string) {
		if value != "" {
			facts = append(facts, fact{name, value, note})
		}
	}
	note := ""
	if now.Busiest.Request > 0 {
		note = fmt.Sprintf("at most %.0f %% of its request, by %s", now.Busiest.Percent(), now.Busiest.Pod)
	}
	if silent := pods - now.Used.Pods; silent > 0 && now.Used.Pods > 0 {
		note += fmt.Sprintf("; unknown for %d of %d pods", silent, pods)
	}
	add("Usage of a pod", now.Used.Range(r.Resource, " to "), note)
	add("Request of a pod", now.Request.Range(r.Resource, " to "), "")
	add("Limit of a pod", now.Limit.Range(r.Resource, " to "), "")
	add("Target", text(r.Target), "")
	if r.LowerBound != nil && r.UpperBound != nil {
		add("Bounds", r.LowerBound.String()+" to "+r.UpperBound.String(), "requests between them stay")
	}
	add("Decided", text(r.Decided), "")
	add("Allowed", r.Allowed(), "by the policy")
	span, name := r.AllowedByLimitRange()
	add("Allowed", span, "by "+name)
	if r.Template != nil {
		add("In the pod template", cmp.Or(text(r.Template.Request), "none"), "limit "+cmp.Or(text(r.Template.Limit), "none"))
	}
	return facts
}

// cell is a resource of a container of a pod.
type cell struct{ Container, Resource, Used, Request, Limit string }

func cellsOf(p snapshot.Pod) (cells []cell) {
	for _, c := range p.Containers {
		for _, resource := range snapshot.Resources {
			out := cell{c.Name, word(resource), "unknown", "none", "none"}
			if c.Used != nil {
				out.Used = explain.Format(resource, explain.AmountOf(resource, *c.Used))
			}
			if n := explain.AmountOf(resource, c.Applied.Requests); n > 0 {
				out.Request = explain.Format(resource, n)
				if declared := explain.AmountOf(resource, c.Declared.Requests); declared != n {
					out.Request += " (" + explain.Format(resource, declared) + " wanted)"
				}
			}
			if n := explain.AmountOf(resource, c.Applied.Limits); n > 0 {
				out.Limit = explain.Format(resource, n)
			}
			cells = append(cells, out)
		}
	}
	return cells
}

func text(a *explain.Amount) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// word is the name of a resource in a text.
func word(resource string) string {
	if resource == recommend.CPU {
		return "CPU"
	}
	return "memory"
}

// seconds is a number of seconds in words.
func seconds(n any) string {
	length, _ := time.ParseDuration(fmt.Sprintf("%ds", n)) // any integer can be parsed
	return duration.HumanDuration(length)
}

// sentence begins with a capital letter and ends with a period.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}
