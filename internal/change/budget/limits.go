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
	// Up to this number of scalers are requeued at once: twice the workers of the queue keep them busy. 0 means 16.
	Wakes int
}

const (
	// defaultWakes is twice the number of workers.
	defaultWakes = 16
	// reserveDivisor is the part of the changes that emergencies may make in addition.
	reserveDivisor = 5
)

// SetPods sets the number of pods that the scaler may change. 0 forgets the scaler.
func (b *Budget) SetPods(scaler types.NamespacedName, pods int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	pods = max(0, pods)
	more := pods - b.pods[scaler]
	if more == 0 {
		return
	}
	b.pods[scaler] = pods
	b.podsIn[""] += more
	b.podsIn[scaler.Namespace] += more
	if pods == 0 {
		delete(b.pods, scaler)
	}
	if b.podsIn[scaler.Namespace] == 0 {
		delete(b.podsIn, scaler.Namespace)
	}
	b.notify()
}

// Limit is the current maximum number of changes in any window, emergencies apart.
func (b *Budget) Limit() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit()
}

func (b *Budget) limit() int {
	return max(1, b.limits.Changes, b.podsIn[""]*b.limits.PodPercent/100)
}

func (b *Budget) limitOf(namespace string) int {
	return max(b.limits.PerNamespace, b.podsIn[namespace]*b.limits.PodPercent/100)
}

// reserveHasRoom reports whether a namespace may have another slot of the reserve. It may use at most
// as many as it leaves free. One alone uses at most half of the reserve, two at most a third each,
// and there are free slots for another namespace until there are more namespaces than slots.
func (b *Budget) reserveHasRoom(in *namespace) bool {
	size := (b.limit() + reserveDivisor - 1) / reserveDivisor
	return in.used[reserve] < size-b.used[reserve]
}
