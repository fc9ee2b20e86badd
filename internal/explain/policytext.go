// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// PolicyEvidence is the input of the explanation of a policy.
type PolicyEvidence struct {
	Policy Policy
	// Operators, Now and Missing are as for a scaler.
	Operators Operators
	Now       time.Time
	Missing   []string
}

// PolicyExplanation is all that is known about a policy. Its size does not depend on the number of
// Deployments.
type PolicyExplanation struct {
	PolicyRow `json:",inline"`
	// Purpose describes the policy's purpose, and Exclusions the excluded objects, if any.
	Purpose    string `json:"purpose"`
	Exclusions string `json:"exclusions,omitempty"`
	// ModeMeans and StartMeans are the meanings of the update modes.
	ModeMeans  string `json:"modeMeans"`
	StartMeans string `json:"startMeans"`
	// Rules describe when scalers are promoted.
	Rules []string `json:"rules,omitempty"`
	// Findings are the reasons for the state, with meaning and advice, the most important first.
	Findings []Finding `json:"findings"`
	// Rollout is the progress of the promotion; nil if scalers are not promoted.
	Rollout *v1beta1.PolicyRolloutStatus `json:"rollout,omitempty"`
	// States are the scalers by their reason.
	States []v1beta1.PolicyCount `json:"states,omitempty"`
	// UnsizedNewPods are the scalers whose new pods start as in the pod template, by reason.
	UnsizedNewPods []ReasonCount `json:"unsizedNewPods,omitempty"`
	// Skipped are the Deployments without a scaler of the policy, by reason.
	Skipped []ReasonCount `json:"skipped,omitempty"`
	// Savings are the reductions of requests; nil if unknown. SavedCores to RecommendedBytes are the same for programs.
	Savings          *v1beta1.PolicySavings `json:"-"`
	SavedCores       *float64               `json:"savedCores,omitempty"`
	SavedBytes       *float64               `json:"savedBytes,omitempty"`
	RecommendedCores *float64               `json:"recommendedCores,omitempty"`
	RecommendedBytes *float64               `json:"recommendedBytes,omitempty"`
	// Missing lists the objects that could not be read.
	Missing []string `json:"missing,omitempty"`
}

// ReasonCount are Deployments that a policy selects, for one reason.
type ReasonCount struct {
	Reason `json:",inline"`
	Count  int `json:"count"`
	// Examples are some of them, as "<namespace>/<name>".
	Examples []string `json:"examples,omitempty"`
	// Message has details, such as the policy that sizes one of them.
	Message string `json:"message,omitempty"`
}

// CountsOf explains the reasons of counts.
func CountsOf(counts []v1beta1.PolicyCount) (out []ReasonCount) {
	for _, c := range counts {
		out = append(out, ReasonCount{Reason: policyReason(c.Reason), Count: int(c.Count), Examples: c.Examples, Message: c.Message})
	}
	return out
}

// OfPolicy explains a policy.
func OfPolicy(e PolicyEvidence) PolicyExplanation {
	p := e.Policy
	p.Operators = e.Operators
	out := PolicyExplanation{
		PolicyRow: PolicyRowOf(p, e.Operators, e.Now), Purpose: p.Purpose(), Exclusions: p.Exclusions(),
		Rollout: p.Status.Rollout, States: p.Status.States, UnsizedNewPods: CountsOf(p.Status.UnsizedNewPods), Skipped: CountsOf(p.Status.Skipped),
		Savings: p.Status.Savings, Missing: e.Missing,
	}
	_, out.ModeMeans = p.Mode()
	_, out.StartMeans = p.Start()
	if s := out.Savings; s != nil {
		out.SavedCores, out.SavedBytes = numberOf(s.Applied.CPU), numberOf(s.Applied.Memory)
		out.RecommendedCores, out.RecommendedBytes = numberOf(s.Recommended.CPU), numberOf(s.Recommended.Memory)
	}
	if p.Promotes() {
		out.Rules = p.Rollout()
	}
	out.Findings = policyFindings(p, e.Operators, e.Now)
	return out
}

// policyFindings are the doubts about the status, the reason why a policy is not Ready, the state of its promotion, and
// its scalers without usage. If nearly all lack usage, that comes first.
func policyFindings(p Policy, operators Operators, now time.Time) (out []Finding) {
	all := p.Status.Conditions
	ready := meta.FindStatusCondition(all, v1beta1.ConditionReady)
	if ready == nil {
		return append(doubts(p.Object, p.Object.GetGeneration(), operators, now), Finding{Reason: notObserved})
	}
	out = doubts(p.Object, p.Status.ObservedGeneration, operators, now)
	add := func(c *metav1.Condition) { out = append(out, findingOf(*c, policyReason)) }
	usage := Tally{Sized: int(p.Status.Scaled), Blind: int(p.withoutUsage(operators))}
	addUsage := func() {
		out = append(out, Finding{Reason: reasonFor(v1beta1.ReasonMetricsIncomplete), Condition: v1beta1.ConditionReady, Message: usage.Usage()})
	}
	if usage.IsBlind() && ready.Status == metav1.ConditionTrue {
		addUsage()
	}
	reconciling, promoting := meta.FindStatusCondition(all, v1beta1.ConditionReconciling), meta.FindStatusCondition(all, v1beta1.ConditionPromoting)
	isReconciling := reconciling != nil && reconciling.Status == metav1.ConditionTrue
	if ready.Reason != v1beta1.ReasonOperatingNormally || !isReconciling && promoting == nil {
		add(ready)
	}
	if isReconciling {
		add(reconciling)
	}
	if promoting != nil && promoting.Reason != ready.Reason {
		add(promoting)
	}
	if usage.Blind > 0 && !slices.ContainsFunc(out, func(f Finding) bool { return f.Message == usage.Usage() }) {
		addUsage()
	}
	return onlyActions(out)
}

// Text is the explanation as text, to be read from top to bottom. Ages are relative to now.
func (x PolicyExplanation) Text(now time.Time) string {
	b, line := lines(x.Headline(now))
	line("%s %s", x.Kind, strings.TrimPrefix(x.Namespace+"/"+x.Name, "/"))
	line("  %s", x.Purpose)
	if x.Exclusions != "" {
		line("  %s", x.Exclusions)
	}
	for _, mode := range modesOf(x.Mode, x.ModeMeans, x.Start, x.StartMeans) {
		line("  %s", mode)
	}
	for _, rule := range x.Rules {
		line("  %s", rule)
	}

	line("")
	line("Ready: %s%s%s", inWords(x.Ready), x.scaledInWords(), x.whenReported())
	for _, f := range x.Findings {
		f.write(line, now)
	}
	x.writeRollout(line)
	x.writeStates(line)
	WriteCounts(line, "Scalers whose new pods start as in the pod template, also if a node autoscaler moves them", x.UnsizedNewPods)
	WriteCounts(line, "Skipped Deployments", x.Skipped)
	of := ""
	if x.WithoutUsage > 0 {
		of = fmt.Sprintf(" of %d of %d scalers: the others lack usage", x.Scaled-x.WithoutUsage, x.Scaled)
	}
	WriteSavings(line, x.Savings, of)
	WriteMissing(line, x.Missing)
	return b.String()
}

// modesOf are the update modes of the scalers of a policy, in sentences.
func modesOf(mode, means, start, startMeans string) []string {
	if start == mode {
		return []string{fmt.Sprintf("Mode %s, of all scalers: %s.", mode, means)}
	}
	return []string{
		fmt.Sprintf("Mode %s, of new scalers: %s.", start, startMeans),
		fmt.Sprintf("Mode %s, of promoted scalers: %s.", mode, means),
	}
}

func inWords(status metav1.ConditionStatus) string {
	switch status {
	case metav1.ConditionTrue:
		return "yes"
	case metav1.ConditionFalse:
		return "no"
	}
	return "unknown"
}

func (x PolicyExplanation) scaledInWords() string {
	if x.Deployments == "" {
		return ""
	}
	usage := ""
	if x.WithoutUsage > 0 {
		usage = fmt.Sprintf(", and %d of %d are without usage", x.WithoutUsage, x.Scaled)
	}
	return fmt.Sprintf("; %d of %d selected Deployments have a scaler of the policy%s", x.Scaled, x.Selected, usage)
}

func (x PolicyExplanation) writeRollout(line func(string, ...any)) {
	r := x.Rollout
	if r == nil {
		return
	}
	line("")
	line("Promotion of %d scalers", x.Scaled)
	line("  %6d  collect evidence", r.Collecting)
	line("  %6d  wait for their turn", r.Waiting)
	line("  %6d  are promoted; %d of these are being verified", r.Promoted, r.Verifying)
	line("  %6d  did harm: they reverted a change, or lowered memory before an OOM kill, while they were verified%s", r.Harmed, suchAs(r.HarmedExamples))
}

func (x PolicyExplanation) writeStates(line func(string, ...any)) {
	if len(x.States) == 0 {
		return
	}
	line("")
	line("States of the scalers")
	for _, s := range x.States {
		line("  %6d  %s%s", s.Count, s.Reason, suchAs(s.Examples))
	}
}

// WriteCounts writes the number of Deployments with each reason, and its meaning, if there are any.
func WriteCounts(line func(string, ...any), title string, all []ReasonCount) {
	if len(all) == 0 {
		return
	}
	line("")
	line("%s", title)
	for _, s := range all {
		line("  %6d  %s%s", s.Count, s.Reason.Reason, suchAs(s.Examples))
		if s.Message != "" {
			line("          message   %s", s.Message)
		}
		line("          meaning   %s", s.Means)
		line("          action    %s", s.Advice)
	}
}

func suchAs(examples []string) string {
	if len(examples) == 0 {
		return ""
	}
	return ", such as " + strings.Join(examples, ", ")
}

// WriteSavings writes the reduction of requests, compared with pod templates of some scalers, if there is any.
func WriteSavings(line func(string, ...any), s *v1beta1.PolicySavings, of string) {
	if s == nil {
		return
	}
	line("")
	line("Savings, compared with the pod templates%s", of)
	line("  decided by scalers that apply what they recommend: %s", savingsInWords(s.Applied))
	line("  recommended by the others: %s", savingsInWords(s.Recommended))
}

// savingsInWords has the units of the dashboard.
func savingsInWords(s v1beta1.Savings) string {
	amount := func(q *resource.Quantity, unit string, size float64) string {
		if n := numberOf(q); n != nil {
			return fmt.Sprintf("%.2f %s", *n/size, unit)
		}
		return "unknown " + unit
	}
	return amount(s.CPU, "cores", 1) + ", " + amount(s.Memory, "GiB", 1<<30)
}
