// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
)

// untidyFleet has scalers of all kinds: some have no pods, no usage or no target.
func untidyFleet(n int) snapshot.Table {
	f := snapshot.Table{At: now}
	states := []struct {
		reason string
		ends   explain.End
	}{{"Applied", explain.Fine}, {"Verifying", explain.ByItself}, {"QoSChange", explain.ByUser}, {"OfANewerVersion", explain.ByUser}}
	for i := range n {
		state := states[i%len(states)]
		r := row(fmt.Sprintf("team-%d", i%7), fmt.Sprintf("app-%03d", i), state.reason, state.ends)
		if i%3 > 0 {
			total := int64(i+1) * 100
			r.CPU.Request = snapshot.Spread{Pods: 3, Total: total}
			r.CPU.Used = snapshot.Spread{Pods: 1 + i%3, Total: total / 2 * int64(i%5)}
			r.CPU.Over, r.CPU.Short = int64(max(0, i-n/2)), int64(max(0, n/2-i))
		}
		if i%4 == 0 {
			r.Saved = &explain.Saved{Cores: 0.5, GiB: -0.25}
		}
		f.Rows = append(f.Rows, r)
	}
	return f
}

func TestAFleetIsSummedUp(t *testing.T) {
	v := fleetView(untidyFleet(100), choiceOf(nil))
	counted := 0
	for _, s := range v.States {
		counted += s.Count
	}
	width := 0.0
	for _, p := range v.Parts {
		width += p.Width
	}
	if v.Scalers != 100 || counted != 100 || v.NeedUser != 50 || v.NotReady != 50 || len(v.Namespaces) != 7 || math.Abs(width-100) > 1e-6 {
		t.Errorf("%d scalers, %d counted, %d need a user, %d not Ready, %d namespaces, the bar is %v wide", v.Scalers, counted, v.NeedUser, v.NotReady, len(v.Namespaces), width)
	}
	if v.Saved == nil || v.Saved.Cores != 12.5 || v.Saved.GiB != -6.25 {
		t.Errorf("saved %+v", v.Saved)
	}
}

// Cards count policies that require action. The page of an empty fleet explains how to begin.
func TestCardsExplainTheirNumbers(t *testing.T) {
	s, source, _ := newServer()
	halted := explain.State{Ready: "False", Reason: "PromotionHalted", Message: "3 of 24 promoted scalers did harm", Ends: explain.ByUser}
	saving := row("shop", "web", "Applied", explain.Fine)
	saving.Saved = &explain.Saved{Cores: -0.22, GiB: 1.5}
	source.fleet = snapshot.Table{At: now, Rows: []snapshot.Row{saving}, Policies: []explain.PolicyRow{{Kind: "ClusterScalingPolicy", Name: "fleet", State: halted}}}
	page := get(s, "GET", "localhost", "/secret/").Body.String()
	assert.Contains(t, "cards", page,
		`<dt>Need a user</dt><dd><a id="need-user" href="/secret/?state=ByUser#actions"><b>1</b>`, "1 scaler, 1 policy: 1 is not Ready, 1 requires action", "ClusterScalingPolicy/fleet: PromotionHalted: 3 of 24 promoted scalers did harm",
		"No action needed: 1</li>", "<dt>Requests</dt><dd><b>0.22 cores more, 1.50 GiB less</b><span>than the pod templates, of 1 of 1 scalers</span>", "<dt>Requested above targets</dt><dd><b>none</b>")
	source.fleet = snapshot.Table{At: now}
	if page := get(s, "GET", "localhost", "/secret/").Body.String(); !strings.Contains(page, "kubectl vscaler adopt") || strings.Contains(page, "? CPU") {
		t.Errorf("an empty fleet does not say how to begin:\n%s", page)
	}
}

func TestAReaderChoosesScalers(t *testing.T) {
	fleet := untidyFleet(100)
	for name, tc := range map[string]struct {
		query map[string][]string
		want  int
		first string
	}{
		"all":               {nil, 100, "app-001"},
		"a namespace":       {map[string][]string{"namespace": {"team-3"}}, 14, ""},
		"a state":           {map[string][]string{"state": {"Verifying"}}, 25, "app-001"},
		"all of an end":     {map[string][]string{"state": {"ByUser"}}, 50, "app-098"},
		"a part of a name":  {map[string][]string{"text": {"app-09"}, "order": {"name"}}, 10, "app-091"},
		"all of it":         {map[string][]string{"text": {"app"}, "state": {"Applied"}, "namespace": {"team-0"}}, 4, ""},
		"nothing":           {map[string][]string{"text": {"nobody"}}, 0, ""},
		"an unknown order":  {map[string][]string{"order": {"'; --"}}, 100, "app-001"},
		"a state of nobody": {map[string][]string{"state": {"Nope"}}, 0, ""},
	} {
		v := fleetView(fleet, choiceOf(tc.query))
		if v.Chosen != tc.want || len(v.Rows) != tc.want || tc.first != "" && v.Rows[0].Name != tc.first {
			t.Errorf("%s: %d chosen, first %+v", name, v.Chosen, v.Rows)
		}
		if v.Scalers != 100 {
			t.Errorf("%s: a choice changes the sums", name)
		}
	}
}

// The number of objects that need a user is a link to them: policies and ScaledDeployments first, then scalers.
func TestTheNumberThatNeedsAUserLinksToThem(t *testing.T) {
	s, source, _ := newServer()
	source.fleet = untidyFleet(12)
	source.fleet.Policies = []explain.PolicyRow{{Kind: "ClusterScalingPolicy", Name: "fleet", State: explain.State{Ready: "False", Reason: "PromotionHalted", Ends: explain.ByUser}}}
	page := get(s, "GET", "localhost", "/secret/").Body.String()
	link := regexp.MustCompile(`<a id="need-user" href="([^"#]+)#actions"><b>7</b>`).FindStringSubmatch(page)
	if link == nil {
		t.Fatalf("7 need a user, and there is no link to them:\n%s", page)
	}
	page = get(s, "GET", "localhost", link[1]).Body.String()
	_, shown, _ := strings.Cut(page, `<div id="actions">`)
	assert.Contains(t, "the filtered fleet", shown,
		"ClusterScalingPolicy/fleet", `<option value="ByUser" selected>Action required</option>`, "6 of 12 scalers.")
	if n := strings.Count(shown, `<tr><th scope="row">`); n != 6 || strings.Contains(shown, `title="">Applied</span>`) {
		t.Errorf("%d rows, want the 6 that need a user:\n%s", n, shown)
	}
}

func TestARowShowsTheSeverityOfItsGapAsAWord(t *testing.T) {
	for severity, want := range map[snapshot.Severity]string{
		snapshot.FarTooLow: `<br><span class="tag blocked">far too low</span></td>`,
		snapshot.TooLow:    `<br><span class="tag warning">too low</span></td>`,
		snapshot.TooHigh:   `<br><span class="tag warning">too high</span></td>`,
		snapshot.OnTarget:  `<br><span class="tag fine">ok</span></td>`,
		snapshot.NoTarget:  `Applied</span></td>`,
	} {
		s, source, _ := newServer()
		source.fleet.Rows[0].Severity = severity
		page := get(s, "GET", "localhost", "/secret/").Body.String()
		if !strings.Contains(page, want) || !strings.Contains(page, `far too low</span> more than 25 % below the target</li>`) {
			t.Errorf("there is no %q, or no legend, in:\n%s", want, page)
		}
	}
}

func TestALargeFleetIsCut(t *testing.T) {
	s, source, _ := newServer()
	source.fleet = untidyFleet(3000)
	text := get(s, "GET", "localhost", "/secret/").Body.String()
	if n := strings.Count(text, `<th scope="row">`); n != mostRows || !strings.Contains(text, "The first 500 of 3000 scalers.") {
		t.Errorf("%d rows", n)
	}
	if len(text) > 1<<20 {
		t.Errorf("the page has %d bytes", len(text))
	}
}

func TestUsageIsNotMadeUp(t *testing.T) {
	for name, tc := range map[string]struct {
		r    snapshot.Resource
		want usedView
	}{
		"no usage":           {snapshot.Resource{Resource: "cpu", Request: snapshot.Spread{Pods: 2, Total: 100}}, usedView{}},
		"no request":         {snapshot.Resource{Resource: "cpu", Used: snapshot.Spread{Pods: 2, Total: 100}}, usedView{}},
		"half":               {snapshot.Resource{Resource: "cpu", Used: snapshot.Spread{Pods: 2, Total: 100}, Request: snapshot.Spread{Pods: 2, Total: 200}}, usedView{Used: "100m", Percent: 50, IsKnown: true}},
		"above":              {snapshot.Resource{Resource: "cpu", Used: snapshot.Spread{Pods: 2, Total: 300}, Request: snapshot.Spread{Pods: 2, Total: 200}}, usedView{Used: "300m", Percent: 100, IsKnown: true, IsAbove: true}},
		"with a silent pod":  {snapshot.Resource{Resource: "cpu", Used: snapshot.Spread{Pods: 1, Total: 100}, Request: snapshot.Spread{Pods: 3, Total: 400}}, usedView{Used: "100m", Percent: 25, IsKnown: true, SilentPods: 2}},
		"memory in mebibyte": {snapshot.Resource{Resource: "memory", Used: snapshot.Spread{Pods: 1, Total: 64 << 20}, Request: snapshot.Spread{Pods: 1, Total: 64 << 20}}, usedView{Used: "64Mi", Percent: 100, IsKnown: true}},
	} {
		if got := usedOf(tc.r); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func points(step time.Duration, used ...int64) (all []snapshot.Point) {
	for i, u := range used {
		all = append(all, snapshot.Point{At: now.Add(-time.Duration(len(used)-1-i) * step), Used: u, Request: 500, Limit: 1000})
	}
	return all
}

func TestAPlot(t *testing.T) {
	p := plotOf(plotInput{
		id: "c0-cpu", resource: "cpu", span: Live, at: now, target: 300, lower: 250, upper: 400,
		points: points(15*time.Second, 100, 200, snapshot.Unknown, 300, 100), marks: []time.Time{now.Add(-time.Minute), now.Add(-time.Hour)},
	})
	// The axis ends at 1500, which is the next round number above the limit.
	if p.Top != "1500m" || p.IsEmpty || p.LimitAbove != "" || p.Target == nil || *p.Target != 120 || p.Band == nil || p.Band.Y != 110 || p.Band.Height != 15 {
		t.Errorf("%+v", p)
	}
	if n := strings.Count(p.UsageTop, "M"); n != 2 {
		t.Errorf("usage with a gap has %d parts: %s", n, p.UsageTop)
	}
	if len(p.Marks) != 1 || p.Marks[0] != 360 {
		t.Errorf("marks %v", p.Marks)
	}
	if want := "The pod that used most used 100m to 300m. The request is 500m now. The limit is 1000m now. The target is 300m."; p.Description != want {
		t.Errorf("%s, want %s", p.Description, want)
	}
	if len(p.Ticks) == 0 || len(p.Ticks) > mostTicks || len(p.Rows) > mostTableRows || len(p.Rows) == 0 {
		t.Errorf("%d ticks, %d rows", len(p.Ticks), len(p.Rows))
	}
}

// The request went down, then there were no pods, and the limit was removed.
func TestAPlotOfChangingRequestsAndLimits(t *testing.T) {
	at := func(hour int) time.Time { return now.Add(time.Duration(hour-24) * time.Hour) }
	p := plotOf(plotInput{id: "c0-cpu", resource: "cpu", span: Day, at: now, target: 100, points: []snapshot.Point{
		{At: at(0), Used: 90, Request: 500, Limit: 9000},
		{At: at(6), Used: 80, Request: 500, Limit: 800},
		{At: at(12), Used: snapshot.Unknown, Request: snapshot.None, Limit: snapshot.None},
		{At: at(18), Used: 0, Request: 200, Limit: snapshot.None},
	}})
	if p.Top != "1000m" || p.LimitAbove != "9000m" {
		t.Errorf("the axis ends at %s, and the limit above is %q", p.Top, p.LimitAbove)
	}
	for name, tc := range map[string]struct{ got, want string }{
		"request": {p.Request, "M0 75H360M540 120H720"}, // with the steps between
		"limit":   {p.Limit, "M180 30H360"},
	} {
		if got := levels(tc.got); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if want := "The pod that used most used 0m to 90m. The request was 200m to 500m. The request is 200m now. The limit was 800m to 9000m. The target is 100m."; p.Description != want {
		t.Errorf("%s, want %s", p.Description, want)
	}
	if row := p.Rows[len(p.Rows)-1]; row.Request != "200m" || row.Limit != "none" || row.Used != "unknown" {
		t.Errorf("the last row is %+v", row)
	}
}

// levels is a path of steps without those to the same level.
func levels(path string) string {
	var out strings.Builder
	level, end := "", ""
	for _, part := range regexp.MustCompile(`M[0-9.]+ [0-9.]+|[HV][0-9.]+`).FindAllString(path, -1) {
		_, to, _ := strings.Cut(part, " ")
		switch {
		case part[0] == 'H':
			end = part
			continue
		case part == "V"+level:
			continue
		case part[0] == 'V':
			to = part[1:]
		}
		out.WriteString(end + part)
		level, end = to, ""
	}
	return out.String() + end
}

func TestAPlotStaysInItsFrame(t *testing.T) {
	cases := map[string]plotInput{
		"nothing known":        {resource: "cpu", span: Live},
		"a target only":        {resource: "cpu", span: Live, target: 100, lower: 50, upper: math.MaxInt64 / 2},
		"a limit far above":    {resource: "memory", span: Live, points: []snapshot.Point{{At: now, Used: 1 << 20, Request: 2 << 20, Limit: 64 << 30}}},
		"zero usage":           {resource: "cpu", span: Live, points: []snapshot.Point{{At: now, Used: 0, Request: snapshot.Unknown, Limit: snapshot.Unknown}}},
		"points of the future": {resource: "cpu", span: Day, points: []snapshot.Point{{At: now.Add(time.Hour), Used: 10, Request: 10, Limit: 10}}},
		"a week":               {resource: "cpu", span: Week, points: points(time.Hour, make([]int64, 200)...)},
		"the largest amounts":  {resource: "memory", span: Day, points: []snapshot.Point{{At: now.Add(-time.Hour), Used: 1 << 50, Request: 1 << 50, Limit: 1 << 50}}},
	}
	for name, in := range cases {
		in.at = now
		p := plotOf(in)
		for _, path := range []string{p.Usage, p.UsageTop, p.Request, p.Limit} {
			for _, number := range numbers(path) {
				if v, err := strconv.ParseFloat(number, 64); err != nil || math.IsNaN(v) || v < 0 || v > plotWidth {
					t.Errorf("%s: %s in %s", name, number, path)
				}
			}
		}
		if b := p.Band; b != nil && (b.Y < 0 || b.Y+b.Height > plotHeight+1) {
			t.Errorf("%s: band %+v", name, *b)
		}
		if p.Top == "" || len(p.Ticks) > mostTicks+1 {
			t.Errorf("%s: %+v", name, p)
		}
	}
	in := cases["a limit far above"]
	in.at = now
	if p := plotOf(in); p.Limit != "" || p.LimitAbove != "64Gi" || p.Top != "3Mi" {
		t.Errorf("a limit far above: %q %q %q", p.Limit, p.LimitAbove, p.Top)
	}
}

func numbers(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return !strings.ContainsRune("0123456789.-+eNaInf", r) })
}

func TestThePastNamesItsSource(t *testing.T) {
	s, source, _ := newServer()
	source.details.HasPast = true
	for _, tc := range []struct {
		span Span
		past Past
		want string
	}{
		{Week, Past{HasRequests: true, HasLimits: true}, "from kube-state-metrics."},
		{Day, Past{HasRequests: true}, "Requests of the past are from the operator&#39;s metrics. Prometheus has none of kube-state-metrics"},
		{Week, Past{}, "Prometheus has usage only"},
		{Live, Past{}, ""},
	} {
		source.details.Span, source.details.Past = tc.span, tc.past
		page := get(s, "GET", "localhost", "/secret/scalers/shop/web?span="+string(tc.span)).Body.String()
		if !strings.Contains(page, tc.want) || tc.want == "" && strings.Contains(page, "Prometheus") {
			t.Errorf("%s with %+v: there is no %q in:\n%s", tc.span, tc.past, tc.want, page)
		}
	}
}

func TestAWeekNeedsPrometheus(t *testing.T) {
	s, source, _ := newServer()
	without := get(s, "GET", "localhost", "/secret/scalers/shop/web").Body.String()
	source.details.HasPast = true
	with := get(s, "GET", "localhost", "/secret/scalers/shop/web?span=week").Body.String()
	if strings.Contains(without, "span=week") || !strings.Contains(without, "--prometheus") {
		t.Error("without Prometheus, a week is offered")
	}
	if !strings.Contains(with, `id="span-week" href="/secret/scalers/shop/web?span=week" aria-current="page"`) || !strings.Contains(with, "/backtest") {
		t.Error("with Prometheus, a week is not offered:", with)
	}
}
