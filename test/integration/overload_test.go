// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// An operator that starts in an overload of the API server waits in its process, and then serves its scalers.
func TestAnOperatorStartsInAnOverload(t *testing.T) {
	namespace := env.Namespace(t)
	env.Create(t, testkit.Deployment(namespace, "web"), testkit.Scaler(namespace, "web", "web"))
	server := &overloaded{}
	restConfig := rest.CopyConfig(env.Config)
	restConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		server.next = next
		return server
	})
	c := testkit.OperatorConfig()
	c.LeaderElection.Enabled, c.LeaderElection.Namespace = true, namespace
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- app.RunInNamespaces(ctx, restConfig, c, app.Options{Source: testkit.NewUsage()}, namespace)
	}()

	// It asks about 22 rights, and then, every five seconds, whether the API server answers.
	testkit.Eventually(t, busy, func() string {
		if n := server.refused.Load(); n < 24 {
			return fmt.Sprintf("%d requests were refused", n)
		}
		return ""
	})
	server.isOver.Store(true)
	sees(t, namespace, "web", present)
	cancel()
	must.Succeed(t, <-ended)
}

// overloaded refuses all requests until the overload is over.
type overloaded struct {
	next    http.RoundTripper
	isOver  atomic.Bool
	refused atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (o *overloaded) RoundTrip(request *http.Request) (*http.Response, error) {
	if o.isOver.Load() {
		return o.next.RoundTrip(request)
	}
	o.refused.Add(1)
	text := `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too many requests","reason":"TooManyRequests","code":429}`
	return &http.Response{
		Status: "429 Too Many Requests", StatusCode: http.StatusTooManyRequests, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)),
	}, nil
}
