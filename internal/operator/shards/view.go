// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shards lets several replicas of the operator share the work by namespace.
//
// Each replica holds one of a fixed number of leases, its slot. The slots whose leases are held are the
// view, and each namespace belongs to one slot of it. A replica works on the namespaces of its slot until
// the view changes: it then stops, tells the others by a label of its lease, and starts again.
//
// No two replicas work on a namespace at once:
//
//   - A replica writes only while its lease was renewed less than renewDeadline ago. Others take its
//     namespaces leaseDuration after they have seen its last renewal, at the earliest. If its own renewals
//     lie further apart than renewDeadline, it ends.
//   - A replica that has just got its slot works only after all others have told that they know of it.
//   - A replica that works alone, without slots, holds the lease of the first slot. Others work only while
//     it does not, and it only while no other slot is held.
//
// docs/adr/0049-replicas-share-namespaces.md has the alternatives and their measurements.
package shards

import (
	"slices"

	"github.com/cespare/xxhash/v2"
)

// View is who shares the work, as one replica sees it. The zero value is that of a replica without work.
type View struct {
	// Slot is the slot of this replica.
	Slot int
	// Slots are the slots that are held, in ascending order, with the own one.
	Slots []int
}

// Alone is the view of a replica that does all the work.
func Alone() View { return View{Slots: []int{0}} }

// IsStandby reports whether the replica has no work.
func (v View) IsStandby() bool { return len(v.Slots) == 0 }

// Leads reports whether this replica does what only one may do: that of the lowest slot does.
func (v View) Leads() bool { return !v.IsStandby() && v.Slots[0] == v.Slot }

// Owns reports whether the namespace belongs to this replica. The namespace "" of cluster-scoped objects
// belongs to all.
//
// It is rendezvous hashing: the slot with the highest hash of slot and namespace owns the namespace. So a
// namespace changes its owner only if its owner leaves, or a new one comes. See Thaler and Ravishankar, "Using
// Name-Based Mappings to Increase Hit Rates", 1998.
func (v View) Owns(namespace string) bool {
	if v.IsStandby() {
		return false
	}
	if namespace == "" {
		return true
	}
	own := weight(v.Slot, namespace)
	return !slices.ContainsFunc(v.Slots, func(slot int) bool {
		w := weight(slot, namespace)
		return w > own || w == own && slot < v.Slot
	})
}

// Equal reports whether the views share the work in the same way.
func (v View) Equal(other View) bool {
	return v.Slot == other.Slot && slices.Equal(v.Slots, other.Slots)
}

// weight is the hash of a slot and a namespace.
func weight(slot int, namespace string) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(uint64(slot))
	_, _ = d.WriteString(namespace)
	return d.Sum64()
}
