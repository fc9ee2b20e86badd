// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

// Scenario is what happens in a run without faults. Its functions send requests directly to
// the API server, so faults between the operator and the server do not reach them.
type Scenario struct {
	// Name is the first part of the names of its runs.
	Name string
	// Config changes the operator's configuration, if it is set.
	Config func(*operatorconfig.Operator)
	// Setup creates the workloads and waits until they run. It runs before the operator
	// starts, or while it has nothing to do.
	Setup func(w *World) error
	// Act is what the user, or the rest of the world, does. It may wait for what the operator
	// does to a first action, before the second.
	Act func(w *World) error
	// Done describes what lacks for the end of the scenario; "" if nothing does.
	Done func(w *World) string
}

// web is the Deployment of most scenarios.
const web = "web"

// Scenarios are all scenarios, each with another name.
func Scenarios() []Scenario {
	return []Scenario{
		up(), down(), silent(), deferred(), failing(), replaced(), oom(), fallback(),
		rollout(), sibling(), recreate(), initial(),
		retarget(), restore(), conflict(), owned(),
	}
}
