// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// asOperator makes the test binary run the operator: Go reads the proxy variables once per
// process.
const asOperator = "VERTICALSCALER_TEST_AS_OPERATOR"

// The bundle claims that the operator is proxy-aware. The operator connects only to the API
// server, so it must reach the API server through the proxy.
func TestTheOperatorUsesTheProxy(t *testing.T) {
	const server = "api.cluster.example:6443"
	if os.Getenv(asOperator) != "" {
		c, err := config.Load("")
		must.Succeed(t, err)
		restConfig := &rest.Config{Host: "https://" + server}
		p := newProcess(c, Options{})
		p.check, err = checkWithReview(restConfig)
		must.Succeed(t, err)
		t.Logf("ended: %v", (&assembly{process: p}).connect(t.Context(), restConfig, nil))
		return
	}
	for name, tc := range map[string]struct {
		env  []string
		want string
	}{
		"as OLM sets it":                {[]string{"NO_PROXY=.cluster.local"}, "CONNECT " + server},
		"unless the server is excepted": {[]string{"NO_PROXY=.cluster.local,.cluster.example"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan string, 1)
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case asked <- r.Method + " " + r.Host:
				default: // the first request is enough
				}
				w.WriteHeader(http.StatusBadGateway)
			}))
			defer proxy.Close()
			cmd := exec.Command(os.Args[0], "-test.run=^TestTheOperatorUsesTheProxy$", "-test.v", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), append(tc.env, asOperator+"=1", "HTTPS_PROXY="+proxy.URL)...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got := ""
			select {
			case got = <-asked:
			default: // it ended without a request
			}
			if got != tc.want {
				t.Errorf("the proxy was asked %q, want %q; the output is:\n%s", got, tc.want, out)
			}
		})
	}
}
