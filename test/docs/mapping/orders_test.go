// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package mapping

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
)

// An approach is a way from an event of a Deployment to the scaler that names it.
type approach struct {
	name string
	// deployments handles the events of Deployments, with what the cache of the world knows.
	deployments func(*world) handler.EventHandler
	// scalers are the events of scalers that trigger a reconcile.
	scalers predicate.Predicate
	// mark is what a reconcile leaves behind for the next events; nil if nothing.
	mark func(*world)
	// lost is what the page says.
	lost string
}

const mark = "example.com/scaler"

func approaches(tb testing.TB) []approach {
	tb.Helper()
	scheme, mapper := known(tb)
	ofOwner := func(options ...handler.OwnerOption) func(*world) handler.EventHandler {
		return func(*world) handler.EventHandler {
			return handler.EnqueueRequestForOwner(scheme, mapper, &v1beta1.VerticalScaler{}, options...)
		}
	}
	// toTheScaler maps a Deployment to the scaler if the cache says that they belong together.
	toTheScaler := func(isMapped func(*world, client.Object) bool) func(*world) handler.EventHandler {
		return func(w *world) handler.EventHandler {
			return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, deployment client.Object) []reconcile.Request {
				if isMapped(w, deployment) {
					return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}}
				}
				return nil
			})
		}
	}
	byClaim := toTheScaler(func(w *world, _ client.Object) bool {
		return w.cachedScaler != nil && w.cachedScaler.Status.Annotations[mark] != ""
	})
	// touching is a controller of Deployments that finds the scaler by an index and changes an annotation.
	touching := func(w *world) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
			if w.cachedScaler != nil {
				touched := w.apiScaler.DeepCopy()
				touched.Annotations = map[string]string{mark: fmt.Sprint(len(w.scalerEvents), touched.Annotations[mark])}
				w.apiScaler = touched
				w.scalerEvents = append(slices.Clip(w.scalerEvents), touched)
			}
			return nil
		})
	}
	generation, all := predicate.GenerationChangedPredicate{}, predicate.Funcs{}
	return []approach{
		{"an index on the spec", toTheScaler(func(w *world, _ client.Object) bool { return w.cachedScaler != nil }), generation, nil, "0 of 10, 0 of 10, 0 of 88"},
		{"an index on the status, which triggers a reconcile", byClaim, all, claim, "0 of 21, 0 of 21, 0 of 285"},
		{"an index on the status, behind a generation predicate", byClaim, generation, claim, "4 of 15, 4 of 15, 40 of 165"},
		{"a controller reference", ofOwner(handler.OnlyControllerOwner()), generation, own(true), "0 of 14, 4 of 10, 57 of 101"},
		{"an owner reference", ofOwner(), generation, own(false), "0 of 14, 4 of 10, 57 of 101"},
		{"an annotation", toTheScaler(func(_ *world, d client.Object) bool { return d.GetAnnotations()[mark] != "" }), generation, annotate, "0 of 14, 4 of 10, 57 of 101"},
		{"a second controller, which writes to the scaler", touching, predicate.Or(generation, predicate.AnnotationChangedPredicate{}), nil, "0 of 23, 0 of 13, 0 of 279"},
		{"a channel and a map in memory", toTheScaler(func(w *world, _ client.Object) bool { return w.isRegistered }), generation, func(w *world) { w.isRegistered = true }, "0 of 10, 0 of 10, 0 of 88"},
	}
}

func claim(w *world) {
	if w.apiScaler.Status.Annotations[mark] != "" {
		return
	}
	after := w.apiScaler.DeepCopy()
	after.Status.Annotations = map[string]string{mark: "shop/web"}
	w.apiScaler = after
	w.scalerEvents = append(slices.Clip(w.scalerEvents), after)
}

func own(isController bool) func(*world) {
	return func(w *world) {
		w.patchDeployment(func(d *appsv1.Deployment) bool {
			if len(d.OwnerReferences) > 0 {
				return false
			}
			d.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1beta1.GroupVersion.String(), Kind: "VerticalScaler", Name: "web", Controller: ptr.To(isController)}}
			return true
		})
	}
}

func annotate(w *world) {
	w.patchDeployment(func(d *appsv1.Deployment) bool {
		if d.Annotations[mark] != "" {
			return false
		}
		d.Annotations = map[string]string{mark: "web"}
		return true
	})
}

// A world is what the API server stores, what the cache holds, which events are on their way, and
// what is in the queue. Objects are never changed, so that a copy of a world is another world.
type world struct {
	apiScaler, cachedScaler         *v1beta1.VerticalScaler
	apiDeployment, cachedDeployment *appsv1.Deployment
	scalerEvents                    []*v1beta1.VerticalScaler
	deploymentEvents                []*appsv1.Deployment // nil is a deletion

	isQueued, isRegistered bool
	seen                   string // of the Deployment by the last reconcile
	users                  [2][]func(*world)
	uids                   int
}

// patchDeployment changes the metadata of the Deployment that a reconcile has read, if it still exists.
func (w *world) patchDeployment(change func(*appsv1.Deployment) bool) {
	if w.cachedDeployment == nil || w.apiDeployment == nil || w.apiDeployment.UID != w.cachedDeployment.UID {
		return
	}
	if after := w.apiDeployment.DeepCopy(); change(after) {
		w.storeDeployment(after)
	}
}

func (w *world) storeDeployment(d *appsv1.Deployment) {
	w.apiDeployment = d
	w.deploymentEvents = append(slices.Clip(w.deploymentEvents), d)
}

func createScaler(w *world) {
	w.apiScaler = &v1beta1.VerticalScaler{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 1}}
	w.scalerEvents = append(slices.Clip(w.scalerEvents), w.apiScaler)
}

func createDeployment(w *world) {
	w.uids++
	w.storeDeployment(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", UID: types.UID(fmt.Sprint(w.uids)), Generation: 1,
	}})
}

func changeDeployment(w *world) {
	after := w.apiDeployment.DeepCopy()
	after.Generation++
	w.storeDeployment(after)
}

func deleteDeployment(w *world) { w.storeDeployment(nil) }

func version(d *appsv1.Deployment) string {
	if d == nil {
		return "absent"
	}
	return fmt.Sprintf("%s, generation %d", d.UID, d.Generation)
}

// next lists everything that can happen next.
func (w *world) next(tb testing.TB, a approach) (worlds []*world) {
	tb.Helper()
	add := func(happens func(*world)) {
		after := *w
		happens(&after)
		worlds = append(worlds, &after)
	}
	for i, steps := range w.users {
		if len(steps) > 0 {
			add(func(w *world) { w.users[i] = steps[1:]; steps[0](w) })
		}
	}
	if len(w.scalerEvents) > 0 {
		add(func(w *world) {
			before := w.cachedScaler
			w.cachedScaler, w.scalerEvents = w.scalerEvents[0], w.scalerEvents[1:]
			w.isQueued = w.isQueued || before == nil || a.scalers.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: w.cachedScaler})
		})
	}
	if len(w.deploymentEvents) > 0 {
		add(func(w *world) { w.deliverDeployment(tb, a) })
	}
	if w.isQueued {
		add(func(w *world) {
			w.isQueued = false
			w.seen = version(w.cachedDeployment)
			if a.mark != nil {
				a.mark(w)
			}
		})
	}
	return worlds
}

func (w *world) deliverDeployment(tb testing.TB, a approach) {
	tb.Helper()
	before := w.cachedDeployment
	w.cachedDeployment, w.deploymentEvents = w.deploymentEvents[0], w.deploymentEvents[1:]
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	switch h, after := a.deployments(w), w.cachedDeployment; {
	case before == nil:
		h.Create(tb.Context(), event.CreateEvent{Object: after}, queue)
	case after == nil:
		h.Delete(tb.Context(), event.DeleteEvent{Object: before}, queue)
	default:
		h.Update(tb.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
	}
	// A request for a scaler that the cache does not have ends at once.
	w.isQueued = w.isQueued || queue.Len() > 0 && w.cachedScaler != nil
}

// lost counts the ends in which the last reconcile has not seen the Deployment as it is, and all ends.
func (w *world) lost(tb testing.TB, a approach) (lost, all int) {
	tb.Helper()
	worlds := w.next(tb, a)
	if len(worlds) == 0 {
		if w.seen != version(w.apiDeployment) {
			return 1, 1
		}
		return 0, 1
	}
	for _, next := range worlds {
		l, n := next.lost(tb, a)
		lost, all = lost+l, all+n
	}
	return lost, all
}

// Every order of what users do, what the watches deliver and what is reconciled is tried. There is
// no resync.
func TestOrdersInWhichEventsAreLost(t *testing.T) {
	histories := []struct {
		name   string
		exists bool
		steps  []func(*world)
	}{
		{"changed", true, []func(*world){changeDeployment}},
		{"created later", false, []func(*world){createDeployment}},
		{"created again", true, []func(*world){deleteDeployment, createDeployment}},
	}
	page := read(t)
	for _, a := range approaches(t) {
		t.Run(a.name, func(t *testing.T) {
			var all []string
			for _, h := range histories {
				w := &world{users: [2][]func(*world){{createScaler}, h.steps}}
				if h.exists {
					createDeployment(w)
					w.cachedDeployment, w.deploymentEvents = w.apiDeployment, nil
				}
				lost, orders := w.lost(t, a)
				t.Logf("a Deployment is %s: lost in %d of %d orders", h.name, lost, orders)
				all = append(all, fmt.Sprintf("%d of %d", lost, orders))
			}
			if got := strings.Join(all, ", "); got != a.lost || !strings.Contains(page, got) {
				t.Errorf("lost in %s orders, not in %s, or the page does not say so", got, a.lost)
			}
		})
	}
}
