// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/authority"
)

// A Secret that the kubelet mounts appears, is replaced and is deleted while the operator
// runs.
func TestTheCertificateFollowsItsFiles(t *testing.T) {
	ca, dir := authority.New(t), filepath.Join(t.TempDir(), "not there yet")
	c := &metricsCertificate{dir: dir}
	names := func() []string {
		t.Helper()
		pair, err := c.Get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.DNSNames
	}
	serves := func(when string, want ...string) {
		t.Helper()
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("%s, the certificate is for %q, want %q", when, got, want)
		}
	}
	serves("without a folder", "localhost")
	selfSigned, _ := c.Get(nil)
	if again, _ := c.Get(nil); again != selfSigned {
		t.Error("each handshake has another self-signed certificate")
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cert, key := ca.Sign(t, "first")
	authority.WriteFiles(t, dir, map[string][]byte{certFile: cert})
	serves("without a key", "localhost")
	authority.WriteFiles(t, dir, map[string][]byte{keyFile: key})
	serves("with both files", "first")
	cert, key = ca.Sign(t, "second")
	authority.WriteFiles(t, dir, map[string][]byte{certFile: cert})
	serves("while the key is still the old one", "first")
	authority.WriteFiles(t, dir, map[string][]byte{keyFile: key})
	serves("renewed", "second")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	serves("without the Secret", "second")
}
