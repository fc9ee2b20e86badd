// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command verticalscaler-operator adjusts the CPU and memory of the pods of Deployments to
// their usage.
package main

import (
	"flag"
	"fmt"
	"os"

	// Mozilla's certificate authorities, for a Prometheus with a public certificate. The image has no others. The system's
	// authorities take precedence where there are some.
	_ "golang.org/x/crypto/x509roots/fallback"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/verticalscaler/verticalscaler-operator/cmd/operator/app"
	"github.com/verticalscaler/verticalscaler-operator/internal/operator/config"
)

// version is set by the linker.
var version = "devel"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "verticalscaler-operator:", err)
		os.Exit(1)
	}
}

func run() error {
	path := flag.String("config", "", "the configuration `file` (an OperatorConfiguration); the defaults without")
	showVersion := flag.Bool("version", false, "print the version and exit")
	logging := zap.Options{}
	logging.BindFlags(flag.CommandLine)
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are only flags, see -help", flag.Arg(0))
	}
	if *showVersion {
		fmt.Println(version)
		return nil
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&logging)))
	if err := app.LimitMemory(os.Getenv); err != nil {
		return err
	}

	c, err := config.Load(*path)
	if err != nil {
		return err
	}
	for _, warning := range c.Warnings(os.Getenv) {
		ctrl.Log.Info("Warning: " + warning)
	}
	c.Version = version
	restConfig, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding a cluster: %w", err)
	}
	ctx := ctrl.SetupSignalHandler()
	return app.Run(ctx, restConfig, c)
}
