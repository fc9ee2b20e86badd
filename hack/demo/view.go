// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// kind is one of the two resources, for whatever is said about either.
type kind struct {
	name   string
	of     func(quantity.Amounts) int64
	from   func(v1beta1.Amounts) *resource.Quantity
	format func(int64) string
}

var kinds = []kind{
	{
		name: "cpu",
		of:   func(a quantity.Amounts) int64 { return a.CPUMillis },
		from: func(a v1beta1.Amounts) *resource.Quantity { return a.CPU },
		format: func(v int64) string {
			if v == 0 {
				return "-"
			}
			return quantity.FormatCPU(v)
		},
	},
	{
		name: "memory",
		of:   func(a quantity.Amounts) int64 { return a.MemoryBytes },
		from: func(a v1beta1.Amounts) *resource.Quantity { return a.Memory },
		format: func(v int64) string {
			if v == 0 {
				return "-"
			}
			return quantity.FormatMemory(v)
		},
	},
}

// amount is what a quantity of the API is worth, 0 without one.
func (k kind) amount(a v1beta1.Amounts) int64 {
	q := k.from(a)
	if q == nil {
		return 0
	}
	if k.name == "cpu" {
		return q.MilliValue()
	}
	return q.Value()
}

// eventLines is how many events are shown.
const eventLines = 7

// render draws what has been seen, at most 100 columns wide.
func render(r *record, missing string, paint paint) []string {
	s := r.last
	lines := header(r, missing, paint)
	lines = append(lines, "")
	lines = append(lines, usageTable(s, paint)...)
	lines = append(lines, "")
	lines = append(lines, graph(r.samples)...)
	lines = append(lines, "")
	lines = append(lines, podTable(s, paint)...)
	if s.owner != nil {
		lines = append(lines, "", paint.bold("SCALEDDEPLOYMENT "+name)+fmt.Sprintf("   %d of %d pods available",
			s.owner.Status.AvailableReplicas, ptr.Deref(s.owner.Spec.Replicas, 1)))
		lines = append(lines, conditionLines(s.said(), paint)...)
	}
	lines = append(lines, "")
	lines = append(lines, scalerLines(s, paint)...)
	lines = append(lines, "")
	lines = append(lines, paint.bold("WHAT THE OPERATOR HAS DECIDED AND DONE (events)"))
	for _, e := range s.events[max(0, len(s.events)-eventLines):] {
		lines = append(lines, fitRight(clock(e.at), 7)+"  "+cut(e.reason+": "+e.note, width-9))
	}
	return lines
}

// clock tells a time as minutes and seconds.
func clock(at time.Duration) string {
	return fmt.Sprintf("%d:%02d", int(at/time.Minute), int(at/time.Second)%60)
}

func header(r *record, missing string, paint paint) []string {
	title := "VerticalScaler demo"
	now := "a day of remembering is " + dayHere + " here   " + clock(r.last.at)
	p := r.current()
	if p == nil {
		return []string{paint.bold(fit(title, width-len(now)) + now)}
	}
	title += fmt.Sprintf("   %d of %d: %s", len(r.phases), len(r.piece.phases), p.name)
	waits := "seen; on to the next"
	if missing != "" {
		waits = "waiting for " + missing
	}
	lines := []string{paint.bold(fit(title, width-len(now)) + now), cut(p.story, width)}
	for _, command := range p.commands {
		lines = append(lines, cut(prompt+command, width))
	}
	return append(lines, paint.dim(cut(waits, width)))
}

// usageTable shows usage against what is requested and recommended.
func usageTable(s state, paint paint) []string {
	lines := []string{paint.bold(fit("CONTAINER "+container, 18) + fitRight("usage", 9) + fitRight("request", 9) + fitRight("limit", 9) +
		fitRight("target", 9) + fitRight("lower..upper bound", 21) + "  " + "usage of request")}
	highest, known := s.highest()
	least := s.least()
	rec, _ := s.recommendation()
	for _, k := range kinds {
		bounds := "-"
		if lower, upper := k.amount(rec.LowerBound), k.amount(rec.UpperBound); upper > 0 {
			bounds = k.format(lower) + ".." + k.format(upper)
		}
		used, request, percent := k.of(highest), k.of(least.Requests), ""
		if request > 0 && known {
			percent = fmt.Sprintf("%d%%", used*100/request)
		}
		lines = append(lines, fit("  "+k.name, 18)+fitRight(k.format(used), 9)+fitRight(k.format(request), 9)+fitRight(k.format(k.of(least.Limits)), 9)+
			fitRight(k.format(k.amount(rec.Target)), 9)+fitRight(bounds, 21)+"  "+bar(used, request, 16)+" "+fitRight(percent, 5))
	}
	if !known {
		lines = append(lines, "  (metrics-server has no usage yet: it needs two rounds of "+stage.MetricResolution.String()+")")
	}
	return lines
}

// graph draws usage and requests over time, each pair on one scale.
func graph(samples []sample) (lines []string) {
	const columns = width - 18
	for _, k := range kinds {
		var used, requested []int64
		most := int64(1)
		for _, sample := range samples[max(0, len(samples)-columns):] {
			used, requested = append(used, k.of(sample.usage)), append(requested, k.of(sample.requests))
			most = max(most, k.of(sample.usage), k.of(sample.requests))
		}
		lines = append(lines,
			fit("  "+k.name+" request", 18)+sparkline(requested, most, columns),
			fit("  "+k.name+" usage", 18)+sparkline(used, most, columns))
	}
	return lines
}

func podTable(s state, paint paint) []string {
	lines := []string{paint.bold(fit("POD", 24) + fit("asked for", 18) + fit("in force", 18) + fit("limits", 18) + fit("restarts", 10) + "resize")}
	for _, p := range s.pods {
		asked, inForce := p.asked(), p.inForce()
		lines = append(lines, fit("  "+p.Name, 23)+" "+fit(both(asked.Requests), 18)+fit(both(inForce.Requests), 18)+
			fit(both(inForce.Limits), 18)+fit(fmt.Sprint(p.restarts), 10)+resizeOf(p))
	}
	if len(s.pods) == 0 {
		lines = append(lines, "  none yet")
	}
	return lines
}

func both(a quantity.Amounts) string {
	return kinds[0].format(a.CPUMillis) + " " + kinds[1].format(a.MemoryBytes)
}

// resizeOf is the state of the pod's resize in a word.
func resizeOf(p pod) string {
	switch {
	case !p.ready:
		return "not ready"
	case p.Resize.Deferred:
		return "deferred"
	case p.Resize.Infeasible:
		return "infeasible"
	case p.Resize.Failed:
		return "failed"
	case p.asked() != p.inForce():
		return "under way"
	}
	return "done"
}

// scalerLines are the scaler's summary and conditions.
func scalerLines(s state, paint paint) []string {
	if s.scaler == nil {
		return []string{paint.bold("SCALER"), "  none yet"}
	}
	summary := s.scaler.Status.Summary
	if summary == nil {
		summary = &v1beta1.Summary{}
	}
	lines := []string{paint.bold("SCALER "+name) + fmt.Sprintf("   cpu %s   memory %s   pods %s",
		cmp.Or(summary.CPU, "-"), cmp.Or(summary.Memory, "-"), cmp.Or(summary.Pods, "-"))}
	return append(lines, conditionLines(s.conditions(), paint)...)
}

func conditionLines(conditions []metav1.Condition, paint paint) (lines []string) {
	for _, c := range conditions {
		status := fit(string(c.Status), 8)
		if isGood(c) {
			status = paint.green(status)
		} else if c.Status != metav1.ConditionUnknown {
			status = paint.red(status)
		}
		lines = append(lines, fit("  "+c.Type, 26)+status+fit(c.Reason, 20)+cut(c.Message, width-54))
	}
	return lines
}

// isGood says whether a condition is as one wishes. Of two, True is a wish unmet.
func isGood(c metav1.Condition) bool {
	switch c.Type {
	case v1beta1.ConditionReconciling, v1beta1.ConditionStalled:
		return c.Status == metav1.ConditionFalse
	}
	return c.Status == metav1.ConditionTrue
}

// The columns of the summary: verdict, name, details.
const (
	nameWidth   = 32
	detailWidth = width - 6 - nameWidth
)

// renderSummary draws the checks.
func renderSummary(checks []check, paint paint) (lines []string) {
	for _, c := range checks {
		head := paint.green("PASS") + "  " + fit(c.name, nameWidth)
		if !c.ok {
			head = paint.red("FAIL") + "  " + fit(c.name, nameWidth)
		}
		for _, detail := range c.details {
			for _, line := range wrap(detail, detailWidth) {
				lines = append(lines, head+line)
				head = strings.Repeat(" ", 6+nameWidth)
			}
		}
	}
	return lines
}
