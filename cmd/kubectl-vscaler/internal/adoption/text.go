// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package adoption

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// WriteText writes the preview as text, to be read from top to bottom.
func (p Preview) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintln(&b, explain.Printable(fmt.Sprintf(format, args...))) }
	line("%s %s%s", p.Kind, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"), map[Action]string{Create: " (new)", Update: " (exists, is changed)", None: " (exists, is the same)"}[p.Action])
	line("  %s", p.Purpose)
	if p.Exclusions != "" {
		line("  %s", p.Exclusions)
	}
	line("")
	line("Selects %s in %s, and sizes %d of them", count(p.Selected, "Deployment"), count(len(p.Namespaces), "namespace"), p.Sized)
	if err := p.writeNamespaces(&b, line); err != nil {
		return err
	}
	explain.WriteSkipped(line, p.Skipped)
	line("")
	line("On the first day")
	p.FirstDay.write(line)
	line("")
	line("Later")
	p.writeLater(line)
	p.writeRequests(line)
	explain.WriteMissing(line, p.Missing)
	_, err := io.WriteString(w, b.String())
	return err
}

func (p Preview) writeNamespaces(b *strings.Builder, line func(string, ...any)) error {
	if len(p.Namespaces) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "  NAMESPACE\tSIZED\tSKIPPED\tCORES\tGIB")
	shown := p.Namespaces[:min(len(p.Namespaces), mostNamespaces)]
	for _, s := range shown {
		fmt.Fprintf(table, "  %s\t%d\t%d\t%s\t%s\n", s.Namespace, s.Sized, s.Skipped, number(s.Requested.Cores), number(s.Requested.GiB))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if more := p.Namespaces[len(shown):]; len(more) > 0 {
		sized, skipped := 0, 0
		for _, s := range more {
			sized, skipped = sized+s.Sized, skipped+s.Skipped
		}
		line("  and %d more, with %d sized and %d skipped", len(more), sized, skipped)
	}
	return nil
}

func (f FirstDay) write(line func(string, ...any)) {
	if f.Created > 0 {
		line("  %s created in update mode %s: %s.", are(f.Created), f.Mode, f.ModeMeans)
	}
	if f.TakenOver > 0 {
		line("  %s taken over from %s.", are(f.TakenOver), strings.Join(f.From, ", "))
	}
	if f.Changed > 0 {
		line("  %s changed to the new template.", are(f.Changed))
	}
	if f.Deleted > 0 {
		line("  %s deleted, because the policy no longer sizes what they size. A pod template that a scaler has changed gets its original values back.", are(f.Deleted))
	}
	if f.Unchanged > 0 {
		line("  %s.", stay(f.Unchanged))
	}
	if f.Created+f.TakenOver+f.Changed+f.Deleted == 0 {
		line("  Nothing changes.")
	}
}

func (p Preview) writeLater(line func(string, ...any)) {
	if p.Later == nil {
		line("  No scaler is promoted: all have update mode %s from the beginning.", p.FirstDay.Mode)
		return
	}
	for _, rule := range p.Later.Rules {
		line("  %s", rule)
	}
	line("  So %s verified at the same time now.", are(p.Later.AtOnce))
	line("  Promoted scalers have update mode %s: %s.", p.Later.Mode, p.Later.ModeMeans)
}

func (p Preview) writeRequests(line func(string, ...any)) {
	if p.Requests == nil {
		line(`  How requests change is unknown until there is usage. "kubectl vscaler report --prometheus URL" shows it before.`)
		return
	}
	r := p.Requests
	line("  Scalers of %s recommend already: %s cores instead of %s, and %s GiB instead of %s.", count(r.Deployments, "Deployment"),
		number(r.Recommended.Cores), number(r.Current.Cores), number(r.Recommended.GiB), number(r.Current.GiB))
	if rest := p.Sized - r.Deployments; rest > 0 {
		line("  Of the other %d, it is unknown until there is usage.", rest)
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// are begins a sentence about scalers.
func are(n int) string {
	if n == 1 {
		return "1 scaler is"
	}
	return fmt.Sprintf("%d scalers are", n)
}

// stay is a sentence about scalers that do not change.
func stay(n int) string {
	if n == 1 {
		return "1 scaler of the policy stays as it is"
	}
	return fmt.Sprintf("%d scalers of the policy stay as they are", n)
}
