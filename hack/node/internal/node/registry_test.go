// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRegistriesAreAnsweredForByTheOneInside(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Method+" "+r.Host+r.URL.String())
	}))
	defer inside.Close()
	certificate, authority, err := registryCertificate([]string{"ghcr.io", "quay.io"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go serveRegistries(listener, certificate, strings.TrimPrefix(inside.URL, "http://"))

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, listener.Addr().String())
		},
	}}
	ask := func(url string) (int, string) {
		t.Helper()
		answer, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	for _, host := range []string{"ghcr.io", "quay.io"} {
		if _, got := ask("https://" + host + "/v2/a?n=1"); got != "GET "+host+"/v2/a?n=1" {
			t.Errorf("the registry was asked for %q", got)
		}
	}
	var stranger x509.HostnameError
	if _, err := client.Get("https://docker.io/v2/"); !errors.As(err, &stranger) {
		t.Errorf("a name that was not given is answered for: %v", err)
	}
	inside.Close()
	if status, _ := ask("https://ghcr.io/v2/"); status != http.StatusBadGateway {
		t.Errorf("without a registry the answer is %d", status)
	}
}
