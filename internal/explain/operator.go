// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// Operator is an operator of the cluster, as its leases show it.
type Operator struct {
	Namespace string `json:"namespace"`
	// LastHeard is the last renewal of the lease by the leader, by the clock of its node.
	LastHeard metav1.Time `json:"lastHeard"`
	// Lease is the time for which it may be silent: the duration of the lease.
	Lease time.Duration `json:"-"`
	// HasStopped is true if the leader has released the lease: it was stopped, and did not crash.
	HasStopped bool `json:"hasStopped,omitempty"`
	// Version is the version of the leader, if known.
	Version string `json:"version,omitempty"`
	// Fallback is the default fallback of scalers, if known.
	Fallback v1beta1.Fallback `json:"fallback,omitempty"`
	// UsageMissing is true if usage of nearly all pods is missing.
	UsageMissing bool `json:"usageMissing,omitempty"`
	// Freeze is its switch that stops all changes; nil if that is off or unknown.
	Freeze *Freeze `json:"freeze,omitempty"`
}

// Freeze is the switch that stops changes.
type Freeze struct {
	// Namespaces are the frozen namespaces; none means all.
	Namespaces []string `json:"namespaces,omitempty"`
	Reason     string   `json:"reason,omitempty"`
	// By is the user or the field manager that has turned it on, if known, and Since is when.
	By    string       `json:"by,omitempty"`
	Since *metav1.Time `json:"since,omitempty"`
}

// Report is a sentence about the freeze, with the command that ends it.
func (f Freeze) Report(now time.Time) string {
	return f.Text(now) + ". To end the freeze: kubectl vscaler unfreeze"
}

// Text has the namespaces, the reason, the user and the age of the freeze.
func (f Freeze) Text(now time.Time) string {
	out := "Changes are frozen"
	if len(f.Namespaces) > 0 {
		out += " in " + strings.Join(f.Namespaces, ", ")
	}
	if f.Reason != "" {
		out += ": " + f.Reason
	}
	if f.Since != nil {
		out += fmt.Sprintf(" (by %s, %s ago)", cmp.Or(f.By, "an unknown user"), Age(now, f.Since.Time))
	}
	return out
}

// freezeIn reads the freeze from the condition Ready of a scaler, for users who may not read the switch; nil for none.
func freezeIn(ready *metav1.Condition, namespace string) *Freeze {
	if ready == nil || ready.Reason != v1beta1.ReasonFrozen {
		return nil
	}
	_, reason, ok := strings.Cut(ready.Message, " freezes changes")
	if !ok { // the switch is not known yet
		return nil
	}
	return &Freeze{Namespaces: []string{namespace}, Reason: strings.TrimPrefix(reason, ": ")}
}

// Freeze is the switch that stops the changes in a namespace; nil while it is off, and if it is not known.
func (o Operators) Freeze(namespace string) *Freeze {
	operator, _ := o.For(namespace)
	if f := operator.Freeze; f != nil && (namespace == "" || len(f.Namespaces) == 0 || slices.Contains(f.Namespaces, namespace)) {
		return f
	}
	return nil
}

// Operators are the operators of the cluster, one per namespace.
type Operators []Operator

// OperatorsOf reads the leases of operators, and ignores all others. Without a lease, nothing is known: an operator without leader
// election holds none.
func OperatorsOf(leases []coordinationv1.Lease) (out Operators) {
	for _, l := range leases {
		if l.Name != v1beta1.LeaseName || l.Spec.RenewTime == nil {
			continue
		}
		out = append(out, Operator{
			Namespace: l.Namespace, LastHeard: metav1.NewTime(l.Spec.RenewTime.Time), HasStopped: l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "",
			Fallback: v1beta1.Fallback(l.Labels[v1beta1.FallbackLabel]),
			Lease:    time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second,
			Version:  l.Labels[v1beta1.VersionLabel], UsageMissing: l.Labels[v1beta1.UsageLabel] == v1beta1.UsageMissing,
		})
	}
	slices.SortFunc(out, func(a, b Operator) int { return b.LastHeard.Compare(a.LastHeard.Time) })
	return out
}

// For is the operator that serves a namespace: the one in the namespace itself, else the one that
// was heard of last. It is false if none is known.
func (o Operators) For(namespace string) (Operator, bool) {
	if i := slices.IndexFunc(o, func(o Operator) bool { return o.Namespace == namespace }); i >= 0 {
		return o[i], true
	}
	if len(o) == 0 {
		return Operator{}, false
	}
	return o[0], true
}

// FallbackOf is the fallback of a scaler: the operator's if it names none.
func (o Operators) FallbackOf(s *v1beta1.VerticalScaler) v1beta1.Fallback {
	if operator, _ := o.For(s.Namespace); s.Spec.UpdatePolicy.Fallback == "" && operator.Fallback != "" && scaler.SizesNewPods(&s.Spec) {
		return operator.Fallback
	}
	return scaler.Fallback(&s.Spec)
}

// IsSilent reports whether the operator was stopped, or its lease has expired.
func (o Operator) IsSilent(now time.Time) bool { return o.HasStopped || o.isOverdue(now) }

// isOverdue reports whether the lease has expired.
func (o Operator) isOverdue(now time.Time) bool { return now.Sub(o.LastHeard.Time) > o.Lease }

// This finding reports that no operator is in charge of a namespace. It is false if one is, or if that is not known. Its
// message does not change with time.
func (o Operators) nobody(namespace string, now time.Time) (silent Finding, ok bool) {
	operator, isKnown := o.For(namespace)
	if !isKnown || !operator.IsSilent(now) {
		return silent, false
	}
	how := "has not reported since"
	if operator.HasStopped {
		how = "was stopped at"
	}
	message := fmt.Sprintf("The operator in namespace %s %s %s", operator.Namespace, how, operator.LastHeard.UTC().Format(time.RFC3339))
	return Finding{Reason: operatorSilent, Message: message, Since: &operator.LastHeard}, true
}

// areBlind reports whether the operator of a namespace has no usage of nearly all pods. The status of a single object does not
// report this.
func (o Operators) areBlind(namespace string) bool {
	operator, ok := o.For(namespace)
	return ok && operator.UsageMissing
}

// Report is a sentence about when the operator was last heard of.
func (o Operator) Report(now time.Time) string {
	if o.HasStopped {
		return fmt.Sprintf("The operator in namespace %s was stopped %s ago", o.Namespace, Age(now, o.LastHeard.Time))
	}
	return fmt.Sprintf("The operator in namespace %s was last heard of %s ago", o.Namespace, Age(now, o.LastHeard.Time))
}
