// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	testclock "k8s.io/utils/clock/testing"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// fakeSource has what a test gives it. It counts how often it is read.
type fakeSource struct {
	fleet   snapshot.Table
	details Details
	err     error
	reads   int
}

func (f *fakeSource) Scalers(context.Context) (snapshot.Table, error) {
	f.reads++
	return f.fleet, f.err
}

func (f *fakeSource) Scaler(_ context.Context, name types.NamespacedName, span Span) (Details, error) {
	f.reads++
	if name != (types.NamespacedName{Namespace: "shop", Name: "web"}) {
		return Details{}, fmt.Errorf("VerticalScaler %s %w", name, snapshot.ErrNotFound)
	}
	f.details.Span = span
	return f.details, f.err
}

func (f *fakeSource) Backtest(_ context.Context, _ types.NamespacedName, to io.Writer) error {
	f.reads++
	if f.err == nil {
		fmt.Fprint(to, "<!DOCTYPE html><style>b{}</style>a report")
	}
	return f.err
}

func row(namespace, name, reason string, ends explain.End) snapshot.Row {
	ready := metav1.ConditionTrue
	if ends == explain.ByUser {
		ready = metav1.ConditionFalse
	}
	return snapshot.Row{
		Row: explain.Row{Namespace: namespace, Name: name, Deployment: name, Mode: "InPlace", State: explain.State{Ready: ready, Reason: reason, Ends: ends}},
		CPU: snapshot.Resource{Resource: "cpu"}, Memory: snapshot.Resource{Resource: "memory"},
	}
}

func newServer() (*Server, *fakeSource, *testclock.FakePassiveClock) {
	clock := testclock.NewFakePassiveClock(now)
	source := &fakeSource{
		fleet:   snapshot.Table{At: now, Rows: []snapshot.Row{row("shop", "web", "Applied", explain.Fine)}},
		details: Details{Scaler: snapshot.Scaler{At: now, Explanation: explain.Explanation{Row: explain.Row{Namespace: "shop", Name: "web"}, Purpose: "Keeps web."}}},
	}
	return New(source, Options{
		Token: "secret", Expires: now.Add(time.Hour), Clock: clock, Cluster: "prod", Refresh: 5 * time.Second,
	}), source, clock
}

func get(s *Server, method, host, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://"+host+path, nil)
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestOnlyReadersWithTheTokenAreAnswered(t *testing.T) {
	const here = "127.0.0.1:4711"
	for name, tc := range map[string]struct {
		method, host, path string
		late               bool
		code               int
		body               string
	}{
		"the overview":                 {"GET", here, "/secret/", false, 200, "<h1>Scalers</h1>"},
		"a scaler":                     {"GET", here, "/secret/scalers/shop/web", false, 200, "Keeps web."},
		"a backtest":                   {"GET", here, "/secret/scalers/shop/web/backtest", false, 200, "a report"},
		"only the header":              {"HEAD", here, "/secret/", false, 200, ""},
		"without the last slash":       {"GET", here, "/secret", false, 302, ""},
		"by name":                      {"GET", "localhost:4711", "/secret/", false, 200, "<h1>Scalers</h1>"},
		"by IPv6":                      {"GET", "[::1]:4711", "/secret/", false, 200, "<h1>Scalers</h1>"},
		"through a tunnel":             {"GET", "localhost:9999", "/secret/", false, 200, "<h1>Scalers</h1>"},
		"without a port":               {"GET", "127.0.0.1", "/secret/", false, 200, "<h1>Scalers</h1>"},
		"a name that resolves here":    {"GET", "rebound.example.com:4711", "/secret/", false, 403, "not the dashboard"},
		"a name like localhost":        {"GET", "localhost.example.com", "/secret/", false, 403, "not the dashboard"},
		"an address like ours":         {"GET", "127.0.0.1.example.com", "/secret/", false, 403, "not the dashboard"},
		"another machine":              {"GET", "192.0.2.1:4711", "/secret/", false, 403, "not the dashboard"},
		"assets by a foreign name":     {"GET", "rebound.example.com", "/assets/page.js", false, 403, "not the dashboard"},
		"no token":                     {"GET", here, "/", false, 401, "not valid"},
		"a path without a token":       {"GET", here, "/scalers/shop/web", false, 401, "not valid"},
		"another token":                {"GET", here, "/secreT/", false, 401, "not valid"},
		"the beginning of a token":     {"GET", here, "/secre/", false, 401, "not valid"},
		"more than a token":            {"GET", here, "/secretsecret/", false, 401, "not valid"},
		"a token as a parameter":       {"GET", here, "/?token=secret", false, 401, "not valid"},
		"an expired token":             {"GET", here, "/secret/", true, 401, "has expired"},
		"another token when expired":   {"GET", here, "/other/", true, 401, "not valid"},
		"a write":                      {"POST", here, "/secret/", false, 405, "only reads"},
		"a delete":                     {"DELETE", here, "/secret/scalers/shop/web", false, 405, "only reads"},
		"a request before a write":     {"OPTIONS", here, "/secret/", false, 405, "only reads"},
		"assets need no token":         {"GET", here, "/assets/page.js", false, 200, "use strict"},
		"an asset that does not exist": {"GET", here, "/assets/../server.go", false, 404, ""},
		"a page that does not exist":   {"GET", here, "/secret/nothing", false, 404, "no such page"},
		"a scaler that does not exist": {"GET", here, "/secret/scalers/shop/who", false, 404, "VerticalScaler shop/who not found"},
		"a name that is a path":        {"GET", here, "/secret/scalers/shop/..%2f..%2fsecrets", false, 404, ""},
		"a namespace in capitals":      {"GET", here, "/secret/scalers/SHOP/web", false, 404, "not found"},
	} {
		t.Run(name, func(t *testing.T) {
			s, source, clock := newServer()
			if tc.late {
				clock.SetTime(now.Add(time.Hour))
			}
			r := get(s, tc.method, tc.host, tc.path)
			text := r.Body.String()
			if r.Code != tc.code || !strings.Contains(text, tc.body) {
				t.Errorf("status %d, want %d with %q: %s", r.Code, tc.code, tc.body, text)
			}
			if tc.code == 401 || tc.code == 403 || tc.code == 405 {
				if source.reads > 0 {
					t.Error("the cluster was read")
				}
				if strings.Contains(text, "secret/") || strings.Contains(text, "prod") {
					t.Errorf("a refused reader learns the token or the cluster: %s", text)
				}
			}
			for _, header := range []string{"Content-Security-Policy", "Cache-Control", "Referrer-Policy", "X-Content-Type-Options", "X-Frame-Options", "Cross-Origin-Resource-Policy"} {
				if r.Header().Get(header) == "" {
					t.Errorf("there is no header %s", header)
				}
			}
			if policy := r.Header().Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'") || strings.Contains(policy, "http") || strings.Contains(policy, "script-src 'unsafe") {
				t.Errorf("the policy %s lets in too much", policy)
			}
			if r.Header().Get("Set-Cookie") != "" {
				t.Error("a cookie is set, which every server on this machine receives")
			}
		})
	}
}

func TestAServerWithoutATokenAnswersNobody(t *testing.T) {
	s, _, _ := newServer()
	s.Token = ""
	for _, path := range []string{"/", "//", "//scalers/shop/web"} {
		if r := get(s, "GET", "localhost", path); r.Code != http.StatusUnauthorized {
			t.Errorf("%s: status %d", path, r.Code)
		}
	}
}

func TestTokensAreLongAndDiffer(t *testing.T) {
	a, b := NewToken(), NewToken()
	if a == b || len(a) < 40 || strings.ContainsAny(a, "/+=?#") {
		t.Errorf("%q, %q", a, b)
	}
}

// Text from the cluster is shown as text.
func TestTextOfTheClusterIsNotMarkup(t *testing.T) {
	const evil = `</script><script>alert(1)</script><img src=x onerror=alert(1)>" onclick="alert(1)`
	s, source, _ := newServer()
	r := row("shop", "web", evil, explain.ByUser)
	r.Deployment, r.Message, r.Row.CPU = evil, evil, evil
	source.fleet = snapshot.Table{At: now, Rows: []snapshot.Row{r}, Missing: []string{evil}}
	source.details.Explanation.Findings = []explain.Finding{{Reason: explain.Reason{Reason: evil, Means: evil, Advice: evil}, Message: evil}}
	source.details.Explanation.Containers = []explain.Container{{Name: evil, Resources: []explain.Resource{{Resource: "cpu", Unmanaged: evil}}}}
	source.details.Explanation.History = []v1beta1.HistoryEntry{{Time: metav1.NewTime(now), Message: evil}}
	source.details.Missing = []string{evil}
	source.err = nil
	s.Cluster = evil
	pages := []string{"/secret/", "/secret/?text=%22%3E%3Cscript%3E&state=%22%3E%3Cscript%3E", "/secret/scalers/shop/web"}
	for _, path := range pages {
		text := get(s, "GET", "localhost", path).Body.String()
		for _, markup := range []string{"<script>", "<img", `" onclick`} {
			if strings.Contains(text, markup) {
				t.Errorf("%s has %q:\n%s", path, markup, text)
			}
		}
	}
	source.err = errors.New(evil)
	if text := get(s, "GET", "localhost", "/secret/").Body.String(); strings.Contains(text, "<script>") {
		t.Error(text)
	}
}

func TestAClusterThatCannotBeReadIsReported(t *testing.T) {
	s, source, _ := newServer()
	source.err = errors.New("listing VerticalScalers: you may not")
	for _, path := range []string{"/secret/", "/secret/scalers/shop/web", "/secret/scalers/shop/web/backtest"} {
		r := get(s, "GET", "localhost", path)
		if text := r.Body.String(); r.Code != http.StatusBadGateway || !strings.Contains(text, "Listing VerticalScalers: you may not.") {
			t.Errorf("%s: status %d: %s", path, r.Code, text)
		}
	}
}
