// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/verticalscaler/verticalscaler-operator/hack/cluster/internal/fakenode"
)

// Options say which cluster to run, and where.
type Options struct {
	// Dir holds everything the cluster writes. Absolute.
	Dir string
	// FakeNodes is how many nodes kwok simulates. 0 means no kwok.
	FakeNodes int
	// MetricsServer, Controllers and Scheduler start these components.
	MetricsServer bool
	Controllers   bool
	Scheduler     bool
	// Audit logs every request to Dir/audit.log.
	Audit bool
	// AuditPolicy is a policy file, absolute. Empty means that every request is logged without its content.
	AuditPolicy string
	// Node is the name of a real node to write credentials for. Empty means none.
	Node string
	// Bind and Port are where the API server listens. Port 0 means a free one.
	Bind string
	Port int
	// APIServerArgs come after ours, so they win.
	APIServerArgs []string
	// MetricResolution is how often metrics-server looks.
	MetricResolution time.Duration
	// ParentPID is our parent, to end with. 0 means none.
	ParentPID int
	// Timeout is how long the cluster may take to start.
	Timeout time.Duration
}

const synopsis = `Usage: localcluster up -dir DIR [FLAG...]

Runs a cluster until it is interrupted. DIR must not be used by another running cluster; what an earlier one left
there is replaced. In it appear:

  admin.kubeconfig         for the administrator; other users' files stand beside it
  pki/                     certificates and keys
  logs/COMPONENT.log       what each component says
  audit.log                every request, with -audit
  localcluster.lock        held by the launcher, with its process id
  ready                    appears once everything asked for is up, and holds the launcher's process id

Flags:
`

// Parse reads the flags of up. Help goes to out, and the error is then flag.ErrHelp.
func Parse(args []string, out io.Writer) (Options, error) {
	var o Options
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned, with no copy printed
	flags.StringVar(&o.Dir, "dir", "", "folder for everything the cluster writes (required)")
	flags.IntVar(&o.FakeNodes, "kwok-nodes", 0, fmt.Sprintf("number of fake nodes, 0 to %d; 0 means no kwok", fakenode.Limit))
	flags.BoolVar(&o.MetricsServer, "metrics-server", false, "run metrics-server")
	flags.BoolVar(&o.Controllers, "controllers", true, "run kube-controller-manager")
	flags.BoolVar(&o.Scheduler, "scheduler", true, "run kube-scheduler")
	flags.BoolVar(&o.Audit, "audit", false, "log every request to DIR/audit.log")
	flags.StringVar(&o.AuditPolicy, "audit-policy", "", "policy `file` for the audit log, instead of level Metadata for everything; implies -audit")
	flags.StringVar(&o.Node, "node", "", "`name` of a real node to write kubelet.kubeconfig and pki/kubelet.crt for")
	flags.StringVar(&o.Bind, "bind", "127.0.0.1", "`address` of the API server")
	flags.IntVar(&o.Port, "port", 0, "port of the API server; 0 means a free one")
	flags.Func("apiserver-arg", "further `argument` for kube-apiserver; may be repeated", func(value string) error {
		o.APIServerArgs = append(o.APIServerArgs, "--"+strings.TrimLeft(value, "-"))
		return nil
	})
	flags.DurationVar(&o.MetricResolution, "metric-resolution", 10*time.Second, "how often metrics-server looks, at least 10s")
	flags.IntVar(&o.ParentPID, "parent-pid", 0, "end when our parent, the process with this `pid`, ends")
	flags.DurationVar(&o.Timeout, "timeout", 3*time.Minute, "how long the start may take")

	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, synopsis)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return Options{}, err
	case err != nil:
		return Options{}, err
	case flags.NArg() > 0:
		return Options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o.complete()
}

// complete checks the options, makes paths absolute and fills in what follows from other options.
func (o Options) complete() (Options, error) {
	if o.Dir == "" {
		return Options{}, errors.New("-dir is missing: say which folder to use")
	}
	for _, check := range []struct {
		ok   bool
		flag string
		want string
	}{
		{o.FakeNodes >= 0 && o.FakeNodes <= fakenode.Limit, "kwok-nodes", fmt.Sprintf("0 to %d", fakenode.Limit)},
		{net.ParseIP(o.Bind).To4() != nil, "bind", "an IPv4 address"},
		{o.Port >= 0 && o.Port <= 65535, "port", "0 to 65535"},
		{o.MetricResolution >= 10*time.Second, "metric-resolution", "10s and more"},
		{o.Node == "" || len(validation.IsDNS1123Subdomain(o.Node)) == 0, "node", "a lowercase DNS name"},
		{o.ParentPID >= 0, "parent-pid", "the id of our parent"},
	} {
		if !check.ok {
			return Options{}, fmt.Errorf("-%s: allowed is %s", check.flag, check.want)
		}
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return Options{}, err
	}
	if o.AuditPolicy != "" {
		o.Audit = true
		if o.AuditPolicy, err = filepath.Abs(o.AuditPolicy); err != nil {
			return Options{}, err
		}
		if _, err := os.Stat(o.AuditPolicy); err != nil {
			return Options{}, fmt.Errorf("-audit-policy: %w", err)
		}
	}
	return o, nil
}

// address is where the API server is reached. That is where it listens, unless it listens everywhere.
func (o Options) address() string {
	if net.ParseIP(o.Bind).IsUnspecified() {
		return loopback
	}
	return o.Bind
}
