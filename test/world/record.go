// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/workload/inventory"
)

// record keeps what changes on the API server in memory.
func (w *World) record() {
	w.api.now = func() metav1.Time { return metav1.NewTime(w.Clock.Now()) }
	w.api.observe = func(kind watch.EventType, before, o client.Object) {
		if o.GetNamespace() == w.Namespace {
			w.changed(kind, before, o)
		}
	}
}

func (w *World) changed(kind watch.EventType, before, o client.Object) {
	w.changes = append(w.changes, Change{Type: kind, Before: before, Object: o, Seen: w.Clock.Now(), isOurs: w.isOurs})
}

// Rest lets minutes pass until the operator writes nothing in one of them. If it always does, the writes of the last one are
// violations.
func (w *World) Rest(minutes int) {
	w.Helper()
	w.Settle()
	for range minutes {
		w.quiet = w.Clock.Now().Add(time.Nanosecond)
		w.beginMinute()
		w.settle()
		if len(w.unexplained()) == 0 {
			break
		}
	}
	before := len(w.writes)
	w.Operator.reconcile(w.ctx)
	if writes := w.writes[before:]; len(writes) > 0 {
		w.Errorf("nothing has happened, and the operator writes %v", writes)
	}
}

// cacheable is a view as the operator caches it. Pods and ReplicaSets are stored whole.
func (w *World) cacheable(v *view) *view {
	for kind, objects := range v.objects {
		if kind.Kind == "Pod" || kind.Kind == "ReplicaSet" {
			continue
		}
		for i, o := range objects {
			if w.trimmed[o] == nil {
				trimmed, err := inventory.Trim(copyOf(o))
				must.Succeed(w, err)
				w.trimmed[o], _ = trimmed.(client.Object)
			}
			objects[i] = w.trimmed[o]
		}
	}
	return v
}
