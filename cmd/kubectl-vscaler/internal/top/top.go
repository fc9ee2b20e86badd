// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Package top has the live view in the terminal.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/kube"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/past"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/snapshot"
	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/top/render"
)

const (
	scalerInterval = 2 * time.Second
	fleetInterval  = 10 * time.Second
	leastInterval  = time.Second
	// recordFor is how long the view remembers what it has seen.
	recordFor = time.Hour
	// defaultWidth is the width of text for something other than a terminal.
	defaultWidth = 100
	// widestText is the largest width that COLUMNS may ask for.
	widestText = 1000
)

// topOptions are the flags.
type topOptions struct {
	genericiooptions.IOStreams
	cluster *kube.Cluster
	environ []string

	everywhere bool
	once       bool
	output     string // json or yaml; empty for the view
	interval   time.Duration
	order      snapshot.Order
	past       past.Options
}

// New is the command top.
func New(streams genericiooptions.IOStreams, cluster *kube.Cluster) *cobra.Command {
	o := &topOptions{IOStreams: streams, cluster: cluster, environ: os.Environ(), order: snapshot.ByGap}
	c := cli.Command(&cobra.Command{Use: "top [[TYPE/]NAME]", Short: "Show usage against requests, live", ValidArgsFunction: cluster.CompleteName}, o.run)
	flags := c.Flags()
	flags.BoolVarP(&o.everywhere, "all-namespaces", "A", false, "Show the scalers of all namespaces.")
	flags.BoolVar(&o.once, "once", false, "Print the view once and exit.")
	cli.AddChoice(c, &o.output, "output", "o", []string{"json", "yaml"}, "Print data once instead of the view")
	flags.DurationVar(&o.interval, "interval", 0, "How often to read. Defaults to 2s for one scaler, and to 10s for several.")
	cli.AddChoice(c, &o.order, "sort-by", "", snapshot.Orders, "The order of scalers")
	flags.DurationVar(&o.past.Since, "since", time.Hour, "How much history to read from Prometheus.")
	o.past.Bind(c, "The URL of a Prometheus to read the history of usage from. It must scrape the kubelets' cAdvisor metrics.")
	return c
}

// validate checks the flags.
func (o *topOptions) validate(isSet func(flag string) bool, isOne bool) error {
	switch {
	case isSet("output") && isSet("prometheus"):
		return errors.New("--prometheus cannot be combined with --output, which has no history")
	case o.everywhere && isOne:
		return errors.New("a name cannot be combined with --all-namespaces")
	case isSet("sort-by") && isOne:
		return errors.New("--sort-by requires several scalers: leave the name out")
	case isSet("interval") && o.interval < leastInterval:
		return fmt.Errorf("--interval must be %s or more", leastInterval)
	case isSet("prometheus") && !isOne:
		return errors.New("--prometheus requires the name of a scaler")
	case isSet("prometheus"):
		if o.past.Since < leastSince || o.past.Since > past.LongestSince {
			return fmt.Errorf("--since must be from %s to %s", leastSince, past.LongestSince)
		}
		o.past.Step = time.Minute
		return o.past.Validate()
	}
	return o.past.Require(isSet, "since")
}

// leastSince is the shortest history that is read from Prometheus.
const leastSince = 5 * time.Minute

func (o *topOptions) run(ctx context.Context, c *cobra.Command, args []string) error {
	if len(args) > 1 {
		return cli.Usagef("name one VerticalScaler, or none for all of them")
	}
	if err := o.past.Find(ctx, o.cluster.Config, o.ErrOut); err != nil {
		return err
	}
	if err := o.validate(c.Flags().Changed, len(args) > 0); err != nil {
		return cli.Usage(err)
	}
	namespace, err := o.cluster.Namespace()
	if err != nil {
		return err
	}
	reader, err := o.cluster.OpenSnapshots()
	if err != nil {
		return err
	}
	v := view{source: reader, order: o.order, interval: o.interval, hasNamespaces: o.everywhere, namespace: namespace}
	if o.everywhere {
		v.namespace = ""
	}
	if len(args) > 0 {
		name, err := scalerNamed(ctx, o.cluster, reader.Client, namespace, args[0])
		if err != nil {
			return err
		}
		v.open(name)
	}
	if o.past.Address != "" {
		v.past = o.past.Read
	}
	if o.output != "" || o.once || !o.isTerminal() {
		return o.print(ctx, v)
	}
	return o.show(ctx, v)
}

// scalerNamed is the name of the scaler that the user names: its own, or that of its Deployment or
// ScaledDeployment.
func scalerNamed(ctx context.Context, cluster *kube.Cluster, c client.Reader, namespace, name string) (types.NamespacedName, error) {
	names, err := kube.References([]string{name})
	if err != nil {
		return types.NamespacedName{}, err
	}
	evidence, _, err := cluster.Find(ctx, c, namespace, names[0])
	switch {
	case err != nil:
		return types.NamespacedName{}, err
	case evidence.Scaler == nil:
		return types.NamespacedName{}, fmt.Errorf("%s in namespace %s has no VerticalScaler", name, namespace)
	}
	return client.ObjectKeyFromObject(evidence.Scaler), nil
}

// isTerminal is true if the output can show a view that changes.
func (o *topOptions) isTerminal() bool {
	return cli.IsTerminal(o.Out) && colorprofile.Detect(o.Out, o.environ) != colorprofile.NoTTY && valueOf(o.environ, "TERM") != "dumb"
}

// print prints the view once, or what it would show as data.
func (o *topOptions) print(ctx context.Context, v view) error {
	read := v.read(ctx)
	if read.err != nil {
		return read.err
	}
	v.take(read)
	switch {
	case o.output != "" && v.isFleet():
		return cli.WriteData(o.Out, o.output, v.fleet.Data())
	case o.output != "":
		return cli.WriteData(o.Out, o.output, v.scaler.Data())
	case v.isFleet() && v.fleet.Overview().IsEmpty():
		for _, line := range v.fleet.Overview().Headlines(v.fleet.At) {
			fmt.Fprintln(o.ErrOut, "warning:", line)
		}
		fmt.Fprintln(o.ErrOut, kube.NothingIn(v.namespace), kube.HowToBegin(v.namespace))
		return nil
	}
	if v.past != nil {
		past, err := v.past(ctx, v.scaler)
		if err != nil {
			return err
		}
		v.fill(past)
		if past.Missing != "" {
			fmt.Fprintf(o.ErrOut, "warning: requests of the past are not shown: %s\n", past.Missing)
		}
	}
	v.width = textWidth(o.Out, o.environ)
	_, err := io.WriteString(colorprofile.NewWriter(o.Out, o.environ), strings.Join(v.lines(), "\n")+"\n")
	return err
}

// show shows the view until it is closed.
func (o *topOptions) show(ctx context.Context, v view) error {
	v.ctx = ctx
	options := []tea.ProgramOption{tea.WithContext(ctx), tea.WithOutput(o.Out), tea.WithEnvironment(o.environ)}
	if o.In != os.Stdin { // else the terminal is read even if the input is something else
		options = append(options, tea.WithInput(o.In))
	}
	last, err := tea.NewProgram(v, options...).Run()
	if err != nil && !errors.Is(err, tea.ErrInterrupted) && ctx.Err() == nil {
		return err
	}
	if last, ok := last.(view); ok && !last.isRead {
		return last.failed // else the last frame has shown it
	}
	return nil
}

// textWidth is the width of the terminal, or of text for something else.
func textWidth(out io.Writer, environ []string) int {
	if width := cli.Width(out); width > 0 {
		return width
	}
	if width, err := strconv.Atoi(valueOf(environ, "COLUMNS")); err == nil && width > 0 && width <= widestText {
		return width
	}
	return defaultWidth
}

// valueOf is the value of an environment variable; empty for none.
func valueOf(environ []string, name string) (value string) {
	for _, pair := range environ {
		if rest, ok := strings.CutPrefix(pair, name+"="); ok {
			value = rest
		}
	}
	return value
}

// liveSource reads how scalers are doing.
type liveSource interface {
	Scaler(ctx context.Context, name types.NamespacedName) (snapshot.Scaler, error)
	Scalers(ctx context.Context, namespace string) (snapshot.Table, error)
}

// view is the state of the live view: one scaler, or a fleet. It is a value: Update returns
// the next one.
type view struct {
	ctx    context.Context //nolint:containedctx // bubbletea runs commands without one
	source liveSource
	past   func(ctx context.Context, s snapshot.Scaler) (past.Usage, error) // nil without Prometheus

	namespace     string // of the fleet; "" for all
	hasNamespaces bool
	order         snapshot.Order
	interval      time.Duration // 0 for the default

	name     types.NamespacedName // of the scaler; zero for the fleet
	shown    int                  // how often something else was shown
	canGoUp  bool                 // the scaler was opened from the fleet
	scaler   snapshot.Scaler
	record   *snapshot.Record
	fleet    snapshot.Table
	isRead   bool      // something was read
	isFilled bool      // Prometheus was asked
	failed   error     // of the last read
	lastRead time.Time // when a read last succeeded
	now      time.Time
	notice   string // what else failed

	width, height  int
	offset, cursor int
}

// reading is the result of reading the view.
type reading struct {
	shown  int
	scaler snapshot.Scaler
	fleet  snapshot.Table
	err    error
}

// filling is the answer of Prometheus about a scaler.
type filling struct {
	shown int
	past  past.Usage
	err   error
}

// tick is the time to read again.
type tick struct {
	shown int
	at    time.Time
}

func (v view) isFleet() bool { return v.name == types.NamespacedName{} }

// open shows a scaler from now on.
func (v *view) open(name types.NamespacedName) {
	keep := recordFor
	if v.past != nil {
		keep += past.LongestSince
	}
	v.name, v.scaler, v.record, v.isRead, v.isFilled = name, snapshot.Scaler{}, &snapshot.Record{Keep: keep}, false, false
	v.shown, v.offset, v.failed, v.notice = v.shown+1, 0, nil, ""
}

// close goes back to the fleet.
func (v *view) close() {
	v.name, v.canGoUp, v.isRead = types.NamespacedName{}, false, true
	v.shown, v.offset, v.failed, v.notice = v.shown+1, 0, nil, ""
}

func (v view) read(ctx context.Context) reading {
	out := reading{shown: v.shown}
	if v.isFleet() {
		out.fleet, out.err = v.source.Scalers(ctx, v.namespace)
	} else {
		out.scaler, out.err = v.source.Scaler(ctx, v.name)
	}
	return out
}

// take shows what was read.
func (v *view) take(r reading) {
	if v.failed = r.err; r.err != nil {
		return
	}
	v.isRead = true
	if v.isFleet() {
		selected := v.selected()
		v.fleet = r.fleet
		v.fleet.Sort(v.order)
		v.choose(selected)
		v.lastRead = v.fleet.At
		return
	}
	v.scaler = r.scaler
	v.record.Add(v.scaler)
	v.lastRead = v.scaler.At
}

func (v *view) fill(past past.Usage) {
	for _, s := range past.Series {
		v.record.Fill(s.Container, s.Resource, s.Points)
	}
}

// selected is the scaler under the cursor; zero without one.
func (v view) selected() types.NamespacedName {
	if v.cursor >= len(v.fleet.Rows) {
		return types.NamespacedName{}
	}
	r := v.fleet.Rows[v.cursor]
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// choose moves the cursor to a scaler, wherever it is now.
func (v *view) choose(name types.NamespacedName) {
	at := slices.IndexFunc(v.fleet.Rows, func(r snapshot.Row) bool { return r.Namespace == name.Namespace && r.Name == name.Name })
	if at < 0 {
		at = min(v.cursor, len(v.fleet.Rows)-1)
	}
	v.cursor = max(0, at)
}

// lines are the lines of the whole view.
func (v view) lines() (lines []string) {
	if !v.isFleet() {
		return render.Scaler(v.scaler, v.record, v.width)
	}
	lines, rows := render.Table(v.fleet, v.width, v.hasNamespaces)
	if at := rows + v.cursor; v.height > 0 && rows > 0 && at < len(lines) {
		lines[at] = render.Select(lines[at])
	}
	return lines
}
