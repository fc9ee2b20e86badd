// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scorecard runs the scorecard's tests of the bundle as processes: those that
// "operator-sdk scorecard" would run in pods, in the same stages, from the same file.
//
//	make scorecard                                            all of them
//	make scorecard SCORECARD_ARGS='-selector suite=olm'       some
//	make scorecard SCORECARD_ARGS='-record test/scorecard/testdata/v0.1.0'
//
// Each test gets a root directory of its own with what it would have in its pod: its
// program, the bundle, and the token of its service account. Tests of ours need a
// cluster with the operator: one is started, the operator is installed from the bundle,
// and runs as a process with the rights of its service account and no others.
//
// The last form runs no test: it records what the operator stores, for the test
// upgrade-keeps-status of later versions.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/hack/internal/stage"
)

// options say what to run.
type options struct {
	bundle     string
	clusterDir string // holds localcluster
	stock      string // the program of the stock tests
	selector   labels.Selector
	strict     bool
	wait       time.Duration
	dir        string // for all that is written; empty for a temporary one
	record     string // the folder to record to; empty to run tests
}

const synopsis = `Usage: go run ./hack/scorecard -cluster-dir=FOLDER -scorecard-test=FILE [FLAG...]

Runs the scorecard's tests of the bundle as processes, and fails unless all pass. Needs
Linux, but neither root nor a cluster: "make scorecard" builds what is missing.

Flags:
`

func init() { runtime.LockOSThread() } // see hack/internal/stage

func main() {
	o, err := parse(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "scorecard: %v\nSee -h for what is allowed.\n", err)
		os.Exit(2)
	}
	ctrl.SetLogger(logr.Discard()) // of the clients: what goes wrong is an error
	ctx, cancel := stage.UntilAsked()
	err = run(ctx, o)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "scorecard: %v\n", err)
		os.Exit(1)
	}
}

// parse reads the flags. Help goes to out, and the error is then flag.ErrHelp.
func parse(args []string, out io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("scorecard", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned, with no copy printed
	selector := ""
	flags.StringVar(&o.bundle, "bundle", "bundle", "`folder` of the bundle")
	flags.StringVar(&o.clusterDir, "cluster-dir", "", "the `folder` that hack/cluster/build.sh prints (required)")
	flags.StringVar(&o.stock, "scorecard-test", "", "the `program` of the stock tests (required)")
	flags.StringVar(&selector, "selector", "", "run only tests with these `labels`, such as suite=olm; all without")
	flags.BoolVar(&o.strict, "strict", true, "fail for a suggestion, too")
	flags.DurationVar(&o.wait, "wait", 3*time.Minute, "how long a test may take")
	flags.StringVar(&o.dir, "dir", "", "`folder` for all that is written, which is then kept; a temporary one without")
	flags.StringVar(&o.record, "record", "", "run no test, but record what the operator stores in this `folder`; takes five minutes")
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
	}
	if o.selector, err = labels.Parse(selector); err != nil {
		return o, fmt.Errorf("-selector: %w", err)
	}
	for name, file := range map[string]string{"cluster-dir": stage.Binary(o.clusterDir), "scorecard-test": o.stock} {
		if _, err := os.Stat(file); err != nil {
			return o, fmt.Errorf("-%s: %w; use \"make scorecard\", which builds it", name, err)
		}
	}
	for _, path := range []*string{&o.bundle, &o.clusterDir, &o.stock, &o.dir, &o.record} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return o, fmt.Errorf("finding %s: %w", *path, err)
		}
	}
	return o, nil
}
