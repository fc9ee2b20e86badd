// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// check is something that must be so, whether it is, and the figures.
type check struct {
	name    string
	ok      bool
	details []string
}

// scalerWrites are all that the operator may ever write for a scaler, besides its lease.
var scalerWrites = []string{
	"patch pods/resize",
	"update verticalscalers/status",
	"create verticalscalercheckpoints",
	"update verticalscalercheckpoints",
	"create events",
	"patch events",
}

// checksOf are all checks of what has been seen. A phase that has not been played
// fails.
func checksOf(r *record) []check { return r.piece.checks(r) }

func scalerChecks(r *record) []check {
	return []check{
		checkFound(r),
		checkResized(r, "rise", "resized up in place", "metrics showed it"),
		checkResized(r, "fall", "resized down in place", "metrics showed it"),
		checkResized(r, "oom", "raised after the OOM kill", "the kill was in the status"),
		checkRestarts(r),
		checkRollout(r),
		checkRights(r),
		checkWrites(r),
		checkQuiet(r),
	}
}

// failedOf counts the checks that did not pass.
func failedOf(checks []check) (n int) {
	for _, c := range checks {
		if !c.ok {
			n++
		}
	}
	return n
}

func checkFound(r *record) check {
	c := check{name: "a scaler before its Deployment"}
	if r.created < 0 || r.found < 0 {
		return c.because("the scaler did not find it")
	}
	c.ok = true
	return c.because("found %s after it was created", seconds(r.found-r.created))
}

func checkResized(r *record, phase, name, since string) check {
	c := check{name: name}
	p := r.phase(phase)
	if p == nil || p.done < 0 || p.seen < 0 || p.first < 0 {
		return c.because("not seen")
	}
	c.ok = p.changed == replicas
	a, b := p.lowestFirst.Requests, p.lowestLast.Requests
	c = c.because("requests %s, on %d of %d pods", strings.Join(slices.DeleteFunc([]string{
		change("cpu", quantity.FormatCPU, a.CPUMillis, b.CPUMillis),
		change("memory", quantity.FormatMemory, a.MemoryBytes, b.MemoryBytes),
	}, func(s string) bool { return s == "" }), ", "), p.changed, replicas)
	if p.oom {
		c = c.because("the limit hit was %s", quantity.FormatMemory(p.hit))
	}
	if phase == "fall" {
		c = c.because("lowering waits until the peaks of memory are forgotten:")
	}
	return c.because("first pod %s, last pod %s after %s", seconds(p.first-p.seen), seconds(p.last-p.seen), since)
}

func checkRestarts(r *record) check {
	c := check{name: "no restart but the kill's"}
	p := r.phase("oom")
	if p == nil || p.victim == "" {
		return c.because("%d found, and the kill was not played", r.restarts)
	}
	victims := int32(0)
	for _, pod := range r.last.pods {
		if pod.Name == p.victim {
			victims = pod.restarts
		}
	}
	c.ok = r.restarts == 1 && victims == 1
	return c.because("1 expected, %d found, %d of them in %s", r.restarts, victims, p.victim)
}

func checkRollout(r *record) check {
	c := check{name: "no rollout, no new pod"}
	if r.first == nil {
		return c.because("the pods never ran")
	}
	c.ok = !r.strangers && r.last.target().generation == r.first.target().generation && r.last.replicaSets == 1
	pods := "the same %d pods"
	if r.strangers {
		pods = "not the same %d pods"
	}
	return c.because("Deployment generation %d -> %d, %d ReplicaSet, "+pods, r.first.target().generation, r.last.target().generation, r.last.replicaSets, replicas)
}

func checkRights(r *record) check {
	c := check{name: "no right missing"}
	a := r.last.audit
	c.ok = a.requests > 0 && len(a.forbidden) == 0
	c = c.because("%d requests under its own ServiceAccount, %d forbidden", a.requests, total(a.forbidden))
	return c.list(a.forbidden)
}

func checkWrites(r *record) check {
	c := check{name: "no write but its own"}
	a := r.last.audit
	c.ok = len(a.writes) > 0
	for kind := range a.writes {
		c.ok = c.ok && slices.Contains(r.piece.writes, kind)
	}
	c = c.because("%d writes, and %d of its lease:", total(a.writes), a.leases).list(a.writes)
	if len(a.failed) > 0 {
		c = c.because("refused and tried again:").list(a.failed)
	}
	return c
}

func checkQuiet(r *record) check {
	c := check{name: "silent when nothing happens"}
	p := r.phase("calm")
	if p == nil || p.done < 0 {
		return c.because("there was no stretch of %s without a write", quiet)
	}
	c.ok = true
	return c.because("no write for %s, from %s after the calm began", quiet, seconds(max(0, p.end.wrote-p.began)))
}

func (c check) because(format string, args ...any) check {
	c.details = append(slices.Clip(c.details), fmt.Sprintf(format, args...))
	return c
}

// list adds counts, as many to a line as fit.
func (c check) list(counts map[string]int) check {
	line := ""
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		word := fmt.Sprintf("%d %s", counts[kind], kind)
		switch {
		case line == "":
			line = word
		case len(line)+len(word)+3 > detailWidth:
			c = c.because("%s,", line)
			line = word
		default:
			line += ", " + word
		}
	}
	if line != "" {
		c = c.because("%s", line)
	}
	return c
}

// phase finds a phase that has begun.
func (r *record) phase(name string) *progress {
	for _, p := range r.phases {
		if p.name == name {
			return p
		}
	}
	return nil
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func change(what string, format func(int64) string, before, after int64) string {
	if before == after {
		return ""
	}
	return what + " " + format(before) + "->" + format(after)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
