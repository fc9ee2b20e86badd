// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Olmv1 runs the parts of OLM v1's operator-controller that install a bundle, one at a time and without the controller around
// them, which cannot be built here (docs/adr/0056). Each command prints its result on stdout and its progress on stderr.
//
// The module's path is below that of operator-controller. So it may import operator-controller's internal packages.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

const usage = `usage: olmv1 COMMAND [FLAGS]

  render    print the objects that OLM v1 makes of a bundle
  rights    print the namespace and the service account with the rights to install a bundle
  registry  serve images from memory
  push      push a folder as an image
  install   install or upgrade a ClusterExtension, once: resolve, pull, check and apply
`

func main() {
	log := logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctrl.LoggerInto(ctx, log), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	commands := map[string]func(context.Context, *flag.FlagSet, []string, io.Writer) error{
		"render": printObjects, "rights": printRights, "registry": serveImages, "push": pushImage, "install": installExtension,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		return fmt.Errorf("%s", usage)
	}
	return commands[args[0]](ctx, flag.NewFlagSet(args[0], flag.ExitOnError), args[1:], out)
}
