// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

const (
	// maxExamples limits the names that a count lists.
	maxExamples = 3
	// maxStates limits the reasons of scalers that a status lists.
	maxStates = 8
)

// Member is a Deployment that the selectors of a policy match.
type Member struct {
	Deployment *Deployment
	// Skipped is the reason for which the policy does not size it; empty if it does.
	Skipped string
	// Message has details, if any.
	Message string
	// Scaler is the scaler of this policy, or nil.
	Scaler *v1beta1.VerticalScaler
	// IsPending is true if a scaler is to be created, changed or deleted.
	IsPending bool
}

func (m *Member) name() string { return m.Deployment.Namespace + "/" + m.Deployment.Name }

// Scalers are the scalers that concern one Deployment.
type Scalers struct {
	// Named is the scaler with the name of the Deployment, or nil.
	Named *v1beta1.VerticalScaler
	// OfUser is a scaler that names the Deployment and that no policy controls, or nil.
	OfUser *v1beta1.VerticalScaler
}

// ScalersBy are scalers by the Deployments that they concern. The result points into the list.
func ScalersBy(list []v1beta1.VerticalScaler) map[types.NamespacedName]Scalers {
	out := map[types.NamespacedName]Scalers{}
	for i := range list {
		s := &list[i]
		key, target := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, scaler.Target(s)
		named := out[key]
		named.Named = s
		out[key] = named
		if !IsGenerated(s) {
			byUser := out[target]
			byUser.OfUser = s
			out[target] = byUser
		}
	}
	return out
}

// MemberOf is the state of a Deployment under a policy. ok is false if its selectors do not match, or if the namespace
// is being deleted.
func MemberOf(p *Policy, policies []*Policy, d *Deployment, namespace *Namespace, scalers Scalers, rejected string) (m Member, ok bool) {
	matches, skipped := p.Match(d, namespace)
	if !matches || namespace.Terminating {
		return Member{}, false
	}
	m = Member{Deployment: d, Skipped: skipped}
	if named := scalers.Named; named != nil && p.Controls(named) {
		m.Scaler = named
	}
	named := scalers.Named
	chosen := Choose(policies, d, namespace)
	switch {
	case m.Skipped != "":
		m.IsPending = m.Scaler != nil
	case scalers.OfUser != nil:
		m.Skipped, m.IsPending = v1beta1.ReasonOtherScaler, m.Scaler != nil
	case chosen != nil && chosen.Object.GetUID() != p.Object.GetUID():
		m.Skipped, m.Message = v1beta1.ReasonOtherPolicy, "Such as "+chosen.String()+", which comes first"
		m.IsPending = m.Scaler != nil && !chosen.IsPaused() // A paused one takes over nothing.
	case named != nil && !IsGenerated(named):
		m.Skipped = v1beta1.ReasonNameTaken
	case rejected != "":
		m.Skipped, m.Message = v1beta1.ReasonScalersRejected, rejected
	default:
		m.IsPending = m.Scaler == nil || !p.IsUpToDate(m.Scaler)
	}
	return m, true
}

// Survey is the state of all Deployments under a policy, for its status.
type Survey struct {
	Selected, Scaled, Pending int
	Skipped                   []v1beta1.PolicyCount
	States                    []v1beta1.PolicyCount
	UnsizedNewPods            []v1beta1.PolicyCount
	Savings                   *v1beta1.PolicySavings
	// Rejected is an example of the API server's rejections of scalers, if any.
	Rejected string
	// Candidates are the scalers of the policy.
	Candidates []Candidate
}

// Count sums up the members of a policy. Their order does not matter.
func Count(members []Member) (out Survey) {
	skipped := tally{}
	for _, m := range members {
		if m.Skipped != v1beta1.ReasonExcluded && m.Skipped != v1beta1.ReasonSystemNamespace {
			out.Selected++
		}
		if m.Skipped != "" {
			skipped.add(m.Skipped, m.name(), m.Message)
		}
		if m.Skipped == v1beta1.ReasonScalersRejected {
			out.Rejected = min(cmp.Or(out.Rejected, m.Message), m.Message)
		}
		if m.IsPending {
			out.Pending++
		}
	}
	out.Skipped = skipped.counts(math.MaxInt)
	out.countScalers(members)
	return out
}

// countScalers sums up the scalers of the policy. A scaler about to be deleted counts only as not promoted.
func (s *Survey) countScalers(members []Member) {
	states, unsized := tally{}, tally{}
	var applied, recommended quantity.Amounts
	known := false
	for _, m := range members {
		if m.Scaler == nil {
			continue
		}
		c := candidate(m.Scaler)
		c.Blocked = c.Blocked || m.Skipped != ""
		s.Candidates = append(s.Candidates, c)
		if m.Skipped != "" && m.Skipped != v1beta1.ReasonScalersRejected {
			continue
		}
		s.Scaled++
		states.add(stateOf(m.Scaler), m.name(), "")
		if c := meta.FindStatusCondition(m.Scaler.Status.Conditions, v1beta1.ConditionNewPodsSized); c != nil && c.Status == metav1.ConditionFalse {
			unsized.add(c.Reason, m.name(), c.Message)
		}
		saved, ok := savedBy(m.Deployment, m.Scaler)
		if scaler.LacksUsage(stateOf(m.Scaler)) {
			saved, ok = quantity.Amounts{}, false // Usage does not confirm the size.
		}
		known = known || ok
		if isApplied(m.Scaler) {
			applied = sum(applied, saved)
		} else {
			recommended = sum(recommended, saved)
		}
	}
	s.States, s.UnsizedNewPods = states.counts(maxStates), unsized.counts(maxStates)
	if known {
		s.Savings = &v1beta1.PolicySavings{Applied: savings(applied), Recommended: savings(recommended)}
	}
}

// isApplied reports whether a scaler applies its recommendation.
func isApplied(s *v1beta1.VerticalScaler) bool {
	return s.Spec.UpdatePolicy.UpdateMode != v1beta1.UpdateModeRecommend
}

// candidate is the promotion's view of a scaler.
func candidate(s *v1beta1.VerticalScaler) Candidate {
	return Candidate{
		Key:      types.NamespacedName{Namespace: s.Namespace, Name: s.Name},
		Ready:    meta.IsStatusConditionTrue(s.Status.Conditions, v1beta1.ConditionReadyForPromotion),
		Promoted: promotedAt(s),
		Harmed:   HarmedAt(s),
		Blocked:  scaler.IsPaused(s) || s.Spec.Suspend || s.DeletionTimestamp != nil,
	}
}

// promotedAt is the time of the scaler's promotion. An unknown time counts as long ago.
func promotedAt(s *v1beta1.VerticalScaler) time.Time {
	at := PromotedAt(s)
	if at.IsZero() && IsPromoted(s) {
		return s.CreationTimestamp.Time
	}
	return at
}

func stateOf(s *v1beta1.VerticalScaler) string {
	if s.Status.Summary == nil || s.Status.Summary.Reason == "" {
		return v1beta1.ReasonUnknown
	}
	return s.Status.Summary.Reason
}

// tally counts names by reason.
type tally map[string]*v1beta1.PolicyCount

func (t tally) add(reason, name, message string) {
	c := t[reason]
	if c == nil {
		c = &v1beta1.PolicyCount{Reason: reason}
		t[reason] = c
	}
	c.Count++
	if message != "" && (c.Message == "" || message < c.Message) {
		c.Message = message
	}
	// The first names in order, so that equal fleets have equal examples.
	at, _ := slices.BinarySearch(c.Examples, name)
	if at < maxExamples {
		c.Examples = slices.Insert(c.Examples, at, name)
		c.Examples = c.Examples[:min(len(c.Examples), maxExamples)]
	}
}

// counts are the most frequent ones, the most frequent first.
func (t tally) counts(most int) (out []v1beta1.PolicyCount) {
	for _, reason := range slices.Sorted(maps.Keys(t)) {
		out = append(out, *t[reason])
	}
	slices.SortStableFunc(out, func(a, b v1beta1.PolicyCount) int { return cmp.Compare(b.Count, a.Count) })
	return out[:min(len(out), most)]
}

// savedBy is the reduction of the pods' requests from the pod template, by the decision, or by the recommendation without
// one.
func savedBy(d *Deployment, s *v1beta1.VerticalScaler) (saved quantity.Amounts, ok bool) {
	add := func(container string, wanted v1beta1.Amounts) {
		before, has := d.Requests[container]
		if !has {
			return
		}
		ok = true
		after := scaler.Amounts(wanted)
		for _, r := range model.Resources {
			if r.Of(before) > 0 && r.Of(after) > 0 {
				r.Set(&saved, r.Of(saved)+r.Of(before)-r.Of(after))
			}
		}
	}
	switch {
	case isApplied(s) && s.Status.Decision != nil:
		for _, c := range s.Status.Decision.Containers {
			add(c.ContainerName, c.Requests)
		}
	case s.Status.Recommendation != nil:
		for _, c := range s.Status.Recommendation.ContainerRecommendations {
			add(c.ContainerName, c.Target)
		}
	}
	pods := float64(d.Replicas)
	return quantity.Amounts{CPUMillis: saturated(float64(saved.CPUMillis) * pods), MemoryBytes: saturated(float64(saved.MemoryBytes) * pods)}, ok
}

func sum(a, b quantity.Amounts) quantity.Amounts {
	return quantity.Amounts{
		CPUMillis:   saturated(float64(a.CPUMillis) + float64(b.CPUMillis)),
		MemoryBytes: saturated(float64(a.MemoryBytes) + float64(b.MemoryBytes)),
	}
}

// saturated converts an amount, or the nearest one that does not overflow. Savings are shown with two digits, so the
// precision of float64 suffices.
func saturated(v float64) int64 {
	const most = 1 << 62
	return int64(min(max(v, -most), most))
}

func savings(a quantity.Amounts) v1beta1.Savings {
	cpu, memory := quantity.CPU(twoDigits(a.CPUMillis)), quantity.Memory(twoDigits(a.MemoryBytes>>20)<<20)
	return v1beta1.Savings{CPU: &cpu, Memory: &memory}
}

// twoDigits rounds to two digits, so that a status does not change with each recommendation: 12,345 becomes 12,000.
func twoDigits(n int64) int64 {
	unit := int64(1)
	for abs := max(n, -n); abs/unit >= 100; unit *= 10 {
	}
	return (n / unit) * unit
}

// Summary has the values that kubectl get shows.
func (s *Survey) Summary(promoted int) *v1beta1.PolicySummary {
	of := func(n, all int) string { return strconv.Itoa(n) + "/" + strconv.Itoa(all) }
	return &v1beta1.PolicySummary{Deployments: of(s.Scaled, s.Selected), Promoted: of(promoted, s.Scaled)}
}
