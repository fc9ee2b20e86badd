// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Olmv1 runs the part of OLM v1's operator-controller that renders a bundle (docs/adr/0066).
//
// The module's path is below that of operator-controller. So it may import operator-controller's internal packages.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

const usage = `usage: olmv1 render|rights -bundle FOLDER -extension FILE

  render    print the objects that OLM v1 makes of a bundle
  rights    print the namespace and the service account with the rights to install a bundle
`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	commands := map[string]func(*flag.FlagSet, []string, io.Writer) error{"render": printObjects, "rights": printRights}
	if len(args) == 0 || commands[args[0]] == nil {
		return errors.New(usage)
	}
	return commands[args[0]](flag.NewFlagSet(args[0], flag.ExitOnError), args[1:], out)
}
