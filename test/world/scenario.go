// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

// Scenario is the course of a run without faults. Its users reach the API server directly, so
// faults between the operator and the server do not reach them.
type Scenario struct {
	// Name is the first part of the names of its runs.
	Name string
	// Config changes the operator's configuration, if it is set.
	Config func(*operatorconfig.Operator)
	// Setup creates the workloads. It runs before the operator starts, or while it has nothing to do.
	Setup func(w *World)
	// Act is an action of users, or of the rest of the world. It may await what the operator does to a first action, before the
	// second.
	Act func(w *World)
	// Done describes what lacks for the end of the scenario; "" if nothing does.
	Done func(w *World) string
}

// web is the Deployment of most scenarios.
const web = "web"

// Scenarios are all scenarios, each with another name.
func Scenarios() []Scenario {
	return append(sizings(), sibling(), retarget(), conflict(), owned())
}

// Compress changes the configuration so that two rounds of usage are full evidence. interval is the time between them.
func Compress(c *operatorconfig.Operator, interval time.Duration) {
	c.Collection.Interval.Duration = interval
	r := &c.Recommendation
	// The second round of usage is the first with CPU: both resources are decided at once.
	r.MinEvidence.Duration = interval / 2
	r.FullEvidence.Duration, r.ConfidenceUnit.Duration = interval, interval
	r.CPUHalfLife.Duration, r.RecentHalfLife.Duration = interval, interval
	r.MemoryWindow.Duration, r.OOMHalfLife.Duration = 4*interval, time.Hour
}

// Quick compresses the history: an hour of usage is enough evidence to lower a request, and its peaks are forgotten.
func Quick(c *operatorconfig.Operator) {
	r := &c.Recommendation
	r.CPUHalfLife.Duration = 4 * time.Minute
	r.RecentHalfLife.Duration = 2 * time.Minute
	r.MemoryWindow.Duration = 32 * time.Minute
	r.FullEvidence.Duration = time.Hour
	r.ConfidenceUnit.Duration = time.Minute
}

// IsDone describes what lacks for the end of the scenario, and for the API server to be told of it.
func (s Scenario) IsDone(w *World) string { return firstOf(s.Done(w), w.isPublished()) }

// Configure is the configuration of the operator of a world for the scenario.
func (s Scenario) Configure(c *operatorconfig.Operator) {
	Compress(c, time.Minute)
	if s.Config != nil {
		s.Config(c)
	}
}

// Play plays a scenario to its end.
func (w *World) Play(s Scenario) {
	w.Helper()
	w.SetUp(s)
	s.Act(w)
	w.Await("the end of "+s.Name, func() string { return s.IsDone(w) })
}

// SetUp creates what a scenario begins with. All its pods use much less than each size.
func (w *World) SetUp(s Scenario) {
	w.Helper()
	for _, app := range []string{web, "api", neighbour} {
		w.Uses(app, "zeta", 40, 50)
		w.Uses(app, "alpha", 20, 25)
		w.Uses(app, "mesh", 13, 16)
	}
	w.Usage.silence(func(round int) bool { return round == 1 || round == 4 })
	w.Kubelet.restarted = true
	s.Setup(w)
}
