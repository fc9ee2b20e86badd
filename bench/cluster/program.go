// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Progress is told what happens.
type Progress func(format string, args ...any)

// Child processes end with the thread that started them (testkit/process). The main thread lives as long as the program.
func init() { runtime.LockOSThread() }

// Program runs the program of that name until it ends or is interrupted, and exits if it fails. Its progress goes to stderr,
// with the seconds since its start.
func Program(name string, run func(ctx context.Context, args []string, out io.Writer, progress Progress) error) {
	ctrl.SetLogger(logr.Discard()) // clients return their errors
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	began := time.Now()
	err := run(ctx, os.Args[1:], os.Stdout, func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.0fs %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	})
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, name+":", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

// Parse parses flags. There are no other arguments.
func Parse(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

// Measured is the last line of a table: when it began, and on what machine.
func Measured(began time.Time) string {
	return fmt.Sprintf("\nMeasured %s, %s/%s, %d CPUs, %s.\n", began.UTC().Format("2006-01-02 15:04 UTC"), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
}
