// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package verticalscaler

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/third_party/forked/golang/btree"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/internal/scaler"
)

// maxContenders is how many scalers of one Deployment the operator tells which of them sizes it.
// Each change of that one triggers a reconcile of the others. Further scalers are refused with a
// message that is the same whichever scaler that is, so that no change triggers them.
const maxContenders = 8

// treeDegree is the number of children of a node of the tree, as the library's users choose it.
const treeDegree = 32

// contenders knows which scalers name the same Deployment, and in which order they take precedence:
// the oldest first, then the first by name.
//
// The events of the scalers' informer keep it, and each event triggers the scalers whose standing it
// changes. So a reconcile may see contenders that are older than the cache, and is repeated if that
// made a difference. A change costs O(log n) for n scalers, a question O(log n + most). Nothing is
// copied.
type contenders struct {
	// most is how many contenders are told who takes precedence.
	most int

	mu      sync.RWMutex
	known   map[types.NamespacedName]contender // by the scaler's key
	ordered *btree.BTree[contender]            // by Deployment, then by precedence
}

// contender is a scaler among those of one Deployment.
type contender struct {
	deployment types.NamespacedName
	created    time.Time
	name       string
}

// standing is what a scaler needs to know of the others of its Deployment.
type standing struct {
	// winner names the scaler that takes precedence; empty if that is this one, or if the scaler
	// is refused.
	winner string
	// refused is true if too many scalers take precedence.
	refused bool
}

// isFirst reports whether no other scaler takes precedence.
func (s standing) isFirst() bool { return s == standing{} }

func newContenders(most int) *contenders {
	return &contenders{most: most, known: map[types.NamespacedName]contender{}, ordered: btree.New(treeDegree, contender.isBefore)}
}

func contenderOf(vs *v1beta1.VerticalScaler) contender {
	return contender{scaler.Target(vs), vs.CreationTimestamp.Time, vs.Name}
}

// isBefore orders the contenders of all Deployments.
func (c contender) isBefore(other contender) bool {
	return cmp.Or(
		cmp.Compare(c.deployment.Namespace, other.deployment.Namespace),
		cmp.Compare(c.deployment.Name, other.deployment.Name),
		c.created.Compare(other.created),
		cmp.Compare(c.name, other.name),
	) < 0
}

func (c contender) key() types.NamespacedName {
	return types.NamespacedName{Namespace: c.deployment.Namespace, Name: c.name}
}

// standingOf tells how the scaler stands among the others. It need not be known yet.
func (c *contenders) standingOf(vs *v1beta1.VerticalScaler) standing {
	self := contenderOf(vs)
	c.mu.RLock()
	defer c.mu.RUnlock()
	var before []contender
	for _, other := range c.first(self.deployment) {
		if other.name != self.name && other.isBefore(self) {
			before = append(before, other)
		}
	}
	return c.behind(before)
}

// behind is the standing of a scaler behind these.
func (c *contenders) behind(before []contender) standing {
	switch n := len(before); {
	case n == 0:
		return standing{}
	case n >= c.most:
		return standing{refused: true}
	}
	return standing{winner: before[0].name}
}

// first lists the first contenders of a Deployment by precedence, one more than are told who that
// is.
func (c *contenders) first(deployment types.NamespacedName) (list []contender) {
	c.ordered.AscendGreaterOrEqual(contender{deployment: deployment}, func(other contender) bool {
		if other.deployment != deployment || len(list) > c.most {
			return false
		}
		list = append(list, other)
		return true
	})
	return list
}

// note records the scaler as it is now, and returns the scalers whose standing that changes: also
// this one, because nothing has triggered it for what happened before it was known here.
func (c *contenders) note(vs *v1beta1.VerticalScaler) (affected []types.NamespacedName) {
	now := contenderOf(vs)
	c.mu.Lock()
	defer c.mu.Unlock()
	if was, ok := c.known[now.key()]; ok && !was.isBefore(now) && !now.isBefore(was) {
		return nil
	}
	return c.replace(now.key(), &now)
}

// forget removes a scaler that was deleted, and returns the other scalers whose standing that
// changes.
func (c *contenders) forget(key types.NamespacedName) (affected []types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.replace(key, nil)
}

func (c *contenders) replace(key types.NamespacedName, now *contender) (affected []types.NamespacedName) {
	was, existed := c.known[key]
	var deployments []types.NamespacedName
	if existed {
		deployments = append(deployments, was.deployment)
	}
	if now != nil && (!existed || now.deployment != was.deployment) {
		deployments = append(deployments, now.deployment)
	}
	before := map[types.NamespacedName]standing{}
	for _, deployment := range deployments {
		for i, list := 0, c.first(deployment); i < len(list); i++ {
			before[list[i].key()] = c.behind(list[:i])
		}
	}
	if existed {
		c.ordered.Delete(was)
		delete(c.known, key)
	}
	if now != nil {
		c.ordered.ReplaceOrInsert(*now)
		c.known[key] = *now
	}
	for _, deployment := range deployments {
		for i, list := 0, c.first(deployment); i < len(list); i++ {
			other, stood := list[i].key(), standing{refused: true}
			if known, ok := before[other]; ok {
				stood = known
			}
			if other != key && stood != c.behind(list[:i]) {
				affected = append(affected, other)
			}
		}
	}
	if now != nil {
		affected = append(affected, key)
	}
	return affected
}

// handler keeps the contenders, and triggers the scalers whose standing an event changes.
func (c *contenders) handler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	note := func(obj client.Object, q queue) {
		if vs, ok := obj.(*v1beta1.VerticalScaler); ok {
			trigger(q, c.note(vs))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { note(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { note(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			trigger(q, c.forget(client.ObjectKeyFromObject(e.Object)))
		},
	}
}

func trigger(q workqueue.TypedRateLimitingInterface[reconcile.Request], keys []types.NamespacedName) {
	for _, key := range keys {
		q.Add(reconcile.Request{NamespacedName: key})
	}
}
