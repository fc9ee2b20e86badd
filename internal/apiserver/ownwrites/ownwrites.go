// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownwrites remembers the last write of a controller until its cache has caught up.
// A reconcile with an older cache would compare with a status that no longer exists, and might
// skip a write.
package ownwrites

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StaleFor is the longest lag of a cache. After that, the API server must have lost our write, for
// example because it was restored from a backup.
const StaleFor = time.Minute

// Memory holds the version of each object after our last write to it. The zero value is ready
// for concurrent use.
type Memory struct {
	mu   sync.Mutex
	last map[types.NamespacedName]version
}

type version struct {
	resource string
	at       time.Time
}

// Remember stores the version after a write.
func (m *Memory) Remember(written client.Object, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[types.NamespacedName]version{}
	}
	m.last[client.ObjectKeyFromObject(written)] = version{written.GetResourceVersion(), now}
}

// Forget drops a deleted object.
func (m *Memory) Forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, key)
}

// IsNewerThan reports whether our last write is newer than the version that was read. A version
// that cannot be compared counts as current.
func (m *Memory) IsNewerThan(read client.Object, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := client.ObjectKeyFromObject(read)
	written, ok := m.last[key]
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(read.GetResourceVersion(), written.resource)
	if err == nil && order < 0 && now.Sub(written.at) < StaleFor {
		return true
	}
	delete(m.last, key)
	return false
}

// Clone returns an independent copy.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{last: maps.Clone(m.last)}
}
