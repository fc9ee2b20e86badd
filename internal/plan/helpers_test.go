// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package plan_test

import "github.com/verticalscaler/verticalscaler-operator/internal/plan"

// as is the plan's step if it is of that kind; nil if it is not.
func as[S plan.Step](p plan.Plan) *S {
	if step, ok := p.Step.(S); ok {
		return &step
	}
	return nil
}

// is says whether the plan's step is of that kind.
func is[S plan.Step](p plan.Plan) bool { return as[S](p) != nil }
