// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// news tells what has changed from one state to the next, a line for each change.
func news(before, after state) (lines []string) {
	say := func(what, format string, args ...any) {
		lines = append(lines, line(what, fmt.Sprintf(format, args...))...)
	}
	lines = append(lines, deploymentNews(before.deployments, after.deployments)...)
	was, _ := before.highest()
	if is, ok := after.highest(); ok && (isNews(was.CPUMillis, is.CPUMillis) || isNews(was.MemoryBytes, is.MemoryBytes)) {
		say("Usage", "cpu %s, memory %s (the highest of %d pods)", arrow(quantity.FormatCPU, was.CPUMillis, is.CPUMillis),
			arrow(quantity.FormatMemory, was.MemoryBytes, is.MemoryBytes), len(after.usage))
	}
	if now, ok := after.recommendation(); ok {
		then, _ := before.recommendation()
		if t, n := amounts(then.Target), amounts(now.Target); t != n {
			say("Needs", "cpu %s, memory %s%s", arrow(quantity.FormatCPU, t.CPUMillis, n.CPUMillis),
				arrow(quantity.FormatMemory, t.MemoryBytes, n.MemoryBytes), because(now.Reasons))
		}
	}
	for _, e := range newEvents(before, after) {
		say(e.reason, "%s", e.note)
	}
	for _, p := range after.pods {
		lines = append(lines, podNews(before, p)...)
	}
	lines = append(lines, conditionNews("Says", before.conditions(), after.conditions(),
		v1beta1.ConditionTargetFound, v1beta1.ConditionRecommendationProvided, v1beta1.ConditionApplied)...)
	return append(lines, conditionNews("Owner", before.said(), after.said(), v1beta1.ConditionReady)...)
}

// deploymentNews tells which Deployments have come, gone or changed.
func deploymentNews(before, after []deployment) (lines []string) {
	then := map[types.UID]deployment{}
	for _, d := range before {
		then[d.uid] = d
	}
	for _, d := range after {
		old, ok := then[d.uid]
		delete(then, d.uid)
		switch {
		case !ok:
			lines = append(lines, line("Created", fmt.Sprintf("Deployment %s/%s", namespace, d.name))...)
		case d.deleting && !old.deleting:
			lines = append(lines, line("Deleting", fmt.Sprintf("Deployment %s/%s", namespace, d.name))...)
		case d.generation != old.generation:
			lines = append(lines, line("Changed", fmt.Sprintf("Deployment %s: generation %d -> %d, %d replicas, image %s",
				d.name, old.generation, d.generation, d.replicas, d.image))...)
		}
	}
	for _, d := range before {
		if _, gone := then[d.uid]; gone {
			lines = append(lines, line("Gone", fmt.Sprintf("Deployment %s/%s", namespace, d.name))...)
		}
	}
	return lines
}

// conditionNews tells which conditions have changed, of those worth a line: the others
// say the same again. Stalled is worth one when it is true.
func conditionNews(what string, before, after []metav1.Condition, kinds ...string) (lines []string) {
	for _, kind := range append(slices.Clip(kinds), v1beta1.ConditionStalled) {
		now, old := find(after, kind), find(before, kind)
		old.LastTransitionTime, old.ObservedGeneration = now.LastTransitionTime, now.ObservedGeneration
		if now.Type != "" && now != old && (kind != v1beta1.ConditionStalled || now.Status == metav1.ConditionTrue) {
			lines = append(lines, line(what, fmt.Sprintf("%s=%s %s: %s", now.Type, now.Status, now.Reason, now.Message))...)
		}
	}
	return lines
}

// line is what is said of something, in as many lines as it takes.
func line(what, text string) (lines []string) {
	const head = 9
	for i, part := range wrap(text, width-len(stamp(0))-head-2) {
		if i > 0 {
			what, part = "", "  "+part
		}
		lines = append(lines, fit(what, head)+part)
	}
	return lines
}

// podNews tells what has changed on a pod.
func podNews(before state, now pod) (lines []string) {
	var then pod
	for _, p := range before.pods {
		if p.UID == now.UID {
			then = p
		}
	}
	say := func(format string, args ...any) {
		lines = append(lines, line("Pod", now.Name+" "+fmt.Sprintf(format, args...))...)
	}
	if then.UID == "" {
		say("is new: %s (limits %s)", both(now.asked().Requests), both(now.asked().Limits))
		then.Containers, then.Actual = now.Containers, now.Actual
	}
	if len(then.Kills) == 0 && len(now.Kills) > 0 {
		say("was killed: out of memory, limit %s", quantity.FormatMemory(now.inForce().Limits.MemoryBytes))
	}
	if then.restarts != now.restarts {
		say("restarted: %d -> %d restarts", then.restarts, now.restarts)
	}
	if a, b := then.asked(), now.asked(); a != b {
		say("is asked to be %s (limits %s)", both(b.Requests), both(b.Limits))
	}
	if a, b := then.inForce(), now.inForce(); a != b {
		say("is now %s (limits %s)", both(b.Requests), both(b.Limits))
	}
	return lines
}

// isNews says whether usage has changed by a tenth.
func isNews(before, after int64) bool { return max(after-before, before-after)*10 > before }

func newEvents(before, after state) (out []event) {
	known := map[any]bool{}
	for _, e := range before.events {
		known[e.uid] = true
	}
	for _, e := range after.events {
		if !known[e.uid] {
			out = append(out, e)
		}
	}
	return out
}

func amounts(a v1beta1.Amounts) quantity.Amounts {
	return quantity.Amounts{CPUMillis: kinds[0].amount(a), MemoryBytes: kinds[1].amount(a)}
}

func arrow(format func(int64) string, before, after int64) string {
	if before == 0 || before == after {
		return format(after)
	}
	return format(before) + "->" + format(after)
}

// because names the steps from usage to target: " (cpu RecentUsage, SafetyMargin; memory Peak)".
func because(reasons []v1beta1.RecommendationReason) string {
	out := ""
	last := v1beta1.ControlledResource("")
	for _, r := range reasons {
		switch {
		case last == "":
			out = " (" + string(r.Resource) + " "
		case r.Resource != last:
			out += "; " + string(r.Resource) + " "
		default:
			out += ", "
		}
		out += r.Code
		last = r.Resource
	}
	if out != "" {
		out += ")"
	}
	return out
}
