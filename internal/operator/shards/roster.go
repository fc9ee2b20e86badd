// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// noSlot is the slot of a replica that has none.
const noSlot = -1

// sharingSuffix ends the identity of a replica that shares the work. Any other holder of the first slot
// works alone, such as a replica of an older version.
const sharingSuffix = "/shares"

// seat is what the lease of a slot says.
type seat struct {
	holder            string // empty if nobody holds it
	acquired, renewed time.Time
	acknowledged      string // what its holder knows (members.id)
	// lasts is how long its holder may work after a renewal, and at least leaseDuration. A replica that works alone has
	// a longer lease.
	lasts time.Duration
	// seen is when we first saw this renewal, by our own clock: clocks of other machines differ.
	seen time.Time
}

// roster is what the leases say, as far as this replica has read them.
type roster struct {
	seats [v1beta1.MaxReplicas]seat
	// asked is when the leases were last read. A renewal that they do not show was sent later.
	asked time.Time
}

// observe notes the leases that were asked for at a time and answered at another.
func (r *roster) observe(leases []coordinationv1.Lease, asked, answered time.Time) {
	r.asked = asked
	for slot := range r.seats {
		name := v1beta1.ReplicaLeaseName(slot)
		i := slices.IndexFunc(leases, func(l coordinationv1.Lease) bool { return l.Name == name })
		if i < 0 {
			r.seats[slot] = seat{}
			continue
		}
		now := seatOf(&leases[i])
		if before := r.seats[slot]; before.holder == now.holder && before.renewed.Equal(now.renewed) {
			now.seen = before.seen
		} else {
			now.seen = answered
		}
		r.seats[slot] = now
	}
}

func seatOf(l *coordinationv1.Lease) seat {
	return seat{
		holder:       ptr.Deref(l.Spec.HolderIdentity, ""),
		acquired:     ptr.Deref(l.Spec.AcquireTime, zeroTime).Time,
		renewed:      ptr.Deref(l.Spec.RenewTime, zeroTime).Time,
		lasts:        max(leaseDuration, time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))*time.Second),
		acknowledged: l.Labels[v1beta1.ReplicaViewLabel],
	}
}

// isHeld reports whether a replica may work with the slot.
func (r *roster) isHeld(slot int) bool {
	s := r.seats[slot]
	return s.holder != "" && r.asked.Sub(s.seen) < s.lasts
}

// nextExpiry is when the first slot expires that is not renewed; false if none is held.
func (r *roster) nextExpiry() (at time.Time, ok bool) {
	for slot, s := range r.seats {
		if expires := s.seen.Add(s.lasts); r.isHeld(slot) && (!ok || expires.Before(at)) {
			at, ok = expires, true
		}
	}
	return at, ok
}

// soloist is the replica that works alone; empty if there is none.
func (r *roster) soloist() string {
	if s := r.seats[0]; r.isHeld(0) && !strings.HasSuffix(s.holder, sharingSuffix) {
		return s.holder
	}
	return ""
}

// free is a slot that the replica may take: its own from before a restart, else the lowest free one.
func (r *roster) free(replicas int, identity string) (slot int, ok bool) {
	lowest := noSlot
	for slot := range replicas {
		if r.seats[slot].holder == identity {
			return slot, true
		}
		if lowest == noSlot && !r.isHeld(slot) {
			lowest = slot
		}
	}
	return lowest, lowest != noSlot
}

// members are the slots that are held. id identifies them and their holders.
type members struct {
	slots []int
	id    string
}

// members returns the slots that are held, with the one of this replica.
func (r *roster) members(own int) (m members) {
	h := xxhash.New()
	for slot, s := range r.seats {
		if slot != own && !r.isHeld(slot) {
			continue
		}
		m.slots = append(m.slots, slot)
		_, _ = fmt.Fprintf(h, "%d %q %d\n", slot, s.holder, s.acquired.UnixMicro())
	}
	m.id = strconv.FormatUint(h.Sum64(), 16)
	return m
}

// knowAll reports whether all other replicas know these members.
func (r *roster) knowAll(m members, own int) bool {
	return !slices.ContainsFunc(m.slots, func(slot int) bool { return slot != own && r.seats[slot].acknowledged != m.id })
}
