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

// memories is the operator's memory of each scaler. A restart loses it. The zero value is ready for concurrent use.
type memories struct {
	mu     sync.Mutex
	values map[types.NamespacedName]memory
}

// memory is the operator's memory of a scaler. Its maps and slices are replaced, never changed, so that they may be read
// without the lock.
type memory struct {
	// pods has, by UID, the generation of a pod after our last resize and the resizes that the API server has rejected.
	// It also has the generation of the Deployment after our last rewrite. Without it, there is at most one more request
	// per pod.
	pods map[types.UID]remembered
	// published are the published sizes of new pods, and since when.
	published published
	// foreign are the pods of other owners, as last read.
	foreign foreignPods
	// needsNoQuota is true if the last reconcile has ended, and waits for no ResourceQuota.
	needsNoQuota bool
	// failingSince is the start of failing requests for the checkpoint; zero if they succeed.
	failingSince time.Time
	// unsavedSince is the start of the history's wait to be saved; zero if it does not wait.
	unsavedSince time.Time
	// progressSince is the start of unreported progress, and progressWait how long it may stay so; zero without any.
	progressSince time.Time
	progressWait  time.Duration
	// reportedFirst is the last version of the scaler for which an edit was reported before a resize.
	reportedFirst string
}

// of returns the memory of a scaler.
func (m *memories) of(scaler types.NamespacedName) memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values[scaler]
}

// change changes the memory of a scaler.
func (m *memories) change(scaler types.NamespacedName, change func(*memory)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values == nil {
		m.values = map[types.NamespacedName]memory{}
	}
	value := m.values[scaler]
	change(&value)
	m.values[scaler] = value
}

// forget drops the memory of a scaler.
func (m *memories) forget(scaler types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, scaler)
}

// remembered is the memory of a pod or a Deployment.
type remembered struct {
	generation int64
	// at is the time of the write that led to that generation.
	at time.Time
	// sizes are the sizes of the resized containers after it.
	sizes    workload.Reported
	rejected []rejectedUntil
	// withdrawals counts the resizes of the pod withdrawn in a row.
	withdrawals int
	withdrawnAt time.Time
	// evicted is true if the pod was evicted, at that time.
	evicted bool
	// eviction is the last rejected eviction of the Deployment's pods, by that generation of the scaler.
	eviction   *plan.RejectedEviction
	evictionOf int64
	// setBackAt is the time at which an unschedulable pod of the Deployment got the requests of the template.
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
	for _, ours := range m.sizes {
		if c, ok := pod.Container(ours.Name); ok && c.Resources != ours.Resources {
			return true
		}
	}
	return false
}

// rejectedAt returns the rejected resizes that still count, and the time until the first one expires; 0 without any.
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
	// leastWithdrawal is the time before a withdrawn resize is first repeated. It exceeds twice the
	// grace of a Deferred resize, so the parts of the size are tried in the meantime.
	leastWithdrawal = 30 * time.Minute
	// mostWithdrawal is the longest such time. Each withdrawal doubles it.
	mostWithdrawal = 2 * time.Hour
	// keptLimit is the time before a memory limit that the kubelet could not lower is lowered again. Page cache fills any
	// limit, so an earlier attempt would fail alike.
	keptLimit = 7 * 24 * time.Hour
)

// reject records that a resize must not be repeated until then.
func (m *remembered) reject(resize plan.RejectedResize, now, until time.Time) {
	m.rejected = slices.DeleteFunc(m.rejected, func(old rejectedUntil) bool { return !now.Before(old.until) })
	m.rejected = append(m.rejected, rejectedUntil{resize, until})
}

// withdraw records a withdrawn resize, and when it may be repeated. Withdrawals are in a row if
// each one follows within twice the longest wait of the one before.
func (m *remembered) withdraw(resize plan.RejectedResize, now time.Time) {
	if resize.Reason == v1beta1.ReasonResizeError {
		m.reject(resize, now, now.Add(keptLimit))
		return
	}
	if now.Sub(m.withdrawnAt) > 2*mostWithdrawal {
		m.withdrawals = 0
	}
	wait := min(leastWithdrawal<<min(m.withdrawals, 8), mostWithdrawal)
	m.withdrawals, m.withdrawnAt = m.withdrawals+1, now
	m.reject(resize, now, now.Add(wait))
}

// After an unschedulable pod of the decided size, new pods start as in the template for setBackFor. Then
// there may be room.
const setBackFor = 30 * time.Minute

// changePod changes the memory of a pod or a Deployment of the scaler.
func (m *memories) changePod(scaler types.NamespacedName, pod types.UID, change func(*remembered)) {
	m.change(scaler, func(all *memory) {
		what := all.pods[pod]
		what.rejected = slices.Clone(what.rejected)
		change(&what)
		pods := map[types.UID]remembered{}
		maps.Copy(pods, all.pods)
		pods[pod] = what
		all.pods = pods
	})
}

// podsOf returns the memory of the scaler's pods, and forgets deleted pods.
func (m *memories) podsOf(scaler types.NamespacedName, alive map[types.UID]bool) map[types.UID]remembered {
	pods := m.of(scaler).pods
	for uid := range pods {
		if !alive[uid] {
			pods = maps.Clone(pods)
			maps.DeleteFunc(pods, func(uid types.UID, _ remembered) bool { return !alive[uid] })
			m.change(scaler, func(all *memory) { all.pods = pods })
			break
		}
	}
	return pods
}

// acknowledge forgets the resizes that another controller has changed, once the status
// counts them.
func (r *Reconciler) acknowledge(scaler types.NamespacedName, undone map[types.UID]int64) {
	for uid, seen := range undone {
		r.memory.changePod(scaler, uid, func(what *remembered) {
			if what.generation < seen { // otherwise it has been resized again
				what.sizes = nil
			}
		})
	}
}

// published are the sizes that were published for new pods of one Deployment.
type published struct {
	sizes []v1beta1.NewPodContainer
	since time.Time
}

// publishedSince records that the sizes in the status are published, and returns since when.
func (m *memories) publishedSince(scaler types.NamespacedName, sizes []v1beta1.NewPodContainer, now time.Time) (since time.Time) {
	m.change(scaler, func(all *memory) {
		if all.published.since.IsZero() || !equality.Semantic.DeepEqual(all.published.sizes, sizes) {
			all.published = published{slices.Clone(sizes), now}
		}
		since = all.published.since
	})
	return since
}

// forgetPublished forgets the time of publication.
func (m *memories) forgetPublished(scaler types.NamespacedName) {
	m.change(scaler, func(all *memory) { all.published = published{} })
}

// mayWaitForQuota reports whether the scaler may wait for a ResourceQuota. That is unknown before
// its first reconcile, during a reconcile, and after a failed one.
func (m *memories) mayWaitForQuota(scaler types.NamespacedName) bool {
	return !m.of(scaler).needsNoQuota
}
