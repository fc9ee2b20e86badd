// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Limits are the limits of a Budget.
type Limits struct {
	// Changes is the maximum in any window, PerNamespace the maximum in one namespace. Both
	// are at least 1.
	Changes, PerNamespace int
	// PodPercent raises both maximums in a large fleet: to this percentage of the pods of all
	// scalers, or of those in the namespace. From 0, which raises nothing, to 100.
	PodPercent int
	// Window is the length of the window.
	Window time.Duration
	// Wakes is how many scalers are requeued at the same time: twice the workers of the queue keep them
	// busy. 0 stands for 16.
	Wakes int
}

const (
	// defaultWakes is twice the number of workers.
	defaultWakes = 16
	// reserveDivisor is the part of the changes that emergencies may make in addition.
	reserveDivisor = 5
)

func (l Limits) wakes() int {
	if l.Wakes > 0 {
		return l.Wakes
	}
	return defaultWakes
}

// fleet counts the pods that scalers may change.
type fleet struct {
	pods       map[types.NamespacedName]int // by scaler
	namespaces map[string]int
	all        int
}

func newFleet() fleet {
	return fleet{pods: map[types.NamespacedName]int{}, namespaces: map[string]int{}}
}

// set notes the number of pods of a scaler. It reports whether it is new.
func (f *fleet) set(scaler types.NamespacedName, pods int) bool {
	more := pods - f.pods[scaler]
	if more == 0 {
		return false
	}
	f.all += more
	f.namespaces[scaler.Namespace] += more
	f.pods[scaler] = pods
	if pods == 0 {
		delete(f.pods, scaler)
	}
	if f.namespaces[scaler.Namespace] == 0 {
		delete(f.namespaces, scaler.Namespace)
	}
	return true
}

// SetPods notes how many pods the scaler may change. 0 forgets the scaler.
func (b *Budget) SetPods(scaler types.NamespacedName, pods int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fleet.set(scaler, max(0, pods)) {
		b.adjust()
		b.adjustNamespace(scaler.Namespace)
		b.notify()
	}
}

// Limit is the current maximum number of changes in any window, emergencies apart.
func (b *Budget) Limit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changes
}

// adjust computes the limit of all namespaces together:
//
//	max(1, Changes, PodPercent of all pods)
func (b *Budget) adjust() {
	b.changes = max(1, b.limits.Changes, b.fleet.all*b.limits.PodPercent/100)
	b.adjustShare()
}

// adjustNamespace computes the limit of a namespace.
func (b *Budget) adjustNamespace(name string) {
	if in := b.line.namespaces[name]; in != nil {
		in.limit = b.limitOf(name)
		b.refile(in)
	}
}

// limitOf is the limit of a namespace:
//
//	max(PerNamespace, PodPercent of its pods)
func (b *Budget) limitOf(namespace string) int {
	return max(b.limits.PerNamespace, b.fleet.namespaces[namespace]*b.limits.PodPercent/100)
}

// reserveHasRoom reports whether a namespace that uses so many slots of the reserve may have
// another one, if all namespaces together use so many.
//
// A namespace may use as many as it leaves free. One alone uses at most half of the reserve, two
// at most a third each, and there are free slots for one more namespace until there are more
// namespaces than slots. Switches share their memory between ports by this rule (Choudhury and
// Hahne, Dynamic Queue Length Thresholds for Shared-Memory Packet Switches, 1998, with alpha 1).
func (b *Budget) reserveHasRoom(all, own int) bool {
	size := (b.changes + reserveDivisor - 1) / reserveDivisor
	return own < size-all
}
