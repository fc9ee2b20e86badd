// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"maps"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// MaxContainers is the largest number of containers in Histories, as in a recommendation or a
// checkpoint.
const MaxContainers = 64

// Histories holds the histories of one Deployment's containers by name. Create it with
// Histories{}.
type Histories map[string]*Container

// Container returns the history of a container and creates it if necessary. It returns nil for more
// than MaxContainers.
func (b Histories) Container(name string) *Container {
	if c := b[name]; c != nil {
		return c
	}
	if len(b) >= MaxContainers {
		return nil
	}
	b[name] = &Container{}
	return b[name]
}

// Add adds a sample, or raises by it (Container.Raise), and reports whether there was room for it.
func (b Histories) Add(s usage.Sample, p Params) bool {
	c := b.Container(s.Container)
	if c == nil {
		return false
	}
	if s.RaisesOnly {
		c.Raise(s, p)
	} else {
		c.Add(s, p)
	}
	return true
}

// ForgetClimbs lets the memory of all containers be raised again.
func (b Histories) ForgetClimbs() {
	for _, c := range b {
		c.ForgetClimb()
	}
}

// Retain deletes the histories of all containers except the named ones.
func (b Histories) Retain(names []string) {
	maps.DeleteFunc(b, func(name string, _ *Container) bool { return !slices.Contains(names, name) })
}

// Clone returns a deep copy.
func (b Histories) Clone() Histories {
	clone := make(Histories, len(b))
	for name, c := range b {
		clone[name] = c.Clone()
	}
	return clone
}
