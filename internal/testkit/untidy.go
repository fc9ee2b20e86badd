// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"context"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage/collect"
)

// World says how untidy the world around the operators of a suite is. The zero World is tidy.
type World struct {
	// SpreadPercent is how far the usage of replicas is from their mean, at most. The mean of CPU
	// is what the test sets, and so is the memory of the pod that uses most.
	SpreadPercent int
	// SilentEvery is the number of rounds in which usage leaves out one pod of each ReplicaSet
	// once. Zero leaves out none.
	SilentEvery int
	// Sidecar injects a native sidecar with its own requests and limits into new pods, as a
	// service mesh does.
	Sidecar bool
	// ClockAhead and ClockBehind are how wrong the clocks of some nodes are. They stamp the
	// statuses of pods, and samples of usage.
	ClockAhead, ClockBehind time.Duration
	// Lag is how late watch events reach an operator, at most. Streams lag differently, so that
	// events of different kinds change their order.
	Lag time.Duration
	// StormPause is the pause between two writes of a tenant who creates, edits and deletes
	// scalers and Deployments all the time. Zero means no such tenant.
	StormPause time.Duration
}

// Untidy is the world of a suite. Tests opt out with Tidy.
var Untidy = World{
	SpreadPercent: 6,
	SilentEvery:   40,
	Sidecar:       true,
	ClockAhead:    5 * time.Second,
	ClockBehind:   20 * time.Second,
	Lag:           300 * time.Millisecond,
	StormPause:    500 * time.Millisecond,
}

// Aspect is something untidy that a test can do without.
type Aspect int

// The aspects of a World.
const (
	// UnevenUsage is SpreadPercent.
	UnevenUsage Aspect = iota
	// SilentPods is SilentEvery.
	SilentPods
	// Sidecars is Sidecar.
	Sidecars
	// SkewedClocks is ClockAhead and ClockBehind.
	SkewedClocks
	// LaggingCaches is Lag.
	LaggingCaches
	// Storms is StormPause.
	Storms
)

// without returns the world without some aspects.
func (w World) without(aspects []Aspect) World {
	for _, aspect := range aspects {
		switch aspect {
		case UnevenUsage:
			w.SpreadPercent = 0
		case SilentPods:
			w.SilentEvery = 0
		case Sidecars:
			w.Sidecar = false
		case SkewedClocks:
			w.ClockAhead, w.ClockBehind = 0, 0
		case LaggingCaches:
			w.Lag = 0
		case Storms:
			w.StormPause = 0
		}
	}
	return w
}

// tidied are the aspects that tests do without, by test.
var tidied = struct {
	sync.Mutex
	by map[string][]Aspect
}{by: map[string][]Aspect{}}

// Tidy opts the test and its subtests out of some aspects of the suite's world, and logs why. Call it
// before anything else.
func Tidy(t testing.TB, why string, aspects ...Aspect) {
	t.Helper()
	t.Logf("A tidier world: %s", why)
	tidied.Lock()
	defer tidied.Unlock()
	tidied.by[t.Name()] = append(tidied.by[t.Name()], aspects...)
}

// worldOf is the world of a test: that of the suite, without what the test and its parents do without.
func (e *Env) worldOf(test string) World {
	tidied.Lock()
	defer tidied.Unlock()
	w := e.world
	for name, aspects := range tidied.by {
		if test == name || strings.HasPrefix(test, name+"/") {
			w = w.without(aspects)
		}
	}
	return w
}

// The labels of namespaces whose pods get a sidecar, or times by skewed clocks.
const (
	sidecarLabel = "testkit.verticalscaler.io/sidecar"
	clocksLabel  = "testkit.verticalscaler.io/skewed-clocks"
)

func (w World) labels() map[string]string {
	out := map[string]string{}
	if w.Sidecar {
		out[sidecarLabel] = "true"
	}
	if w.ClockAhead != 0 || w.ClockBehind != 0 {
		out[clocksLabel] = "true"
	}
	return out
}

// skew is how wrong the clock is of one thing in three that is ahead, and one that is behind.
func (w World) skew(of string) time.Duration {
	return []time.Duration{0, w.ClockAhead, -w.ClockBehind}[hashOf(of)%3]
}

func hashOf(s string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(s)) // never fails
	return h.Sum32()
}

// unevenSource makes the usage of a source untidy.
type unevenSource struct {
	collect.Source

	world World

	mu     sync.Mutex
	rounds map[string]int // by namespace
}

func (w World) source(s collect.Source) collect.Source {
	return &unevenSource{Source: s, world: w, rounds: map[string]int{}}
}

// List implements collect.Source.
func (s *unevenSource) List(ctx context.Context, namespace string, now time.Time) ([]usage.Sample, []usage.Refused, error) {
	samples, refused, err := s.Source.List(ctx, namespace, now)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rounds[namespace]++
	return s.world.disarrange(samples, s.rounds[namespace]), refused, nil
}

// disarrange makes the samples of one round uneven, stamps them by different clocks, and leaves out
// those of a pod now and then.
func (w World) disarrange(samples []usage.Sample, round int) (out []usage.Sample) {
	replicas := map[string][]string{} // the pods of a ReplicaSet
	for _, s := range samples {
		set := setOf(s.Pod)
		if !slices.Contains(replicas[set], s.Pod) {
			replicas[set] = append(replicas[set], s.Pod)
		}
	}
	for _, pods := range replicas {
		slices.Sort(pods)
	}
	for _, s := range samples {
		set := setOf(s.Pod)
		rank, n := slices.Index(replicas[set], s.Pod), len(replicas[set])
		if w.isSilent(set, rank, n, round) {
			continue
		}
		cpu, memory := w.shares(rank, n)
		s.CPUMillis, s.MemoryBytes = s.CPUMillis*cpu/1000, s.MemoryBytes*memory/1000
		s.Time = s.Time.Add(w.skew(s.Pod))
		out = append(out, s)
	}
	return out
}

// setOf is the name of a pod's ReplicaSet.
func setOf(pod string) string { return pod[:max(0, strings.LastIndexByte(pod, '-'))] }

// isSilent says whether a pod is left out of a round. Sets take their turns in different rounds, and
// pods of a set one after the other.
func (w World) isSilent(set string, rank, of, round int) bool {
	if w.SilentEvery == 0 {
		return false
	}
	round += int(hashOf(set) % uint32(w.SilentEvery))
	return round%w.SilentEvery == 0 && round/w.SilentEvery%of == rank
}

// shares are the CPU and the memory of a pod in per mille of what the test sets.
func (w World) shares(rank, of int) (cpu, memory int64) {
	if of == 1 {
		return 1000, 1000
	}
	step := int64(20 * w.SpreadPercent * rank / (of - 1)) // from 0 to twice the spread
	return 1000 - int64(10*w.SpreadPercent) + step, 1000 - step
}
