// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/history"
)

// TestUsageThatStraysIsNotTouched: as long as evidence is thin, usage that strays by 5 % at
// random keeps the target that it got after two minutes, whatever the chance. All that
// changes is the bounds, with each doubling of the evidence.
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

// TestUsageThatStraysIsNotTouchedAfterARestart: the history then is that of the checkpoint,
// which may be half as old. Nothing moves until it has caught up with what was published.
func TestUsageThatStraysIsNotTouchedAfterARestart(t *testing.T) {
	const saved, restart = 66, 131
	var checkpoint []byte
	stray(t, restart+(2*64-saved), func(minute int, h *history.Container, before, now Container) {
		switch minute {
		case saved:
			checkpoint = h.Encode()
		case restart:
			again, err := history.Decode(checkpoint)
			if err != nil {
				t.Fatal(err)
			}
			*h = again
		}
		if minute > restart && !reflect.DeepEqual(before, now) {
			t.Errorf("minute %d: from %+v to %+v", minute, before, now)
		}
	})
}

// stray replays two hundred containers whose usage strays by 5 %, and shows each answer with
// the one before it.
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
