// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package proxy_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/test/faults/internal/proxy"
)

const (
	resize = "/api/v1/namespaces/shop/pods/web-0/resize"
	status = "/apis/autoscaling.verticalscaler.io/v1beta1/namespaces/shop/verticalscalers/web/status"
)

// scene is a proxy between a client and an API server that answers every write with 200.
type scene struct {
	*testing.T
	*proxy.Proxy
	client *http.Client
	url    string
	events chan string // of watches

	mu   sync.Mutex
	seen []string // the writes that the API server has got
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{T: t, events: make(chan string)}
	upstream := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(upstream.Close)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "usage") })
	var err error
	if s.Proxy, err = proxy.Start(&rest.Config{Host: upstream.URL}, metrics); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	s.url = config.Host
	if s.client, err = rest.HTTPClientFor(config); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *scene) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") != "true" {
		s.mu.Lock()
		s.seen = append(s.seen, r.URL.Path)
		s.mu.Unlock()
		return
	}
	w.(http.Flusher).Flush()
	for {
		select {
		case event := <-s.events:
			_, _ = io.WriteString(w, event+"\n")
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// patch sends a write and returns the code of its answer; 0 if there is none.
func (s *scene) patch(path string) int {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodPatch, s.url+path, strings.NewReader("{}"))
	if err != nil {
		s.Fatal(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close() //nolint:errcheck // only the code counts
	return response.StatusCode
}

// get sends a read.
func (s *scene) get(path string) *http.Response {
	s.Helper()
	request, err := http.NewRequestWithContext(s.Context(), http.MethodGet, s.url+path, http.NoBody)
	if err != nil {
		s.Fatal(err)
	}
	response, err := s.client.Do(request)
	if err != nil {
		s.Fatal(err)
	}
	return response
}

func (s *scene) stored() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.seen)
}

// injects waits until that many faults were injected.
func (s *scene) injects(n int) {
	s.Helper()
	testkit.Eventually(s.T, time.Minute, func() string {
		if now := s.Injected() + s.Events(); now != n {
			return fmt.Sprintf("%d faults were injected, not %d", now, n)
		}
		return ""
	})
}

func TestAFaultHitsTheNthWriteOfItsKind(t *testing.T) {
	for _, test := range []struct {
		fault proxy.Fault
		codes []int // of a resize, a status, a resize, a status
		// stored is how many writes the API server gets.
		stored, injected int
	}{
		{proxy.Fault{N: 2, Action: proxy.RefuseBefore(409)}, []int{200, 409, 200, 200}, 3, 1},
		{proxy.Fault{Kind: "patch pods/resize", N: 2, Action: proxy.RefuseBefore(429)}, []int{200, 200, 429, 200}, 3, 1},
		{proxy.Fault{Every: 2, Action: proxy.RefuseBefore(500)}, []int{200, 500, 200, 500}, 2, 2},
		{proxy.Fault{Every: 2, Last: 2, Action: proxy.RefuseBefore(500)}, []int{200, 500, 200, 200}, 3, 1},
		{proxy.Fault{Action: proxy.RefuseBefore(503)}, []int{503, 503, 503, 503}, 0, 4},
		{proxy.Fault{N: 1, Action: proxy.LoseReply()}, []int{0, 200, 200, 200}, 4, 1},
		{proxy.Fault{N: 1, Action: proxy.Cut()}, []int{0, 200, 200, 200}, 3, 1},
		{proxy.Fault{N: 3, Action: proxy.KillBefore()}, []int{200, 200, 0, 200}, 3, 1},
		{proxy.Fault{N: 3, Action: proxy.KillAfter()}, []int{200, 200, 0, 200}, 4, 1},
	} {
		t.Run(fmt.Sprintf("%s %+v", test.fault.Action, test.fault), func(t *testing.T) {
			s := newScene(t)
			kills := 0
			s.OnKill(func() { kills++ })
			s.Plan(test.fault)
			var codes []int
			for _, path := range []string{resize, status, resize, status} {
				codes = append(codes, s.patch(path))
			}
			if !slices.Equal(codes, test.codes) {
				t.Errorf("the operator gets %d, not %d", codes, test.codes)
			}
			if s.stored() != test.stored || s.Injected() != test.injected {
				t.Errorf("%d writes are stored and %d faults injected, not %d and %d", s.stored(), s.Injected(), test.stored, test.injected)
			}
			if want := test.fault.Action.Kills(); kills == 1 != want {
				t.Errorf("the operator was killed %d times", kills)
			}
			if writes := s.Writes(); len(writes) != 4 || writes[1].Kind() != "patch verticalscalers/status" || writes[0].Name != "web-0" {
				t.Errorf("the record is %v", writes)
			}
		})
	}
}

func TestEventsAndLeasesAreNotCounted(t *testing.T) {
	s := newScene(t)
	s.Plan(proxy.Fault{N: 1, Action: proxy.RefuseBefore(409)})
	for path, want := range map[string]int{
		"/apis/events.k8s.io/v1/namespaces/shop/events/web.1":         200,
		"/apis/coordination.k8s.io/v1/namespaces/shop/leases/manager": 200,
	} {
		if code := s.patch(path); code != want {
			t.Errorf("%s is answered with %d", path, code)
		}
	}
	if code := s.patch(resize); code != 409 {
		t.Errorf("the first write is answered with %d", code)
	}
}

func TestAWriteWaitsUntilItIsReleased(t *testing.T) {
	s := newScene(t)
	s.Plan(proxy.Fault{N: 1, Action: proxy.Delay(0)})
	answer := make(chan int)
	go func() { answer <- s.patch(resize) }()
	s.injects(1)
	if s.stored() != 0 {
		t.Error("the write is passed on at once")
	}
	s.Release()
	if code := <-answer; code != 200 || s.stored() != 1 {
		t.Errorf("after the release, the answer is %d", code)
	}
	s.Plan(proxy.Fault{N: 1, Action: proxy.Hang()})
	go func() { answer <- s.patch(resize) }()
	s.injects(1)
	s.Release()
	if code := <-answer; code != 0 || s.stored() != 1 {
		t.Errorf("the answer to a hung write is %d", code)
	}
}

// watch starts a watch of pods and returns its next line.
func (s *scene) watch(query string) (next func() string) {
	s.Helper()
	response := s.get("/api/v1/namespaces/shop/pods?watch=true" + query)
	s.Cleanup(func() { response.Body.Close() }) //nolint:errcheck // only read
	lines := bufio.NewScanner(response.Body)
	return func() string {
		if !lines.Scan() {
			return "end"
		}
		return lines.Text()
	}
}

func event(uid string, version int) string {
	return fmt.Sprintf(`{"type":"MODIFIED","object":{"metadata":{"uid":%q,"resourceVersion":"%d"}}}`, uid, version)
}

func TestWatchFaults(t *testing.T) {
	bookmark := `{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"}}}}`
	a, b, c, d := event("a", 1), event("b", 2), event("b", 3), event("a", 4)
	for name, test := range map[string]struct {
		query    string
		fault    proxy.WatchFault
		sent     []string
		want     []string // before Release
		released []string
		injected int // before Release
	}{
		"no fault":                {fault: proxy.WatchFault{}, sent: []string{a, b}, want: []string{a, b}},
		"held":                    {fault: proxy.Hold(), sent: []string{a, b}, released: []string{a, b}, injected: 2},
		"held after the list":     {query: "&sendInitialEvents=true", fault: proxy.Hold(), sent: []string{a, bookmark, b}, want: []string{a, bookmark}, released: []string{b}, injected: 1},
		"late by two":             {fault: proxy.Lag(2), sent: []string{a, b, c}, want: []string{a}, released: []string{b, c}, injected: 3},
		"two objects are swapped": {fault: proxy.Reorder(), sent: []string{a, b}, want: []string{b, a}, injected: 1},
		"one object is not":       {fault: proxy.Reorder(), sent: []string{b, c}, want: []string{b, c}},
		"dropped":                 {fault: proxy.Drop(), sent: []string{a, d}, released: []string{"410", "end"}, injected: 2},
		"gone":                    {fault: proxy.Gone(), want: []string{"410", "end"}, injected: 1},
		"ended":                   {fault: proxy.End(), want: []string{"end"}, injected: 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			next := s.watch(test.query)
			s.FaultWatches("pods", test.fault)
			for _, event := range test.sent {
				s.events <- event
			}
			expect := func(when string, want []string) {
				for _, line := range want {
					got := next()
					if line == "410" && strings.Contains(got, `"code":410`) {
						continue
					}
					if got != line {
						t.Errorf("%s, the operator gets %s, not %s", when, got, line)
					}
				}
			}
			expect("before", test.want)
			s.injects(test.injected)
			s.Release()
			expect("after the release", test.released)
		})
	}
}
