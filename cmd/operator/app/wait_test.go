// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// An overloaded API server refuses every request for minutes. The process stays alive, is not ready, and tries to start
// again once a request is answered.
func TestAnOverloadIsWaitedFor(t *testing.T) {
	var overloaded atomic.Bool
	overloaded.Store(true)
	asked := make(chan bool, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- true
		w.Header().Set("Content-Type", "application/json")
		if overloaded.Load() {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		w.WriteHeader(http.StatusUnauthorized) // This is an answer, and ends the process.
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)
	}))
	defer server.Close()
	fakeClock := testingclock.NewFakeClock(time.Now())
	c := config.Default()
	c.Health.BindAddress, c.Metrics.Secure = freeAddress(t), false
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		ended <- RunInNamespaces(ctx, &rest.Config{Host: server.URL, QPS: -1}, c, Options{Clock: fakeClock})
	}()
	for range 3 {
		for !fakeClock.HasWaiters() && ctx.Err() == nil {
			runtime.Gosched() // the fake clock does not signal that a ticker waits for it
		}
		for len(asked) > 0 {
			<-asked
		}
		fakeClock.Step(apiServerInterval)
		select {
		case <-asked:
		case err := <-ended:
			t.Fatalf("the process has ended: %v", err)
		}
	}
	if code, body := get(t, c.Health.BindAddress, "/healthz"); code != http.StatusOK {
		t.Errorf("alive: %d %s", code, body)
	}
	if code, _ := get(t, c.Health.BindAddress, "/readyz"); code != http.StatusInternalServerError {
		t.Errorf("ready: %d", code)
	}
	overloaded.Store(false)
	for {
		fakeClock.Step(apiServerInterval)
		select {
		case err := <-ended:
			if !apierrors.IsUnauthorized(err) {
				t.Errorf("ended: %v; want it to start again, and to see the answer", err)
			}
			return
		default:
			runtime.Gosched()
		}
	}
}

// freeAddress is an address on which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	must.Succeed(t, listener.Close())
	return listener.Addr().String()
}

func get(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	must.Succeed(t, err)
	response, err := http.DefaultClient.Do(request)
	must.Succeed(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(text)
}

func TestWhatIsWaitedFor(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, tc := range map[string]struct {
		err  error
		want bool
	}{
		"no error":             {nil, false},
		"an overload":          {apierrors.NewTooManyRequests("slow down", 0), true},
		"an overload, wrapped": {fmt.Errorf("asking: %w", apierrors.NewTooManyRequestsError("slow down")), true},
		"a broken server":      {apierrors.NewInternalError(errors.New("etcd")), true},
		"a time-out":           {apierrors.NewServerTimeout(pods, "list", 1), true},
		"no connection":        {&url.Error{Op: "Get", URL: "https://10.0.0.1", Err: errors.New("connection refused")}, true},
		"no right":             {apierrors.NewForbidden(pods, "", errors.New("no")), false},
		"an unknown user":      {apierrors.NewUnauthorized("who"), false},
		"an address in use":    {&net.OpError{Op: "listen", Err: errors.New("address in use")}, false},
		"no namespace":         {errors.New("the operator's namespace is unknown"), false},
	} {
		if got := isUnanswered(tc.err); got != tc.want {
			t.Errorf("%s: waited for: %t", name, got)
		}
	}
}
