// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import (
	"cmp"

	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

// Recommender is a policy that can also say what to request without it, where nothing changes requests.
type Recommender interface {
	Policy
	// Learn receives an interval like Next, where no requests are applied.
	Learn(Observation)
	// Recommend returns the requests that suit the intervals that the policy has received. ok is false
	// while it knows too little.
	Recommend() (requests quantity.Amounts, ok bool)
	// Clone returns a copy that knows the same.
	Clone() Recommender
}

// ReplayAndRecommend is Replay, with what the rule's policy recommends at the end, if it is a Recommender. That
// depends on usage alone, not on the trace's requests. ok is false if the policy recommends nothing.
func ReplayAndRecommend(t Trace, rule Rule, o Options) (out Outcome, requests quantity.Amounts, ok bool) {
	t = o.World.minutesOf(t)
	var both *twins
	watched := rule
	watched.New = func(c Container) Policy {
		policy := rule.New(c)
		if applied, isRecommender := policy.(Recommender); isRecommender {
			both = &twins{applied: applied, samples: t.Samples}
			return both
		}
		return policy
	}
	if out = Replay(t, watched, o); both == nil {
		return out, requests, false
	}
	requests, ok = cmp.Or(both.undisturbed, both.applied).Recommend()
	return out, requests, ok
}

// twins are a policy and, from the first kill on, a copy that learns what the container needs without kills: they follow
// from requests, and a policy learns from them.
type twins struct {
	applied, undisturbed Recommender
	samples              []Sample // the next ones
}

func (t *twins) Next(o Observation) (quantity.Amounts, bool) {
	if o.OOMKilled && t.undisturbed == nil {
		t.undisturbed = t.applied.Clone()
	}
	if t.undisturbed != nil {
		needed := o
		needed.OOMKilled, needed.MemoryBytes = false, min(t.samples[0].MemoryBytes, quantity.MaxMemoryBytes)
		t.undisturbed.Learn(needed)
	}
	t.samples = t.samples[1:]
	return t.applied.Next(o)
}
