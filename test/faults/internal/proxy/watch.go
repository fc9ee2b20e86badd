// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

type disturbance int

const (
	pass disturbance = iota
	hold
	drop
	reorder
	lag
	gone
	end
)

// WatchFault is what happens to the events of watches. The first events of a watch, which stand
// for a list, are always delivered.
type WatchFault struct {
	kind     disturbance
	versions int
}

// Hold delivers no event until Release, which delivers all.
func Hold() WatchFault { return WatchFault{kind: hold} }

// Drop delivers no event until Release. Release ends the watch with 410 Gone, so that the operator
// lists again: an API server that loses events does so.
func Drop() WatchFault { return WatchFault{kind: drop} }

// Reorder swaps every two events until Release, unless they are of one object: no API server
// delivers those in another order.
func Reorder() WatchFault { return WatchFault{kind: reorder} }

// Lag delivers each event only after that many later ones, until Release: so does an API server
// whose watch cache lags. Its reads of single objects do not lag: they come from etcd.
func Lag(versions int) WatchFault { return WatchFault{kind: lag, versions: versions} }

// Gone ends the watches with 410 Gone, once.
func Gone() WatchFault { return WatchFault{kind: gone} }

// End ends the watches without an error, once.
func End() WatchFault { return WatchFault{kind: end} }

// String is the fault's part in the name of a run: "held", "late".
func (f WatchFault) String() string {
	return [...]string{pass: "untouched", hold: "held", drop: "dropped", reorder: "swapped", lag: "late", gone: "gone", end: "ended"}[f.kind]
}

// order is a fault that was given at some time. Faults that happen once are obeyed by watches that
// are older.
type order struct {
	WatchFault

	number int
}

// watches holds the orders for all watches.
type watches struct {
	mu      sync.Mutex
	orders  map[string]order // by resource; "" for all resources without an order
	number  int
	changed chan struct{} // closed at the next change of the orders
	events  int
}

func newWatches() *watches {
	return &watches{orders: map[string]order{}, changed: make(chan struct{})}
}

func (w *watches) set(resource string, fault WatchFault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.number++
	w.orders[resource] = order{fault, w.number}
	w.announce()
}

func (w *watches) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.orders)
	w.announce()
}

func (w *watches) announce() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// current is the order for a resource, and a channel that is closed when orders change.
func (w *watches) current(resource string) (order, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.orders[resource]
	if !ok {
		o = w.orders[""]
	}
	return o, w.changed
}

func (w *watches) injected() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events++
}

func (w *watches) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events
}

// stream is one watch.
type stream struct {
	watches  *watches
	resource string
	since    int // orders up to this number were given before the watch began
	out      *io.PipeWriter
	listed   bool // the events that stand for a list were delivered
	held     [][]byte
	dropped  bool
}

// follow returns the body of a watch with faults.
func (w *watches) follow(r *http.Request, resource string, upstream io.ReadCloser) io.ReadCloser {
	reader, writer := io.Pipe()
	w.mu.Lock()
	s := &stream{watches: w, resource: resource, since: w.number, out: writer, listed: r.URL.Query().Get("sendInitialEvents") != "true"}
	w.mu.Unlock()
	lines := make(chan []byte)
	ctx := r.Context()
	go readLines(ctx, upstream, lines)
	go func() {
		s.run(ctx, lines)
		_ = upstream.Close() // it has nothing more to say
		_ = writer.Close()
	}()
	return reader
}

func readLines(ctx context.Context, upstream io.Reader, lines chan<- []byte) {
	defer close(lines)
	reader := bufio.NewReader(upstream)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return // a watch that ends in an event is as good as one that ends before
		}
		select {
		case lines <- line:
		case <-ctx.Done():
			return
		}
	}
}

// run delivers events until the watch ends.
func (s *stream) run(ctx context.Context, lines <-chan []byte) {
	for {
		o, changed := s.watches.current(s.resource)
		if (o.kind == gone || o.kind == end) && o.number > s.since || o.kind != drop && s.dropped {
			s.watches.injected()
			if o.kind != end {
				_, _ = s.out.Write(expired())
			}
			return
		}
		if o.kind == pass && !s.flush(0) {
			return
		}
		select {
		case line, ok := <-lines:
			if !ok || !s.take(o.WatchFault, line) {
				s.flush(0)
				return
			}
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// take delivers an event or keeps it. It returns false if the operator has gone.
func (s *stream) take(fault WatchFault, line []byte) bool {
	if !s.listed {
		s.listed = bytes.Contains(line, []byte(metav1.InitialEventsAnnotationKey))
		return s.deliver(line)
	}
	switch fault.kind {
	case hold:
		s.watches.injected()
		s.held = append(s.held, line)
		return true
	case drop:
		s.watches.injected()
		s.dropped = true
		return true
	case lag:
		s.watches.injected()
		s.held = append(s.held, line)
		return s.flush(fault.versions)
	case reorder:
		return s.swap(line)
	default:
		return s.flush(0) && s.deliver(line)
	}
}

// swap delivers an event before the one that it follows.
func (s *stream) swap(line []byte) bool {
	if len(s.held) == 0 {
		s.held = append(s.held, line)
		return true
	}
	if object(line) == object(s.held[0]) {
		return s.flush(0) && s.deliver(line)
	}
	s.watches.injected()
	return s.deliver(line) && s.flush(0)
}

// flush delivers the events that were kept, except that many of the newest.
func (s *stream) flush(keep int) bool {
	for len(s.held) > keep {
		if !s.deliver(s.held[0]) {
			return false
		}
		s.held = s.held[1:]
	}
	return true
}

func (s *stream) deliver(line []byte) bool {
	_, err := s.out.Write(line)
	return err == nil
}

// object is the UID of an event's object. Bookmarks have none.
func object(line []byte) types.UID {
	var event struct {
		Object struct {
			Metadata struct {
				UID types.UID `json:"uid"`
			} `json:"metadata"`
		} `json:"object"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return ""
	}
	return event.Object.Metadata.UID
}

// expired is the event of an API server that no longer has the version that the watch is at.
func expired() []byte {
	return fmt.Appendf(nil, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",`+
		`"message":"too old resource version (by the fault proxy)","reason":"Expired","code":%d}}`+"\n", http.StatusGone)
}
