// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"github.com/verticalscaler/verticalscaler-operator/hack/cluster/internal/pki"
)

// freePorts picks ports that no process listens on at the moment.
func freePorts(m component) ([]int, error) {
	ports := make([]int, m.ports)
	for i := range ports {
		want := 0
		if i == 0 {
			want = m.fixed
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(m.host, strconv.Itoa(want)))
		if err != nil {
			return nil, fmt.Errorf("finding a port for %s: %w", m.name, err)
		}
		defer listener.Close() // only when all are chosen, or we might choose one twice
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// prober asks components whether they work. It trusts this cluster's authority only, so that no other server can answer.
type prober struct {
	client http.Client
}

func newProber(ca *pki.Authority) (*prober, error) {
	authority, err := os.ReadFile(ca.CA())
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	admin, err := tls.LoadX509KeyPair(ca.Cert("admin"), ca.Key("admin"))
	if err != nil {
		return nil, err
	}
	return &prober{client: http.Client{
		Timeout: 2 * time.Second,
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{admin}},
			DisableKeepAlives: true, // an open connection would hold up the component's shutdown
		},
	}}, nil
}

// await returns once the component answers that it works, with an error if it ends or the time is over before.
func (b *prober) await(ctx context.Context, p *process, port int, m component) error {
	url := fmt.Sprintf("https://%s:%d%s", m.host, port, m.health)
	for !b.works(ctx, url) {
		select {
		case <-p.ended:
			return p.failure()
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) {
				return cause
			}
			return fmt.Errorf("%s does not work in time; the end of %s:\n%s", p.name, p.log, indent(tail(p.log, 20)))
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

func (b *prober) works(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := b.client.Do(request)
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}
