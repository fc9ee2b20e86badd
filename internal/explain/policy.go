// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// Policy is a ScalingPolicy or a ClusterScalingPolicy.
type Policy struct {
	fleet.View
	// Operators have the default fallback of scalers; nil if unknown.
	Operators Operators
}

// PolicyOf is the policy without Operators.
func PolicyOf(policy metav1.Object) Policy { return Policy{View: fleet.ViewOf(policy)} }

// Purpose describes the policy's purpose in a sentence.
func (p Policy) Purpose() string {
	deployments := "each Deployment"
	if p.Rules.DeploymentSelector != nil {
		deployments += " with " + metav1.FormatLabelSelector(p.Rules.DeploymentSelector)
	}
	if p.Cluster == nil {
		return fmt.Sprintf("Creates a VerticalScaler for %s in namespace %s.", deployments, p.Object.GetNamespace())
	}
	return fmt.Sprintf("Creates a VerticalScaler for %s in namespaces with %s.", deployments, metav1.FormatLabelSelector(&p.Cluster.NamespaceSelector))
}

// Exclusions describe the excluded objects in a sentence; empty without any.
func (p Policy) Exclusions() string {
	var all []string
	if p.Cluster != nil && p.Cluster.SystemNamespaces != v1beta1.SystemNamespacesInclude {
		all = append(all, "system namespaces")
	}
	if p.Cluster != nil && p.Cluster.Exclude != nil && len(p.Cluster.Exclude.Namespaces) > 0 {
		all = append(all, "the namespaces "+listed(p.Cluster.Exclude.Namespaces))
	}
	if p.Excluded != nil {
		if len(p.Excluded.Deployments) > 0 {
			all = append(all, "the Deployments "+listed(p.Excluded.Deployments))
		}
		if p.Excluded.DeploymentSelector != nil {
			all = append(all, "Deployments with "+metav1.FormatLabelSelector(p.Excluded.DeploymentSelector))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "Excludes " + strings.Join(all, "; ") + "."
}

// mostListed limits the names in a sentence.
const mostListed = 10

func listed(names []string) string {
	if more := len(names) - mostListed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostListed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// Mode is the update mode of promoted scalers, and its meaning.
func (p Policy) Mode() (mode, means string) {
	return p.modeOf(p.Rules.Template.UpdatePolicy.UpdateMode)
}

// Start is the update mode of new scalers, and its meaning.
func (p Policy) Start() (mode, means string) {
	return p.modeOf(fleet.RolloutOf(p.Rules.Rollout).Start)
}

func (p Policy) modeOf(mode v1beta1.UpdateMode) (name, means string) {
	s := &v1beta1.VerticalScaler{Spec: v1beta1.VerticalScalerSpec{Scaling: *p.Rules.Template.DeepCopy()}}
	s.Spec.UpdatePolicy.UpdateMode = mode
	return modeName(s), modeMeans(s, p.Operators)
}

// Promotes reports whether new scalers begin in another update mode than the template's.
func (p Policy) Promotes() bool {
	start, _ := p.Start()
	mode, _ := p.Mode()
	return start != mode
}

// Rollout describes in sentences when scalers are promoted.
func (p Policy) Rollout() []string {
	r := fleet.RolloutOf(p.Rules.Rollout)
	first := fmt.Sprintf("A scaler is promoted after %s of usage for which its recommendations would have been enough: always for memory, and for CPU except in %d %% of the time.",
		duration.HumanDuration(r.Evidence.Time), r.Evidence.MaxStarvedPercent)
	if r.Evidence.Time == 0 {
		first = "A scaler is promoted as soon as it has a recommendation."
	}
	return []string{
		first,
		fmt.Sprintf("At most %d %% of the scalers, and at least one, are verified at the same time, each for %s.", r.MaxConcurrentPercent, duration.HumanDuration(r.Verification)),
		fmt.Sprintf("Promotion halts if more than %d %% of the promoted scalers, and at least %d, do harm.", r.MaxHarmedPercent, fleet.MinHarmed),
	}
}

// PolicyRow is the state of one policy.
type PolicyRow struct {
	Kind string `json:"kind"`
	// Namespace is empty for a ClusterScalingPolicy.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Mode is the update mode of promoted scalers, and Start the mode of new ones.
	Mode  string `json:"mode"`
	Start string `json:"start"`
	// Deployments is the number of Deployments with a scaler of the policy, of all that it selects: "480/500".
	// Promoted is the number of promoted scalers, of all scalers of the policy.
	Deployments string `json:"-"`
	Promoted    string `json:"-"`
	// Selected counts the Deployments that the policy selects, and Scaled its scalers. Of these, PromotedScalers are promoted,
	// and WithoutUsage lack usage of pods.
	Selected        int32    `json:"selected"`
	Scaled          int32    `json:"scaled"`
	PromotedScalers *float64 `json:"promoted,omitempty"`
	WithoutUsage    int32    `json:"withoutUsage"`
	State           `json:",inline"`
}

// withoutUsage reports the number of scalers without usage; empty for 0.
func (r PolicyRow) withoutUsage() string {
	if r.WithoutUsage == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d of %d without usage)", r.WithoutUsage, r.Scaled)
}

// ID is the kind and the name, as commands take them.
func (r PolicyRow) ID() string { return r.Kind + "/" + r.Name }

// PolicyRowOf summarizes a policy.
func PolicyRowOf(p Policy, operators Operators, now time.Time) PolicyRow {
	out := PolicyRow{
		Kind: p.Kind, Namespace: p.Object.GetNamespace(), Name: p.Object.GetName(), Selected: p.Status.Selected, Scaled: p.Status.Scaled,
		WithoutUsage: p.withoutUsage(operators),
	}
	out.Mode, _ = p.Mode()
	out.Start, _ = p.Start()
	if s := p.Status.Summary; s != nil {
		out.Deployments, out.Promoted = s.Deployments, s.Promoted
		out.PromotedScalers, _ = numbersIn(s.Promoted, "/")
	}
	out.State = stateOf(policyFindings(p, operators, now), meta.FindStatusCondition(p.Status.Conditions, v1beta1.ConditionReady), operators.Freeze(p.Object.GetNamespace()))
	return out
}

// withoutUsage is the number of scalers that lack usage.
func (p Policy) withoutUsage(operators Operators) (n int32) {
	if operators.areBlind(p.Object.GetNamespace()) {
		return p.Status.Scaled
	}
	for _, s := range p.Status.States {
		if scaler.LacksUsage(s.Reason) {
			n += s.Count
		}
	}
	return n
}

// ofPolicies are reasons with another meaning for a policy than for a scaler.
var ofPolicies = []Reason{
	{v1beta1.ReasonOperatingNormally, "Each selected Deployment has the scaler of the policy, or is skipped for a reason that the policy lists.", Fine, "No action needed."},
	{v1beta1.ReasonPaused, "An annotation with any value but false stops the policy: it creates, changes, deletes and promotes no scaler. The message quotes the value.", Fine, "No action needed if that is intended. To continue, remove the annotation " + v1beta1.PausedAnnotation + " from the policy."},
	{v1beta1.ReasonFrozen, "The ConfigMap verticalscaler-freeze in the operator's namespace stops all changes, so no scaler is promoted.", Fine, "No action needed if that is intended. To continue, run kubectl vscaler unfreeze to end the freeze."},
	{v1beta1.ReasonForbidden, "The operator lacks the rights that policies need. Scalers stay as they are.", ByUser, "Run the command in the message."},
}

// policyReason is a reason of a policy in words.
func policyReason(reason string) Reason {
	if i := slices.IndexFunc(ofPolicies, func(r Reason) bool { return r.Reason == reason }); i >= 0 {
		return ofPolicies[i]
	}
	return reasonFor(reason)
}

// Origin is the policy that has created a scaler.
type Origin struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Stage is the stage of the scaler's promotion.
	Stage Stage `json:"stage"`
	// Promoted and Harmed are the times of the scaler's promotion and of harm after it; nil without one,
	// or if unknown.
	Promoted *metav1.Time `json:"promoted,omitempty"`
	Harmed   *metav1.Time `json:"harmed,omitempty"`
	// Harm tells the harm, such as "app was OOM-killed at 200Mi, lowered from 512Mi"; empty without harm.
	Harm string `json:"harm,omitempty"`
	// Message is the message of the condition ReadyForPromotion.
	Message string `json:"message,omitempty"`
	// Detaching is true if the scaler is about to become one of its users.
	Detaching bool `json:"detaching,omitempty"`
}

// Stage is the stage of a scaler's promotion.
type Stage string

const (
	// StagePromoted means that the scaler has the update mode of the template.
	StagePromoted Stage = "Promoted"
	// StageWaiting means that the scaler can be promoted, and waits for its turn.
	StageWaiting Stage = "Waiting"
	// StageCollecting means that the scaler has too little evidence.
	StageCollecting Stage = "Collecting"
	// StageNone means that the scaler does not wait to be promoted.
	StageNone Stage = "None"
)

// ID is the kind and the name, as commands take them.
func (o Origin) ID() string { return o.Kind + "/" + o.Name }

// OriginOf is the policy that controls a scaler; nil for a scaler of a user or of a ScaledDeployment.
func OriginOf(s *v1beta1.VerticalScaler) *Origin {
	controller := metav1.GetControllerOf(s)
	if !v1beta1.IsPolicy(controller) {
		return nil
	}
	out := &Origin{Kind: controller.Kind, Name: controller.Name, Stage: StageNone, Detaching: fleet.IsDetached(s.Annotations)}
	c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionReadyForPromotion)
	switch {
	case fleet.IsPromoted(s):
		out.Stage, out.Promoted, out.Harmed = StagePromoted, timeOf(fleet.PromotedAt(s)), timeOf(fleet.HarmedAt(s))
		out.Harm = harmOf(s)
	case c != nil && c.Status == metav1.ConditionTrue:
		out.Stage, out.Message = StageWaiting, c.Message
	case c != nil:
		out.Stage, out.Message = StageCollecting, c.Message
	}
	return out
}

// harmOf describes the harm of a promoted scaler, as far as its status still tells.
func harmOf(s *v1beta1.VerticalScaler) string {
	at := fleet.HarmedAt(s)
	if at.IsZero() {
		return ""
	}
	if harm, ok := fleet.HarmOf(&s.Status, fleet.PromotedAt(s), at.Sub(fleet.PromotedAt(s))+time.Second); ok && harm.At.Sub(at).Abs() < time.Second {
		return harm.Words
	}
	return "a change was reverted, or a container was OOM-killed with less memory than before its first change"
}

func timeOf(at time.Time) *metav1.Time {
	if at.IsZero() {
		return nil
	}
	t := metav1.NewTime(at)
	return &t
}

// write writes which policy has created a scaler, and how to change it.
func (o *Origin) write(line func(string, ...any), deployment string, now time.Time) {
	if o.Detaching {
		line("  Created by %s %s, and about to be detached from it.", o.Kind, o.Name)
		return
	}
	line("  Created by %s %s. %s", o.Kind, o.Name, o.promotion(now))
	line("  To change it, edit the policy: an edit of the scaler is reverted. To edit it, detach it: annotate it with %s=true.", v1beta1.DetachedAnnotation)
	line("  To have no scaler, annotate Deployment %s with %s=true.", deployment, v1beta1.ExcludeAnnotation)
}

func (o *Origin) promotion(now time.Time) string {
	switch o.Stage {
	case StagePromoted:
		text := "Promoted."
		if o.Promoted != nil {
			text = fmt.Sprintf("Promoted %s ago.", Age(now, o.Promoted.Time))
		}
		if o.Harmed != nil {
			text += fmt.Sprintf(" It did harm %s ago: %s.", Age(now, o.Harmed.Time), o.Harm)
		}
		return text
	case StageWaiting:
		return "It can be promoted, and waits for its turn: " + sentence(o.Message)
	case StageCollecting:
		return "Not promoted yet: " + sentence(o.Message)
	}
	return "It does not wait to be promoted."
}

// sentence is a message of a condition with a full stop.
func sentence(message string) string { return strings.TrimSuffix(message, ".") + "." }

// forOrigin adapts a reason to a scaler that a policy has created: its spec comes from the policy.
func forOrigin(reason Reason, s *v1beta1.VerticalScaler) Reason {
	origin := OriginOf(s)
	if origin == nil {
		return reason
	}
	switch reason.Reason {
	case v1beta1.ReasonRecommendOnly:
		reason.Advice = fmt.Sprintf("No action needed if that is intended. Otherwise edit spec.template or spec.rollout of %s, or detach the scaler.", origin.ID())
		if origin.Stage == StageWaiting || origin.Stage == StageCollecting {
			reason.Ends = ByItself
			reason.Advice = fmt.Sprintf("Wait: %s promotes the scaler when there is enough evidence and it has its turn. To apply recommendations sooner, edit spec.rollout there, or detach the scaler.", origin.ID())
		}
	case v1beta1.ReasonSuspended:
		if s.Spec.Suspend {
			reason.Advice = fmt.Sprintf("No action needed if that is intended. To continue, set spec.template.suspend of %s to false.", origin.ID())
		}
	case profileRemoved.Reason:
		reason.Advice = fmt.Sprintf("Set recommendationPolicy.profile in spec.template of %s to Balanced, Frugal or Safe.", origin.ID())
	}
	return reason
}
