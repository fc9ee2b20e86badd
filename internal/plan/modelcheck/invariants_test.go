// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package modelcheck

import (
	"fmt"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
)

// isApplied reports whether the condition Applied is True.
func (st status) isApplied() bool { return plan.State(st.state).IsApplied() }

// violation says which invariant a reconcile breaks; empty for none. s is the state before the
// write, and lands says that the API server accepts it.
func (r *pass) violation(s state, lands bool) string {
	if v := r.violationOfVerdict(s); v != "" {
		return v
	}
	if !lands {
		return ""
	}
	switch r.outcome.action {
	case takeOver:
		return r.violationOfTakeOver(s)
	case restore:
		return ""
	}
	for _, check := range []func(state) string{r.violationOfIdentity, r.violationOfBounds, r.violationOfLowering, r.violationOfDisruption} {
		if v := check(s); v != "" {
			return v
		}
	}
	return ""
}

// violationOfVerdict judges what the status is going to say.
func (r *pass) violationOfVerdict(s state) string {
	st, p := r.outcome.status, &s.processes[r.process]
	if st.reverts > r.seen.reverts && st.reverts > s.ghost.edits && r.isUpToDate(s) {
		return "a revert is counted, but only the operator has changed the value"
	}
	if !st.isApplied() || p.stalled != [watches]bool{} || r.mode != v1beta1.UpdateModeInPlace {
		return ""
	}
	for k, at := range r.pods {
		switch {
		case at.phase != ready:
		case at.actual != at.spec:
			return fmt.Sprintf("Applied is True, but %s declares %s and has %s", podNames[k], amount(at.spec), amount(at.actual))
		case st.decided > 0 && at.actual != st.decided:
			return fmt.Sprintf("Applied is True, but %s is decided and %s has %s", amount(st.decided), podNames[k], amount(at.actual))
		}
	}
	return ""
}

func (r *pass) violationOfTakeOver(s state) string {
	if r.outcome.to != s.ghost.user {
		return fmt.Sprintf("%s is recorded as the original value, and the user's is %s", amount(r.outcome.to), amount(s.ghost.user))
	}
	return ""
}

// violationOfIdentity: a write lands only on what the process has seen.
func (r *pass) violationOfIdentity(s state) string {
	switch o := r.outcome; o.action {
	case rewrite:
		if s.world.deployment.uid != r.deployment.uid {
			return "the template of another Deployment is written"
		}
		if s.world.deployment.template != r.deployment.template {
			return "an edit of the template is overwritten that the operator has not seen"
		}
	case resizePod, evict:
		if at := s.world.pods[o.pod]; at.uid != r.pods[o.pod].uid || at.owner != r.deployment.uid {
			return "a pod is written that is not the one that was seen, or not of this Deployment"
		}
	}
	return ""
}

func (r *pass) violationOfBounds(state) string {
	if r.outcome.withdraws > 0 {
		return r.violationOfWithdrawal()
	}
	switch {
	case r.outcome.to > r.sight.most:
		return amount(r.outcome.to) + " is written, above maxAllowed"
	case r.outcome.to < small:
		return amount(r.outcome.to) + " is written, below minAllowed"
	case !r.outcome.qos:
		return "the QoS class changes"
	}
	return ""
}

// violationOfWithdrawal: a withdrawal is of a resize that the kubelet has not granted for long, and
// leaves the pod what it has.
func (r *pass) violationOfWithdrawal() string {
	seen := r.pods[r.outcome.pod]
	switch {
	case seen.answer == silence || seen.answered != old && seen.resized != old:
		return "a resize is withdrawn before its kubelet has refused it for long"
	case r.outcome.to != seen.actual:
		return fmt.Sprintf("a resize is withdrawn to %s, and %s is applied", amount(r.outcome.to), amount(seen.actual))
	}
	return ""
}

// violationOfLowering: nothing is lowered while usage is missing, nor below a known peak.
func (r *pass) violationOfLowering(s state) string {
	if r.outcome.withdraws > 0 {
		return "" // The pod does not have more.
	}
	has := r.deployment.template
	if r.outcome.action != rewrite {
		has = r.pods[r.outcome.pod].actual
		if r.outcome.action == resizePod {
			has = r.pods[r.outcome.pod].spec
		}
	}
	has = min(has, r.sight.most) // A bound needs no evidence.
	need := s.ghost.need
	if r.process == 1 {
		need = r.sight.history.need() // A request that is under way cannot know what is learned meanwhile.
	}
	switch {
	case r.outcome.to >= has:
		return ""
	case s.isMissing(r.pods):
		return fmt.Sprintf("memory is lowered to %s while usage is missing", amount(r.outcome.to))
	case r.outcome.to < min(need, r.sight.most):
		return fmt.Sprintf("memory is lowered to %s, below the known peak of %s", amount(r.outcome.to), amount(need))
	case r.verifies && r.outcome.to <= r.seen.failed:
		return fmt.Sprintf("memory is lowered to %s, which was reverted", amount(r.outcome.to))
	case r.isUnverified(has):
		return "a second pod is lowered before the first one was observed for the time of verification"
	}
	return ""
}

// isUnverified reports whether a second pod is lowered before the first one is verified.
func (r *pass) isUnverified(has level) bool {
	other := r.pods[1-r.outcome.pod]
	isResized := other.phase == ready && r.stays(other) && other.resized != never
	isLowered := isResized && other.spec == r.outcome.to && other.actual == r.outcome.to
	isSecond := r.outcome.action == resizePod && isLowered && r.sight.status.decided == r.outcome.to
	st := r.seen
	return r.verifies && isSecond && r.outcome.to < has && st.good > 0 && st.passed == never && st.observed != old
}

// stays reports whether no rollout is about to replace the pod.
func (r *pass) stays(p pod) bool { return p.born == r.deployment.template || r.deployment.paused }

// violationOfDisruption: one pod at a time is evicted or resized, and evicting one again does not
// help.
func (r *pass) violationOfDisruption(s state) string {
	o, p := r.outcome, &s.processes[r.process]
	other := s.world.pods[1-o.pod]
	knows := !p.stalled[podWatch]
	switch o.action {
	case evict:
		evictions := s.ghost.evictions[0] + s.ghost.evictions[1]
		switch {
		case other.phase != ready && knows:
			return "a pod is evicted while another one is not ready"
		case s.ghost.evictions[o.pod] > 0:
			return "a pod is evicted twice for one decision"
		case s.world.admitsPlain && evictions > 0:
			return "a second pod is evicted although evictions have no effect"
		}
	case resizePod:
		if o.withdraws > 0 {
			return "" // No kubelet has anything to do for it.
		}
		isInProgress := other.owner == r.deployment.uid && other.phase == ready && r.stays(other) &&
			other.spec == r.outcome.status.decided && other.spec != other.actual && other.answer == silence && (other.resized == fresh || r.sight.status.decidedAt == fresh)
		if knows && isInProgress && s.world.node[1-o.pod] != ignores {
			return "a pod is resized while the resize of another one is in progress"
		}
	}
	return ""
}

// violationAtRest says what is wrong with a state in which nothing more happens; empty for nothing.
func (m *machine) violationAtRest(s state) string {
	st := s.world.scaler
	want := min(s.processes[0].history.need(), large)
	for n, p := range s.world.pods {
		if m.mode == v1beta1.UpdateModeInPlace && st.reverts < 2 && p.owner == s.world.deployment.uid && p.answer != silence && p.spec == st.decided {
			return fmt.Sprintf("at rest, %s declares %s, which its kubelet does not grant", podNames[n], amount(p.spec))
		}
		if st.isApplied() && p.actual != p.spec {
			return fmt.Sprintf("Applied is True at rest, but %s declares %s and has %s", podNames[n], amount(p.spec), amount(p.actual))
		}
		if st.isApplied() && p.actual < want {
			return fmt.Sprintf("Applied is True at rest, but %s has %s and needs %s", podNames[n], amount(p.actual), amount(want))
		}
		if !m.isHindered(s, st) && p.actual != want {
			return fmt.Sprintf("nothing hinders the operator, but at rest %s has %s and not %s: %s", podNames[n], amount(p.actual), amount(want), words.text(st.verdict))
		}
	}
	if !m.isHindered(s, st) && !st.isApplied() {
		return "nothing hinders the operator, but at rest Applied is not True: " + words.text(st.verdict)
	}
	return ""
}

// isHindered reports whether something keeps the pods from the size that they need.
func (m *machine) isHindered(s state, st status) bool {
	if s.isMissing(s.world.pods) || st.reverts > 1 || st.failed > 0 || s.world.admitsPlain {
		return true
	}
	if m.mode != v1beta1.UpdateModeInPlace {
		return s.world.deployment.paused // The template is not changed, or not rolled out.
	}
	if s.world.node == ([pods]nature{}) {
		return false
	}
	if s.world.deployment.paused {
		return true // The fallback waits.
	}
	// A pod that was lowered below its template stays, because a rollout needs a new template.
	hasNoRollout := m.fallback == v1beta1.FallbackRollout && s.world.deployment.template == st.decided
	return m.fallback == v1beta1.FallbackWait || hasNoRollout
}
