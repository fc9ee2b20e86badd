// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ownwrites remembers what a controller has written last, until its cache has
// caught up with it. A pass over our own past would compare with a status that is no
// longer there, and might find that nothing is to be written.
package ownwrites

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StaleFor is how long a cache is believed to be merely late. After that the API
// server must have lost our write, as one does that was restored from a backup.
const StaleFor = time.Minute

// Memory holds the version of each object of a kind that our last write led to. Its zero
// value is ready for use, by several goroutines at once; a nil one remembers nothing.
type Memory struct {
	mu   sync.Mutex
	last map[types.NamespacedName]version
}

type version struct {
	resource string
	at       time.Time
}

// Remember notes the version that a write has led to.
func (m *Memory) Remember(written client.Object, now time.Time) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last == nil {
		m.last = map[types.NamespacedName]version{}
	}
	m.last[client.ObjectKeyFromObject(written)] = version{written.GetResourceVersion(), now}
}

// Forget drops what is known of an object that is gone.
func (m *Memory) Forget(key types.NamespacedName) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.last, key)
}

// IsNewerThan says whether our last write came after the version at hand. Versions that
// cannot be compared are taken for fresh.
func (m *Memory) IsNewerThan(read client.Object, now time.Time) bool {
	if m == nil {
		return false
	}
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

// Clone makes a copy that shares nothing.
func (m *Memory) Clone() *Memory {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{last: maps.Clone(m.last)}
}
