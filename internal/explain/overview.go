// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// Doubt returns the row as it must be read while its operator is silent: what was Ready may no longer
// be. What was not Ready keeps its reason.
func (r Row) Doubt(operators Operators, now time.Time) Row {
	if operator, ok := operators.For(r.Namespace); ok && operator.IsSilent(now) && r.Ready == metav1.ConditionTrue {
		r.Ready, r.Reason, r.Message, r.Ends, r.Advice = operator.doubt()
	}
	return r
}

// Doubt is as for a Row.
func (r OwnedRow) Doubt(operators Operators, now time.Time) OwnedRow {
	if operator, ok := operators.For(r.Namespace); ok && operator.IsSilent(now) && r.Ready == metav1.ConditionTrue {
		r.Ready, r.Reason, r.Message, r.Ends, r.Advice = operator.doubt()
	}
	return r
}

// Overview is how several scalers, ScaledDeployments and policies are doing.
type Overview struct {
	Scalers           []Row      `json:"scalers"`
	ScaledDeployments []OwnedRow `json:"scaledDeployments,omitempty"`
	// Policies are the ScalingPolicies and ClusterScalingPolicies.
	Policies []PolicyRow `json:"policies,omitempty"`
	// Operators are the operators that serve them; empty if they are not known.
	Operators Operators `json:"operators,omitempty"`
}

// Silent are the operators that serve what is shown and have not been heard of for more than a
// minute.
func (o Overview) Silent(now time.Time) (silent Operators) {
	add := func(namespace string) {
		if operator, ok := o.Operators.For(namespace); ok && operator.IsSilent(now) && !slices.Contains(silent, operator) {
			silent = append(silent, operator)
		}
	}
	for _, r := range o.Scalers {
		add(r.Namespace)
	}
	for _, r := range o.ScaledDeployments {
		add(r.Namespace)
	}
	for _, r := range o.Policies {
		add(r.Namespace)
	}
	return silent
}

// Row is how one scaler is doing.
type Row struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Deployment string `json:"deployment"`
	// Owner is the ScaledDeployment that the scaler belongs to; empty for none.
	Owner string `json:"owner,omitempty"`
	// Policy is the policy that has created the scaler, such as "ClusterScalingPolicy/fleet"; empty for none.
	Policy  string `json:"policy,omitempty"`
	Mode    string `json:"mode"`
	Profile string `json:"profile"`
	// CPU and Memory are the requests of a pod, present and decided, such as "500m->310m".
	// Pods is the number of pods with the decided size, of all pods.
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	Pods   string `json:"pods,omitempty"`
	// Ready is the status of the condition. Reason is that of Ready, or of Applied if the
	// scaler operates normally.
	Ready   metav1.ConditionStatus `json:"ready"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message,omitempty"`
	// Ends and Advice say what resolves the state.
	Ends   End    `json:"ends"`
	Advice string `json:"advice"`
	// Changed is the time of the last change; nil before the first.
	Changed *metav1.Time `json:"changed,omitempty"`
	// Saved is how much less the resized pods request than their original template;
	// negative for more, nil if unknown.
	Saved *Saved `json:"saved,omitempty"`
}

// Saved is an amount of CPU and memory, of all pods together.
type Saved struct {
	Cores float64 `json:"cores"`
	GiB   float64 `json:"gib"`
}

// OwnedRow is how one ScaledDeployment is doing.
type OwnedRow struct {
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	Deployment string `json:"deployment"`
	// Available is the number of available pods, of those that the object asks for.
	Available string                 `json:"available"`
	Ready     metav1.ConditionStatus `json:"ready"`
	Reason    string                 `json:"reason"`
	Message   string                 `json:"message,omitempty"`
	// Sized repeats the reason of its scaler; empty without one.
	Sized  string `json:"sized,omitempty"`
	Ends   End    `json:"ends"`
	Advice string `json:"advice"`
}

// RowOf summarizes a scaler. Only the scaler itself is required. Whether its operator is silent does not
// count: see Doubt.
func RowOf(e Evidence) Row {
	s := e.Scaler
	out := Row{
		Namespace: s.Namespace, Name: s.Name, Deployment: s.Spec.DeploymentName,
		Mode: modeName(s), Profile: string(scaler.Profile(&s.Spec)),
		Saved: savedBy(s, e.Deployment),
	}
	if owner := metav1.GetControllerOf(s); owner != nil && owner.Kind == "ScaledDeployment" {
		out.Owner = owner.Name
	}
	origin := OriginOf(s)
	if origin != nil {
		out.Policy = origin.ID()
	}
	if sum := s.Status.Summary; sum != nil {
		out.CPU, out.Memory, out.Pods = sum.CPU, sum.Memory, sum.Pods
	}
	if len(s.Status.History) > 0 {
		out.Changed = &s.Status.History[0].Time
	}
	ready := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionReady)
	out.Ready, out.Reason, out.Message, out.Ends, out.Advice = sumUp(ready, scaler.InShort(s.Status.Conditions))
	known, _ := ReasonFor(out.Reason)
	switch {
	case waitsForEvidence(e):
		out.Advice = adviceFor(known, s, containersIn(e))
	case origin != nil && ready != nil:
		known = forOrigin(known, s)
		out.Ends, out.Advice = known.Ends, known.Advice
	}
	if s.Status.ObservedGeneration < s.Generation && ready != nil {
		out.Ready, out.Reason, out.Message, out.Ends, out.Advice = metav1.ConditionUnknown, outdated.Reason, outdated.Means, outdated.Ends, outdated.Advice
	}
	return out
}

// OwnedRowOf summarizes a ScaledDeployment.
func OwnedRowOf(d *v1beta1.ScaledDeployment) OwnedRow {
	desired := int32(1)
	if d.Spec.Replicas != nil {
		desired = *d.Spec.Replicas
	}
	out := OwnedRow{
		Namespace: d.Namespace, Name: d.Name, Deployment: d.Spec.DeploymentName,
		Available: fmt.Sprintf("%d/%d", d.Status.AvailableReplicas, desired),
	}
	if out.Deployment == "" {
		out.Deployment = d.Name
	}
	if c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionSized); c != nil {
		out.Sized = c.Reason
	}
	ready := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionReady)
	out.Ready, out.Reason, out.Message, out.Ends, out.Advice = sumUp(ready, ready)
	if d.Status.ObservedGeneration < d.Generation && ready != nil {
		out.Ready, out.Reason, out.Message, out.Ends, out.Advice = metav1.ConditionUnknown, outdated.Reason, outdated.Means, outdated.Ends, outdated.Advice
	}
	return out
}

func sumUp(ready, told *metav1.Condition) (status metav1.ConditionStatus, reason, message string, ends End, advice string) {
	if ready == nil || told == nil {
		return metav1.ConditionUnknown, notObserved.Reason, notObserved.Means, notObserved.Ends, notObserved.Advice
	}
	known, _ := ReasonFor(told.Reason)
	return ready.Status, told.Reason, told.Message, known.Ends, known.Advice
}

// savedBy compares the decision with the original pod template, for the pods with the
// decided size. It is nil without a decision, a template, or a number of pods.
func savedBy(s *v1beta1.VerticalScaler, deployment *appsv1.Deployment) *Saved {
	if deployment == nil || s.Status.Decision == nil || s.Status.Summary == nil {
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
		before := originalRequests(s, deployment, c)
		for _, d := range s.Status.Decision.Containers {
			if d.ContainerName != c.Name {
				continue
			}
			decided := scaler.Amounts(d.Requests)
			if decided.CPUMillis > 0 {
				saved.CPUMillis += before.CPUMillis - decided.CPUMillis
			}
			if decided.MemoryBytes > 0 {
				saved.MemoryBytes += before.MemoryBytes - decided.MemoryBytes
			}
		}
	}
	return &Saved{
		Cores: rounded(float64(n)*float64(saved.CPUMillis)/1000, 1000),
		GiB:   rounded(float64(n)*float64(saved.MemoryBytes)/(1<<30), 1000),
	}
}

// mostPods is more than any Deployment has.
const mostPods = 1_000_000

// originalRequests are the requests of the original template: the recorded values if the
// scaler has taken it over, else those of the template. Without a request, the API server
// uses the limit.
func originalRequests(s *v1beta1.VerticalScaler, deployment *appsv1.Deployment, c workload.Container) quantity.Amounts {
	requests, limits := c.Requests, c.Limits
	if h := s.Status.OriginalResources; h != nil && h.UID == deployment.UID {
		for _, held := range h.Containers {
			if held.ContainerName != c.Name {
				continue
			}
			r, l := scaler.Amounts(held.Requests), scaler.Amounts(held.Limits)
			if held.Requests.CPU != nil {
				requests.CPUMillis, limits.CPUMillis = r.CPUMillis, l.CPUMillis
			}
			if held.Requests.Memory != nil {
				requests.MemoryBytes, limits.MemoryBytes = r.MemoryBytes, l.MemoryBytes
			}
		}
	}
	if requests.CPUMillis == 0 {
		requests.CPUMillis = limits.CPUMillis
	}
	if requests.MemoryBytes == 0 {
		requests.MemoryBytes = limits.MemoryBytes
	}
	return requests
}

// rounded rounds to a fraction. A negative value that rounds to nothing is 0, not -0.
func rounded(v, part float64) float64 { return math.Round(v*part)/part + 0 }

// decimal has two digits after the point.
func decimal(v float64) string { return strconv.FormatFloat(rounded(v, 100), 'f', 2, 64) }

// IsEmpty is true if there is nothing to show.
func (o Overview) IsEmpty() bool { return len(o.Scalers)+len(o.ScaledDeployments)+len(o.Policies) == 0 }

// NotReady is true if any of them is not Ready.
func (o Overview) NotReady() bool {
	return slices.ContainsFunc(o.Scalers, func(r Row) bool { return r.Ready != metav1.ConditionTrue }) ||
		slices.ContainsFunc(o.ScaledDeployments, func(r OwnedRow) bool { return r.Ready != metav1.ConditionTrue }) ||
		slices.ContainsFunc(o.Policies, func(r PolicyRow) bool { return r.Ready != metav1.ConditionTrue })
}

// Columns chooses what a table shows.
type Columns struct {
	// Namespace and Wide add columns; Bare leaves the header out.
	Namespace, Wide, Bare bool
	// Widths remembers the widths of columns, so that later tables align with earlier ones; nil to
	// forget them.
	Widths *Widths
}

// Widths are the widths of the columns of the tables, in characters.
type Widths struct{ ofScalers, ofOwned, ofPolicies []int }

func (w *Widths) scalers() *[]int {
	if w == nil {
		return &[]int{}
	}
	return &w.ofScalers
}

func (w *Widths) owned() *[]int {
	if w == nil {
		return &[]int{}
	}
	return &w.ofOwned
}

func (w *Widths) policies() *[]int {
	if w == nil {
		return &[]int{}
	}
	return &w.ofPolicies
}

// WriteTable writes the overview as a table. Ages are relative to now.
func (o Overview) WriteTable(w io.Writer, now time.Time, columns Columns) error {
	var b strings.Builder
	if len(o.Scalers) > 0 {
		lines := [][]string{}
		for _, r := range o.Scalers {
			lines = append(lines, r.cells(now, columns))
		}
		table(&b, columns.header("NAME DEPLOYMENT MODE CPU MEMORY PODS READY REASON", "CHANGED SAVED-CORES SAVED-GIB OWNER PROFILE ADVICE"), lines, columns.Widths.scalers())
	}
	if len(o.ScaledDeployments) > 0 {
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		lines := [][]string{}
		for _, r := range o.ScaledDeployments {
			lines = append(lines, r.cells(columns))
		}
		table(&b, columns.header("SCALEDDEPLOYMENT DEPLOYMENT AVAILABLE READY REASON SIZED", "ADVICE"), lines, columns.Widths.owned())
	}
	if len(o.Policies) > 0 {
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		lines := [][]string{}
		for _, r := range o.Policies {
			lines = append(lines, r.cells(columns))
		}
		table(&b, columns.header("POLICY MODE DEPLOYMENTS PROMOTED READY REASON", "ADVICE"), lines, columns.Widths.policies())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c Columns) header(names, wide string) []string {
	if c.Bare {
		return nil
	}
	all := strings.Fields(names)
	if c.Namespace {
		all = append([]string{"NAMESPACE"}, all...)
	}
	if c.Wide {
		all = append(all, strings.Fields(wide)...)
	}
	return all
}

func (r Row) cells(now time.Time, columns Columns) []string {
	changed, cores, gib := "", "", ""
	if r.Changed != nil {
		changed = age(now, *r.Changed)
	}
	if r.Saved != nil {
		cores, gib = decimal(r.Saved.Cores), decimal(r.Saved.GiB)
	}
	cells := []string{r.Name, r.Deployment, r.Mode, r.CPU, r.Memory, r.Pods, string(r.Ready), r.Reason}
	if columns.Namespace {
		cells = append([]string{r.Namespace}, cells...)
	}
	if columns.Wide {
		cells = append(cells, changed, cores, gib, r.ownedBy(), r.Profile, r.Advice)
	}
	return cells
}

// ownedBy is the ScaledDeployment that the scaler belongs to, or the policy that has created it.
func (r Row) ownedBy() string { return cmp.Or(r.Owner, r.Policy) }

func (r PolicyRow) cells(columns Columns) []string {
	cells := []string{r.ID(), r.Mode, r.Deployments, r.Promoted, string(r.Ready), r.Reason}
	if columns.Namespace {
		cells = append([]string{r.Namespace}, cells...)
	}
	if columns.Wide {
		cells = append(cells, r.Advice)
	}
	return cells
}

func (r OwnedRow) cells(columns Columns) []string {
	cells := []string{r.Name, r.Deployment, r.Available, string(r.Ready), r.Reason, r.Sized}
	if columns.Namespace {
		cells = append([]string{r.Namespace}, cells...)
	}
	if columns.Wide {
		cells = append(cells, r.Advice)
	}
	return cells
}

// between separates columns.
const between = "   "

// table aligns columns, without trailing spaces. An empty cell is a dash. Columns are at least as wide
// as the widths, which it updates.
func table(b *strings.Builder, header []string, lines [][]string, widths *[]int) {
	if header != nil {
		lines = append([][]string{header}, lines...)
	}
	for _, cells := range lines {
		for i, cell := range cells {
			if cells[i] = printable(cell); cell == "" {
				cells[i] = "-"
			}
			if i == len(*widths) {
				*widths = append(*widths, 0)
			}
			(*widths)[i] = max((*widths)[i], utf8.RuneCountInString(cells[i]))
		}
	}
	for _, cells := range lines {
		var line strings.Builder
		for i, cell := range cells {
			fmt.Fprintf(&line, "%-*s%s", (*widths)[i], cell, between)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// Rounded is a number of cores or GiB, to a thousandth.
func Rounded(v float64) float64 { return rounded(v, 1000) }
