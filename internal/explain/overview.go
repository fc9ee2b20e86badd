// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan/model"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// State is the state of an object. All views show the same one.
type State struct {
	// Ready is the status of the condition: Unknown if the status cannot be relied on, and False without usage.
	// Reason is the first finding's.
	Ready   metav1.ConditionStatus `json:"ready"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message,omitempty"`
	// Since is the start of the reason; nil if unknown.
	Since *metav1.Time `json:"since,omitempty"`
	// Ends and Advice tell how the state is resolved.
	Ends   End    `json:"ends"`
	Advice string `json:"advice"`
	// Freeze is the switch that stops the changes of the object; nil while it is off.
	Freeze *Freeze `json:"freeze,omitempty"`
}

// stateOf is the state that the most important finding describes. Doubts about the status come first.
func stateOf(all []Finding, ready *metav1.Condition, freeze *Freeze) State {
	first := all[0]
	out := State{metav1.ConditionUnknown, first.Reason.Reason, cmp.Or(first.Message, first.Means), first.Since, first.Ends, first.Advice, freeze}
	switch {
	case first.Condition == "" || ready == nil:
	case scaler.LacksUsage(out.Reason):
		out.Ready = metav1.ConditionFalse
	default:
		out.Ready = ready.Status
	}
	return out
}

// whenReported dates the status while no operator is in charge.
func (s State) whenReported() string {
	if s.Reason == operatorSilent.Reason {
		return ", when an operator last reported"
	}
	return ""
}

// Overview is the state of several scalers, ScaledDeployments and policies. Operators serve them, if known.
type Overview struct {
	Scalers           []Row      `json:"scalers"`
	ScaledDeployments []OwnedRow `json:"scaledDeployments,omitempty"`
	// Policies are the ScalingPolicies and ClusterScalingPolicies.
	Policies  []PolicyRow `json:"policies,omitempty"`
	Operators Operators   `json:"operators,omitempty"`
}

// states are the states of all objects.
func (o Overview) states() (all []State) {
	for _, r := range o.Scalers {
		all = append(all, r.State)
	}
	for _, r := range o.ScaledDeployments {
		all = append(all, r.State)
	}
	for _, r := range o.Policies {
		all = append(all, r.State)
	}
	return all
}

// Tally counts the objects of an overview.
type Tally struct {
	Scalers, ScaledDeployments, Policies int
	// NotReady are all objects that are not Ready, and NeedUser those that a user must act on.
	NotReady, NeedUser int
	// Sized counts the scalers with running pods, and Blind those that lack usage.
	Sized, Blind int
}

// Tally counts the objects.
func (o Overview) Tally() Tally {
	t := Tally{Scalers: len(o.Scalers), ScaledDeployments: len(o.ScaledDeployments), Policies: len(o.Policies)}
	for _, s := range o.states() {
		if s.Ready != metav1.ConditionTrue {
			t.NotReady++
		}
		if s.Ends == ByUser {
			t.NeedUser++
		}
	}
	for _, r := range o.Scalers {
		isBlind := scaler.LacksUsage(r.Reason)
		if isBlind {
			t.Blind++
		}
		if isBlind || r.Pods != "" && r.Pods != "0/0" {
			t.Sized++
		}
	}
	return t
}

// String has the numbers, such as "4 scalers and 1 policy: 2 are not Ready, 1 requires action".
func (t Tally) String() string {
	var parts []string
	for _, part := range []struct {
		n         int
		one, many string
	}{{t.Scalers, "scaler", "scalers"}, {t.ScaledDeployments, "ScaledDeployment", "ScaledDeployments"}, {t.Policies, "policy", "policies"}} {
		if part.n > 0 {
			parts = append(parts, Counted(part.n, part.one, part.many))
		}
	}
	ready, action := "all are Ready", "none requires action"
	if t.NotReady > 0 {
		ready = Counted(t.NotReady, "is not Ready", "are not Ready")
	}
	if t.NeedUser > 0 {
		action = Counted(t.NeedUser, "requires action", "require action")
	}
	return fmt.Sprintf("%s: %s, %s", cmp.Or(strings.Join(parts, ", "), "0 scalers"), ready, action)
}

// Counted is a number with the word for one, or for many.
func Counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// IsBlind reports whether usage is missing for nearly all pods of several scalers.
func (t Tally) IsBlind() bool { return scaler.IsUsageDown(t.Blind, t.Sized) }

// Usage reports the number of scalers without usage; empty for 0.
func (t Tally) Usage() string {
	switch {
	case t.Blind == 0:
		return ""
	case t.IsBlind():
		return fmt.Sprintf("Usage is missing for nearly all pods: metrics are down (%d of %d scalers)", t.Blind, t.Sized)
	}
	verb := "have"
	if t.Blind == 1 {
		verb = "has"
	}
	return fmt.Sprintf("%d of %d scalers %s no usage of some or all pods", t.Blind, t.Sized, verb)
}

// Headlines are sentences about more than one object: no operator is in charge, changes are frozen, or usage is missing.
func (o Overview) Headlines(now time.Time) (lines []string) {
	states := o.states()
	if o.IsEmpty() {
		none := State{Freeze: o.Operators.Freeze("")}
		if silent, ok := o.Operators.nobody("", now); ok {
			none = stateOf([]Finding{silent}, nil, none.Freeze)
		}
		states = append(states, none)
	}
	for _, s := range states {
		for _, line := range s.headlines(now) {
			if !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
	}
	if usage := o.Tally().Usage(); usage != "" {
		lines = append(lines, usage)
	}
	return lines
}

// Actions are the ScaledDeployments and policies that require action, and why.
func (o Overview) Actions() (lines []string) {
	add := func(name string, s State) {
		if s.Ends == ByUser && s.Reason != operatorSilent.Reason {
			lines = append(lines, fmt.Sprintf("%s: %s: %s", name, s.Reason, s.Message))
		}
	}
	for _, r := range o.ScaledDeployments {
		add("ScaledDeployment/"+r.Name, r.State)
	}
	for _, r := range o.Policies {
		add(r.ID(), r.State)
	}
	return lines
}

// Headline reports that no operator is in charge, or that changes are frozen; empty if neither is so.
func (s State) Headline(now time.Time) string { return strings.Join(s.headlines(now), ". ") }

func (s State) headlines(now time.Time) (lines []string) {
	if s.Reason == operatorSilent.Reason {
		line := "No operator is in charge: " + s.Message
		if s.Since != nil {
			line += fmt.Sprintf(" (%s ago)", Age(now, s.Since.Time))
		}
		lines = append(lines, line)
	}
	if s.Freeze != nil {
		lines = append(lines, s.Freeze.Report(now))
	}
	return lines
}

// Row is the state of one scaler.
type Row struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Deployment string `json:"deployment"`
	// Owner is the ScaledDeployment that the scaler belongs to, if any.
	Owner string `json:"owner,omitempty"`
	// Policy is the policy that has created the scaler, such as "ClusterScalingPolicy/fleet", if any.
	Policy  string `json:"policy,omitempty"`
	Mode    string `json:"mode"`
	isOff   bool   // suspended, or paused
	Profile string `json:"profile"`
	// CPU and Memory are the requests of a pod, present and decided, such as "500m->310m".
	// Pods is the number of pods with the decided size, of all pods. Numbers has the same for programs.
	CPU     string `json:"-"`
	Memory  string `json:"-"`
	Pods    string `json:"-"`
	Numbers `json:",inline"`
	State   `json:",inline"`
	// Changed is the time of the last change; nil before the first.
	Changed *metav1.Time `json:"changed,omitempty"`
	// Saved is the reduction of the resized pods' requests from their original template; negative
	// for an increase, nil if unknown.
	Saved *Saved `json:"-"`
}

// Numbers are the values in a line about a scaler, one in each field, in cores and bytes. Nil means unknown.
type Numbers struct {
	// CPUCores and MemoryBytes are the requests of a pod. The targets are the decided or recommended requests; nil if they
	// stay.
	CPUCores          *float64 `json:"cpuCores,omitempty"`
	CPUTargetCores    *float64 `json:"cpuTargetCores,omitempty"`
	MemoryBytes       *float64 `json:"memoryBytes,omitempty"`
	MemoryTargetBytes *float64 `json:"memoryTargetBytes,omitempty"`
	// PodsAtSize is the number of pods with the decided size, and RunningPods the number of all pods.
	PodsAtSize  *float64 `json:"podsAtSize,omitempty"`
	RunningPods *float64 `json:"runningPods,omitempty"`
	SavedCores  *float64 `json:"savedCores,omitempty"`
	SavedBytes  *float64 `json:"savedBytes,omitempty"`
}

// numbersOf reads the texts of a row.
func numbersOf(r Row) (n Numbers) {
	n.CPUCores, n.CPUTargetCores = numbersIn(r.CPU, "->")
	n.MemoryBytes, n.MemoryTargetBytes = numbersIn(r.Memory, "->")
	n.PodsAtSize, n.RunningPods = numbersIn(r.Pods, "/")
	if r.Saved != nil {
		n.SavedCores, n.SavedBytes = ptr.To(r.Saved.Cores), ptr.To(r.Saved.GiB*(1<<30))
	}
	return n
}

// numbersIn are the quantities in "500m", "500m->310m", "500m (310m)" or "4/6"; nil for other text.
func numbersIn(text, between string) (first, second *float64) {
	before, after, _ := strings.Cut(strings.NewReplacer(" (", between, ")", "").Replace(text), between)
	return numberIn(before), numberIn(after)
}

// amountIn is a quantity in millicores of CPU, or bytes of memory; 0 for other text.
func amountIn(of, text string) (amount int64) {
	q, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		return 0
	case of == recommend.CPU:
		amount, _ = quantity.CPUMillis(q)
	default:
		amount, _ = quantity.MemoryBytes(q)
	}
	return amount
}

func numberIn(text string) *float64 {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return nil
	}
	return numberOf(&q)
}

// numberOf is a quantity in cores or bytes; nil for none.
func numberOf(q *resource.Quantity) *float64 {
	if q == nil {
		return nil
	}
	return ptr.To(q.AsApproximateFloat64()) //nolint:forbidigo // It is only shown.
}

// Saved is an amount of CPU and memory, of all pods together.
type Saved struct {
	Cores float64 `json:"cores"`
	GiB   float64 `json:"gib"`
}

// OwnedRow is the state of one ScaledDeployment.
type OwnedRow struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Deployment string `json:"deployment"`
	// Available is the number of available pods, of those that the object asks for.
	Available     string `json:"-"`
	AvailablePods int32  `json:"availablePods"`
	Replicas      int32  `json:"replicas"`
	State         `json:",inline"`
	// Sized repeats the reason of its scaler; empty without one.
	Sized string `json:"sized,omitempty"`
}

// RowOf summarizes a scaler. Only the scaler itself is required.
func RowOf(e Evidence) Row {
	var containers []Container
	if waitsForEvidence(e) { // else the advice does not name them
		containers = containersIn(e)
	}
	return rowOf(e, findings(e, containers))
}

func rowOf(e Evidence, found []Finding) Row {
	s := e.Scaler
	out := Row{
		Namespace: s.Namespace, Name: s.Name, Deployment: s.Spec.DeploymentName,
		Mode: modeName(s), isOff: s.Spec.Suspend || scaler.IsPaused(s), Profile: string(scaler.Profile(&s.Spec)),
		Saved: savedBy(s, e.Deployment),
	}
	if owner := metav1.GetControllerOf(s); owner != nil && owner.Kind == "ScaledDeployment" {
		out.Owner = owner.Name
	}
	if origin := OriginOf(s); origin != nil {
		out.Policy = origin.ID()
	}
	if sum := s.Status.Summary; sum != nil {
		out.CPU, out.Memory, out.Pods = sum.CPU, sum.Memory, sum.Pods
	}
	if len(s.Status.History) > 0 {
		out.Changed = &s.Status.History[0].Time
	}
	ready := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionReady)
	out.State = stateOf(found, ready, cmp.Or(e.Operators.Freeze(s.Namespace), freezeIn(ready, s.Namespace)))
	if scaler.LacksUsage(out.Reason) {
		out.Saved = nil // A size without confirming usage saves nothing yet.
	}
	out.Numbers = numbersOf(out)
	return out
}

// OwnedRowOf summarizes a ScaledDeployment.
func OwnedRowOf(d *v1beta1.ScaledDeployment, operators Operators, now time.Time) OwnedRow {
	desired := ptr.Deref(d.Spec.Replicas, 1)
	out := OwnedRow{
		Namespace: d.Namespace, Name: d.Name, Deployment: cmp.Or(d.Spec.DeploymentName, d.Name),
		Available:     fmt.Sprintf("%d/%d", d.Status.AvailableReplicas, desired),
		AvailablePods: d.Status.AvailableReplicas, Replicas: desired,
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionSized); c != nil {
		out.Sized = c.Reason
	}
	out.State = stateOf(ownedFindings(d, operators, now), meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionReady), operators.Freeze(d.Namespace))
	return out
}

// savedBy compares the decision with the original pod template, for the pods with the
// decided size. It is nil without a decision, a template, or a number of pods.
func savedBy(s *v1beta1.VerticalScaler, deployment *appsv1.Deployment) *Saved {
	decision := scaler.Decision(s.Status.Decision)
	if deployment == nil || decision == nil || s.Status.Summary == nil {
		return nil
	}
	sized, _, ok := strings.Cut(s.Status.Summary.Pods, "/")
	n, err := strconv.Atoi(sized)
	if !ok || err != nil || n < 0 || n > mostPods {
		return nil
	}
	var saved quantity.Amounts
	for _, c := range workload.ReadDeployment(deployment).Containers {
		if c.Unreadable {
			return nil
		}
		before, decided := originalRequests(s, deployment, c), decision.Requests[c.Name]
		for _, r := range model.Resources {
			if now := r.Of(decided); now > 0 {
				r.Set(&saved, r.Of(saved)+r.Of(before)-now)
			}
		}
	}
	return &Saved{
		Cores: Rounded(float64(n) * float64(saved.CPUMillis) / 1000),
		GiB:   float64(n) * float64(saved.MemoryBytes) / (1 << 30),
	}
}

// mostPods is more than any Deployment has.
const mostPods = 1_000_000

// originalRequests are the requests of the original template: the recorded values if the scaler has
// taken it over, else the current ones. Without a request, the API server uses the limit.
func originalRequests(s *v1beta1.VerticalScaler, deployment *appsv1.Deployment, c workload.Container) quantity.Amounts {
	before := scaler.Original(c, scaler.Originals(s.Status.OriginalResources, deployment.UID))
	return before.Requests.Or(before.Limits)
}

// IsEmpty is true if there are no objects to show.
func (o Overview) IsEmpty() bool { return len(o.Scalers)+len(o.ScaledDeployments)+len(o.Policies) == 0 }

// Rounded is a number of cores or GiB, to a thousandth. A negative value that rounds to nothing is 0, not -0.
func Rounded(v float64) float64 { return math.Round(v*1000)/1000 + 0 }
