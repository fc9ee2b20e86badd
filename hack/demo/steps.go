// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// scenario is a table of steps, with what the operator needs for it.
type scenario struct {
	steps   []step
	writes  []string // the kinds of writes
	without string   // the roles of config/default that it does not need
}

// step changes something and waits for the effect.
type step struct {
	name, story string
	// do are a user's commands. $POD is the last pod.
	do []string
	// usage is what each pod uses from now on, except the last, which uses a fifth less; zero for no change.
	usage quantity.Amounts
	// missing names what has not happened yet. The step ends when it returns "", or, without
	// it, after the commands.
	missing func(p *progress) string
	// claim is the check of the step. It passes if the step ends and the proof, if there is
	// one, agrees.
	claim string
	proof func(p *progress) (ok bool, details string)
}

// commands are those of the step and those that change the usage.
func (s step) commands() []string {
	if s.usage == (quantity.Amounts{}) {
		return s.do
	}
	less := quantity.Amounts{CPUMillis: s.usage.CPUMillis * 4 / 5, MemoryBytes: s.usage.MemoryBytes * 4 / 5}
	return append(slices.Clip(s.do), annotate("-l app=web", s.usage), annotate("$POD", less))
}

// annotate is the command that sets the simulated usage of pods.
func annotate(pods string, usage quantity.Amounts) string {
	return fmt.Sprintf("kubectl annotate pod %s --overwrite usage.verticalscaler.io/cpu=%s usage.verticalscaler.io/memory=%s",
		pods, quantity.FormatCPU(usage.CPUMillis), quantity.FormatMemory(usage.MemoryBytes))
}

// progress is what was seen of a step.
type progress struct {
	step
	start, end snapshot
	done       bool
	// caused is when the operator could know the cause of a resize: the new usage in
	// metrics.k8s.io, or the OOM kill in the pod's status. before are the pods' resources
	// until then, and first and last are when pods were resized after that. The effect of
	// an earlier step does not count.
	caused, first, last time.Time
	before              map[types.UID]workload.Resources
}

// add takes note of a snapshot.
func (p *progress) add(s snapshot) {
	previous := map[types.UID]workload.Resources{}
	for _, pod := range p.end.pods {
		previous[pod.UID] = resources(pod)
	}
	p.end = s
	if p.caused.IsZero() {
		if s.count(p.showsCause) == 0 {
			return
		}
		p.caused, p.before = s.at, previous
	}
	if s.count(func(pod workload.Pod) bool { r, ok := previous[pod.UID]; return ok && r != resources(pod) }) > 0 {
		p.last = s.at
		if p.first.IsZero() {
			p.first = s.at
		}
	}
}

func (p *progress) showsCause(pod workload.Pod) bool {
	if p.usage == (quantity.Amounts{}) {
		return pod.UID == p.victim().UID && len(pod.Kills) > len(p.victim().Kills)
	}
	return p.end.memory[pod.Name] == p.usage.MemoryBytes // CPU is an average at first
}

// victim is $POD, as it was at the start of the step.
func (p *progress) victim() (last workload.Pod) {
	for _, last = range p.start.pods {
	}
	return last
}

func (p *progress) took() time.Duration { return p.end.at.Sub(p.start.at) }

// results checks what was seen of the steps, and all requests of the operator. It returns
// a line for each check.
func (s scenario) results(seen []*progress, requests []testkit.Write) (lines []string, passed bool) {
	passed = true
	add := func(ok bool, claim, details string) {
		verdict := "PASS"
		if !ok {
			verdict, passed = "FAIL", false
		}
		lines = append(lines, fmt.Sprintf("%s  %s: %s", verdict, claim, details))
	}
	for i, step := range s.steps {
		switch {
		case i >= len(seen) || !seen[i].done:
			add(false, step.claim, "the step did not end")
		case step.proof == nil:
			add(true, step.claim, fmt.Sprintf("after %.1fs", seen[i].took().Seconds()))
		default:
			ok, details := step.proof(seen[i])
			add(ok, step.claim, details)
		}
	}
	writes, forbidden, needed := map[string]int{}, map[string]int{}, true
	for _, r := range requests {
		switch kind := r.Verb + " " + r.Resource; {
		case isForbidden(r):
			forbidden[kind]++
		case isWrite(r):
			writes[kind]++
			needed = needed && slices.Contains(s.writes, kind)
		}
	}
	add(len(requests) > 0 && len(forbidden) == 0, "no right is missing", fmt.Sprintf("%d requests as its ServiceAccount, forbidden: %s", len(requests), list(forbidden)))
	add(len(writes) > 0 && needed, "the operator writes only what it must", list(writes))
	return lines, passed
}

// list is sorted text: "[create events:29 patch pods/resize:21]".
func list(counts map[string]int) string { return strings.TrimPrefix(fmt.Sprint(counts), "map") }

// What steps wait for.

// applied waits for the operator to apply its decision.
func applied(p *progress) string {
	if condition(p.end.scaler.Status.Conditions, v1beta1.ConditionApplied).Status != "True" {
		return "the operator to report Applied"
	}
	return ""
}

// steady waits for the usage of all pods and a recommendation.
func steady(p *progress) string {
	known := p.end.count(func(pod workload.Pod) bool { return pod.Ready && p.end.memory[pod.Name] > 0 })
	if d := p.end.target(); d.Spec.Replicas == nil || known < int(*d.Spec.Replicas) || known < len(p.end.pods) {
		return fmt.Sprintf("the usage of all pods: %d of %d", known, len(p.end.pods))
	}
	if p.end.scaler.Status.Recommendation == nil {
		return "a recommendation"
	}
	return applied(p)
}

// resized waits for all pods to have requests that fulfil a condition.
func resized(what string, fulfils func(p *progress, before, now quantity.Amounts) bool) func(*progress) string {
	return func(p *progress) string {
		if p.caused.IsZero() {
			return "the new usage or the OOM kill to appear in the API"
		}
		n := p.end.count(func(pod workload.Pod) bool {
			return pod.Ready && fulfils(p, p.before[pod.UID].Requests, resources(pod).Requests)
		})
		if n < len(p.end.pods) || n == 0 {
			return fmt.Sprintf("requests %s on all pods: %d of %d", what, n, len(p.end.pods))
		}
		return applied(p)
	}
}

// coversUsage reports whether the requests cover the mean CPU usage of the three pods, one of which uses a fifth less, and
// the memory usage of each. The operator recommends no more CPU than the mean, raised for how uneven the pods are.
func coversUsage(p *progress, _, now quantity.Amounts) bool {
	return now.CPUMillis*15 >= p.usage.CPUMillis*14 && now.MemoryBytes > p.usage.MemoryBytes
}

func loweredByAThird(p *progress, before, now quantity.Amounts) bool {
	return coversUsage(p, before, now) && now.CPUMillis*3 <= before.CPUMillis*2 && now.MemoryBytes*3 <= before.MemoryBytes*2
}

func aboveLimit(p *progress, _, now quantity.Amounts) bool {
	return now.MemoryBytes > resources(p.victim()).Limits.MemoryBytes
}

// quietTime is how long the operator must write nothing while nothing changes.
const quietTime = 30 * time.Second

// quiet waits for a stretch of time without a write of the operator.
func quiet(p *progress) string {
	if left := quietTime - min(p.took(), p.end.at.Sub(p.end.lastWrite)); left > 0 {
		return fmt.Sprintf("%s more without a write", left.Round(time.Second))
	}
	return applied(p)
}

// What steps prove.

// unchanged proves that pods, Deployment and ReplicaSets are those of the start, and that
// no container has restarted besides one OOM kill.
func unchanged(p *progress) (bool, string) {
	a, b, restarts := p.start.target(), p.end.target(), p.end.restarts-p.start.restarts
	if p.usage == (quantity.Amounts{}) && !p.caused.IsZero() {
		restarts-- // after the OOM kill
	}
	same := slices.EqualFunc(p.start.pods, p.end.pods, func(a, b workload.Pod) bool { return a.UID == b.UID })
	return a.UID != "" && a.UID == b.UID && a.Generation == b.Generation && p.start.replicaSets == p.end.replicaSets && same && restarts == 0,
		fmt.Sprintf("Deployment generation %d -> %d, same pods: %t, %d other restarts", a.Generation, b.Generation, same, restarts)
}

// inPlace proves that all pods were resized after the cause was known, and that nothing
// else has changed.
func inPlace(p *progress) (bool, string) {
	n := p.end.count(func(pod workload.Pod) bool { return resources(pod) != p.before[pod.UID] })
	if n == 0 || p.first.IsZero() {
		return false, "no pod was resized"
	}
	ok, details := unchanged(p)
	before, after := p.before[p.victim().UID].Requests, resources(p.end.pods[len(p.end.pods)-1]).Requests
	return ok && n == len(p.end.pods),
		fmt.Sprintf("cpu %s -> %s, memory %s -> %s on %d of %d pods, the first %.1fs and the last %.1fs after the API showed the cause; %s",
			quantity.FormatCPU(before.CPUMillis), quantity.FormatCPU(after.CPUMillis),
			quantity.FormatMemory(before.MemoryBytes), quantity.FormatMemory(after.MemoryBytes),
			n, len(p.end.pods), p.first.Sub(p.caused).Seconds(), p.last.Sub(p.caused).Seconds(), details)
}
