// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package metricsapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// list wraps items into an answer.
func list(items ...string) string {
	return `{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":[` + strings.Join(items, ",") + `]}`
}

// pod is an item as metrics-server writes it, 20 s before noon, with the containers given.
func pod(name string, containers ...string) string {
	return podAt(name, "2026-03-01T11:59:40Z", "15.034s", containers...)
}

func podAt(name, timestamp, window string, containers ...string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"shop","labels":{"a":"b"}},"timestamp":%q,"window":%q,"containers":[%s]}`,
		name, timestamp, window, strings.Join(containers, ","))
}

// container has quantities as JSON, so that they can be anything.
func container(name, cpu, memory string) string {
	return fmt.Sprintf(`{"name":%q,"usage":{"cpu":%s,"memory":%s}}`, name, cpu, memory)
}

func good(name string) string { return container(name, `"250m"`, `"400Mi"`) }

// sample is the sample of a good item.
func sample(pod, container string) usage.Sample {
	return usage.Sample{
		Namespace: "shop", Pod: pod, Container: container, Time: noon.Add(-20 * time.Second),
		Window: 15034 * time.Millisecond, CPUMillis: 250, MemoryBytes: 400 << 20,
	}
}

// decode reads the response of a namespace.
func decode(body string) (usage.Answer, error) {
	d := newDecoder(&bounded{stream: strings.NewReader(body), most: defaultMaxBytes}, []string{"shop"}, noon, maxItems)
	err := d.list()
	return d.wanted["shop"].Answer, err
}

func TestDecode(t *testing.T) {
	with := func(cpuMillis, memoryBytes int64) []usage.Sample {
		s := sample("web-1", "app")
		s.CPUMillis, s.MemoryBytes = cpuMillis, memoryBytes
		return []usage.Sample{s}
	}
	app := func(cpu, memory string) string { return list(pod("web-1", container("app", cpu, memory))) }
	refused := func(why usage.Refusal) []usage.Refused {
		return []usage.Refused{{Pod: "web-1", Container: "app", Why: why}}
	}
	refusedPod := func(why usage.Refusal) []usage.Refused { return []usage.Refused{{Pod: "web-1", Why: why}} }

	cases := map[string]struct {
		body    string
		samples []usage.Sample
		refused []usage.Refused
	}{
		"an empty list is empty":              {body: list()},
		"a list of null is empty":             {body: `{"kind":"PodMetricsList","items":null}`},
		"a pod without containers is skipped": {body: list(pod("web-1"))},
		"each container is a sample": {
			body:    list(pod("web-1", good("app"), good("proxy")), pod("web-2", good("app"))),
			samples: []usage.Sample{sample("web-1", "app"), sample("web-1", "proxy"), sample("web-2", "app")},
		},

		// Quantities.
		"nanocores are rounded up":       {body: app(`"12345678n"`, `"1Ki"`), samples: with(13, 1024)},
		"a nanocore is a millicore":      {body: app(`"1n"`, `"1"`), samples: with(1, 1)},
		"microcores are rounded up":      {body: app(`"1500u"`, `"1k"`), samples: with(2, 1000)},
		"numbers need no quotes":         {body: app(`2`, `1048576`), samples: with(2000, 1<<20)},
		"parts of a byte are rounded up": {body: app(`"0.5"`, `"1500m"`), samples: with(500, 2)},
		"nothing used is a sample":       {body: app(`"0"`, `"0"`), samples: with(0, 0)},
		"the most that is believed":      {body: app(`"10k"`, `"1Pi"`), samples: with(10_000_000, 1<<50)},
		"an exponent is a quantity":      {body: app(`"1e3"`, `"1E6"`), samples: with(1_000_000, 1_000_000)},
		"exa is not an exponent":         {body: app(`"1"`, `"1E"`), refused: refused(usage.TooLarge)},
		"more than 10,000 cores":         {body: app(`"10000001m"`, `"1Mi"`), refused: refused(usage.TooLarge)},
		"more than 1 PiB":                {body: app(`"1"`, `"1125899906842625"`), refused: refused(usage.TooLarge)},
		"1e18 cores, which read as 0":    {body: app(`"1e18"`, `"1Mi"`), refused: refused(usage.TooLarge)},
		"1e999 cores, which read as 0":   {body: app(`"1e999"`, `"1Mi"`), refused: refused(usage.TooLarge)},
		"an exponent that takes minutes": {body: app(`"1e100000000"`, `"1Mi"`), refused: refused(usage.TooLarge)},
		"negative CPU":                   {body: app(`"-1m"`, `"1Mi"`), refused: refused(usage.Negative)},
		"negative memory":                {body: app(`"1m"`, `"-1"`), refused: refused(usage.Negative)},
		"a negative nanocore":            {body: app(`"-1n"`, `"1Mi"`), refused: refused(usage.Negative)},
		"NaN":                            {body: app(`"NaN"`, `"1Mi"`), refused: refused(usage.NotANumber)},
		"infinity":                       {body: app(`"+Inf"`, `"1Mi"`), refused: refused(usage.NotANumber)},
		"minus infinity":                 {body: app(`"1m"`, `"-inf"`), refused: refused(usage.NotANumber)},
		"words":                          {body: app(`"a lot"`, `"1Mi"`), refused: refused(usage.Malformed)},
		"an unknown suffix":              {body: app(`"1m"`, `"1MB"`), refused: refused(usage.Malformed)},
		"an empty quantity":              {body: app(`""`, `"1Mi"`), refused: refused(usage.Malformed)},
		"a quantity of null":             {body: app(`null`, `"1Mi"`), refused: refused(usage.Malformed)},
		"a quantity that is an object":   {body: app(`{}`, `"1Mi"`), refused: refused(usage.Malformed)},
		"an endless quantity":            {body: app(`"`+strings.Repeat("1", 1000)+`"`, `"1Mi"`), refused: refused(usage.Malformed)},
		"one bad quantity costs no other": {
			body:    list(pod("web-1", container("app", `"NaN"`, `"1Mi"`), good("proxy")), pod("web-2", good("app"))),
			samples: []usage.Sample{sample("web-1", "proxy"), sample("web-2", "app")},
			refused: refused(usage.NotANumber),
		},

		// Containers.
		"a container without CPU":      {body: list(pod("web-1", `{"name":"app","usage":{"memory":"1Mi"}}`)), refused: refused(usage.Malformed)},
		"a container without memory":   {body: list(pod("web-1", `{"name":"app","usage":{"cpu":"1m"}}`)), refused: refused(usage.Malformed)},
		"a container without usage":    {body: list(pod("web-1", `{"name":"app"}`)), refused: refused(usage.Malformed)},
		"usage that is not an object":  {body: list(pod("web-1", `{"name":"app","usage":7}`)), refused: refusedPod(usage.Malformed)},
		"a container without a name":   {body: list(pod("web-1", good(""))), refused: refusedPod(usage.Malformed)},
		"an overlong container name":   {body: list(pod("web-1", good(strings.Repeat("a", 64)))), refused: refusedPod(usage.Malformed)},
		"a container that is a number": {body: list(pod("web-1", `7`)), refused: refusedPod(usage.Malformed)},
		"the second of two containers": {
			body:    list(pod("web-1", good("app"), container("app", `"9"`, `"9Gi"`))),
			samples: []usage.Sample{sample("web-1", "app")}, refused: refused(usage.Duplicate),
		},

		// Pods.
		"a pod that is null":         {body: list(`null`)},
		"a pod that is a number":     {body: list(`7`)},
		"a pod without a name":       {body: list(pod("", good("app"))), refused: []usage.Refused{{Why: usage.Malformed}}},
		"an overlong pod name":       {body: list(pod(strings.Repeat("a", 254), good("app"))), refused: []usage.Refused{{Why: usage.Malformed}}},
		"a pod of another namespace": {body: list(strings.Replace(pod("web-1", good("app")), "shop", "bank", 1))},
		"containers that are no list": {
			body:    list(strings.Replace(pod("web-1"), "[]", `"none"`, 1)),
			refused: refusedPod(usage.Malformed),
		},
		"the second of two pods": {
			body:    list(pod("web-1", good("app")), pod("web-1", good("proxy"))),
			samples: []usage.Sample{sample("web-1", "app")}, refused: refusedPod(usage.Duplicate),
		},

		// Times.
		"a time that is none":     {body: list(podAt("web-1", "noon", "15s", good("app"))), refused: refusedPod(usage.Malformed)},
		"no time":                 {body: list(podAt("web-1", "", "15s", good("app"))), refused: refusedPod(usage.Malformed)},
		"a sample of yesterday":   {body: list(podAt("web-1", "2026-02-28T12:00:00Z", "15s", good("app"))), refused: refusedPod(usage.Stale)},
		"a sample of the year 1":  {body: list(podAt("web-1", "0001-01-01T00:00:00Z", "15s", good("app"))), refused: refusedPod(usage.Stale)},
		"a second too old":        {body: list(podAt("web-1", "2026-03-01T11:54:59Z", "15s", good("app"))), refused: refusedPod(usage.Stale)},
		"two minutes ahead":       {body: list(podAt("web-1", "2026-03-01T12:02:00Z", "15s", good("app"))), refused: refusedPod(usage.FromTheFuture)},
		"in the year 9999":        {body: list(podAt("web-1", "9999-12-31T23:59:59Z", "15s", good("app"))), refused: refusedPod(usage.FromTheFuture)},
		"no window":               {body: list(podAt("web-1", "2026-03-01T11:59:40Z", "", good("app"))), refused: refusedPod(usage.Malformed)},
		"a window of nothing":     {body: list(podAt("web-1", "2026-03-01T11:59:40Z", "0s", good("app"))), refused: refusedPod(usage.BadWindow)},
		"a window that runs back": {body: list(podAt("web-1", "2026-03-01T11:59:40Z", "-15s", good("app"))), refused: refusedPod(usage.BadWindow)},
		"a window of two hours":   {body: list(podAt("web-1", "2026-03-01T11:59:40Z", "2h", good("app"))), refused: refusedPod(usage.BadWindow)},
		"another time zone is the same moment": {
			body:    list(podAt("web-1", "2026-03-01T13:59:40+02:00", "15.034s", good("app"))),
			samples: []usage.Sample{sample("web-1", "app")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := decode(tc.body)
			must.Succeed(t, err)
			assert.Equal(t, "usage", usage.Answer{Samples: tc.samples, Refused: tc.refused}, got, cmpopts.IgnoreFields(usage.Refused{}, "Time"))
			for _, r := range got.Refused {
				if (r.Why == usage.Stale || r.Why == usage.FromTheFuture) && !strings.Contains(tc.body, r.Time.Format(time.RFC3339)) {
					t.Errorf("%s is refused with the time %s", r.Pod, r.Time)
				}
			}
		})
	}
}

func TestDecodeRefusesWhatIsNoList(t *testing.T) {
	cases := map[string]string{
		"nothing":               ``,
		"HTML":                  `<html>`,
		"half a list":           list(pod("web-1", good("app")))[:200],
		"something after it":    list() + `x`,
		"a Status":              `{"kind":"Status","status":"Failure"}`,
		"a list of other items": `{"kind":"NodeMetricsList","items":[]}`,
		"items that are none":   `{"kind":"PodMetricsList","items":7}`,
		"depth without end":     strings.Repeat("[", 100_000),
	}
	for name, body := range cases {
		t.Run(name, func(t *testing.T) {
			if got, err := decode(body); err == nil {
				t.Errorf("decode() = %v, want an error", got)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(list(pod("web-1", good("app"), container("proxy", `"NaN"`, `-1`)), pod("web-1"), `7`))
	f.Add(list(podAt("web-1", "2026-03-01T11:59:40Z", "15s", container("app", `"1e18"`, `"0.1n"`))))
	f.Fuzz(func(t *testing.T, body string) {
		got, _ := decode(body)
		seen := map[string]bool{}
		for _, s := range got.Samples {
			key := s.Pod + "/" + s.Container
			age := noon.Sub(s.Time)
			if seen[key] || s.Namespace != "shop" || s.Pod == "" || s.Container == "" ||
				age > 5*time.Minute || age < -time.Minute || s.Window <= 0 || s.Window > time.Hour ||
				s.CPUMillis < 0 || s.CPUMillis > 10_000_000 || s.MemoryBytes < 0 || s.MemoryBytes > 1<<50 {
				t.Errorf("an invalid sample: %+v", s)
			}
			seen[key] = true
		}
	})
}

// serve answers all requests, and returns a source that asks there.
func serve(t *testing.T, answer http.HandlerFunc) *Source {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	source, err := New(&rest.Config{Host: server.URL})
	must.Succeed(t, err)
	return source
}

func TestListErrors(t *testing.T) {
	status := func(code int, reason string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(map[string]any{
				"kind": "Status", "apiVersion": "v1", "status": "Failure",
				"reason": reason, "code": code, "message": "the server says " + reason,
			})
		}
	}
	cases := map[string]struct {
		answer      http.HandlerFunc
		namespace   string
		prepare     func(*Source)
		unavailable bool
		want        string // part of the message
	}{
		"an API that nobody registered is unavailable": {
			answer: http.NotFound, unavailable: true, want: "could not find the requested resource",
		},
		"an API whose server is down is unavailable": {
			answer: status(503, "ServiceUnavailable"), unavailable: true, want: "the server says ServiceUnavailable",
		},
		"a plain 503 of the aggregator is unavailable": {
			answer: func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, "service unavailable", http.StatusServiceUnavailable)
			}, unavailable: true, want: "unable to handle the request",
		},
		"a missing right is not": {
			answer: status(403, "Forbidden"), want: "the server says Forbidden",
		},
		"an internal error is not": {
			answer: status(500, "InternalError"), want: "the server says InternalError",
		},
		"a body that is no list": {
			answer: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, want: "decoding it",
		},
		"a body that is too long": {
			answer:  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, list(pod("web-1", good("app")))) },
			prepare: func(s *Source) { s.maxBytes = 100 }, want: "longer than 100 bytes",
		},
		"a body of endless white space": {
			answer: func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, `{"items":[`+strings.Repeat(" ", 2*maxPart))
			}, want: "a part of it is longer",
		},
		"a pod that is too long": {
			answer: func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, list(pod("web-1", good("app")), pod(strings.Repeat("a", 2*maxPart))))
			}, want: "a part of it is longer",
		},
		"more pods than there can be": {
			answer: func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprint(w, list(slices.Repeat([]string{`{"metadata":{"namespace":"shop"}}`}, maxItems+1)...))
			}, want: "too many items",
		},
		"a server that never answers": {
			answer:  func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			prepare: func(s *Source) { s.timeout = 20 * time.Millisecond }, want: "context deadline exceeded",
		},
		"a server that never ends": {
			answer: func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, `{"items":[`)
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			},
			prepare: func(s *Source) { s.timeout = 100 * time.Millisecond }, want: "context deadline exceeded",
		},
		"no namespace, which would be all": {
			answer: http.NotFound, namespace: "-", want: "no namespace given",
		},
		"a namespace that is a path": {
			answer: http.NotFound, namespace: "a/../b", want: "invalid namespace",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			source := serve(t, tc.answer)
			if tc.prepare != nil {
				tc.prepare(source)
			}
			namespace := "shop"
			if tc.namespace != "" {
				namespace = strings.TrimPrefix(tc.namespace, "-")
			}
			samples, refused, err := source.List(t.Context(), namespace, noon)
			if err == nil || samples != nil || refused != nil {
				t.Fatalf("List() = %v, %v, %v; want an error only", samples, refused, err)
			}
			if got := errors.Is(err, ErrUnavailable); got != tc.unavailable {
				t.Errorf("errors.Is(%q, ErrUnavailable) = %v, want %v", err, got, tc.unavailable)
			}
			if !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), fmt.Sprintf("%q", namespace)) {
				t.Errorf("the error is %q, want it to hold %q and the namespace", err, tc.want)
			}
		})
	}
}

// Of all namespaces, only those that are wanted are kept, and all pods are counted.
func TestListAndListAll(t *testing.T) {
	in := func(namespace, item string) string {
		return strings.Replace(item, `"shop"`, strconv.Quote(namespace), 1)
	}
	var asked []string
	source := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		if got := r.Header.Get("Accept"); !strings.HasPrefix(got, "application/json") {
			t.Errorf("asked for %q, want JSON", got)
		}
		// Fields may come in any order: the namespace of the last item is known at its end.
		fmt.Fprint(w, list(
			pod("web-1", good("app")), in("bank", pod("web-1", good("app"), container("proxy", `"NaN"`, `"1Mi"`))), in("other", pod("web-1", good("app"))),
			pod("web-1", good("proxy")), `7`, `{"metadata":{"namespace":"elsewhere"},"containers":"none"}`,
			`{"containers":[`+good("app")+`],"window":"15.034s","timestamp":"2026-03-01T11:59:40Z","metadata":{"name":"api-1","namespace":"other"}}`,
		))
	})
	answers, pods, err := source.ListAll(t.Context(), []string{"shop", "bank", "empty"}, noon)
	if err != nil || pods != 7 {
		t.Fatalf("%d pods, %v, want 7", pods, err)
	}
	bank := sample("web-1", "app")
	bank.Namespace = "bank"
	want := map[string]usage.Answer{
		"shop":  {Samples: []usage.Sample{sample("web-1", "app")}, Refused: []usage.Refused{{Pod: "web-1", Why: usage.Duplicate}}},
		"bank":  {Samples: []usage.Sample{bank}, Refused: []usage.Refused{{Pod: "web-1", Container: "proxy", Why: usage.NotANumber}}},
		"empty": {},
	}
	assert.Equal(t, "answers", want, answers)
	samples, refused, err := source.List(t.Context(), "bank", noon)
	if diff := cmp.Diff(want["bank"], usage.Answer{Samples: samples, Refused: refused}); diff != "" || err != nil {
		t.Errorf("the answer of bank: %v (-want +got):\n%s", err, diff)
	}
	assert.Equal(t, "asked", []string{"/apis/metrics.k8s.io/v1beta1/pods", "/apis/metrics.k8s.io/v1beta1/namespaces/bank/pods"}, asked)
}

func TestListAllReturnsErrors(t *testing.T) {
	answers, _, err := serve(t, http.NotFound).ListAll(t.Context(), []string{"shop"}, noon)
	if answers != nil || !errors.Is(err, ErrUnavailable) {
		t.Errorf("ListAll() = %v, %v, want ErrUnavailable", answers, err)
	}
}

// The usage of one node is two numbers; anything else is an error.
func TestTheCPUOfANode(t *testing.T) {
	for name, tc := range map[string]struct {
		code   int
		body   string
		millis int64
		err    string
	}{
		"as metrics-server answers": {200, `{"kind":"NodeMetrics","metadata":{"name":"node-1"},"timestamp":"2026-03-01T12:00:00Z","window":"20s","usage":{"cpu":"1500123456n","memory":"1Gi"}}`, 1501, ""},
		"no such node":              {404, `{"kind":"Status","apiVersion":"v1","reason":"NotFound","code":404}`, 0, "reading the usage of node node-1"},
		"no number":                 {200, `{"usage":{"cpu":"much"}}`, 0, "decoding the usage of node node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/apis/metrics.k8s.io/v1beta1/nodes/node-1" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tc.code)
				fmt.Fprint(w, tc.body)
			}))
			defer server.Close()
			source, err := New(&rest.Config{Host: server.URL})
			must.Succeed(t, err)
			millis, at, err := source.NodeCPU(t.Context(), "node-1")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil || millis != tc.millis || !at.Equal(noon) {
				t.Errorf("%d millicores at %s, error %v", millis, at, err)
			}
		})
	}
}
