// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

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
	must.Succeed(t, os.RemoveAll(dir))
	serves("without the Secret", "second")
}
