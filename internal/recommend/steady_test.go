// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// TestUsageThatStraysIsNotTouched: with little evidence, usage that varies by 5 % at random keeps
// its target of the first two minutes for any seed. Only the bounds change, with each doubling of
// the evidence.
func TestUsageThatStraysIsNotTouched(t *testing.T) {
	stray(t, 600, func(minute int, h *history.Container, before, now Container) {
		if now.Target != before.Target {
			t.Errorf("minute %d: the target goes from %+v to %+v", minute, before.Target, now.Target)
		}
		if isDoubling := minute&(minute-1) == 0; !isDoubling && !reflect.DeepEqual(before, now) {
			t.Errorf("minute %d: from %+v to %+v", minute, before, now)
		}
	})
}

// TestUsageThatStraysIsNotTouchedAfterARestart: the history then comes from the checkpoint, and may
// be half as old. Nothing moves until it has caught up with the published evidence.
func TestUsageThatStraysIsNotTouchedAfterARestart(t *testing.T) {
	const saved, restart = 66, 131
	var checkpoint []byte
	stray(t, restart+(2*64-saved), func(minute int, h *history.Container, before, now Container) {
		switch minute {
		case saved:
			checkpoint = h.Encode()
		case restart:
			again, err := history.Decode(checkpoint)
			must.Succeed(t, err)
			*h = again
		}
		if minute > restart && !reflect.DeepEqual(before, now) {
			t.Errorf("minute %d: from %+v to %+v", minute, before, now)
		}
	})
}

// stray replays two hundred containers whose usage varies by 5 %, and passes each answer with the
// one before it.
func stray(t *testing.T, minutes int, see func(minute int, h *history.Container, before, now Container)) {
	t.Helper()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		base := float64(150 + seed)
		around := func() float64 { return base * (0.95 + r.Float64()/10) }
		h := &history.Container{}
		var previous *Container
		for m := range minutes {
			h.Add(sample(m, func(int) (float64, float64) { return around(), around() }), params.History)
			now, ok := For("app", h, Policy{CPU: true, Memory: true}, previous, params)
			if !ok {
				continue
			}
			if previous != nil {
				see(m, h, *previous, now)
			}
			previous = &now
		}
	}
}

// fleet replays containers whose pods have the recommended sizes, one for each phase, and visits each
// minute with another recommendation.
func fleet(t *testing.T, containers, minutes int, strays float64, visit func(container, minute int, before, now Container)) {
	t.Helper()
	for i := range containers {
		r := rand.New(rand.NewPCG(uint64(i), 7))
		base := float64(150 + i)
		around := func() float64 { return base * (1 - strays + 2*strays*r.Float64()) }
		h, policy := &history.Container{}, Policy{CPU: true, Memory: true, Phase: float64(i) / float64(containers)}
		var previous *Container
		for m := range minutes {
			h.Add(sample(m, func(int) (float64, float64) { return around(), around() }), params.History)
			now, ok := For("app", h, policy, previous, params)
			if !ok {
				continue
			}
			if previous != nil && !reflect.DeepEqual(*previous, now) {
				visit(i, m, *previous, now)
			}
			previous, policy.Requests = &now, []quantity.Amounts{now.Target}
		}
	}
}

// Evidence alone writes nothing for four hours, and then each container at its own time.
func TestSettledContainersNoteTheirEvidenceRarelyAndNotAtOnce(t *testing.T) {
	const containers, minutes = 128, 1024
	inMinute, of := map[int]int{}, map[int]int{}
	fleet(t, containers, minutes, 0.05, func(i, minute int, before, now Container) {
		if minute <= 8 {
			return // the first numbers: the request follows
		}
		if now.Target != before.Target {
			t.Errorf("minute %d: the target goes from %+v to %+v", minute, before.Target, now.Target)
		}
		if least := time.Duration(counted(notedDoublings, float64(i)/containers)); now.Observed < least {
			t.Errorf("minute %d: from %+v to %+v, before %s are observed", minute, before, now, least)
		}
		inMinute[minute]++
		of[i]++
	})
	if len(of) != containers {
		t.Errorf("the evidence of %d of %d containers is noted", len(of), containers)
	}
	for i, n := range of {
		if n > 2 {
			t.Errorf("the evidence of container %d is noted %d times in %d minutes", i, n, minutes)
		}
	}
	for minute, n := range inMinute {
		if n > 4 { // evenly, it is one container in two minutes
			t.Errorf("minute %d: %d of %d containers", minute, n, containers)
		}
	}
}

// With full evidence, there are no writes at all.
func TestSettledContainersAreSilentAfterEightDays(t *testing.T) {
	last := 0
	fleet(t, 4, 20*24*60, 0, func(_, minute int, _, _ Container) { last = max(last, minute) })
	if full := int(params.FullEvidence / time.Minute); last == 0 || last > full+1 {
		t.Errorf("the last change is in minute %d, want it to be before %d", last, full)
	}
}

// Bounds that become narrower are published as soon as they reach a request, and not before.
func TestBoundsThatReachARequestArePublished(t *testing.T) {
	h := &history.Container{}
	policy := Policy{CPU: true, Phase: 0.4}
	var previous *Container
	for m := range 3000 {
		h.Add(sample(m, func(int) (float64, float64) { return 100, 100 }), params.History)
		now, ok := For("app", h, policy, previous, params)
		if !ok {
			continue
		}
		// The same for a container of unknown requests: all bounds are published.
		fresh, _ := For("app", h, Policy{CPU: true, Phase: 0.4}, previous, params)
		for _, request := range policy.Requests {
			if is, should := request.CPUMillis > now.UpperBound.CPUMillis, request.CPUMillis > fresh.UpperBound.CPUMillis; is != should {
				t.Fatalf("minute %d: %d is above the upper bound of %d: %t, and above that of %d: %t", m, request.CPUMillis, now.UpperBound.CPUMillis, is, fresh.UpperBound.CPUMillis, should)
			}
			if request.CPUMillis > now.UpperBound.CPUMillis {
				return // it is lowered now
			}
		}
		previous, policy.Requests = &now, []quantity.Amounts{{CPUMillis: 4 * now.Target.CPUMillis}}
	}
	t.Error("the request is never lowered")
}
