// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command channels reads a file-based catalog with the semver template's channels of major versions, as YAML, and writes
// it with the plain channels candidate, fast and stable.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/verticalscaler/verticalscaler-operator/hack/olm/internal/channels"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), `usage: channels <CATALOG >CATALOG

Makes one channel, such as "stable", out of those of the major versions, such as "stable-v0" and "stable-v1".`)
	}
	flag.Parse()
	if err := run(flag.Args(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "channels:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	if len(args) > 0 {
		return errors.New("it takes no arguments, but a catalog on its standard input")
	}
	catalog, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	plain, err := channels.Plain(catalog)
	if err != nil {
		return err
	}
	_, err = out.Write(plain)
	return err
}
