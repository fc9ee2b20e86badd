// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
)

// stride is 1, or with -short the number of cases of which a long test runs one.
func stride() int {
	if testing.Short() {
		return 19
	}
	return 1
}

// as is the plan's step if it is of that kind; nil if it is not.
func as[S plan.Step](p plan.Plan) *S {
	if step, ok := p.Step.(S); ok {
		return &step
	}
	return nil
}

// is reports whether the plan's step is of that kind.
func is[S plan.Step](p plan.Plan) bool { return as[S](p) != nil }
