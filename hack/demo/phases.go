// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

const (
	// quiet is how long the operator must write nothing in the end.
	quiet = 30 * time.Second
	// readable is how long the outcome of a phase stays where people watch.
	readable = 6 * time.Second
	// cooldown is the scaler's in scaler.yaml, and for how long it watches; dayHere is what
	// a day has become in operator.yaml.
	cooldown = 5 * time.Second
	dayHere  = "5s"

	mebi = 1 << 20
)

// phase is a part of the play. It ends when what it is about has been seen.
type phase struct {
	name  string
	story string
	// commands are given to kubectl first.
	commands []string
	// load is what each pod uses from now on; zero for as before.
	load quantity.Amounts
	// oom says that one pod runs out of memory.
	oom bool
	// missing tells what has not been seen yet, or "" if all has.
	missing func(p *progress, s state) string
	// within is how long that may take.
	within time.Duration
}

// piece is what is played, and what must come of it.
type piece struct {
	phases []phase
	checks func(*record) []check
	// writes are all that the operator may ever write, besides its lease.
	writes []string
	// without are the roles of config/default that it must do without, and says so.
	without []string
	rights  string
}

// scalerPiece is about a scaler that is given a Deployment.
func scalerPiece() piece {
	return piece{
		phases: play(), checks: scalerChecks, writes: scalerWrites,
		without: []string{"manager-rollout", "manager-scaled-deployment"}, rights: "the right to change Deployments",
	}
}

// play is the whole of it. The usage of the phases stays below the limits in force:
// a real container could not use more either.
func play() []phase {
	return []phase{
		{
			name:    "steady",
			story:   "Three pods use nearly what they request: nothing is to be changed.",
			load:    quantity.Amounts{CPUMillis: 85, MemoryBytes: 110 * mebi},
			missing: isSettled,
			within:  2 * time.Minute,
		},
		{
			name:    "rise",
			story:   "All pods use 180m and 200Mi now, more than they request: raise, and do not wait.",
			load:    quantity.Amounts{CPUMillis: 180, MemoryBytes: 200 * mebi},
			missing: isRaised,
			within:  2 * time.Minute,
		},
		{
			name:    "fall",
			story:   "All pods use 40m and 60Mi now: lower, once the peaks are old enough to be forgotten.",
			load:    quantity.Amounts{CPUMillis: 40, MemoryBytes: 60 * mebi},
			missing: isLowered,
			within:  3 * time.Minute,
		},
		{
			name:    "oom",
			story:   "One pod hits its memory limit and is killed: what killed one is too little for all.",
			load:    quantity.Amounts{CPUMillis: 40, MemoryBytes: 60 * mebi},
			oom:     true,
			missing: isSaved,
			within:  2 * time.Minute,
		},
		{
			name:    "calm",
			story:   fmt.Sprintf("Nothing happens: the operator must write nothing for %s but its lease.", quiet),
			load:    quantity.Amounts{CPUMillis: 40, MemoryBytes: 60 * mebi},
			missing: isQuiet,
			within:  2*time.Minute + quiet,
		},
	}
}

// isSettled waits for usage, a recommendation, and the operator saying that all is
// as it should be.
func isSettled(_ *progress, s state) string {
	if n := count(s.pods, func(p pod) bool { _, ok := s.usage[p.Name]; return ok }); n < len(s.pods) || n == 0 {
		return fmt.Sprintf("the usage of %d of %d pods", len(s.pods)-n, len(s.pods))
	}
	if _, ok := s.recommendation(); !ok {
		return "a recommendation"
	}
	return settled(s)
}

// isRaised waits for all pods to have more than they use.
func isRaised(p *progress, s state) string {
	return resized(p, s, "requests above their usage", func(_, now workload.Resources) bool {
		return now.Requests.CPUMillis > p.load.CPUMillis && now.Requests.MemoryBytes > p.load.MemoryBytes
	})
}

// isLowered waits for all pods to have at most two thirds of what they had, and
// still more than they use.
func isLowered(p *progress, s state) string {
	return resized(p, s, "requests lowered by a third, and above their usage", func(before, now workload.Resources) bool {
		return now.Requests.CPUMillis*3 <= before.Requests.CPUMillis*2 && now.Requests.CPUMillis > p.load.CPUMillis &&
			now.Requests.MemoryBytes*3 <= before.Requests.MemoryBytes*2 && now.Requests.MemoryBytes > p.load.MemoryBytes
	})
}

// isSaved waits for the victim to run again, and for all pods to request more memory
// than the limit that killed it.
func isSaved(p *progress, s state) string {
	if p.seen < 0 {
		return "the kill in the pod's status"
	}
	for _, pod := range s.pods {
		if !pod.ready {
			return fmt.Sprintf("pod %s to run again", pod.Name)
		}
	}
	return resized(p, s, "requests above the limit that was hit", func(_, now workload.Resources) bool {
		return now.Requests.MemoryBytes > p.hit
	})
}

// isQuiet waits for a stretch of time without the operator writing anything.
func isQuiet(p *progress, s state) string {
	if left := quiet - s.sinceWrite(p.began); left > 0 {
		return fmt.Sprintf("%s more without a write", left.Round(time.Second))
	}
	return settled(s)
}

// sinceWrite is how long ago the operator last wrote, or the moment was, if that
// was later.
func (s state) sinceWrite(moment time.Duration) time.Duration { return s.at - max(moment, s.wrote) }

// resized waits for all pods to have something in force, and for the operator to
// say that this is all.
func resized(p *progress, s state, what string, has func(before, now workload.Resources) bool) string {
	done := count(s.pods, func(pod pod) bool { return has(p.before[pod.UID], pod.inForce()) })
	if done < len(s.pods) || done == 0 {
		return fmt.Sprintf("%d of %d pods to have %s in force", len(s.pods)-done, len(s.pods), what)
	}
	return settled(s)
}

func settled(s state) string {
	if !s.isApplied() {
		return "the operator to say that nothing is left to be done"
	}
	return ""
}

func count(pods []pod, is func(pod) bool) (n int) {
	for _, p := range pods {
		if is(p) {
			n++
		}
	}
	return n
}
