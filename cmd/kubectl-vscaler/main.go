// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-vscaler is a plugin of kubectl: with it in the PATH, "kubectl vscaler"
// works.
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

// The exit codes: 1 where the work has failed, 2 where what was asked for makes no sense, 3
// where what was asked about is not as it should be.
const (
	exitFailed   = 1
	exitUsage    = 2
	exitNotReady = 3
)

// errNotReady is an answer, for those who have asked for it.
var errNotReady = errors.New("not all of them are Ready")

// usageError is what the caller has to correct on the command line.
type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

func exitCode(err error) int {
	if usage := (usageError{}); errors.As(err, &usage) {
		return exitUsage
	}
	if errors.Is(err, errNotReady) {
		return exitNotReady
	}
	return exitFailed
}
