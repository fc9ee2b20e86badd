// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package precedence decides which of the scalers that name a Deployment sizes it. All others stand back.
package precedence

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// MaxReported is the number of scalers of one Deployment that report which of them sizes it. Each change
// of that one changes the standing of the others. Further scalers are rejected with a message that does
// not name it, so that no change concerns them.
const MaxReported = 8

// Order has the precedence of scalers that name the same Deployment: the oldest first, then the
// first by name.
//
// A query costs O(log n) for n scalers of one Deployment, and a change moves those behind it in memory. An Order that
// follows the events of an informer may be newer than the informer's store. All methods may be called concurrently.
type Order struct {
	// reported is the number of contenders that report which one takes precedence.
	reported int

	mu      sync.RWMutex
	known   map[types.NamespacedName]contender   // by the scaler's key
	ordered map[types.NamespacedName][]contender // by Deployment
}

// contender is a scaler among those of one Deployment.
type contender struct {
	deployment types.NamespacedName
	created    time.Time
	name       string
}

// Standing is the standing of a scaler among those of its Deployment. The zero value means that it
// sizes the Deployment.
type Standing struct {
	// Winner names the scaler that takes precedence; empty for the winner itself and for refused
	// scalers.
	Winner string
	// Refused is true if too many scalers take precedence.
	Refused bool
}

// IsFirst reports whether no other scaler takes precedence.
func (s Standing) IsFirst() bool { return s == Standing{} }

// New returns an order without scalers, in which this many scalers of a Deployment report which of them sizes it.
func New(reported int) *Order {
	return &Order{reported: reported, known: map[types.NamespacedName]contender{}, ordered: map[types.NamespacedName][]contender{}}
}

// Of returns the order of all scalers of one or more namespaces.
func Of(scalers []v1beta1.VerticalScaler) *Order {
	o := New(MaxReported)
	for i := range scalers {
		o.Note(&scalers[i])
	}
	return o
}

func contenderOf(vs *v1beta1.VerticalScaler) contender {
	return contender{scaler.Target(vs), vs.CreationTimestamp.Time, vs.Name}
}

// compare orders the contenders of a Deployment.
func (c contender) compare(other contender) int {
	return cmp.Or(c.created.Compare(other.created), cmp.Compare(c.name, other.name))
}

func (c contender) key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.deployment.Namespace, Name: c.name}
}

// StandingOf returns how the scaler stands among the others. The order need not know it yet.
func (o *Order) StandingOf(vs *v1beta1.VerticalScaler) Standing {
	self := contenderOf(vs)
	o.mu.RLock()
	defer o.mu.RUnlock()
	var before []contender
	for _, other := range o.first(self.deployment) {
		if other.name != self.name && other.compare(self) < 0 {
			before = append(before, other)
		}
	}
	return o.behind(before)
}

// behind is the standing of a scaler behind these.
func (o *Order) behind(before []contender) Standing {
	switch n := len(before); {
	case n == 0:
		return Standing{}
	case n >= o.reported:
		return Standing{Refused: true}
	}
	return Standing{Winner: before[0].name}
}

// first lists the first contenders of a Deployment by precedence, one more than report the winner.
func (o *Order) first(deployment types.NamespacedName) []contender {
	list := o.ordered[deployment]
	return list[:min(len(list), o.reported+1)]
}

// Note records the current scaler, and returns the scalers whose standing changes: also this one,
// because earlier events have not triggered it.
func (o *Order) Note(vs *v1beta1.VerticalScaler) (affected []types.NamespacedName) {
	now := contenderOf(vs)
	o.mu.Lock()
	defer o.mu.Unlock()
	if was, ok := o.known[now.key()]; ok && was.deployment == now.deployment && was.compare(now) == 0 {
		return nil
	}
	return o.replace(now.key(), &now)
}

// Forget removes a scaler that was deleted, and returns the other scalers whose standing that
// changes.
func (o *Order) Forget(key types.NamespacedName) (affected []types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.replace(key, nil)
}

func (o *Order) insert(c contender) {
	list := o.ordered[c.deployment]
	i, _ := slices.BinarySearchFunc(list, c, contender.compare)
	o.ordered[c.deployment], o.known[c.key()] = slices.Insert(list, i, c), c
}

func (o *Order) remove(c contender) {
	list := o.ordered[c.deployment]
	i, _ := slices.BinarySearchFunc(list, c, contender.compare)
	if o.ordered[c.deployment] = slices.Delete(list, i, i+1); len(list) == 1 {
		delete(o.ordered, c.deployment)
	}
	delete(o.known, c.key())
}

func (o *Order) replace(key types.NamespacedName, now *contender) (affected []types.NamespacedName) {
	was, existed := o.known[key]
	var deployments []types.NamespacedName
	if existed {
		deployments = append(deployments, was.deployment)
	}
	if now != nil && (!existed || now.deployment != was.deployment) {
		deployments = append(deployments, now.deployment)
	}
	before := map[types.NamespacedName]Standing{}
	for _, deployment := range deployments {
		for i, list := 0, o.first(deployment); i < len(list); i++ {
			before[list[i].key()] = o.behind(list[:i])
		}
	}
	if existed {
		o.remove(was)
	}
	if now != nil {
		o.insert(*now)
	}
	for _, deployment := range deployments {
		for i, list := 0, o.first(deployment); i < len(list); i++ {
			other, stood := list[i].key(), Standing{Refused: true}
			if known, ok := before[other]; ok {
				stood = known
			}
			if other != key && stood != o.behind(list[:i]) {
				affected = append(affected, other)
			}
		}
	}
	if now != nil {
		affected = append(affected, key)
	}
	return affected
}
