// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package adoption says what a policy would do, before it is written: which Deployments it selects, which it
// skips and why, what changes at once, and what changes when its scalers are promoted.
//
// It selects with the code of the operator. It is pure.
package adoption

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
	"github.com/verticalscaler/verticalscaler-operator/internal/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

const (
	// mostNamespaces is how many namespaces a preview lists: those with the most Deployments.
	mostNamespaces = 10
	// mostExamples is how many names a count lists.
	mostExamples = 3
)

// World is the input of a preview: the policy, and what the user may read of the cluster.
type World struct {
	// Policy is the policy as the API server would store it, and Described the same for sentences.
	Policy    *fleet.Policy
	Described explain.Policy
	// Exists is true if a policy with that name exists, and IsSame that it is like this one.
	Exists, IsSame bool
	// Others are all other policies.
	Others      []*fleet.Policy
	Deployments []*fleet.Deployment
	// Namespaces are those that are known, by name.
	Namespaces map[string]*fleet.Namespace
	Scalers    []v1beta1.VerticalScaler
	// Missing lists what could not be read.
	Missing []string
}

// Preview is what a policy would do. The size of its text does not depend on the number of Deployments.
type Preview struct {
	Kind string `json:"kind"`
	// Namespace is empty for a ClusterScalingPolicy.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Action is what writing the policy does: Create, Update, or None if it exists and is the same.
	Action Action `json:"action"`
	// Purpose is what the policy is for, and Exclusions what it leaves alone; empty for nothing.
	Purpose    string `json:"purpose"`
	Exclusions string `json:"exclusions,omitempty"`
	// Selected is the number of Deployments that the selectors match, without excluded ones and those of system
	// namespaces, as in the status. Sized is the number of those that the policy sizes.
	Selected int `json:"selected"`
	Sized    int `json:"sized"`
	// Namespaces are the namespaces with selected Deployments, the largest first.
	Namespaces []Share `json:"namespaces,omitempty"`
	// Skipped are the Deployments that the selectors match and that the policy does not size, by reason.
	Skipped []explain.Skipped `json:"skipped,omitempty"`
	// FirstDay is what changes at once, and Later what changes when scalers are promoted; nil if none is.
	FirstDay FirstDay `json:"firstDay"`
	Later    *Later   `json:"later,omitempty"`
	// Requests compares the requests of pod templates with what scalers recommend now; nil if none recommends.
	Requests *Comparison `json:"requests,omitempty"`
	// Warnings say what may not be intended.
	Warnings []string `json:"warnings,omitempty"`
	// Missing lists what could not be read.
	Missing []string `json:"missing,omitempty"`
}

// Action is what is done to the policy.
type Action string

const (
	// Create creates the policy.
	Create Action = "Create"
	// Update changes a policy that exists.
	Update Action = "Update"
	// None changes nothing, because the policy exists and is the same.
	None Action = "None"
)

// Share is what a policy selects of a namespace.
type Share struct {
	Namespace string `json:"namespace"`
	Sized     int    `json:"sized"`
	Skipped   int    `json:"skipped"`
	// Requested is what all pods of the sized Deployments request, by their pod templates.
	Requested explain.Saved `json:"requested"`
}

// FirstDay is what happens at once when the policy is written.
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

// Later is what happens when scalers are promoted.
type Later struct {
	// Mode is the update mode of promoted scalers, and ModeMeans its meaning.
	Mode      string `json:"mode"`
	ModeMeans string `json:"modeMeans"`
	// Rules say when scalers are promoted.
	Rules []string `json:"rules"`
	// AtOnce is how many scalers are verified at the same time.
	AtOnce int `json:"atOnce"`
}

// Comparison is what pods request by their templates, and what their scalers recommend.
type Comparison struct {
	// Deployments is the number of Deployments that are compared.
	Deployments int           `json:"deployments"`
	Current     explain.Saved `json:"current"`
	Recommended explain.Saved `json:"recommended"`
}

// Of is the preview of a policy.
func Of(w World) Preview {
	p := w.Described
	mode, means := p.Mode()
	start, startMeans := p.Start()
	out := Preview{
		Kind: p.Kind, Namespace: p.Object.GetNamespace(), Name: p.Object.GetName(), Action: w.action(), Purpose: p.Purpose(), Exclusions: p.Exclusions(),
		FirstDay: FirstDay{Mode: start, ModeMeans: startMeans}, Missing: w.Missing,
	}
	t := &tally{shares: map[string]*Share{}, skipped: map[string]*explain.Skipped{}}
	for _, m := range w.members() {
		t.add(m)
	}
	out.Selected, out.Sized, out.Namespaces, out.Skipped = t.selected, t.sized, t.namespaces(), t.reasons()
	out.FirstDay.count(w, t)
	out.Requests = t.comparison()
	if p.Promotes() {
		limit := (fleet.RolloutOf(p.Rules.Rollout).MaxConcurrentPercent*t.sized + 99) / 100
		out.Later = &Later{Mode: mode, ModeMeans: means, Rules: p.Rollout(), AtOnce: max(1, limit)}
	}
	out.Warnings = w.warnings(t)
	return out
}

func (w World) action() Action {
	switch {
	case w.IsSame:
		return None
	case w.Exists:
		return Update
	}
	return Create
}

// members are what the policy does about all Deployments that it selects.
func (w World) members() (all []fleet.Member) {
	policies := append([]*fleet.Policy{w.Policy}, w.Others...)
	scalers := w.scalers()
	for _, d := range w.Deployments {
		if m, ok := fleet.MemberOf(w.Policy, policies, d, w.namespace(d.Namespace), scalers[d.Key()], ""); ok {
			// Unlike the operator, the preview needs the scaler of another policy, too.
			m.Scaler = scalers[d.Key()].Named
			all = append(all, m)
		}
	}
	return all
}

func (w World) namespace(name string) *fleet.Namespace {
	if known := w.Namespaces[name]; known != nil {
		return known
	}
	return &fleet.Namespace{Name: name}
}

// scalers are the scalers by the Deployments that they concern.
func (w World) scalers() map[types.NamespacedName]fleet.Scalers {
	out := map[types.NamespacedName]fleet.Scalers{}
	for i := range w.Scalers {
		s := &w.Scalers[i]
		key := types.NamespacedName{Namespace: s.Namespace, Name: s.Name}
		named := out[key]
		named.Named = s
		out[key] = named
		if !fleet.IsGenerated(s) {
			target := out[scaler.Target(s)]
			target.OfUser = s
			out[scaler.Target(s)] = target
		}
	}
	return out
}

// tally sums up members.
type tally struct {
	// matched counts excluded Deployments and those of system namespaces, too.
	matched, selected, sized int
	shares                   map[string]*Share
	skipped                  map[string]*explain.Skipped
	wanted                   []fleet.Member
	compared                 int
	current, target          explain.Saved
}

// add adds an amount of all pods.
func add(to *explain.Saved, a quantity.Amounts, pods int32) {
	to.Cores += float64(a.CPUMillis) * float64(pods) / 1000
	to.GiB += float64(a.MemoryBytes) * float64(pods) / (1 << 30)
}

func rounded(s explain.Saved) explain.Saved {
	return explain.Saved{Cores: explain.Rounded(s.Cores), GiB: explain.Rounded(s.GiB)}
}

func (t *tally) add(m fleet.Member) {
	d := m.Deployment
	t.matched++
	if m.Skipped != "" {
		t.skip(m)
	}
	if m.Skipped == v1beta1.ReasonExcluded || m.Skipped == v1beta1.ReasonSystemNamespace {
		return
	}
	t.selected++
	of := t.shares[d.Namespace]
	if of == nil {
		of = &Share{Namespace: d.Namespace}
		t.shares[d.Namespace] = of
	}
	if m.Skipped != "" {
		of.Skipped++
		return
	}
	t.sized++
	of.Sized++
	t.wanted = append(t.wanted, m)
	for _, requests := range d.Requests {
		add(&of.Requested, requests, d.Replicas)
	}
	t.compare(m)
}

func (t *tally) skip(m fleet.Member) {
	s := t.skipped[m.Skipped]
	if s == nil {
		reason, _ := explain.ReasonFor(m.Skipped)
		s = &explain.Skipped{Reason: reason}
		t.skipped[m.Skipped] = s
	}
	s.Count++
	if m.Message != "" && (s.Message == "" || m.Message < s.Message) {
		s.Message = m.Message
	}
	s.Examples = first(s.Examples, m.Deployment.Key().String())
}

// first are the first names in order, so that equal worlds have equal examples.
func first(names []string, name string) []string {
	at, isKnown := slices.BinarySearch(names, name)
	if !isKnown && at < mostExamples {
		names = slices.Insert(names, at, name)
	}
	return names[:min(len(names), mostExamples)]
}

// compare adds what the scaler of a Deployment recommends, if it does.
func (t *tally) compare(m fleet.Member) {
	if m.Scaler == nil || m.Scaler.Status.Recommendation == nil {
		return
	}
	isCompared := false
	for _, c := range m.Scaler.Status.Recommendation.ContainerRecommendations {
		requests, ok := m.Deployment.Requests[c.ContainerName]
		target := scaler.Amounts(c.Target)
		if !ok || target == (quantity.Amounts{}) {
			continue
		}
		isCompared = true
		// What is not recommended stays.
		target.CPUMillis, target.MemoryBytes = cmp.Or(target.CPUMillis, requests.CPUMillis), cmp.Or(target.MemoryBytes, requests.MemoryBytes)
		add(&t.current, requests, m.Deployment.Replicas)
		add(&t.target, target, m.Deployment.Replicas)
	}
	if isCompared {
		t.compared++
	}
}

func (t *tally) comparison() *Comparison {
	if t.compared == 0 {
		return nil
	}
	return &Comparison{Deployments: t.compared, Current: rounded(t.current), Recommended: rounded(t.target)}
}

// namespaces are the namespaces, the largest first.
func (t *tally) namespaces() (all []Share) {
	for _, name := range slices.Sorted(maps.Keys(t.shares)) {
		of := *t.shares[name]
		of.Requested = rounded(of.Requested)
		all = append(all, of)
	}
	slices.SortStableFunc(all, func(a, b Share) int {
		return cmp.Or(cmp.Compare(b.Sized, a.Sized), cmp.Compare(b.Skipped, a.Skipped))
	})
	return all
}

// reasons are why Deployments are skipped, the most frequent one first.
func (t *tally) reasons() (all []explain.Skipped) {
	for _, reason := range slices.Sorted(maps.Keys(t.skipped)) {
		all = append(all, *t.skipped[reason])
	}
	slices.SortStableFunc(all, func(a, b explain.Skipped) int { return cmp.Compare(b.Count, a.Count) })
	return all
}

// count says what happens to scalers at once.
func (f *FirstDay) count(w World, t *tally) {
	from, isWanted := map[string]bool{}, map[types.NamespacedName]bool{}
	for _, m := range t.wanted {
		isWanted[m.Deployment.Key()] = true
		switch {
		case m.Scaler == nil:
			f.Created++
		case !w.Policy.Controls(m.Scaler):
			f.TakenOver++
			if controller := metav1.GetControllerOf(m.Scaler); controller != nil {
				from[controller.Kind+"/"+controller.Name] = true
			}
		case w.Policy.IsUpToDate(m.Scaler):
			f.Unchanged++
		default:
			f.Changed++
		}
	}
	f.From = slices.Sorted(maps.Keys(from))
	for i := range w.Scalers {
		s := &w.Scalers[i]
		if w.Policy.Controls(s) && !isWanted[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] && !w.isTakenByOther(s) {
			f.Deleted++
		}
	}
}

// isTakenByOther reports whether another policy takes over a scaler that this one does not want.
func (w World) isTakenByOther(s *v1beta1.VerticalScaler) bool {
	i := slices.IndexFunc(w.Deployments, func(d *fleet.Deployment) bool { return d.Namespace == s.Namespace && d.Name == s.Name })
	return i >= 0 && fleet.Choose(w.Others, w.Deployments[i], w.namespace(s.Namespace)) != nil
}

// warnings say what may not be intended.
func (w World) warnings(t *tally) (out []string) {
	p := w.Described
	if t.sized == 0 {
		out = append(out, "The policy sizes no Deployment now: check its selectors. Deployments that are created or labeled later are sized")
	}
	if w.selectsAll(t) {
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

// selectsAll reports whether the policy selects all Deployments that it could.
func (w World) selectsAll(t *tally) bool {
	if w.Described.Cluster == nil || w.Described.Rules.DeploymentSelector != nil || len(w.Deployments) == 0 {
		return false
	}
	// A policy that matches all namespaces matches those of the system, too, and skips them.
	return t.matched == len(w.Deployments)
}

// WriteText writes the preview as text, to be read from top to bottom.
func (p Preview) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintln(&b, explain.Printable(fmt.Sprintf(format, args...))) }
	line("%s %s%s", p.Kind, strings.TrimPrefix(p.Namespace+"/"+p.Name, "/"), map[Action]string{Create: " (new)", Update: " (exists, is changed)", None: " (exists, is the same)"}[p.Action])
	line("  %s", p.Purpose)
	if p.Exclusions != "" {
		line("  %s", p.Exclusions)
	}
	line("")
	line("Selects %s in %s, and sizes %d of them", count(p.Selected, "Deployment"), count(len(p.Namespaces), "namespace"), p.Sized)
	if err := p.writeNamespaces(&b, line); err != nil {
		return err
	}
	explain.WriteSkipped(line, p.Skipped)
	line("")
	line("On the first day")
	p.FirstDay.write(line)
	line("")
	line("Later")
	p.writeLater(line)
	p.writeRequests(line)
	explain.WriteMissing(line, p.Missing)
	_, err := io.WriteString(w, b.String())
	return err
}

func (p Preview) writeNamespaces(b *strings.Builder, line func(string, ...any)) error {
	if len(p.Namespaces) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "  NAMESPACE\tSIZED\tSKIPPED\tCORES\tGIB")
	shown := p.Namespaces[:min(len(p.Namespaces), mostNamespaces)]
	for _, s := range shown {
		fmt.Fprintf(table, "  %s\t%d\t%d\t%s\t%s\n", s.Namespace, s.Sized, s.Skipped, number(s.Requested.Cores), number(s.Requested.GiB))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if more := p.Namespaces[len(shown):]; len(more) > 0 {
		sized, skipped := 0, 0
		for _, s := range more {
			sized, skipped = sized+s.Sized, skipped+s.Skipped
		}
		line("  and %d more, with %d sized and %d skipped", len(more), sized, skipped)
	}
	return nil
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
		line("  %s.", stay(f.Unchanged))
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

func (p Preview) writeRequests(line func(string, ...any)) {
	if p.Requests == nil {
		line(`  How requests change is unknown until there is usage. "kubectl vscaler report --prometheus URL" shows it before.`)
		return
	}
	r := p.Requests
	line("  Scalers of %s recommend already: %s cores instead of %s, and %s GiB instead of %s.", count(r.Deployments, "Deployment"),
		number(r.Recommended.Cores), number(r.Current.Cores), number(r.Recommended.GiB), number(r.Current.GiB))
	if rest := p.Sized - r.Deployments; rest > 0 {
		line("  Of the other %d, it is unknown until there is usage.", rest)
	}
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// are begins a sentence about scalers.
func are(n int) string {
	if n == 1 {
		return "1 scaler is"
	}
	return fmt.Sprintf("%d scalers are", n)
}

// stay is a sentence about scalers that do not change.
func stay(n int) string {
	if n == 1 {
		return "1 scaler of the policy stays as it is"
	}
	return fmt.Sprintf("%d scalers of the policy stay as they are", n)
}
