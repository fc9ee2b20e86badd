// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command hub prepares what OperatorHub.io and OpenShift's community catalog get of a release,
// and checks it against the rules of their pipelines. Both are repositories on GitHub, called
// hubs here: a new version is a pull request with a folder.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

const usage = `usage: hub write [-bundle FOLDER] [-catalog FILE] [-config FOLDER] FOLDER
       hub check [-catalog FILE] [-pipelines FOLDER] FOLDER
       hub rules

"write" writes FOLDER/HUB/operators/verticalscaler-operator for each hub, to be copied into a checkout of it:

  community-operators        k8s-operatorhub/community-operators, which is OperatorHub.io
  community-operators-prod   redhat-openshift-ecosystem/community-operators-prod, which is in OpenShift's console

"check" checks what "write" has written, and exits with 1 if a rule finds something. "rules" lists the rules, with the code of the
hubs that each of them comes from.

  -bundle FOLDER      the bundle: bundle
  -catalog FILE       our catalog as a basic template, which says what is in which channel: catalog/basic.yaml
  -config FOLDER      the ci.yaml of each hub: config/hubs
  -pipelines FOLDER   a checkout of redhat-openshift-ecosystem/operator-pipelines: its own static checks run, too. They need python3
                      with the modules of its pyproject.toml.
`

var errFindings = errors.New("there are findings")

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, errFindings): // they have been listed
		os.Exit(1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "hub:", err)
		os.Exit(2)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 || slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		_, err := io.WriteString(out, usage)
		return err
	}
	flags := flag.NewFlagSet("hub "+args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	bundle := flags.String("bundle", "bundle", "")
	catalog := flags.String("catalog", filepath.Join("catalog", "basic.yaml"), "")
	config := flags.String("config", filepath.Join("config", "hubs"), "")
	pipelines := flags.String("pipelines", "", "")
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		_, err := io.WriteString(out, usage)
		return err
	case err != nil:
		return fmt.Errorf("%w; --help explains the flags", err)
	}
	switch command := args[0]; {
	case command == "rules" && flags.NArg() == 0:
		return list(out)
	case command == "write" && flags.NArg() == 1:
		return write(out, *bundle, *catalog, *config, flags.Arg(0))
	case command == "check" && flags.NArg() == 1:
		return check(out, flags.Arg(0), *catalog, *pipelines)
	default:
		return fmt.Errorf("there is no command %q with %d arguments; --help explains the commands", command, flags.NArg())
	}
}

// list prints all rules.
func list(out io.Writer) error {
	for _, r := range rules {
		if _, err := fmt.Fprintf(out, "%s\n    %s\n", r.name, r.source); err != nil {
			return err
		}
	}
	return nil
}

// check prints what each rule finds in the folders of the hubs.
func check(out io.Writer, folder, catalog, pipelines string) error {
	found, checked := 0, 0
	for _, h := range hubs {
		root := filepath.Join(folder, h.name)
		if _, err := os.Stat(root); errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(out, "%s: nothing to submit\n", h.name)
			continue
		}
		checked++
		s, err := load(h, root, catalog)
		if err != nil {
			return fmt.Errorf("reading %s: %w", root, err)
		}
		fmt.Fprintf(out, "%s: %s\n", h.name, root)
		for _, r := range rules {
			if !r.appliesTo(s) {
				continue
			}
			findings := r.check(s)
			found += len(findings)
			report(out, r.name, r.source, findings)
		}
		if pipelines != "" {
			findings, err := runStaticTests(pipelines, s)
			if err != nil {
				return fmt.Errorf("running the static checks in %s: %w", pipelines, err)
			}
			found += len(findings)
			report(out, "the hub's own static checks", pipelines, findings)
		}
	}
	if checked == 0 {
		return fmt.Errorf("%s has no folder of a hub", folder)
	}
	if found == 1 {
		fmt.Fprintln(out, "1 finding")
	} else {
		fmt.Fprintf(out, "%d findings\n", found)
	}
	if found > 0 {
		return errFindings
	}
	return nil
}

// report prints the result of one rule.
func report(out io.Writer, name, source string, findings []string) {
	if len(findings) == 0 {
		fmt.Fprintf(out, "  passed  %s\n", name)
		return
	}
	fmt.Fprintf(out, "  FAILED  %s\n          (%s)\n", name, source)
	for _, f := range findings {
		fmt.Fprintf(out, "          - %s\n", f)
	}
}
