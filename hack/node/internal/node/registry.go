// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/node/internal/sandbox"
)

// A node with names of registries resolves them to itself. It passes every request on to a registry that the user starts inside,
// at registryAddress. So images are pulled by their public names, and over TLS, which some clients require.
const (
	registryAddress = "127.0.0.1:5000"
	// registryCA is the only authority that containerd and programs of exec.sh trust: they can reach no other server.
	registryCA = sandbox.State + "/registry-ca.crt"
)

// registryCertificate creates a self-signed certificate for the names. It is valid longer than any node runs.
func registryCertificate(names []string, now time.Time) (certificate tls.Certificate, authority []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "registry of a verticalscaler node"},
		DNSNames:     names,
		// Clocks may be a little late.
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return certificate, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// serveRegistries passes HTTPS requests on to the registry inside, for as long as the node runs.
func serveRegistries(listener net.Listener, certificate tls.Certificate, registry string) {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: registry})
			// The registry names itself in the addresses that it answers with.
			r.Out.Host = r.In.Host
			r.SetXForwarded()
		},
		// The client gets the error: "502 Bad Gateway" until the registry is up.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	server := &http.Server{
		Handler:           proxy,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	_ = server.ServeTLS(listener, "", "")
}
