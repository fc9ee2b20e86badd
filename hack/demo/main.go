// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command demo shows a scaler at work.
//
// It starts a cluster of its own with metrics-server, runs the operator against it
// with the rights of its real service account and no more, and moves the simulated
// usage of a sample Deployment: up, down, and once out of memory. Meanwhile it shows
// usage, requests and what the operator decides and why, and in the end what has
// been checked and counted.
//
//	make demo              stays until Ctrl-C, with a kubeconfig to look around with
//	make demo DEMO=once    ends by itself, and fails unless all was as it should be
//	make demo DEMO=owned   likewise, for a ScaledDeployment, which owns Deployment and scaler
//
// demo.go tells the story, phases.go the play, and owned.go the other one. What is seen becomes a value
// (state.go) that I/O fills (observe.go); the phases' ends, the view (view.go), the
// lines (lines.go) and the checks (checks.go) are functions of such values.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
)

// options say how to run the demo.
type options struct {
	clusterDir string // holds localcluster
	dir        string // for all that is written; empty for a temporary one
	once       bool
	owned      bool
	keep       bool
	plain      bool
}

// ends says that the demo ends by itself.
func (o options) ends() bool { return o.once || o.owned }

// piece is what is played.
func (o options) piece() piece {
	if o.owned {
		return ownedPiece()
	}
	return scalerPiece()
}

const synopsis = `Usage: go run ./hack/demo -cluster-dir="$(hack/cluster/build.sh)" [FLAG...]

Shows a scaler at work in a cluster of its own. Needs Go, but neither root nor a
cluster: "make demo" builds what is missing. Ctrl-C ends everything that was started.

Flags:
`

func init() {
	// Linux ends a child together with the thread that started it (hack/internal/stage).
	// The main thread lives as long as the process, so that all children are started
	// from the main goroutine.
	runtime.LockOSThread()
}

func main() {
	o, err := parse(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: %v\nSee -h for what is allowed.\n", err)
		os.Exit(2)
	}
	ctx, cancel := stage.UntilAsked()
	err = run(ctx, o)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}

// parse reads the flags. Help goes to out, and the error is then flag.ErrHelp.
func parse(args []string, out io.Writer) (options, error) {
	var o options
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned, with no copy printed
	flags.StringVar(&o.clusterDir, "cluster-dir", "", "the `folder` that hack/cluster/build.sh prints (required)")
	flags.BoolVar(&o.once, "once", false, "end after the summary, and fail unless all checks pass")
	flags.BoolVar(&o.owned, "owned", false, "show a ScaledDeployment instead, then end, and fail unless all checks pass")
	flags.StringVar(&o.dir, "dir", "", "`folder` for all that is written, which is then kept; a temporary one without")
	flags.BoolVar(&o.keep, "keep", false, "keep the temporary folder")
	flags.BoolVar(&o.plain, "plain", false, "print a line for each change, even on a terminal")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(out, synopsis)
		flags.SetOutput(out)
		flags.PrintDefaults()
		return o, err
	case err != nil:
		return o, err
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	case o.clusterDir == "":
		return o, errors.New(`-cluster-dir is missing: use "make demo", or pass the folder that hack/cluster/build.sh prints`)
	}
	if _, err := os.Stat(stage.Binary(o.clusterDir)); err != nil {
		return o, fmt.Errorf(`-cluster-dir has no cluster: %w; use "make demo", or pass the folder that hack/cluster/build.sh prints`, err)
	}
	return o, nil
}
