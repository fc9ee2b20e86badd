// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// Text is the explanation as text, to be read from top to bottom. Ages are
// relative to now.
func (x Explanation) Text(now time.Time) string {
	b, line := lines(x.Headline(now))
	if x.Pod != nil {
		x.Pod.write(line, x.Namespace, x.Deployment)
	}
	line("VerticalScaler %s/%s", x.Namespace, x.Name)
	line("  %s", x.Purpose)
	line("  Mode %s: %s.", x.Mode, x.ModeMeans)
	line("  Profile %s. %s", x.Profile, x.cooldown())
	if x.Origin != nil {
		x.Origin.write(line, x.Deployment, now)
	}

	line("")
	line("Applied: %s%s", x.appliedTo(), x.whenReported())
	for _, f := range x.Findings {
		f.write(line, now)
	}
	if d := x.Decision; d != nil {
		line("  The sizes were decided %s ago, because %s (%s).", Age(now, d.Time.Time), d.Means, d.Cause.Cause)
	}

	for _, c := range x.Containers {
		line("")
		c.write(line, now)
	}
	if len(x.History) > 0 {
		line("")
		line("Last changes")
		for _, h := range x.History {
			line("  %6s ago  %s", Age(now, h.Time.Time), h.Message)
		}
	}
	WriteMissing(line, x.Missing)
	return b.String()
}

// lines returns a function that writes a line of text, and where it writes them. The headline is the first, unless it is
// empty.
func lines(headline string) (b *strings.Builder, line func(format string, args ...any)) {
	b = &strings.Builder{}
	line = func(format string, args ...any) { fmt.Fprintln(b, Printable(fmt.Sprintf(format, args...))) }
	if headline != "" {
		line("%s", headline)
	}
	return b, line
}

// WriteMissing writes the objects that could not be read.
func WriteMissing(line func(string, ...any), missing []string) {
	if len(missing) > 0 {
		line("")
		line("Not included")
	}
	for _, m := range missing {
		line("  %s", m)
	}
}

// mostWaiting limits the listed pods that wait for room.
const mostWaiting = 3

func (f Finding) write(line func(string, ...any), now time.Time) {
	since := ""
	if f.Since != nil {
		since = ", for " + Age(now, f.Since.Time)
	}
	line("  %s%s", f.Reason.Reason, since)
	if f.Message != "" {
		line("    message   %s", f.Message)
	}
	line("    meaning   %s", f.Means)
	if f.Ends != Fine {
		line("    resolved  %s", f.Ends.words())
	}
	if f.Advice != "" {
		line("    action    %s", f.Advice)
	}
	for i, pod := range f.Waiting {
		if i == mostWaiting {
			line("    waits     %d more pods", len(f.Waiting)-i)
			break
		}
		line("    waits     pod %s on node %s for %s: %s", pod.Pod, pod.Node, Age(now, pod.Since.Time), cmp.Or(Printable(pod.Message), "the kubelet does not say what is missing"))
	}
	for _, command := range f.Apply {
		line("    apply     %s", command)
	}
}

func (x Explanation) cooldown() string {
	if x.CooldownSeconds == 0 {
		return "No cooldown between changes."
	}
	return fmt.Sprintf("Cooldown of %s between changes, except after OOM kills and for usage above the request.",
		duration.HumanDuration(time.Duration(x.CooldownSeconds)*time.Second))
}

func (x Explanation) appliedTo() string {
	answer := inWords(x.Applied)
	if x.Pods == "0/0" {
		return answer + "; no pods are running"
	}
	if x.Pods != "" && (x.Decision != nil || x.Applied == metav1.ConditionTrue) {
		answer += fmt.Sprintf("; %s pods have the decided size", strings.Replace(x.Pods, "/", " of ", 1))
	}
	return answer
}

func (e End) words() string {
	switch e {
	case ByItself:
		return "by itself"
	case ByUser:
		return "by user"
	}
	return ""
}

func (c Container) write(line func(string, ...any), now time.Time) {
	if c.ObservedSeconds > 0 {
		line("Container %s (based on at least %s of usage)", c.Name, duration.HumanDuration(c.observed()))
	} else {
		line("Container %s", c.Name)
	}
	for _, r := range c.Resources {
		r.write(line, now)
	}
}

func (r Resource) write(line func(string, ...any), now time.Time) {
	switch {
	case r.Unmanaged != "":
		line("  %s is left alone: %s", r.Resource, r.Unmanaged)
	case r.Target == nil:
		line("  %s: no recommendation yet", r.Resource)
	default:
		line("  %s: target %s", r.Resource, r.Target)
	}
	for _, s := range r.Steps {
		value := "?"
		if s.Value != nil {
			value = s.Value.String()
		}
		line("    %8s  %s (%s)", value, s.InWords(), s.Code)
	}
	if !r.Agrees {
		line("    The steps result in %s, not in the target: another writer changed the status, or it is of another version.", formatAmount(r.Recomputed))
	}
	facts := []string{r.Rule()}
	if span := r.Allowed(); span != "" {
		facts = append(facts, "The policy allows "+span+".")
	}
	if span, name := r.AllowedByLimitRange(); span != "" {
		facts = append(facts, name+" allows "+span+".")
	}
	if r.Decided != nil {
		facts = append(facts, "Decided: "+r.Decided.String())
	}
	for _, fact := range append(facts, r.Developments(now)...) {
		if fact != "" {
			line("    %s", fact)
		}
	}
	for _, s := range r.Pods {
		line("    %s %s", Counted(s.Pods, "pod", "pods"), s.words())
	}
	if r.Template != nil {
		line("    The pod template %s", r.Template.words())
	}
}

// bound is an amount that a request must keep to, and the name of who demands it. An amount of 0 means none.
type bound struct {
	amount int64
	name   string
}

// bounds are the least and the most that the policy and the LimitRange allow. The LimitRange wins, as in the operator's plan.
func (r Resource) bounds() (least, most bound) {
	least, most = bound{r.MinAllowed.Value(), "minAllowed"}, bound{r.MaxAllowed.Value(), "maxAllowed"}
	name := "LimitRange " + r.limitRange
	if v := r.LimitRangeMin.Value(); v > least.amount {
		least = bound{v, name}
	}
	if v := r.LimitRangeMax.Value(); v > 0 && (most.amount == 0 || v < most.amount) {
		most = bound{v, name}
	}
	switch {
	case most.amount == 0 || least.amount <= most.amount:
	case least.name == name:
		most = least
	default:
		least = most
	}
	return least, most
}

// brokenBounds names the bounds that the requests of the last change did not keep to; empty if that is not known.
func brokenBounds(history []v1beta1.HistoryEntry, containers []Container) string {
	if len(history) == 0 {
		return ""
	}
	var broken []string
	last := ChangesOf(history[:1])[0]
	for _, c := range containers {
		for _, r := range c.Resources {
			from := last.from(c.Name, r.Resource)
			switch least, most := r.bounds(); {
			case from > 0 && from < least.amount:
				broken = append(broken, fmt.Sprintf("%s %s of %s was below %s (%s)", c.Name, r.Resource, amountOf(r.Resource, from), amountOf(r.Resource, least.amount), least.name))
			case most.amount > 0 && from > most.amount:
				broken = append(broken, fmt.Sprintf("%s %s of %s was above %s (%s)", c.Name, r.Resource, amountOf(r.Resource, from), amountOf(r.Resource, most.amount), most.name))
			}
		}
	}
	return strings.Join(broken, ", and ")
}

// Rule describes when a request is changed; empty if it is not.
func (r Resource) Rule() string {
	if !r.Moves || r.LowerBound == nil || r.UpperBound == nil {
		return ""
	}
	least, most := r.bounds()
	target, goal := max(r.Target.Value(), least.amount), "the target"
	if most.amount > 0 {
		target = min(target, most.amount)
	}
	if target != r.Target.Value() {
		goal = amountOf(r.Resource, target).String() + ", the target within these bounds,"
	}
	rule := fmt.Sprintf("A request below %s is raised at once.", r.LowerBound)
	if least.amount > 0 && least.amount >= min(r.LowerBound.Value(), target) {
		how := "at once"
		if r.isPaced && least.name == "minAllowed" {
			how = "in steps: the first at once, each next one after the cooldown"
		}
		rule = fmt.Sprintf("A request below %s (%s) is raised %s.", amountOf(r.Resource, least.amount), least.name, how)
	}
	var later []string
	if target*100 > least.amount*int64(100+r.TolerancePercent) {
		later = append(later, fmt.Sprintf("raised if %s is more than %d %% above it", goal, r.TolerancePercent))
	}
	if r.floor <= r.UpperBound.Value() && (most.amount == 0 || r.UpperBound.Value() < most.amount) {
		later = append(later, fmt.Sprintf("lowered if it is above %s and %s is more than %d %% below it", r.UpperBound, goal, r.TolerancePercent))
	}
	if len(later) > 0 {
		rule += " After the cooldown, one is " + strings.Join(later, ", and ") + "."
	}
	if r.Floor != "" {
		rule += " " + r.Floor
	}
	if most.amount > 0 {
		rule += fmt.Sprintf(" One above %s (%s) is lowered at once.", amountOf(r.Resource, most.amount), most.name)
	}
	return rule
}

// Developments are sentences about a request that is about to be lowered, is verified, or was reverted.
func (r Resource) Developments(now time.Time) []string {
	all := []string{r.Lowering()}
	if r.LastGood != nil && r.VerifyingSince != nil {
		all = append(all, fmt.Sprintf("Verifying for %s: %s is restored if the changed pods are clearly less healthy than the others.", Age(now, r.VerifyingSince.Time), r.LastGood))
	}
	for _, f := range r.Reverted {
		all = append(all, fmt.Sprintf("%s was reverted to %s %s ago: %s", formatAmount(f.Value), formatAmount(f.LastGood), Age(now, f.Time.Time), f.Message))
	}
	return slices.DeleteFunc(all, func(sentence string) bool { return sentence == "" })
}

// Allowed is the range that the policy allows, if any.
func (r Resource) Allowed() string { return allowed(r.MinAllowed, r.MaxAllowed) }

// AllowedByLimitRange is the range that LimitRanges allow, and their names.
func (r Resource) AllowedByLimitRange() (span, name string) {
	return allowed(r.LimitRangeMin, r.LimitRangeMax), "LimitRange " + r.limitRange
}

func allowed(least, most *Amount) string {
	switch {
	case least != nil && most != nil:
		return fmt.Sprintf("%s to %s", least, most)
	case least != nil:
		return fmt.Sprintf("%s and more", least)
	case most != nil:
		return fmt.Sprintf("up to %s", most)
	}
	return ""
}

func (s Size) words() string {
	verb := "requests"
	if s.Pods > 1 {
		verb = "request"
	}
	limit := "no limit"
	if s.Limit != nil {
		limit = "limit " + s.Limit.String()
	}
	return fmt.Sprintf("%s %s, %s", verb, formatAmount(s.Request), limit)
}

func formatAmount(a *Amount) string {
	if a == nil {
		return "none"
	}
	return a.String()
}

// Age formats the time since then. It is at least 0, because clocks differ.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return "an unknown time"
	}
	return duration.HumanDuration(max(0, now.Sub(then)))
}

// Printable removes control characters, so that text of objects cannot control a terminal.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return ' '
		}
		if !strconv.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}
