// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var web = types.NamespacedName{Namespace: "shop", Name: "web"}

// Nothing is lost between the watch, live lists, and claims that come and go, in whatever order they happen. A
// reader is triggered by each change that it is told of, and by a new claim. Once all is delivered and the reader
// has answered each trigger, it must have seen the truth, and nothing must be stored that is not claimed.
func TestNothingIsLostInAnyOrder(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(10_000) {
		w := newSetWorld(rand.New(rand.NewPCG(seed, 16)))
		for range 30 {
			w.act()
		}
		w.rest()
		want := versions(w.owned())
		if !w.claimed {
			if len(w.store.places) > 0 || len(w.store.groups) > 0 {
				t.Fatalf("seed %d: what is stored is not claimed: %v\n%s", seed, w.store.groups, w.story())
			}
			continue
		}
		if diff := cmp.Diff(want, w.lastRead); diff != "" {
			t.Fatalf("seed %d: the reader was not told (-there +seen):\n%s%s", seed, diff, w.story())
		}
		got, err := w.store.read(web, func() ([]*setRecord, string, error) {
			seen["list at rest"]++
			return nil, "", fmt.Errorf("seed %d: the group is not complete", seed)
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, w.story())
		}
		if diff := cmp.Diff(want, versions(got)); diff != "" {
			t.Fatalf("seed %d: stored (-there +stored):\n%s%s", seed, diff, w.story())
		}
		for what, n := range w.seen {
			seen[what] += n
		}
	}
	for _, what := range []string{"live list", "event during a live list", "list", "late claim", "two readers"} {
		if seen[what] < 100 {
			t.Errorf("%q happened %d times only", what, seen[what])
		}
	}
}

// setWorld is an API server with ReplicaSets of one Deployment, its watch, a claim and a reader.
type setWorld struct {
	*rand.Rand
	telling

	store *objects[*setRecord]
	feed  *feed[*metav1.PartialObjectMetadata, *setRecord]
	seen  map[string]int

	now    int               // the newest resource version
	server map[string]string // versioned name of each object, by name
	lives  map[string]int    // how often each object was deleted, by name
	events []setEvent        // not delivered yet

	claimed, unreleased bool
	// listing are the objects of the list that is under way, and listedAt its version; -1 for none.
	listing  []any
	unlisted []*metav1.PartialObjectMetadata
	listedAt int

	triggered bool
	lastRead  []string
	// reads ends the live lists that are under way.
	reads       []func()
	reconciling bool
}

type setEvent struct {
	set     *metav1.PartialObjectMetadata
	deleted bool
}

func newSetWorld(r *rand.Rand) *setWorld {
	w := &setWorld{Rand: r, server: map[string]string{}, lives: map[string]int{}, seen: map[string]int{}, listedAt: -1}
	w.store = newObjects[*setRecord](func(d types.NamespacedName) bool { return d == web && w.claimed })
	w.feed = &feed[*metav1.PartialObjectMetadata, *setRecord]{
		objects: w.store, claims: w, deploymentOf: deploymentOfSet, read: newSetRecord, synced: func() {},
		changed: func(c change[*setRecord]) { w.triggered = w.triggered || c.deployment == web && w.claimed },
	}
	w.begin()
	w.end()
	return w
}

// IsClaimed, AllClaimed and HasSynced implement Claims.
func (w *setWorld) IsClaimed(d types.NamespacedName) bool { return w.store.claimed(d) }

func (w *setWorld) AllClaimed(context.Context, string) ([]types.NamespacedName, error) {
	if w.claimed {
		return []types.NamespacedName{web}, nil
	}
	return nil, nil
}

func (w *setWorld) HasSynced() bool { return true }

// telling remembers what has happened, for a test that fails.
type telling struct{ told []string }

func (w *telling) tell(format string, args ...any) {
	w.told = append(w.told, fmt.Sprintf(format, args...))
}

func (w *telling) story() string { return strings.Join(w.told, "\n") }

// act does one of the things that may happen next.
func (w *setWorld) act() {
	switch w.IntN(12) {
	case 0, 1:
		w.write(strconv.Itoa(w.IntN(4)))
	case 2:
		w.remove(strconv.Itoa(w.IntN(4)))
	case 3, 4, 5:
		w.deliver()
	case 6:
		w.claim(!w.claimed)
	case 7:
		w.release()
	case 8:
		if w.listedAt < 0 {
			w.begin()
		} else {
			w.arrive()
		}
	case 9:
		if w.listedAt >= 0 {
			w.end()
		}
	case 10:
		w.read(w.IntN(3) > 0)
	case 11:
		if len(w.reads) > 0 {
			i := w.IntN(len(w.reads))
			finish := w.reads[i]
			w.reads = slices.Delete(w.reads, i, i+1)
			finish()
		}
	}
}

// rest lets all that is under way end, and the reader answer each trigger.
func (w *setWorld) rest() {
	if w.listedAt >= 0 {
		w.end()
	}
	for len(w.events) > 0 || w.unreleased || len(w.reads) > 0 || w.triggered && w.claimed {
		w.deliver()
		w.release()
		if w.triggered && w.claimed && len(w.reads) == 0 {
			w.read(true)
		}
		for _, finish := range w.reads {
			finish()
		}
		w.reads = nil
	}
}

func (w *setWorld) object(name string) *metav1.PartialObjectMetadata {
	set := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(fmt.Sprint(name, w.lives[name])), ResourceVersion: w.server[name]}}
	version, _ := strconv.Atoi(set.ResourceVersion)
	if owned := name != "3" && (name != "2" || version%2 == 0); owned { // the third changes its owner
		set.OwnerReferences = []metav1.OwnerReference{{Kind: "Deployment", Name: "web", Controller: ptr.To(true)}}
	}
	return set
}

// owned are the objects that belong to the Deployment.
func (w *setWorld) owned() (sets []*setRecord) {
	for _, name := range slices.Sorted(maps.Keys(w.server)) {
		if set := w.object(name); deploymentOfSet(set) == web {
			sets = append(sets, newSetRecord(set))
		}
	}
	return sets
}

func (w *setWorld) write(name string) {
	w.now++
	w.server[name] = strconv.Itoa(1000 + w.now)
	w.tell("write %s as %s", name, w.server[name])
	w.events = append(w.events, setEvent{set: w.object(name)})
}

func (w *setWorld) remove(name string) {
	if w.server[name] == "" {
		return
	}
	w.tell("delete %s", name)
	w.now++
	last := w.object(name)
	last.ResourceVersion = strconv.Itoa(1000 + w.now)
	w.events = append(w.events, setEvent{set: last, deleted: true})
	delete(w.server, name)
	w.lives[name]++
}

func (w *setWorld) deliver() {
	if len(w.events) == 0 || w.listedAt >= 0 {
		return // The list that is under way has all that was not delivered.
	}
	e := w.events[0]
	w.events = w.events[1:]
	w.tell("deliver %s %s, deleted: %t", e.set.Name, e.set.ResourceVersion, e.deleted)
	if len(w.reads) > 0 {
		w.seen["event during a live list"]++
	}
	if e.deleted {
		w.must(w.feed.Delete(e.set))
	} else {
		w.must(w.feed.Update(e.set))
	}
}

func (w *setWorld) claim(is bool) {
	w.tell("claimed: %t", is)
	if w.claimed = is; is {
		w.triggered = true // A new claim triggers a reconcile.
		if w.listedAt >= 0 {
			w.seen["late claim"]++
		}
	} else {
		w.unreleased, w.triggered = true, false
	}
}

func (w *setWorld) release() {
	if w.unreleased {
		w.tell("release")
		w.unreleased = false
		w.store.release(web)
	}
}

// begin, arrive and end list all objects, one after the other.
func (w *setWorld) begin() {
	w.tell("begin a list at %d", w.now)
	w.feed.begin(context.Background())
	w.listing, w.unlisted, w.listedAt, w.events = nil, nil, w.now, nil
	for _, name := range slices.Sorted(maps.Keys(w.server)) {
		w.unlisted = append(w.unlisted, w.object(name))
	}
}

func (w *setWorld) arrive() {
	if len(w.unlisted) == 0 {
		return
	}
	w.tell("list %s", w.unlisted[0].Name)
	shrunk, err := w.feed.Transformer()(w.unlisted[0])
	w.must(err)
	w.listing, w.unlisted = append(w.listing, shrunk), w.unlisted[1:]
}

func (w *setWorld) end() {
	for len(w.unlisted) > 0 {
		w.arrive()
	}
	w.tell("end the list")
	w.seen["list"]++
	w.must(w.feed.Replace(w.listing, strconv.Itoa(1000+w.listedAt)))
	w.listedAt = -1
}

// read reads as a reconcile does, or as the collector, which looks and is not triggered. A live list takes time.
func (w *setWorld) read(reconciles bool) {
	if !w.claimed || reconciles && w.reconciling {
		return
	}
	if reconciles {
		w.triggered, w.reconciling = false, true
	}
	done := func(got []string) {
		w.tell("read %v, reconciles: %t", got, reconciles)
		if reconciles {
			w.lastRead, w.reconciling = got, false
		}
	}
	answer, listed, resume := make(chan []string), make(chan struct{}), make(chan struct{})
	go func() {
		got, err := w.store.read(web, func() ([]*setRecord, string, error) {
			sets, version := w.owned(), strconv.Itoa(1000+w.now)
			w.tell("live list at %s", version)
			w.seen["live list"]++
			close(listed)
			<-resume
			return sets, version, nil
		})
		w.must(err)
		answer <- versions(got)
	}()
	select {
	case got := <-answer:
		done(got)
	case <-listed:
		if len(w.reads) > 0 {
			w.seen["two readers"]++
		}
		w.reads = append(w.reads, func() {
			close(resume)
			done(<-answer)
		})
	}
}

func (*setWorld) must(err error) {
	if err != nil {
		panic(err)
	}
}

func versions(sets []*setRecord) (out []string) {
	for _, set := range sets {
		out = append(out, set.resourceVersion)
	}
	slices.Sort(out)
	return out
}
