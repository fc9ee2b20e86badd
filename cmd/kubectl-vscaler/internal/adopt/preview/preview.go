// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package preview shows the effect of a policy before it is written. It lists the Deployments that the policy
// selects, those that it skips and why, the immediate changes, and the changes after its scalers are promoted.
//
// It selects with the code of the operator. It is pure.
package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// mostNamespaces is how many namespaces a preview lists: those with the most Deployments.
const mostNamespaces = 10

// Input is the input of a preview: the policy, and what the user may read of the cluster.
type Input struct {
	// Policy is the policy as the API server would store it, and Described the same for sentences.
	Policy    *fleet.Policy
	Described explain.Policy
	// Exists is true if a policy with that name exists, and IsSame that it is like this one.
	Exists, IsSame bool
	// Others are all other policies.
	Others      []*fleet.Policy
	Deployments []*fleet.Deployment
	// Averages are the metrics of HorizontalPodAutoscalers that divide usage by requests, by Deployment.
	Averages map[types.NamespacedName][]workload.Average
	// Namespaces are the known namespaces, by name.
	Namespaces map[string]*fleet.Namespace
	Scalers    []v1beta1.VerticalScaler
	// Missing lists what could not be read.
	Missing []string
}

// Preview is the expected effect of a policy. The size of its text does not depend on the number of Deployments.
type Preview struct {
	Kind string `json:"kind"`
	// Namespace is empty for a ClusterScalingPolicy.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Action is the effect of writing the policy: Create, Update, or None if it exists and is the same.
	Action Action `json:"action"`
	// Purpose and Exclusions describe the policy, if set.
	Purpose    string `json:"purpose"`
	Exclusions string `json:"exclusions,omitempty"`
	// Selected is the number of Deployments that the selectors match, without excluded ones and those of system
	// namespaces, as in the status. Sized is the number of those that the policy sizes.
	Selected int `json:"selected"`
	Sized    int `json:"sized"`
	// Namespaces are the namespaces with selected Deployments, the largest first.
	Namespaces []Share `json:"namespaces,omitempty"`
	// Skipped are the Deployments that the selectors match and that the policy does not size, by reason.
	Skipped []explain.ReasonCount `json:"skipped,omitempty"`
	// FirstDay has the immediate changes, and Later the changes after scalers are promoted; nil for none.
	FirstDay FirstDay `json:"firstDay"`
	Later    *Later   `json:"later,omitempty"`
	// Savings are how much less scalers request or recommend now; nil if it is not known.
	Savings *v1beta1.PolicySavings `json:"savings,omitempty"`
	// Warnings say what may not be intended.
	Warnings []string `json:"warnings,omitempty"`
	// Missing lists what could not be read.
	Missing []string `json:"missing,omitempty"`
}

// Action is the effect of writing the policy.
type Action string

const (
	// Create creates the policy.
	Create Action = "Create"
	// Update changes a policy that exists.
	Update Action = "Update"
	// None changes nothing, because the policy exists and is the same.
	None Action = "None"
)

// Share is the part of a namespace that a policy selects.
type Share struct {
	Namespace string `json:"namespace"`
	Sized     int    `json:"sized"`
	Skipped   int    `json:"skipped"`
	// Requested is the sum of the requests of all pods of the sized Deployments, by their pod templates.
	Requested explain.Saved `json:"requested"`
}

// FirstDay is the effect of the policy as soon as it is written.
type FirstDay struct {
	// Mode is the update mode of new scalers, and ModeMeans its meaning.
	Mode      string `json:"mode"`
	ModeMeans string `json:"modeMeans"`
	// Created, Changed, Unchanged and Deleted are numbers of scalers.
	Created   int `json:"created"`
	Changed   int `json:"changed"`
	Unchanged int `json:"unchanged"`
	Deleted   int `json:"deleted"`
	// TakenOver is the number of scalers of other policies that become scalers of this one, and From are
	// these policies.
	TakenOver int      `json:"takenOver"`
	From      []string `json:"from,omitempty"`
}

// Later is the effect of the promotion of scalers.
type Later struct {
	// Mode is the update mode of promoted scalers, and ModeMeans its meaning.
	Mode      string `json:"mode"`
	ModeMeans string `json:"modeMeans"`
	// Rules say when scalers are promoted.
	Rules []string `json:"rules"`
	// AtOnce is how many scalers are verified at the same time.
	AtOnce int `json:"atOnce"`
}

// Of is the preview of a policy.
func Of(in Input) Preview {
	p := in.Described
	mode, means := p.Mode()
	start, startMeans := p.Start()
	out := Preview{
		Kind: p.Kind, Namespace: p.Object.GetNamespace(), Name: p.Object.GetName(), Action: in.action(), Purpose: p.Purpose(), Exclusions: p.Exclusions(),
		FirstDay: FirstDay{Mode: start, ModeMeans: startMeans}, Missing: in.Missing,
	}
	members := in.members()
	survey := fleet.Count(members)
	shares, wanted := sharesOf(members)
	out.Selected, out.Sized, out.Namespaces, out.Skipped, out.Savings = survey.Selected, len(wanted), shares, explain.CountsOf(survey.Skipped), survey.Savings
	out.FirstDay.count(in, wanted)
	if p.Promotes() {
		out.Later = &Later{Mode: mode, ModeMeans: means, Rules: p.Rollout(), AtOnce: fleet.RolloutOf(p.Rules.Rollout).Limit(len(wanted))}
	}
	out.Warnings = append(in.warnings(len(members), len(wanted)), in.hpaWarnings(wanted)...)
	return out
}

func (in Input) action() Action {
	switch {
	case in.IsSame:
		return None
	case in.Exists:
		return Update
	}
	return Create
}

// members are all Deployments that the policy selects, each with the policy's decision about it.
func (in Input) members() (all []fleet.Member) {
	policies := append([]*fleet.Policy{in.Policy}, in.Others...)
	scalers := fleet.ScalersBy(in.Scalers)
	for _, d := range in.Deployments {
		if m, ok := fleet.MemberOf(in.Policy, policies, d, in.namespace(d.Namespace), scalers[d.Key()], ""); ok {
			// Unlike the operator, the preview needs the scaler of another policy, too.
			m.Scaler = scalers[d.Key()].Named
			all = append(all, m)
		}
	}
	return all
}

func (in Input) namespace(name string) *fleet.Namespace {
	if known := in.Namespaces[name]; known != nil {
		return known
	}
	return &fleet.Namespace{Name: name}
}

// mostHPAs is how many conflicts with HorizontalPodAutoscalers are shown.
const mostHPAs = 3

// hpaWarnings say how HorizontalPodAutoscalers and the scalers of the policy work side by side.
func (in Input) hpaWarnings(wanted []fleet.Member) (out []string) {
	for _, m := range wanted {
		policy := in.Policy.Scaler(m.Deployment).Spec.ResourcePolicy.For(v1beta1.AnyContainer)
		advice := workload.AdviceOn(in.Averages[m.Deployment.Key()], func(r corev1.ResourceName) bool { return scaler.Controls(policy, v1beta1.ControlledResource(r)) })
		for _, a := range advice {
			out = append(out, fmt.Sprintf("A HorizontalPodAutoscaler divides usage of Deployment %s by its requests, so that resource is left alone. To size it, apply: %s", m.Deployment.Key(), a))
		}
	}
	if more := len(out) - mostHPAs; more > 0 {
		out = append(out[:mostHPAs], fmt.Sprintf("%d more metrics of HorizontalPodAutoscalers divide usage by requests; %s check shows them by namespace", more, "kubectl vscaler"))
	}
	return out
}

// sharesOf are the selected Deployments by namespace, the largest first, and those that the policy sizes.
func sharesOf(members []fleet.Member) (all []Share, wanted []fleet.Member) {
	byName := map[string]*Share{}
	for _, m := range members {
		if m.Skipped == v1beta1.ReasonExcluded || m.Skipped == v1beta1.ReasonSystemNamespace {
			continue
		}
		d := m.Deployment
		of := byName[d.Namespace]
		if of == nil {
			of = &Share{Namespace: d.Namespace}
			byName[d.Namespace] = of
		}
		if m.Skipped != "" {
			of.Skipped++
			continue
		}
		of.Sized++
		wanted = append(wanted, m)
		for _, requests := range d.Requests {
			of.Requested.Cores += float64(requests.CPUMillis) * float64(d.Replicas) / 1000
			of.Requested.GiB += float64(requests.MemoryBytes) * float64(d.Replicas) / (1 << 30)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		of := *byName[name]
		of.Requested = explain.Saved{Cores: explain.Rounded(of.Requested.Cores), GiB: explain.Rounded(of.Requested.GiB)}
		all = append(all, of)
	}
	slices.SortStableFunc(all, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Sized, a.Sized), cmp.Compare(b.Skipped, a.Skipped))
	})
	return all, wanted
}

// count says what happens to scalers at once.
func (f *FirstDay) count(in Input, wanted []fleet.Member) {
	from, isWanted := map[string]bool{}, map[types.NamespacedName]bool{}
	for _, m := range wanted {
		isWanted[m.Deployment.Key()] = true
		switch {
		case m.Scaler == nil:
			f.Created++
		case !in.Policy.Controls(m.Scaler):
			f.TakenOver++
			if controller := metav1.GetControllerOf(m.Scaler); controller != nil {
				from[controller.Kind+"/"+controller.Name] = true
			}
		case in.Policy.IsUpToDate(m.Scaler):
			f.Unchanged++
		default:
			f.Changed++
		}
	}
	f.From = slices.Sorted(maps.Keys(from))
	for i := range in.Scalers {
		s := &in.Scalers[i]
		if in.Policy.Controls(s) && !isWanted[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] && !in.isTakenByOther(s) {
			f.Deleted++
		}
	}
}

// isTakenByOther reports whether another policy takes over a scaler that this one does not want.
func (in Input) isTakenByOther(s *v1beta1.VerticalScaler) bool {
	i := slices.IndexFunc(in.Deployments, func(d *fleet.Deployment) bool { return d.Namespace == s.Namespace && d.Name == s.Name })
	return i >= 0 && fleet.Choose(in.Others, in.Deployments[i], in.namespace(s.Namespace)) != nil
}

// warnings say what may not be intended. The selectors match so many Deployments, and the policy sizes so many of them.
func (in Input) warnings(matched, sized int) (out []string) {
	p := in.Described
	if sized == 0 {
		out = append(out, "The policy sizes no Deployment now: check its selectors. Deployments that are created or labeled later are sized")
	}
	// A policy that matches all namespaces matches those of the system, too, and skips them.
	if p.Cluster != nil && p.Rules.DeploymentSelector == nil && matched > 0 && matched == len(in.Deployments) {
		which := "outside of system namespaces"
		if p.Cluster.SystemNamespaces == v1beta1.SystemNamespacesInclude {
			which = "of the cluster, with those of system namespaces"
		}
		out = append(out, "The policy selects every Deployment "+which)
	}
	if start, _ := p.Start(); start != string(v1beta1.UpdateModeRecommend) {
		out = append(out, "New scalers begin in update mode "+start+", without a time in which they only recommend")
	}
	if mode, _ := p.Mode(); mode == string(v1beta1.UpdateModeRecommend) && !p.Promotes() {
		out = append(out, "The update mode of the template is Recommend: no scaler ever changes anything")
	}
	if after := p.Rules.Rollout.AfterSeconds; after != nil && p.Promotes() && time.Duration(*after)*time.Second < 24*time.Hour {
		out = append(out, "Scalers are promoted with less than a day of usage: some hours of the day are not known then")
	}
	return out
}

// Text is the preview as text, to be read from top to bottom.
func (p Preview) Text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintln(&b, explain.Printable(fmt.Sprintf(format, args...))) }
	line("%s %s%s", p.Kind, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"), map[Action]string{Create: " (new)", Update: " (exists, is changed)", None: " (exists, is the same)"}[p.Action])
	line("  %s", p.Purpose)
	if p.Exclusions != "" {
		line("  %s", p.Exclusions)
	}
	line("")
	line("Selects %s in %s, and sizes %d of them", explain.Counted(p.Selected, "Deployment", "Deployments"), explain.Counted(len(p.Namespaces), "namespace", "namespaces"), p.Sized)
	p.writeNamespaces(line)
	explain.WriteCounts(line, "Skipped Deployments", p.Skipped)
	line("")
	line("On the first day")
	p.FirstDay.write(line)
	line("")
	line("Later")
	p.writeLater(line)
	if p.Savings == nil {
		line(`  How requests change is unknown until there is usage. "kubectl vscaler report --prometheus URL" shows it before.`)
	}
	explain.WriteSavings(line, p.Savings, "")
	explain.WriteMissing(line, p.Missing)
	return b.String()
}

func (p Preview) writeNamespaces(line func(string, ...any)) {
	if len(p.Namespaces) == 0 {
		return
	}
	table := []explain.Column{{Name: "NAMESPACE"}, {Name: "SIZED"}, {Name: "SKIPPED"}, {Name: "CORES"}, {Name: "GIB"}}
	shown := p.Namespaces[:min(len(p.Namespaces), mostNamespaces)]
	for _, s := range shown {
		for i, cell := range []string{s.Namespace, strconv.Itoa(s.Sized), strconv.Itoa(s.Skipped), fmt.Sprintf("%.2f", s.Requested.Cores), fmt.Sprintf("%.2f", s.Requested.GiB)} {
			table[i].Cells = append(table[i].Cells, cell)
		}
	}
	for _, row := range explain.Table(table, 3) {
		line("  %s", row)
	}
	if more := p.Namespaces[len(shown):]; len(more) > 0 {
		sized, skipped := 0, 0
		for _, s := range more {
			sized, skipped = sized+s.Sized, skipped+s.Skipped
		}
		line("  and %d more, with %d sized and %d skipped", len(more), sized, skipped)
	}
}

func (f FirstDay) write(line func(string, ...any)) {
	if f.Created > 0 {
		line("  %s created in update mode %s: %s.", are(f.Created), f.Mode, f.ModeMeans)
	}
	if f.TakenOver > 0 {
		line("  %s taken over from %s.", are(f.TakenOver), strings.Join(f.From, ", "))
	}
	if f.Changed > 0 {
		line("  %s changed to the new template.", are(f.Changed))
	}
	if f.Deleted > 0 {
		line("  %s deleted, because the policy no longer sizes what they size. A pod template that a scaler has changed gets its original values back.", are(f.Deleted))
	}
	if f.Unchanged > 0 {
		line("  %s.", explain.Counted(f.Unchanged, "scaler of the policy stays as it is", "scalers of the policy stay as they are"))
	}
	if f.Created+f.TakenOver+f.Changed+f.Deleted == 0 {
		line("  Nothing changes.")
	}
}

func (p Preview) writeLater(line func(string, ...any)) {
	if p.Later == nil {
		line("  No scaler is promoted: all have update mode %s from the beginning.", p.FirstDay.Mode)
		return
	}
	for _, rule := range p.Later.Rules {
		line("  %s", rule)
	}
	line("  So %s verified at the same time now.", are(p.Later.AtOnce))
	line("  Promoted scalers have update mode %s: %s.", p.Later.Mode, p.Later.ModeMeans)
}

// are begins a sentence about scalers.
func are(n int) string { return explain.Counted(n, "scaler is", "scalers are") }
