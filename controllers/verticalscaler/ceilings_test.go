// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/quantity"
)

func TestTheOperatorsCeilingsBoundADecision(t *testing.T) {
	p := newPlant(t, 400) // of 100m
	p.Ceilings = plan.Ceilings{Container: quantity.Amounts{CPUMillis: 150}}
	vs := p.mustReconcile()
	if got := vs.Status.Decision.Containers[0].Requests.CPU; got.MilliValue() != 150 {
		t.Errorf("decided %s, and the ceiling is 150m", got)
	}
}
