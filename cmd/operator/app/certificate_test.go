// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	certutil "k8s.io/client-go/util/cert"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
)

// A Secret that the kubelet mounts appears, is replaced and is deleted while the operator
// runs.
func TestTheCertificateFollowsItsFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not there yet")
	c := &metricsCertificate{dir: dir}
	names := func() []string {
		t.Helper()
		pair, err := c.Get(nil)
		must.Succeed(t, err)
		return pair.Leaf.DNSNames
	}
	serves := func(when string, want ...string) {
		t.Helper()
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("%s, the certificate is for %q, want %q", when, got, want)
		}
	}
	sign := func(name string) (cert, key []byte) {
		t.Helper()
		cert, key, err := certutil.GenerateSelfSignedCertKey(name, nil, nil)
		must.Succeed(t, err)
		return cert, key
	}
	write := func(file string, content []byte) {
		t.Helper()
		must.Succeed(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
	serves("without a folder", "localhost")
	selfSigned, _ := c.Get(nil)
	if again, _ := c.Get(nil); again != selfSigned {
		t.Error("each handshake has another self-signed certificate")
	}
	must.Succeed(t, os.Mkdir(dir, 0o700))
	cert, key := sign("first")
	write(certFile, cert)
	serves("without a key", "localhost")
	write(keyFile, key)
	serves("with both files", "first")
	cert, key = sign("second")
	write(certFile, cert)
	serves("while the key is still the old one", "first")
	write(keyFile, key)
	serves("renewed", "second")
	cert, key = expired(t)
	write(certFile, cert)
	write(keyFile, key)
	serves("replaced by an expired one", "second")
	must.Succeed(t, os.RemoveAll(dir))
	serves("without the Secret", "second")
}

// An expired certificate is served if there never was another one: the log and the metric tell.
func TestAnExpiredCertificateIsReportedOnce(t *testing.T) {
	dir := t.TempDir()
	cert, key := expired(t)
	must.Succeed(t, os.WriteFile(filepath.Join(dir, certFile), cert, 0o600))
	must.Succeed(t, os.WriteFile(filepath.Join(dir, keyFile), key, 0o600))
	c := &metricsCertificate{dir: dir}
	pair, err := c.Get(nil)
	if err != nil || !hasExpired(pair) || c.reported != pair {
		t.Errorf("%v, expired: %t, reported: %t", err, hasExpired(pair), c.reported == pair)
	}
	if got := testutil.ToFloat64(certificateExpiry.WithLabelValues()); got != float64(pair.Leaf.NotAfter.Unix()) {
		t.Errorf("the metric is %f", got)
	}
}

// expired is a certificate of yesterday.
func expired(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	yesterday := time.Now().Add(-24 * time.Hour)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"expired"}, NotBefore: yesterday.Add(-time.Hour), NotAfter: yesterday}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	must.Succeed(t, err)
	encoded, err := x509.MarshalECPrivateKey(private)
	must.Succeed(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: encoded})
}
