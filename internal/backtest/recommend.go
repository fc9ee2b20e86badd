// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package backtest

import "github.com/verticalscaler/verticalscaler-operator/internal/quantity"

// Recommender is a policy that can also say what to request without it, where nothing changes requests.
type Recommender interface {
	Policy
	// Learn receives an interval like Next, where no requests are applied.
	Learn(Observation)
	// Recommend returns the requests that suit the intervals that the policy has received. ok is false
	// while it knows too little.
	Recommend() (requests quantity.Amounts, ok bool)
}

// ReplayAndRecommend is Replay, with what the rule's policy recommends at the end, if it is a Recommender. That
// depends on usage alone, not on the trace's requests. ok is false if the policy recommends nothing.
func ReplayAndRecommend(t Trace, rule Rule, o Options) (out Outcome, requests quantity.Amounts, ok bool) {
	var replayed Policy
	watched := rule
	watched.New = func(c Container) Policy {
		replayed = rule.New(c)
		return replayed
	}
	out = Replay(t, watched, o)
	policy, isRecommender := replayed.(Recommender)
	if !isRecommender {
		return out, requests, false
	}
	if out.Measures.Kills+out.Measures.WarmUpKills > 0 {
		// Kills follow from requests, and the policy has learned from them.
		t.Requests = quantity.Amounts{CPUMillis: quantity.MaxCPUMillis, MemoryBytes: quantity.MaxMemoryBytes}
		watched.New = func(c Container) Policy {
			policy, _ = rule.New(c).(Recommender) // as above
			return learner{policy}
		}
		Replay(t, watched, o)
	}
	requests, ok = policy.Recommend()
	return out, requests, ok
}

// learner is a policy that applies nothing.
type learner struct{ of Recommender }

func (l learner) Next(o Observation) (quantity.Amounts, bool) {
	l.of.Learn(o)
	return o.Requests, false
}
