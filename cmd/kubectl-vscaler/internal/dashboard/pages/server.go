// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pages serves web pages about scalers, for one user, on the user's own machine.
//
// The pages only show: no request changes anything, in the cluster or here. They are rendered on
// the server, and need nothing from another host. Package main reads the cluster with the user's
// rights, and guards of this package keep everybody else out: see guard.go.
package pages

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"path"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/explain"
)

// Source reads what the pages show. Its errors are shown to the user. Several requests may read
// at once.
type Source interface {
	// Scalers reads all scalers.
	Scalers(ctx context.Context) (snapshot.Table, error)
	// Scaler reads one. The error is snapshot.ErrNotFound if it does not exist.
	Scaler(ctx context.Context, name types.NamespacedName, span Span) (Details, error)
	// Backtest writes the page of a backtest.
	Backtest(ctx context.Context, name types.NamespacedName, to io.Writer) error
}

// readTimeout applies to reading one page from the cluster, and backtestTimeout to a backtest.
const (
	readTimeout     = 20 * time.Second
	backtestTimeout = 5 * time.Minute
)

// Options are the settings of a server.
type Options struct {
	// Token is the secret in the addresses of all pages: see NewToken.
	Token string
	// Expires is the expiry time of the token.
	Expires time.Time
	// Clock tells the time.
	Clock clock.PassiveClock
	// Cluster names the cluster, and Namespace what is shown of it: "" for all of it.
	Cluster, Namespace string
	// Refresh is the interval in which open pages are read again, at least a second.
	Refresh time.Duration
}

// Server serves the pages. It is an http.Handler.
type Server struct {
	Options
	source Source
	inside http.Handler // behind the token
}

//go:embed assets templates
var embedded embed.FS

// New returns a server.
func New(source Source, options Options) *Server {
	s := &Server{Options: options, source: source}
	inside := http.NewServeMux()
	inside.HandleFunc("/{$}", s.fleet)
	inside.HandleFunc("/scalers/{namespace}/{name}", s.scaler)
	inside.HandleFunc("/scalers/{namespace}/{name}/backtest", s.backtest)
	inside.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		s.refuse(w, http.StatusNotFound, "There is no such page", "Start again from the overview.", true)
	})
	s.inside = inside
	return s
}

func (s *Server) fleet(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	fleet, err := s.source.Scalers(ctx)
	if err != nil {
		s.fail(w, err)
		return
	}
	s.render(w, http.StatusOK, "fleet", page{Title: "Scalers", Refreshes: true, Content: fleetView(fleet, choiceOf(r.URL.Query()))})
}

func (s *Server) scaler(w http.ResponseWriter, r *http.Request) {
	name, ok := nameOf(r)
	if !ok {
		s.fail(w, fmt.Errorf("VerticalScaler %s: %w", name, snapshot.ErrNotFound))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	details, err := s.source.Scaler(ctx, name, spanOf(r.URL.Query()))
	if err != nil {
		s.fail(w, err)
		return
	}
	s.render(w, http.StatusOK, "scaler", page{Title: name.String(), Refreshes: true, Content: details})
}

func (s *Server) backtest(w http.ResponseWriter, r *http.Request) {
	name, ok := nameOf(r)
	if !ok {
		s.fail(w, fmt.Errorf("VerticalScaler %s: %w", name, snapshot.ErrNotFound))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), backtestTimeout)
	defer cancel()
	var report bytes.Buffer
	if err := s.source.Backtest(ctx, name, &report); err != nil {
		s.fail(w, err)
		return
	}
	// The page of a backtest is one file, with its styles in it. It has no scripts.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	answer(w, http.StatusOK, htmlType, report.Bytes())
}

// assetTypes are the types of the assets. Those of the machine may differ.
var assetTypes = map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

func (s *Server) asset(w http.ResponseWriter, name string) {
	text, err := fs.ReadFile(embedded, "assets/"+name)
	if err != nil {
		s.refuse(w, http.StatusNotFound, "There is no such page", "Open the address that the command printed.", false)
		return
	}
	answer(w, http.StatusOK, assetTypes[path.Ext(name)], text)
}

// nameOf is the name in the address of a page. It is false for one that no object can have.
func nameOf(r *http.Request) (types.NamespacedName, bool) {
	name := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
	return name, len(validation.IsDNS1123Label(name.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(name.Name)) == 0
}

// fail shows an error. The address of the page remains right, so that it can be loaded again.
func (s *Server) fail(w http.ResponseWriter, err error) {
	if errors.Is(err, snapshot.ErrNotFound) {
		s.refuse(w, http.StatusNotFound, "The scaler does not exist", sentence(err.Error()), true)
		return
	}
	s.refuse(w, http.StatusBadGateway, "The cluster cannot be read", sentence(err.Error()), true)
}

// refuse shows why there is no page.
func (s *Server) refuse(w http.ResponseWriter, code int, title, text string, isInside bool) {
	s.render(w, code, "refusal", page{Title: title, IsOutside: !isInside, Content: text})
}

// page has the fields that all pages have.
type page struct {
	Title string
	// Base is the address of the overview: a path that ends with a slash. IsOutside says
	// that the reader has not shown a valid token, and is told nothing.
	Base      string
	IsOutside bool
	Cluster   string
	Namespace string
	// Refreshes is true if the page is read again every RefreshSeconds.
	Refreshes      bool
	RefreshSeconds int
	// ReadAt is the time of the page.
	ReadAt  time.Time
	Content any
}

var templates = parse("fleet", "scaler", "refusal")

// functions are the functions that the templates call.
var functions = template.FuncMap{
	"age": explain.Age, "amounts": amounts, "counted": explain.Counted, "savings": savings, "cells": cellsOf, "ending": endingOf, "grade": gradeOf, "orderText": orderText, "seconds": seconds,
	"qosClasses": func() []corev1.PodQOSClass {
		return []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSGuaranteed}
	},
	"severities": func() []snapshot.Severity { return snapshot.Severities },
	"spans":      func() []Span { return Spans }, "used": usedOf, "usedPercent": usedPercent, "word": word,
}

// parse reads the templates of pages, each together with the frame.
func parse(names ...string) map[string]*template.Template {
	all := map[string]*template.Template{}
	for _, name := range names {
		all[name] = template.Must(template.New("frame.html").Funcs(functions).ParseFS(embedded, "templates/frame.html", "templates/"+name+".html"))
	}
	return all
}

// render writes a page. A page that cannot be rendered is not begun.
func (s *Server) render(w http.ResponseWriter, code int, name string, p page) {
	if !p.IsOutside {
		p.Base, p.Cluster, p.Namespace = s.base(), s.Cluster, s.Namespace
	}
	p.RefreshSeconds, p.ReadAt = int(s.Refresh/time.Second), s.Clock.Now()
	var text bytes.Buffer
	if err := templates[name].Execute(&text, p); err != nil {
		http.Error(w, "The page cannot be rendered: "+err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, code, htmlType, text.Bytes())
}

const htmlType = "text/html; charset=utf-8"

func answer(w http.ResponseWriter, code int, contentType string, text []byte) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	_, _ = w.Write(text) //nolint:gosec // html/template has escaped it; and the reader may be gone
}

// base is the path of the overview.
func (s *Server) base() string { return "/" + s.Token + "/" }
