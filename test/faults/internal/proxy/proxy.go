// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package proxy is a TLS reverse proxy between one operator process and a real API server. It
// injects faults into writes.
//
// Faults of writes are addressed as the n-th write of a kind and never by time, so each is
// reproducible. Reads and the answers of the API server are not changed.
package proxy

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const metricsPath = "/apis/metrics.k8s.io/"

// uncounted are resources that are written at times of their own.
var uncounted = sets.New("events", "leases", "selfsubjectaccessreviews", "subjectaccessreviews", "tokenreviews")

// errLost is the error of a request whose answer is not delivered.
var errLost = errors.New("the proxy has lost the answer")

// Proxy passes requests of one operator on to an API server.
type Proxy struct {
	server     *httptest.Server
	upstream   *httputil.ReverseProxy
	metrics    http.Handler
	requests   apirequest.RequestInfoFactory
	folder     string
	kubeconfig string
	closed     chan struct{}

	mu       sync.Mutex
	kill     func()
	faults   []Fault
	counts   map[string]int // writes by kind; "" for all that are addressable
	writes   []*Write
	injected int
	released chan struct{} // closed by Release
}

// Start starts a proxy to an API server. The operator has the rights of upstream's user.
// Requests to metrics.k8s.io are answered by metrics.
func Start(upstream *rest.Config, metrics http.Handler) (*Proxy, error) {
	target, _, err := rest.DefaultServerUrlFor(upstream)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	transport, err := rest.TransportFor(upstream)
	if err != nil {
		return nil, fmt.Errorf("creating the transport to the API server: %w", err)
	}
	p := &Proxy{
		metrics:  metrics,
		requests: apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		closed:   make(chan struct{}),
		kill:     func() {},
		counts:   map[string]int{},
		released: make(chan struct{}),
	}
	p.upstream = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { rewrite(r, target) },
		Transport:      transport,
		FlushInterval:  -1, // events of watches are delivered at once
		ModifyResponse: p.answered,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0) // aborted requests are intended
	p.server.StartTLS()
	if p.folder, err = os.MkdirTemp("", "verticalscaler-proxy-"); err != nil {
		p.server.Close()
		return nil, fmt.Errorf("creating a folder for the kubeconfig: %w", err)
	}
	p.kubeconfig = filepath.Join(p.folder, "kubeconfig")
	if err := clientcmd.WriteToFile(p.config(), p.kubeconfig); err != nil {
		p.server.Close()
		return nil, fmt.Errorf("writing the kubeconfig: %w", err)
	}
	return p, nil
}

// rewrite turns a request of the operator into one to the API server. Watches are asked for in
// JSON, whose events are lines.
func rewrite(r *httputil.ProxyRequest, target *url.URL) {
	r.SetURL(target)
}

// config is a kubeconfig for the operator. It has no credentials: the proxy adds them.
func (p *Proxy) config() clientcmdapi.Config {
	c := *clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	c.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.server.URL, CertificateAuthorityData: ca}
	c.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	c.CurrentContext = "proxy"
	return c
}

// Kubeconfig is the path of the operator's kubeconfig.
func (p *Proxy) Kubeconfig() string { return p.kubeconfig }

// Close closes all connections. The operator must have ended.
func (p *Proxy) Close() error {
	close(p.closed)
	p.server.CloseClientConnections()
	p.server.Close()
	return os.RemoveAll(p.folder)
}

// OnKill sets what kills the operator and starts it again. It is called once per fault that
// kills, and must not return before the operator is dead.
func (p *Proxy) OnKill(kill func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kill = kill
}

// Plan replaces the faults of writes, and counts writes from now on. Delayed and hung writes go
// on.
func (p *Proxy) Plan(faults ...Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = slices.Clone(faults)
	p.counts = map[string]int{}
	p.writes = nil
	p.injected = 0
	p.release()
}

// Release ends all faults: also of writes that are delayed or hung. The counters stay.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
	p.release()
}

func (p *Proxy) release() {
	close(p.released)
	p.released = make(chan struct{})
}

// Writes are the writes since Plan, in the order of their arrival.
func (p *Proxy) Writes() []Write {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]Write, len(p.writes))
	for i, write := range p.writes {
		out[i] = *write
	}
	return out
}

// Injected is the number of writes since Plan to which a fault was applied.
func (p *Proxy) Injected() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.injected
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, metricsPath) {
		p.metrics.ServeHTTP(w, r)
		return
	}
	info, err := p.requests.NewRequestInfo(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r = r.WithContext(apirequest.WithRequestInfo(r.Context(), info))
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		p.write(w, r, info)
	default:
		p.upstream.ServeHTTP(w, r)
	}
}

// pending is a write that has not been answered yet.
type pending struct {
	*Write

	action *Action
}

type pendingKey struct{}

func withPending(ctx context.Context, write *pending) context.Context {
	return context.WithValue(ctx, pendingKey{}, write)
}

// pendingFrom is the write of a request; nil if it is a read.
func pendingFrom(ctx context.Context) *pending {
	write, _ := ctx.Value(pendingKey{}).(*pending)
	return write
}

// write passes a write on or applies its fault.
func (p *Proxy) write(w http.ResponseWriter, r *http.Request, info *apirequest.RequestInfo) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the operator has gone
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	write := p.arrived(info)
	r = r.WithContext(withPending(r.Context(), write))
	if write.action != nil {
		p.interrupt(r, *write.action)
	}
	p.upstream.ServeHTTP(w, r)
}

// interrupt applies what the action does before the write is passed on. If the write must not be
// passed on, it panics, as handlers do to reset a request.
func (p *Proxy) interrupt(r *http.Request, action Action) {
	switch action.moment {
	case delay:
		p.wait(r, action.time)
	case hang:
		p.wait(r, 0)
		panic(http.ErrAbortHandler)
	case killBefore:
		p.killer()()
		panic(http.ErrAbortHandler)
	case killAfter:
	}
}

// wait returns after that time, after Release, or when the operator has gone. 0 stands for no
// limit.
func (p *Proxy) wait(r *http.Request, limit time.Duration) {
	p.mu.Lock()
	released := p.released
	p.mu.Unlock()
	var late <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-late:
	case <-released:
	case <-r.Context().Done():
	case <-p.closed:
	}
}

func (p *Proxy) killer() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kill
}

// arrived numbers a write and finds its fault.
func (p *Proxy) arrived(info *apirequest.RequestInfo) *pending {
	resource := info.Resource
	if info.Subresource != "" {
		resource += "/" + info.Subresource
	}
	write := &pending{Write: &Write{Verb: info.Verb, Resource: resource, Namespace: info.Namespace, Name: info.Name}}
	p.mu.Lock()
	defer p.mu.Unlock()
	kind := write.Kind()
	p.counts[kind]++
	numbers := map[string]int{kind: p.counts[kind]}
	if !uncounted.Has(info.Resource) {
		p.counts[""]++
		numbers[""] = p.counts[""]
		p.writes = append(p.writes, write.Write)
	}
	for _, fault := range p.faults {
		if n, ok := numbers[fault.Kind]; ok && fault.applies(n) {
			write.action = &fault.Action
			write.Fault = fault.Action.String()
			p.injected++
			break
		}
	}
	return write
}

func (p *Proxy) set(write *pending, code int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	write.Code = code
}

// answered sees each answer of the API server before the operator does.
func (p *Proxy) answered(response *http.Response) error {
	r := response.Request
	write := pendingFrom(r.Context())
	if write == nil {
		return nil
	}
	p.set(write, response.StatusCode)
	if write.action != nil && write.action.moment == killAfter {
		_, _ = io.Copy(io.Discard, response.Body) // the write is done, whatever the rest says
		p.killer()()
		return errLost
	}
	return nil
}
