// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command bench measures the operator and the Vertical Pod Autoscaler on real API servers, one after the other, with the same
// fleet. "make bench-cluster" builds what it needs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/verticalscaler/verticalscaler-operator/bench/cluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// Child processes end with the thread that started them (testkit/process). The main thread lives as long as the program.
func init() { runtime.LockOSThread() }

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	ctrl.SetLogger(logr.Discard()) // the clients return their errors
	o := cluster.Options{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.IntVar(&o.Scalers, "scalers", 1000, "number of scalers, each with a Deployment of 3 pods of 2 containers")
	flags.DurationVar(&o.Idle, "idle", time.Minute, "how long the stage idle lasts")
	flags.DurationVar(&o.Wave, "wave", 2*time.Minute, "how long the stage wave lasts after its first change, in whole minutes")
	stages := flags.String("stages", strings.Join(cluster.Stages, ","), "the stages to run, after the start")
	flags.StringVar(&o.Operator, "operator", "", "the operator's program")
	flags.StringVar(&o.Recommender, "vpa-recommender", "", "the program of VPA's recommender; without it, VPA is left out")
	flags.StringVar(&o.Updater, "vpa-updater", "", "the program of VPA's updater")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	began := time.Now()
	o.Stages = strings.Split(*stages, ",")
	o.Progress = func(format string, args ...any) {
		fmt.Fprintf(progress, "%6.0fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	at := time.Now().UTC().Format("2006-01-02 15:04 UTC")
	results, err := cluster.Run(ctx, o)
	if results.Operator != nil {
		fmt.Fprintf(out, "%s\nMeasured %s, %s/%s, %d CPUs, %s.\n", results.Table(), at, runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	}
	return err
}
