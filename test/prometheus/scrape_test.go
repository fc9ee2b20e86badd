// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build prometheus

package prometheus

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/authority"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// The names that docs/monitoring.md gives to what the user creates.
const (
	tlsSecret     = "verticalscaler-metrics-tls"
	scraperSecret = "verticalscaler-metrics-scraper"
)

// former is the endpoint of the ServiceMonitor of an earlier version. It shows that the
// impostors of this test would notice a token.
const former = `
port: metrics
path: /metrics
scheme: https
bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
tlsConfig: {insecureSkipVerify: true}
`

// A real Prometheus, configured by the ServiceMonitor that the operator has created,
// scrapes the operator. It sends its token to no other server: neither to one with a
// certificate of its own, nor to one with a certificate of the same CA for another
// Service.
func TestOnlyTheOperatorGetsTheToken(t *testing.T) {
	namespace := env.Namespace(t)
	name := "verticalscaler-metrics." + namespace + ".svc"
	ca := authority.New(t)
	cert, key := ca.Sign(t, name)
	create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: tlsSecret},
		Data:       map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM},
	})
	createScraper(t, namespace)
	certDir := t.TempDir() // as the kubelet mounts it
	authority.WriteFiles(t, certDir, map[string][]byte{"tls.crt": cert, "tls.key": key, "ca.crt": ca.PEM})

	w := newFixture(t)
	w.config.Metrics.BindAddress, w.config.Metrics.Secure, w.config.Metrics.CertDir = testkit.FreeAddress(t), true, certDir
	env.StartOperator(t, w.config, w.usage, w.namespace)

	self, selfKey := authority.New(t).Sign(t, name)
	neighbour, neighbourKey := ca.Sign(t, "neighbour."+namespace+".svc")
	selfSigned, foreign, control := newImpostor(t, self, selfKey), newImpostor(t, neighbour, neighbourKey), newImpostor(t, self, selfKey)

	wanted := monitored(t, namespace)
	var old map[string]any
	if err := yaml.Unmarshal([]byte(former), &old); err != nil {
		t.Fatal(err)
	}
	targets := scrape(t, namespace, map[string]job{
		"operator":    {wanted, w.config.Metrics.BindAddress},
		"self-signed": {wanted, selfSigned.address},
		"neighbour":   {wanted, foreign.address},
		"control":     {old, control.address},
	})
	testkit.Eventually(t, soon, func() string {
		seen := targets()
		for name, says := range map[string]string{"self-signed": "signed by unknown authority", "neighbour": "certificate is valid for neighbour."} {
			if got := seen[name]; got.Health != "down" || !strings.Contains(got.LastError, says) {
				return fmt.Sprintf("the impostor %s is %+v", name, got)
			}
		}
		if got := seen["operator"]; got.Health != "up" {
			return fmt.Sprintf("the operator is not scraped: %+v", got)
		}
		if len(control.tokens()) == 0 {
			return "the impostor that nothing is hidden from has seen no token"
		}
		return ""
	})
	for name, i := range map[string]*impostor{"self-signed": selfSigned, "neighbour": foreign} {
		if got := i.tokens(); len(got) > 0 {
			t.Errorf("the impostor %s was sent %q", name, got)
		}
	}
	if got := control.tokens(); !slices.Contains(got, "Bearer "+ownToken) {
		t.Errorf("the former monitor sent %q", got)
	}
}

// createScraper creates the account, the right and the Secret in config/monitoring. Without a
// controller manager, the test writes the token.
func createScraper(t *testing.T, namespace string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: scraperSecret}}
	create(t, account)
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-reader-" + namespace},
		Rules:      []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}},
	}
	create(t, role)
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: account.Name}},
	})
	request := &authenticationv1.TokenRequest{}
	if err := env.Client.SubResource("token").Create(t.Context(), account, request); err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: scraperSecret},
		Data:       map[string][]byte{"token": []byte(request.Status.Token)},
	})
}

// monitored returns the endpoint of the ServiceMonitor, in another namespace.
func monitored(t *testing.T, namespace string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "config", "monitoring", "service_monitor.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var monitor struct {
		Spec struct {
			Endpoints []map[string]any `json:"endpoints"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(string(text), "verticalscaler-system", namespace)), &monitor); err != nil || len(monitor.Spec.Endpoints) != 1 {
		t.Fatalf("the endpoints of the ServiceMonitor are %v, %v", monitor.Spec.Endpoints, err)
	}
	return monitor.Spec.Endpoints[0]
}

// job is an endpoint of a ServiceMonitor, and the address where it is scraped.
type job struct {
	endpoint map[string]any
	address  string
}

// ownToken is the content of Prometheus's own token file.
const ownToken = "prometheus-s-own-token"

// scrapeConfig translates an endpoint as the Prometheus Operator does. It fails for fields
// that it does not know.
func scrapeConfig(t *testing.T, namespace, dir, name string, j job) map[string]any {
	t.Helper()
	file := func(content []byte) string {
		f, err := os.CreateTemp(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close() //nolint:errcheck // the write is checked
		if _, err := f.Write(content); err != nil {
			t.Fatal(err)
		}
		return f.Name()
	}
	secret := func(reference map[string]any) string {
		var s corev1.Secret
		if err := env.Client.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: reference["name"].(string)}, &s); err != nil {
			t.Fatal(err)
		}
		return file(s.Data[reference["key"].(string)])
	}
	tlsConfig := map[string]any{}
	out := map[string]any{
		"job_name": name, "scrape_interval": "1s", "scrape_timeout": "1s", "tls_config": tlsConfig,
		"static_configs": []any{map[string]any{"targets": []any{j.address}}},
	}
	for key, value := range j.endpoint {
		switch key {
		case "port":
		case "path":
			out["metrics_path"] = value
		case "scheme":
			out["scheme"] = value
		case "bearerTokenFile":
			out["authorization"] = map[string]any{"credentials_file": file([]byte(ownToken))}
		case "authorization":
			out["authorization"] = map[string]any{"credentials_file": secret(value.(map[string]any)["credentials"].(map[string]any))}
		case "tlsConfig":
			for key, value := range value.(map[string]any) {
				switch key {
				case "insecureSkipVerify":
					tlsConfig["insecure_skip_verify"] = value
				case "serverName":
					tlsConfig["server_name"] = value
				case "ca":
					tlsConfig["ca_file"] = secret(value.(map[string]any)["secret"].(map[string]any))
				default:
					t.Fatalf("tlsConfig.%s is not known here", key)
				}
			}
		default:
			t.Fatalf("the field %s of an endpoint is not known here", key)
		}
	}
	return out
}

// target is the state of a target of Prometheus.
type target struct {
	Health    string            `json:"health"`
	LastError string            `json:"lastError"`
	Labels    map[string]string `json:"labels"`
}

// scrape starts a Prometheus with these jobs. It returns a function that asks it for its
// targets, by job.
func scrape(t *testing.T, namespace string, jobs map[string]job) func() map[string]target {
	t.Helper()
	dir, address := t.TempDir(), testkit.FreeAddress(t)
	var configs []any
	for name, j := range jobs {
		configs = append(configs, scrapeConfig(t, namespace, dir, name, j))
	}
	text, err := yaml.Marshal(map[string]any{"scrape_configs": configs})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := process.Start("prometheus", filepath.Join(dir, "log"), exec.Command("prometheus", "--config.file="+config,
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=warn"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(10 * time.Second) })
	return func() map[string]target {
		out := map[string]target{}
		response, err := http.Get("http://" + address + "/api/v1/targets")
		if err != nil {
			return out // it is not ready yet
		}
		defer response.Body.Close() //nolint:errcheck // only read
		var answer struct {
			Data struct {
				ActiveTargets []target `json:"activeTargets"`
			} `json:"data"`
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
			return out
		}
		for _, active := range answer.Data.ActiveTargets {
			out[active.Labels["job"]] = active
		}
		return out
	}
}

// impostor is a server at the operator's place. It notes the tokens that it is sent.
type impostor struct {
	address string

	mu   sync.Mutex
	seen []string
}

func newImpostor(t *testing.T, cert, key []byte) *impostor {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	i := &impostor{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.seen = append(i.seen, r.Header.Get("Authorization"))
		fmt.Fprintln(w, "up 1")
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
	server.StartTLS()
	t.Cleanup(server.Close)
	i.address = server.Listener.Addr().String()
	return i
}

// tokens are what the impostor was sent.
func (i *impostor) tokens() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.seen)
}

func create(t *testing.T, o client.Object) {
	t.Helper()
	if err := env.Client.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}
