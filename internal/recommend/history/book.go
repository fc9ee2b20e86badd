// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"maps"
	"slices"

	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

// MaxContainers is the most containers that a book holds: as many as a
// recommendation or a checkpoint.
const MaxContainers = 64

// Book holds the histories of one Deployment's containers by their name. Make one
// with Book{}.
type Book map[string]*Container

// Container finds the history of a container, or begins one. It is nil where that
// would be one container too many.
func (b Book) Container(name string) *Container {
	if c := b[name]; c != nil {
		return c
	}
	if len(b) >= MaxContainers {
		return nil
	}
	b[name] = &Container{}
	return b[name]
}

// Add takes a sample into account, and tells whether there was room for it.
func (b Book) Add(s usage.Sample, p Params) bool {
	c := b.Container(s.Container)
	if c == nil {
		return false
	}
	c.Add(s, p)
	return true
}

// Retain forgets all containers but the named ones.
func (b Book) Retain(names []string) {
	maps.DeleteFunc(b, func(name string, _ *Container) bool { return !slices.Contains(names, name) })
}

// Clone makes a copy that shares nothing.
func (b Book) Clone() Book {
	clone := make(Book, len(b))
	for name, c := range b {
		clone[name] = c.Clone()
	}
	return clone
}
