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
)

// Text is the explanation as text, to be read from top to bottom. Ages are
// relative to now.
func (x Explanation) Text(now time.Time) string {
	b, line := lines(x.Headline(now))
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
	if allowed := r.Allowed(); allowed != "" {
		facts = append(facts, "The policy allows "+allowed+".")
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

// Rule describes when a request is changed; empty if it is not.
func (r Resource) Rule() string {
	if !r.Moves || r.LowerBound == nil || r.UpperBound == nil {
		return ""
	}
	lowered := fmt.Sprintf(", and one above %s is lowered.", r.UpperBound)
	switch {
	case r.floor > r.UpperBound.Value():
		lowered = ". " + r.Floor
	case r.Floor != "":
		lowered += " " + r.Floor
	}
	return fmt.Sprintf("A request below %s is raised at once. After the cooldown, one more than %d %% below the target is raised%s",
		r.LowerBound, r.TolerancePercent, lowered)
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

// Allowed are the bounds of the policy, if any.
func (r Resource) Allowed() string {
	switch {
	case r.MinAllowed != nil && r.MaxAllowed != nil:
		return fmt.Sprintf("%s to %s", r.MinAllowed, r.MaxAllowed)
	case r.MinAllowed != nil:
		return fmt.Sprintf("%s and more", r.MinAllowed)
	case r.MaxAllowed != nil:
		return fmt.Sprintf("up to %s", r.MaxAllowed)
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
