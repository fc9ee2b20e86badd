// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build olm && olmv1

package olm

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/process"
)

// The variables with what the tests of OLM v1 need; make test-olm-v1 sets them.
const (
	catalogdVariable = "OLMV1_CATALOGD"
	toolVariable     = "OLMV1"
	moduleVariable   = "OLMV1_MODULE"
)

const (
	// systemNamespace is the namespace of OLM v1.
	systemNamespace = "olmv1-system"
	// published is where the documentation says that images are.
	published = "ghcr.io/verticalscaler"
	// catalogImage and bundleImage are their names there.
	catalogImage = "verticalscaler-operator-catalog"
	bundleImage  = "verticalscaler-operator-bundle"
)

// v1 are the programs of OLM v1.
var v1 struct {
	tool string // hack/tools/olmv1
	// registry is the address of the registry that stands for the published one.
	registry string
	// certificate is that of catalogd.
	certificate []byte
	// root is the root directory of catalogd.
	root     string
	catalogd *process.Process
}

func init() {
	if os.Getenv(catalogdVariable) == "" {
		return // the tests of OLM v0 run
	}
	lifecycle = lifecycleManager{
		needs: []string{catalogdVariable, toolVariable, moduleVariable, bundleVariable},
		crds: func(paths map[string]string) (folders []string) {
			for _, program := range []string{"catalogd", "operator-controller"} {
				folders = append(folders, filepath.Join(paths[moduleVariable], "helm", "olmv1", "base", program, "crd", "standard"))
			}
			return folders
		},
		start: startV1,
	}
}

// startV1 starts a registry and catalogd.
func startV1(ctx context.Context, paths map[string]string) (stop func(), err error) {
	v1.tool = paths[toolVariable]
	if v1.registry, err = process.FreeAddress(); err != nil {
		return nil, err
	}
	registry, err := start("registry", exec.Command(v1.tool, "registry", "-listen", v1.registry))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(registries(), []byte(fmt.Sprintf(
		"[[registry]]\nprefix = %q\nlocation = %q\ninsecure = true\n", published, v1.registry+"/verticalscaler")), 0o600); err != nil {
		return nil, err
	}
	if err := startCatalogd(ctx, paths[catalogdVariable]); err != nil {
		registry.Stop(stopTimeout)
		return nil, err
	}
	return func() {
		v1.catalogd.Stop(stopTimeout)
		registry.Stop(stopTimeout)
	}, nil
}

// registries is a configuration that finds the published images in the registry of the test.
func registries() string { return filepath.Join(work, "registries.conf") }

// startCatalogd starts catalogd in a root directory of its own, because it reads its token from a fixed path.
func startCatalogd(ctx context.Context, program string) error {
	token, err := catalogdAccount(ctx)
	if err != nil {
		return err
	}
	var key []byte
	if v1.certificate, key, err = selfSigned(); err != nil {
		return err
	}
	v1.root = filepath.Join(work, "catalogd")
	const account = "/var/run/secrets/kubernetes.io/serviceaccount"
	for path, content := range map[string][]byte{
		"/tls.crt": v1.certificate, "/tls.key": key, "/tmp/empty": nil,
		account + "/token": []byte(token), account + "/namespace": []byte(systemNamespace), account + "/ca.crt": env.Config.CAData,
	} {
		if err := inRoot(path, content); err != nil {
			return err
		}
	}
	conf, err := os.ReadFile(registries())
	if err != nil {
		return err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	if err := errors.Join(inRoot("/etc/containers/registries.conf", conf), inRoot("/catalogd", binary), os.Chmod(filepath.Join(v1.root, "catalogd"), 0o755)); err != nil {
		return err
	}
	addresses := make([]string, 4)
	for i := range addresses {
		if addresses[i], err = process.FreeAddress(); err != nil {
			return err
		}
	}
	server, err := url.Parse(env.Config.Host)
	if err != nil {
		return err
	}
	cmd := exec.Command("/catalogd", "--tls-cert=/tls.crt", "--tls-key=/tls.key", "--system-namespace="+systemNamespace,
		"--catalogs-server-addr="+addresses[0], "--external-address="+addresses[0], "--metrics-bind-address="+addresses[1],
		"--health-probe-bind-address="+addresses[2], "--webhook-server-port="+addresses[3][strings.LastIndex(addresses[3], ":")+1:],
		"--cache-dir=/var/cache")
	cmd.Dir, cmd.SysProcAttr = "/", confined(v1.root, os.Geteuid(), os.Getegid())
	cmd.Env = []string{"HOME=/tmp", "KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port()}
	v1.catalogd, err = start("catalogd", cmd)
	return err
}

// inRoot writes a file for catalogd.
func inRoot(path string, content []byte) error {
	path = filepath.Join(v1.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}

// catalogdAccount creates the service account of catalogd and returns a token. OLM v1 installs it with few rights; those are not
// what these tests are about.
func catalogdAccount(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "catalogd"}}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}},
		account,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "catalogd"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: systemNamespace, Name: "catalogd"}},
		},
	} {
		if err := env.Client.Create(ctx, o); err != nil {
			return "", fmt.Errorf("creating what catalogd needs: %w", err)
		}
	}
	request := &authenticationv1.TokenRequest{}
	if err := env.Client.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("asking for a token of catalogd: %w", err)
	}
	return request.Status.Token, nil
}

// selfSigned returns a certificate for 127.0.0.1 and its key.
func selfSigned() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		return nil, nil, err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), nil
}

// all is what catalogd serves of a catalog.
func all(t *testing.T, base string) string {
	t.Helper()
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(v1.certificate) {
		t.Fatal("the certificate of catalogd cannot be read")
	}
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities}}, Timeout: time.Minute}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/all", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only read
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", request.URL, response.Status, err)
	}
	return string(content)
}

// tool runs hack/tools/olmv1.
func tool(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), v1.tool, args...)
	cmd.Env = append(os.Environ(), "CONTAINERS_REGISTRIES_CONF="+registries())
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("olmv1 %s: %w\n%s", args[0], err, stderr(err))
	}
	return strings.TrimSpace(string(out)), nil
}

func mustTool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tool(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// publish pushes the bundle under the name that the catalog has for it.
func (b bundle) publish(t *testing.T) {
	t.Helper()
	mustTool(t, "push", "-folder", b.dir, "-to", fmt.Sprintf("%s/verticalscaler/%s:v%s", v1.registry, bundleImage, b.version))
}

// publishCatalog pushes a folder as an edition of the catalog's image.
func publishCatalog(t *testing.T, folder, tag string) {
	t.Helper()
	mustTool(t, "push", "-folder", folder, "-at", "/configs", "-label", "operators.operatorframework.io.index.configs.v1=/configs",
		"-to", fmt.Sprintf("%s/verticalscaler/%s:%s", v1.registry, catalogImage, tag))
}

// ours is the catalog of the source tree.
func ours(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(testkit.Root(), "catalog", packageName, "catalog.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// extended is a folder with our catalog, plus versions that replace one another in all channels.
func extended(t *testing.T, versions ...bundle) string {
	t.Helper()
	documents := strings.Split(strings.TrimPrefix(ours(t), "---\n"), "\n---\n")
	last := released(t)
	for i, d := range documents {
		if !strings.Contains(d, "\nschema: olm.bundle") || !strings.Contains(d, "\nname: "+last.csv+"\n") {
			continue
		}
		for _, next := range versions {
			documents = append(documents, strings.ReplaceAll(documents[i], last.version, next.version))
		}
	}
	for i, d := range documents {
		if !strings.Contains(d, "\nschema: olm.channel") {
			continue
		}
		entries, previous := "", last
		for _, next := range versions {
			entries += fmt.Sprintf("- name: %s\n  replaces: %s\n", next.csv, previous.csv)
			previous = next
		}
		documents[i] = strings.Replace(d, "entries:\n", "entries:\n"+entries, 1)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "catalog.yaml"), []byte(strings.Join(documents, "\n---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}
