// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command kubectl-vscaler is a kubectl plugin. When it is in the PATH, kubectl runs it as
// "kubectl vscaler".
package main

import (
	"fmt"
	"os"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/verticalscaler/verticalscaler-operator/cmd/kubectl-vscaler/internal/cli"
)

// version is set by the linker.
var version = "devel"

func main() {
	cli.Version = version
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	root, _ := newRoot(streams)
	if err := root.Execute(); err != nil {
		fmt.Fprintln(streams.ErrOut, "error:", err)
		os.Exit(cli.ExitCode(err))
	}
}
