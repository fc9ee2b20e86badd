// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/yaml"
)

// WriteJSON writes the explanation for programs.
func (x Explanation) WriteJSON(w io.Writer) error { return writeJSON(w, x) }

// WriteYAML writes the same as YAML.
func (x Explanation) WriteYAML(w io.Writer) error { return writeYAML(w, x) }

func writeJSON(w io.Writer, what any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(what)
}

func writeYAML(w io.Writer, what any) error {
	out, err := yaml.Marshal(what)
	if err != nil {
		return err
	}
	_, err = w.Write(out)
	return err
}

// WriteText writes the explanation for a person, to be read from top to bottom. now is
// what ages are told from.
func (x Explanation) WriteText(w io.Writer, now time.Time) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintln(&b, printable(fmt.Sprintf(format, args...))) }
	line("VerticalScaler %s/%s", x.Namespace, x.Name)
	line("  %s", x.Purpose)
	line("  Mode %s: %s.", x.Mode, x.ModeMeans)
	line("  Profile %s. %s", x.Profile, x.cooldown())

	line("")
	line("In force: %s", x.inForce())
	for _, f := range x.Findings {
		since := ""
		if f.Since != nil {
			since = ", for " + age(now, *f.Since)
		}
		line("  %s%s", f.Reason.Reason, since)
		if f.Message != "" {
			line("    says      %s", f.Message)
		}
		line("    means     %s", f.Means)
		line("    ends      %s", f.Ends.words())
		line("    %-9s %s", f.Ends.verb(), f.Advice)
	}
	if d := x.Decision; d != nil {
		line("  The sizes were decided %s ago, because %s (%s).", age(now, d.Time), d.Means, d.Cause.Cause)
	}

	for _, c := range x.Containers {
		line("")
		c.write(line, now)
	}
	if len(x.History) > 0 {
		line("")
		line("Last changes")
		for _, h := range x.History {
			line("  %6s ago  %s", age(now, h.Time), h.Message)
		}
	}
	if len(x.Missing) > 0 {
		line("")
		line("Not told here")
		for _, m := range x.Missing {
			line("  %s", m)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (x Explanation) cooldown() string {
	if x.CooldownSeconds == 0 {
		return "Changes do not wait for each other."
	}
	return fmt.Sprintf("A change waits until %s after the last one; OOM kills and too little CPU do not.",
		duration.HumanDuration(time.Duration(x.CooldownSeconds)*time.Second))
}

func (x Explanation) inForce() string {
	said := map[metav1.ConditionStatus]string{metav1.ConditionTrue: "yes", metav1.ConditionFalse: "no"}[x.Applied]
	if said == "" {
		said = "not known"
	}
	if x.Pods != "" && (x.Decision != nil || x.Applied == metav1.ConditionTrue) {
		said += fmt.Sprintf("; %s pods have the decided size", strings.Replace(x.Pods, "/", " of ", 1))
	}
	return said
}

func (e End) words() string {
	switch e {
	case ByItself:
		return "by itself"
	case ByAPerson:
		return "when a person acts"
	}
	return "need not end"
}

// verb is the word before the advice.
func (e End) verb() string {
	if e == ByAPerson {
		return "unblock"
	}
	return "do"
}

func (c Container) write(line func(string, ...any), now time.Time) {
	if c.ObservedSeconds > 0 {
		line("Container %s, by %s of observed usage", c.Name, duration.HumanDuration(c.observed()))
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
		line("  %s: nothing is recommended yet", r.Resource)
	default:
		line("  %s: %s is recommended", r.Resource, r.Target)
	}
	for _, s := range r.Steps {
		value := "?"
		if s.Value != nil {
			value = s.Value.String()
		}
		means := s.Means
		if s.MarginPercent > 0 {
			means = fmt.Sprintf("%s %% more: %s", strconv.FormatFloat(s.MarginPercent, 'f', -1, 64), strings.TrimPrefix(s.Means, "is "))
		}
		line("    %8s  %s (%s)", value, means, s.Code)
	}
	switch {
	case len(r.Steps) == 0:
	case r.Agrees:
		line("    The steps lead to the same number again.")
	default:
		line("    The steps lead to %s instead: the status was changed, or is another version's.", sayAmount(r.Recomputed))
	}
	if r.Moves && r.LowerBound != nil && r.UpperBound != nil {
		line("    A request below %s is raised at once, one more than %d %% below the target after the cooldown, and one above %s is lowered then.", r.LowerBound, r.TolerancePercent, r.UpperBound)
	}
	if allowed := r.allowed(); allowed != "" {
		line("    The policy allows %s.", allowed)
	}
	if r.Decided != nil {
		line("    Decided: %s", r.Decided)
	}
	if r.LastGood != nil && r.TriedSince != nil {
		line("    On trial for %s: where the changed pods fare clearly worse, %s is put back.", age(now, *r.TriedSince), r.LastGood)
	}
	for _, f := range r.Failed {
		line("    %s failed %s ago, and %s was put back: %s", sayAmount(f.Value), age(now, f.Time), sayAmount(f.LastGood), f.Message)
	}
	for _, s := range r.Pods {
		line("    %s %s", pods(s.Pods), s.words())
	}
	if r.Template != nil {
		line("    The pod template %s", r.Template.words())
	}
}

func (r Resource) allowed() string {
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
	return fmt.Sprintf("%s %s, %s", verb, sayAmount(s.Request), limit)
}

func pods(n int) string {
	if n == 1 {
		return "1 pod"
	}
	return fmt.Sprintf("%d pods", n)
}

func sayAmount(a *Amount) string {
	if a == nil {
		return "nothing"
	}
	return a.String()
}

// age is how long ago something was, at least 0: clocks differ.
func age(now time.Time, then metav1.Time) string {
	if then.IsZero() {
		return "some time"
	}
	return duration.HumanDuration(max(0, now.Sub(then.Time)))
}

// printable keeps what objects say from being more than text on a terminal.
func printable(s string) string {
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
