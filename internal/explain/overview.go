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

// State is how an object is doing.
type State struct {
	// Ready is the status of the condition. Reason is that of Ready, or of the condition that says more
	// if the object operates normally.
	Ready   metav1.ConditionStatus `json:"ready"`
	Reason  string                 `json:"reason"`
	Message string                 `json:"message,omitempty"`
	// Ends and Advice say what resolves the state.
	Ends   End    `json:"ends"`
	Advice string `json:"advice"`
}

// stateOf is the state with the condition Ready, in the words of the condition that says most.
func stateOf(ready, told *metav1.Condition, inWords func(reason string) Reason) State {
	if ready == nil || told == nil {
		return notObserved.state()
	}
	known := inWords(told.Reason)
	return State{ready.Status, told.Reason, told.Message, known.Ends, known.Advice}
}

// state is that of an object whose status cannot be relied on.
func (r Reason) state() State {
	return State{metav1.ConditionUnknown, r.Reason, r.Means, r.Ends, r.Advice}
}

// Doubt returns the state of an object of a namespace as it must be read while its operator is silent: what was Ready may
// no longer be. What was not Ready keeps its reason.
func (s State) Doubt(operators Operators, namespace string, now time.Time) State {
	if operator, ok := operators.For(namespace); ok && operator.IsSilent(now) && s.Ready == metav1.ConditionTrue {
		s = operatorSilent.state()
		s.Message = fmt.Sprintf("The operator in namespace %s has not reported since %s", operator.Namespace, operator.LastHeard.UTC().Format(time.RFC3339))
	}
	return s
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

// Doubt adds the operators, and doubts what silent ones have reported. It returns these.
func (o *Overview) Doubt(operators Operators, now time.Time) (silent Operators) {
	o.Operators = operators
	doubt := func(state *State, namespace string) {
		*state = state.Doubt(operators, namespace, now)
		if operator, ok := operators.For(namespace); ok && operator.IsSilent(now) && !slices.Contains(silent, operator) {
			silent = append(silent, operator)
		}
	}
	for i := range o.Scalers {
		doubt(&o.Scalers[i].State, o.Scalers[i].Namespace)
	}
	for i := range o.ScaledDeployments {
		doubt(&o.ScaledDeployments[i].State, o.ScaledDeployments[i].Namespace)
	}
	for i := range o.Policies {
		doubt(&o.Policies[i].State, o.Policies[i].Namespace)
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
	// State has the reason of Ready, or of Applied if the scaler operates normally.
	State `json:",inline"`
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
	Available string `json:"available"`
	State     `json:",inline"`
	// Sized repeats the reason of its scaler; empty without one.
	Sized string `json:"sized,omitempty"`
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
	out.State = stateOf(ready, scaler.InShort(s.Status.Conditions), reasonFor)
	known := reasonFor(out.Reason)
	switch {
	case waitsForEvidence(e):
		out.Advice = adviceFor(known, s, containersIn(e))
	case origin != nil && ready != nil:
		known = forOrigin(known, s)
		out.Ends, out.Advice = known.Ends, known.Advice
	}
	if s.Status.ObservedGeneration < s.Generation && ready != nil {
		out.State = outdated.state()
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
	out.State = stateOf(ready, ready, reasonFor)
	if d.Status.ObservedGeneration < d.Generation && ready != nil {
		out.State = outdated.state()
	}
	return out
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
	for _, o := range scaler.Originals(s.Status.OriginalResources, deployment.UID) {
		if o.Container == c.Name && o.CPU {
			requests.CPUMillis, limits.CPUMillis = o.Requests.CPUMillis, o.Limits.CPUMillis
		}
		if o.Container == c.Name && o.Memory {
			requests.MemoryBytes, limits.MemoryBytes = o.Requests.MemoryBytes, o.Limits.MemoryBytes
		}
	}
	return quantity.Amounts{CPUMillis: cmp.Or(requests.CPUMillis, limits.CPUMillis), MemoryBytes: cmp.Or(requests.MemoryBytes, limits.MemoryBytes)}
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
	Widths Widths
}

// Widths are the widths of the columns of tables, in characters, by the first column.
type Widths map[string][]int

// WriteTable writes the overview as a table. Ages are relative to now.
func (o Overview) WriteTable(w io.Writer, now time.Time, columns Columns) error {
	var b strings.Builder
	section(&b, columns, "NAME DEPLOYMENT MODE CPU MEMORY PODS READY REASON", "CHANGED SAVED-CORES SAVED-GIB OWNER PROFILE ADVICE", o.Scalers,
		func(r Row) (namespace string, cells, wide []string) {
			changed, cores, gib := "", "", ""
			if r.Changed != nil {
				changed = age(now, *r.Changed)
			}
			if r.Saved != nil {
				cores, gib = decimal(r.Saved.Cores), decimal(r.Saved.GiB)
			}
			return r.Namespace, []string{r.Name, r.Deployment, r.Mode, r.CPU, r.Memory, r.Pods, string(r.Ready), r.Reason},
				[]string{changed, cores, gib, r.ownedBy(), r.Profile, r.Advice}
		})
	section(&b, columns, "SCALEDDEPLOYMENT DEPLOYMENT AVAILABLE READY REASON SIZED", "ADVICE", o.ScaledDeployments,
		func(r OwnedRow) (namespace string, cells, wide []string) {
			return r.Namespace, []string{r.Name, r.Deployment, r.Available, string(r.Ready), r.Reason, r.Sized}, []string{r.Advice}
		})
	section(&b, columns, "POLICY MODE DEPLOYMENTS PROMOTED READY REASON", "ADVICE", o.Policies,
		func(r PolicyRow) (namespace string, cells, wide []string) {
			return r.Namespace, []string{r.ID(), r.Mode, r.Deployments, r.Promoted, string(r.Ready), r.Reason}, []string{r.Advice}
		})
	_, err := io.WriteString(w, b.String())
	return err
}

// section writes the table of rows of one kind, after an empty line if it is not the first.
func section[R any](b *strings.Builder, columns Columns, header, wideHeader string, rows []R, cellsOf func(R) (namespace string, cells, wide []string)) {
	if len(rows) == 0 {
		return
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	line := func(namespace string, cells, wide []string) []string {
		if columns.Namespace {
			cells = append([]string{namespace}, cells...)
		}
		if columns.Wide {
			cells = append(cells, wide...)
		}
		return cells
	}
	var lines [][]string
	if !columns.Bare {
		lines = append(lines, line("NAMESPACE", strings.Fields(header), strings.Fields(wideHeader)))
	}
	for _, r := range rows {
		lines = append(lines, line(cellsOf(r)))
	}
	widths := table(b, lines, columns.Widths[header])
	if columns.Widths != nil {
		columns.Widths[header] = widths
	}
}

// ownedBy is the ScaledDeployment that the scaler belongs to, or the policy that has created it.
func (r Row) ownedBy() string { return cmp.Or(r.Owner, r.Policy) }

// table aligns columns, without trailing spaces. An empty cell is a dash. Columns are at least as wide
// as the widths, and it returns how wide they are.
func table(b *strings.Builder, lines [][]string, widths []int) []int {
	for _, cells := range lines {
		for i, cell := range cells {
			if cells[i] = Printable(cell); cell == "" {
				cells[i] = "-"
			}
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cells[i]))
		}
	}
	for _, cells := range lines {
		var line strings.Builder
		for i, cell := range cells {
			fmt.Fprintf(&line, "%-*s   ", widths[i], cell)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return widths
}

// Rounded is a number of cores or GiB, to a thousandth.
func Rounded(v float64) float64 { return rounded(v, 1000) }
