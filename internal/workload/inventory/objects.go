// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// object is what is stored of an object of the API: a pointer, so that nil means none.
type object[T any] interface {
	comparable
	uid() types.UID
	version() string
	// share makes equal strings of two objects of one group the same string in memory.
	share(sibling T)
}

// objects stores the objects of one kind that belong to claimed Deployments, and drops all others.
//
// Two streams fill it: the events of a watch, and live lists of single Deployments. Nothing is lost between
// them. As soon as a Deployment is claimed, its events are stored in a group that is not complete yet. The
// first reader lists the Deployment's objects live and merges both, by resource version. Whenever an event was
// dropped, or may have been, the group goes with it, and the next reader lists again.
type objects[T object[T]] struct {
	// claimed reports whether a scaler claims the Deployment.
	claimed func(types.NamespacedName) bool
	// oneEach is true if at most one object belongs to a Deployment: itself.
	oneEach bool

	mu     sync.Mutex
	groups map[types.NamespacedName]*group[T]
	// places says where each object is stored. An object can change its owner.
	places map[types.UID]place[T]
	// listing is how many live lists are under way. Meanwhile, gone has each object that an event has
	// deleted, or that belongs to a Deployment that is not claimed. A list may be older than these events.
	listing int
	gone    map[types.UID]whereabouts
	// certain are the Deployments of which the list that a watch begins with has all objects so far. A Deployment is
	// not certain if an object may have been dropped because it was claimed too late, or adopted meanwhile.
	certain map[types.NamespacedName]bool
}

// whereabouts is the Deployment that an object belongs to since a resource version; without a name if
// there is none.
type whereabouts struct {
	deployment types.NamespacedName
	version    string
}

// place is where an object is stored: group.objects[index].
type place[T object[T]] struct {
	group *group[T]
	index int
}

// group is the objects that belong to one Deployment.
type group[T object[T]] struct {
	deployment types.NamespacedName
	// complete is true if all of them are here, not only those with an event since the claim.
	complete bool
	// listed is the version of the newest list of all objects: older events have nothing that is not here. It is empty
	// before the first list.
	listed  string
	objects []T
}

// change is a change of an object that belongs to a Deployment. before is nil for a new object, after for one that is
// deleted or not stored any more. Both are nil if anything may have changed.
type change[T any] struct {
	deployment    types.NamespacedName
	before, after T
}

// entry is an object and the Deployment that it belongs to.
type entry[T any] struct {
	deployment types.NamespacedName
	object     T
}

func newObjects[T object[T]](claimed func(types.NamespacedName) bool) *objects[T] {
	return &objects[T]{claimed: claimed, groups: map[types.NamespacedName]*group[T]{}, places: map[types.UID]place[T]{}, certain: map[types.NamespacedName]bool{}}
}

// read returns the objects of a Deployment. It calls list if they are not all known yet; list returns
// the objects and the resource version of a live list. The result must not be modified.
func (s *objects[T]) read(deployment types.NamespacedName, list func() ([]T, string, error)) ([]T, error) {
	s.mu.Lock()
	g := s.groups[deployment]
	if g == nil {
		g, _ = s.group(deployment) // From now on, events are stored.
	}
	if g != nil && g.complete {
		defer s.mu.Unlock()
		return slices.Clone(g.objects), nil
	}
	s.listing++
	s.mu.Unlock()
	listed, version, err := list()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.endList()
	switch {
	case err != nil:
		return nil, err
	case g == nil, s.groups[deployment] != g:
		return listed, nil // Nobody claims the Deployment, or an event was dropped meanwhile.
	case !g.complete:
		listed = slices.DeleteFunc(listed, func(o T) bool {
			now, isGone := s.gone[o.uid()]
			return isGone && now.deployment != deployment && !isNewer(o.version(), now.version)
		})
		s.sync(g, listed, version)
	}
	return slices.Clone(g.objects), nil
}

// endList forgets what is gone after the last live list that is under way.
func (s *objects[T]) endList() {
	if s.listing--; s.listing == 0 {
		s.gone = nil
	}
}

// leave drops an object that is deleted, or belongs to no claimed Deployment, unless a newer version is stored.
func (s *objects[T]) leave(uid types.UID, to whereabouts) []change[T] {
	if s.listing > 0 {
		if s.gone == nil {
			s.gone = map[types.UID]whereabouts{}
		}
		s.gone[uid] = to
	}
	if at, isStored := s.places[uid]; isStored {
		if known := at.group.objects[at.index].version(); known != to.version && !isNewer(to.version, known) {
			return nil
		}
	}
	return s.remove(uid)
}

// set stores an object after an event. It calls read only for the object of a claimed Deployment. A Deployment
// without a name is never claimed.
func (s *objects[T]) set(deployment types.NamespacedName, uid types.UID, version string, read func() T) []change[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, dropped := s.group(deployment)
	if g == nil {
		return append(dropped, s.leave(uid, whereabouts{deployment, version})...)
	}
	return s.put(g, read())
}

// delete drops an object after its deletion, at a resource version.
func (s *objects[T]) delete(uid types.UID, version string) []change[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leave(uid, whereabouts{version: version})
}

// begin notes which Deployments are claimed when a list of a namespace begins; empty is all namespaces.
func (s *objects[T]) begin(namespace string, claimed []types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.certain, func(d types.NamespacedName, _ bool) bool { return isIn(namespace, d) })
	for _, deployment := range claimed {
		s.certain[deployment] = true
	}
}

// doubt notes that the list that is under way may lack objects of a Deployment.
func (s *objects[T]) doubt(deployment types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.certain, deployment)
}

// isIn reports whether the Deployment is in the namespace; empty is all namespaces.
func isIn(namespace string, d types.NamespacedName) bool {
	return namespace == "" || namespace == d.Namespace
}

// replace stores a list of all objects of a namespace, or of all namespaces if it is empty. The list may lack objects
// of Deployments that are not certain: their groups are dropped.
func (s *objects[T]) replace(namespace string, listed []entry[T], version string) (changes []change[T]) {
	of := map[types.NamespacedName][]T{}
	for _, e := range listed {
		of[e.deployment] = append(of[e.deployment], e.object)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.oneEach {
		for deployment := range of {
			s.certain[deployment] = true
		}
	}
	for deployment := range s.groups {
		if isIn(namespace, deployment) && !s.certain[deployment] {
			changes = append(append(changes, s.drop(deployment)...), change[T]{deployment: deployment})
		}
	}
	for deployment := range s.certain {
		if !isIn(namespace, deployment) {
			continue
		}
		delete(s.certain, deployment)
		g, dropped := s.group(deployment)
		if changes = append(changes, dropped...); g != nil {
			changes = append(changes, s.sync(g, of[deployment], version)...)
		}
	}
	return changes
}

// release drops the objects of a Deployment that no scaler claims any more.
func (s *objects[T]) release(deployment types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.claimed(deployment) {
		s.drop(deployment)
	}
}

// forget drops what is known of a Deployment's objects: the next reader lists them.
func (s *objects[T]) forget(deployment types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(deployment)
	delete(s.certain, deployment)
}

// has reports whether any object of a Deployment is stored.
func (s *objects[T]) has(deployment types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[deployment]
	return g != nil && len(g.objects) > 0
}

// len is the number of objects that are stored.
func (s *objects[T]) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.places)
}

// group is the group of a Deployment; nil if it is not claimed. Without a claim, what is known is dropped: the event that
// asks is the first one that is not stored.
func (s *objects[T]) group(deployment types.NamespacedName) (_ *group[T], dropped []change[T]) {
	if !s.claimed(deployment) {
		return nil, s.drop(deployment)
	}
	g := s.groups[deployment]
	if g == nil {
		g = &group[T]{deployment: deployment}
		s.groups[deployment] = g
	}
	return g, nil
}

// drop drops the group of a Deployment.
func (s *objects[T]) drop(deployment types.NamespacedName) (changes []change[T]) {
	g := s.groups[deployment]
	if g == nil {
		return nil
	}
	for _, o := range g.objects {
		delete(s.places, o.uid())
		changes = append(changes, change[T]{deployment: deployment, before: o})
	}
	delete(s.groups, deployment)
	return changes
}

// sync merges a list of all objects of the group with what events have told.
func (s *objects[T]) sync(g *group[T], listed []T, version string) (changes []change[T]) {
	isListed := make(map[types.UID]bool, len(listed))
	for _, o := range listed {
		isListed[o.uid()] = true
	}
	for _, o := range slices.Clone(g.objects) {
		if !isListed[o.uid()] && isNewer(version, o.version()) {
			changes = append(changes, s.remove(o.uid())...)
		}
	}
	for _, o := range listed {
		changes = append(changes, s.put(g, o)...)
	}
	if g.complete = true; g.listed == "" || isNewer(version, g.listed) {
		g.listed = version
	}
	return changes
}

// put stores an object in the group, unless a newer version is there, or the object has gone since.
func (s *objects[T]) put(g *group[T], o T) (changes []change[T]) {
	if at, isStored := s.places[o.uid()]; isStored {
		before := at.group.objects[at.index]
		if !isNewer(o.version(), before.version()) {
			return nil
		}
		if at.group == g {
			o.share(before)
			g.objects[at.index] = o
			return []change[T]{{deployment: g.deployment, before: before, after: o}}
		}
		changes = s.remove(o.uid()) // It has changed its owner.
	}
	if g.listed != "" && !isNewer(o.version(), g.listed) {
		return changes
	}
	if len(g.objects) > 0 {
		o.share(g.objects[0])
	}
	s.places[o.uid()] = place[T]{g, len(g.objects)}
	g.objects = append(g.objects, o)
	return append(changes, change[T]{deployment: g.deployment, after: o})
}

// remove drops an object, if it is stored.
func (s *objects[T]) remove(uid types.UID) []change[T] {
	at, isStored := s.places[uid]
	if !isStored {
		return nil
	}
	g := at.group
	gone, last := g.objects[at.index], len(g.objects)-1
	g.objects[at.index] = g.objects[last]
	s.places[g.objects[at.index].uid()] = at
	g.objects = slices.Delete(g.objects, last, last+1)
	delete(s.places, uid)
	return []change[T]{{deployment: g.deployment, before: gone}}
}

// isNewer compares resource versions of objects of one kind. What cannot be compared is newer, because
// it arrived later.
func isNewer(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order > 0
}
