// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

const mebi = 1 << 20

// answer answers for two pods of the Deployment web: one uses more CPU, the other more
// memory.
func answer(w http.ResponseWriter, r *http.Request) {
	start, end, step := number(r, "start"), number(r, "end"), number(r, "step")
	values := [2]string{"0.1", "0.3"}
	if strings.Contains(r.FormValue("query"), "memory") {
		values = [2]string{strconv.Itoa(200 * mebi), strconv.Itoa(50 * mebi)}
	}
	var streams []string
	for i, pod := range []string{"web-5d4f8b9c4-bcdfg", "web-5d4f8b9c4-x2z9k"} {
		for _, container := range []string{"app", "proxy"} {
			if query := r.FormValue("query"); strings.Contains(query, "container=~") && !strings.Contains(query, container) {
				continue
			}
			var points []string
			for at := start; at <= end; at += step {
				points = append(points, fmt.Sprintf("[%d,%q]", at, values[i]))
			}
			streams = append(streams, fmt.Sprintf(`{"metric":{"namespace":"shop","pod":%q,"container":%q},"values":[%s]}`, pod, container, strings.Join(points, ",")))
		}
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"matrix","result":[%s]}}`, strings.Join(streams, ","))
}

// number is a parameter in whole seconds, which all of the tests' are.
func number(r *http.Request, name string) int64 {
	seconds, err := strconv.ParseFloat(r.FormValue(name), 64)
	if err != nil {
		panic(err) // the server tells
	}
	return int64(seconds)
}

func serve(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return server.URL
}

// withoutCluster has kubectl know of none.
func withoutCluster(t *testing.T) {
	t.Helper()
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
}

// tokenServer is a Prometheus that wants a token, and the files for it.
func tokenServer(t *testing.T) (address, token, ca string) {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hush" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fleetPrometheus(w, r)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	token, ca = filepath.Join(dir, "token"), filepath.Join(dir, "ca.crt")
	for path, content := range map[string][]byte{
		token: []byte("hush\n"),
		ca:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	} {
		must.Succeed(t, os.WriteFile(path, content, 0o600))
	}
	return server.URL, token, ca
}
