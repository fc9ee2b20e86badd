// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki creates the certificates and kubeconfigs of a temporary cluster.
//
// Everything is valid for a year and written to plain files: these are credentials for a cluster that lives for
// minutes on one machine. Keys and kubeconfigs are readable by their owner only.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const lifetime = 365 * 24 * time.Hour

// Authority signs certificates. It and they live in one folder, as NAME.crt and NAME.key.
type Authority struct {
	dir  string
	name string
	cert *x509.Certificate
	key  crypto.Signer
}

// NewAuthority creates an authority called name in dir. The folder is created when it is missing.
func NewAuthority(dir, name string, now time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	template := certificate(pkix.Name{CommonName: name}, now)
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageCertSign

	a := &Authority{dir: dir, name: name}
	cert, key, err := a.sign(name, template)
	if err != nil {
		return nil, err
	}
	a.cert, a.key = cert, key
	return a, nil
}

// Identity is the identity of a certificate's holder.
type Identity struct {
	// Name becomes the file name.
	Name string
	// User and Groups are the user and the groups that the API server reads from a client certificate.
	User   string
	Groups []string
	// Hosts are the DNS names and addresses a server certificate is good for.
	Hosts []string
}

// Issue writes a certificate and key that serve both as a client's and as a server's.
func (a *Authority) Issue(id Identity, now time.Time) error {
	template := certificate(pkix.Name{CommonName: id.User, Organization: id.Groups}, now)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	for _, host := range id.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	_, _, err := a.sign(id.Name, template)
	return err
}

// Kubeconfig writes a self-contained kubeconfig to path that uses the certificate called name.
func (a *Authority) Kubeconfig(path, server, name string) error {
	ca, err := os.ReadFile(a.Cert(a.name))
	if err != nil {
		return err
	}
	cert, err := os.ReadFile(a.Cert(name))
	if err != nil {
		return err
	}
	key, err := os.ReadFile(a.Key(name))
	if err != nil {
		return err
	}
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"local": {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {ClientCertificateData: cert, ClientKeyData: key}},
		Contexts:       map[string]*clientcmdapi.Context{"local": {Cluster: "local", AuthInfo: name}},
		CurrentContext: "local",
	})
	if err != nil {
		return err
	}
	return writePrivate(path, content)
}

// CA is the file that holds the authority's own certificate.
func (a *Authority) CA() string { return a.Cert(a.name) }

// Cert is the file that holds the certificate called name.
func (a *Authority) Cert(name string) string { return filepath.Join(a.dir, name+".crt") }

// Key is the file that holds the key called name.
func (a *Authority) Key(name string) string { return filepath.Join(a.dir, name+".key") }

// certificate is a template with everything that all our certificates share.
func certificate(subject pkix.Name, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		Subject: subject,
		// An hour back, for clocks that disagree.
		NotBefore: now.Add(-time.Hour),
		NotAfter:  now.Add(lifetime),
		KeyUsage:  x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
}

// sign creates a key pair and certificate and writes both. An authority without a certificate signs itself.
func (a *Authority) sign(name string, template *x509.Certificate) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)); err != nil {
		return nil, nil, err
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate of %q: %w", name, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	if err := writePrivate(a.Key(name), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(a.Cert(name), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return nil, nil, err
	}
	return cert, key, nil
}

// writePrivate writes a file that only its owner can read, also when it existed with other permissions.
func writePrivate(path string, content []byte) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.WriteFile(path, content, 0o600)
}
