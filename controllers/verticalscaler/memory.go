// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/apiserver/ownwrites"
	"github.com/verticalscaler/verticalscaler-operator/internal/plan"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload"
)

// perScaler remembers one value per scaler. A restart loses it. A value is replaced, never
// changed, so that it may be read without the lock.
type perScaler[T any] struct {
	mu     sync.Mutex
	values map[types.NamespacedName]T
}

func (m *perScaler[T]) get(scaler types.NamespacedName) (value T, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, ok = m.values[scaler]
	return value, ok
}

// replace stores what change returns for the value so far.
func (m *perScaler[T]) replace(scaler types.NamespacedName, change func(T) T) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = map[types.NamespacedName]T{}
	}
	m.values[scaler] = change(m.values[scaler])
}

func (m *perScaler[T]) forget(scaler types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, scaler)
}

// podMemory remembers which generation of a pod our last resize led to, which resizes the
// API server has rejected, and which generation of the Deployment our last rewrite led to.
// A restart costs at most one more request per pod.
type podMemory struct {
	perScaler[map[types.UID]remembered]
}

// remembered is what is known of a pod or a Deployment.
type remembered struct {
	generation int64
	// at is when the last write led to that generation.
	at time.Time
	// sizes is what the resized containers of the pod had after it.
	sizes    map[string]workload.Resources
	rejected []rejectedUntil
	// withdrawals is how many resizes of the pod were withdrawn in a row.
	withdrawals int
	withdrawnAt time.Time
	// evicted is true if the pod was evicted, at that time.
	evicted bool
	// eviction is the last rejected eviction of the Deployment's pods, by that generation of the scaler.
	eviction   *plan.RejectedEviction
	evictionOf int64
	// setBackAt is when a pod of the Deployment that had found no node got the requests of the template.
	setBackAt time.Time
}

type rejectedUntil struct {
	plan.RejectedResize

	until time.Time
}

// isNewerThan reports whether our last write led to a later generation than that one.
func (m remembered) isNewerThan(generation int64, now time.Time) bool {
	return generation < m.generation && now.Sub(m.at) < ownwrites.StaleFor
}

// isUndone reports whether another controller has changed our last resize of the pod.
func (m remembered) isUndone(pod workload.Pod) bool {
	if pod.Generation <= m.generation {
		return false
	}
	for name, ours := range m.sizes {
		if c, ok := pod.Container(name); ok && c.Resources != ours {
			return true
		}
	}
	return false
}

// rejectedAt returns the rejected resizes that still count, and how long it takes until the first of them ends; 0 for none.
func (m remembered) rejectedAt(now time.Time) (rejected []plan.RejectedResize, left time.Duration) {
	for _, last := range m.rejected {
		if now.Before(last.until) {
			rejected = append(rejected, last.RejectedResize)
			left = soonest(left, last.until.Sub(now))
		}
	}
	return rejected, left
}

const (
	// leastWithdrawal is how long a withdrawn resize is not repeated, at first. Twice the grace of a
	// Deferred resize is less, so that the parts of the size have their turns in the meantime.
	leastWithdrawal = 30 * time.Minute
	// mostWithdrawal is the longest such time. Each withdrawal doubles it.
	mostWithdrawal = 2 * time.Hour
)

// reject notes that a resize is not to be repeated until then.
func (m *remembered) reject(resize plan.RejectedResize, now, until time.Time) {
	m.rejected = slices.DeleteFunc(m.rejected, func(old rejectedUntil) bool { return !now.Before(old.until) })
	m.rejected = append(m.rejected, rejectedUntil{resize, until})
}

// withdraw notes that a resize was withdrawn, and when it may be repeated. Withdrawals are in a row
// if each one follows while the longest time since the one before has not passed twice.
func (m *remembered) withdraw(resize plan.RejectedResize, now time.Time) {
	if now.Sub(m.withdrawnAt) > 2*mostWithdrawal {
		m.withdrawals = 0
	}
	wait := min(leastWithdrawal<<min(m.withdrawals, 8), mostWithdrawal)
	m.withdrawals, m.withdrawnAt = m.withdrawals+1, now
	m.reject(resize, now, now.Add(wait))
}

// setBackFor is how long new pods start as in the template after one has found no node with the decided size.
// Then it is tried again: there may be room.
const setBackFor = 30 * time.Minute

// remember changes what is remembered of a pod.
func (m *podMemory) remember(scaler types.NamespacedName, pod types.UID, change func(*remembered)) {
	m.replace(scaler, func(pods map[types.UID]remembered) map[types.UID]remembered {
		what := pods[pod]
		what.rejected = slices.Clone(what.rejected)
		change(&what)
		pods = maps.Clone(pods)
		if pods == nil {
			pods = map[types.UID]remembered{}
		}
		pods[pod] = what
		return pods
	})
}

// recall returns what is remembered of the scaler's pods, and forgets deleted pods.
func (m *podMemory) recall(scaler types.NamespacedName, alive map[types.UID]bool) map[types.UID]remembered {
	pods, _ := m.get(scaler)
	for uid := range pods {
		if !alive[uid] {
			pods = maps.Clone(pods)
			maps.DeleteFunc(pods, func(uid types.UID, _ remembered) bool { return !alive[uid] })
			m.replace(scaler, func(map[types.UID]remembered) map[types.UID]remembered { return pods })
			break
		}
	}
	return pods
}

// acknowledge forgets the resizes that another controller has changed, once the status
// counts them.
func (r *Reconciler) acknowledge(scaler types.NamespacedName, undone map[types.UID]int64) {
	for uid, seen := range undone {
		r.pods.remember(scaler, uid, func(what *remembered) {
			if what.generation < seen { // otherwise it has been resized again
				what.sizes = nil
			}
		})
	}
}

// admissionMemory remembers since when the API server has been told the sizes of new pods.
type admissionMemory struct{ perScaler[admitted] }

// admitted is what the API server has been told of one Deployment.
type admitted struct {
	sizes []v1beta1.NewPodContainer
	since time.Time
}

// told notes that the sizes in the status are written down for the API server, and returns since when.
func (m *admissionMemory) told(scaler types.NamespacedName, sizes []v1beta1.NewPodContainer, now time.Time) (since time.Time) {
	m.replace(scaler, func(last admitted) admitted {
		if last.since.IsZero() || !equality.Semantic.DeepEqual(last.sizes, sizes) {
			last = admitted{sizes: slices.Clone(sizes), since: now}
		}
		since = last.since
		return last
	})
	return since
}

// quotaMemory remembers which scalers wait for a ResourceQuota.
type quotaMemory struct{ perScaler[bool] }

// remember notes the reasons of a finished reconcile: those of running pods and of new ones.
func (m *quotaMemory) remember(scaler types.NamespacedName, reasons ...string) {
	m.replace(scaler, func(bool) bool { return slices.Contains(reasons, v1beta1.ReasonQuotaExceeded) })
}

// mayWait reports whether the scaler waits for a ResourceQuota, or whether that is unknown:
// before its first reconcile, during a reconcile, and after one that failed.
func (m *quotaMemory) mayWait(scaler types.NamespacedName) bool {
	waits, known := m.get(scaler)
	return waits || !known
}
