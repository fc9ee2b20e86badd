// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// Change is one decision.
type Change struct {
	Cause `json:",inline"`
	Time  metav1.Time `json:"time"`
	// Change lists the changes, such as "app cpu 500m->310m, memory 64Mi->80Mi; log memory 64Mi->80Mi".
	Change string `json:"change"`
}

// from is the amount of a request before the change, in millicores or bytes; 0 if the change is of other requests.
func (c Change) from(container, resource string) int64 {
	for change := range scaler.ChangesIn(": " + c.Change) {
		if change.Container == container && change.Resource == resource {
			return amountIn(resource, change.From)
		}
	}
	return 0
}

// ChangesOf reads the history of a scaler, newest first. A status keeps 10 entries.
func ChangesOf(history []v1beta1.HistoryEntry) []Change {
	changes := make([]Change, 0, len(history))
	for _, h := range history {
		code, change, ok := strings.Cut(h.Message, ": ")
		if !ok {
			code, change = "", h.Message
		}
		changes = append(changes, Change{Cause: CauseOf(code), Time: h.Time, Change: change})
	}
	return changes
}
