// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package decision

import (
	"time"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
)

// Follow returns the requests that follow from the current ones and a recommendation, if
// nothing else bounds them. since is the time since the last change. A replay of recorded
// usage uses it to apply the rules of a decision without a cluster.
func Follow(current quantity.Amounts, rec recommend.Container, cooldown, since time.Duration) quantity.Amounts {
	next := current
	for _, r := range model.Resources {
		p := proposal{resource: r, rec: rec, tolerance: model.DefaultTolerance, current: r.Of(current), target: r.Of(rec.Target)}
		if p.target == 0 {
			continue
		}
		to, why := p.move()
		if IsDeferrable(why) && since < cooldown {
			continue
		}
		r.Set(&next, to)
	}
	return next
}
