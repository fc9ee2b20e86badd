// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// OwnedExplanation is all that is known about a ScaledDeployment that has no scaler.
type OwnedExplanation struct {
	OwnedRow `json:",inline"`
	// Purpose describes the object's purpose in a sentence.
	Purpose string `json:"purpose"`
	// Findings are the reasons for its state, with meaning and advice.
	Findings []Finding `json:"findings"`
}

// OfOwned explains a ScaledDeployment.
func OfOwned(d *v1beta1.ScaledDeployment, operators Operators, now time.Time) OwnedExplanation {
	out := OwnedExplanation{OwnedRow: OwnedRowOf(d, operators, now), Findings: ownedFindings(d, operators, now)}
	out.Purpose = fmt.Sprintf("Owns Deployment %s", out.Deployment)
	if d.Spec.Scaling == nil {
		out.Purpose += ", which it does not size: spec.scaling is not set."
	} else {
		out.Purpose += " and a VerticalScaler, which does not exist yet."
	}
	return out
}

// ownedFindings are the doubts about the status, the reason of Ready, and the reason why the Deployment is not sized.
func ownedFindings(d *v1beta1.ScaledDeployment, operators Operators, now time.Time) []Finding {
	ready := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionReady)
	if ready == nil {
		return append(doubts(d, d.Generation, operators, now), Finding{Reason: notObserved})
	}
	out := append(doubts(d, d.Status.ObservedGeneration, operators, now), findingOf(*ready, reasonFor))
	if c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionSized); c != nil && c.Status != metav1.ConditionTrue && c.Reason != ready.Reason {
		out = append(out, findingOf(*c, reasonFor))
	}
	return onlyActions(out)
}

// findingOf is a condition in words. The transition time belongs to its status, which may be older than the reason.
func findingOf(c metav1.Condition, inWords func(reason string) Reason) Finding {
	return Finding{Reason: inWords(c.Reason), Condition: c.Type, Message: c.Message}
}

// Text is the explanation as text. Ages are relative to now.
func (x OwnedExplanation) Text(now time.Time) string {
	b, line := lines(x.Headline(now))
	line("ScaledDeployment %s/%s", x.Namespace, x.Name)
	line("  %s", x.Purpose)
	line("")
	line("Ready: %s; %s pods are available%s", inWords(x.Ready), strings.Replace(x.Available, "/", " of ", 1), x.whenReported())
	for _, f := range x.Findings {
		f.write(line, now)
	}
	return b.String()
}
