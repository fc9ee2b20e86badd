// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

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
	// AuditPolicy is the policy, absolute, by which requests are logged to Dir/audit.log. Empty means no log.
	AuditPolicy string
	// Node is the name of a real node to write credentials for. Empty means none.
	Node string
	// Bind and Port are where the API server listens. Port 0 means a free one.
	Bind string
	Port int
	// APIServerArgs come after ours, so they win.
	APIServerArgs []string
	// ParentPID is our parent, to end with. 0 means none.
	ParentPID int
	// Timeout is how long the cluster may take to start.
	Timeout time.Duration
}

const synopsis = `Usage: localcluster up -dir DIR [FLAG...]

Runs a cluster until it is interrupted. DIR must be new or empty. In it appear:

  admin.kubeconfig         for the administrator; other users' files stand beside it
  pki/                     certificates and keys
  logs/COMPONENT.log       what each component says
  audit.log                requests, with -audit-policy
  ready                    appears once everything asked for is up

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
	flags.StringVar(&o.AuditPolicy, "audit-policy", "", "log requests to DIR/audit.log by the policy in this `file`")
	flags.StringVar(&o.Node, "node", "", "`name` of a real node to write kubelet.kubeconfig and pki/kubelet.crt for")
	flags.StringVar(&o.Bind, "bind", "127.0.0.1", "`address` of the API server")
	flags.IntVar(&o.Port, "port", 0, "port of the API server; 0 means a free one")
	flags.Func("apiserver-arg", "further `argument` for kube-apiserver; may be repeated", func(value string) error {
		o.APIServerArgs = append(o.APIServerArgs, "--"+strings.TrimLeft(value, "-"))
		return nil
	})
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

// complete checks the options, and makes paths absolute.
func (o Options) complete() (_ Options, err error) {
	switch {
	case o.Dir == "":
		return o, errors.New("-dir is missing: say which folder to use")
	case o.FakeNodes < 0 || o.FakeNodes > fakenode.Limit:
		return o, fmt.Errorf("-kwok-nodes: allowed is 0 to %d", fakenode.Limit)
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil || o.AuditPolicy == "" {
		return o, err
	}
	o.AuditPolicy, err = filepath.Abs(o.AuditPolicy)
	return o, err
}
