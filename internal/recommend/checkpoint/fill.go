// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package checkpoint

import (
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// FilledAnnotation marks a checkpoint whose history was filled with past usage already, so that a
// restart does not fill it again.
const FilledAnnotation = "autoscaling.verticalscaler.io/filled"

// filling is the state of filling a history with past usage.
//
// Histories take samples in the order of time, so past usage cannot be added to a live history. It
// goes into histories of its own, which then replace the live ones, together with the live samples
// after their end.
type filling struct {
	done bool
	// active is since StartFilling; newer are the samples that came since then.
	active bool
	newer  []usage.Sample
}

// Feed adds the samples of a collection round to the scaler's history, calls f with it, and reports whether
// there was one in memory. f must not keep it.
func (s *Store) Feed(vs *v1beta1.VerticalScaler, samples []usage.Sample, f func(history.Histories)) bool {
	e := s.loaded(vs)
	if e == nil {
		return false
	}
	defer e.mu.Unlock()
	params := s.ParamsOf(vs)
	for _, sample := range samples {
		e.histories.Add(sample, params)
	}
	if e.filling.active {
		e.filling.newer = append(e.filling.newer, samples...)
	}
	f(e.histories)
	return true
}

// Readiness reports whether a history can be filled.
type Readiness int

const (
	// NotLoaded is a history that is not in memory yet.
	NotLoaded Readiness = iota
	// Filled is a history that was filled before, or has enough usage itself.
	Filled
	// Ready is a history to be filled: until Fill or StopFilling, new samples are kept.
	Ready
)

// StartFilling begins to fill the scaler's history, unless it is about as much time as
// enough already.
func (s *Store) StartFilling(vs *v1beta1.VerticalScaler, enough time.Duration) Readiness {
	e := s.loaded(vs)
	if e == nil {
		return NotLoaded
	}
	defer e.mu.Unlock()
	longest := time.Duration(0)
	for _, c := range e.histories {
		longest = max(longest, c.Observed())
	}
	if e.filling.done || longest >= enough {
		return Filled
	}
	e.filling.active, e.filling.newer = true, nil
	return Ready
}

// StopFilling aborts StartFilling.
func (s *Store) StopFilling(vs *v1beta1.VerticalScaler) {
	if e := s.loaded(vs); e != nil {
		defer e.mu.Unlock()
		e.filling.active, e.filling.newer = false, nil
	}
}

// Fill completes StartFilling: if past, which ends at end, proves more about a container than its
// live history, it replaces that. The result is the number of these containers. past must not be
// used any more.
func (s *Store) Fill(vs *v1beta1.VerticalScaler, past history.Histories, end time.Time) (filled int) {
	e := s.loaded(vs)
	if e == nil {
		return 0
	}
	defer e.mu.Unlock()
	if !e.filling.active {
		return 0 // its target has changed, and it began again
	}
	params, newer := s.ParamsOf(vs), e.filling.newer
	e.filling.active, e.filling.newer = false, nil
	slices.SortStableFunc(newer, func(a, b usage.Sample) int { return a.Time.Compare(b.Time) })
	for _, sample := range newer {
		// Samples up to the end are in the past already, and must not count twice.
		if past[sample.Container] != nil && sample.Time.After(end) {
			past.Add(sample, params)
		}
	}
	for name, c := range past {
		live := e.histories[name]
		if live == nil && len(e.histories) >= history.MaxContainers {
			continue
		}
		if live != nil {
			if live.Observed() >= c.Observed() {
				continue
			}
			keepMemory(live, c, params)
		}
		e.histories[name] = c
		filled++
	}
	if filled > 0 {
		e.filling.done = true
	}
	return filled
}

// keepMemory copies the peak, the OOM kills and the coverage of the live history into the past, so
// that a gap in the past does not lower the known need.
func keepMemory(live, past *history.Container, p history.Params) {
	if peak := live.Peak(); peak > past.Peak() {
		past.Add(usage.Sample{Time: past.NewestSample(), NoCPU: true, MemoryBytes: peak}, p)
	}
	past.AdoptKills(live)
	past.AdoptCoverage(live)
}

// loaded returns the scaler's entry, locked, if its history is in memory and about this
// very scaler and its Deployment.
func (s *Store) loaded(vs *v1beta1.VerticalScaler) *entry {
	s.mu.Lock()
	e := s.entries[client.ObjectKeyFromObject(vs)]
	s.mu.Unlock()
	if e == nil {
		return nil
	}
	e.mu.Lock()
	if e.histories == nil || e.owner != vs.UID || e.deployment != vs.Spec.DeploymentName {
		e.mu.Unlock()
		return nil
	}
	return e
}
