// Copyright The VerticalScaler Authors.
// SPDX-License-Identifier: Apache-2.0

// Command localcluster is a whole Kubernetes in one file.
//
// It holds etcd, the control plane, kubectl, kwok and metrics-server, and with the build tag kubelet the kubelet. Its name or its first argument
// selects the component: a link called kubectl is kubectl, and so is "localcluster kubectl". The component "up" runs a cluster
// of the others, each as a child process of the same file. It needs no installation and no root.
//
// With the build tag fetched, etcd, the control plane and kubectl are programs beside this file, which command fetch has
// downloaded.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli"
	// The registrations that the components' own main packages have.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
	metricsserver "sigs.k8s.io/metrics-server/cmd/metrics-server/app"

	"github.com/verticalscaler/verticalscaler-operator/hack/cluster/internal/up"
)

// component is one program inside this file.
type component struct {
	summary string
	// run finds its arguments in os.Args, where these programs look for them, and returns an exit code.
	run func() int
}

var components = map[string]component{
	"kwok": {"nodes and pods that exist in the API only", runKwok},
	"metrics-server": {"resource usage for kubectl top", func() int {
		return runQuietly(metricsserver.NewMetricsServerCommand(genericapiserver.SetupSignalHandler()))
	}},
	"up": {"runs a cluster until interrupted; see up -h", func() int { return up.Main(os.Args[1:], os.Stdout, os.Stderr) }},
}

func main() {
	up.FollowLauncher()

	name := filepath.Base(os.Args[0])
	chosen, ok := components[name]
	if !ok {
		// Not called through a link: the first argument takes the place of the name.
		os.Args = os.Args[1:]
		if len(os.Args) == 0 {
			usage(os.Stderr)
			os.Exit(2)
		}
		switch name = os.Args[0]; name {
		case "help", "-h", "-help", "--help":
			usage(os.Stdout)
			os.Exit(0)
		}
		if chosen, ok = components[name]; !ok {
			fmt.Fprintf(os.Stderr, "localcluster: unknown component %q\n\n", name)
			usage(os.Stderr)
			os.Exit(2)
		}
	}
	os.Exit(chosen.run())
}

func usage(out io.Writer) {
	fmt.Fprint(out, "Usage: localcluster COMPONENT [ARGUMENT...]\n\nThe component is one of:\n")
	for _, name := range slices.Sorted(maps.Keys(components)) {
		fmt.Fprintf(out, "  %-24s %s\n", name, components[name].summary)
	}
	fmt.Fprint(out, "\nA link to this file that has a component's name runs that component.\n")
}

// runQuietly is for the commands that do not print their own errors.
func runQuietly(command *cobra.Command) int {
	if err := cli.RunNoErrOutput(command); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runKwok does what kwok's main function does, which is not importable.
func runKwok() int {
	// The Kubernetes components register a --version with a value on the global flag set. Cobra would merge it into
	// kwok's flags, where --version is a plain switch, and panic.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ContinueOnError)

	early := pflag.NewFlagSet("early", pflag.ContinueOnError)
	early.ParseErrorsAllowlist.UnknownFlags = true
	early.Usage = func() {}

	ctx, logger := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), early)
	ctx, err := kwokconfig.InitFlags(ctx, early)
	if err != nil {
		logger.Error("Cannot read the configuration", err)
		return 1
	}
	command := kwok.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(early)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("Ended", err)
		return 1
	}
	return 0
}
