// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command scorecard-tests runs one of the scorecard's own tests, and prints what came
// of it as a TestStatus of scorecard.operatorframework.io/v1alpha3. It is the one
// program in the image that config/scorecard names.
//
// Like the stock tests it exits with 0 also for a test that has failed: the state is in
// what it prints. Nothing else is printed, because "operator-sdk scorecard" takes the
// pod's whole log for the status.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/verticalscaler/verticalscaler-operator/test/scorecard"
)

// The variables of the environment: "operator-sdk scorecard" sets the first.
const (
	namespaceVariable = "SCORECARD_NAMESPACE"
	imageVariable     = "SCORECARD_POD_IMAGE"
	waitVariable      = "SCORECARD_WAIT"
)

const synopsis = `Usage: scorecard-tests TEST [FLAG...]

Runs one of the tests %s, and prints its TestStatus.
Talks to the cluster that it runs in, or to that of KUBECONFIG.

Flags:
`

func main() {
	ctrl.SetLogger(logr.Discard()) // the log of the pod is the status
	setting, name, err := parse(os.Args[1:], os.Getenv, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintf(os.Stderr, "scorecard-tests: %v\nSee -h for what is allowed.\n", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := scorecard.Run(ctx, name, setting, time.Now())
	cancel()
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(status); err != nil {
		fmt.Fprintf(os.Stderr, "scorecard-tests: printing the status: %v\n", err)
		os.Exit(1)
	}
}

// parse reads the arguments and the environment. Help goes to out, and the error is
// then flag.ErrHelp.
func parse(args []string, getenv func(string) string, out io.Writer) (s scorecard.Setting, name string, err error) {
	wait := 30 * time.Second
	if v := getenv(waitVariable); v != "" {
		if wait, err = time.ParseDuration(v); err != nil {
			return s, "", fmt.Errorf("reading %s: %w", waitVariable, err)
		}
	}
	image := getenv(imageVariable)
	if image == "" {
		image = "registry.k8s.io/pause:3.10.1"
	}
	flags := flag.NewFlagSet("scorecard-tests", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are returned, with no copy printed
	flags.StringVar(&s.Bundle, "bundle", "/bundle", "`folder` of the bundle")
	flags.StringVar(&s.Namespace, "namespace", getenv(namespaceVariable), "`namespace` to make objects in; the default is in "+namespaceVariable)
	flags.StringVar(&s.Image, "image", image, "`image` of the pods that are made, which need not run; the default can be set in "+imageVariable)
	flags.DurationVar(&s.Wait, "wait", wait, "how long the operator may take for each thing; the default can be set in "+waitVariable)
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintf(out, synopsis, strings.Join(scorecard.Names(), ", "))
		flags.SetOutput(out)
		flags.PrintDefaults()
		return s, "", err
	case err != nil:
		return s, "", err
	case flags.NArg() > 0:
		return s, "", fmt.Errorf("unexpected argument %q: there is one test, and then flags", flags.Arg(0))
	case name == "":
		return s, "", fmt.Errorf("the test is missing: one of %s", strings.Join(scorecard.Names(), ", "))
	}
	s.Connect = func() (client.Client, error) {
		config, err := ctrl.GetConfig()
		if err != nil {
			return nil, fmt.Errorf("finding a cluster: %w", err)
		}
		if s.Namespace == "" {
			return nil, fmt.Errorf("no namespace is given: set %s or -namespace", namespaceVariable)
		}
		return scorecard.Connect(config)
	}
	return s, name, nil
}
