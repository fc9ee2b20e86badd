// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package recommend

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/history"
)

// TestUsageThatStraysIsNotTouched: for as long as evidence is thin, usage that strays by 5 %
// at random keeps the target that it got after two minutes, whatever the chance, also
// after a restart. All that changes is the bounds, with each doubling of the evidence.
func TestUsageThatStraysIsNotTouched(t *testing.T) {
	const (
		many    = 200
		minutes = 600
		restart = 130
	)
	for seed := range uint64(many) {
		r := rand.New(rand.NewPCG(seed, 7))
		base := float64(150 + seed)
		around := func() float64 { return base * (0.95 + r.Float64()/10) }
		h := &history.Container{}
		var previous *Container
		for m := range minutes {
			h.Add(sample(m, func(int) (float64, float64) { return around(), around() }), params.History)
			if m == restart {
				again, err := history.Decode(h.Encode())
				if err != nil {
					t.Fatal(err)
				}
				h = &again
			}
			got, ok := For("app", h, Policy{CPU: true, Memory: true}, previous, params)
			if ok && previous != nil {
				if got.Target != previous.Target {
					t.Errorf("seed %d, minute %d: the target goes from %+v to %+v", seed, m, previous.Target, got.Target)
				}
				if isDoubling := m&(m-1) == 0; !isDoubling && !reflect.DeepEqual(got, *previous) {
					t.Errorf("seed %d, minute %d: from %+v to %+v", seed, m, previous, got)
				}
			}
			if ok {
				previous = &got
			}
		}
	}
}
