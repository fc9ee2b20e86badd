// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/assert"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/usage"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const (
	pod  = "web-5d4f8b9c4-bcdfg"
	mebi = 1 << 20
)

var web = Target{Namespace: "shop", Deployment: "web", Containers: []string{"app", "proxy"}}

func TestQueries(t *testing.T) {
	s := source(t, "http://prometheus:9090", func(o *Options) { o.Labels = map[string]string{"cluster": `e"ast\`, "az": "b"} })
	const (
		suffix   = `-[4-9bcdf]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}"`
		pods     = `namespace="shop",pod=~"web\\.v1` + suffix
		labels   = `,az="b",cluster="e\"ast\\"`
		both     = `,container=~"app|proxy",resource=~"cpu|memory"` + labels
		declared = ` by (__name__,container,resource) ({__name__=~"kube_pod_(init_)?container_resource_(requests|limits)",` + pods + both +
			`} unless on (namespace,pod) (kube_pod_status_phase{` + pods + `,phase!="Running"` + labels + `} == 1))`
	)
	usageOf := func(selector string) [2]string {
		selector += `,container!="",container!="POD"` + labels
		return [2]string{"rate(container_cpu_usage_seconds_total{" + selector + "}[4m])", "max_over_time(container_memory_working_set_bytes{" + selector + "}[2m])"}
	}
	want := queries{
		usage: usageOf(pods + `,container=~"app|proxy"`), sizes: [2]string{"min" + declared, "max" + declared},
		requests: `max by (target_container,resource) (verticalscaler_container_request{target_namespace="shop",scaler="web",target_container=~"app|proxy",resource=~"cpu|memory"` + labels + `})`,
	}
	got, err := s.queriesFor(Target{Namespace: "shop", Deployment: "web.v1", Containers: []string{"app", "proxy"}, Scaler: "web"})
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(queries{})); err != nil || diff != "" {
		t.Errorf("of a target: %v (-want +got):\n%s", err, diff)
	}
	for namespaces, matcher := range map[string]string{"": `namespace!=""`, "shop": `namespace="shop"`, "shop bank": `namespace=~"shop|bank"`} {
		got, err := s.fleetQueries(strings.Fields(namespaces), []string{Deployment})
		if diff := cmp.Diff(usageOf(matcher+`,pod=~".+`+suffix), got); err != nil || diff != "" {
			t.Errorf("of all in %q: %v (-want +got):\n%s", namespaces, err, diff)
		}
	}
	s.options.Deployments = []string{"web", "a.b"}
	if got, err := s.fleetQueries([]string{"shop"}, []string{Deployment}); err != nil || !strings.Contains(got[0], `pod=~"(web|a\\.b)-[4-9`) {
		t.Errorf("of two Deployments: %v: %s", err, got)
	}
	if _, err := s.fleetQueries([]string{"shop", `x"} or vector(1) #`}, []string{Deployment}); err == nil {
		t.Error("the name of a namespace changes the query")
	}
}

func TestPodsAreKnownByTheirNames(t *testing.T) {
	for name, want := range map[string]string{
		"web-5d4f8b9c4-bcdfg":       "web",
		"web-7c9b5d8f44-x2z9k":      "web", // the longest hash
		"web-4b5c6d-x2z9k":          "web",
		"web-agent-x2z9k":           "", // the DaemonSet web-agent
		"web-db-x2z9k":              "", // the DaemonSet web-db
		"web-0":                     "", // the StatefulSet web
		"web-api-5d4f8b9c4-bcdfg":   "web-api",
		"web-5d4f8b9c4-bcdfg-x2z9k": "",
		"web-5d4f8b9c4-bcdfg\n":     "",
		"web":                       "",
		"":                          "",
	} {
		if got, ok := workloadOf(name, Deployment); got != want || ok != (want != "") {
			t.Errorf("pod %q is of the Deployment %q, %t; want %q", name, got, ok, want)
		}
	}
}

func TestNamesCannotChangeAQuery(t *testing.T) {
	const evil = `x"} or vector(1) #`
	for name, target := range map[string]Target{
		"a namespace":        {Namespace: evil, Deployment: "web", Containers: []string{"app"}},
		"no namespace":       {Deployment: "web", Containers: []string{"app"}},
		"a Deployment":       {Namespace: "shop", Deployment: evil, Containers: []string{"app"}},
		"a pattern":          {Namespace: "shop", Deployment: ".*", Containers: []string{"app"}},
		"a container":        {Namespace: "shop", Deployment: "web", Containers: []string{"app", evil}},
		"no containers":      {Namespace: "shop", Deployment: "web"},
		"a scaler":           {Namespace: "shop", Deployment: "web", Containers: []string{"app"}, Scaler: evil},
		"a name that is cut": {Namespace: "shop", Deployment: strings.Repeat("w", 47), Containers: []string{"app"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("Prometheus was asked") })
			_, err := read(t, source(t, server.URL), target, noon, noon)
			var failure *Error
			if !errors.As(err, &failure) || failure.Unavailable || failure.Words == "" {
				t.Errorf("Range() = %+v, want an error about this Deployment only", err)
			}
		})
	}
}

// FuzzQueries builds queries of any names. Each accepted query has the structure of TestQueries: names
// occur in quoted strings only, and the patterns match only these names.
func FuzzQueries(f *testing.F) {
	f.Add("shop", "web.v1", "app", "proxy", "e\"ast\\")
	f.Add("shop", "web", "app", `x"} or vector(1) #`, "")
	f.Add("shop\n", ".*", "a|b", "app", "\xff\u202e\n`")
	f.Add("s", "w", "*", "", "$(id)")
	quoted := regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	const (
		selector = `{namespace=Q,pod=~Q,container=~Q,container!=Q,container!=Q,cluster=Q}`
		cpu      = "rate(container_cpu_usage_seconds_total" + selector + "[4m])"
		memory   = "max_over_time(container_memory_working_set_bytes" + selector + "[2m])"
		sizes    = " by (__name__,container,resource) ({__name__=~Q,namespace=Q,pod=~Q,container=~Q,resource=~Q,cluster=Q} unless on (namespace,pod) (kube_pod_status_phase{namespace=Q,pod=~Q,phase!=Q,cluster=Q} == 1))"
		requests = "max by (target_container,resource) (verticalscaler_container_request{target_namespace=Q,scaler=Q,target_container=~Q,resource=~Q,cluster=Q})"
	)
	f.Fuzz(func(t *testing.T, namespace, deployment, container, other, label string) {
		s := source(t, "http://prometheus", func(o *Options) { o.Labels = map[string]string{"cluster": label} })
		q, err := s.queriesFor(Target{Namespace: namespace, Deployment: deployment, Containers: []string{container, other}, Scaler: deployment})
		if err != nil {
			return
		}
		for query, want := range map[string]string{q.sizes[0]: "min" + sizes, q.sizes[1]: "max" + sizes, q.requests: requests} {
			if got := quoted.ReplaceAllString(query, "Q"); got != want {
				t.Errorf("the query is %s", query)
			}
		}
		for query, want := range map[string]string{q.usage[0]: cpu, q.usage[1]: memory} {
			if got := quoted.ReplaceAllString(query, "Q"); got != want {
				t.Errorf("the query is %s", query)
			}
			var values []string
			for _, text := range quoted.FindAllString(query, -1) {
				value, err := strconv.Unquote(text)
				if err != nil {
					t.Fatalf("%s in %s: %v", text, query, err)
				}
				values = append(values, value)
			}
			if values[0] != namespace || values[5] != label {
				t.Errorf("namespace %q and label %q are %q and %q", namespace, label, values[0], values[5])
			}
			// Prometheus anchors patterns at both ends.
			pods, containers := regexp.MustCompile("^(?:"+values[1]+")$"), regexp.MustCompile("^(?:"+values[2]+")$")
			for name, want := range map[string]bool{deployment + "-5d4f8b9c4-bcdfg": true, "x" + deployment + "-5d4f8b9c4-bcdfg": false, deployment: false, "": false} {
				if pods.MatchString(name) != want {
					t.Errorf("pod %q matches %s: %t", name, values[1], !want)
				}
			}
			for _, name := range []string{container, other, "", "x", container + other} {
				if want := name == container || name == other; containers.MatchString(name) != want {
					t.Errorf("container %q matches %s: %t", name, values[2], !want)
				}
			}
		}
	})
}

func TestSamplesArePairedAndOrdered(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("step") != "60" {
			t.Errorf("step %s", r.FormValue("step"))
		}
		if isCPU(r) {
			answer(w, stream("web-5d4f8b9c4-zzzzz", "app", at(1), "0.5", at(2), "0.25"), stream(pod, "app", at(1), "0.1001", at(2), "1e-9"))
			return
		}
		answer(w, stream(pod, "app", at(0), "5", at(1), "1048576", at(2), "1048576.5"), stream(pod, "proxy", at(1), "7"),
			stream("web-5d4f8b9c4-zzzzz", "app", at(1), "2097152"))
	})
	chunks, err := read(t, source(t, server.URL), web, noon, noon.Add(2*time.Minute))
	must.Succeed(t, err)
	sample := func(pod string, minute int, cpu, memory int64) usage.Sample {
		return usage.Sample{
			Namespace: "shop", Pod: pod, Container: "app", Time: noon.Add(time.Duration(minute) * time.Minute),
			Window: 4 * time.Minute, CPUMillis: cpu, MemoryBytes: memory,
		}
	}
	want := []Chunk{{
		Samples: []usage.Sample{
			sample(pod, 1, 101, mebi), sample("web-5d4f8b9c4-zzzzz", 1, 500, 2*mebi), sample(pod, 2, 1, mebi+1),
		},
		Refused: map[usage.Refusal]int{},
	}}
	assert.Equal(t, "Range()", want, chunks)
}

func TestPointsAreBelievedOneByOne(t *testing.T) {
	cases := map[string]struct {
		cpu, memory []string
		want        map[usage.Refusal]int
	}{
		"NaN":               {cpu: []string{stream(pod, "app", at(1), "NaN", at(2), "1")}, want: map[usage.Refusal]int{usage.NotANumber: 1}},
		"infinity":          {cpu: []string{stream(pod, "app", at(1), "+Inf", at(2), "1")}, want: map[usage.Refusal]int{usage.NotANumber: 1}},
		"less than nothing": {memory: []string{stream(pod, "app", at(1), "-1", at(2), "1")}, want: map[usage.Refusal]int{usage.Negative: 1}},
		"too many cores":    {cpu: []string{stream(pod, "app", at(1), "10000.1", at(2), "1")}, want: map[usage.Refusal]int{usage.TooLarge: 1}},
		"too much memory":   {memory: []string{stream(pod, "app", at(1), "1e300", at(2), "1")}, want: map[usage.Refusal]int{usage.TooLarge: 1}},
		"older than asked":  {cpu: []string{stream(pod, "app", at(-1), "1", at(2), "1")}, want: map[usage.Refusal]int{usage.Stale: 1}},
		"younger than asked": {
			cpu: []string{stream(pod, "app", at(3), "1", at(2), "1")}, want: map[usage.Refusal]int{usage.FromTheFuture: 1},
		},
		"the same container again": {
			cpu: []string{stream(pod, "app", at(2), "1", at(2), "0.5"), stream(pod, "app", at(1), "1", at(2), "0.2")}, want: map[usage.Refusal]int{},
		},
		"another Deployment's pod": {
			cpu:  []string{stream(pod, "app", at(2), "1"), stream("api-5d4f8b9c4-bcdfg", "app", at(2), "9")},
			want: map[usage.Refusal]int{usage.Malformed: 1},
		},
		"another container": {
			cpu: []string{stream(pod, "app", at(2), "1"), stream(pod, "evil", at(2), "9")}, want: map[usage.Refusal]int{usage.Malformed: 1},
		},
		"a histogram": {
			cpu: []string{
				stream(pod, "app", at(2), "1"),
				`{"metric":{"pod":"` + pod + `","container":"proxy"},"histograms":[[` + at(1) + `,{"count":"1","sum":"1","buckets":[]}]]}`,
			},
			want: map[usage.Refusal]int{usage.Malformed: 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.cpu == nil {
				tc.cpu = []string{stream(pod, "app", at(1), "1", at(2), "1")}
			}
			if tc.memory == nil {
				tc.memory = []string{stream(pod, "app", at(1), "1", at(2), "1")}
			}
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if isCPU(r) {
					answer(w, tc.cpu...)
					return
				}
				answer(w, tc.memory...)
			})
			chunks, err := read(t, source(t, server.URL), web, noon, noon.Add(2*time.Minute))
			must.Succeed(t, err)
			assert.Equal(t, "refused", tc.want, chunks[0].Refused)
			for _, s := range chunks[0].Samples {
				if s.Pod != pod || s.Container != "app" || s.CPUMillis != 1000 || s.MemoryBytes != 1 {
					t.Errorf("believed %+v", s)
				}
			}
			if len(chunks[0].Samples) == 0 {
				t.Error("the good points are lost with the bad ones")
			}
		})
	}
}

func TestLongRangesAreReadInParts(t *testing.T) {
	var ranges []string
	var queries atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		queries.Add(1)
		if got := r.FormValue("timeout"); got != "4s" { // Prometheus refuses "4.5s"
			t.Errorf("the time-out is %s", got)
		}
		from, to := moment(t, r.FormValue("start")), moment(t, r.FormValue("end"))
		if isCPU(r) {
			ranges = append(ranges, fmt.Sprintf("%s %s", from.Format("02 15:04"), to.Format("02 15:04")))
		}
		answer(w)
	})
	s := source(t, server.URL, func(o *Options) { o.Timeout = 5 * time.Second })
	if _, err := read(t, s, web, noon.Add(time.Second), noon.Add(13*time.Hour+59*time.Second)); err != nil {
		t.Fatal(err)
	}
	want := []string{"01 12:01 01 18:01", "01 18:02 02 00:02", "02 00:03 02 01:00"}
	assert.Equal(t, "asked", want, ranges)
	queries.Store(0)
	if _, err := read(t, s, web, noon.Add(-8*24*time.Hour), noon); err != nil {
		t.Fatal(err)
	}
	if n := queries.Load(); n != 64 {
		t.Errorf("%d queries for 8 days", n)
	}
}

// After any too long answer, the next query is for less time.
func TestAnswersThatAreTooLongAreReadInSmallerParts(t *testing.T) {
	const most = 90 * time.Minute
	for name, refuse := range map[string]http.HandlerFunc{
		"longer than we read": func(w http.ResponseWriter, _ *http.Request) { zeroes(w, 1<<20) },
		"more than Prometheus loads": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory in query execution"}`)
		},
		"longer than Prometheus takes": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			end := noon
			server := serve(t, func(w http.ResponseWriter, r *http.Request) {
				from, to := moment(t, r.FormValue("start")), moment(t, r.FormValue("end"))
				if to.Sub(from) > most {
					refuse(w, r)
					return
				}
				if isCPU(r) {
					if from != end {
						t.Errorf("asked from %s, want %s", from, end)
					}
					end = to.Add(time.Minute)
				}
				answer(w)
			})
			s := source(t, server.URL, func(o *Options) { o.MaxBytes = 64 << 10 })
			if _, err := read(t, s, web, noon, noon.Add(12*time.Hour)); err != nil {
				t.Fatal(err)
			}
			if want := noon.Add(12*time.Hour + time.Minute); end != want {
				t.Errorf("ended at %s, want %s", end, want)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	long := strings.Repeat("blah ", 200)
	cases := map[string]struct {
		serve       http.HandlerFunc
		words       string
		inFull      string
		unavailable bool
	}{
		"a redirect": {
			serve: func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "http://elsewhere.example.com/", http.StatusTemporaryRedirect)
			},
			words: "the server redirects; redirects are not followed", inFull: "redirects are not followed", unavailable: true,
		},
		"slow headers":  {serve: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, words: "the query timed out", inFull: "deadline exceeded", unavailable: true},
		"a slow answer": {serve: drip, words: "the query timed out", inFull: "deadline exceeded", unavailable: true},
		"never short enough": {
			serve: func(w http.ResponseWriter, _ *http.Request) { zeroes(w, 1<<20) },
			words: "the responses are too large", inFull: "longer than allowed",
		},
		"bad credentials":      {serve: status(401, "token hush is wrong"), words: "the server rejects the operator's credentials", inFull: "401", unavailable: true},
		"forbidden":            {serve: status(403, "hush"), words: "the server rejects the operator's credentials", inFull: "403", unavailable: true},
		"nothing there":        {serve: status(404, "404 page not found"), words: "the server responds with errors", inFull: "404", unavailable: true},
		"a broken proxy":       {serve: status(502, "<html>hush</html>"), words: "the server responds with errors", inFull: "502", unavailable: true},
		"a web page":           {serve: status(200, "<html>hello</html>"), words: "the response is not from Prometheus", unavailable: true},
		"no answer at all":     {serve: status(200, ""), words: "the response is not from Prometheus", unavailable: true},
		"half an answer":       {serve: status(200, `{"status":"success","data":{"resultType":"matrix","result":[`), words: "the response is not from Prometheus", unavailable: true},
		"another kind":         {serve: status(200, `{"status":"success","data":{"resultType":"vector","result":[]}}`), words: "the response is not from Prometheus", inFull: "not a matrix", unavailable: true},
		"success without data": {serve: status(200, `{"status":"success"}`), words: "the response is not from Prometheus", unavailable: true},
		"a value of no number": {serve: status(200, `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"x"]]}]}}`), words: "the response is not from Prometheus", unavailable: true},
		"a query that it does not understand": {
			serve: status(400, `{"status":"error","errorType":"bad_data","error":"parse\n`+long+`"}`),
			words: "the server rejects the query", inFull: "bad_data (HTTP status 400): parse blah",
		},
		"its own words with a 5xx": {
			serve: status(503, `{"status":"error","errorType":"unavailable","error":"TSDB not ready"}`),
			words: "the server responds with errors", inFull: "TSDB not ready", unavailable: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			server := serve(t, tc.serve)
			s := source(t, server.URL, func(o *Options) {
				o.MaxBytes = 64 << 10
				if tc.words == "the query timed out" {
					o.Timeout = 200 * time.Millisecond
				}
			})
			_, err := read(t, s, web, noon, noon.Add(time.Hour))
			checkError(t, err, tc.words, tc.inFull, tc.unavailable)
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		server := httptest.NewServer(nil)
		server.Close()
		_, err := read(t, source(t, server.URL), web, noon, noon)
		checkError(t, err, "the server cannot be reached", "refused", true)
	})
	t.Run("a certificate that nobody vouches for", func(t *testing.T) {
		server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("asked all the same") }))
		t.Cleanup(server.Close)
		server.Config.ErrorLog = nil
		_, err := read(t, source(t, server.URL), web, noon, noon)
		checkError(t, err, "the server cannot be reached", "certificate", true)
	})
}

func checkError(t *testing.T, err error, words, inFull string, unavailable bool) {
	t.Helper()
	var failure *Error
	if !errors.As(err, &failure) {
		t.Fatalf("Range() = %v, want an *Error", err)
	}
	if failure.Words != words || failure.Unavailable != unavailable {
		t.Errorf("Range() = %q, unavailable %v; want %q, %v; in full: %v", failure.Words, failure.Unavailable, words, unavailable, err)
	}
	if !strings.Contains(err.Error(), inFull) {
		t.Errorf("Range() = %v, want it to contain %q", err, inFull)
	}
	if len(err.Error()) > 1000 || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hush") {
		t.Errorf("Range() = %q, which is too long, or has too much", err)
	}
}

func TestTheEnvironmentIsIgnored(t *testing.T) {
	proxy := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the proxy of the environment was asked") })
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	// The standard library asks no proxy about localhost, so a name is needed that only
	// a proxy would answer for.
	_, err := read(t, source(t, "http://prometheus.invalid"), web, noon, noon)
	checkError(t, err, "the server cannot be reached", "prometheus.invalid", true)
}

func TestCredentials(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	seen := ""
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Get("Authorization")
		answer(w)
	}))
	t.Cleanup(server.Close)
	ca := file("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	ask := func(change func(*Options)) error {
		t.Helper()
		seen = ""
		_, err := read(t, source(t, server.URL, func(o *Options) { o.CAFile = ca }, change), web, noon, noon)
		return err
	}
	token := file("token", "hush-1\n")
	bearer := func(o *Options) { o.BearerTokenFile = token }
	if err := ask(bearer); err != nil || seen != "Bearer hush-1" {
		t.Errorf("sent %q, %v", seen, err)
	}
	file("token", "hush-2")
	if err := ask(bearer); err != nil || seen != "Bearer hush-2" {
		t.Errorf("after the token was renewed: sent %q, %v", seen, err)
	}
	file("token", "hush\x00-3")
	if err := ask(bearer); err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("with a token that cannot be sent: %v", err)
	}
	file("token", " \n")
	checkError(t, ask(bearer), "the operator cannot read its credentials", token, true)
	must.Succeed(t, os.Remove(token))
	checkError(t, ask(bearer), "the operator cannot read its credentials", token, true)
	password := file("password", "hush")
	if err := ask(func(o *Options) { o.Username, o.PasswordFile = "me", password }); err != nil || seen != "Basic bWU6aHVzaA==" {
		t.Errorf("sent %q, %v", seen, err)
	}
	bad := file("bad.pem", "no certificate")
	checkError(t, ask(func(o *Options) { o.CAFile = bad }), "the operator cannot read its credentials", bad, true)
	checkError(t, ask(func(o *Options) { o.CertFile, o.KeyFile = bad, bad }), "the operator cannot read its credentials", "certificate", true)

	for name, o := range map[string]Options{
		"a token in the clear":      {Address: "http://p", BearerTokenFile: token},
		"a password in the clear":   {Address: "http://p", Username: "me", PasswordFile: password},
		"a password in the address": {Address: "https://me:hush@p"},
		"a strange address":         {Address: "https://me:hush@p:x"},
		"no address":                {},
	} {
		o.Step, o.RateWindow, o.Timeout, o.MaxBytes = time.Minute, time.Minute, time.Second, 1
		if _, err := New(o); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: New() = %v", name, err)
		}
	}
}

func TestWarningsAreKeptShort(t *testing.T) {
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"status":"success","warnings":["a\nb","%s","a\nb","c","d"],"data":{"resultType":"matrix","result":[]}}`, strings.Repeat("x", 1000))
	})
	chunks, err := read(t, source(t, server.URL), web, noon, noon)
	must.Succeed(t, err)
	want := []string{"a b", strings.Repeat("x", 300) + "...", "c"}
	assert.Equal(t, "warnings", want, chunks[0].Warnings)
}

// Any answer is an error or valid samples in the order of time.
func FuzzAnswer(f *testing.F) {
	f.Add(200, `{"status":"success","data":{"resultType":"matrix","result":[`+stream(pod, "app", at(1), "1", at(2), "0.5")+`]}}`)
	f.Add(200, `{"status":"success","data":{"resultType":"matrix","result":[null,{"metric":null,"values":[[9e99,"NaN"]]}]}}`)
	f.Add(200, `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`)
	f.Add(200, `{"status":"success","data":null}`)
	f.Add(400, `{"status":"success"}`)
	f.Add(503, `{"status":"error","errorType":"timeout"}`)
	f.Add(204, ``)
	f.Add(307, ``)
	f.Fuzz(func(t *testing.T, code int, body string) {
		s := source(t, "http://prometheus")
		c, err := s.open()
		must.Succeed(t, err)
		c.next = answers(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: 200 + ((code%400)+400)%400, Header: http.Header{}, Request: r, Body: io.NopCloser(strings.NewReader(body)),
			}, nil
		})
		chunk, err := c.chunk(t.Context(), web, [2]string{"cpu", "memory"}, v1.Range{Start: noon, End: noon.Add(time.Hour), Step: time.Minute})
		if err != nil {
			var failure *Error
			if err := c.explain(err); !errors.As(err, &failure) || failure.Words == "" {
				t.Errorf("explained as %v", err)
			}
			return
		}
		newest := noon
		for _, s := range chunk.Samples {
			if s.Time.Before(newest) || s.Time.After(noon.Add(time.Hour)) {
				t.Errorf("%s after %s", s.Time, newest)
			}
			newest = s.Time
			if s.CPUMillis < 0 || s.MemoryBytes < 0 || s.CPUMillis > 10_000_000 || s.MemoryBytes > 1<<50 || s.Pod == "" || s.Container == "" || s.Namespace != "shop" {
				t.Errorf("believed %+v", s)
			}
		}
	})
}

type answers func(*http.Request) (*http.Response, error)

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r) }

// source is one with the defaults, but for the changes.
func source(t *testing.T, address string, changes ...func(*Options)) *Source {
	t.Helper()
	o := Options{Address: address, Step: time.Minute, RateWindow: 4 * time.Minute, Timeout: 10 * time.Second, MaxBytes: 8 << 20}
	for _, change := range changes {
		change(&o)
	}
	s, err := New(o)
	must.Succeed(t, err)
	return s
}

func read(t *testing.T, s *Source, target Target, from, to time.Time) (chunks []Chunk, err error) {
	t.Helper()
	err = s.Range(context.Background(), target, from, to, func(c Chunk) { chunks = append(chunks, c) })
	return chunks, err
}

func serve(t *testing.T, f http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Only when the request has been read does its context end with the connection.
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		f(w, r)
	}))
	t.Cleanup(server.Close)
	return server
}

func isCPU(r *http.Request) bool {
	return strings.Contains(r.FormValue("query"), "container_cpu_usage")
}

func answer(w io.Writer, streams ...string) {
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, strings.Join(streams, ","))
}

// stream is a series of moments and values.
func stream(pod, container string, points ...string) string {
	var values []string
	for i := 0; i < len(points); i += 2 {
		values = append(values, fmt.Sprintf(`[%s,%q]`, points[i], points[i+1]))
	}
	return fmt.Sprintf(`{"metric":{"pod":%q,"container":%q},"values":[%s]}`, pod, container, strings.Join(values, ","))
}

// at is a moment as Prometheus writes it, in minutes after noon.
func at(minute int) string { return fmt.Sprint(noon.Unix() + int64(minute)*60) }

func moment(t *testing.T, text string) time.Time {
	t.Helper()
	var seconds float64
	if _, err := fmt.Sscan(text, &seconds); err != nil {
		t.Errorf("time %q: %v", text, err)
	}
	return time.Unix(int64(math.Round(seconds)), 0).UTC()
}

func status(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
}

// drip sends a byte now and then.
func drip(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			fmt.Fprint(w, " ")
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
		}
	}
}

func zeroes(w io.Writer, n int) {
	block := make([]byte, 32<<10)
	for ; n > 0; n -= len(block) {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}
