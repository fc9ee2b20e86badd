// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// fallBack plans what comes after all that could be done in place. What another pod
// would meet as well, such as a quota, or what ends by itself, is no reason for it.
func (p Plan) fallBack(s Situation, policy Policy, blocked notes, have int, now time.Time) Plan {
	p.Reason, p.Message, p.Stalled = blocked.tell()
	restarts := blocked.ofRestarts()
	switch {
	case len(restarts) == 0 || p.Decision == nil:
		return p
	case policy.Fallback == v1beta1.FallbackRollout:
		return p.rollOutInstead(s, policy, restarts, now)
	case policy.Fallback == v1beta1.FallbackRecreate:
		return p.recreate(s, policy, restarts, have, now)
	}
	p.Message += ". The fallback is Wait: these pods stay as they are"
	return p
}

// rollOutInstead plans the next change of the pod template, as in the mode Rollout, where
// that makes pods of another size than there are.
func (p Plan) rollOutInstead(s Situation, policy Policy, restarts notes, now time.Time) Plan {
	if !rewritingOf(s, policy, *p.Decision).changes {
		if s.Deployment.RollingOut {
			p.Stalled = false
			return p.rolledOut(s, policy, now)
		}
		p.Message += ". The Deployment's pod template has the decided size already"
		return p
	}
	_, why, _ := restarts.tell()
	atSize, again := p.PodsAtSize, p.RequeueAfter
	p.Stalled, p.RequeueAfter = false, 0
	p = p.rewrite(s, policy, now)
	p.PodsAtSize = atSize
	if !p.steps() {
		p.RequeueAfter = sooner(p.RequeueAfter, again)
	}
	p.Message = fmt.Sprintf("%s. It takes a new pod: %s", p.Message, why)
	return p
}

// withoutPods is the plan while no pod counts: all of them may be about to be replaced.
func (p Plan) withoutPods(s Situation, policy Policy, now time.Time) Plan {
	if policy.mayRollOut() && len(s.Held) > 0 && s.Deployment.RollingOut && !rewritingOf(s, policy, *p.Decision).changes {
		return p.rolledOut(s, policy, now)
	}
	return p.because(v1beta1.ReasonNoPods, "The Deployment has no running pods")
}
