// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dashboard serves the pages of scalers on this machine.
package dashboard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/verticalscaler/verticalscaler-operator/api/v1beta1"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/dashboard/pages"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/past"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/report"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/internal/backtest/fleet"
	"github.com/verticalscaler/verticalscaler-operator/internal/recommend/profile"
)

const (
	// refreshEvery is the interval in which open pages are read again.
	refreshEvery = 5 * time.Second
	// fleetLasts is how long the fleet is not read again: it is much to read, and changes slowly.
	fleetLasts = 10 * time.Second
	// longestGap is the time without a reader after which the points of a plot of days are read
	// again, and retryPast is the time between two attempts.
	longestGap = 5 * time.Minute
	retryPast  = 30 * time.Second
	// stopWithin is how long responses may take after Ctrl-C.
	stopWithin = 3 * time.Second
)

// dashboardOptions are the flags.
type dashboardOptions struct {
	genericiooptions.IOStreams
	cluster *kube.Cluster
	past    past.Options

	everywhere bool
	port       int
	lifetime   time.Duration
}

// New is the command dashboard.
func New(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &dashboardOptions{IOStreams: streams, cluster: cluster, lifetime: 12 * time.Hour}
	c := cli.Command(&cobra.Command{Use: "dashboard", Short: "Show scalers in a browser", Args: cli.NoArguments}, o.run)
	flags := c.Flags()
	flags.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "Show the scalers of all namespaces.")
	flags.IntVar(&o.port, "port", 0, "The port to listen on. 0 means any free port.")
	flags.DurationVar(&o.lifetime, "expires-after", o.lifetime, "How long the address is valid, from 1m to 168h.")
	o.past.Bind(c, "The URL of the Prometheus to read usage of the past from. It must scrape the kubelets' cAdvisor metrics, and for past requests and limits kube-state-metrics.")
	return c
}

func (o *dashboardOptions) validate(isSet func(flag string) bool) error {
	switch {
	case o.port < 0 || o.port > 65535:
		return errors.New("--port must be from 0 to 65535")
	case o.lifetime < time.Minute || o.lifetime > 7*past.Day:
		return errors.New("--expires-after must be from 1m to 168h")
	case o.past.Address == "":
		return o.past.Require(isSet)
	}
	_, o.past.Step = pages.Week.Length()
	return o.past.Validate()
}

func (o *dashboardOptions) run(ctx context.Context, c *cobra.Command, _ []string) error {
	if err := o.past.Find(ctx, o.cluster.Config, o.ErrOut); err != nil {
		return err
	}
	if err := o.validate(c.Flags().Changed); err != nil {
		return cli.Usage(err)
	}
	namespace, err := o.cluster.NamespaceOrAll(o.everywhere)
	if err != nil {
		return err
	}
	reader, err := o.cluster.OpenSnapshots()
	if err != nil {
		return err
	}
	// A user who may not list scalers learns that here, and not only in the browser.
	source := NewSource(o.cluster, reader, o.past, namespace)
	if _, err := source.Scalers(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.port)))
	if err != nil {
		return fmt.Errorf("listening on this machine (--port): %w", err)
	}
	token := pages.NewToken()
	server := &http.Server{
		Handler: pages.New(source, pages.Options{
			Token: token, Expires: o.cluster.Clock.Now().Add(o.lifetime), Clock: o.cluster.Clock,
			Cluster: o.cluster.Name(), Namespace: namespace, Refresh: refreshEvery,
		}),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	fmt.Fprintf(o.Out, "http://%s/%s/\n", listener.Addr(), token)
	fmt.Fprintf(o.ErrOut, "Open this address in a browser on this machine. It is valid for %s, and shows what you may see: do not share it. Ctrl-C stops.\n", o.lifetime)
	return serveUntilStopped(ctx, server, listener)
}

// serveUntilStopped serves until Ctrl-C.
func serveUntilStopped(ctx context.Context, server *http.Server, listener net.Listener) error {
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer cancel()
	server.BaseContext = func(net.Listener) context.Context { return ctx } // readings end, too
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the dashboard: %w", err)
	case <-ctx.Done():
	}
	within, stop := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
	defer stop()
	if err := server.Shutdown(within); err != nil {
		return server.Close()
	}
	return nil
}

// Source reads what the pages show.
type Source struct {
	*kube.SnapshotReader

	cluster   *kube.Cluster
	past      past.Options
	namespace string // "" for all

	fleetMu sync.Mutex
	fleet   snapshot.Table

	mu      sync.Mutex
	records map[recordKey]*record

	// backtests are one at a time: each uses all processors.
	backtests sync.Mutex
}

// NewSource returns a source for a namespace, or for all.
func NewSource(cluster *kube.Cluster, reader *kube.SnapshotReader, past past.Options, namespace string) *Source {
	return &Source{SnapshotReader: reader, cluster: cluster, past: past, namespace: namespace, records: map[recordKey]*record{}}
}

// recordKey names the points of a page.
type recordKey struct {
	types.NamespacedName
	span pages.Span
}

// record has the points of a scaler that were read.
type record struct {
	mu     sync.Mutex
	points snapshot.Record
	// covered is the time until which the points are complete, asked is the time of the last
	// query, and missing is the reason why Prometheus did not answer.
	covered, asked time.Time
	missing        string
	past           pages.Past
}

// Scalers reads the scalers of the namespaces to show, unless they were read just now.
func (s *Source) Scalers(ctx context.Context) (snapshot.Table, error) {
	s.fleetMu.Lock()
	defer s.fleetMu.Unlock()
	if age := s.cluster.Now().Sub(s.fleet.At); age >= 0 && age < fleetLasts {
		return s.fleet, nil
	}
	fleet, err := s.SnapshotReader.Scalers(ctx, s.namespace)
	if err != nil {
		return snapshot.Table{}, err
	}
	s.fleet = fleet
	return fleet, nil
}

// shows is an error for a scaler of a namespace that is not shown.
func (s *Source) shows(name types.NamespacedName) error {
	if s.namespace != metav1.NamespaceAll && s.namespace != name.Namespace {
		return fmt.Errorf("VerticalScaler %s %w: only namespace %s is shown", name, snapshot.ErrNotFound, s.namespace)
	}
	return nil
}

// Scaler reads one scaler, and adds what it sees to its record.
func (s *Source) Scaler(ctx context.Context, name types.NamespacedName, span pages.Span) (out pages.Details, err error) {
	if err := s.shows(name); err != nil {
		return out, err
	}
	scaler, err := s.SnapshotReader.Scaler(ctx, name)
	if err != nil {
		return out, err
	}
	out = pages.Details{Scaler: scaler, Span: pages.Live, HasPast: s.past.Address != ""}
	if out.HasPast {
		out.Span = span
	}
	r := s.recordOf(recordKey{name, out.Span})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.points.Add(out.Scaler)
	if out.Span != pages.Live {
		s.fill(ctx, r, out)
	}
	if r.missing != "" {
		out.Missing = append(out.Missing, r.missing)
	}
	out.Past, out.Record = r.past, r.points.Clone()
	return out, nil
}

// fill reads the points of the past, unless they are there.
func (s *Source) fill(ctx context.Context, r *record, of pages.Details) {
	if of.At.Sub(r.covered) < longestGap {
		r.covered = of.At
		return
	}
	if of.At.Sub(r.asked) < retryPast {
		return
	}
	r.asked, r.missing = of.At, ""
	options := s.past
	options.Since, _ = of.Span.Length()
	fresh := snapshot.Record{Keep: r.points.Keep}
	fresh.Add(of.Scaler)
	read, err := options.Read(ctx, of.Scaler)
	if err != nil {
		r.missing = "Usage of the past: " + err.Error()
		return
	}
	for _, series := range read.Series {
		fresh.Fill(series.Container, series.Resource, series.Points)
	}
	r.points, r.covered, r.past = fresh, of.At, pages.Past{HasRequests: read.HasRequests, HasLimits: read.HasLimits}
	if read.Missing != "" {
		r.missing = "Requests and limits of the past: " + read.Missing
	}
}

// recordOf is the record of a scaler.
func (s *Source) recordOf(key recordKey) *record {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.records[key]
	if r == nil {
		length, _ := key.span.Length()
		r = &record{points: snapshot.Record{Keep: length}}
		s.records[key] = r
	}
	return r
}

// errNoPast is the error for a backtest without recorded usage.
var errNoPast = errors.New("a backtest needs recorded usage: start the command with --prometheus")

// Backtest replays the last 8 days of a scaler's Deployment.
func (s *Source) Backtest(ctx context.Context, name types.NamespacedName, to io.Writer) error {
	if s.past.Address == "" {
		return errNoPast
	}
	if err := s.shows(name); err != nil {
		return err
	}
	s.backtests.Lock()
	defer s.backtests.Unlock()
	if err := ctx.Err(); err != nil {
		return err // the reader has left while others were served
	}
	var scaler v1beta1.VerticalScaler
	if err := s.Client.Get(ctx, name, &scaler); err != nil {
		return fmt.Errorf("reading VerticalScaler %s: %w", name, err)
	}
	options, until := s.past, s.cluster.Clock.Now()
	options.Step, options.Since = 5*time.Minute, 8*past.Day
	r := report.Reporter{
		Past: &options, Cluster: s.cluster, Until: until.Truncate(options.Step), Top: math.MaxInt,
		Options:   fleet.Options{WarmUp: 3 * past.Day, Record: true, Rules: report.Rules(string(profile.Balanced))},
		Selection: report.Selection{Namespace: name.Namespace, Deployments: []string{scaler.Spec.DeploymentName}},
	}
	made, err := r.Report(ctx)
	if err != nil {
		return err
	}
	return made.WriteHTML(to, r.Top)
}
