// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build faults

package faults

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/must"
	"github.com/verticalscaler/verticalscaler-operator/internal/testkit/podmetrics"
)

// action is the treatment of a write.
type action string

const (
	// delay passes the write on after release.
	delay action = "delayed"
	// hang does not answer until the operator gives up, or until release. The write is not passed on.
	hang action = "hang"
	// killBefore kills the operator instead of passing the write on.
	killBefore action = "kill-before"
	// killAfter passes the write on and kills the operator before it gets the answer.
	killAfter action = "kill-after"
)

// fault applies an action to the n-th write of a kind, or of all if the kind is empty. Writes are counted from 1.
type fault struct {
	kind   string
	n      int
	action action
}

// write is a write of the operator. Events, reviews and leases are not among them: their number depends on time.
type write struct {
	kind   string // the verb and the resource, as in "patch pods/resize"
	name   string
	code   int // of the answer; 0 if there is none
	action action
}

// String describes the write in one line.
func (w write) String() string { return fmt.Sprintf("%s %s %d %s", w.kind, w.name, w.code, w.action) }

var uncounted = sets.New("events", "leases", "selfsubjectaccessreviews", "subjectaccessreviews", "tokenreviews")

// proxy is a TLS proxy between an operator and the API server. It injects faults into writes, and answers requests for usage.
type proxy struct {
	upstream   *httputil.ReverseProxy
	metrics    http.Handler
	requests   apirequest.RequestInfoFactory
	kubeconfig string
	faults     []fault
	kill       func() // kills the operator and starts it again

	released chan struct{}
	release  func() // ends all faults: also of writes that wait

	mu      sync.Mutex
	numbers map[string]int // of writes, by kind; "" for all
	writes  []*write
}

// newProxy starts a proxy. The operator has the rights of its service account.
func (r *run) newProxy(faults ...fault) *proxy {
	r.Helper()
	config := env.OfOperator()
	target, _, err := rest.DefaultServerUrlFor(config)
	must.Succeed(r, err)
	transport, err := rest.TransportFor(config)
	must.Succeed(r, err)
	p := &proxy{
		metrics:    podmetrics.Handler(r.Samples),
		requests:   apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		kubeconfig: filepath.Join(r.t.TempDir(), "kubeconfig"), faults: faults, released: make(chan struct{}), numbers: map[string]int{},
	}
	p.release = sync.OnceFunc(func() { close(p.released) })
	p.upstream = &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:      transport,
		FlushInterval:  -1, // events of watches are delivered at once
		ModifyResponse: p.answered,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewUnstartedServer(p)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // aborted requests are intended
	server.StartTLS()
	r.Cleanup(func() {
		p.release()
		server.CloseClientConnections()
		server.Close()
	})
	// The operator has no credentials: the proxy adds them.
	c := *clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	c.Clusters["proxy"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: ca}
	c.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy"}
	c.CurrentContext = "proxy"
	must.Succeed(r, clientcmd.WriteToFile(c, p.kubeconfig))
	return p
}

// seen are the writes so far, in the order of their arrival.
func (p *proxy) seen() (out []write) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.writes {
		out = append(out, *w)
	}
	return out
}

// injections is the number of faults so far.
func (p *proxy) injections() (n int) {
	for _, w := range p.seen() {
		if w.action != "" {
			n++
		}
	}
	return n
}

// writeKey is the key of a request's write in its context.
type writeKey struct{}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := p.requests.NewRequestInfo(r)
	switch {
	case strings.HasPrefix(r.URL.Path, podmetrics.Path):
		p.metrics.ServeHTTP(w, r)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case r.Method == http.MethodGet || uncounted.Has(info.Resource):
		p.upstream.ServeHTTP(w, r)
		return
	}
	sent := p.arrived(info, r.URL.Query().Has("dryRun"))
	switch sent.action {
	case delay:
		p.wait(r)
	case hang:
		p.wait(r)
		panic(http.ErrAbortHandler) // resets the request
	case killBefore:
		p.kill()
		panic(http.ErrAbortHandler)
	}
	p.upstream.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writeKey{}, sent)))
}

// arrived numbers a write and finds its fault. A dry run is a kind of its own.
func (p *proxy) arrived(info *apirequest.RequestInfo, isDryRun bool) *write {
	w := &write{kind: info.Verb + " " + info.Resource, name: info.Name}
	if info.Subresource != "" {
		w.kind += "/" + info.Subresource
	}
	if isDryRun {
		w.kind += " (dry run)"
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.numbers[""]++
	p.numbers[w.kind]++
	p.writes = append(p.writes, w)
	i := slices.IndexFunc(p.faults, func(f fault) bool { return (f.kind == "" || f.kind == w.kind) && f.n == p.numbers[f.kind] })
	if i >= 0 {
		w.action = p.faults[i].action
	}
	return w
}

// wait returns after release, or when the operator has gone.
func (p *proxy) wait(r *http.Request) {
	select {
	case <-p.released:
	case <-r.Context().Done():
	}
}

// answered sees each answer of the API server before the operator does.
func (p *proxy) answered(response *http.Response) error {
	w, isWrite := response.Request.Context().Value(writeKey{}).(*write)
	if !isWrite {
		return nil
	}
	p.mu.Lock()
	w.code = response.StatusCode
	p.mu.Unlock()
	if w.action == killAfter {
		_, _ = io.Copy(io.Discard, response.Body) // the write is done, whatever the rest says
		p.kill()
		return errors.New("the answer is lost")
	}
	return nil
}
