// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func in(namespace string, i int) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}}
}

// referee checks the promises of an order while it is used.
type referee struct {
	*order
	pop func() reconcile.Request

	known map[reconcile.Request]*wait
	rows  map[rowOf][]reconcile.Request
	// passed are, by class, the requests of others in a row while the class waits. below are the requests
	// in a row that were of a lower class than the highest that waits.
	passed [classes]int
	below  int
}

// rowOf names the requests of a class in a namespace.
type rowOf struct {
	class     Class
	namespace string
}

// wait is what has happened since a request was put into its row.
type wait struct {
	row rowOf
	// place is 1 for the first of the row.
	place int
	// servings are all requests served since. inClass are those of its class, by namespace.
	servings int
	inClass  map[string]int
	// rivals are the namespaces that had requests in its class.
	rivals map[string]bool
}

func newReferee() *referee {
	o := newOrder()
	return &referee{order: o, pop: o.Pop, known: map[reconcile.Request]*wait{}, rows: map[rowOf][]reconcile.Request{}}
}

// add adds a request as the workqueue does.
func (r *referee) add(request reconcile.Request, class Class) {
	r.announce(request, class)
	before := r.known[request]
	if before == nil {
		r.Push(request)
	} else {
		r.Touch(request)
		if before.row.class >= class {
			return
		}
		r.leave(request)
	}
	row := rowOf{class, request.Namespace}
	r.rows[row] = append(r.rows[row], request)
	w := &wait{row: row, place: len(r.rows[row]), inClass: map[string]int{}, rivals: map[string]bool{}}
	for other := range r.rows {
		if other.class == class {
			w.rivals[other.namespace] = true
		}
	}
	for _, other := range r.known {
		if other.row.class == class {
			other.rivals[request.Namespace] = true
		}
	}
	r.known[request] = w
}

func (r *referee) leave(request reconcile.Request) {
	row := r.known[request].row
	r.rows[row] = slices.DeleteFunc(r.rows[row], func(other reconcile.Request) bool { return other == request })
	if len(r.rows[row]) == 0 {
		delete(r.rows, row)
	}
	delete(r.known, request)
}

func (r *referee) waits(class Class) bool {
	for row := range r.rows {
		if row.class == class {
			return true
		}
	}
	return false
}

// serve serves one request, and says which promise that breaks.
func (r *referee) serve() (problem string) {
	highest := Urgent
	for !r.waits(highest) {
		highest--
	}
	request := r.pop()
	served := r.known[request]
	if served == nil {
		return fmt.Sprintf("%s was served, and does not wait", request)
	}
	if class := r.served(request); class != served.row.class {
		return fmt.Sprintf("%s was served with class %d, and waits with class %d", request, class, served.row.class)
	}
	if r.rows[served.row][0] != request {
		return fmt.Sprintf("%s was served, but %v wait in its namespace and class, in this order", request, r.rows[served.row])
	}
	if worst := served.place * len(served.rivals) * (patience + 3); served.servings+1 > worst {
		return fmt.Sprintf("%s, number %d of %d namespaces, was served as number %d, want at most %d", request, served.place, len(served.rivals), served.servings+1, worst)
	}
	r.leave(request)
	if problem := r.turn(request.Namespace, served.row.class); problem != "" {
		return problem
	}
	return r.age(served.row.class, highest)
}

// turn counts a request of a namespace for those that wait in the same class.
func (r *referee) turn(namespace string, class Class) (problem string) {
	for request, w := range r.known {
		w.servings++
		if w.row.class != class || w.row.namespace == namespace {
			continue
		}
		if w.inClass[namespace]++; w.inClass[namespace] > w.place {
			return fmt.Sprintf("%s, number %d of its namespace and class, waits for %d requests of namespace %s", request, w.place, w.inClass[namespace], namespace)
		}
	}
	return ""
}

// age counts a request of a class for the other classes that wait.
func (r *referee) age(served, highest Class) (problem string) {
	late := slices.Max(r.passed[:]) >= patience
	if served < highest && !late {
		return fmt.Sprintf("class %d was served although class %d waits, and none is late", served, highest)
	}
	if r.below++; served == highest {
		r.below = 0
	}
	if r.below > int(highest) {
		return fmt.Sprintf("class %d, the highest, waits for %d requests in a row", highest, r.below)
	}
	for class := range classes {
		if r.passed[class]++; class == served || !r.waits(class) {
			r.passed[class] = 0
		}
		if r.passed[class] > patience+int(class) {
			return fmt.Sprintf("class %d waits for %d requests in a row", class, r.passed[class])
		}
	}
	return ""
}

// FuzzOrder checks the promises of the order for any sequence of additions and servings. A byte from
// 160 on serves a request. Another one adds a request of its class to one of 8 namespaces, of which the
// first gets the most; the next byte is its name.
func FuzzOrder(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 3, 0, 255, 255, 2, 1, 255, 255, 255})
	f.Add([]byte("\x00\x00\x00\x01\x00\x02\x24\x01\x28\x01\xff\x03\x01\xff\xff\xff\xff\xff\xff\xff"))
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, seed))
		servings := 40 + 10*int(seed%12) // of 256 bytes: queues that grow, and queues that are nearly empty
		sequence := make([]byte, 3000)
		for i := range sequence {
			if sequence[i] = byte(random.IntN(160)); random.IntN(256) < servings {
				sequence[i] = 255
			}
		}
		f.Add(sequence)
	}
	f.Fuzz(func(t *testing.T, sequence []byte) {
		r := newReferee()
		for i := 0; i < len(sequence); i++ {
			b := sequence[i]
			if b >= 160 {
				if r.Len() > 0 {
					r.mustServe(t)
				}
				continue
			}
			if i++; i == len(sequence) {
				break
			}
			request := in(fmt.Sprintf("ns-%d", max(0, int(b/4%16)-8)), int(sequence[i]%8))
			r.add(request, Class(b%4))
		}
		for r.Len() > 0 {
			r.mustServe(t)
		}
		if len(r.known) > 0 {
			t.Fatalf("%d requests were never served", len(r.known))
		}
		for class := range r.classes {
			if n := r.classes[class].next.Len(); n > 0 || len(r.classes[class].rows) > 0 {
				t.Fatalf("class %d has %d turns and %d namespaces after all requests were served", class, n, len(r.classes[class].rows))
			}
		}
		if len(r.announced.known) > 0 || len(r.popped.known) > 0 {
			t.Fatalf("classes of %d and %d requests are left", len(r.announced.known), len(r.popped.known))
		}
	})
}

func (r *referee) mustServe(t *testing.T) {
	t.Helper()
	before := r.Len()
	if problem := r.serve(); problem != "" {
		t.Fatal(problem)
	}
	if r.Len() != before-1 {
		t.Fatalf("%d requests wait after one of %d was served", r.Len(), before)
	}
}

// All classes and 20 namespaces are never empty. Each class is served all the time, and the more urgent
// one more often, or as often.
func TestNobodyStarvesWhateverTheOthersDo(t *testing.T) {
	r := newReferee()
	n := 0
	storm := func() {
		for class := range classes {
			for ns := range 20 {
				if row := (rowOf{class, fmt.Sprint("ns-", ns)}); len(r.rows[row]) < 1+ns%3 {
					n++
					r.add(in(row.namespace, n), class)
				}
			}
		}
	}
	var share [classes]int
	for range 4000 {
		storm()
		waiting := map[reconcile.Request]Class{}
		for request, w := range r.known {
			waiting[request] = w.row.class
		}
		r.mustServe(t)
		for request, class := range waiting {
			if r.known[request] == nil {
				share[class]++
			}
		}
	}
	if least := 4000 / (patience + 3); share[Routine] < least || share[Workload] < least || share[Edit] < least {
		t.Errorf("the classes got %v of 4000 requests, want at least %d each", share, least)
	}
	if share[Urgent] < 2000 {
		t.Errorf("the urgent class got %d of 4000 requests, want more than half", share[Urgent])
	}
}

// One namespace has thousands of requests of all classes, and more all the time. A request of another
// namespace has its turn soon, whatever its class.
func TestAStormOfAllClassesDelaysNoOtherNamespace(t *testing.T) {
	for class := range classes {
		o := newOrder()
		add := func(request reconcile.Request, class Class) {
			o.announce(request, class)
			o.Push(request)
		}
		for i := range 4000 {
			add(in("storm", i), Class(i%4))
		}
		quiet := in("quiet", 0)
		add(quiet, class)
		// It has the second turn of its class, and a class has one of ten requests at least.
		worst, served := 2*(patience+3), false
		for n := 0; n < worst && !served; n++ {
			served = o.Pop() == quiet
			add(in("storm", 4000+n), Urgent)
		}
		if !served {
			t.Errorf("a request of class %d of the quiet namespace was not among the next %d", class, worst)
		}
	}
}

// Rules that break a promise must be noticed, or the checks would prove nothing.
func TestTheChecksNoticeOtherRules(t *testing.T) {
	for name, tc := range map[string]func(r *referee){
		"no ageing": func(r *referee) {
			r.pop = func() reconcile.Request { r.passedOver = [classes]int{}; return r.Pop() }
		},
		"the oldest first": func(r *referee) {
			r.pop = func() reconcile.Request {
				r.passedOver = [classes]int{patience}
				return r.Pop()
			}
		},
		"no turns": func(r *referee) {
			r.pop = func() reconcile.Request {
				request := r.Pop()
				for class := range r.classes { // a namespace that had a turn has the next one, too
					if row := r.classes[class].rows[request.Namespace]; row != nil {
						r.classes[class].next.MoveToFront(row.turn)
					}
				}
				return request
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReferee()
			tc(r)
			n, problem := 0, ""
			for i := 0; i < 200 && problem == ""; i++ {
				for class := range classes {
					for _, ns := range []string{"storm", "storm", "quiet"} {
						n++
						r.add(in(ns, n), class)
					}
				}
				problem = r.serve()
			}
			if problem == "" {
				t.Error("nothing was noticed")
			}
		})
	}
}

// An OOM kill is the next request, however many requests of 50 uneven namespaces wait before it.
func TestAnUrgentRequestIsNextInAFullQueue(t *testing.T) {
	var routine []reconcile.Request
	for ns := 0; len(routine) < 5000; ns = (ns + 1) % 50 {
		for range 1 + ns*ns/20 { // namespace 49 has 121 times as many as namespace 0
			routine = append(routine, in(fmt.Sprint("ns-", ns), len(routine)))
		}
	}
	for name, kill := range map[string]reconcile.Request{
		"of a scaler that waits already, in the middle of the largest namespace": in("ns-49", 2500),
		"of another namespace": in("bank", 1),
	} {
		for _, passed := range []int{0, 1, patience - 1, patience, 1000} {
			o := newOrder()
			for _, request := range routine {
				o.Push(request)
			}
			for range passed {
				o.Pop()
			}
			o.announce(kill, Urgent)
			if _, waits := o.waiting[kill]; waits {
				o.Touch(kill)
			} else {
				o.Push(kill)
			}
			if got := o.Pop(); got != kill {
				t.Errorf("after %d requests, the kill %s is not next: %s is", passed, name, got)
			}
		}
	}
}

// A namespace that has nothing to do must not stay in memory.
func TestAnEmptyNamespaceIsForgotten(t *testing.T) {
	o := newOrder()
	for i := range 100 {
		for class := range classes {
			request := in(fmt.Sprintf("ns-%d", i), int(class))
			o.announce(request, Routine)
			o.Push(request)
			o.announce(request, class)
			o.Touch(request)
		}
		for o.Len() > 0 {
			o.served(o.Pop())
		}
	}
	for class := range o.classes {
		if n := len(o.classes[class].rows) + o.classes[class].next.Len(); n != 0 {
			t.Errorf("%d namespaces and turns of class %d are left", n, class)
		}
	}
	if n := len(o.waiting) + len(o.popped.known) + len(o.announced.known); n != 0 {
		t.Errorf("%d requests are left", n)
	}
}
