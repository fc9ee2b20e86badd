// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/live"
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

var spanTexts = map[Span]string{Live: "Live", Day: "1 day", Week: "8 days"}

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

// Details is what the page of one scaler shows.
type Details struct {
	live.Scaler
	// Span is the span of the points, and HasPast says that others than Live can be read.
	Span    Span
	HasPast bool
	// Past says what Prometheus knows of the past.
	Past Past
	// Points are the points of a resource of a container.
	Points func(container, resource string) []live.Point
}

// Past is what Prometheus knows of the past, beside usage.
type Past struct{ HasRequests, HasLimits bool }

// note says where the requests and limits of a plot are from.
func (d Details) note() string {
	const since = "since the page was opened, or since the last decision was applied."
	switch {
	case !d.HasPast:
		return "Plots begin when the page is first opened. Start the command with --prometheus to see the last 8 days, and a backtest."
	case d.Span == Live:
		return ""
	case d.Past.HasLimits:
		return "Requests and limits of the past are those in the specs of the pods, from kube-state-metrics."
	case d.Past.HasRequests:
		return "Requests of the past are from the operator's metrics. Prometheus has none of kube-state-metrics, so limits are known " + since
	}
	return "Prometheus has usage only: requests and limits are known " + since
}

// scalerPage is the view of a scaler.
type scalerPage struct {
	live.Scaler
	Link       string
	Class      string
	HasPast    bool
	Note       string
	Spans      []spanView
	Findings   []findingView
	Decision   string
	Cooldown   string
	Containers []containerView
	Pods       []podView
	Changes    []changeView
	Missing    []string
}

type spanView struct {
	Span      Span
	Text      string
	IsCurrent bool
}

type findingView struct {
	explain.Finding
	Class, Since, Resolved string
}

type containerView struct {
	Name, Observed string
	Resources      []resourceView
}

type resourceView struct {
	ID, Container, Resource, Word string
	Unmanaged                     string
	Plot                          plot
	Facts                         []fact
	Steps                         []stepView
	// Disagrees is true if the steps do not result in the target.
	Disagrees    bool
	Rule         string
	Developments []string
}

// fact is a line of the table of a resource.
type fact struct{ Name, Value, Note string }

type stepView struct{ Value, Means, Code string }

type podView struct {
	live.Pod
	Cells []podCell
}

type podCell struct{ Used, Request, Limit, Container, Resource string }

type changeView struct{ Ago, At, Message string }

func scalerView(d Details, base string, now time.Time) scalerPage {
	x := d.Explanation
	out := scalerPage{
		Scaler: d.Scaler, Link: base + "scalers/" + x.Namespace + "/" + x.Name, Class: classOf(d.State.Ends),
		HasPast: d.HasPast, Note: d.note(), Missing: d.Missing,
	}
	if d.UsageMissing != "" {
		out.Missing = append([]string{"Usage: " + d.UsageMissing}, out.Missing...)
	}
	for _, span := range Spans {
		if span == Live || d.HasPast {
			out.Spans = append(out.Spans, spanView{span, spanTexts[span], span == d.Span})
		}
	}
	for _, f := range x.Findings {
		view := findingView{Finding: f, Class: classOf(f.Ends)}
		if f.Since != nil {
			view.Since = "for " + age(now, f.Since.Time)
		}
		switch f.Ends {
		case explain.ByItself:
			view.Resolved = "by itself"
		case explain.ByUser:
			view.Resolved = "by a user"
		case explain.Fine:
		}
		out.Findings = append(out.Findings, view)
	}
	if decision := x.Decision; decision != nil {
		out.Decision = fmt.Sprintf("The sizes were decided %s, because %s (%s).", ago(now, decision.Time.Time), decision.Means, decision.Cause.Cause)
	}
	if x.CooldownSeconds > 0 {
		out.Cooldown = duration.HumanDuration(time.Duration(x.CooldownSeconds) * time.Second)
	}
	for i, c := range x.Containers {
		view := containerView{Name: c.Name}
		if c.ObservedSeconds > 0 {
			view.Observed = duration.HumanDuration(time.Duration(c.ObservedSeconds) * time.Second)
		}
		for j, r := range c.Resources {
			view.Resources = append(view.Resources, resourceOf(d, fmt.Sprintf("c%d-%s", i, r.Resource), c.Name, r, used(d.Scaler, i, j)))
		}
		out.Containers = append(out.Containers, view)
	}
	for _, p := range d.Pods {
		out.Pods = append(out.Pods, podOf(p))
	}
	for _, h := range x.History {
		out.Changes = append(out.Changes, changeView{ago(now, h.Time.Time), h.Time.Local().Format("Jan 2 15:04:05"), h.Message})
	}
	return out
}

// used is what the pods use of a resource. Both lists are of the same explanation.
func used(s live.Scaler, container, resource int) live.Resource {
	if container >= len(s.Containers) || resource >= len(s.Containers[container].Resources) {
		return live.Resource{}
	}
	return s.Containers[container].Resources[resource]
}

func resourceOf(d Details, id, container string, r explain.Resource, now live.Resource) resourceView {
	out := resourceView{
		ID: id, Container: container, Resource: r.Resource, Word: word(r.Resource), Unmanaged: r.Unmanaged,
		Disagrees: !r.Agrees, Facts: factsOf(r, now, len(d.Pods)), Rule: r.Rule(), Developments: r.Developments(d.At),
	}
	marks := make([]time.Time, 0, len(d.Explanation.History))
	for _, h := range d.Explanation.History {
		marks = append(marks, h.Time.Time)
	}
	var points []live.Point
	if d.Points != nil {
		points = d.Points(container, r.Resource)
	}
	out.Plot = plotOf(plotInput{
		id: id, resource: r.Resource, span: d.Span, points: points, marks: marks, at: d.At,
		target: r.Target.Value(), lower: r.LowerBound.Value(), upper: r.UpperBound.Value(),
	})
	for _, s := range r.Steps {
		view := stepView{Value: "?", Means: s.InWords(), Code: s.Code}
		if s.Value != nil {
			view.Value = s.Value.String()
		}
		out.Steps = append(out.Steps, view)
	}
	return out
}

// factsOf are the numbers of a resource, as far as they are known.
func factsOf(r explain.Resource, now live.Resource, pods int) (facts []fact) {
	add := func(name, value, note string) {
		if value != "" {
			facts = append(facts, fact{name, value, note})
		}
	}
	used, note := spread(r.Resource, now.Used), ""
	if now.Busiest.Request > 0 {
		note = fmt.Sprintf("at most %.0f %% of its request, by %s", now.Busiest.Percent(), now.Busiest.Pod)
	}
	if silent := pods - now.Used.Pods; silent > 0 && now.Used.Pods > 0 {
		note += fmt.Sprintf("; unknown for %d of %d pods", silent, pods)
	}
	add("Usage of a pod", used, note)
	add("Request of a pod", spread(r.Resource, now.Request), "")
	add("Limit of a pod", spread(r.Resource, now.Limit), "")
	add("Target", text(r.Target), "")
	if r.LowerBound != nil && r.UpperBound != nil {
		add("Bounds", r.LowerBound.String()+" to "+r.UpperBound.String(), "requests between them stay")
	}
	add("Decided", text(r.Decided), "")
	add("Allowed", r.Allowed(), "by the policy")
	if r.Template != nil {
		add("In the pod template", orNone(text(r.Template.Request)), "limit "+orNone(text(r.Template.Limit)))
	}
	return facts
}

func podOf(p live.Pod) podView {
	view := podView{Pod: p}
	for _, c := range p.Containers {
		for _, resource := range live.Resources {
			cell := podCell{Container: c.Name, Resource: word(resource), Used: "unknown", Request: "none", Limit: "none"}
			if c.Used != nil {
				cell.Used = live.Format(resource, live.AmountOf(resource, *c.Used))
			}
			if n := live.AmountOf(resource, c.Applied.Requests); n > 0 {
				cell.Request = live.Format(resource, n)
				if declared := live.AmountOf(resource, c.Declared.Requests); declared != n {
					cell.Request += " (" + live.Format(resource, declared) + " wanted)"
				}
			}
			if n := live.AmountOf(resource, c.Applied.Limits); n > 0 {
				cell.Limit = live.Format(resource, n)
			}
			view.Cells = append(view.Cells, cell)
		}
	}
	return view
}

// spread is an amount, or a range of amounts; empty without one.
func spread(resource string, s live.Spread) string {
	if s.Pods == 0 {
		return ""
	}
	least, most := live.Format(resource, s.Least), live.Format(resource, s.Most)
	if least == most {
		return least
	}
	return least + " to " + most
}

func text(a *explain.Amount) string {
	if a == nil {
		return ""
	}
	return a.String()
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// word is the name of a resource in a text.
func word(resource string) string {
	if resource == recommend.CPU {
		return "CPU"
	}
	return "memory"
}

// age is how long ago something was. It is at least 0, because clocks differ.
func age(now, then time.Time) string {
	return duration.HumanDuration(max(0, now.Sub(then)))
}

func ago(now, then time.Time) string { return age(now, then) + " ago" }

// IsReady is true if the condition Ready is True.
func (p scalerPage) IsReady() bool { return p.State.Ready == metav1.ConditionTrue }

// sentence begins with a capital letter and ends with a period.
func sentence(s string) string {
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.HasSuffix(s, ".") {
		s += "."
	}
	return s
}
