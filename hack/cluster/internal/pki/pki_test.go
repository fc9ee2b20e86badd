// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
)

func TestCertificatesAreGoodForClientsAndServers(t *testing.T) {
	now := time.Now()
	a, err := NewAuthority(filepath.Join(t.TempDir(), "pki"), "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Issue(Identity{Name: "web", User: "alice", Groups: []string{"admins"}, Hosts: []string{"127.0.0.1", "web.test"}}, now); err != nil {
		t.Fatal(err)
	}
	cert, roots := read(t, a.Cert("web")), x509.NewCertPool()
	roots.AddCert(read(t, a.CA()))
	for _, host := range []string{"127.0.0.1", "web.test"} {
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth} {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("host %s, usage %v: %v", host, usage, err)
			}
		}
	}
	if cert.Subject.CommonName != "alice" || len(cert.Subject.Organization) != 1 || cert.Subject.Organization[0] != "admins" {
		t.Errorf("subject is %v, want alice in admins", cert.Subject)
	}

	stranger, err := NewAuthority(t.TempDir(), "ca", now)
	if err != nil {
		t.Fatal(err)
	}
	others := x509.NewCertPool()
	others.AddCert(read(t, stranger.CA()))
	if _, err := cert.Verify(x509.VerifyOptions{Roots: others}); err == nil {
		t.Error("another cluster's authority, of the same name, vouches for our certificate")
	}
}

func TestSecretsAreReadableByTheirOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	a, err := NewAuthority(dir, "ca", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Issue(Identity{Name: "admin", User: "admin"}, time.Now()); err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(dir, "admin.kubeconfig")
	// It was there before, and readable by all.
	if err := os.WriteFile(kubeconfig, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := a.Kubeconfig(kubeconfig, "https://127.0.0.1:1", "admin"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{kubeconfig, a.Key("ca"), a.Key("admin")} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %o, want 600", path, info.Mode().Perm())
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "https://127.0.0.1:1" || len(config.CAData) == 0 || len(config.CertData) == 0 || len(config.KeyData) == 0 {
		t.Errorf("the kubeconfig is incomplete: %v", config)
	}
}

func read(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	if block == nil {
		t.Fatalf("%s holds no PEM", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
