// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-vscaler is a kubectl plugin. When it is in the PATH, kubectl runs it as
// "kubectl vscaler".
package main

import (
	"errors"
	"fmt"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// version is set by the linker.
var version = "devel"

func main() {
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	if err := newRoot(streams).Execute(); err != nil {
		fmt.Fprintln(streams.ErrOut, "error:", err)
		os.Exit(exitCode(err))
	}
}

// The exit codes: 1 for a failure, 2 for invalid usage, 3 for a failed check.
const (
	exitFailed   = 1
	exitUsage    = 2
	exitNotReady = 3
)

// errNotReady is the result of --check.
var errNotReady = errors.New("not all scalers are Ready")

// usageError is an error that the user must correct on the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func exitCode(err error) int {
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	if errors.Is(err, errNotReady) || errors.Is(err, errChecksFailed) {
		return exitNotReady
	}
	return exitFailed
}
