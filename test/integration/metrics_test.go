// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build integration

package integration

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

func TestMetricsAreServedToThoseWhoMayReadThem(t *testing.T) {
	namespace := env.Namespace(t)
	address := testkit.FreeAddress(t)
	c := testkit.OperatorConfig()
	c.Metrics.BindAddress, c.Metrics.Secure = address, true
	env.StartOperator(t, c, testkit.NewUsage(), namespace)
	env.Create(t, testkit.Deployment(namespace, "web"), testkit.Scaler(namespace, "web", "web"))
	sees(t, namespace, "web", present)

	reader := token(t, namespace, "reader")
	env.Create(t, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "reads-metrics-" + namespace},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	})
	env.Create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reads-metrics-" + namespace},
		RoleRef:    rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "reads-metrics-" + namespace},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "reader"}},
	})

	testkit.Eventually(t, soon, func() string { // the server starts concurrently with the controllers
		if code, what := get(t, address, ""); code != http.StatusUnauthorized {
			return fmt.Sprintf("without a token: %d %s", code, what)
		}
		return ""
	})
	// controller-runtime reports an invalid token as an internal error, so the code is not
	// 401. It is enough that nothing is served.
	if code, body := get(t, address, "forged"); code < 400 || strings.Contains(body, "controller_runtime") {
		t.Errorf("with a forged token: %d %s", code, body)
	}
	if code, _ := get(t, address, token(t, namespace, "stranger")); code != http.StatusForbidden {
		t.Errorf("without the right: %d", code)
	}
	testkit.Eventually(t, soon, func() string { // the authorizer caches earlier answers
		code, body := get(t, address, reader)
		if code != http.StatusOK || !strings.Contains(body, `controller_runtime_reconcile_total{controller="verticalscaler"`) {
			return http.StatusText(code) + " " + body[:min(len(body), 200)]
		}
		return ""
	})
}

// The endpoint requires TLS 1.3, offers no HTTP/2, and serves the certificate in its folder
// as soon as there is one.
func TestMetricsAreServedOverTLS(t *testing.T) {
	namespace, address, dir := env.Namespace(t), testkit.FreeAddress(t), t.TempDir()
	c := testkit.OperatorConfig()
	c.Metrics.BindAddress, c.Metrics.Secure, c.Metrics.CertDir = address, true, dir
	env.StartOperator(t, c, testkit.NewUsage(), namespace)
	dial := func(change func(*tls.Config)) (tls.ConnectionState, error) {
		config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}
		change(config)
		connection, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return tls.ConnectionState{}, err
		}
		defer connection.Close() //nolint:errcheck // nothing is written
		return connection.(*tls.Conn).ConnectionState(), nil
	}
	var state tls.ConnectionState
	testkit.Eventually(t, soon, func() (problem string) { // the server starts concurrently with the controllers
		var err error
		if state, err = dial(func(*tls.Config) {}); err != nil {
			return err.Error()
		}
		return ""
	})
	if state.Version != tls.VersionTLS13 || state.NegotiatedProtocol != "http/1.1" {
		t.Errorf("the connection is %s with %q", tls.VersionName(state.Version), state.NegotiatedProtocol)
	}
	if state, err := dial(func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }); err == nil || !strings.Contains(err.Error(), "protocol version") {
		t.Errorf("TLS 1.2: %s, %v", tls.VersionName(state.Version), err)
	}

	cert, key, err := certutil.GenerateSelfSignedCertKey("metrics.test", nil, nil)
	must.Succeed(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	verified := func(c *tls.Config) { c.InsecureSkipVerify, c.RootCAs, c.ServerName = false, roots, "metrics.test" }
	if _, err := dial(verified); err == nil {
		t.Error("the self-signed certificate was verified")
	}
	for name, content := range map[string][]byte{"tls.crt": cert, "tls.key": key} {
		must.Succeed(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	if _, err := dial(verified); err != nil {
		t.Errorf("the certificate in the folder is not served: %v", err)
	}
}

// token creates a ServiceAccount and returns a token for it.
func token(t *testing.T, namespace, name string) string {
	t.Helper()
	env.Create(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	return env.Account(t, namespace, name).Config.BearerToken
}

// get returns the code and the body of the answer, or 0 and the error.
func get(t *testing.T, address, token string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
	must.Succeed(t, err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	insecure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // self-signed, on loopback
	response, err := insecure.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(response.Body)
	must.Succeed(t, err)
	return response.StatusCode, string(body)
}
