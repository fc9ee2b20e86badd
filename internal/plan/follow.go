// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

// Follow says what the requests in force become by a recommendation, where nothing else
// bounds them: the rule of every decision, without a cluster around it. since is the time
// since they were moved last. It is what a replay of recorded usage goes by.
func Follow(current quantity.Amounts, rec recommend.Container, cooldown, since time.Duration) quantity.Amounts {
	next := current
	for _, r := range resources {
		target := r.of(rec.Target)
		if target == 0 {
			continue
		}
		to, why := moveOf(r.of(current), target, rec, r, DefaultTolerance, spans{})
		if why == "" || waits(why) && since < cooldown {
			continue
		}
		r.set(&next, to)
	}
	return next
}
