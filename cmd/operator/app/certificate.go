// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/internal/metrics"
)

const (
	// certFile and keyFile are the names in a Secret of type kubernetes.io/tls.
	certFile = "tls.crt"
	keyFile  = "tls.key"
)

// metricsCertificate is the certificate of the metrics endpoint: the one in a folder, or
// a self-signed one while the folder has none. A Secret that is created or renewed later
// needs no restart.
type metricsCertificate struct {
	dir string

	mu sync.Mutex
	// cert and key are the files' contents from which found was made.
	cert, key         []byte
	found, selfSigned *tls.Certificate
	// reported is the expired certificate that was logged.
	reported *tls.Certificate
}

var certificateExpiry = metrics.NewGauge(metrics.Metric{
	Name:      "verticalscaler_metrics_certificate_expiry_timestamp_seconds",
	Help:      "The time at which the certificate of the metrics endpoint expires, in seconds since 1970. Absent for the self-signed certificate.",
	Stability: metrics.Alpha,
})

// Get returns the certificate for a handshake. It keeps the last valid one if the files
// disappear, do not fit together, as they may while they are replaced, or have expired. It
// implements tls.Config.GetCertificate.
func (c *metricsCertificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read()
	if c.found != nil {
		if hasExpired(c.found) && c.reported != c.found {
			c.reported = c.found
			ctrl.Log.WithName("metrics").Info("The certificate of the metrics endpoint has expired, so Prometheus refuses it: replace it", "dir", c.dir, "expired", c.found.Leaf.NotAfter)
		}
		return c.found, nil
	}
	if c.selfSigned == nil {
		cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
		if err != nil {
			return nil, fmt.Errorf("creating a self-signed certificate: %w", err)
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("loading the self-signed certificate: %w", err)
		}
		c.selfSigned = &pair
	}
	return c.selfSigned, nil
}

// read reads the files again, which are small, and parses them only if they have changed.
func (c *metricsCertificate) read() {
	if c.dir == "" {
		return
	}
	cert, certErr := os.ReadFile(filepath.Join(c.dir, certFile))
	key, keyErr := os.ReadFile(filepath.Join(c.dir, keyFile))
	if certErr != nil || keyErr != nil || bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil || c.found != nil && hasExpired(&pair) && !hasExpired(c.found) {
		return
	}
	c.cert, c.key, c.found = cert, key, &pair
	certificateExpiry.WithLabelValues().Set(float64(pair.Leaf.NotAfter.Unix()))
}

func hasExpired(c *tls.Certificate) bool { return clock.RealClock{}.Now().After(c.Leaf.NotAfter) }

// metricsTLS returns the TLS settings of the metrics endpoint. It requires TLS 1.3, which all supported
// scrapers speak and whose ciphers need no configuration. It does not offer HTTP/2: a scraper sends one
// request at a time, and attacks on streams of HTTP/2 then have no target.
func metricsTLS(dir string) func(*tls.Config) {
	certificate := &metricsCertificate{dir: dir}
	return func(c *tls.Config) {
		c.MinVersion = tls.VersionTLS13
		c.NextProtos = []string{"http/1.1"}
		c.GetCertificate = certificate.Get
	}
}
