// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command hub prepares what OperatorHub.io and OpenShift's community catalog get of a release. Both are repositories on
// GitHub, called hubs here: a new version is a pull request with a folder. Their pipelines check it. Two mistakes that they
// would notice too late, or not at all, are errors here: a version that is in no channel, and an image that is not the
// release's.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hub:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("hub [FLAG]... FOLDER", flag.ContinueOnError)
	bundle := flags.String("bundle", "bundle", "the bundle")
	catalog := flags.String("catalog", filepath.Join("catalog", "basic.yaml"), "our catalog as a basic template: what is in which channel")
	config := flags.String("config", filepath.Join("config", "hubs"), "the ci.yaml of each hub")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("want one folder, for FOLDER/HUB/operators/verticalscaler-operator of each hub")
	}
	src, err := readSource(*bundle, *catalog)
	if err != nil {
		return err
	}
	for _, hub := range hubs {
		if err := src.writeHub(out, filepath.Join(flags.Arg(0), hub), filepath.Join(*config, hub, "ci.yaml")); err != nil {
			return fmt.Errorf("%s: %w", hub, err)
		}
	}
	return nil
}
