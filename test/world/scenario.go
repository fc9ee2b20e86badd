// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	operatorconfig "github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

// Scenario is what happens in a run without faults. It can play in a World, and in a Live one. Its users reach the API server
// directly, so faults between the operator and the server do not reach them.
type Scenario struct {
	// Name is the first part of the names of its runs.
	Name string
	// Config changes the operator's configuration, if it is set.
	Config func(*operatorconfig.Operator)
	// Setup creates the workloads. It runs before the operator starts, or while it has nothing to do.
	Setup func(u *User)
	// Act is what users, or the rest of the world, do. It may await what the operator does to a first action, before the second.
	Act func(u *User)
	// Done describes what lacks for the end of the scenario; "" if nothing does.
	Done func(u *User) string
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

// IsDone describes what lacks for the end of the scenario, and for the API server to be told of it.
func (s Scenario) IsDone(u *User) string { return firstOf(s.Done(u), u.isTold()) }

// Options are the options of a world for the scenario.
func (s Scenario) Options() []Option {
	return []Option{WithConfig(func(c *operatorconfig.Operator) {
		Compress(c, time.Minute)
		if s.Config != nil {
			s.Config(c)
		}
	})}
}

// Play plays a scenario to its end.
func (w *World) Play(s Scenario) {
	w.Helper()
	w.prepare()
	s.Setup(w.User)
	s.Act(w.User)
	w.Await("the end of "+s.Name, func() string { return s.IsDone(w.User) })
}

// prepare lets all pods of a scenario use much less than each size.
func (w *World) prepare() {
	for _, app := range []string{web, "api", neighbour} {
		w.Uses(app, "zeta", 40, 50)
		w.Uses(app, "alpha", 20, 25)
		w.Uses(app, "mesh", 13, 16)
	}
	w.Silence(Gaps)
	w.Kubelet.restarted = true
}
