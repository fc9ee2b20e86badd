// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command hub prepares what OperatorHub.io and OpenShift's community catalog get of a release. Both are repositories on GitHub,
// called hubs here: a new version is a pull request with a folder. Their pipelines check it; here, only what they would notice
// too late, or not at all, is an error: a version that is in no channel, and an image that is not the release's.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

const usage = `usage: hub [-bundle FOLDER] [-catalog FILE] [-config FOLDER] FOLDER

Writes FOLDER/HUB/operators/verticalscaler-operator for each hub, to be copied into a checkout of it:

  community-operators        k8s-operatorhub/community-operators, which is OperatorHub.io
  community-operators-prod   redhat-openshift-ecosystem/community-operators-prod, which is in OpenShift's console

  -bundle FOLDER      the bundle: bundle
  -catalog FILE       our catalog as a basic template, which says what is in which channel: catalog/basic.yaml
  -config FOLDER      the ci.yaml of each hub: config/hubs
`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hub:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("hub", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	bundle := flags.String("bundle", "bundle", "")
	catalog := flags.String("catalog", filepath.Join("catalog", "basic.yaml"), "")
	config := flags.String("config", filepath.Join("config", "hubs"), "")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(out, usage)
		return err
	case err != nil:
		return fmt.Errorf("%w; --help explains the flags", err)
	case flags.NArg() != 1:
		return fmt.Errorf("want one folder to write to, not %d; --help explains it", flags.NArg())
	}
	return write(out, *bundle, *catalog, *config, flags.Arg(0))
}
